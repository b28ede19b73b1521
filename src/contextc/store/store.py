"""`Store`: what programs do with a store of any back-end. Each method is one transaction, durable when it returns.

Its public names are what a program needs. The rest of the package also uses its back-end (`engine_of`), the leases that
it holds (`leases_of`), and the functions after the class.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from contextc.errors import ContextcError, InvalidInput, InvalidMessage, InvalidSetting, StoreCorrupt
from contextc.events import AnyEvent
from contextc.messages import Message, validate_message
from contextc.store import (
    approval_rules,
    approvals,
    branches,
    conversation_list,
    leases,
    message_log,
    pins,
    redaction,
    session_transcripts,
    tags_and_notes,
    turn_controls,
    turn_records,
)
from contextc.store import turn_records as records
from contextc.store.approval_rules import Always, ApprovalRule
from contextc.store.approvals import MAX_WHO, Approval
from contextc.store.conversation_list import ConversationOverview, ConversationPage
from contextc.store.leases import LeaseManager
from contextc.store.message_log import (
    DEFAULT_AGENT,
    DOCTOR_HINT,
    Branch,
    BranchTip,
    Conversation,
    Lease,
    Recovered,
    Reference,
    bytes_or_none,
    check_name,
    load_tip,
    now_ms,
)
from contextc.store.redaction import check_redacted_text
from contextc.store.session_transcripts import TranscriptKey
from contextc.store.tags_and_notes import Note
from contextc.store.transaction_engine import Result, Transaction, TransactionEngine
from contextc.store.turn_controls import RequestKind, TurnRequest
from contextc.store.turn_records import QueuedMessage, QueueKind, StepRecord, Stream, TurnRecord
from contextc.tools.todos import Todo, TodoChange, TodoState, numbered_todos, validated_text

if TYPE_CHECKING:
    from contextc.store.async_store import AsyncStore

EXPIRE_BATCH = 500
MAX_CACHED_TIPS = 10_000


class Store:
    """Durable storage of conversations. `contextc.open_store` opens one."""

    def __init__(self, engine: TransactionEngine[Any]) -> None:
        self._engine = engine
        self._leases = LeaseManager(engine)
        self._tips: dict[str, BranchTip] = {}
        self._verified = message_log.VerifiedRanges()

    def __repr__(self) -> str:
        return f"<Store {self.address}{', closed' if self._engine.is_closed else ''}>"

    @property
    def address(self) -> str:
        """The address of the store, without its password and other secrets."""
        return self._engine.address

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run read-only work on one consistent snapshot of the store."""
        return self._engine.read(work)

    def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Run work in one transaction. It is retried after a conflict, so it must have no other effects.

        `repeatable` work checks `tx.is_retry` and finds the changes of an earlier attempt. It is retried even if the
        connection broke during commit and the server does not report the outcome.
        """
        return self._engine.write(work, repeatable=repeatable)

    def close(self) -> None:
        """End the turns of this handle and close all connections. An unavailable server is awaited only briefly."""
        self._leases.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def aio(self) -> "AsyncStore":
        """The methods of this store as coroutines, with the same names and parameters, for code on an event loop."""
        from contextc.store.async_store import AsyncStore  # it imports asyncio, which most programs do not need

        return AsyncStore(self)

    # ── appending and reading ─────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        conversation: str,
        message: Message,
        *,
        key: str | None = None,
        parent: Reference | None = None,
        lease: Lease | None = None,
    ) -> Message:
        """Append a message to a conversation, which is created if it does not exist.

        Two plain appends are two messages, even with equal content. With a `key` or a `parent`, a repeated append
        returns the stored message. A `parent` that is followed by another message raises `StaleParent`.
        """
        try:
            entry = message_log.prepare_entry(
                validate_message(message if lease is None else _with_author(message, lease))
            )
        except InvalidMessage as error:
            raise error.within(conversation) from None
        if key is None and parent is None and lease is None and (stored := self._append_at_tip(conversation, entry)):
            return stored
        return self._append(conversation, [entry], key=key, parent=parent, lease=lease)[0]

    def extend(self, conversation: str, messages: Iterable[Message], *, lease: Lease | None = None) -> list[Message]:
        """Append several messages without others between them: all or none."""
        spoken = [message if lease is None else _with_author(message, lease) for message in _check_list(messages)]
        entries = [
            message_log.prepare_entry(message_log.validate_for(message, conversation, index=index))
            for index, message in enumerate(spoken)
        ]
        return self._append(conversation, entries, lease=lease) if entries else []

    def load(
        self,
        conversation: str,
        *,
        last: int | None = None,
        after: Reference | None = None,
        until: Reference | None = None,
        branch: int | None = None,
    ) -> list[Message]:
        """Return the messages of a conversation in order: all, a range (`after`, `until`), or the `last` ones of these.

        A message that is missing, or does not match its hash, raises `StoreCorrupt`. An open store verifies each row
        when it first loads it; `contextc doctor` verifies every row.
        """

        def work(tx: Transaction) -> list[Message]:
            return message_log.load_messages(
                tx, conversation, last=last, after=after, until=until, branch=branch, verified=self._verified
            )

        return self.read(work)

    def sync(self, conversation: str, history: Iterable[Message]) -> list[Message]:
        """Merge the complete history of a stateless client. Return the messages that were new.

        Entries that the client never received are skipped. If it changed or removed a message, the new tail goes to a
        new branch and the old one is kept. If the history matches another branch, that branch becomes current. A
        client may keep its last messages only: the earlier ones stay in the conversation.
        """
        entries = [
            message_log.prepare_entry(message_log.validate_for(message, conversation, index=index))
            for index, message in enumerate(_check_list(history))
        ]

        def work(tx: Transaction) -> list[Message]:
            here = message_log.find_tip(tx, conversation, True)
            if here is None:
                return message_log.append_messages(tx, conversation, entries) if entries else []
            if tx.is_retry and (stored := message_log.find_stored(tx, tails[-1])):
                return stored
            open_now = turn_records.list_open_stream_uids(
                tx, conversation
            )  # a client may send a message that is still being written
            mine = [entry for entry in entries if entry.admitted.message.uid not in open_now]
            tail, stored = branches.merge_history(tx, conversation, here, mine, self._verified)
            tails.append(tail)
            return stored

        tails = [entries]
        return self.write(work, repeatable=True)

    def conversation(self, name: str) -> Conversation:
        """Return the state of a conversation: its length, tip, branch and revision."""
        return self.read(lambda tx: branches.load_conversation(tx, name))

    def conversations(self) -> list[Conversation]:
        """Return the state of all conversations."""
        return self.read(branches.list_conversations)

    def begin(self, name: str) -> Conversation:
        """Create an empty conversation. Raises `ConversationExists`."""
        return self.write(lambda tx: branches.create_conversation(tx, name))

    def overview(self, name: str) -> ConversationOverview:
        """Return the list entry of a conversation: title, time of the last message, model."""
        return self.read(lambda tx: conversation_list.load_overview(tx, name))

    def set_title(self, conversation: str, title: str) -> ConversationOverview:
        """Set the title of a conversation, at most 200 characters. An empty one restores its first user message."""
        return self.write(lambda tx: conversation_list.set_title(tx, conversation, title), repeatable=True)

    def overviews(self, *, search: str = "", before: str = "", limit: int = 50, tag: str = "") -> ConversationPage:
        """Return a page of conversations, most recently active first, optionally only those that contain `search`, or
        have a tag.

        Pass `next` of a page as `before` to get the next one. A search reads a bounded number of messages per call. A
        page may therefore have fewer than `limit` entries, or none, and still have a next one.
        """
        if search.strip():
            return self.read(
                lambda tx: conversation_list.search_conversations(tx, search, before=before, limit=limit, tag=tag)
            )
        return self.read(lambda tx: conversation_list.load_page(tx, before=before, limit=limit, tag=tag))

    # ── tags and notes: written by people, and sent to no model ───────────────────────────────────────────────────────

    def tags(self, conversation: str | None = None) -> list[str]:
        """Return the tags of a conversation, or all tags of the store, sorted."""
        if conversation is None:
            return self.read(tags_and_notes.list_tags)
        return self.read(lambda tx: tags_and_notes.load_tags(tx, conversation))

    def tag(self, conversation: str, *tags: str) -> list[str]:
        """Add tags to a conversation, and return its tags. Raises `UnknownConversation`."""
        return self.write(lambda tx: tags_and_notes.change_tags(tx, conversation, add=tags), repeatable=True)

    def untag(self, conversation: str, *tags: str) -> list[str]:
        """Remove tags from a conversation, and return its tags. Raises `UnknownConversation`."""
        return self.write(lambda tx: tags_and_notes.change_tags(tx, conversation, remove=tags), repeatable=True)

    def notes(self, conversation: str) -> list[Note]:
        """Return the notes of a conversation, oldest first."""
        return self.read(lambda tx: tags_and_notes.load_notes(tx, conversation))

    def add_note(self, conversation: str, text: str, *, who: str = "", request: str = "") -> Note:
        """Add a note to a conversation, or to one of its requests: `request` is `CHANNEL/NUMBER`."""
        return self.write(
            lambda tx: tags_and_notes.add_note(tx, conversation, text, who=who[:MAX_WHO], request=request)
        )

    def delete_note(self, conversation: str, number: int) -> None:
        """Remove a note of a conversation permanently."""
        self._engine.erase(lambda tx: tags_and_notes.delete_note(tx, conversation, number))

    def blob(self, name: str) -> bytes:
        """Return the bytes of a Media part by its `blob`."""
        row = self.read(lambda tx: tx.row("SELECT data FROM main.blob WHERE name = ?", name))
        if row is None:
            raise InvalidInput(f"This store has no blob {name!r}: it was redacted, or never stored.")
        data = bytes_or_none(row[0])
        if data is None:
            raise StoreCorrupt(f"Blob {name!r} is corrupt: expected bytes", fix=DOCTOR_HINT)
        return data

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a consistent snapshot of the whole store into a new file, while others may continue to write.

        SQLite and `memory:` only. `contextc restore` restores it.
        """
        self._engine.backup(target)

    # ── branches ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def branches(self, conversation: str) -> list[Branch]:
        """Return the branches of a conversation with their tips, oldest first. One is current."""
        return self.read(lambda tx: branches.list_branches(tx, conversation))

    def fork(self, conversation: str, name: str, *, at: Reference | None = None) -> Conversation:
        """Create a conversation that shares all messages up to `at` (default: the tip). No message is copied."""
        return self.write(lambda tx: branches.fork(tx, conversation, name, at))

    def rewind(self, conversation: str, to: Reference) -> Conversation:
        """Continue after an earlier message (0: from the start). Later messages stay on their own branch."""
        return self.write(lambda tx: branches.rewind(tx, conversation, to))

    def edit(self, conversation: str, target: Reference, message: Message) -> Message:
        """Replace a message on a new branch. The old message and its successors stay on their branch."""
        entry = message_log.prepare_entry(message_log.validate_for(replace(message, uid="", time=0), conversation))
        return self.write(lambda tx: branches.edit(tx, conversation, target, entry))

    def switch(self, conversation: str, branch: int) -> Conversation:
        """Make another branch current."""
        return self.write(lambda tx: branches.switch(tx, conversation, branch))

    def reset(self, conversation: str) -> Conversation:
        """Clear the context: earlier messages stay stored but are no longer sent to a model."""
        return self.write(lambda tx: branches.reset_context(tx, conversation))

    def pin(self, conversation: str, target: Reference) -> list[int]:
        """Pin a message, a call together with its results, so that it is never trimmed. Return the pinned seqs."""
        return self.write(lambda tx: pins.pin_message(tx, conversation, target))

    def unpin(self, conversation: str, target: Reference) -> list[int]:
        """Remove a pin. Return the seqs of the messages that are no longer pinned."""
        return self.write(lambda tx: pins.unpin_message(tx, conversation, target))

    def pinned(self, conversation: str) -> list[int]:
        """Return the seqs of the pinned messages."""
        return self.read(
            lambda tx: [
                where & message_log.SEQ_MASK
                for where in pins.load_pinned_places(tx, message_log.load_tip(tx, conversation))
            ]
        )

    def delete(self, conversation: str) -> None:
        """Delete a conversation and its messages, except those that a fork still needs.

        `pending_erasure` is above 0 while its content is still in the files of the store.
        """

        delete_selected(self, lambda tx: [conversation])

    # ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def redact(self, conversation: str, target: Reference) -> Message:
        """Remove the content of a message permanently. Its id and its place are kept.

        `pending_erasure` is above 0 while the content is still in the files of the store.
        """

        return self._engine.erase(lambda tx: redaction.redact_message(tx, conversation, target))

    def redact_text(self, conversation: str, text: str) -> list[Message]:
        """Remove a text permanently from all that is stored of a conversation and its forks. Return the messages of it.

        Messages with the text lose their content, as with `redact`. In titles, todos, queued input, approvals, errors
        and states of triggers the text is replaced. System prompts and requests with it can no longer be rebuilt.
        """
        check_redacted_text(text)
        return self._engine.erase(lambda tx: redaction.redact_text(tx, conversation, text))

    def expire(self, age: timedelta) -> int:
        """Redact every message older than `age`. Return their number.

        Session transcripts of that age without a conversation are removed too.
        """
        if not isinstance(age, timedelta) or age <= timedelta(0):
            raise InvalidSetting(
                "age must be a timedelta above zero", got=age, fix="Pass an age such as timedelta(days=90)."
            )
        before, total, after = message_log.now_ms() - int(age.total_seconds() * 1000), 0, -1

        def work(tx: Transaction) -> tuple[int, int]:
            count, last = redaction.redact_older(tx, before, EXPIRE_BATCH, after)
            if count:
                self._engine.record_erasure(tx)
            return count, last

        def drop(tx: Transaction) -> int:
            count = session_transcripts.delete_unowned_older(tx, before)
            if count:
                self._engine.record_erasure(tx)
            return count

        while (found := self.write(work))[0]:
            total, after = total + found[0], found[1]
        if self.write(drop) or total:
            self._engine.erase_removed_content()
        return total

    @property
    def pending_erasure(self) -> int:
        """Number of redactions and deletions whose content is still in the files of the store.

        A SQLite store keeps older pages in its write-ahead log while a reader needs them. The store erases them in the
        background, and when it is next opened. Other back-ends return 0: a PostgreSQL server erases removed rows with
        its next vacuum.
        """
        return self._engine.count_pending_erasures()

    # ── todos ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def todos(self, conversation: str, agent: str = DEFAULT_AGENT) -> list[Todo]:
        """Return the todo list of an agent in a conversation, in order."""
        check_name(agent, "agent")
        check_name(conversation)
        rows = self._engine.try_read_statement(turn_records.LOAD_TODOS, (agent, conversation))  # read in every step
        if rows is None:
            return self.read(lambda tx: turn_records.load_todos(tx, conversation, agent))
        return turn_records.decode_todos(conversation, rows)

    def add_todo(self, conversation: str, text: str, *, agent: str = DEFAULT_AGENT) -> Todo:
        """Append an open todo to the list. The conversation is created if it does not exist."""
        line = validated_text(text)
        return self.write(lambda tx: turn_records.add_todo(tx, conversation, agent, line))

    def set_todo(
        self,
        conversation: str,
        number: int,
        *,
        state: TodoState | None = None,
        text: str | None = None,
        agent: str = DEFAULT_AGENT,
    ) -> Todo:
        """Change the state of a todo (`open`, `doing`, `done`, `dropped`), its text, or both."""
        todos = self.change_todos(conversation, [TodoChange(number=number, state=state, text=text)], agent=agent)
        return next(todo for todo in todos if todo.number == number)

    def change_todos(
        self, conversation: str, changes: Iterable[TodoChange], *, agent: str = DEFAULT_AGENT
    ) -> list[Todo]:
        """Change several todos, all of them or none, and return the list."""
        checked = turn_records.check_changes(changes)
        return self.write(lambda tx: turn_records.change_todos(tx, conversation, agent, checked), repeatable=True)

    def replace_todos(
        self, conversation: str, todos: Iterable[str | Todo], *, agent: str = DEFAULT_AGENT
    ) -> list[Todo]:
        """Replace the whole list, numbered from 1. The conversation is created if it does not exist."""
        listed = numbered_todos(todos)
        return self.write(lambda tx: turn_records.replace_todos(tx, conversation, agent, listed), repeatable=True)

    # ── turns and events ──────────────────────────────────────────────────────────────────────────────────────────────

    def turns(self, conversation: str, *, last: int | None = None) -> list[TurnRecord]:
        """Return the turns of a conversation, oldest first."""
        return self.read(
            lambda tx: records.load_turns(tx, message_log.load_tip(tx, conversation).conversation, last=last)
        )

    def steps(self, conversation: str, turn: int | None = None) -> list[StepRecord]:
        """Return the steps of a turn, or of all turns."""
        return self.read(lambda tx: records.load_steps(tx, message_log.load_tip(tx, conversation).conversation, turn))

    def events(self, conversation: str, *, after: int = 0, limit: int | None = None) -> list[AnyEvent]:
        """Return the events of a conversation after event `after`, in order."""
        for name, value, least in (("after", after, 0), ("limit", limit, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise InvalidInput(f"{name} must be an integer, {least} or more", got=value)
        return self.read(
            lambda tx: records.load_events(tx, message_log.load_tip(tx, conversation).conversation, after, limit)
        )

    def enqueue(
        self, conversation: str, message: Message, *, kind: QueueKind = "follow-up", agent: str = DEFAULT_AGENT
    ) -> QueuedMessage:
        """Queue input: to `steer` the running turn between two steps, or as a `follow-up` after it."""
        check_name(agent, "agent")
        if kind not in ("steer", "follow-up"):
            raise InvalidInput('kind must be "steer" or "follow-up"', got=kind)
        blobs = message_log.validate_for(message, conversation).blobs

        def work(tx: Transaction) -> QueuedMessage:
            here = message_log.find_tip(tx, conversation, True) or message_log.insert_conversation(tx, conversation)
            message_log.check_blobs(tx, conversation, blobs)
            return records.enqueue_message(tx, here.conversation, agent, kind, message)

        return self.write(work)

    def queued(self, conversation: str, agent: str = DEFAULT_AGENT) -> list[QueuedMessage]:
        """Return the queued input of an agent in order of arrival."""
        return self.read(lambda tx: records.load_queue(tx, message_log.load_tip(tx, conversation).conversation, agent))

    # ── leases and streams ────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lease(
        self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0
    ) -> Generator[Lease]:
        """Hold the lease of an agent in a conversation, renewed until the block ends.

        `wait` is the time in seconds to wait for another running turn. Then `ConversationBusy` is raised.
        """
        lease = self.acquire(conversation, agent, ttl=ttl, wait=wait)
        try:
            yield lease
        except BaseException:
            with suppress(ContextcError):  # keep the exception of the block
                self._leases.release(lease, failed=True)
            raise
        self._leases.release(lease, failed=False)

    def acquire(self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0) -> Lease:
        """Take the lease, for code that cannot use a `with`. End it with `release`."""
        check_name(agent, "agent")
        if ttl <= 0:
            raise InvalidInput("ttl must be above 0 seconds", got=ttl)
        return self._leases.acquire(conversation, agent, ttl=ttl, wait=wait)

    def release(self, lease: Lease, *, failed: bool = False) -> None:
        """End the turn. Its open streams end as `error`; open calls of a `failed` turn get an error result."""
        self._leases.release(lease, failed=failed)

    def on_lease_lost(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of a lease. It runs once, on another thread, and not after a release."""
        self._leases.on_lease_lost(lease, callback)

    def stream(self, lease: Lease, head: Message | None = None) -> Stream:
        """Open a stream for a message whose content is still arriving. Its end appends the message to the chain.

        `head` is the message without parts (role, run, step …); by default a reply of the lease's agent.
        """
        return self._leases.open_stream(lease, head)

    def recover(self) -> list[Recovered]:
        """Recover turns whose process died. Opening a store calls this; a live turn is never changed.

        Without dead turns it costs one query of the held leases, so a server may call it every few seconds. Events
        record what was done. A locked conversation is skipped until its next turn begins.
        """
        return self._leases.recover()

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """Dead turns that this handle has recovered, also when it was opened."""
        return self._leases.recovered

    # ── approvals, and requests to end turns ──────────────────────────────────────────────────────────────────────────

    def approvals(self, conversation: str | None = None) -> list[Approval]:
        """Return the pending approvals of a conversation, or of the whole store, oldest first.

        Expired ones are answered with their default answer first. Raises `UnknownConversation`.
        """

        def work(tx: Transaction) -> list[Approval]:
            if conversation is not None:
                load_tip(tx, conversation)
            return approvals.load_pending(tx, conversation)

        found, now = self.read(work), now_ms()
        if any(0 < each.expires <= now for each in found):
            expire_approvals(self, conversation)
            found = self.read(work)
        return found

    def turn_approvals(self, conversation: str, turn: int) -> list[Approval]:
        """Return all approvals of a turn, also those that were answered or withdrawn."""
        return self.read(lambda tx: approvals.load_turn_approvals(tx, load_tip(tx, conversation).conversation, turn))

    def answer_approval(
        self,
        id: str,
        allow: bool | Always,
        *,
        reason: str = "",
        who: str = "",
        result: str | None = None,
        failed: bool = False,
        content: Mapping[str, object] | None = None,
        cancel: bool = False,
        in_transaction: Callable[[Transaction, Approval], None] | None = None,
    ) -> Approval:
        """Answer a pending approval. The model gets the `reason` of a denial. `who` is stored with the answer.

        `result` is what a client's own tool returned, and `failed` is True if it failed. Only approvals with `client`
        have one. `content` answers one with a `question`: the values of its form, or of several forms by their keys.
        A server is told of a question that is denied; with `cancel`, that it was closed without a decision.

        With `Always(…)` as the answer, a rule is stored in the same transaction, which answers later calls, and what
        else the conversation waits for now.

        The first answer counts: a later one raises `AlreadyAnswered`, which names who answered and when. The turn is
        not continued by this; `in_transaction` can submit that in the same transaction. Raises `UnknownApproval`.
        """
        always = allow if isinstance(allow, Always) else None
        if always is not None:
            always = replace(always, reason=reason or always.reason, who=who or always.who)
            always.check()
            allow, reason, who = always.allow, always.reason, always.who
        if not isinstance(allow, bool):
            raise InvalidInput(
                "allow must be True or False", got=allow, fix="To deny with a reason, pass False and reason=…."
            )
        if allow and cancel:
            raise InvalidInput("allow and cancel cannot both be True", fix="Pass allow=False to close the question.")
        for name, text in (("reason", reason), ("who", who), ("result", result or "")):
            if not isinstance(text, str):
                raise InvalidInput(f"{name} must be a string, got {type(text).__name__}")
        known = self.read(lambda tx: approvals.load_approval(tx, id))
        if known.state == "pending" and 0 < known.expires <= now_ms():
            expire_approvals(self, known.conversation)
        time, verdict = now_ms(), allow

        def work(tx: Transaction) -> Approval:
            done = approvals.answer(
                tx,
                id,
                allow=verdict,
                reason=reason,
                who=who[:MAX_WHO],
                time=time,
                result=result,
                failed=failed,
                content=content,
                cancelled=cancel,
            )
            if always is not None:
                approvals.store_rule(tx, done, always)
            if in_transaction is not None:
                in_transaction(tx, done)
            return done

        return self.write(work, repeatable=in_transaction is None)

    def approval_rules(self, *, ended: bool = False) -> list[ApprovalRule]:
        """Return the rules that answer calls in advance, oldest first; with `ended` also those that hold no longer."""
        return self.read(lambda tx: approval_rules.load_rules(tx, ended=ended))

    def revoke_rule(self, id: str, *, who: str = "") -> ApprovalRule:
        """Revoke a rule: it does not hold for the next call, in any process. Raises `UnknownRule`."""
        return self.write(lambda tx: approval_rules.revoke_rule(tx, id, who[:MAX_WHO]), repeatable=True)

    def answered_turns(self) -> list[tuple[str, str, int]]:
        """Return the turns that wait although all their approvals are answered: conversation, agent and turn."""
        expire_approvals(self)
        return self.read(approvals.load_answered_turns)

    def cancel_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """Cancel an agent's turn, in whichever process it runs. A turn that waits for approval ends at once.

        A running turn notices the request with its next write or step, at the latest when its lease is renewed.
        """
        return self._request_end(conversation, agent, "cancel", who)

    def stop_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """End an agent's turn after its current step, in whichever process it runs. Its finish reason is `stopped`."""
        return self._request_end(conversation, agent, "stop", who)

    def turn_requests(self, conversation: str, turn: int) -> list[TurnRequest]:
        """Return the requests to end a turn, oldest first."""
        return self.read(lambda tx: turn_controls.load_requests(tx, conversation, turn))

    def _request_end(self, conversation: str, agent: str, kind: RequestKind, who: str) -> TurnRequest:
        check_name(agent, "agent")
        if not isinstance(who, str):
            raise InvalidInput(f"who must be a string, got {type(who).__name__}")
        self.recover()  # a turn whose process has ended is interrupted, and not running
        return self.write(lambda tx: turn_controls.request_end(tx, conversation, agent, kind, who[:MAX_WHO]))

    # ── appends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _append_at_tip(self, conversation: str, entry: message_log.PendingMessage) -> Message | None:
        """Append with a single statement at the tip that this handle last saw, the fast path of a plain append.

        The statement checks that the tip is unchanged. Return None if it changed, or if more than one row is needed.
        """
        tip = self._tips.get(conversation)
        if tip is None or entry.admitted.blobs or entry.admitted.message.uid or entry.time // 1000 != tip.last_active:
            return None
        message, values = message_log.build_row(tip, entry)
        if not self._engine.try_write_statement(message_log.APPEND_AT_TIP, message_log.values_at_tip(values, tip)):
            return None
        self._tips[conversation] = replace(tip, seq=message.seq, id=values[1])
        return message

    def _append(
        self,
        conversation: str,
        entries: list[message_log.PendingMessage],
        *,
        key: str | None = None,
        parent: Reference | None = None,
        lease: Lease | None = None,
    ) -> list[Message]:
        def work(tx: Transaction) -> list[Message]:
            if lease is not None:
                leases.check_lease(tx, lease, conversation)
            at = message_log.find_tip(tx, conversation, True)
            stored = message_log.append_messages(tx, conversation, entries, at=at, key=key, parent=parent)
            if plain and (at is None or tx.is_retry):  # in a retry, others may have appended meanwhile
                ends.append(message_log.load_tip(tx, conversation))
            elif plain and at is not None:
                ends.append(at.followed_by(stored[-1]))
            return stored

        plain, ends = key is None and parent is None and lease is None, list[BranchTip]()
        stored = self.write(work, repeatable=True)
        if plain:
            if len(self._tips) >= MAX_CACHED_TIPS:
                self._tips.clear()
            self._tips[conversation] = ends[-1]
        return stored


# ── internals, for other modules ──────────────────────────────────────────────────────────────────────────────────────


def engine_of(store: Store) -> TransactionEngine[Any]:
    """Return the back-end of a store."""
    return store._engine  # pyright: ignore[reportPrivateUsage]


def leases_of(store: Store) -> LeaseManager:
    """Return the leases that a store handle holds."""
    return store._leases  # pyright: ignore[reportPrivateUsage]


def open_with(engine: TransactionEngine[Any]) -> Store:
    """Return a store with that back-end: migrate its tables, then recover dead turns."""
    store = Store(engine)
    try:
        engine.initialize()
        if not engine.is_read_only:
            leases = leases_of(store)
            leases.recovered += tuple(leases.recover())
    except BaseException:
        store.close()
        raise
    return store


def cache_tip(store: Store, conversation: str, end: BranchTip) -> None:
    """Update the cached tip of a conversation after a transaction outside of `Store`."""
    tips = store._tips  # pyright: ignore[reportPrivateUsage]
    if conversation in tips:
        tips[conversation] = end


def delete_selected(store: Store, select: Callable[[Transaction], Iterable[str]]) -> list[str]:
    """Delete the conversations that `select` returns, in one transaction. Return their names."""
    engine = engine_of(store)

    def work(tx: Transaction) -> list[str]:
        names = list(select(tx))
        for name in names:
            branches.delete_conversation(tx, name)
        if names:
            engine.record_erasure(tx)
        return names

    names = store.write(work)
    if names:
        engine.erase_removed_content()
    return names


def drop_transcript(store: Store, key: TranscriptKey) -> None:
    """Remove a provider's transcript of a session permanently: one subpath of it, or all."""
    engine_of(store).erase(lambda tx: session_transcripts.delete_transcript(tx, key), repeatable=True)


def expire_approvals(store: Store, conversation: str | None = None) -> list[Approval]:
    """Answer expired approvals with their default answer. Return these."""
    if not store.read(lambda tx: approvals.has_expired(tx, conversation)):
        return []
    return store.write(lambda tx: approvals.expire_pending(tx, conversation))


def _with_author(message: Message, lease: Lease) -> Message:
    """Return a message of a turn, with the agent of the lease as its default author."""
    if not isinstance(message, Message) or not isinstance(lease, Lease):
        return message  # validation reports the wrong type later
    return replace(message, author=lease.agent) if message.role == "assistant" and message.author is None else message


def _check_list(messages: Iterable[Message]) -> list[Message]:
    if isinstance(messages, Message):
        raise InvalidInput("expected a list of messages, got one message", fix="Use `append`, or pass [message].")
    return list(messages)

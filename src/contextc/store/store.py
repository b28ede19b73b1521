"""The `Store` interface of all back-ends. Each method is one transaction, durable when it returns."""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from contextc.errors import InvalidInput, InvalidMessage, InvalidSetting, StoreCorrupt
from contextc.events import AnyEvent
from contextc.messages import Message, validate_message
from contextc.store import (
    branches,
    conversation_list,
    leases,
    message_log,
    pins,
    redaction,
    session_transcripts,
    turn_records,
)
from contextc.store import turn_records as records
from contextc.store.conversation_list import ConversationOverview, ConversationPage
from contextc.store.message_log import (
    DEFAULT_AGENT,
    DOCTOR_HINT,
    Branch,
    BranchTip,
    Conversation,
    Lease,
    Reference,
    bytes_or_none,
    check_name,
)
from contextc.store.redaction import check_redacted_text
from contextc.store.session_transcripts import TranscriptKey
from contextc.store.transaction_engine import Connection, Transaction
from contextc.store.turn_controls import TurnControls
from contextc.store.turn_records import QueuedMessage, QueueKind, StepRecord, TurnRecord
from contextc.tools.todos import Todo, TodoChange, TodoState, numbered_todos, validated_text

if TYPE_CHECKING:
    from contextc.store.async_store import AsyncStore

Result = TypeVar("Result")
EXPIRE_BATCH = 500
MAX_CACHED_TIPS = 10_000


class Store(TurnControls[Connection]):
    """Durable storage of conversations. `contextc.open_store` opens one."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._tips: dict[str, BranchTip] = {}
        self._verified = message_log.VerifiedRanges()

    def initialize(self) -> None:
        """Migrate the schema, then recover dead turns."""
        self.migrate()
        self.recovered += tuple(self.recover())

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

    def overviews(self, *, search: str = "", before: str = "", limit: int = 50) -> ConversationPage:
        """Return a page of conversations, most recently active first, optionally only those that contain `search`.

        Pass `next` of a page as `before` to get the next one. A search reads a bounded number of messages per call. A
        page may therefore have fewer than `limit` entries, or none, and still have a next one.
        """
        if search.strip():
            return self.read(lambda tx: conversation_list.search_conversations(tx, search, before=before, limit=limit))
        return self.read(lambda tx: conversation_list.load_page(tx, before=before, limit=limit))

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
        raise InvalidSetting(
            f"{self.address}: only SQLite stores can be backed up to a file", fix="Use pg_dump and pg_restore."
        )

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

        self.delete_selected(lambda tx: [conversation])

    def delete_selected(self, select: Callable[[Transaction], Iterable[str]]) -> list[str]:
        """Delete the conversations that `select` returns, in one transaction. Return their names."""

        def work(tx: Transaction) -> list[str]:
            names = list(select(tx))
            for name in names:
                branches.delete_conversation(tx, name)
            if names:
                self._record_erasure(tx)
            return names

        names = self.write(work)
        if names:
            self._erase_removed_content()
        return names

    # ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def redact(self, conversation: str, target: Reference) -> Message:
        """Remove the content of a message permanently. Its id and its place are kept.

        `pending_erasure` is above 0 while the content is still in the files of the store.
        """

        return self._erase(lambda tx: redaction.redact_message(tx, conversation, target))

    def redact_text(self, conversation: str, text: str) -> list[Message]:
        """Remove a text permanently from all that is stored of a conversation and its forks. Return the messages of it.

        Messages with the text lose their content, as with `redact`. In titles, todos, queued input, approvals, errors
        and states of triggers the text is replaced. System prompts and requests with it can no longer be rebuilt.
        """
        check_redacted_text(text)
        return self._erase(lambda tx: redaction.redact_text(tx, conversation, text))

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
                self._record_erasure(tx)
            return count, last

        def drop(tx: Transaction) -> int:
            count = session_transcripts.delete_unowned_older(tx, before)
            if count:
                self._record_erasure(tx)
            return count

        while (found := self.write(work))[0]:
            total, after = total + found[0], found[1]
        if self.write(drop) or total:
            self._erase_removed_content()
        return total

    def drop_transcript(self, key: TranscriptKey) -> None:
        """Remove a provider's transcript of a session permanently: one subpath of it, or all."""

        self._erase(lambda tx: session_transcripts.delete_transcript(tx, key), repeatable=True)

    def _erase(self, remove: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Remove content in one transaction, then from the files of the store."""

        def work(tx: Transaction) -> Result:
            result = remove(tx)
            self._record_erasure(tx)
            return result

        result = self.write(work, repeatable=repeatable)
        self._erase_removed_content()
        return result

    @property
    def pending_erasure(self) -> int:
        """Number of redactions and deletions whose content is still in the files of the store.

        A SQLite store keeps older pages in its write-ahead log while a reader needs them. The store erases them in the
        background, and when it is next opened. Other back-ends return 0: a PostgreSQL server erases removed rows with
        its next vacuum.
        """
        return 0

    # ── todos ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def todos(self, conversation: str, agent: str = DEFAULT_AGENT) -> list[Todo]:
        """Return the todo list of an agent in a conversation, in order."""
        check_name(agent, "agent")
        check_name(conversation)
        rows = self.try_read_statement(turn_records.LOAD_TODOS, agent, conversation)  # read in every step
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

    def _append_at_tip(self, conversation: str, entry: message_log.PendingMessage) -> Message | None:
        """Append with a single statement at the tip that this handle last saw, the fast path of a plain append.

        The statement checks that the tip is unchanged. Return None if it changed, or if more than one row is needed.
        """
        tip = self._tips.get(conversation)
        if tip is None or entry.admitted.blobs or entry.admitted.message.uid or entry.time // 1000 != tip.last_active:
            return None
        message, values = message_log.build_row(tip, entry)
        if not self._run_single_statement(message_log.APPEND_AT_TIP, message_log.values_at_tip(values, tip)):
            return None
        self._tips[conversation] = replace(tip, seq=message.seq, id=values[1])
        return message

    def cache_tip(self, conversation: str, end: BranchTip) -> None:
        """Update the cached tip of a conversation after a transaction outside this class."""
        if conversation in self._tips:
            self._tips[conversation] = end

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
            stored = message_log.append_messages(tx, conversation, entries, key=key, parent=parent)
            if plain:
                ends.append(message_log.load_tip(tx, conversation))
            return stored

        plain, ends = key is None and parent is None and lease is None, list[BranchTip]()
        stored = self.write(work, repeatable=True)
        if plain:
            if len(self._tips) >= MAX_CACHED_TIPS:
                self._tips.clear()
            self._tips[conversation] = ends[-1]
        return stored


def _with_author(message: Message, lease: Lease) -> Message:
    """Return a message of a turn, with the agent of the lease as its default author."""
    if not isinstance(message, Message) or not isinstance(lease, Lease):
        return message  # validation reports the wrong type later
    return replace(message, author=lease.agent) if message.role == "assistant" and message.author is None else message


def _check_list(messages: Iterable[Message]) -> list[Message]:
    if isinstance(messages, Message):
        raise InvalidInput("expected a list of messages, got one message", fix="Use `append`, or pass [message].")
    return list(messages)

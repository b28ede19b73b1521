"""The one interface of every back-end. Each method is one transaction: durable when it returns, or never happened."""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from contextc.errors import (
    ContextcError,
    ConversationBusy,
    InvalidInput,
    InvalidMessage,
    InvalidSetting,
    LeaseLost,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
)
from contextc.events import AnyEvent
from contextc.messages import Admitted, AnyPart, Message, admit
from contextc.store import branches, chain, leases, pins, places, redaction, streams, transcripts
from contextc.store import overviews as lists
from contextc.store import search as searching
from contextc.store import todos as todo_lists
from contextc.store import turns as running
from contextc.store.base import Branch, Conversation, Lease, Recovered, Reference, Transaction
from contextc.store.engine import Connection, Engine
from contextc.store.keeper import warn
from contextc.store.overviews import Overview, Page
from contextc.store.places import Head, check_name
from contextc.store.reading import LOOK, as_bytes
from contextc.store.transcripts import TranscriptKey
from contextc.store.turns import Queued, QueueKind, StepRecord, TurnRecord
from contextc.store.waiting import Waiting
from contextc.todos import Todo, TodoChange, TodoState, check_text, numbered

DEFAULT_AGENT = "assistant"
EXPIRE_BATCH = 500
TIPS_KEPT = 10_000
RECOVERED_KEPT = 100
CLOSING_SECONDS = 5.0
RECOVERY_SECONDS = 10
"""Time after which opening a store waits for no more locked conversations."""


class Store(Engine[Connection]):
    """A record of conversations. `contextc.open_store` opens one."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._renewals: dict[Lease, Callable[[], None]] = {}
        self._losses: dict[Lease, Callable[[], None]] = {}
        self.waiting = Waiting()
        self._streams: dict[str, streams.Stream] = {}
        self.recovered: tuple[Recovered, ...] = ()
        """What dead turns had left, and this handle put right."""
        self._tips: dict[str, Head] = {}
        self._verified = chain.Verified()

    def ready(self) -> None:
        """Bring the schema up to date, then put right what dead turns left."""
        self.migrate()
        self.recovered += tuple(self.recover())

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
        """Put a message at the end of a conversation, which is made if it is new.

        Two plain appends are two messages, however alike. With a `key`, or a stated `parent`, the same append made
        again returns the message that is already there. A `parent` that is no longer the tip, and is followed by
        something else, raises `StaleParent`.
        """
        try:
            entry = chain.entry(admit(message if lease is None else _spoken(message, lease)))
        except InvalidMessage as error:
            raise error.within(conversation) from None
        if key is None and parent is None and lease is None and (stored := self._append_at_tip(conversation, entry)):
            return stored
        return self._append(conversation, [entry], key=key, parent=parent, lease=lease)[0]

    def extend(self, conversation: str, messages: Iterable[Message], *, lease: Lease | None = None) -> list[Message]:
        """Append several messages: all of them, next to each other, or none."""
        spoken = [message if lease is None else _spoken(message, lease) for message in _listed(messages)]
        entries = [chain.entry(_admit(message, conversation, index=index)) for index, message in enumerate(spoken)]
        return self._append(conversation, entries, lease=lease) if entries else []

    def load(
        self,
        conversation: str,
        *,
        last: int | None = None,
        after: Reference | None = None,
        upto: Reference | None = None,
        branch: int | None = None,
    ) -> list[Message]:
        """The messages of a conversation in order: all, those after one and up to another, or the last few of these.

        A message that is missing, or does not match its hash, raises `StoreCorrupt`. An open store verifies each row
        once, when it first loads it; `contextc doctor` verifies every row.
        """

        def work(tx: Transaction) -> list[Message]:
            return chain.load(
                tx, conversation, last=last, after=after, upto=upto, branch=branch, verified=self._verified
            )

        return self.read(work)

    def sync(self, conversation: str, history: Iterable[Message]) -> list[Message]:
        """Take in a history that a client sends whole each time, and return what was new in it.

        Entries the client never received are passed over. Where it changed or dropped something it had, the new tail
        goes to a new branch, and everything before it stays as it was; a history that another branch holds leads back
        to that branch.
        """
        entries = [
            chain.entry(_admit(message, conversation, index=index)) for index, message in enumerate(_listed(history))
        ]

        def work(tx: Transaction) -> list[Message]:
            here = places.find_head(tx, conversation, True)
            if here is None:
                return chain.append(tx, conversation, entries) if entries else []
            if tx.again and (stored := chain.stored_before(tx, tails[-1])):
                return stored
            open_now = streams.open_in(tx, conversation)  # a page may send what is still being written
            mine = [entry for entry in entries if entry.admitted.message.uid not in open_now]
            difference = branches.reconcile(
                tx, conversation, [entry.admitted.message for entry in mine], self._verified
            )
            tail = mine[len(mine) - difference.tail :]
            tails.append([branches.renamed(tx, here.tree, entry) for entry in tail])
            return chain.append(tx, conversation, tails[-1]) if tails[-1] else []

        tails = [entries]
        return self.write(work, repeatable=True)

    def conversation(self, name: str) -> Conversation:
        """Where a conversation stands: its length, tip, branch and revision."""
        return self.read(lambda tx: branches.describe(tx, name))

    def conversations(self) -> list[Conversation]:
        return self.read(branches.listing)

    def begin(self, name: str) -> Conversation:
        """Make a conversation in which nothing was said yet; raises `ConversationExists`."""
        return self.write(lambda tx: branches.begin(tx, name))

    def overview(self, name: str) -> Overview:
        """A conversation as a list shows it: its title, when it was last spoken in, whom it asked."""
        return self.read(lambda tx: lists.overview(tx, name))

    def overviews(self, *, search: str = "", before: str = "", limit: int = 50) -> Page:
        """A page of conversations, the one that was last spoken in first; those alone that have the words of `search`.

        `next` of a page is what the next one has as `before`. A search reads so many messages at once and no more, so
        a page may have fewer than `limit`, or none, and still a next one.
        """
        if search.strip():
            return self.read(lambda tx: searching.search(tx, search, before=before, limit=limit))
        return self.read(lambda tx: lists.overviews(tx, before=before, limit=limit))

    def blob(self, name: str) -> bytes:
        """The bytes of a Media part, by its `blob`."""
        row = self.read(lambda tx: tx.row("SELECT data FROM blob WHERE name = ?", name))
        if row is None:
            raise InvalidInput(f"This store has no blob {name!r}: it was redacted, or never stored here.")
        data = as_bytes(row[0])
        if data is None:
            raise StoreCorrupt(f"What is stored as blob {name!r} are no bytes. {LOOK}")
        return data

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a copy of the whole store, as it is at one moment, into a new file; others may go on writing.

        SQLite and `memory:` only. `contextc restore` puts it back.
        """
        raise InvalidSetting(f"{self.address}: backup copies SQLite stores only. Use pg_dump and pg_restore.")

    # ── branches ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def branches(self, conversation: str) -> list[Branch]:
        """Every line of a conversation with its tip, oldest first; one is current."""
        return self.read(lambda tx: branches.branches(tx, conversation))

    def fork(self, conversation: str, name: str, *, at: Reference | None = None) -> Conversation:
        """A new conversation that shares everything up to `at` (default: the tip). It copies nothing."""
        return self.write(lambda tx: branches.fork(tx, conversation, name, at))

    def rewind(self, conversation: str, to: Reference) -> Conversation:
        """Go on from an earlier message (0: from the start). What came after stays, on its own branch."""
        return self.write(lambda tx: branches.rewind(tx, conversation, to))

    def edit(self, conversation: str, target: Reference, message: Message) -> Message:
        """Put another message in the place of one, on a new branch. What followed the old one stays behind it."""
        entry = chain.entry(_admit(replace(message, uid="", time=0), conversation))
        return self.write(lambda tx: branches.edit(tx, conversation, target, entry))

    def switch(self, conversation: str, branch: int) -> Conversation:
        """Go on from the tip of another branch."""
        return self.write(lambda tx: branches.switch(tx, conversation, branch))

    def reset(self, conversation: str) -> Conversation:
        """Clear the context: what was said so far stays in the record and is not sent to a model any more."""
        return self.write(lambda tx: branches.reset(tx, conversation))

    def pin(self, conversation: str, target: Reference) -> list[int]:
        """Keep a message from ever being cut away; a call with its results. The seqs of what was pinned."""
        return self.write(lambda tx: pins.pin(tx, conversation, target))

    def unpin(self, conversation: str, target: Reference) -> list[int]:
        return self.write(lambda tx: pins.unpin(tx, conversation, target))

    def pinned(self, conversation: str) -> list[int]:
        """The seqs of the pinned messages."""
        return self.read(
            lambda tx: [where & places.SEQ_MASK for where in pins.pinned(tx, places.head(tx, conversation))]
        )

    def delete(self, conversation: str) -> None:
        """Delete a conversation and its messages, except those that a fork of it still stands on.

        `pending_erasure` says whether its content is still in the files of the store.
        """

        def work(tx: Transaction) -> None:
            branches.delete(tx, conversation)
            self._erases(tx)

        self.write(work)
        self._scrub()

    # ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def redact(self, conversation: str, target: Reference) -> Message:
        """Take the content of one message away for good. Its id and its place stay.

        `pending_erasure` says whether the content is still in the files of the store.
        """

        def work(tx: Transaction) -> Message:
            message = redaction.redact(tx, conversation, target)
            self._erases(tx)
            return message

        message = self.write(work)
        self._scrub()
        return message

    def expire(self, age: timedelta) -> int:
        """Redact every message older than `age`, and say how many it were.

        Transcripts of sessions that are as old, and belong to no conversation, go too.
        """
        if not isinstance(age, timedelta) or age <= timedelta(0):
            raise InvalidSetting(f"{age!r} is no age. Give a timedelta above zero, such as timedelta(days=90).")
        before, total, after = chain.now_ms() - int(age.total_seconds() * 1000), 0, -1

        def work(tx: Transaction) -> tuple[int, int]:
            count, last = redaction.expire(tx, before, EXPIRE_BATCH, after)
            if count:
                self._erases(tx)
            return count, last

        def drop(tx: Transaction) -> int:
            count = transcripts.expire(tx, before)
            if count:
                self._erases(tx)
            return count

        while (found := self.write(work))[0]:
            total, after = total + found[0], found[1]
        if self.write(drop) or total:
            self._scrub()
        return total

    def drop_transcript(self, key: TranscriptKey) -> None:
        """Remove a provider's own record of a session for good: of a part of it, or of all."""

        def work(tx: Transaction) -> None:
            transcripts.drop(tx, key)
            self._erases(tx)

        self.write(work, repeatable=True)
        self._scrub()

    @property
    def pending_erasure(self) -> int:
        """How many redactions and deletions are stored, and have not left the files of the store yet.

        A SQLite store keeps older pages in its write-ahead log while a reader needs them. The store goes on removing
        them in the background, and when it is next opened. Other back-ends answer 0: what a PostgreSQL server keeps of
        a removed row goes with its next vacuum.
        """
        return 0

    # ── todos ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def todos(self, conversation: str, agent: str = DEFAULT_AGENT) -> list[Todo]:
        """What an agent means to do in a conversation, in order."""
        return self.read(lambda tx: todo_lists.load(tx, conversation, agent))

    def add_todo(self, conversation: str, text: str, *, agent: str = DEFAULT_AGENT) -> Todo:
        """Put an open todo at the end of the list. The conversation is made if it is new."""
        line = check_text(text)
        return self.write(lambda tx: todo_lists.add(tx, conversation, agent, line))

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
        checked = todo_lists.checked_changes(changes)
        return self.write(lambda tx: todo_lists.change(tx, conversation, agent, checked), repeatable=True)

    def replace_todos(
        self, conversation: str, todos: Iterable[str | Todo], *, agent: str = DEFAULT_AGENT
    ) -> list[Todo]:
        """Write the whole list anew. It is numbered from 1 in the order given; a new conversation is made."""
        listed = numbered(todos)
        return self.write(lambda tx: todo_lists.replace(tx, conversation, agent, listed), repeatable=True)

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lease(
        self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0
    ) -> Generator[Lease]:
        """Hold the turn of an agent in a conversation, renewed until the block ends.

        `wait` is how many seconds to stand in line where another turn is running; then `ConversationBusy`.
        """
        lease = self.acquire(conversation, agent, ttl=ttl, wait=wait)
        try:
            yield lease
        except BaseException:
            with suppress(ContextcError):  # the reason the block failed is worth more than the reason this did
                self._release(lease, failed=True)
            raise
        self._release(lease, failed=False)

    def acquire(self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0) -> Lease:
        """Take the lease, for code that cannot use a `with`. Give it back with `release`."""
        check_name(agent, "agent")
        if ttl <= 0:
            raise InvalidInput(f"ttl={ttl}: a lease needs some time to live.")
        woken = threading.Event()
        with self.waiting.join(conversation, agent, woken.set, wait=wait, ttl=ttl) as waiter:
            while True:
                woken.clear()
                try:
                    if not waiter.is_first:
                        raise self.busy(conversation, agent)
                    return self.acquire_now(conversation, agent, ttl=ttl, patient=waiter.is_patient)
                except ConversationBusy as busy:
                    seconds = waiter.pause(busy, held_here=self.holds(conversation, agent, busy.number))
                woken.wait(seconds)

    def acquire_now(self, conversation: str, agent: str, *, ttl: float, patient: bool = False) -> Lease:
        """Take the lease where it can be had at once. Who is `patient` leaves a late process that lives its own."""
        lease, recovered = self.write(
            lambda tx: leases.acquire(tx, conversation, agent, ttl, self._holds_here, patient=patient)
        )
        if recovered is not None:
            self.recovered = (*self.recovered, recovered)[-RECOVERED_KEPT:]
        self._renewals[lease] = self._keeper.every_for(ttl / 3, lease, self._renew)
        _HOLDING[self.address, conversation, agent, lease.number] = self
        return lease

    def busy(self, conversation: str, agent: str) -> ConversationBusy:
        """Why a turn cannot begin, where another one runs or waits."""
        number, _, left = self.read(lambda tx: leases.standing(tx, conversation, agent))
        return ConversationBusy(conversation, agent, number=number, seconds=max(0.0, left))

    def holds(self, conversation: str, agent: str, number: int) -> bool:
        """Whether this handle holds, and renews, that lease."""
        return any(
            (lease.conversation, lease.agent, lease.number) == (conversation, agent, number)
            for lease in list(self._renewals)
        )

    def on_loss(self, lease: Lease, call: Callable[[], None]) -> None:
        """Call something, on another thread, when a lease turns out to be lost. Once, and not where it is released."""
        self._losses[lease] = call

    def release(self, lease: Lease, *, failed: bool = False) -> None:
        """End the turn. What it was still writing ends as `error`; calls that a `failed` one left open are answered."""
        self._release(lease, failed=failed)

    def releases(self, tx: Transaction, lease: Lease) -> None:
        """End a turn inside a transaction. Call `released` when that is committed."""
        leases.release(tx, lease, failed=False)

    def released(self, lease: Lease) -> None:
        """Renew a lease no longer, because it has been released; the turn that waits first looks at once."""
        self._stop_renewing(lease)
        self.waiting.wake(lease.conversation, lease.agent)

    def stop_renewing(self, lease: Lease) -> None:
        """Let a lease end at its time, because no turn runs under it any more. Writes nothing."""
        self._stop_renewing(lease)

    def close(self) -> None:
        """End the turns of this handle, and close every connection. A server that is away is waited for but shortly."""
        if not self._closed:
            self.outage_seconds = min(self.outage_seconds, CLOSING_SECONDS)
            for lease in list(self._renewals):
                try:
                    self._release(lease, failed=True)
                except StoreUnavailable:
                    break
                except ContextcError:
                    continue
        super().close()

    def _release(self, lease: Lease, *, failed: bool) -> None:
        """`failed` turns leave no call without a result: nobody will answer those any more."""
        if lease.pid != os.getpid() or self._closed:
            return
        for uid, stream in list(self._streams.items()):
            if stream.lease == lease:
                with suppress(ContextcError):
                    stream.flush()
                stream.give_up()
                self._streams.pop(uid, None)
        self._stop_renewing(lease)
        self.write(lambda tx: leases.release(tx, lease, failed=failed))
        self.released(lease)

    def stream(self, lease: Lease, head: Message | None = None) -> streams.Stream:
        """Begin a message whose content is still coming in. It enters the chain when it ends.

        `head` is that message without its parts (its role, run, step …); by default a reply of the lease's agent.
        """
        head = head or Message(role="assistant", author=lease.agent)
        if head.role != "assistant":
            raise InvalidMessage(f"a {head.role} message is not streamed. Append it when it is complete.", field="role")
        if head.parts:
            raise InvalidMessage("the parts of a stream are written: stream.write(…).", field="parts")
        uid = head.uid or chain.new_uid()
        sound = _admit(replace(head, uid=uid, status="error"), lease.conversation).message
        head = replace(sound, status="pending", time=head.time or chain.now_ms())

        def begin(tx: Transaction) -> None:
            leases.check(tx, lease, lease.conversation)
            streams.begin(tx, lease, head)

        def save(number: int, parts: list[AnyPart]) -> None:
            def work(tx: Transaction) -> None:
                leases.check(tx, lease, lease.conversation)
                streams.journal(tx, uid, number, parts)

            self.write(work, repeatable=True)

        def close(number: int, parts: list[AnyPart], final: Message) -> Message:
            def work(tx: Transaction) -> Message:
                leases.check(tx, lease, lease.conversation)
                if parts:
                    streams.journal(tx, uid, number, parts)
                return leases.close_stream(tx, lease.conversation, uid, final)[-1]

            stored = self.write(work, repeatable=True)
            self._streams.pop(uid, None)
            return stored

        def flush() -> None:
            with suppress(LeaseLost):  # its writer is told at the next write
                stream.flush()

        self.write(begin, repeatable=True)
        stream = self._streams[uid] = streams.Stream(uid, lease, save, close)
        stream.stop = self._keeper.every(streams.BATCH_SECONDS, flush)
        return stream

    def turns(self, conversation: str, *, last: int | None = None) -> list[TurnRecord]:
        """The turns that were run in a conversation, oldest first."""
        return self.read(lambda tx: running.turns(tx, places.head(tx, conversation).conversation, last=last))

    def steps(self, conversation: str, turn: int | None = None) -> list[StepRecord]:
        """The steps of a turn, or of all."""
        return self.read(lambda tx: running.steps(tx, places.head(tx, conversation).conversation, turn))

    def events(self, conversation: str, *, after: int = 0, limit: int | None = None) -> list[AnyEvent]:
        """What happened in a conversation after event `after`, in order."""
        for name, value, least in (("after", after, 0), ("limit", limit, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise InvalidInput(f"{name}={value!r}: give a whole number, {least} or more.")
        return self.read(lambda tx: running.events(tx, places.head(tx, conversation).conversation, after, limit))

    def enqueue(
        self, conversation: str, message: Message, *, kind: QueueKind = "follow-up", agent: str = DEFAULT_AGENT
    ) -> Queued:
        """Have input wait: to `steer` the running turn between two steps, or as a `follow-up` after it."""
        check_name(agent, "agent")
        if kind not in ("steer", "follow-up"):
            raise InvalidInput(f'kind={kind!r}: input waits to "steer" a turn, or as a "follow-up" to it.')
        blobs = _admit(message, conversation).blobs

        def work(tx: Transaction) -> Queued:
            here = places.find_head(tx, conversation, True) or chain.create(tx, conversation)
            chain.check_blobs(tx, conversation, blobs)
            return running.enqueue(tx, here.conversation, agent, kind, message)

        return self.write(work)

    def queued(self, conversation: str, agent: str = DEFAULT_AGENT) -> list[Queued]:
        """The input that waits for an agent, in the order it came."""
        return self.read(lambda tx: running.queued(tx, places.head(tx, conversation).conversation, agent))

    def recover(self) -> list[Recovered]:
        """Put right what turns left whose process died. Done on open; a live turn is never touched.

        It is cheap where there is nothing to do (one query, of the leases that are held), so a server may call it
        every few seconds. Events say what was done. A conversation that another session keeps locked is left as it is,
        until its next turn begins.
        """

        def work(tx: Transaction, turn: tuple[str, str, int]) -> Recovered | None:
            if tx.dialect.hurry:
                tx.run(tx.dialect.hurry)
            return leases.recover(tx, *turn, self._holds_here)

        recovered: list[Recovered] = []
        ended = self.read(lambda tx: leases.ended(tx, self._holds_here))
        end = time.monotonic() + RECOVERY_SECONDS
        for index, turn in enumerate(ended):
            try:
                found = self.write(lambda tx, turn=turn: work(tx, turn))
            except (InvalidMessage, StoreCorrupt, StoreBusy) as error:  # one bad turn must not keep everybody out
                if isinstance(error, StoreBusy) and not self.dialect.hurry:
                    raise
                warn(f"what a dead turn of {turn[1]!r} left in {turn[0]!r} could not be put right: {error}")
                if isinstance(error, StoreBusy) and time.monotonic() > end:
                    warn(f"{len(ended) - index - 1} more dead turns were left for later: too many were locked.")
                    break
                continue
            recovered += [found] if found is not None else []
        return recovered

    def _renew(self, due: list[Lease]) -> None:
        for lease in self.write(lambda tx: leases.renew(tx, due), repeatable=True):
            if lease in self._renewals:  # else it was given back meanwhile
                call = self._losses.get(lease)
                self.released(lease)
                warn(str(LeaseLost(lease.conversation, lease.agent, number=lease.number)))
                if call is not None:
                    call()

    def _holds_here(self, conversation: str, agent: str, number: int) -> bool:
        """Whether this process holds a lease, by this handle or by another one of the same store."""
        key = self.address, conversation, agent, number
        other = _HOLDING.get(key) if self.address != "memory:" else None  # of which each is a store by itself
        return any(not each._closed and each.holds(*key[1:]) for each in (self, other) if each is not None)

    def _forked(self) -> None:
        super()._forked()
        self._renewals, self._losses, self._streams = {}, {}, {}
        self.waiting = Waiting()

    def _stop_renewing(self, lease: Lease) -> None:
        self._losses.pop(lease, None)
        _HOLDING.pop((self.address, lease.conversation, lease.agent, lease.number), None)
        if stop := self._renewals.pop(lease, None):
            stop()

    def _append_at_tip(self, conversation: str, entry: chain.Entry) -> Message | None:
        """The short way for a plain append: one statement, right where this handle last saw the conversation end.

        The statement itself checks that it still ends there. None where it does not, or where more than a row is
        needed.
        """
        tip = self._tips.get(conversation)
        if tip is None or entry.admitted.blobs or entry.admitted.message.uid or entry.time // 1000 != tip.spoken:
            return None
        message, values = chain.placed(tip, entry)
        if not self._run_alone(chain.APPEND_AT_TIP, (*values, tip.conversation, tip.branch, tip.revision)):
            return None
        self._tips[conversation] = replace(tip, seq=message.seq, id=values[1])
        return message

    def ends_at(self, conversation: str, end: Head) -> None:
        """Remember where a transaction of somebody else on this handle left a conversation."""
        if conversation in self._tips:
            self._tips[conversation] = end

    def _append(
        self,
        conversation: str,
        entries: list[chain.Entry],
        *,
        key: str | None = None,
        parent: Reference | None = None,
        lease: Lease | None = None,
    ) -> list[Message]:
        def work(tx: Transaction) -> list[Message]:
            if lease is not None:
                leases.check(tx, lease, conversation)
            stored = chain.append(tx, conversation, entries, key=key, parent=parent)
            if plain:
                ends.append(places.head(tx, conversation))
            return stored

        plain, ends = key is None and parent is None and lease is None, list[Head]()
        stored = self.write(work, repeatable=True)
        if plain:
            if len(self._tips) >= TIPS_KEPT:
                self._tips.clear()
            self._tips[conversation] = ends[-1]
        return stored


_HOLDING: "WeakValueDictionary[tuple[str, str, str, int], Store[Any]]" = WeakValueDictionary()
"""Which handle of this process holds a lease: by its store's address, and conversation, agent and number."""


def _spoken(message: Message, lease: Lease) -> Message:
    """A message of a turn: whose turn it is, is who speaks, unless the message says otherwise."""
    if not isinstance(message, Message) or not isinstance(lease, Lease):
        return message  # the door, or the check of the lease, will say what is wrong
    return replace(message, author=lease.agent) if message.role == "assistant" and message.author is None else message


def _listed(messages: Iterable[Message]) -> list[Message]:
    if isinstance(messages, Message):
        raise InvalidInput("One message is not a list of messages. Use `append`, or write [message].")
    return list(messages)


def _admit(message: Message, conversation: str, *, index: int | None = None) -> Admitted:
    try:
        return admit(message)
    except InvalidMessage as error:
        raise error.within(conversation, index) from None

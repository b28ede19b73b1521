"""Leases of a store, and the streams that are written under them: acquire, wait, renew, release, recover.

`LeaseManager` extends the transaction engine; `Store` adds the operations on conversations. A lease is renewed in the
background until it is released.

Turns that wait for another turn to end are queued within one process: first in, first out. The first waiter polls the
store, because the running turn may belong to another process, or its process may die. If the running turn belongs to
this process, the first waiter is woken. The others sleep until they are first.
"""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from contextc.errors import (
    ContextcError,
    ConversationBusy,
    InvalidInput,
    InvalidMessage,
    LeaseLost,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
)
from contextc.messages import AnyPart, Message
from contextc.store import append_and_load, leases, partial_message_journal
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import DEFAULT_AGENT, Lease, Recovered
from contextc.store.message_rows import check_name
from contextc.store.transaction_engine import Connection, TransactionEngine, jitter, log_warning

LOCAL_POLL_SECONDS = 1.0
"""Interval between two checks of a turn of this process, whose end wakes the waiter."""


class LeaseWaiter:
    """A waiting turn, for at most `wait` seconds. `wake` is called when the lease may be free."""

    def __init__(self, wake: Callable[[], None], wait: float, ttl: float) -> None:
        self.wake = wake
        self.queue: list[LeaseWaiter] = []
        self._deadline, self._grace = monotonic() + wait, ttl / 3 if wait else 0.0
        self._late: tuple[int, float] | None = None

    @property
    def is_first(self) -> bool:
        return self.queue[0] is self

    @property
    def is_patient(self) -> bool:
        """True if a late process that is alive still gets time to renew its lease."""
        return self._grace > 0 and (self._late is None or monotonic() - self._late[1] < self._grace)

    def next_poll_delay(self, busy: ConversationBusy, *, held_here: bool) -> float:
        """Return the seconds until the next check. Raise `busy` if no time is left."""
        now = monotonic()
        if busy.seconds <= 0 and (self._late is None or self._late[0] != busy.number):
            self._late = busy.number, now
        left = self._deadline - now
        if left <= 0:
            raise busy
        if not self.is_first:
            return left
        return min(left, LOCAL_POLL_SECONDS if held_here else 0.02 + jitter(0.08))


class LeaseQueue:
    """All waiting turns of one process, by conversation and agent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, str], list[LeaseWaiter]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum([len(queue) for queue in self._queues.values()])

    @contextmanager
    def join(
        self, conversation: str, agent: str, wake: Callable[[], None], *, wait: float, ttl: float
    ) -> Generator[LeaseWaiter]:
        """Queue a waiter until the block ends."""
        key, waiter = (conversation, agent), LeaseWaiter(wake, wait, ttl)
        try:
            with self._lock:
                waiter.queue = self._queues.setdefault(key, waiter.queue)
                waiter.queue.append(waiter)
            yield waiter
        finally:  # also after an interrupt in the middle
            with self._lock:
                if waiter in waiter.queue:
                    waiter.queue.remove(waiter)
                if not self._queues.get(key, True):
                    del self._queues[key]
            self.wake_first(conversation, agent)

    def wake_first(self, conversation: str, agent: str) -> None:
        """Wake the first waiter."""
        with self._lock:
            first = next(iter(self._queues.get((conversation, agent), ())), None)
        if first is not None:
            first.wake()


MAX_RECOVERED = 100
CLOSING_SECONDS = 5.0
RECOVERY_SECONDS = 10
"""Time after which opening a store waits for no more locked conversations."""


class LeaseManager(TransactionEngine[Connection]):
    """The leases that a store handle holds."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._renewals: dict[Lease, Callable[[], None]] = {}
        self._losses: dict[Lease, Callable[[], None]] = {}
        self._end_requests: dict[Lease, Callable[[str], None]] = {}
        self.lease_queue = LeaseQueue()
        self._streams: dict[str, partial_message_journal.Stream] = {}
        self.recovered: tuple[Recovered, ...] = ()
        """Dead turns that this handle has recovered."""

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
                self._release(lease, failed=True)
            raise
        self._release(lease, failed=False)

    def acquire(self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0) -> Lease:
        """Take the lease, for code that cannot use a `with`. End it with `release`."""
        check_name(agent, "agent")
        if ttl <= 0:
            raise InvalidInput("ttl must be above 0 seconds", got=ttl)
        woken = threading.Event()
        with self.lease_queue.join(conversation, agent, woken.set, wait=wait, ttl=ttl) as waiter:
            while True:
                woken.clear()
                try:
                    if not waiter.is_first:
                        raise self.load_busy_error(conversation, agent)
                    return self.try_acquire(conversation, agent, ttl=ttl, patient=waiter.is_patient)
                except ConversationBusy as busy:
                    seconds = waiter.next_poll_delay(busy, held_here=self.holds_lease(conversation, agent, busy.number))
                woken.wait(seconds)

    def try_acquire(self, conversation: str, agent: str, *, ttl: float, patient: bool = False) -> Lease:
        """Take the lease without waiting, or raise. A `patient` caller leaves it to a late process that is alive."""
        lease, recovered = self.write(
            lambda tx: leases.acquire(tx, conversation, agent, ttl, self._process_holds_lease, patient=patient)
        )
        if recovered is not None:
            self.recovered = (*self.recovered, recovered)[-MAX_RECOVERED:]
        self._renewals[lease] = self._scheduler.run_every_for(ttl / 3, lease, self._renew)
        _LEASE_HOLDERS[self.address, conversation, agent, lease.number] = self
        return lease

    def load_busy_error(self, conversation: str, agent: str) -> ConversationBusy:
        """Return the error for a turn that cannot begin because another one runs or waits."""
        number, _, left = self.read(lambda tx: leases.load_lease(tx, conversation, agent))
        return ConversationBusy(conversation, agent, number=number, seconds=max(0.0, left))

    def holds_lease(self, conversation: str, agent: str, number: int) -> bool:
        """Return True if this handle holds and renews that lease."""
        return any(
            (lease.conversation, lease.agent, lease.number) == (conversation, agent, number)
            for lease in list(self._renewals)
        )

    def on_lease_lost(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of a lease. It runs once, on another thread, and not after a release."""
        self._losses[lease] = callback

    def on_end_request(self, lease: Lease, callback: Callable[[str], None]) -> None:
        """Register a callback for requests to end the turn of a lease. It gets the kind, and runs on any thread."""
        self._end_requests[lease] = callback

    def report_end_request(self, lease: Lease, kind: str) -> None:
        """Pass a request to end a turn on to the turn. It may be reported several times."""
        callback = self._end_requests.get(lease)
        if callback is not None:
            callback(kind)

    def find_end_requests(self, conversation: str) -> None:
        """Look for requests to end the turns of a conversation that run under this handle."""
        for agent, number, kind in self.read(lambda tx: leases.load_requests(tx, conversation)):
            for lease in list(self._end_requests):
                if (lease.conversation, lease.agent, lease.number) == (conversation, agent, number):
                    self.report_end_request(lease, kind)

    def release(self, lease: Lease, *, failed: bool = False) -> None:
        """End the turn. Its open streams end as `error`; open calls of a `failed` turn get an error result."""
        self._release(lease, failed=failed)

    def finish_release(self, lease: Lease) -> None:
        """Stop renewing a lease that has been released, and wake the first waiting turn."""
        self._stop_renewing(lease)
        self.lease_queue.wake_first(lease.conversation, lease.agent)

    def stop_renewing(self, lease: Lease) -> None:
        """Let a lease expire, because no turn runs under it any more. Writes nothing."""
        self._stop_renewing(lease)

    def close(self) -> None:
        """End the turns of this handle and close all connections. An unavailable server is awaited only briefly."""
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
        """End the turn of a lease. Open calls of a `failed` turn get an error result."""
        if lease.pid != os.getpid() or self._closed:
            return
        for uid, stream in list(self._streams.items()):
            if stream.lease == lease:
                with suppress(ContextcError):
                    stream.flush()
                stream.refuse_writes()
                self._streams.pop(uid, None)
        self._stop_renewing(lease)
        self.write(lambda tx: leases.release(tx, lease, failed=failed))
        self.finish_release(lease)

    def stream(self, lease: Lease, head: Message | None = None) -> partial_message_journal.Stream:
        """Open a stream for a message whose content is still arriving. Its end appends the message to the chain.

        `head` is the message without parts (role, run, step …); by default a reply of the lease's agent.
        """
        head = head or Message(role="assistant", author=lease.agent)
        if head.role != "assistant":
            raise InvalidMessage(
                "only assistant messages are streamed", field="role", got=head.role, fix="Append the complete message."
            )
        if head.parts:
            raise InvalidMessage("must be empty in a stream", field="parts", fix="Add parts with stream.write(…).")
        uid = head.uid or append_and_load.new_uid()
        sound = append_and_load.validate_for(replace(head, uid=uid, status="error"), lease.conversation).message
        head = replace(sound, status="pending", time=head.time or append_and_load.now_ms())

        def begin(tx: Transaction) -> None:
            leases.check_lease(tx, lease, lease.conversation)
            partial_message_journal.open_stream(tx, lease, head)

        def save(number: int, parts: list[AnyPart]) -> None:
            def work(tx: Transaction) -> None:
                leases.check_lease(tx, lease, lease.conversation)
                partial_message_journal.save_deltas(tx, uid, number, parts)

            self.write(work, repeatable=True)

        def close(number: int, parts: list[AnyPart], final: Message) -> Message:
            def work(tx: Transaction) -> Message:
                leases.check_lease(tx, lease, lease.conversation)
                if parts:
                    partial_message_journal.save_deltas(tx, uid, number, parts)
                return leases.close_stream(tx, lease.conversation, uid, final)[-1]

            stored = self.write(work, repeatable=True)
            self._streams.pop(uid, None)
            return stored

        def flush() -> None:
            with suppress(LeaseLost):  # the next write raises it
                stream.flush()

        self.write(begin, repeatable=True)
        stream = self._streams[uid] = partial_message_journal.Stream(uid, lease, save, close)
        stream.stop_journaling = self._scheduler.run_every(partial_message_journal.BATCH_SECONDS, flush)
        return stream

    def recover(self) -> list[Recovered]:
        """Recover turns whose process died. Opening a store calls this; a live turn is never changed.

        Without dead turns it costs one query of the held leases, so a server may call it every few seconds. Events
        record what was done. A locked conversation is skipped until its next turn begins.
        """

        def work(tx: Transaction, turn: tuple[str, str, int]) -> Recovered | None:
            if tx.dialect.short_lock_timeout:
                tx.run(tx.dialect.short_lock_timeout)
            return leases.recover_turn(tx, *turn, self._process_holds_lease)

        recovered: list[Recovered] = []
        ended = self.read(lambda tx: leases.find_dead_turns(tx, self._process_holds_lease))
        end = time.monotonic() + RECOVERY_SECONDS
        for index, turn in enumerate(ended):
            try:
                found = self.write(lambda tx, turn=turn: work(tx, turn))
            except (
                InvalidMessage,
                StoreCorrupt,
                StoreBusy,
            ) as error:  # one damaged turn must not prevent opening the store
                if isinstance(error, StoreBusy) and not self.dialect.short_lock_timeout:
                    raise
                log_warning(f"conversation {turn[0]!r}: could not recover the dead turn of agent {turn[1]!r}: {error}")
                if isinstance(error, StoreBusy) and time.monotonic() > end:
                    log_warning(
                        f"recovery of {len(ended) - index - 1} more dead turns was postponed: too many were locked"
                    )
                    break
                continue
            recovered += [found] if found is not None else []
        return recovered

    def _renew(self, due: list[Lease]) -> None:
        renewed = self.write(lambda tx: leases.renew_and_find_requests(tx, due), repeatable=True)
        for lease, kind in renewed.requests:
            self.report_end_request(lease, kind)
        for lease in renewed.lost:
            if lease in self._renewals:  # otherwise it was released meanwhile
                call = self._losses.get(lease)
                self.finish_release(lease)
                log_warning(str(LeaseLost(lease.conversation, lease.agent, number=lease.number)))
                if call is not None:
                    call()

    def _process_holds_lease(self, conversation: str, agent: str, number: int) -> bool:
        """Return True if this process holds a lease, through this handle or another one of the same store."""
        key = self.address, conversation, agent, number
        other = _LEASE_HOLDERS.get(key) if self.address != "memory:" else None  # each memory: handle is its own store
        return any(not each._closed and each.holds_lease(*key[1:]) for each in (self, other) if each is not None)

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._renewals, self._losses, self._end_requests, self._streams = {}, {}, {}, {}
        self.lease_queue = LeaseQueue()

    def _stop_renewing(self, lease: Lease) -> None:
        self._losses.pop(lease, None)
        self._end_requests.pop(lease, None)
        _LEASE_HOLDERS.pop((self.address, lease.conversation, lease.agent, lease.number), None)
        if stop := self._renewals.pop(lease, None):
            stop()


_LEASE_HOLDERS: "WeakValueDictionary[tuple[str, str, str, int], LeaseManager[Any]]" = WeakValueDictionary()
"""The handle of this process that holds a lease, by store address, conversation, agent and number."""

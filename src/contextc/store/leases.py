"""Leases: one turn at a time per conversation and agent, and the recovery of turns whose process died.

The number of a lease only grows. Every write of a turn carries it and is refused after the lease was released or taken
over, which changes the number. An expired lease that was not taken over is only late: its process was suspended, or
waited for a lock, and may continue. Taking over a lease and opening a store both recover the dead turn. Its
unfinished messages are appended with status `error`, and calls that may have run get an error result. Calls that were
never started stay open. No tool is run again.

A lease names the process that holds it. Expiry is sufficient but slow after a crash, so on Linux a process on the same
machine is looked up directly. The machine is identified by the kernel's boot id and the process namespace, because two
containers that share a file do not see each other's processes. The start time distinguishes a process from a later one
with the same pid. A process that cannot be seen is not assumed dead.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import cache
from itertools import takewhile
from time import monotonic
from typing import Any, NamedTuple, TypeAlias, TypeVar
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
from contextc.messages import AnyPart, Message, ToolCall, find_open_calls, tool_result, validate_message
from contextc.store import approvals, turn_records
from contextc.store.message_log import (
    FIND_TIP_AND_NUMBERS,
    Lease,
    Recovered,
    agent_of,
    append_messages,
    find_free_uid,
    find_tip,
    insert_conversation,
    load_base_seq,
    load_messages,
    load_tip,
    new_uid,
    now_ms,
    prepare_entry,
    validate_for,
)
from contextc.store.transaction_engine import Transaction, TransactionEngine, jitter, log_warning, reset_in_forks

PROC = "/proc"


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def current_process() -> str:
    return _describe_own(os.getpid())


@cache  # every lease names its process
def _describe_own(pid: int) -> str:
    return f"{_machine_id()} {pid} {_read_start_time(pid) or ''}"


def has_ended(holder: str) -> bool:
    """Return True only if it is certain that the process was on this machine and has ended."""
    pid, started = _parse_local(holder)
    if not pid:
        return False
    found = _read_start_time(pid)
    return not _exists(pid) if found is None else found != started


def is_running(holder: str) -> bool:
    """Return True only if it is certain that the process is on this machine and runs, or is suspended."""
    pid, started = _parse_local(holder)
    return bool(pid) and _read_start_time(pid) == started


def _parse_local(holder: str) -> tuple[int, str]:
    """Return pid and start time of a process on this machine; pid 0 for another machine, or if it cannot be checked."""
    machine, _, process = holder.partition(" ")
    pid, _, started = process.partition(" ")
    return (int(pid), started) if started and machine == _machine_id() and pid.isdigit() else (0, "")


@cache
def _machine_id() -> str:
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink(f'{PROC}/self/ns/pid')}"
    except OSError:
        return "unknown"


def _read_start_time(pid: int) -> str | None:
    """Return the start time of a process in kernel ticks, "" for a zombie, None if it cannot be read.

    It cannot be read if the process does not exist, or if `/proc` hides other users' processes (`hidepid`).
    """
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in ("Z", "X") else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not permitted: another user's process
        return True
    return True


def describe_process(holder: str) -> str:
    """Name the process of a holder, for an error message."""
    if not holder:
        return "unknown"
    machine, _, process = holder.partition(" ")
    where = "this machine" if machine == current_process().partition(" ")[0] else "another machine"
    return f"process {process.partition(' ')[0]} on {where}"


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────────


PROCESS_ENDED = "The process that was running this turn ended before the turn was over."
NOT_RENEWED = "The process that was running this turn did not renew its lease, and the turn was taken over."
INCOMPLETE_MESSAGE = "The turn ended before this message was complete."
RESULT_TURN_FAILED = (
    "Interrupted: the turn ended with an error before the tool's result was stored. "
    "Whether the tool ran is not known; it was not run again."
)
RESULT_PROCESS_ENDED = (
    "Interrupted: the process that was running this turn ended before the tool's result was stored. "
    "Whether the tool ran is not known; it was not run again."
)
RESULT_TAKEN_OVER = (
    "Interrupted: the turn was taken over from a process that did not renew its lease, before the tool's result was "
    "stored. Whether the tool ran is not known; it was not run again."
)

T = TypeVar("T")
HoldsLease: TypeAlias = Callable[[str, str, int], bool]
"""Returns True if this process runs the turn of a conversation, an agent and a lease number."""


def holds_none(conversation: str, agent: str, number: int) -> bool:
    return False


def may_take(lease: tuple[str, str, int], holder: str, left: float, holds: HoldsLease, *, requested: bool) -> bool:
    """Return True if a lease may be taken from its holder, because the process is gone or late.

    A late process that is alive keeps it until another process requests the turn. This process keeps it while it runs
    the turn.
    """
    if left > 0:
        return has_ended(holder)
    if holder == current_process():
        return not holds(*lease)
    return requested or not is_running(holder)


def acquire(
    tx: Transaction, conversation: str, agent: str, ttl: float, holds: HoldsLease = holds_none, *, patient: bool = False
) -> tuple[Lease, Recovered | None]:
    """Return a new lease, and the dead turn recovered before it. A `patient` caller lets a late live process renew."""
    tx.prefetch(_select_lease(tx), conversation, agent)
    here, recovered = find_tip(tx, conversation, True) or insert_conversation(tx, conversation), None
    number, holder, left = load_lease(tx, conversation, agent)
    if holder:
        if may_take((conversation, agent, number), holder, left, holds, requested=not patient):
            recovered = _end_dead_turn(tx, conversation, agent, number, holds, wanted=not patient)
        if recovered is None:
            raise ConversationBusy(conversation, agent, number=number, seconds=max(0.0, left))
        here, number = load_tip(tx, conversation, lock=True), number + 1
    number += 1
    tx.send(
        "INSERT INTO main.lease (conversation, agent, number, holder, expires, branch, seq, request)"
        f" VALUES (?, ?, ?, ?, {tx.dialect.now} + ?, ?, ?, '')"
        " ON CONFLICT (conversation, agent) DO UPDATE SET number = excluded.number, holder = excluded.holder,"
        " expires = excluded.expires, branch = excluded.branch, seq = excluded.seq, request = excluded.request",
        conversation,
        agent,
        number,
        current_process(),
        ttl,
        here.branch,
        here.seq,
    )
    lease = Lease(
        conversation=conversation, agent=agent, number=number, ttl=ttl, pid=os.getpid(), root=here.conversation
    )
    if tx.locked is not None:
        tx.locked.turn_starts[conversation, agent, number] = here.branch, here.seq, ""
    return lease, recovered


def load_lease(tx: Transaction, conversation: str, agent: str, *, lock: str = "") -> tuple[int, str, float]:
    """Return the number of the last lease, its holder (empty: released), and the seconds until it expires."""
    row = tx.row(_select_lease(tx) + lock, conversation, agent)
    return (row[0], row[1], row[2]) if row else (0, "", 0.0)


def _select_lease(tx: Transaction) -> str:
    return f"SELECT number, holder, expires - {tx.dialect.now} FROM main.lease WHERE conversation = ? AND agent = ?"


def check_lease(tx: Transaction, lease: Lease, conversation: str) -> tuple[int, int]:
    """Return branch and seq at which the turn of a lease began. Raise if the lease has ended or does not apply.

    The conversation is locked first, as in every takeover: locks in one order cannot deadlock.
    """
    return check_lease_and_end_request(tx, lease, conversation)[:2]


def check_lease_and_end_request(tx: Transaction, lease: Lease, conversation: str) -> tuple[int, int, str]:
    """Return the same, and the kind of the request to end this turn, or an empty string."""
    if not isinstance(lease, Lease):
        raise InvalidInput(
            f"lease must be a Lease, got {type(lease).__name__}", fix="Use: with store.lease(…) as lease."
        )
    if lease.conversation != conversation:
        raise InvalidInput(
            f"Lease {lease.number} is for conversation {lease.conversation!r}, not for {conversation!r}",
            fix="Take a lease of that conversation.",
        )
    if lease.pid != os.getpid():
        raise InvalidInput(f"Lease {lease.number} belongs to another process", fix="Take a lease in this process.")
    if (since := _load_turn_start(tx, lease)) is None:
        raise LeaseLost(lease.conversation, lease.agent, number=lease.number)
    return since


class RenewedLeases(NamedTuple):
    """Leases that are lost, and the requests to end the turns of others."""

    lost: list[Lease]
    requests: list[tuple[Lease, str]]


def renew(tx: Transaction, held: Iterable[Lease]) -> list[Lease]:
    """Renew leases, late ones too. Return those that were taken over, or whose conversation was deleted."""
    return renew_and_find_requests(tx, held).lost


def renew_and_find_requests(tx: Transaction, held: Iterable[Lease]) -> RenewedLeases:
    """Renew leases, late ones too. Return the lost ones, and the requests to end the turns of the others.

    No conversation is locked, so a writer to one conversation does not delay the others. A lease that another
    transaction has locked is renewed the next time. A released one stays released.
    """
    whose = "conversation = ? AND agent = ? AND number = ?"
    stands = f"{whose} AND EXISTS (SELECT 1 FROM main.conversation WHERE name = lease.conversation AND number = ?)"
    skips = f" AND agent IN (SELECT agent FROM main.lease WHERE {whose}{tx.dialect.skip_locked})"
    update = f"UPDATE main.lease SET expires = {tx.dialect.now} + ? WHERE {stands} AND holder <> ''"
    find = f"SELECT holder, request FROM main.lease WHERE {stands}"
    names = [(lease, (lease.conversation, lease.agent, lease.number)) for lease in held]
    for lease, name in names:
        if tx.dialect.skip_locked:
            tx.send(update + skips, lease.ttl, *name, lease.root, *name)
        else:
            tx.send(update, lease.ttl, *name, lease.root)
    for lease, name in names:
        tx.prefetch(find, *name, lease.root)
    found = RenewedLeases([], [])
    for lease, name in names:
        row = tx.row(find, *name, lease.root)
        if row is None:
            found.lost.append(lease)
        elif row[0] and row[1]:
            found.requests.append((lease, row[1]))
    return found


def load_requests(tx: Transaction, conversation: str) -> list[tuple[str, int, str]]:
    """Return the requests to end running turns of a conversation: agent, number of the lease, kind."""
    rows = tx.rows(
        "SELECT agent, number, request FROM main.lease WHERE conversation = ? AND holder <> '' AND request <> ''",
        conversation,
    )
    return [(agent, number, kind) for agent, number, kind in rows]


def release(tx: Transaction, lease: Lease, *, failed: bool, is_ended: bool = False) -> None:
    """End the turn and its open streams. Do nothing if the lease has already ended.

    With `is_ended` the record of the turn and its streams have been closed in this transaction, under the lease.
    """
    since = None if is_ended else _load_turn_start(tx, lease)
    if since is not None:
        messages = (
            _answer_open_calls(tx, lease.conversation, lease.agent, since[:2], RESULT_TURN_FAILED) if failed else []
        )
        ending = Message(role="assistant", status="error", error=INCOMPLETE_MESSAGE)
        for uid in turn_records.list_open_of_turn(tx, lease.conversation, lease.agent, lease.number):
            messages += close_stream(tx, lease.conversation, uid, ending)
        _mark_interrupted(tx, lease.root, lease.agent, len(messages), INCOMPLETE_MESSAGE)
    elif not is_ended:
        return
    name = lease.conversation, lease.agent, lease.number
    tx.send("UPDATE main.lease SET holder = '' WHERE conversation = ? AND agent = ? AND number = ?", *name)
    if tx.locked is not None:
        tx.locked.turn_starts.pop(name, None)


def _load_turn_start(tx: Transaction, lease: Lease) -> tuple[int, int, str] | None:
    """Return branch and seq of the conversation when this turn began, and the request to end it.

    Return None if the lease has ended.
    """
    locked, name = tx.locked, (lease.conversation, lease.agent, lease.number)
    if locked is not None and name in locked.turn_starts:
        return locked.turn_starts[name]
    if locked is not None and lease.conversation not in locked.conversations:
        tx.prefetch(FIND_TIP_AND_NUMBERS, lease.conversation)
    # Both rows are locked. After a wait for a takeover, the server therefore checks the newest row of the lease.
    row = tx.row(
        "SELECT l.branch, l.seq, l.request FROM main.conversation c, main.lease l WHERE c.name = ? AND c.number = ?"
        " AND l.conversation = c.name AND l.agent = ? AND l.number = ?"
        f" AND l.holder <> ''{tx.dialect.row_lock}",
        lease.conversation,
        lease.root,
        lease.agent,
        lease.number,
    )
    if row is None:
        return None
    if locked is not None and lease.conversation not in locked.conversations:
        locked.conversations.add(lease.conversation)
        find_tip(tx, lease.conversation, True)
    if locked is not None:
        locked.turn_starts[name] = row[0], row[1], row[2]
    return row[0], row[1], row[2]


def find_dead_turns(tx: Transaction, holds: HoldsLease = holds_none) -> list[tuple[str, str, int]]:
    """Return turns whose process is gone, or late and not known to be alive: conversation, agent, number.

    It locks nothing and reads only the leases that are held.
    """
    rows = tx.rows(
        f"SELECT conversation, agent, number, holder, expires - {tx.dialect.now} FROM main.lease WHERE holder <> ''"
    )
    return [
        (name, agent, number)
        for name, agent, number, holder, left in rows
        if may_take((name, agent, number), holder, left, holds, requested=False)
    ]


def load_holder(tx: Transaction, conversation: str, agent: str) -> str:
    """Return the process that holds the lease of an agent, or an empty string."""
    row = tx.row("SELECT holder FROM main.lease WHERE conversation = ? AND agent = ?", conversation, agent)
    return row[0] if row else ""


def recover_turn(
    tx: Transaction, conversation: str, agent: str, number: int, holds: HoldsLease = holds_none
) -> Recovered | None:
    """Recover one dead turn. Return None if another process did so first, or if the holder renewed its lease."""
    if find_tip(tx, conversation, True) is None:
        return None
    return _end_dead_turn(tx, conversation, agent, number, holds, wanted=False)


def _end_dead_turn(
    tx: Transaction, conversation: str, agent: str, number: int, holds: HoldsLease, *, wanted: bool
) -> Recovered | None:
    """End the turn of a lease that may be taken: append what it wrote and invalidate its number.

    The lease is locked and checked again, because it may just have been renewed.
    """
    now, holder, left = load_lease(tx, conversation, agent, lock=tx.dialect.row_lock)
    row = tx.row("SELECT branch, seq FROM main.lease WHERE conversation = ? AND agent = ?", conversation, agent)
    lease = (conversation, agent, number)
    if row is None or now != number or not holder or not may_take(lease, holder, left, holds, requested=wanted):
        return None
    here = load_tip(tx, conversation, lock=True)
    why, answer = (PROCESS_ENDED, RESULT_PROCESS_ENDED) if has_ended(holder) else (NOT_RENEWED, RESULT_TAKEN_OVER)
    ending = Message(role="assistant", status="error", error=why)
    open_streams = turn_records.list_open_of_turn(tx, conversation, agent, number)
    messages = [message for uid in open_streams for message in close_stream(tx, conversation, uid, ending)]
    messages += _answer_open_calls(tx, conversation, agent, (row[0], row[1]), answer)
    _mark_interrupted(tx, here.conversation, agent, len(messages), why)
    tx.run(
        "UPDATE main.lease SET holder = '', number = number + 1 WHERE conversation = ? AND agent = ?",
        conversation,
        agent,
    )
    return Recovered(conversation=conversation, agent=agent, lease=number, messages=tuple(messages))


def _mark_interrupted(tx: Transaction, conversation: int, agent: str, messages: int, why: str) -> None:
    """Mark a running turn as interrupted. Approvals that its process was waiting for are withdrawn."""
    turn = turn_records.mark_interrupted(tx, conversation, agent, now_ms(), messages, why)
    if turn is not None:
        approvals.withdraw(tx, conversation, turn.number, hosted_only=True)


def close_stream(tx: Transaction, conversation: str, uid: str, final: Message) -> list[Message]:
    """Move a streamed message into the chain: `final`, with the journaled parts if it has none.

    The reply becomes several messages if the provider ran tools within it.
    """
    message = turn_records.assemble_message(tx, uid, final)
    if message is None:  # closed by an earlier attempt whose commit was not confirmed
        return [load_messages(tx, conversation, until=uid, last=1)[0]]
    turn_records.delete_stream(tx, uid)
    free = find_free_uid(tx, load_tip(tx, conversation).tree, uid)  # another message may have taken the uid meanwhile
    return append_messages(
        tx,
        conversation,
        [prepare_entry(validate_message(each)) for each in turn_records.split_reply(replace(message, uid=free))],
    )


def error_result(message: Message, call: ToolCall, text: str) -> Message:
    """Return an error result for a call of a message."""
    author, turn, step = message.author, message.turn, message.step
    result = tool_result(call.id, call.name, text, is_error=True, author=author, turn=turn, step=step)
    return replace(result, run=message.run)


def _answer_open_calls(
    tx: Transaction, conversation: str, agent: str, since: tuple[int, int], text: str
) -> list[Message]:
    """Append results for the open calls of a turn; calls without an author count if no other turn is running.

    Calls that certainly were not started stay open: a resumed turn runs them.
    """
    here = load_tip(tx, conversation)
    start = since[1] if since[0] == here.branch else min(since[1], load_base_seq(tx, here.branch))
    turn = turn_records.load_last_turn(tx, here.conversation, agent)
    turn = turn if turn is not None and turn.state == "running" else None
    if turn is not None:  # it may have been resumed after the reply with the calls
        start = max(0, min(start, turn.opened - 1, here.seq))
    written = load_messages(tx, conversation, after=start)
    others = tx.row(
        "SELECT 1 FROM main.lease WHERE conversation = ? AND agent <> ? AND holder <> ''", conversation, agent
    )
    authors = (agent_of(agent),) if others else (agent_of(agent), None)

    def is_own(message: Message) -> bool:
        """Return False for messages of another run, which may still be going."""
        own = turn is None or message.turn == turn.number or message.run in (None, turn.run)
        return own and message.author in authors

    @cache
    def started(seq: int) -> Counter[str] | None:
        return turn_records.count_started_calls(tx, here.conversation, turn.number, seq) if turn is not None else None

    def may_have_run(message: Message, call: ToolCall) -> bool:
        if turn is None or message.turn != turn.number or (running := started(message.seq)) is None:
            return True
        running[call.id] -= 1  # of calls with the same id, the first ones were started
        return running[call.id] >= 0

    results = [
        error_result(message, call, text)
        for message, call in find_open_calls(written)
        if is_own(message) and may_have_run(message, call)
    ]
    return (
        append_messages(tx, conversation, [prepare_entry(validate_message(result)) for result in results])
        if results
        else []
    )


# ── the leases of a store ─────────────────────────────────────────────────────────────────────────────────────────────
# Leases of a store, and the streams that are written under them: take, wait, renew, release, recover.
#
# Each store has a `LeaseManager`; other modules get it with `leases_of(store)`. A lease is renewed in the background
# until it is released.
#
# Turns that wait for another turn to end are queued within one process: first in, first out. The first waiter polls
# the store, because the running turn may belong to another process, or its process may die. If the running turn
# belongs to this process, the first waiter is woken. The others sleep until they are first.


LOCAL_POLL_SECONDS = 1.0
"""Interval between two checks of a turn of this process, whose end wakes the waiter."""


LONGEST_SLEEP_SECONDS = 3600.0
"""Longest sleep of a waiter that is not the first. It is woken when it is."""


class LeaseWaiter:
    """A waiting turn, for at most `wait` seconds. `wake` is called when the lease may be free."""

    def __init__(self, wake: Callable[[], None], wait: float, ttl: float) -> None:
        self.wake = wake
        self.queue: list[LeaseWaiter] = []
        self.is_stored = True
        """False until the input of the turn is stored. Waiters store theirs in the order of the queue."""
        self._deadline, self._grace = monotonic() + wait, ttl / 3 if wait else 0.0
        self._late: tuple[int, float] | None = None

    @property
    def is_first(self) -> bool:
        return self.queue[0] is self

    @property
    def may_store(self) -> bool:
        """True if the input of all earlier waiters is stored, and that of this one is not."""
        earlier = [*takewhile(lambda each: each is not self, self.queue)]
        return not self.is_stored and all([each.is_stored for each in earlier])

    def wake_next(self) -> None:
        """Wake the waiter after this one."""
        queue = [*self.queue]
        later = queue[queue.index(self) + 1 :] if self in queue else []
        for each in later[:1]:
            each.wake()

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
            return min(left, LONGEST_SLEEP_SECONDS)
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
            waiter.is_stored = True
            waiter.wake_next()
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


class LeaseManager:
    """The leases that a store handle holds, and the streams that are written under them."""

    def __init__(self, engine: TransactionEngine[Any]) -> None:
        self._engine = engine
        self._renewals: dict[Lease, Callable[[], None]] = {}
        self._losses: dict[Lease, Callable[[], None]] = {}
        self._end_requests: dict[Lease, Callable[[str], None]] = {}
        self.queue = LeaseQueue()
        self._streams: dict[str, turn_records.Stream] = {}
        self.recovered: tuple[Recovered, ...] = ()
        """Dead turns that this handle has recovered."""
        reset_in_forks(self)

    def acquire(self, conversation: str, agent: str, *, ttl: float, wait: float) -> Lease:
        """Take the lease, waiting for at most `wait` seconds."""
        woken = threading.Event()
        with self.queue.join(conversation, agent, woken.set, wait=wait, ttl=ttl) as waiter:
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
        return self.try_acquire_with(conversation, agent, lambda tx, lease: None, ttl=ttl, patient=patient)[0]

    def try_acquire_with(
        self, conversation: str, agent: str, work: Callable[[Transaction, Lease], T], *, ttl: float, patient: bool
    ) -> tuple[Lease, T]:
        """Take the lease, and run work under it in the same transaction. If the work raises, nothing is taken.

        After a dead turn, its recovery is stored first: the work runs in the next transaction.
        """

        def take(tx: Transaction) -> tuple[Lease, Recovered | None, list[T]]:
            lease, recovered = acquire(tx, conversation, agent, ttl, self._process_holds_lease, patient=patient)
            return lease, recovered, [] if recovered is not None else [work(tx, lease)]

        lease, recovered, done = self._engine.write(take)
        if recovered is not None:
            self.recovered = (*self.recovered, recovered)[-MAX_RECOVERED:]
        self._renewals[lease] = self._engine.scheduler.run_every_for(ttl / 3, lease, self._renew)
        _LEASE_HOLDERS[self._engine.address, conversation, agent, lease.number] = self
        if not done:
            try:
                done.append(self._engine.write(lambda tx: work(tx, lease)))
            except BaseException:
                with suppress(ContextcError):  # the first error matters more than this one
                    self.release(lease, failed=False)
                raise
        return lease, done[0]

    def load_busy_error(self, conversation: str, agent: str) -> ConversationBusy:
        """Return the error for a turn that cannot begin because another one runs or waits."""
        number, _, left = self._engine.read(lambda tx: load_lease(tx, conversation, agent))
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
        for agent, number, kind in self._engine.read(lambda tx: load_requests(tx, conversation)):
            for lease in list(self._end_requests):
                if (lease.conversation, lease.agent, lease.number) == (conversation, agent, number):
                    self.report_end_request(lease, kind)

    def finish_release(self, lease: Lease) -> None:
        """Stop renewing a lease that has been released, and wake the first waiting turn."""
        self.stop_renewing(lease)
        self.queue.wake_first(lease.conversation, lease.agent)

    def close(self) -> None:
        """End the turns of this handle. An unavailable server is awaited only briefly."""
        if not self._engine.is_closed:
            self._engine.outage_seconds = min(self._engine.outage_seconds, CLOSING_SECONDS)
            for lease in list(self._renewals):
                try:
                    self.release(lease, failed=True)
                except StoreUnavailable:
                    break
                except ContextcError:
                    continue

    def release(self, lease: Lease, *, failed: bool) -> None:
        """End the turn of a lease. Open calls of a `failed` turn get an error result."""
        if lease.pid != os.getpid() or self._engine.is_closed:
            return
        for uid, stream in list(self._streams.items()):
            if stream.lease == lease:
                with suppress(ContextcError):
                    stream.flush()
                stream.refuse_writes()
                self._streams.pop(uid, None)
        self.stop_renewing(lease)
        self._engine.write(lambda tx: release(tx, lease, failed=failed))
        self.finish_release(lease)

    def open_stream(self, lease: Lease, head: Message | None = None) -> turn_records.Stream:
        """Open a stream, as `Store.stream`."""
        head = head or Message(role="assistant", author=lease.agent)
        if head.role != "assistant":
            raise InvalidMessage(
                "only assistant messages are streamed", field="role", got=head.role, fix="Append the complete message."
            )
        if head.parts:
            raise InvalidMessage("must be empty in a stream", field="parts", fix="Add parts with stream.write(…).")
        uid = head.uid or new_uid()
        sound = validate_for(replace(head, uid=uid, status="error"), lease.conversation).message
        head = replace(sound, status="pending", time=head.time or now_ms())

        def begin(tx: Transaction) -> None:
            check_lease(tx, lease, lease.conversation)
            turn_records.open_stream(tx, lease, head)

        def save(number: int, parts: list[AnyPart]) -> None:
            def work(tx: Transaction) -> None:
                check_lease(tx, lease, lease.conversation)
                turn_records.save_deltas(tx, uid, number, parts)

            self._engine.write(work, repeatable=True)

        def close(number: int, parts: list[AnyPart], final: Message) -> Message:
            def work(tx: Transaction) -> Message:
                check_lease(tx, lease, lease.conversation)
                if parts:
                    turn_records.save_deltas(tx, uid, number, parts)
                return close_stream(tx, lease.conversation, uid, final)[-1]

            stored = self._engine.write(work, repeatable=True)
            self._streams.pop(uid, None)
            return stored

        def flush() -> None:
            with suppress(LeaseLost):  # the next write raises it
                stream.flush()

        self._engine.write(begin, repeatable=True)
        stream = self._streams[uid] = turn_records.Stream(uid, lease, save, close)
        stream.stop_journaling = self._engine.scheduler.run_every(turn_records.BATCH_SECONDS, flush)
        return stream

    def recover(self) -> list[Recovered]:
        """Recover turns whose process died, as `Store.recover`."""

        def work(tx: Transaction, turn: tuple[str, str, int]) -> Recovered | None:
            if tx.dialect.short_lock_timeout:
                tx.run(tx.dialect.short_lock_timeout)
            return recover_turn(tx, *turn, self._process_holds_lease)

        recovered: list[Recovered] = []
        ended = self._engine.read(lambda tx: find_dead_turns(tx, self._process_holds_lease))
        end = time.monotonic() + RECOVERY_SECONDS
        for index, turn in enumerate(ended):
            try:
                found = self._engine.write(lambda tx, turn=turn: work(tx, turn))
            except (
                InvalidMessage,
                StoreCorrupt,
                StoreBusy,
            ) as error:  # one damaged turn must not prevent opening the store
                if isinstance(error, StoreBusy) and not self._engine.dialect.short_lock_timeout:
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
        renewed = self._engine.write(lambda tx: renew_and_find_requests(tx, due), repeatable=True)
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
        key = self._engine.address, conversation, agent, number
        other = _LEASE_HOLDERS.get(key) if key[0] != "memory:" else None  # each memory: handle is its own store
        return any(
            not each._engine.is_closed and each.holds_lease(*key[1:]) for each in (self, other) if each is not None
        )

    def reset_after_fork(self) -> None:
        """Forget the leases of the parent process."""
        self._renewals, self._losses, self._end_requests, self._streams = {}, {}, {}, {}
        self.queue = LeaseQueue()

    def stop_renewing(self, lease: Lease) -> None:
        """Let a lease expire, because no turn runs under it any more. Writes nothing."""
        self._losses.pop(lease, None)
        self._end_requests.pop(lease, None)
        _LEASE_HOLDERS.pop((self._engine.address, lease.conversation, lease.agent, lease.number), None)
        if stop := self._renewals.pop(lease, None):
            stop()


_LEASE_HOLDERS: "WeakValueDictionary[tuple[str, str, str, int], LeaseManager]" = WeakValueDictionary()
"""The handle of this process that holds a lease, by store address, conversation, agent and number."""

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
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc.errors import ConversationBusy, InvalidInput, LeaseLost
from contextc.messages import Message, ToolCall, tool_result, validate_message
from contextc.messages.pairing import find_open_calls
from contextc.store import approvals, partial_message_journal, turn_and_event_records
from contextc.store.append_and_load import (
    append_messages,
    find_free_uid,
    insert_conversation,
    load_messages,
    now_ms,
    prepare_entry,
)
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Lease, Recovered, agent_of
from contextc.store.message_rows import FIND_TIP_AND_NUMBERS, find_tip, load_base_seq, load_tip

PROC = "/proc"


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def current_process() -> str:
    pid = os.getpid()
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
        "INSERT INTO lease (conversation, agent, number, holder, expires, branch, seq, request)"
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
    return lease, recovered


def load_lease(tx: Transaction, conversation: str, agent: str, *, lock: str = "") -> tuple[int, str, float]:
    """Return the number of the last lease, its holder (empty: released), and the seconds until it expires."""
    row = tx.row(_select_lease(tx) + lock, conversation, agent)
    return (row[0], row[1], row[2]) if row else (0, "", 0.0)


def _select_lease(tx: Transaction) -> str:
    return f"SELECT number, holder, expires - {tx.dialect.now} FROM lease WHERE conversation = ? AND agent = ?"


def check_lease(tx: Transaction, lease: Lease, conversation: str) -> tuple[int, int]:
    """Return branch and seq at which the turn of a lease began. Raise if the lease has ended or does not apply.

    The conversation is locked first, as in every takeover: locks in one order cannot deadlock.
    """
    return check_lease_and_request(tx, lease, conversation)[:2]


def check_lease_and_request(tx: Transaction, lease: Lease, conversation: str) -> tuple[int, int, str]:
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
    stands = f"{whose} AND EXISTS (SELECT 1 FROM conversation WHERE name = lease.conversation AND number = ?)"
    skips = f" AND agent IN (SELECT agent FROM lease WHERE {whose}{tx.dialect.skip_locked})"
    update = f"UPDATE lease SET expires = {tx.dialect.now} + ? WHERE {stands} AND holder <> ''"
    find = f"SELECT holder, request FROM lease WHERE {stands}"
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
        "SELECT agent, number, request FROM lease WHERE conversation = ? AND holder <> '' AND request <> ''",
        conversation,
    )
    return [(agent, number, kind) for agent, number, kind in rows]


def release(tx: Transaction, lease: Lease, *, failed: bool, is_ended: bool = False) -> None:
    """End the turn and its open streams. Do nothing if the lease has already ended.

    `is_ended` is True if the record of the turn has been closed in this transaction.
    """
    since = _load_turn_start(tx, lease)
    if since is None:
        return
    messages = _answer_open_calls(tx, lease.conversation, lease.agent, since[:2], RESULT_TURN_FAILED) if failed else []
    ending = Message(role="assistant", status="error", error=INCOMPLETE_MESSAGE)
    for uid in partial_message_journal.list_open_of_turn(tx, lease.conversation, lease.agent, lease.number):
        messages += close_stream(tx, lease.conversation, uid, ending)
    if not is_ended:
        _mark_interrupted(tx, lease.root, lease.agent, len(messages), INCOMPLETE_MESSAGE)
    tx.send(
        "UPDATE lease SET holder = '' WHERE conversation = ? AND agent = ? AND number = ?",
        lease.conversation,
        lease.agent,
        lease.number,
    )


def _load_turn_start(tx: Transaction, lease: Lease) -> tuple[int, int, str] | None:
    """Return branch and seq of the conversation when this turn began, and the request to end it.

    Return None if the lease has ended.
    """
    locked = tx.locked
    if locked is not None and lease.conversation not in locked.conversations:
        tx.prefetch(FIND_TIP_AND_NUMBERS, lease.conversation)
    # Both rows are locked. After a wait for a takeover, the server therefore checks the newest row of the lease.
    row = tx.row(
        "SELECT l.branch, l.seq, l.request FROM conversation c, lease l WHERE c.name = ? AND c.number = ?"
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
    return row[0], row[1], row[2]


def find_dead_turns(tx: Transaction, holds: HoldsLease = holds_none) -> list[tuple[str, str, int]]:
    """Return turns whose process is gone, or late and not known to be alive: conversation, agent, number.

    It locks nothing and reads only the leases that are held.
    """
    rows = tx.rows(
        f"SELECT conversation, agent, number, holder, expires - {tx.dialect.now} FROM lease WHERE holder <> ''"
    )
    return [
        (name, agent, number)
        for name, agent, number, holder, left in rows
        if may_take((name, agent, number), holder, left, holds, requested=False)
    ]


def load_holder(tx: Transaction, conversation: str, agent: str) -> str:
    """Return the process that holds the lease of an agent, or an empty string."""
    row = tx.row("SELECT holder FROM lease WHERE conversation = ? AND agent = ?", conversation, agent)
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
    row = tx.row("SELECT branch, seq FROM lease WHERE conversation = ? AND agent = ?", conversation, agent)
    lease = (conversation, agent, number)
    if row is None or now != number or not holder or not may_take(lease, holder, left, holds, requested=wanted):
        return None
    here = load_tip(tx, conversation, lock=True)
    why, answer = (PROCESS_ENDED, RESULT_PROCESS_ENDED) if has_ended(holder) else (NOT_RENEWED, RESULT_TAKEN_OVER)
    ending = Message(role="assistant", status="error", error=why)
    open_streams = partial_message_journal.list_open_of_turn(tx, conversation, agent, number)
    messages = [message for uid in open_streams for message in close_stream(tx, conversation, uid, ending)]
    messages += _answer_open_calls(tx, conversation, agent, (row[0], row[1]), answer)
    _mark_interrupted(tx, here.conversation, agent, len(messages), why)
    tx.run(
        "UPDATE lease SET holder = '', number = number + 1 WHERE conversation = ? AND agent = ?", conversation, agent
    )
    return Recovered(conversation=conversation, agent=agent, lease=number, messages=tuple(messages))


def _mark_interrupted(tx: Transaction, conversation: int, agent: str, messages: int, why: str) -> None:
    """Mark a running turn as interrupted. Approvals that its process was waiting for are withdrawn."""
    turn = turn_and_event_records.mark_interrupted(tx, conversation, agent, now_ms(), messages, why)
    if turn is not None:
        approvals.withdraw(tx, conversation, turn.number, hosted_only=True)


def close_stream(tx: Transaction, conversation: str, uid: str, final: Message) -> list[Message]:
    """Move a streamed message into the chain: `final`, with the journaled parts if it has none.

    The reply becomes several messages if the provider ran tools within it.
    """
    message = partial_message_journal.assemble_message(tx, uid, final)
    if message is None:  # closed by an earlier attempt whose commit was not confirmed
        return [load_messages(tx, conversation, until=uid, last=1)[0]]
    partial_message_journal.delete_stream(tx, uid)
    free = find_free_uid(tx, load_tip(tx, conversation).tree, uid)  # another message may have taken the uid meanwhile
    return append_messages(
        tx,
        conversation,
        [
            prepare_entry(validate_message(each))
            for each in partial_message_journal.split_reply(replace(message, uid=free))
        ],
    )


def error_result(message: Message, call: ToolCall, text: str) -> Message:
    """Return an error result for a call of a message."""
    author, turn, step = message.author, message.turn, message.step
    return tool_result(call.id, call.name, text, is_error=True, author=author, turn=turn, step=step)


def _answer_open_calls(
    tx: Transaction, conversation: str, agent: str, since: tuple[int, int], text: str
) -> list[Message]:
    """Append results for the open calls of a turn; calls without an author count if no other turn is running.

    Calls that certainly were not started stay open: a resumed turn runs them.
    """
    here = load_tip(tx, conversation)
    start = since[1] if since[0] == here.branch else min(since[1], load_base_seq(tx, here.branch))
    turn = turn_and_event_records.load_last_turn(tx, here.conversation, agent)
    turn = turn if turn is not None and turn.state == "running" else None
    if turn is not None:  # it may have been resumed after the reply with the calls
        start = max(0, min(start, turn.opened - 1, here.seq))
    written = load_messages(tx, conversation, after=start)
    others = tx.row("SELECT 1 FROM lease WHERE conversation = ? AND agent <> ? AND holder <> ''", conversation, agent)
    authors = (agent_of(agent),) if others else (agent_of(agent), None)

    def is_own(message: Message) -> bool:
        """Return False for messages of another run, which may still be going."""
        own = turn is None or message.turn == turn.number or message.run in (None, turn.run)
        return own and message.author in authors

    @cache
    def started(seq: int) -> Counter[str] | None:
        return (
            turn_and_event_records.count_started_calls(tx, here.conversation, turn.number, seq)
            if turn is not None
            else None
        )

    def may_have_run(message: Message, call: ToolCall) -> bool:
        if turn is None or message.turn != turn.number or (running := started(message.seq)) is None:
            return True
        running[call.id] -= 1  # of calls with the same id, the first ones were started
        return running[call.id] >= 0

    results = [
        replace(error_result(message, call, text), run=message.run)
        for message, call in find_open_calls(written)
        if is_own(message) and may_have_run(message, call)
    ]
    return (
        append_messages(tx, conversation, [prepare_entry(validate_message(result)) for result in results])
        if results
        else []
    )

"""Turns, one at a time: leases that end by themselves, and the repair of what a dead turn left behind.

A lease has a number that only grows. Every write of a turn carries it, and is refused once the lease was released, ran
out, or was taken over. Taking over and opening a store both put right what the dead turn left: its unfinished messages
enter the chain as `error`, and calls that nobody will answer any more get a result that says so. No tool is run again.
"""

import os
from collections.abc import Iterable

from msgspec.structs import replace

from contextc.errors import ConversationBusy, InvalidInput, LeaseLost
from contextc.messages import Message, admit, tool_result
from contextc.pairing import open_calls
from contextc.store import streams, turns
from contextc.store.base import Lease, Recovered, Transaction
from contextc.store.chain import append, create, entry, free_uid, load, now_ms
from contextc.store.holder import current_holder, is_gone
from contextc.store.places import branch_base, find_head, head

DIED = "The process that was running this turn ended before the turn was over."
LEFT_OPEN = "The turn ended before this message was complete."
FAILED = (
    "Interrupted: the turn ended with an error before the tool's result was stored. "
    "Whether the tool ran is not known; it was not run again."
)
UNANSWERED = (
    "Interrupted: the process that was running this turn ended before the tool's result was stored. "
    "Whether the tool ran is not known; it was not run again."
)


def acquire(tx: Transaction, conversation: str, agent: str, ttl: float) -> tuple[Lease, Recovered | None]:
    """The lease, and what a dead turn before it had left."""
    here, recovered = find_head(tx, conversation, True) or create(tx, conversation), None
    row = tx.row(
        f"SELECT number, holder, expires - {tx.dialect.now} FROM lease WHERE conversation = ? AND agent = ?",
        conversation,
        agent,
    )
    number, holder, left = row or (0, "", 0.0)
    if holder:
        if left > 0 and not is_gone(holder):
            raise ConversationBusy(conversation, agent, number=number, seconds=left)
        recovered = recover(tx, conversation, agent, number)
        if recovered is None:
            raise ConversationBusy(conversation, agent, number=number, seconds=left)
        here, number = head(tx, conversation, lock=True), number + 1
    number += 1
    tx.run(
        "INSERT INTO lease (conversation, agent, number, holder, expires, branch, seq)"
        f" VALUES (?, ?, ?, ?, {tx.dialect.now} + ?, ?, ?)"
        " ON CONFLICT (conversation, agent) DO UPDATE SET number = excluded.number, holder = excluded.holder,"
        " expires = excluded.expires, branch = excluded.branch, seq = excluded.seq",
        conversation,
        agent,
        number,
        current_holder(),
        ttl,
        here.branch,
        here.seq,
    )
    lease = Lease(
        conversation=conversation, agent=agent, number=number, ttl=ttl, pid=os.getpid(), root=here.conversation
    )
    return lease, recovered


def check(tx: Transaction, lease: Lease, conversation: str) -> tuple[int, int]:
    """Refuse the write of an outlived turn, or of a turn of another conversation; else where it began: branch and seq.

    The conversation is locked first, as everybody does who takes a lease over: two locks in one order never block.
    """
    if not isinstance(lease, Lease):
        raise InvalidInput(f"a {type(lease).__name__} is not a lease. Use: with store.lease(…) as lease.")
    if lease.conversation != conversation:
        raise InvalidInput(
            f"Lease {lease.number} is for conversation {lease.conversation!r}, not for {conversation!r}."
        )
    if lease.pid != os.getpid():
        raise InvalidInput(f"Lease {lease.number} belongs to another process. Take a lease in this one.")
    if (since := _held(tx, lease)) is None:
        raise LeaseLost(lease.conversation, lease.agent, number=lease.number)
    return since


def renew(tx: Transaction, held: Iterable[Lease]) -> list[Lease]:
    """Let leases live on; those that had ended already.

    No conversation is locked, so nobody who writes to one waits for all. Whoever takes a lease over has found it ended,
    and so does this; the rows are changed in one order, so that two who renew never wait for each other.
    """
    return [
        lease
        for lease in sorted(held, key=lambda lease: (lease.conversation, lease.agent))
        if not tx.run(
            f"UPDATE lease SET expires = {tx.dialect.now} + ? WHERE conversation = ? AND agent = ? AND number = ?"
            f" AND holder <> '' AND expires > {tx.dialect.now}"
            " AND EXISTS (SELECT 1 FROM conversation WHERE name = lease.conversation AND number = ?)",
            lease.ttl,
            lease.conversation,
            lease.agent,
            lease.number,
            lease.root,
        )
    ]


def release(tx: Transaction, lease: Lease, *, failed: bool) -> None:
    """End the turn, and what it was still writing. A lease that has already ended is left as it is."""
    since = _held(tx, lease)
    if since is None:
        return
    messages = _answer_open_calls(tx, lease.conversation, lease.agent, since, FAILED) if failed else []
    ending = Message(role="assistant", status="error", error=LEFT_OPEN)
    for uid in streams.open_under(tx, lease.conversation, lease.agent, lease.number):
        messages += close_stream(tx, lease.conversation, uid, ending)
    turns.interrupt(tx, lease.root, lease.agent, now_ms(), len(messages), LEFT_OPEN)
    tx.run(
        "UPDATE lease SET holder = '' WHERE conversation = ? AND agent = ? AND number = ?",
        lease.conversation,
        lease.agent,
        lease.number,
    )


def _held(tx: Transaction, lease: Lease) -> tuple[int, int] | None:
    """Where the conversation stood when this turn began, as branch and seq; None where the lease has ended."""
    if not tx.dialect.lock:  # whoever writes is alone: one statement sees what two would
        row = tx.row(
            "SELECT l.branch, l.seq FROM conversation c, lease l WHERE c.name = ? AND c.number = ?"
            " AND l.conversation = c.name AND l.agent = ? AND l.number = ?"
            f" AND l.holder <> '' AND l.expires > {tx.dialect.now}",
            lease.conversation,
            lease.root,
            lease.agent,
            lease.number,
        )
        return (row[0], row[1]) if row else None
    here = tx.row(f"SELECT number FROM conversation WHERE name = ?{tx.dialect.lock}", lease.conversation)
    if here is None or here[0] != lease.root:
        return None
    row = tx.row(
        "SELECT branch, seq FROM lease WHERE conversation = ? AND agent = ? AND number = ?"
        f" AND holder <> '' AND expires > {tx.dialect.now}",
        lease.conversation,
        lease.agent,
        lease.number,
    )
    return (row[0], row[1]) if row else None


def ended(tx: Transaction) -> list[tuple[str, str, int]]:
    """The turns whose lease has run out or whose process is gone: conversation, agent, number."""
    rows = tx.rows(
        f"SELECT conversation, agent, number, holder, expires - {tx.dialect.now} FROM lease WHERE holder <> ''"
    )
    return [(name, agent, number) for name, agent, number, holder, left in rows if left <= 0 or is_gone(holder)]


def holder_of(tx: Transaction, conversation: str, agent: str) -> str:
    """The process that holds the lease of an agent; empty where none does."""
    row = tx.row("SELECT holder FROM lease WHERE conversation = ? AND agent = ?", conversation, agent)
    return row[0] if row else ""


def recover(tx: Transaction, conversation: str, agent: str, number: int) -> Recovered | None:
    """Close one dead turn; None where another process did so first, or the holder came back in time."""
    here = find_head(tx, conversation, True)
    if here is None:
        return None
    row = tx.row(
        f"SELECT branch, seq, holder, expires - {tx.dialect.now} FROM lease"
        " WHERE conversation = ? AND agent = ? AND number = ? AND holder <> ''",
        conversation,
        agent,
        number,
    )
    if row is None or (row[3] > 0 and not is_gone(row[2])):
        return None
    ending = Message(role="assistant", status="error", error=DIED)
    open_streams = streams.open_under(tx, conversation, agent, number)
    messages = [message for uid in open_streams for message in close_stream(tx, conversation, uid, ending)]
    messages += _answer_open_calls(tx, conversation, agent, (row[0], row[1]), UNANSWERED)
    turns.interrupt(tx, here.conversation, agent, now_ms(), len(messages), DIED)
    tx.run(
        "UPDATE lease SET holder = '', number = number + 1 WHERE conversation = ? AND agent = ?", conversation, agent
    )
    return Recovered(conversation=conversation, agent=agent, lease=number, messages=tuple(messages))


def close_stream(tx: Transaction, conversation: str, uid: str, final: Message) -> list[Message]:
    """Move a message that was being written into the chain: `final`, with what was journaled where it has no parts.

    It is several where a provider ran tools in the middle of it.
    """
    message = streams.assemble(tx, uid, final)
    if message is None:  # closed before, by a try whose answer was lost
        return [load(tx, conversation, upto=uid, last=1)[0]]
    streams.forget(tx, uid)
    free = free_uid(tx, head(tx, conversation).tree, uid)  # somebody may have taken the name meanwhile
    return append(tx, conversation, [entry(admit(each)) for each in streams.split(replace(message, uid=free))])


def _answer_open_calls(
    tx: Transaction, conversation: str, agent: str, since: tuple[int, int], saying: str
) -> list[Message]:
    """Results for the calls a turn has left open; those without an author are its own if no other turn is running."""
    here = head(tx, conversation)
    start = since[1] if since[0] == here.branch else min(since[1], branch_base(tx, here.branch))
    written = load(tx, conversation, after=start)
    others = tx.row("SELECT 1 FROM lease WHERE conversation = ? AND agent <> ? AND holder <> ''", conversation, agent)
    authors = (agent,) if others else (agent, None)
    results = [
        tool_result(
            call.id,
            call.name,
            saying,
            is_error=True,
            author=message.author,
            run=message.run,
            turn=message.turn,
            step=message.step,
        )
        for message, call in open_calls(written)
        if message.author in authors
    ]
    return append(tx, conversation, [entry(admit(result)) for result in results]) if results else []

"""Messages of an observed request on the chain of its conversation: what is new is appended, or goes to a branch."""

from collections.abc import Sequence

from msgspec.structs import replace

from contextc._json import encode_canonical
from contextc.messages import Message
from contextc.store import append_and_load
from contextc.store.backend_interface import Transaction
from contextc.store.branches import create_branch, switch_branch
from contextc.store.message_rows import (
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    load_lineage,
    load_tip_of_branch,
    make_place,
    split_by_branch,
)


def place_messages(
    tx: Transaction, name: str, at: BranchTip, last: int, messages: Sequence[Message], *, has_reply: bool
) -> tuple[BranchTip, list[int]]:
    """Append the messages that follow the one at the place `last`. Return the end of the branch, and their places.

    What follows on the chain is compared with them. If the chain goes on otherwise, the rest goes to a branch. While an
    executor holds the lease, everything new does.
    """
    here = at if not last or is_on_branch(tx, at, last) else load_tip_of_branch(tx, name, at, last >> SEQ_BITS)
    after = append_and_load.load_between(tx, here.branch, last & SEQ_MASK, here.seq)
    matched: list[Message] = []
    cursor = 0
    for message in messages:
        index = next((number for number in range(cursor, len(after)) if after[number].status == "sent"), len(after))
        if index == len(after) or not is_same(after[index], message):
            break
        matched.append(after[index])
        cursor = index + 1
    lines = list(split_by_branch(load_lineage(tx, here.branch), 0, here.seq)) if matched else []
    places = [
        make_place(next(branch for branch, first, end in lines if first <= each.seq <= end), each.seq)
        for each in matched
    ]
    rest = messages[len(matched) :]
    spot = after[cursor - 1].seq if cursor else last & SEQ_MASK
    if not rest and not has_reply:
        return (here if spot == here.seq else replace(here, seq=spot)), places
    tip, is_leased = here, _is_leased(tx, name)
    if is_leased or any(each.status == "sent" for each in after[cursor:]):
        start = here.seq if is_leased and cursor == len(after) else spot
        tip = create_branch(tx, name, here, start, is_current=not is_leased)
    elif here.branch != at.branch:
        tip = switch_branch(tx, name, here)
    stored = append_messages(tx, name, tip, rest)
    if stored:
        tip = replace(tip, seq=stored[-1].seq, id=bytes.fromhex(stored[-1].id))
    return tip, [*places, *(make_place(tip.branch, message.seq) for message in stored)]


def append_messages(tx: Transaction, name: str, tip: BranchTip, messages: Sequence[Message]) -> list[Message]:
    entries = [
        append_and_load.prepare_entry(append_and_load.validate_for(replace(message, uid=""), name))
        for message in messages
    ]
    return append_and_load.insert_messages(tx, name, tip, entries) if entries else []


def is_same(stored: Message, sent: Message) -> bool:
    """Return True if a client sent a stored message back, perhaps without its reasoning or with a shortened result."""
    if stored.role != sent.role:
        return False
    ours, theirs = _calls(stored), _calls(sent)
    if ours != theirs and [each[1:] for each in ours] != [each[1:] for each in theirs]:
        return False
    return bool(theirs) if sent.role == "tool" else stored.text.strip() == sent.text.strip()


def _calls(message: Message) -> list[tuple[str, ...]]:
    asked = [(call.id, call.name, encode_canonical(call.arguments).decode()) for call in message.tool_calls]
    return asked + [(result.call_id, "result") for result in message.tool_results]


def is_on_branch(tx: Transaction, at: BranchTip, place: int) -> bool:
    branch, seq = place >> SEQ_BITS, place & SEQ_MASK
    if branch == at.branch:
        return True
    lines = split_by_branch(load_lineage(tx, at.branch), 0, at.seq)
    return any(number == branch and first <= seq <= last for number, first, last in lines)


def _is_leased(tx: Transaction, name: str) -> bool:
    sql = f"SELECT 1 FROM lease WHERE conversation = ? AND holder <> '' AND expires > {tx.dialect.now}"
    return tx.row(sql, name) is not None

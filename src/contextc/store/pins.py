"""Pins: messages that are never trimmed from the context. A call and its results are pinned together."""

from contextc.errors import UnknownMessage
from contextc.messages import Message
from contextc.store.message_log import (
    SEQ_MASK,
    BranchTip,
    Reference,
    find_message,
    load_between,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
)
from contextc.store.transaction_engine import Transaction

MAX_CALL_DISTANCE = 500  # maximum distance between a call and its result, in messages


def pin_message(tx: Transaction, conversation: str, target: Reference) -> list[int]:
    """Pin a message. Return the seqs of all messages that were pinned."""
    here = load_tip(tx, conversation, lock=True)
    group = _find_group(tx, conversation, here, target)
    for where in group:
        tx.run("INSERT INTO main.pin (place) VALUES (?) ON CONFLICT DO NOTHING", where)
    _increment_revision(tx, here)
    return [where & SEQ_MASK for where in group]


def unpin_message(tx: Transaction, conversation: str, target: Reference) -> list[int]:
    here = load_tip(tx, conversation, lock=True)
    group = _find_group(tx, conversation, here, target)
    gone = [where for where in group if tx.run("DELETE FROM main.pin WHERE place = ?", where)]
    if gone:
        _increment_revision(tx, here)
    return [where & SEQ_MASK for where in gone]


def load_pinned_places(tx: Transaction, here: BranchTip) -> list[int]:
    """Return the places of the pinned messages on the current branch, in order."""
    return [
        row[0]
        for branch, first, last in split_by_branch(load_lineage(tx, here.branch), 0, here.seq)
        for row in tx.rows(
            "SELECT place FROM main.pin WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(branch, first),
            make_place(branch, last),
        )
    ]


def _increment_revision(tx: Transaction, here: BranchTip) -> None:
    tx.run("UPDATE main.conversation SET revision = revision + 1 WHERE tree = ?", here.tree)


def _find_group(tx: Transaction, conversation: str, here: BranchTip, target: Reference) -> list[int]:
    spot = find_message(tx, conversation, here, target)
    if spot.seq == 0:
        raise UnknownMessage(conversation, target, hint="The root is not a message.")
    near = load_between(
        tx, here.branch, max(0, spot.seq - MAX_CALL_DISTANCE), min(here.seq, spot.seq + MAX_CALL_DISTANCE)
    )
    message = next(each for each in near if each.seq == spot.seq)
    wanted = {spot.seq, *_find_partners(near, message)}
    for seq in list(wanted):
        wanted |= _find_partners(near, next(each for each in near if each.seq == seq))
    line = list(split_by_branch(load_lineage(tx, here.branch), 0, here.seq))
    return [make_place(branch, seq) for branch, first, last in line for seq in sorted(wanted) if first <= seq <= last]


def _find_partners(near: list[Message], message: Message) -> set[int]:
    """Return the seqs of messages that answer its calls, and of messages whose calls it answers."""
    calls = {call.id for call in message.tool_calls}
    results = {result.call_id for result in message.tool_results}
    found: set[int] = set()
    for each in near:
        later = each.seq > message.seq
        if later and calls & {result.call_id for result in each.tool_results}:
            found.add(each.seq)
        if not later and results & {call.id for call in each.tool_calls}:
            found.add(each.seq)
    return found

"""Messages of an observed request on the chain of its conversation: what is new is appended, or goes to a branch."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from contextc.messages import AnyPart, Message, ToolCall, ToolResult, decode_message
from contextc.store import message_log
from contextc.store.branches import place_entries
from contextc.store.message_log import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    load_lineage,
    load_tip_of_branch,
    make_place,
    original_uid,
    split_by_branch,
)
from contextc.store.message_matching import GENERATED_ID, OBSERVED, is_same
from contextc.store.redaction import get_repair_note
from contextc.store.transaction_engine import Transaction

# ── calls without ids ─────────────────────────────────────────────────────────────────────────────────────────────────
# Numbering of tool calls that a client sends without ids, as those of Ollama.
#
# Decoders number such calls from zero in every request and every reply. On the chain of a conversation, the numbers
# continue, so that each call has a unique id and its result names it.


def has_generated_ids(messages: Iterable[Message], raw: bytes) -> bool:
    """Return True if calls of messages have ids that are not in the bytes they were decoded from."""
    return any(
        GENERATED_ID.fullmatch(call.id) and f'"{call.id}"'.encode() not in raw
        for message in messages
        for call in message.tool_calls
    )


def next_number(ids: Iterable[str]) -> int:
    """Return the number after those of generated ids."""
    return max([int(found[1]) for each in ids if (found := GENERATED_ID.fullmatch(each))], default=-1) + 1


def number_calls(messages: Sequence[Message], first: int) -> list[Message]:
    """Return messages whose calls with generated ids are numbered from a number on. Results follow their calls."""
    ids: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        for call in message.tool_calls:
            if GENERATED_ID.fullmatch(call.id):
                ids[call.id] = f"call_{first}"
                first += 1
        found.append(rename_calls(message, ids))
    return found


def rename_calls(message: Message, ids: Mapping[str, str]) -> Message:
    """Return a message with other ids of calls."""
    if not ids or not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        return message

    def rename(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolCall):
            return replace(part, id=ids.get(part.id, part.id))
        return replace(part, call_id=ids.get(part.call_id, part.call_id)) if isinstance(part, ToolResult) else part

    return replace(message, parts=tuple([rename(part) for part in message.parts]))


# ── messages on the chain ─────────────────────────────────────────────────────────────────────────────────────────────


class PlacedMessages(NamedTuple):
    """Messages on the chain: the end of their branch, their places, the number of those that were appended, and the
    places of those that are redacted.
    """

    tip: BranchTip
    places: list[int]
    added: int = 0
    redacted: frozenset[int] = frozenset()


def place_messages(
    tx: Transaction,
    name: str,
    at: BranchTip,
    last: int,
    messages: Sequence[Message],
    *,
    has_reply: bool,
    keeps_current: bool = False,
) -> PlacedMessages:
    """Append the messages that follow the one at the place `last`.

    What follows on the chain is compared with them. If the chain goes on otherwise, the rest goes to a branch. While an
    executor holds the lease, everything new does. With `keeps_current`, the current branch stays as it is.
    """
    here = at if not last or is_on_branch(tx, at, last) else load_tip_of_branch(tx, name, at, last >> SEQ_BITS)
    after = message_log.load_between(tx, here.branch, last & SEQ_MASK, here.seq)
    content = [each for each in after if each.status == "sent" or _is_lost(each)]
    pairs = zip(content, messages, strict=False)
    matched = list(takewhile(lambda pair: _is_lost(pair[0]) or is_same(*pair, OBSERVED), pairs))
    lines = list(split_by_branch(load_lineage(tx, here.branch), 0, here.seq)) if matched else []
    places = [
        make_place(next(branch for branch, first, end in lines if first <= each.seq <= end), each.seq)
        for each, _ in matched
    ]
    redacted = frozenset([place for place, (each, _) in zip(places, matched, strict=True) if each.redacted])
    ids = {
        theirs.id: ours.id
        for each, message in matched
        for theirs, ours in zip(message.tool_calls, each.tool_calls, strict=False)
        if theirs.id != ours.id
    }
    rest = [rename_calls(message, ids) for message in messages[len(matched) :]]
    spot = matched[-1][0].seq if matched else last & SEQ_MASK
    if not rest and not has_reply:
        return PlacedMessages(here if spot == here.seq else replace(here, seq=spot), places, 0, redacted)
    is_leased, is_apart = _is_leased(tx, name), keeps_current and here.branch == at.branch
    if here.branch != at.branch and spot == here.seq and find_repaired(tx, at) == (here.branch, here.id.hex()):
        here, spot, is_branch = at, at.seq, False  # the current branch replaces the one that ends here
    else:
        is_branch = is_leased or is_apart or any(each.status == "sent" and each.seq > spot for each in after)
    tip, stored = place_entries(
        tx,
        name,
        at,
        here,
        spot,
        prepare_entries(name, rest),
        is_branch=is_branch,
        is_current=not (is_leased or keeps_current),
    )
    places += [make_place(tip.branch, message.seq) for message in stored]
    return PlacedMessages(tip, places, len(stored), redacted)


def find_repaired(tx: Transaction, at: BranchTip) -> tuple[int, str] | None:
    """Return the branch that the current branch is a repaired copy of, and its end; None if it is none."""
    row = tx.row(
        "SELECT m.body FROM main.branch b JOIN main.message m ON m.place = b.number * 4294967296 + b.base_seq + 1"
        " WHERE b.number = ?",
        at.branch,
    )
    try:
        note = get_repair_note(decode_message(row[0])) if row is not None else {}
    except DECODE_ERRORS:
        return None
    branch, tip = note.get("branch"), note.get("tip")
    return (branch, tip) if isinstance(branch, int) and isinstance(tip, str) else None


def is_copy(tx: Transaction, place: int) -> bool:
    """Return True if a message is a copy that a repair has made."""
    row = tx.row("SELECT body FROM main.message WHERE place = ?", place)
    try:
        message = decode_message(row[0]) if row is not None else None
    except DECODE_ERRORS:
        return False
    return message is not None and (bool(get_repair_note(message)) or original_uid(message.uid) != message.uid)


def _is_lost(message: Message) -> bool:
    """Return True if a message replaces one that could not be read when the conversation was repaired."""
    return message.status == "error" and bool(get_repair_note(message))


def prepare_entries(name: str, messages: Sequence[Message]) -> list[message_log.PendingMessage]:
    return [message_log.prepare_entry(message_log.validate_for(replace(message, uid=""), name)) for message in messages]


def append_answers(tx: Transaction, name: str, tip: BranchTip, answers: Sequence[Message]) -> list[tuple[int, Message]]:
    """Append a reply, and return its messages with their places. Each further answer is a branch of its own."""
    found: list[tuple[int, Message]] = []
    for number, entry in enumerate(prepare_entries(name, answers)):
        there, stored = place_entries(tx, name, tip, tip, tip.seq, [entry], is_branch=number > 0, is_current=False)
        found += [(make_place(there.branch, message.seq), message) for message in stored]
    return found


def is_on_branch(tx: Transaction, at: BranchTip, place: int) -> bool:
    branch, seq = place >> SEQ_BITS, place & SEQ_MASK
    if branch == at.branch:
        return True
    lines = split_by_branch(load_lineage(tx, at.branch), 0, at.seq)
    return any(number == branch and first <= seq <= last for number, first, last in lines)


def _is_leased(tx: Transaction, name: str) -> bool:
    sql = f"SELECT 1 FROM main.lease WHERE conversation = ? AND holder <> '' AND expires > {tx.dialect.now}"
    return tx.row(sql, name) is not None

"""Messages of an observed request on the chain of its conversation: what is new is appended, or goes to a branch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import encode_canonical
from contextc.messages import AnyPart, Media, Message, ToolCall, ToolResult, decode_message
from contextc.store import message_log
from contextc.store.branches import create_branch, switch_branch
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
from contextc.store.redaction import get_repair_note
from contextc.store.transaction_engine import Transaction

# ── calls without ids ─────────────────────────────────────────────────────────────────────────────────────────────────
# Numbering of tool calls that a client sends without ids, as those of Ollama.
#
# Decoders number such calls from zero in every request and every reply. On the chain of a conversation, the numbers
# continue, so that each call has a unique id and its result names it.


GENERATED_ID = re.compile(r"call_(\d+)")


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


# ── results that a client truncated later ─────────────────────────────────────────────────────────────────────────────
# Tool results that a client truncated later: cleared, cut off, or without the middle.
#
# A text is a truncated form of another only if it shows that: it is a note in brackets, or it has the other's text
# with a mark for the missing part. A text that merely differs is the result of another run of the tool.


TRUNCATION_WORDS = r"clear|omit|remov|truncat|elid|elis|prun|compact|trimm|shorten|redact|dropp|not shown|no longer"
TRUNCATION_NOTE = re.compile(rf"\s*[\[(<{{](?=[^\n]*(?:{TRUNCATION_WORDS}))[^\n]*[\])>}}]\s*", re.IGNORECASE)
TRUNCATION_MARK = re.compile(rf"\.\.\.|…|{TRUNCATION_WORDS}|chars|more|too long", re.IGNORECASE)
MAX_NOTE_LENGTH = 200
MIN_COMMON_PREFIX = 100  # characters; an equal prefix of this length is not a coincidence


def longer_results(one: Message, other: Message) -> Message | None:
    """Return the results of equal calls, each in the longer form; None if the results differ."""
    ours, theirs = one.tool_results, other.tool_results
    if len(ours) != len(theirs):
        return None
    kept: dict[int, ToolResult] = {}
    for mine, yours in zip(ours, theirs, strict=True):
        if _has_all_media(mine, yours) and (mine.text == yours.text or is_truncated(yours.text, mine.text)):
            continue
        if not (_has_all_media(yours, mine) and (mine.text == yours.text or is_truncated(mine.text, yours.text))):
            return None
        kept[id(mine)] = yours
    return replace(one, parts=tuple(kept.get(id(part), part) for part in one.parts)) if kept else one


def is_same_result(stored: Message, sent: Message) -> bool:
    """Return True if the results of a message have the texts of those of a stored one, perhaps truncated."""
    ours, theirs = stored.tool_results, sent.tool_results
    return len(ours) == len(theirs) and all(
        mine.text == yours.text or is_truncated(yours.text, mine.text) or is_truncated(mine.text, yours.text)
        for mine, yours in zip(ours, theirs, strict=True)
    )


def is_truncated(short: str, long: str) -> bool:
    """Return True if a text is a truncated form of another."""
    if _is_truncation_note(short):
        return not _is_truncation_note(long)
    if len(short) >= len(long):
        return False
    head = _common_prefix_length(short, long)
    tail = _common_prefix_length(short[head:][::-1], long[head:][::-1])
    rest = short[head : len(short) - tail]
    if not rest:
        return len(short) >= MIN_COMMON_PREFIX
    return head + tail > 0 and len(rest) <= MAX_NOTE_LENGTH and TRUNCATION_MARK.search(rest) is not None


def _is_truncation_note(text: str) -> bool:
    """Return True if a text is only a note that content was removed."""
    return len(text) <= MAX_NOTE_LENGTH and TRUNCATION_NOTE.fullmatch(text) is not None


def _has_all_media(one: ToolResult, other: ToolResult) -> bool:
    """Return True if one result has all media of the other."""
    return all(part in _media_of(one) for part in _media_of(other))


def _media_of(result: ToolResult) -> list[Media]:
    return [part for part in result.content if isinstance(part, Media)] if isinstance(result.content, tuple) else []


def _common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


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
    matched: list[Message] = []
    ids: dict[str, str] = {}
    cursor = 0
    for message in messages:
        index = next((number for number in range(cursor, len(after)) if _is_content(after[number])), len(after))
        if index == len(after) or not (_is_lost(after[index]) or is_same(after[index], message)):
            break
        matched.append(after[index])
        pairs = zip(message.tool_calls, after[index].tool_calls, strict=False)
        ids |= {sent.id: stored.id for sent, stored in pairs if sent.id != stored.id}
        cursor = index + 1
    lines = list(split_by_branch(load_lineage(tx, here.branch), 0, here.seq)) if matched else []
    places = [
        make_place(next(branch for branch, first, end in lines if first <= each.seq <= end), each.seq)
        for each in matched
    ]
    redacted = frozenset([place for place, each in zip(places, matched, strict=True) if each.redacted])
    rest = [rename_calls(message, ids) for message in messages[len(matched) :]]
    spot = after[cursor - 1].seq if cursor else last & SEQ_MASK
    if not rest and not has_reply:
        return PlacedMessages(here if spot == here.seq else replace(here, seq=spot), places, 0, redacted)
    tip, is_leased = here, _is_leased(tx, name)
    is_apart = keeps_current and here.branch == at.branch
    if here.branch != at.branch and cursor == len(after) and find_repaired(tx, at) == (here.branch, here.id.hex()):
        tip = at  # the current branch replaces the one that ends here
    elif is_leased or is_apart or any(each.status == "sent" for each in after[cursor:]):
        start = here.seq if (is_leased or is_apart) and cursor == len(after) else spot
        tip = create_branch(tx, name, here, start, is_current=not (is_leased or keeps_current))
    elif here.branch != at.branch and not keeps_current:
        tip = switch_branch(tx, name, here)
    stored = append_messages(tx, name, tip, rest)
    if stored:
        tip = replace(tip, seq=stored[-1].seq, id=bytes.fromhex(stored[-1].id))
    places += [make_place(tip.branch, message.seq) for message in stored]
    return PlacedMessages(tip, places, len(stored), redacted)


def find_repaired(tx: Transaction, at: BranchTip) -> tuple[int, str] | None:
    """Return the branch that the current branch is a repaired copy of, and its end; None if it is none."""
    row = tx.row(
        "SELECT m.body FROM branch b JOIN message m ON m.place = b.number * 4294967296 + b.base_seq + 1"
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
    row = tx.row("SELECT body FROM message WHERE place = ?", place)
    try:
        message = decode_message(row[0]) if row is not None else None
    except DECODE_ERRORS:
        return False
    return message is not None and (bool(get_repair_note(message)) or original_uid(message.uid) != message.uid)


def _is_content(message: Message) -> bool:
    return message.status == "sent" or _is_lost(message)


def _is_lost(message: Message) -> bool:
    """Return True if a message replaces one that could not be read when the conversation was repaired."""
    return message.status == "error" and bool(get_repair_note(message))


def append_messages(tx: Transaction, name: str, tip: BranchTip, messages: Sequence[Message]) -> list[Message]:
    entries = [
        message_log.prepare_entry(message_log.validate_for(replace(message, uid=""), name)) for message in messages
    ]
    return message_log.insert_messages(tx, name, tip, entries) if entries else []


def append_answers(tx: Transaction, name: str, tip: BranchTip, answers: Sequence[Message]) -> list[tuple[int, Message]]:
    """Append a reply, and return its messages with their places. Each further answer is a branch of its own."""
    stored = append_messages(tx, name, tip, answers[:1])
    found = [(make_place(tip.branch, message.seq), message) for message in stored]
    for answer in answers[1:]:
        other = create_branch(tx, name, tip, tip.seq, is_current=False)
        found += [(make_place(other.branch, each.seq), each) for each in append_messages(tx, name, other, [answer])]
    return found


def is_same(stored: Message, sent: Message) -> bool:
    """Return True if a client sent a stored message back, perhaps without its reasoning or with a shortened result."""
    if stored.role != sent.role or stored.redacted:
        return stored.role == sent.role  # redacted content does not come back
    ours, theirs = _call_keys(stored), _call_keys(sent)
    if ours != theirs and [each[1:] for each in ours] != [each[1:] for each in theirs]:
        return False
    return is_same_result(stored, sent) if sent.role == "tool" else stored.text.strip() == sent.text.strip()


def _call_keys(message: Message) -> list[tuple[str, ...]]:
    asked: list[tuple[str, ...]] = [
        (call.id, call.name, encode_canonical(call.arguments).decode()) for call in message.tool_calls
    ]
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

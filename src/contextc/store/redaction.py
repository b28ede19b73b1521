"""Redaction: permanent removal of the content of one message, or of all messages above a retention age.

The message keeps its id and its place, so chains, forks and cursors stay valid. Its parts are removed, with media that
no other message uses, and with copies of the message that a repair made. Every conversation of the tree gets a new
revision, so that requests compiled from the old content are refused.
"""

from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, encode
from contextc.errors import UnknownMessage
from contextc.events import TEXT_FIELDS
from contextc.messages import Message, canonical_content, encode_message
from contextc.store import turn_and_event_records
from contextc.store.approvals import redact_approvals
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Reference
from contextc.store.history_comparison import VERSION_SEPARATOR, original_uid
from contextc.store.ledger_redaction import redact_ledgers
from contextc.store.message_rows import (
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    decode_message_row,
    decode_row,
    find_by_name,
    find_message,
    load_tip,
    lock_tree,
    make_place,
)

REPAIR_KEY = "contextc_healed"
"""The key in the `meta` of a message under which a repair recorded its source and reason."""


def redact_message(tx: Transaction, conversation: str, target: Reference) -> Message:
    lock_tree(tx, conversation)
    here = load_tip(tx, conversation, lock=True)
    where = _place_of(tx, conversation, here, target)
    copies = _find_copies(tx, here.tree, where)
    message = _redact_row(tx, where)
    if message is None:
        raise UnknownMessage(conversation, target)
    gone = [message, *[each for copy in copies if (each := _redact_row(tx, copy)) is not None]]
    tx.run("UPDATE conversation SET revision = revision + 1 WHERE tree = ?", here.tree)
    redact_ledgers(tx, here.tree, {where, *copies})
    redact_events(tx, here.tree, [each.uid for each in gone])
    return message


def load_redaction_target(tx: Transaction, conversation: str, target: Reference) -> Message:
    """Return the message that `redact_message` would empty, as stored. It may be damaged."""
    where = _place_of(tx, conversation, load_tip(tx, conversation), target)
    row = tx.row("SELECT body FROM message WHERE place = ?", where)
    if row is None:
        raise UnknownMessage(conversation, target)
    return decode_message_row(tx, where, row[0])


def _place_of(tx: Transaction, conversation: str, here: BranchTip, target: Reference) -> int:
    spot = find_message(tx, conversation, here, target, anywhere=True)
    if spot.seq == 0:
        raise UnknownMessage(conversation, target, hint="The root holds no content.")
    return make_place(spot.branch, spot.seq)


def _find_copies(tx: Transaction, tree: int, where: int) -> list[int]:
    """Return the places of copies on other branches. Repairs copy messages under new versions of their uid."""
    row = tx.row("SELECT body FROM message WHERE place = ?", where)
    if row is None:
        return []
    message, found, version = decode_message_row(tx, where, row[0]), list[int](), 1
    name = original = original_uid(message.uid)
    while spots := find_by_name(tx, tree, name):
        for spot in spots:
            at = make_place(spot.branch, spot.seq)
            other = tx.row("SELECT body FROM message WHERE place = ?", at)
            if other is not None and at != where and _is_copy(message, decode_message_row(tx, at, other[0])):
                found.append(at)
        version += 1
        name = f"{original}{VERSION_SEPARATOR}{version}"
    return found


def _is_copy(one: Message, other: Message) -> bool:
    """Return True if one is a copy of the other. An edit under the same uid has other content and is kept."""
    made_from = {get_repair_note(one).get("of"), get_repair_note(other).get("of")}
    return canonical_content(one) == canonical_content(other) or not made_from.isdisjoint({one.uid, other.uid})


def get_repair_note(message: Message) -> JSONObject:
    """Return the note of a repair in a message: `of`, `because`, `branch`, `tip`. It contains no message content."""
    note: object = (message.meta or {}).get(REPAIR_KEY)
    return cast(JSONObject, note) if isinstance(note, dict) else {}


OLD_MESSAGES_OF_TREE = (
    "SELECT m.place FROM branch b JOIN message m"
    " ON m.place BETWEEN b.number * 4294967296 AND b.number * 4294967296 + 4294967295"
    " WHERE b.tree = ? AND m.redacted = 0 AND m.time < ?"
)


def redact_older(tx: Transaction, before: int, limit: int, after: int) -> tuple[int, int]:
    """Redact messages older than `before` (ms): the first `limit` after a place, and all others of their trees.

    Ledgers and events are read once per tree. Return the number of messages, and the place after which to continue.
    """
    rows = tx.rows(
        "SELECT place FROM message WHERE place > ? AND redacted = 0 AND time < ? ORDER BY place LIMIT ?",
        after,
        before,
        limit,
    )
    trees: set[int] = set()
    for branch in sorted({where >> SEQ_BITS for (where,) in rows}):
        found = tx.row("SELECT tree FROM branch WHERE number = ?", branch)
        trees |= {found[0]} if found else set()
    last, places = rows[-1][0] if rows else after, {where for (where,) in rows}
    for tree in sorted(trees) if len(rows) == limit else ():
        places |= {where for (where,) in tx.rows(OLD_MESSAGES_OF_TREE, tree, before)}
    for tree in sorted(trees):
        tx.row(f"SELECT 1 FROM branch WHERE number = ?{tx.dialect.row_lock}", tree)
        tx.run("UPDATE conversation SET revision = revision + 1 WHERE tree = ?", tree)
    uids = [message.uid for where in sorted(places) if (message := _redact_row(tx, where)) is not None]
    for tree in sorted(trees):
        redact_ledgers(tx, tree, places)
        redact_events(tx, tree, uids)
    return len(places), last


def delete_unused_blobs(tx: Transaction, low: int, high: int) -> None:
    """Remove the blob references of a range of places, and blobs that have no other reference."""
    names = sorted({row[0] for row in tx.rows("SELECT name FROM blob_use WHERE place BETWEEN ? AND ?", low, high)})
    tx.run("DELETE FROM blob_use WHERE place BETWEEN ? AND ?", low, high)
    for name in names:
        tx.row(f"SELECT 1 FROM blob WHERE name = ?{tx.dialect.row_lock}", name)
        tx.run("DELETE FROM blob WHERE name = ? AND NOT EXISTS (SELECT 1 FROM blob_use WHERE name = ?)", name, name)


def _redact_row(tx: Transaction, where: int) -> Message | None:
    row = tx.row(f"SELECT body FROM message WHERE place = ?{tx.dialect.row_lock}", where)
    if row is None:  # deleted by another process meanwhile
        return None
    message = decode_message_row(tx, where, row[0])
    note = get_repair_note(message)
    meta: JSONObject | None = {REPAIR_KEY: note} if note else None
    message = replace(message, parts=(), meta=meta, extra=None, error=None, redacted=True)
    tx.run("UPDATE message SET body = ?, redacted = 1 WHERE place = ?", encode_message(message), where)
    delete_unused_blobs(tx, where, where)
    return message


def redact_events(tx: Transaction, tree: int, uids: Iterable[str]) -> None:
    """Redact messages in the events of every conversation of a tree.

    Events about their calls are redacted too, and all error texts, which may quote what was sent.
    """
    gone = {*uids}
    for (number,) in tx.rows("SELECT number FROM conversation WHERE tree = ?", tree):
        low, high = make_place(number, 0), make_place(number, SEQ_MASK)
        rows = tx.rows("SELECT place, body FROM event WHERE place BETWEEN ? AND ?", low, high)
        told: list[tuple[int, JSONObject]] = [(where, decode_row(decode, body, "Event")) for where, body in rows]
        theirs = [event for _, event in told if event.get("uid") in gone]
        waited = {event.get("queued") for event in theirs} - {None}  # the number of queued input, before it had a uid
        steps = {(event.get("turn"), event.get("step")) for event in theirs if event.get("step")}
        for where, event in told:
            is_of_them = event.get("uid") in gone or event.get("queued") in waited
            is_beside = event["type"] in STEP_EVENTS and (event.get("turn"), event.get("step")) in steps
            names = (*TEXT_FIELDS, *ERROR_FIELDS) if is_of_them or is_beside else ERROR_FIELDS
            if any(event.get(name) for name in names):
                blank = {name: _empty_value(value) if name in names else value for name, value in event.items()}
                tx.run("UPDATE event SET body = ? WHERE place = ?", encode(blank), where)
        redact_approvals(tx, number, steps)
        _redact_errors(tx, number)


ERROR_FIELDS = ("error", "failure", "fallback")
STEP_EVENTS = ("approval-request", "approval-answer", "tool-progress", "system-hint")
"""Types of events that quote a message of their step without naming it."""


def _empty_value(value: JSON) -> JSON:
    return {} if isinstance(value, dict) else ""


def _redact_errors(tx: Transaction, conversation: int) -> None:
    for turn in turn_and_event_records.load_turns(tx, conversation):
        if turn.error:
            turn_and_event_records.save_turn(tx, conversation, replace(turn, error=""))
    for step in turn_and_event_records.load_steps(tx, conversation, None):
        if step.error:
            turn_and_event_records.save_step(tx, conversation, replace(step, error=""))

"""Redaction: permanent removal of the content of messages: of one, of all with a text, or of all above a retention age.

A message keeps its id and its place, so chains, forks and cursors stay valid. Its parts are removed, with media that no
other message uses, and with copies of the message on other branches. Everything that was derived from it loses its
text, too: ledgers, summaries, manifests, events, approvals, errors and transcripts. Every conversation of the tree gets
a new revision, so that requests compiled from the old content are refused. A row that cannot be read is emptied
as well: its content is unknown, and it must not stop the others.
"""

import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, encode
from contextc.errors import StoreCorrupt, UnknownMessage
from contextc.events import ERROR_FIELDS, TEXT_FIELDS, UserNoticeCreated, encode_event
from contextc.messages import Message, Role, canonical_content, decode_message, encode_message
from contextc.messages.message import to_plain_text
from contextc.store.approvals import redact_approvals
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Reference
from contextc.store.history_comparison import original_uid
from contextc.store.ledger_redaction import MIN_QUOTE, redact_ledgers
from contextc.store.message_rows import (
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    decode_row,
    find_message,
    load_lineage,
    load_tip,
    lock_tree,
    make_place,
    split_by_branch,
    to_id,
)
from contextc.store.text_redaction import find_places_with_text, redact_text_outside_messages
from contextc.store.transaction_engine import log_warning
from contextc.store.turn_and_event_records import StepRecord, TurnRecord

REPAIR_KEY = "contextc_healed"
"""The key in the `meta` of a message under which a repair recorded its source and reason."""
UNREADABLE_EVENT = "An event could not be read and was removed."
Record = TypeVar("Record", TurnRecord, StepRecord)


class _Removed(NamedTuple):
    """A message before and after its redaction. `before` is None if it could not be read."""

    before: Message | None
    after: Message


def redact_message(tx: Transaction, conversation: str, target: Reference) -> Message:
    """Redact a message and its copies."""
    lock_tree(tx, conversation)
    here = load_tip(tx, conversation, lock=True)
    where = _place_of(tx, conversation, here, target)
    gone = _redact_places(tx, here.tree, [where, *_find_copies(tx, here.tree, where)])
    if not gone or gone[0].seq != where & SEQ_MASK:
        raise UnknownMessage(conversation, target)
    return gone[0]


def redact_text(tx: Transaction, conversation: str, text: str) -> list[Message]:
    """Redact all messages with a text on any branch, and remove the text from everything else that is stored.

    Return these messages as they are now.
    """
    lock_tree(tx, conversation)
    here = load_tip(tx, conversation, lock=True)
    places = find_places_with_text(tx, here.tree, text)
    redact_text_outside_messages(tx, here.tree, text)  # first: rows are compressed against messages
    return _redact_places(tx, here.tree, places)


def load_redaction_target(tx: Transaction, conversation: str, target: Reference) -> Message:
    """Return the message that `redact_message` would empty, as stored; as it would be emptied if it is unreadable."""
    where = _place_of(tx, conversation, load_tip(tx, conversation), target)
    row = tx.row("SELECT id, time, body FROM message WHERE place = ?", where)
    if row is None:
        raise UnknownMessage(conversation, target)
    return _decode_or_none(row[2]) or _make_placeholder(tx, where, *row)


def _place_of(tx: Transaction, conversation: str, here: BranchTip, target: Reference) -> int:
    spot = find_message(tx, conversation, here, target, anywhere=True)
    if spot.seq == 0:
        raise UnknownMessage(conversation, target, hint="The root holds no content.")
    return make_place(spot.branch, spot.seq)


def _find_copies(tx: Transaction, tree: int, where: int) -> list[int]:
    """Return the places of copies on branches that do not contain the message, and of those that a repair made.

    A client that edits its history resends all that follows, so that the new branch has the same messages again. Short
    texts are equal by chance: they are copies only under versions of the same uid.
    """
    row = tx.row("SELECT body FROM message WHERE place = ?", where)
    message = _decode_or_none(row[0]) if row is not None else None
    if message is None:
        return []
    content, found, original = canonical_content(message), list[int](), original_uid(message.uid)
    is_long = len(to_plain_text(message)) >= MIN_QUOTE
    before = _load_ends(tx, where >> SEQ_BITS, where & SEQ_MASK)
    for (branch,) in tx.rows("SELECT number FROM branch WHERE tree = ? ORDER BY number", tree):
        is_beside = _load_ends(tx, branch, SEQ_MASK).get(where >> SEQ_BITS, 0) < where & SEQ_MASK
        low, high = make_place(branch, 0), make_place(branch, SEQ_MASK)
        for at, body in tx.rows("SELECT place, body FROM message WHERE place BETWEEN ? AND ?", low, high):
            other = _decode_or_none(body) if at != where else None
            if other is None:
                continue
            made_from = {get_repair_note(message).get("of"), get_repair_note(other).get("of")}
            is_repaired = not made_from.isdisjoint({message.uid, other.uid})
            is_resent = is_long and is_beside and at & SEQ_MASK > before.get(branch, 0)
            may_be_copy = is_resent or original_uid(other.uid) == original
            if is_repaired or (may_be_copy and canonical_content(other) == content):
                found.append(at)
    return found


def _load_ends(tx: Transaction, branch: int, until: int) -> dict[int, int]:
    """Return the branches of a chain up to a seq, each with its last seq in that chain."""
    try:
        return {number: last for number, _, last in split_by_branch(load_lineage(tx, branch), 0, until)}
    except StoreCorrupt:  # of a damaged chain, only its last branch is known
        return {branch: until}


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
    trees: dict[int, set[int]] = {}
    for branch in sorted({where >> SEQ_BITS for (where,) in rows}):
        found = tx.row("SELECT tree FROM branch WHERE number = ?", branch)
        mine = {where for (where,) in rows if where >> SEQ_BITS == branch}
        trees.setdefault(found[0] if found else 0, set()).update(mine)
    for tree in sorted(trees) if len(rows) == limit else ():
        trees[tree] |= {where for (where,) in tx.rows(OLD_MESSAGES_OF_TREE, tree, before)}
    for tree in sorted(trees):
        tx.row(f"SELECT 1 FROM branch WHERE number = ?{tx.dialect.row_lock}", tree)
    for tree, places in sorted(trees.items()):
        _redact_places(tx, tree, sorted(places))
    return sum(map(len, trees.values())), rows[-1][0] if rows else after


def delete_unused_blobs(tx: Transaction, low: int, high: int) -> None:
    """Remove the blob references of a range of places, and blobs that have no other reference."""
    names = sorted({row[0] for row in tx.rows("SELECT name FROM blob_use WHERE place BETWEEN ? AND ?", low, high)})
    tx.run("DELETE FROM blob_use WHERE place BETWEEN ? AND ?", low, high)
    for name in names:
        tx.row(f"SELECT 1 FROM blob WHERE name = ?{tx.dialect.row_lock}", name)
        tx.run("DELETE FROM blob WHERE name = ? AND NOT EXISTS (SELECT 1 FROM blob_use WHERE name = ?)", name, name)


def _redact_places(tx: Transaction, tree: int, places: Sequence[int]) -> list[Message]:
    """Redact messages of a tree, and all that was derived from them. Return those that exist, as they are now."""
    tx.run("UPDATE conversation SET revision = revision + 1 WHERE tree = ?", tree)
    removed = [found for where in places if (found := _redact_row(tx, where)) is not None]
    if not removed:
        return []
    redact_ledgers(tx, tree, {*places}, [each.before for each in removed if each.before is not None])
    _redact_records(tx, tree, {each.after.uid for each in removed})
    return [each.after for each in removed]


def _redact_row(tx: Transaction, where: int) -> _Removed | None:
    row = tx.row(f"SELECT id, time, body FROM message WHERE place = ?{tx.dialect.row_lock}", where)
    if row is None:  # deleted by another process meanwhile
        return None
    identity, time, body = row
    before = _decode_or_none(body)
    if before is None:
        log_warning(f"message {where & SEQ_MASK} on branch {where >> SEQ_BITS} could not be read; its row is emptied")
        after = _make_placeholder(tx, where, identity, time, body)
    else:
        note = get_repair_note(before)
        meta: JSONObject | None = {REPAIR_KEY: note} if note else None
        after = replace(before, parts=(), meta=meta, extra=None, error=None, redacted=True)
    tx.run("UPDATE message SET body = ?, redacted = 1 WHERE place = ?", encode_message(after), where)
    delete_unused_blobs(tx, where, where)
    return _Removed(before, after)


def _make_placeholder(tx: Transaction, where: int, identity: object, time: object, body: object) -> Message:
    """Return the redacted message for a row that cannot be read."""
    return Message(
        role=_find_role(body),
        uid=_find_uid(tx, where),
        id=to_id(identity).hex(),
        seq=where & SEQ_MASK,
        time=time if isinstance(time, int) else 0,
        redacted=True,
    )


def _decode_or_none(body: bytes) -> Message | None:
    try:
        return decode_row(decode_message, body, "Message")
    except StoreCorrupt:
        return None


def _find_role(body: object) -> Role:
    """Return the role with which the body of a message begins, even if the rest cannot be read."""
    raw = body if isinstance(body, bytes) else str(body).encode()
    return next((role for role in get_args(Role) if raw.startswith(b'{"role":"%b"' % role.encode())), "user")


def _find_uid(tx: Transaction, where: int) -> str:
    """Return the uid of a message whose row cannot be read; a new one if it was part of that row only."""
    row = tx.row("SELECT uid FROM early_uid WHERE place = ?", where)
    return row[0] if row else f"{where >> SEQ_BITS:x}-{where & SEQ_MASK:x}-{os.urandom(8).hex()}"


# ── turns, steps, events and approvals ────────────────────────────────────────────────────────────────────────────────


STEP_EVENTS = ("approval-request", "approval-answer", "tool-progress", "system-hint")
"""Types of events that quote a message of their step without naming it."""


def _redact_records(tx: Transaction, tree: int, uids: Collection[str]) -> None:
    """Redact messages in the events of every conversation of a tree.

    Events about their calls are redacted too, and all error texts, which may quote what was sent.
    """
    for (number,) in tx.rows("SELECT number FROM conversation WHERE tree = ?", tree):
        steps = _redact_events(tx, number, uids)
        redact_approvals(tx, number, steps)
        _redact_errors(tx, number, "turn", "agent", _empty_turn, TurnRecord)
        _redact_errors(tx, number, "step", "turn", _empty_step, StepRecord)
        tx.run("UPDATE worker_turn SET reason = '' WHERE conversation = ? AND reason <> ''", number)


def _redact_events(tx: Transaction, conversation: int, uids: Collection[str]) -> set[tuple[object, object]] | None:
    """Redact messages in the events of a conversation. Return the steps (turn and index) that these messages have.

    Return None if an event could not be read: it may have named a step of theirs.
    """
    is_complete = True
    low, high = make_place(conversation, 0), make_place(conversation, SEQ_MASK)
    told: list[tuple[int, JSONObject]] = []
    for where, body in tx.rows("SELECT place, body FROM event WHERE place BETWEEN ? AND ?", low, high):
        try:
            event: JSONObject = decode_row(decode, body, "Event")
            told.append((where, event | {"type": event["type"]}))
        except (StoreCorrupt, TypeError, KeyError):
            log_warning(f"event {where & SEQ_MASK} of conversation {conversation} could not be read; it is removed")
            blank = encode_event(UserNoticeCreated(number=where & SEQ_MASK, text=UNREADABLE_EVENT))
            tx.run("UPDATE event SET body = ? WHERE place = ?", blank, where)
            is_complete = False
    theirs = [event for _, event in told if event.get("uid") in uids]
    waited = {event.get("queued") for event in theirs} - {None}  # the number of queued input, before it had a uid
    steps: set[tuple[object, object]] = {(each.get("turn"), each.get("step")) for each in theirs if each.get("step")}
    for where, event in told:
        is_of_them = event.get("uid") in uids or event.get("queued") in waited
        is_of_step = not is_complete or (event.get("turn"), event.get("step")) in steps
        is_beside = event["type"] in STEP_EVENTS and is_of_step
        names = (*TEXT_FIELDS, *ERROR_FIELDS) if is_of_them or is_beside else ERROR_FIELDS
        if any(event.get(name) for name in names):
            blanked = {name: _empty_value(value) if name in names else value for name, value in event.items()}
            tx.run("UPDATE event SET body = ? WHERE place = ?", encode(blanked), where)
    return steps if is_complete else None


def _empty_value(value: JSON) -> JSON:
    return {} if isinstance(value, dict) else ""


def _redact_errors(
    tx: Transaction,
    conversation: int,
    table: str,
    column: str,
    make_empty: Callable[[int, object], Record],
    kind: type[Record],
) -> None:
    low, high = make_place(conversation, 0), make_place(conversation, SEQ_MASK)
    for where, value, body in tx.rows(
        f"SELECT place, {column}, body FROM {table} WHERE place BETWEEN ? AND ?", low, high
    ):
        try:
            record = decode_row(msgspec.json.Decoder(kind).decode, body, table)
        except StoreCorrupt:
            log_warning(f"{table} {where & SEQ_MASK} of conversation {conversation} could not be read; it is emptied")
            record = replace(make_empty(where & SEQ_MASK, value), error="-")
        if record.error:
            bare = msgspec.json.encode(replace(record, error=""))
            tx.run(f"UPDATE {table} SET body = ? WHERE place = ?", bare, where)


def _empty_turn(number: int, agent: object) -> TurnRecord:
    return TurnRecord(number=number, agent=str(agent), state="interrupted")


def _empty_step(number: int, turn: object) -> StepRecord:
    return StepRecord(number=number, turn=turn if isinstance(turn, int) else 0, index=0, state="failed")

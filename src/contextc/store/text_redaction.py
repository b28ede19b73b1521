"""Redaction by text: find it in the messages of a tree, and remove it from everything else that is stored beside them.

Messages have a redaction of their own. Here, a text is removed from everything else: titles, todos, queued input,
approvals, states of triggers, errors, system prompts and tools, ledgers, manifests and transcripts. Names and ids are
kept: of conversations, agents, authors, tools and calls. `COLUMNS` lists what is searched.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, decode_json, encode
from contextc.errors import InvalidInput
from contextc.events import ERROR_FIELDS, TEXT_FIELDS
from contextc.messages import Message, Text, decode_message, encode_message
from contextc.messages.message import REDACTED_TEXT
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_redaction import (
    REDACTED,
    decode_or_none,
    delete_heads,
    empty_row,
    invalidate_channels,
    iter_strings,
    load_ledger_rows,
    load_manifest_rows,
    raw_bytes,
    save_manifest_row,
)
from contextc.store.ledger_schema import Item, row_to_json, state_from_json, state_to_json, unpack_wire
from contextc.store.message_rows import SEQ_MASK, make_place
from contextc.store.session_transcripts import redact_of_tree

MIN_LENGTH = 4
"""Number of characters that a text must have: a shorter one is in nearly everything."""
OF_CONVERSATION = "FROM {table} t JOIN conversation c ON c.number = t.conversation WHERE c.tree = ?"
OF_NAME = "FROM {table} t JOIN conversation c ON c.name = t.conversation WHERE c.tree = ?"
BY_PLACE = (
    "FROM conversation c JOIN {table} t ON t.place BETWEEN c.number * 4294967296"
    " AND c.number * 4294967296 + 4294967295 WHERE c.tree = ?"
)


class TextColumn(NamedTuple):
    """A column with text: its table, how its rows are found, its key, and the fields of its JSON that are searched.

    Without `fields`, it is plain text, or, if it `is_json`, searched as a whole.
    """

    table: str
    column: str
    rows: str
    key: tuple[str, ...]
    fields: tuple[str, ...] = ()
    is_json: bool = True
    replacement: str = REDACTED_TEXT


COLUMNS = (
    TextColumn("event", "body", BY_PLACE, ("place",), (*TEXT_FIELDS, *ERROR_FIELDS)),
    TextColumn("turn", "body", BY_PLACE, ("place",), ("error",)),
    TextColumn("step", "body", BY_PLACE, ("place",), ("error",)),
    TextColumn("approval", "body", OF_CONVERSATION, ("number",), ("arguments", "reason", "result", "default_reason")),
    TextColumn("trigger_state", "body", OF_CONVERSATION, ("conversation", "agent", "name")),
    TextColumn("worker_turn", "reason", OF_CONVERSATION, ("conversation", "agent"), is_json=False),
    TextColumn("todo", "text", OF_NAME, ("conversation", "agent", "number"), is_json=False),
    TextColumn("observed_conversation", "session", OF_CONVERSATION, ("conversation",), is_json=False, replacement=""),
    TextColumn("conversation", "title", "FROM {table} t WHERE t.tree = ?", ("number",), is_json=False, replacement=""),
)
MANIFEST_FIELDS = ("why", "remarks", "session", "gave", "observed")


def check_redacted_text(text: str) -> None:
    if not isinstance(text, str) or len(text.strip()) < MIN_LENGTH:
        raise InvalidInput(f"text must have at least {MIN_LENGTH} characters", got=text)


def find_places_with_text(tx: Transaction, tree: int, text: str) -> list[int]:
    """Return the places of all messages of a tree with a text, on any branch, in their media too."""
    found: list[int] = []
    for (branch,) in tx.rows("SELECT number FROM branch WHERE tree = ? ORDER BY number", tree):
        low, high = make_place(branch, 0), make_place(branch, SEQ_MASK)
        rows = tx.rows("SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
        media = tx.rows(
            "SELECT u.place, b.data FROM blob_use u JOIN blob b ON b.name = u.name WHERE u.place BETWEEN ? AND ?",
            low,
            high,
        )
        has_media = {where for where, data in media if text.encode(errors="replace") in raw_bytes(data)}
        found += [where for where, body in rows if where in has_media or _contains(body, text)]
    return found


def redact_text_outside_messages(tx: Transaction, tree: int, text: str) -> None:
    """Remove a text from all rows of a tree that are no messages."""
    for column in COLUMNS:
        _redact_column(tx, tree, column, text)
    _redact_queue(tx, tree, text)
    for number, body in tx.rows("SELECT number, body FROM overlay WHERE tree = ?", tree):
        if _contains(body, text):
            tx.run("DELETE FROM overlay WHERE number = ?", number)
    entries = tx.rows(
        "SELECT e.body FROM conversation c JOIN transcript s ON s.conversation = c.name JOIN transcript_entry e"
        " ON e.transcript = s.number WHERE c.tree = ?"
        " UNION ALL SELECT s.summary FROM conversation c JOIN transcript s ON s.conversation = c.name"
        " WHERE c.tree = ? AND s.summary IS NOT NULL",
        tree,
        tree,
    )
    sessions = redact_of_tree(tx, tree) if any(_contains(body, text) for (body,) in entries) else set[str]()
    channels = tx.rows(f"SELECT t.number, t.state, t.attempt {OF_NAME.format(table='channel')}", tree)
    changed = False
    for channel, state, attempt in channels:
        if attempt is not None and _contains(attempt, text):
            bare = _without_text(attempt, text, ("error", "session"))
            tx.run("UPDATE channel SET attempt = ? WHERE number = ?", bare, channel)
        changed |= _redact_channel(tx, channel, state, text, sessions)
    if changed:
        invalidate_channels(tx, tree)


def _redact_column(tx: Transaction, tree: int, given: TextColumn, text: str) -> None:
    keys = ", ".join(f"t.{name}" for name in given.key)
    rows = tx.rows(f"SELECT {keys}, t.{given.column} {given.rows.format(table=given.table)}", tree)
    where = " AND ".join(f"{name} = ?" for name in given.key)
    for *key, value in rows:
        if value is None or not _contains(value, text):
            continue
        plain = value.replace(text, given.replacement) if not given.is_json else None
        bare = _without_text(value, text, given.fields) if plain is None else plain
        if bare is None:
            tx.run(f"DELETE FROM {given.table} WHERE {where}", *key)
        else:
            tx.run(f"UPDATE {given.table} SET {given.column} = ? WHERE {where}", bare, *key)


def _redact_queue(tx: Transaction, tree: int, text: str) -> None:
    """Replace the content of queued input with the text."""
    for number, body in tx.rows(f"SELECT t.number, t.body {OF_CONVERSATION.format(table='queue')}", tree):
        if _contains(body, text):
            message = decode_or_none(decode_message, body, f"queued input {number}") or Message(role="user")
            bare = replace(message, parts=(Text(REDACTED_TEXT),), meta=None, extra=None, error=None)
            tx.run("UPDATE queue SET body = ? WHERE number = ?", encode_message(bare), number)


def _redact_channel(tx: Transaction, channel: int, state: bytes, text: str, sessions: set[str]) -> bool:
    """Remove a text from the ledger of a channel. Return True if it contained it."""
    changed = delete_heads(tx, channel, lambda body: _contains(body, text))
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    for where, body in tx.rows("SELECT place, body FROM replaced WHERE place BETWEEN ? AND ?", low, high):
        if _contains(body, text):
            tx.run("UPDATE replaced SET body = ? WHERE place = ?", b"", where)
            changed = True
    for where, record, is_packed in load_manifest_rows(tx, channel):
        bare = _replace_fields(record, text, MANIFEST_FIELDS)
        if bare != record:
            if (facts := record.get("observed")) and facts.get("marks") != bare["observed"].get("marks"):
                bare["observed"] |= {"inexact": True, "redacted": True}
            save_manifest_row(tx, where, bare, is_packed=is_packed)
    for where, row, _ in load_ledger_rows(tx, channel):
        items = tuple([_redact_item(item, text) for item in row.items])
        if items != row.items or _contains(_load_wire(tx, where, row.items, is_packed=bool(row.packed)), text):
            bare_row = row_to_json(replace(empty_row(row), items=items))
            tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", bare_row, b"", where)
            changed = True
    now = decode_or_none(state_from_json, state, f"the state of channel {channel}")
    if now is not None:
        bare_state = replace(now, produced=tuple([_redact_item(item, text) for item in now.produced]))
        lost = now.lost.replace(text, REDACTED_TEXT)
        session = now.session
        if session is not None and (changed or session.id in sessions or text in session.id):
            session, lost = None, REDACTED
        bare_state = replace(bare_state, lost=lost, session=session)
        if bare_state != now:
            tx.run("UPDATE channel SET state = ? WHERE number = ?", state_to_json(bare_state), channel)
            changed = True
    return changed


def _redact_item(item: Item, text: str) -> Item:
    if text in item.text:
        return replace(item, text="")
    return replace(item, prefix=item.prefix.replace(text, REDACTED_TEXT)) if text in item.prefix else item


def _load_wire(tx: Transaction, where: int, items: Sequence[Item], *, is_packed: bool) -> bytes:
    row = tx.row("SELECT wire FROM shown WHERE place = ?", where)
    wire = raw_bytes(row[0]) if row else b""
    if not is_packed or not wire:
        return wire
    found = [tx.row("SELECT body FROM message WHERE place = ?", item.place) for item in items]
    known = b"".join([raw_bytes(each[0]) for each in found if each is not None])
    return decode_or_none(lambda stored: unpack_wire(stored, known), wire, "a ledger row") or b""


def _contains(stored: object, text: str) -> bool:
    """Return True if a stored value contains a text: as it is, or in a string of its JSON."""
    raw = raw_bytes(stored)
    if text.encode(errors="replace") in raw:
        return True
    if b"\\" not in raw:  # without escapes, JSON has one spelling only
        return False
    try:  # elements of a request are joined by commas
        strings = list(iter_strings(decode_json(b"[%b]" % raw)))
    except ValueError:
        return False
    spellings = _spell(text)
    return any(spelling in each for each in strings for spelling in spellings)


def _spell(text: str) -> set[str]:
    """Return a text as strings contain it. Arguments of calls are JSON in a string."""
    return {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def _without_text(value: bytes, text: str, fields: tuple[str, ...]) -> bytes | None:
    """Return a JSON value without a text in these fields, or in all; None if it cannot be read."""
    found: JSONObject | None = decode_or_none(lambda body: dict(decode(body)), value, "a row")
    if found is None:
        return None
    return encode(_replace_fields(found, text, fields) if fields else _replaced(found, text))


def _replace_fields(record: JSONObject, text: str, fields: tuple[str, ...]) -> JSONObject:
    return {name: _replaced(value, text) if name in fields else value for name, value in record.items()}


def _replaced(value: JSON, text: str) -> JSON:
    if isinstance(value, str):
        for spelling in _spell(text):
            value = value.replace(spelling, REDACTED_TEXT)
        return value
    if isinstance(value, dict):
        return {_replaced(name, text): _replaced(each, text) for name, each in cast(JSONObject, value).items()}
    return [_replaced(each, text) for each in cast(list[JSON], value)] if isinstance(value, list) else value

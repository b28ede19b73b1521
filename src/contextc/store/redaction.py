"""Redaction: permanent removal of the content of messages: of one, of all with a text, or of all above a retention age.

A message keeps its id and its place, so chains, forks and cursors stay valid. Its parts are removed, with media that no
other message uses, and with copies of the message on other branches. Everything that was derived from it loses its
text, too: ledgers, summaries, manifests, events, approvals, errors and transcripts. Every conversation of the tree gets
a new revision, so that requests compiled from the old content are refused. A row that cannot be read is emptied
as well: its content is unknown, and it must not stop the others.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, decode_json, encode
from contextc.errors import InvalidInput, StoreCorrupt, UnknownMessage
from contextc.events import ERROR_FIELDS, TEXT_FIELDS, UserNoticeCreated, encode_event
from contextc.messages import (
    REDACTED_TEXT,
    Message,
    Role,
    Text,
    canonical_content,
    decode_message,
    encode_message,
    to_plain_text,
)
from contextc.store.approvals import redact_approvals
from contextc.store.ledger_schema import (
    PACKED,
    ChannelState,
    Item,
    LedgerRow,
    pack_record,
    row_to_json,
    rows_from_json,
    state_from_json,
    state_to_json,
    unpack_record,
    unpack_wire,
)
from contextc.store.message_log import (
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    Reference,
    decode_row,
    find_message,
    load_lineage,
    load_tip,
    lock_tree,
    make_place,
    original_uid,
    split_by_branch,
    to_id,
)
from contextc.store.raw_replies import delete_raw_replies
from contextc.store.session_transcripts import delete_of_conversation, redact_of_tree
from contextc.store.transaction_engine import Transaction, log_warning
from contextc.store.turn_records import StepRecord, TurnRecord

# ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Redaction of ledgers: remove the content of redacted or deleted messages from what was sent to models.
#
# Ledger rows keep their place and lose their text. Manifests keep their figures, and lose the texts that may quote a
# message: errors, remarks, and what options of the proxy reported. A system prompt is removed if it contains a
# redacted text. A provider session is invalidated if we store its transcript, or if its system prompt contains the
# redacted messages. Rows that cannot be read are emptied.


REDACTED = "redacted"
MIN_QUOTE = 16
"""Number of characters from which on the text of any message is searched in system prompts. Shorter texts occur by
chance; those of system messages, which are part of system prompts, are always searched.
"""
PLAIN_MARK_KEYS = {"cache_control", "cachePoint", "prompt_cache_breakpoint", "type", "ttl", "scope"}
MAX_MARK_VALUE = 20
Value = TypeVar("Value")


def redact_ledgers(tx: Transaction, tree: int, places: Collection[int], messages: Sequence[Message]) -> None:
    """Remove messages from all ledgers of a tree, and from summaries that may include them.

    `messages` are the messages as they were before.
    """
    first = min(where & SEQ_MASK for where in places)
    delete_summaries(tx, tree, lambda where: where & SEQ_MASK >= first)
    rows = tx.rows(
        "SELECT number, state, attempt FROM main.channel"
        " WHERE conversation IN (SELECT name FROM main.conversation WHERE tree = ?) ORDER BY number",
        tree,
    )
    sessions = redact_of_tree(tx, tree)
    quotes = [text for each in messages if (text := _find_quote(each))]
    changed = False
    for channel, state, attempt in rows:
        channel_state = _decode_state(tx, channel, state)
        changed |= delete_heads(tx, channel, lambda body: _has_quote(body, quotes))
        leads = not {*(channel_state.lead or ())}.isdisjoint(places)
        if (session := channel_state.session) is not None and (leads or session.id in sessions):
            invalidate_session(tx, channel)
        if attempt is not None:  # an error may quote what was sent
            sent: JSONObject | None = decode_or_none(decode, attempt, f"the pending request of channel {channel}")
            emptied = None if sent is None else encode({**sent, "error": ""})
            tx.run("UPDATE main.channel SET attempt = ? WHERE number = ?", emptied, channel)
        low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
        tx.run("UPDATE main.replaced SET body = ? WHERE place BETWEEN ? AND ?", b"", low, high)
        delete_raw_replies(tx, channel)
        _redact_manifests(tx, channel, first)
        merged = changed  # a fork may go on from the rows of the channel it was forked from
        for where, row, wire in load_ledger_rows(tx, channel):
            # an unanswered request continues any row of the ledger, not the one before it here
            merged = changed if where & SEQ_MASK > FIRST_UNANSWERED else merged
            blank = _redact_ledger_row(row, places, first, quotes, merged=merged)
            if blank is not None or wire:  # an empty row changes nothing for the next one
                merged = blank is not None
            if blank is not None:
                tx.run("UPDATE main.shown SET items = ?, wire = ? WHERE place = ?", row_to_json(blank), b"", where)
                changed = True
    if changed:
        invalidate_channels(tx, tree)


def delete_summaries(tx: Transaction, tree: int, is_gone: Callable[[int], bool]) -> None:
    """Delete the summaries of a tree that were written from messages at certain places. Unreadable ones are deleted."""
    for number, anchor, body in tx.rows("SELECT number, anchor, body FROM main.overlay WHERE tree = ?", tree):
        stored: JSONObject | None = decode_or_none(decode, body, "a summary")
        if stored is None or is_gone(anchor) or is_gone(stored.get("seen", anchor)):
            tx.run("DELETE FROM main.overlay WHERE number = ?", number)


def invalidate_channels(tx: Transaction, tree: int) -> None:
    """Invalidate what any process keeps of the channels of a tree."""
    tx.run(
        "UPDATE main.channel SET version = version + 1 WHERE conversation IN (SELECT name FROM main.conversation"
        " WHERE tree = ?)",
        tree,
    )


def delete_heads(tx: Transaction, channel: int, has_text: Callable[[bytes], bool]) -> bool:
    """Remove the system prompts and tools of a channel that contain a text. Return True if there were any."""
    heads = tx.rows("SELECT hash, body FROM main.head WHERE channel = ?", channel)
    found = [name for name, body in heads if has_text(raw_bytes(body))]
    for name in found:
        tx.run("DELETE FROM main.head WHERE channel = ? AND hash = ?", channel, name)
    return bool(found)


def load_ledger_rows(tx: Transaction, channel: int) -> Iterator[tuple[int, LedgerRow, int]]:
    """Yield all rows of a channel: place, row, and number of stored wire bytes. Unreadable ones are emptied."""
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    stored = tx.rows(
        "SELECT place, items, length(wire) FROM main.shown WHERE place BETWEEN ? AND ? ORDER BY place", low, high
    )
    try:
        rows = decode_row(lambda bodies: rows_from_json(b"[%b]" % b",".join(bodies)), [each[1] for each in stored], "")
        yield from [(where, row, wire) for (where, _, wire), row in zip(stored, rows, strict=True)]
        return
    except (StoreCorrupt, ValueError):
        pass
    for where, items, wire in stored:
        row = decode_or_none(lambda body: rows_from_json(b"[%b]" % body)[0], items, f"ledger row {where & SEQ_MASK}")
        if row is None:
            row, wire = LedgerRow(items=(), gone=True), 0
            tx.run("UPDATE main.shown SET items = ?, wire = ? WHERE place = ?", row_to_json(row), b"", where)
        yield where, row, wire


def raw_bytes(value: object) -> bytes:
    """Return a stored value as bytes. Other programs may have written a text or a number."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def decode_or_none(decode: Callable[[bytes], Value], body: bytes, what: str) -> Value | None:
    """Decode a row. Return None, and log it, if it cannot be read: the caller empties it."""
    try:
        return decode_row(decode, body, what)
    except (StoreCorrupt, IndexError):
        log_warning(f"{what} could not be read; it is emptied")
        return None


def _decode_state(tx: Transaction, channel: int, state: bytes) -> ChannelState:
    """Return the state of a channel. One that cannot be read is replaced: the next request sends everything again."""
    found = decode_or_none(state_from_json, state, f"the state of channel {channel}")
    if found is None:
        last = [
            tx.row(f"SELECT max(place) FROM main.{table} WHERE place BETWEEN ? AND ?", make_place(channel, 0),
                   make_place(channel, FIRST_UNANSWERED))
            for table in ("manifest", "shown")
        ]  # fmt: skip
        requests, rows = [(row[0] or 0) & SEQ_MASK if row else 0 for row in last]
        found = ChannelState(requests=requests, rows=rows, lost=REDACTED)
        tx.run("UPDATE main.channel SET state = ? WHERE number = ?", state_to_json(found), channel)
    return found


def invalidate_session(tx: Transaction, channel: int) -> None:
    """Invalidate the session of a channel: the next request is a full one and states the reason."""
    row = tx.row(f"SELECT state FROM main.channel WHERE number = ?{tx.dialect.row_lock}", channel)
    if row is None:
        return
    state = _decode_state(tx, channel, row[0])
    if state.session is not None:
        sql = "UPDATE main.channel SET state = ?, version = version + 1 WHERE number = ?"
        tx.run(sql, state_to_json(replace(state, session=None, lost=REDACTED)), channel)


def _redact_ledger_row(
    row: LedgerRow, places: Collection[int], first: int, quotes: Sequence[str], *, merged: bool
) -> LedgerRow | None:
    """Return the row without the text of these messages, or None if it contains none of them.

    `quotes` are the texts that tools defined in the row may quote.
    """
    held = {where for item in row.items for where in (item.place, *item.places)}
    summary = any(item.kind == "summary" for item in row.items)
    later = summary and any(where & SEQ_MASK >= first for where in held)
    items = tuple([_redact_definitions(item, lambda body: _has_quote(body, quotes)) for item in row.items])
    if held.isdisjoint(places) and not (merged and row.drop) and not later and items == row.items:
        return None
    return empty_row(replace(row, items=tuple([_redact_ledger_item(item, places) for item in items])))


def _has_quote(body: bytes, quotes: Sequence[str]) -> bool:
    text = _join_strings(body)
    return any([quote in text for quote in quotes])


def _redact_definitions(item: Item, has_text: Callable[[bytes], bool]) -> Item:
    """Return the item without the tools that it defines, if a definition contains a text."""
    is_hit = bool(item.definitions) and has_text(encode(item.definitions))
    return replace(item, definitions=()) if is_hit else item


def empty_row(row: LedgerRow) -> LedgerRow:
    """Return a row whose wire form was removed."""
    # `held` is reset: the wire form is empty now for another reason
    return replace(row, drop=0, held=False, gone=True)


def _redact_ledger_item(item: Item, places: Collection[int]) -> Item:
    quotes = item.kind == "summary" or item.place in places or not set(item.places).isdisjoint(places)
    return replace(item, text="") if quotes else item


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def load_manifest_rows(tx: Transaction, channel: int) -> list[tuple[int, JSONObject, bool]]:
    """Return the manifests of a channel: place, body, and whether it is stored compressed. Unreadable ones are removed.

    A request without its manifest cannot be explained, but the others can.
    """
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    found: list[tuple[int, JSONObject, bool]] = []
    for where, body in tx.rows("SELECT place, body FROM main.manifest WHERE place BETWEEN ? AND ?", low, high):
        record = decode_or_none(
            lambda stored: cast(JSONObject, dict(decode(unpack_record(raw_bytes(stored))))),
            body,
            f"the manifest of request {where & SEQ_MASK} of channel {channel}",
        )
        if record is None:
            tx.run("DELETE FROM main.manifest WHERE place = ?", where)
        else:
            found.append((where, record, raw_bytes(body)[:1] == PACKED))
    return found


def save_manifest_row(tx: Transaction, where: int, record: JSONObject, *, is_packed: bool) -> None:
    body = encode(record)
    tx.run("UPDATE main.manifest SET body = ? WHERE place = ?", pack_record(body) if is_packed else body, where)


def _redact_manifests(tx: Transaction, channel: int, first: int) -> None:
    """Remove the texts that may quote a message from the manifests of all requests that could contain it.

    These are the requests whose conversation had a message `first`.
    """
    for where, record, is_packed in load_manifest_rows(tx, channel):
        last = max([record.get("tip", 0), *[place & SEQ_MASK for place in record.get("produced", ())]])
        if last < first:
            continue
        bare = {name: value for name, value in record.items() if name != "remarks"}
        if facts := record.get("observed"):
            bare["observed"] = _redact_facts(facts)
        if bare != record:
            save_manifest_row(tx, where, bare, is_packed=is_packed)


def _redact_facts(facts: JSONObject) -> JSONObject:
    """Return the facts of an observed request without texts of the client and of the provider."""
    bare = {name: value for name, value in facts.items() if name not in ("error", "actions", "marks")}
    actions: list[JSONObject] = [
        {**each, "changes": [], "more": each.get("more", 0) + len(each.get("changes", ()))}
        for each in facts.get("actions", ())
    ]
    given: dict[str, list[tuple[int, str]]] = facts.get("marks", {})
    marks = {row: [mark for mark in some if _is_plain_mark(mark[1])] for row, some in given.items()}
    marks = {row: some for row, some in marks.items() if some}
    bare |= {name: value for name, value in (("actions", actions), ("marks", marks)) if value}
    return bare if marks == given else bare | {"inexact": True, "redacted": True}


def _is_plain_mark(text: str) -> bool:
    """Return True if a cache breakpoint has nothing but the fields that providers define."""
    bare = text.strip(", \t\r\n")
    try:
        return _is_plain_value(decode(bare if bare.startswith("{") else f"{{{bare}}}"))
    except ValueError:
        return False


def _is_plain_value(value: JSON) -> bool:
    if isinstance(value, dict):
        fields = cast(JSONObject, value)
        return all(name in PLAIN_MARK_KEYS and _is_plain_value(each) for name, each in fields.items())
    return value is None or (isinstance(value, str) and len(value) <= MAX_MARK_VALUE and value.isalnum())


# ── texts in system prompts ───────────────────────────────────────────────────────────────────────────────────────────


def _find_quote(message: Message) -> str:
    """Return the text of a message as system prompts may contain it; empty if it must not be searched."""
    text = " ".join(message.text.split())
    return text if message.role == "system" or len(text) >= MIN_QUOTE else ""


def _join_strings(body: bytes) -> str:
    """Return all texts of a JSON value, with single spaces; the value itself if it cannot be read."""
    try:
        return " ".join(" ".join(iter_strings(decode(body))).split())
    except ValueError:
        return " ".join(body.decode(errors="replace").split())


def iter_strings(value: JSON) -> Iterator[str]:
    """Yield all texts in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in cast(JSONObject, value).items():
            yield name
            yield from iter_strings(each)
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from iter_strings(each)


def delete_channels(tx: Transaction, conversation: str) -> None:
    """Remove all channels, ledgers and provider transcripts of a conversation."""
    delete_of_conversation(tx, conversation)
    for (channel,) in tx.rows("SELECT number FROM main.channel WHERE conversation = ?", conversation):
        for table in ("shown", "manifest", "replaced", "raw_reply"):
            low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
            tx.run(f"DELETE FROM main.{table} WHERE place BETWEEN ? AND ?", low, high)
        tx.run("DELETE FROM main.head WHERE channel = ?", channel)
    for table in ("observed_key", "observed_conversation"):
        tx.run(
            f"DELETE FROM main.{table} WHERE conversation = (SELECT number FROM main.conversation WHERE name = ?)",
            conversation,
        )
    tx.run("DELETE FROM main.channel WHERE conversation = ?", conversation)
    tx.run(  # forks may continue its rows
        "UPDATE main.channel SET version = version + 1 WHERE conversation IN (SELECT name FROM main.conversation"
        " WHERE tree = (SELECT tree FROM main.conversation WHERE name = ?))",
        conversation,
    )


# ── by text ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Redaction by text: find it in the messages of a tree, and remove it from everything else that is stored beside them.
#
# Messages have a redaction of their own. Here, a text is removed from everything else: titles, todos, queued input,
# approvals, states of triggers, errors, system prompts and tools, ledgers, manifests and transcripts. Names and ids
# are kept: of conversations, agents, authors, tools and calls. `COLUMNS` lists what is searched.


MIN_LENGTH = 4
"""Number of characters that a text must have: a shorter one is in nearly everything."""
OF_CONVERSATION = "FROM main.{table} t JOIN main.conversation c ON c.number = t.conversation WHERE c.tree = ?"
OF_NAME = "FROM main.{table} t JOIN main.conversation c ON c.name = t.conversation WHERE c.tree = ?"
BY_PLACE = (
    "FROM main.conversation c JOIN main.{table} t ON t.place BETWEEN c.number * 4294967296"
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
    TextColumn(
        "approval",
        "body",
        OF_CONVERSATION,
        ("number",),
        ("arguments", "reason", "result", "default_reason", "question", "answer"),
    ),
    TextColumn("trigger_state", "body", OF_CONVERSATION, ("conversation", "agent", "name")),
    TextColumn("worker_turn", "reason", OF_CONVERSATION, ("conversation", "agent"), is_json=False),
    TextColumn("tag", "name", OF_CONVERSATION, ("number",), is_json=False),
    TextColumn("note", "text", OF_CONVERSATION, ("number",), is_json=False),
    TextColumn("todo", "text", OF_NAME, ("conversation", "agent", "number"), is_json=False),
    TextColumn("observed_conversation", "session", OF_CONVERSATION, ("conversation",), is_json=False, replacement=""),
    TextColumn(
        "conversation", "title", "FROM main.{table} t WHERE t.tree = ?", ("number",), is_json=False, replacement=""
    ),
)
MANIFEST_FIELDS = ("why", "remarks", "session", "gave", "observed")


def check_redacted_text(text: str) -> None:
    if not isinstance(text, str) or len(text.strip()) < MIN_LENGTH:
        raise InvalidInput(f"text must have at least {MIN_LENGTH} characters", got=text)


def find_places_with_text(tx: Transaction, tree: int, text: str) -> list[int]:
    """Return the places of all messages of a tree with a text, on any branch, in their media too."""
    found: list[int] = []
    for (branch,) in tx.rows("SELECT number FROM main.branch WHERE tree = ? ORDER BY number", tree):
        low, high = make_place(branch, 0), make_place(branch, SEQ_MASK)
        rows = tx.rows("SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
        media = tx.rows(
            "SELECT u.place, b.data FROM main.blob_use u JOIN main.blob b ON b.name = u.name"
            " WHERE u.place BETWEEN ? AND ?",
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
    for number, body in tx.rows("SELECT number, body FROM main.overlay WHERE tree = ?", tree):
        if _contains(body, text):
            tx.run("DELETE FROM main.overlay WHERE number = ?", number)
    rules = tx.rows(f"SELECT t.number, t.body {OF_CONVERSATION.format(table='approval_rule')}", tree)
    for number, body in rules:  # the next such call is asked for again
        if _contains(body, text):
            tx.run("DELETE FROM main.approval_rule WHERE number = ?", number)
    entries = tx.rows(
        "SELECT e.body FROM main.conversation c JOIN main.transcript s ON s.conversation = c.name"
        " JOIN main.transcript_entry e ON e.transcript = s.number WHERE c.tree = ?"
        " UNION ALL SELECT s.summary FROM main.conversation c JOIN main.transcript s ON s.conversation = c.name"
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
            tx.run("UPDATE main.channel SET attempt = ? WHERE number = ?", bare, channel)
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
            tx.run(f"DELETE FROM main.{given.table} WHERE {where}", *key)
        else:
            tx.run(f"UPDATE main.{given.table} SET {given.column} = ? WHERE {where}", bare, *key)


def _redact_queue(tx: Transaction, tree: int, text: str) -> None:
    """Replace the content of queued input with the text."""
    for number, body in tx.rows(f"SELECT t.number, t.body {OF_CONVERSATION.format(table='queue')}", tree):
        if _contains(body, text):
            message = decode_or_none(decode_message, body, f"queued input {number}") or Message(role="user")
            bare = replace(message, parts=(Text(REDACTED_TEXT),), meta=None, extra=None, error=None)
            tx.run("UPDATE main.queue SET body = ? WHERE number = ?", encode_message(bare), number)


def _redact_channel(tx: Transaction, channel: int, state: bytes, text: str, sessions: set[str]) -> bool:
    """Remove a text from the ledger of a channel. Return True if it contained it."""
    changed = delete_heads(tx, channel, lambda body: _contains(body, text))
    delete_raw_replies(tx, channel)  # the text may be split between their pieces
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    for where, body in tx.rows("SELECT place, body FROM main.replaced WHERE place BETWEEN ? AND ?", low, high):
        if _contains(body, text):
            tx.run("UPDATE main.replaced SET body = ? WHERE place = ?", b"", where)
            changed = True
    for where, record, is_packed in load_manifest_rows(tx, channel):
        bare = _replace_fields(record, text, MANIFEST_FIELDS)
        if bare != record:
            if (facts := record.get("observed")) and facts.get("marks") != bare["observed"].get("marks"):
                bare["observed"] |= {"inexact": True, "redacted": True}
            save_manifest_row(tx, where, bare, is_packed=is_packed)
    for where, row, _ in load_ledger_rows(tx, channel):
        items = tuple([_remove_text_from_item(item, text) for item in row.items])
        if items != row.items or _contains(_load_wire(tx, where, row.items, is_packed=bool(row.packed)), text):
            bare_row = row_to_json(replace(empty_row(row), items=items))
            tx.run("UPDATE main.shown SET items = ?, wire = ? WHERE place = ?", bare_row, b"", where)
            changed = True
    now = decode_or_none(state_from_json, state, f"the state of channel {channel}")
    if now is not None:
        bare_state = replace(now, produced=tuple([_remove_text_from_item(item, text) for item in now.produced]))
        lost = now.lost.replace(text, REDACTED_TEXT)
        session = now.session
        if session is not None and (changed or session.id in sessions or text in session.id):
            session, lost = None, REDACTED
        bare_state = replace(bare_state, lost=lost, session=session)
        if bare_state != now:
            tx.run("UPDATE main.channel SET state = ? WHERE number = ?", state_to_json(bare_state), channel)
            changed = True
    return changed


def _remove_text_from_item(item: Item, text: str) -> Item:
    item = _redact_definitions(item, lambda body: _contains(body, text))
    if text in item.text:
        return replace(item, text="")
    return replace(item, prefix=item.prefix.replace(text, REDACTED_TEXT)) if text in item.prefix else item


def _load_wire(tx: Transaction, where: int, items: Sequence[Item], *, is_packed: bool) -> bytes:
    row = tx.row("SELECT wire FROM main.shown WHERE place = ?", where)
    wire = raw_bytes(row[0]) if row else b""
    if not is_packed or not wire:
        return wire
    found = [tx.row("SELECT body FROM main.message WHERE place = ?", item.place) for item in items]
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


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    row = tx.row("SELECT id, time, body FROM main.message WHERE place = ?", where)
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
    row = tx.row("SELECT body FROM main.message WHERE place = ?", where)
    message = _decode_or_none(row[0]) if row is not None else None
    if message is None:
        return []
    content, found, original = canonical_content(message), list[int](), original_uid(message.uid)
    is_long = len(to_plain_text(message)) >= MIN_QUOTE
    before = _load_ends(tx, where >> SEQ_BITS, where & SEQ_MASK)
    for (branch,) in tx.rows("SELECT number FROM main.branch WHERE tree = ? ORDER BY number", tree):
        is_beside = _load_ends(tx, branch, SEQ_MASK).get(where >> SEQ_BITS, 0) < where & SEQ_MASK
        low, high = make_place(branch, 0), make_place(branch, SEQ_MASK)
        for at, body in tx.rows("SELECT place, body FROM main.message WHERE place BETWEEN ? AND ?", low, high):
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
    "SELECT m.place FROM main.branch b JOIN main.message m"
    " ON m.place BETWEEN b.number * 4294967296 AND b.number * 4294967296 + 4294967295"
    " WHERE b.tree = ? AND m.redacted = 0 AND m.time < ?"
)


def redact_older(tx: Transaction, before: int, limit: int, after: int) -> tuple[int, int]:
    """Redact messages older than `before` (ms): the first `limit` after a place, and all others of their trees.

    Ledgers and events are read once per tree. Return the number of messages, and the place after which to continue.
    """
    rows = tx.rows(
        "SELECT place FROM main.message WHERE place > ? AND redacted = 0 AND time < ? ORDER BY place LIMIT ?",
        after,
        before,
        limit,
    )
    trees: dict[int, set[int]] = {}
    for branch in sorted({where >> SEQ_BITS for (where,) in rows}):
        found = tx.row("SELECT tree FROM main.branch WHERE number = ?", branch)
        mine = {where for (where,) in rows if where >> SEQ_BITS == branch}
        trees.setdefault(found[0] if found else 0, set()).update(mine)
    for tree in sorted(trees) if len(rows) == limit else ():
        trees[tree] |= {where for (where,) in tx.rows(OLD_MESSAGES_OF_TREE, tree, before)}
    for tree in sorted(trees):
        tx.row(f"SELECT 1 FROM main.branch WHERE number = ?{tx.dialect.row_lock}", tree)
    for tree, places in sorted(trees.items()):
        _redact_places(tx, tree, sorted(places))
    return sum(map(len, trees.values())), rows[-1][0] if rows else after


def delete_unused_blobs(tx: Transaction, low: int, high: int) -> None:
    """Remove the blob references of a range of places, and blobs that have no other reference."""
    names = sorted({row[0] for row in tx.rows("SELECT name FROM main.blob_use WHERE place BETWEEN ? AND ?", low, high)})
    tx.run("DELETE FROM main.blob_use WHERE place BETWEEN ? AND ?", low, high)
    for name in names:
        tx.row(f"SELECT 1 FROM main.blob WHERE name = ?{tx.dialect.row_lock}", name)
        tx.run(
            "DELETE FROM main.blob WHERE name = ? AND NOT EXISTS (SELECT 1 FROM main.blob_use WHERE name = ?)",
            name,
            name,
        )


def _redact_places(tx: Transaction, tree: int, places: Sequence[int]) -> list[Message]:
    """Redact messages of a tree, and all that was derived from them. Return those that exist, as they are now."""
    tx.run("UPDATE main.conversation SET revision = revision + 1 WHERE tree = ?", tree)
    removed = [found for where in places if (found := _redact_row(tx, where)) is not None]
    if not removed:
        return []
    redact_ledgers(tx, tree, {*places}, [each.before for each in removed if each.before is not None])
    _redact_records(tx, tree, {each.after.uid for each in removed})
    return [each.after for each in removed]


def _redact_row(tx: Transaction, where: int) -> _Removed | None:
    row = tx.row(f"SELECT id, time, body FROM main.message WHERE place = ?{tx.dialect.row_lock}", where)
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
    tx.run("UPDATE main.message SET body = ?, redacted = 1 WHERE place = ?", encode_message(after), where)
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
    row = tx.row("SELECT uid FROM main.early_uid WHERE place = ?", where)
    return row[0] if row else f"{where >> SEQ_BITS:x}-{where & SEQ_MASK:x}-{os.urandom(8).hex()}"


# ── turns, steps, events and approvals ────────────────────────────────────────────────────────────────────────────────


STEP_EVENTS = ("approval-request", "approval-answer", "tool-progress", "system-hint")
"""Types of events that quote a message of their step without naming it."""


def _redact_records(tx: Transaction, tree: int, uids: Collection[str]) -> None:
    """Redact messages in the events of every conversation of a tree.

    Events about their calls are redacted too, and all error texts, which may quote what was sent.
    """
    for (number,) in tx.rows("SELECT number FROM main.conversation WHERE tree = ?", tree):
        steps = _redact_events(tx, number, uids)
        redact_approvals(tx, number, steps)
        _redact_errors(tx, number, "turn", "agent", _empty_turn, TurnRecord)
        _redact_errors(tx, number, "step", "turn", _empty_step, StepRecord)
        tx.run("UPDATE main.worker_turn SET reason = '' WHERE conversation = ? AND reason <> ''", number)


def _redact_events(tx: Transaction, conversation: int, uids: Collection[str]) -> set[tuple[object, object]] | None:
    """Redact messages in the events of a conversation. Return the steps (turn and index) that these messages have.

    Return None if an event could not be read: it may have named a step of theirs.
    """
    is_complete = True
    low, high = make_place(conversation, 0), make_place(conversation, SEQ_MASK)
    told: list[tuple[int, JSONObject]] = []
    for where, body in tx.rows("SELECT place, body FROM main.event WHERE place BETWEEN ? AND ?", low, high):
        try:
            event: JSONObject = decode_row(decode, body, "Event")
            told.append((where, event | {"type": event["type"]}))
        except (StoreCorrupt, TypeError, KeyError):
            log_warning(f"event {where & SEQ_MASK} of conversation {conversation} could not be read; it is removed")
            blank = encode_event(UserNoticeCreated(number=where & SEQ_MASK, text=UNREADABLE_EVENT))
            tx.run("UPDATE main.event SET body = ? WHERE place = ?", blank, where)
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
            tx.run("UPDATE main.event SET body = ? WHERE place = ?", encode(blanked), where)
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
        f"SELECT place, {column}, body FROM main.{table} WHERE place BETWEEN ? AND ?", low, high
    ):
        try:
            record = decode_row(msgspec.json.Decoder(kind).decode, body, table)
        except StoreCorrupt:
            log_warning(f"{table} {where & SEQ_MASK} of conversation {conversation} could not be read; it is emptied")
            record = replace(make_empty(where & SEQ_MASK, value), error="-")
        if record.error:
            bare = msgspec.json.encode(replace(record, error=""))
            tx.run(f"UPDATE main.{table} SET body = ? WHERE place = ?", bare, where)


def _empty_turn(number: int, agent: object) -> TurnRecord:
    return TurnRecord(number=number, agent=str(agent), state="interrupted")


def _empty_step(number: int, turn: object) -> StepRecord:
    return StepRecord(number=number, turn=turn if isinstance(turn, int) else 0, index=0, state="failed")

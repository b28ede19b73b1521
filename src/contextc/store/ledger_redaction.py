"""Redaction of ledgers: remove the content of redacted or deleted messages from what was sent to models.

Ledger rows keep their place and lose their text. Manifests keep their figures, and lose the texts that may quote a
message: errors, remarks, and what options of the proxy reported. A system prompt is removed if it contains a redacted
text. A provider session is invalidated if we store its transcript, or if its system prompt contains the redacted
messages. Rows that cannot be read are emptied.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, encode
from contextc.errors import StoreCorrupt
from contextc.messages import Message
from contextc.store.backend_interface import Transaction
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
)
from contextc.store.message_rows import FIRST_UNANSWERED, SEQ_MASK, decode_row, make_place
from contextc.store.session_transcripts import delete_of_conversation, redact_of_tree
from contextc.store.transaction_engine import log_warning

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
        "SELECT number, state, attempt FROM channel"
        " WHERE conversation IN (SELECT name FROM conversation WHERE tree = ?) ORDER BY number",
        tree,
    )
    sessions = redact_of_tree(tx, tree)
    quotes = [text for each in messages if (text := _find_quote(each))]
    changed = False
    for channel, state, attempt in rows:
        channel_state = _decode_state(tx, channel, state)
        changed |= delete_heads(tx, channel, lambda body: any(quote in _join_strings(body) for quote in quotes))
        leads = not {*(channel_state.lead or ())}.isdisjoint(places)
        if (session := channel_state.session) is not None and (leads or session.id in sessions):
            invalidate_session(tx, channel)
        if attempt is not None:  # an error may quote what was sent
            sent: JSONObject | None = decode_or_none(decode, attempt, f"the pending request of channel {channel}")
            emptied = None if sent is None else encode({**sent, "error": ""})
            tx.run("UPDATE channel SET attempt = ? WHERE number = ?", emptied, channel)
        low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
        tx.run("UPDATE replaced SET body = ? WHERE place BETWEEN ? AND ?", b"", low, high)
        _redact_manifests(tx, channel, first)
        merged = changed  # a fork may go on from the rows of the channel it was forked from
        for where, row, wire in load_ledger_rows(tx, channel):
            # an unanswered request continues any row of the ledger, not the one before it here
            merged = changed if where & SEQ_MASK > FIRST_UNANSWERED else merged
            blank = _redact_row(row, places, first, merged=merged)
            if blank is not None or wire:  # an empty row changes nothing for the next one
                merged = blank is not None
            if blank is not None:
                tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", row_to_json(blank), b"", where)
                changed = True
    if changed:
        invalidate_channels(tx, tree)


def delete_summaries(tx: Transaction, tree: int, is_gone: Callable[[int], bool]) -> None:
    """Delete the summaries of a tree that were written from messages at certain places. Unreadable ones are deleted."""
    for number, anchor, body in tx.rows("SELECT number, anchor, body FROM overlay WHERE tree = ?", tree):
        stored: JSONObject | None = decode_or_none(decode, body, "a summary")
        if stored is None or is_gone(anchor) or is_gone(stored.get("seen", anchor)):
            tx.run("DELETE FROM overlay WHERE number = ?", number)


def invalidate_channels(tx: Transaction, tree: int) -> None:
    """Invalidate what any process keeps of the channels of a tree."""
    tx.run(
        "UPDATE channel SET version = version + 1 WHERE conversation IN (SELECT name FROM conversation WHERE tree = ?)",
        tree,
    )


def delete_heads(tx: Transaction, channel: int, has_text: Callable[[bytes], bool]) -> bool:
    """Remove the system prompts and tools of a channel that contain a text. Return True if there were any."""
    heads = tx.rows("SELECT hash, body FROM head WHERE channel = ?", channel)
    found = [name for name, body in heads if has_text(raw_bytes(body))]
    for name in found:
        tx.run("DELETE FROM head WHERE channel = ? AND hash = ?", channel, name)
    return bool(found)


def load_ledger_rows(tx: Transaction, channel: int) -> Iterator[tuple[int, LedgerRow, int]]:
    """Yield all rows of a channel: place, row, and number of stored wire bytes. Unreadable ones are emptied."""
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    stored = tx.rows(
        "SELECT place, items, length(wire) FROM shown WHERE place BETWEEN ? AND ? ORDER BY place", low, high
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
            tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", row_to_json(row), b"", where)
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
            tx.row(f"SELECT max(place) FROM {table} WHERE place BETWEEN ? AND ?", make_place(channel, 0),
                   make_place(channel, FIRST_UNANSWERED))
            for table in ("manifest", "shown")
        ]  # fmt: skip
        requests, rows = [(row[0] or 0) & SEQ_MASK if row else 0 for row in last]
        found = ChannelState(requests=requests, rows=rows, lost=REDACTED)
        tx.run("UPDATE channel SET state = ? WHERE number = ?", state_to_json(found), channel)
    return found


def invalidate_session(tx: Transaction, channel: int) -> None:
    """Invalidate the session of a channel: the next request is a full one and states the reason."""
    row = tx.row(f"SELECT state FROM channel WHERE number = ?{tx.dialect.row_lock}", channel)
    if row is None:
        return
    state = _decode_state(tx, channel, row[0])
    if state.session is not None:
        sql = "UPDATE channel SET state = ?, version = version + 1 WHERE number = ?"
        tx.run(sql, state_to_json(replace(state, session=None, lost=REDACTED)), channel)


def _redact_row(row: LedgerRow, places: Collection[int], first: int, *, merged: bool) -> LedgerRow | None:
    """Return the row without the text of these messages, or None if it contains none of them."""
    held = {where for item in row.items for where in (item.place, *item.places)}
    summary = any(item.kind == "summary" for item in row.items)
    later = summary and any(where & SEQ_MASK >= first for where in held)
    if held.isdisjoint(places) and not (merged and row.drop) and not later:
        return None
    return empty_row(replace(row, items=tuple([_redact_item(item, places) for item in row.items])))


def empty_row(row: LedgerRow) -> LedgerRow:
    """Return a row whose wire form was removed."""
    # `held` is reset: the wire form is empty now for another reason
    return replace(row, drop=0, held=False, gone=True)


def _redact_item(item: Item, places: Collection[int]) -> Item:
    quotes = item.kind == "summary" or item.place in places or not set(item.places).isdisjoint(places)
    return replace(item, text="") if quotes else item


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def load_manifest_rows(tx: Transaction, channel: int) -> list[tuple[int, JSONObject, bool]]:
    """Return the manifests of a channel: place, body, and whether it is stored compressed. Unreadable ones are removed.

    A request without its manifest cannot be explained, but the others can.
    """
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    found: list[tuple[int, JSONObject, bool]] = []
    for where, body in tx.rows("SELECT place, body FROM manifest WHERE place BETWEEN ? AND ?", low, high):
        record = decode_or_none(
            lambda stored: cast(JSONObject, dict(decode(unpack_record(raw_bytes(stored))))),
            body,
            f"the manifest of request {where & SEQ_MASK} of channel {channel}",
        )
        if record is None:
            tx.run("DELETE FROM manifest WHERE place = ?", where)
        else:
            found.append((where, record, raw_bytes(body)[:1] == PACKED))
    return found


def save_manifest_row(tx: Transaction, where: int, record: JSONObject, *, is_packed: bool) -> None:
    body = encode(record)
    tx.run("UPDATE manifest SET body = ? WHERE place = ?", pack_record(body) if is_packed else body, where)


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
    for (channel,) in tx.rows("SELECT number FROM channel WHERE conversation = ?", conversation):
        for table in ("shown", "manifest", "replaced"):
            low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
            tx.run(f"DELETE FROM {table} WHERE place BETWEEN ? AND ?", low, high)
        tx.run("DELETE FROM head WHERE channel = ?", channel)
    for table in ("observed_key", "observed_conversation"):
        tx.run(
            f"DELETE FROM {table} WHERE conversation = (SELECT number FROM conversation WHERE name = ?)", conversation
        )
    tx.run("DELETE FROM channel WHERE conversation = ?", conversation)
    tx.run(  # forks may continue its rows
        "UPDATE channel SET version = version + 1 WHERE conversation IN (SELECT name FROM conversation WHERE tree ="
        " (SELECT tree FROM conversation WHERE name = ?))",
        conversation,
    )

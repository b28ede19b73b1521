"""Redaction of ledgers: remove the content of redacted or deleted messages from what was sent to models.

Ledger rows keep their place and lose their text. A provider session is invalidated if we store its transcript, or if
its system prompt contains the redacted messages.
"""

from collections.abc import Collection

from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Item, LedgerRow, row_to_json, rows_from_json, state_from_json, state_to_json
from contextc.store.message_rows import FIRST_UNANSWERED, SEQ_MASK, decode_row, make_place
from contextc.store.session_transcripts import delete_of_conversation, redact_of_tree

REDACTED = "redacted"
CHANNEL_STATE = "Channel state"


def redact_ledgers(tx: Transaction, tree: int, places: Collection[int]) -> None:
    """Remove messages from all ledgers of a tree, and from summaries that may include them."""
    first = min((where & SEQ_MASK for where in places), default=0)
    tx.run("DELETE FROM overlay WHERE tree = ? AND anchor % 4294967296 >= ?", tree, first)
    rows = tx.rows(
        "SELECT number, state, attempt FROM channel"
        " WHERE conversation IN (SELECT name FROM conversation WHERE tree = ?) ORDER BY number",
        tree,
    )
    sessions = redact_of_tree(tx, tree)
    changed = False
    for channel, state, attempt in rows:
        channel_state = decode_row(state_from_json, state, CHANNEL_STATE)
        leads = not {*(channel_state.lead or ())}.isdisjoint(places)
        if leads:  # the system prompt contains them too
            tx.run("DELETE FROM head WHERE channel = ?", channel)
            changed = True
        if (session := channel_state.session) is not None and (leads or session.id in sessions):
            _invalidate_session(tx, channel)
        if attempt is not None:  # an error may quote what was sent
            sent: JSONObject = {**decode_row(decode, attempt, "Pending request"), "error": ""}
            tx.run("UPDATE channel SET attempt = ? WHERE number = ?", encode(sent), channel)
        low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
        tx.run("UPDATE replaced SET body = ? WHERE place BETWEEN ? AND ?", b"", low, high)
        merged = changed  # a fork may go on from the rows of the channel it was forked from
        stored = tx.rows(
            "SELECT place, items, length(wire) FROM shown WHERE place BETWEEN ? AND ? ORDER BY place", low, high
        )
        decoded = decode_row(
            rows_from_json, b"[%b]" % b",".join([bytes(items) for _, items, _ in stored]), "Ledger row"
        )
        for (where, _, wire), row in zip(stored, decoded, strict=True):
            # an unanswered request continues any row of the ledger, not the one before it here
            merged = changed if where & SEQ_MASK > FIRST_UNANSWERED else merged
            blank = _redact_row(row, places, first, merged=merged)
            if blank is not None or wire:  # an empty row changes nothing for the next one
                merged = blank is not None
            if blank is not None:
                tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", row_to_json(blank), b"", where)
                changed = True
    if changed:  # invalidate cached channels
        for channel, *_ in rows:
            tx.run("UPDATE channel SET version = version + 1 WHERE number = ?", channel)


def _invalidate_session(tx: Transaction, channel: int) -> None:
    """Invalidate the session of a channel: the next request is a full one and states the reason."""
    row = tx.row(f"SELECT state FROM channel WHERE number = ?{tx.dialect.row_lock}", channel)
    if row is None:
        return
    state = decode_row(state_from_json, row[0], CHANNEL_STATE)
    if state.session is not None:
        sql = "UPDATE channel SET state = ?, version = version + 1 WHERE number = ?"
        tx.run(sql, state_to_json(replace(state, session=None, lost=REDACTED)), channel)


def _redact_row(row: LedgerRow, places: Collection[int], first: int, *, merged: bool) -> LedgerRow | None:
    """Return the row without the text of these messages, or None if it contains none of them."""
    held = {item.place for item in row.items}
    summary = any(item.kind == "summary" for item in row.items)
    later = summary and any(where & SEQ_MASK >= first for where in held)
    if held.isdisjoint(places) and not (merged and row.drop) and not later:
        return None
    # `held` is reset: the wire form is empty now for another reason
    return replace(row, items=tuple([_redact_item(item, places) for item in row.items]), drop=0, held=False, gone=True)


def _redact_item(item: Item, places: Collection[int]) -> Item:
    return replace(item, text="") if item.kind == "summary" or item.place in places else item


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

"""Redaction of ledgers: remove the content of redacted or deleted messages from what was sent to models.

Ledger rows keep their place and lose their text. A provider session is invalidated if we store its transcript, or if
its system prompt contains the redacted messages.
"""

import re
from collections.abc import Collection
from typing import cast

from contextc._json import JSONObject, decode, encode
from contextc.store.addressing import FIRST_UNANSWERED, SEQ_MASK, make_place
from contextc.store.row_decoding import decode_row
from contextc.store.session_transcripts import delete_of_conversation, redact_of_tree
from contextc.store.types import Transaction

REDACTED = "redacted"
CHANNEL_STATE = "Channel state"
PLACE_PATTERN = re.compile(rb'"p":(\d+)')


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
        standing: JSONObject = decode_row(decode, state, CHANNEL_STATE)
        leads = not {*(standing.get("lead") or ())}.isdisjoint(places)
        if leads:  # the system prompt contains them too
            tx.run("DELETE FROM head WHERE channel = ?", channel)
            changed = True
        if (held := standing.get("session")) and (leads or held["id"] in sessions):
            _invalidate_session(tx, channel)
        if attempt is not None:  # an error may quote what was sent
            sent: JSONObject = {**decode_row(decode, attempt, "Pending request"), "error": ""}
            tx.run("UPDATE channel SET attempt = ? WHERE number = ?", encode(sent), channel)
        low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
        tx.run("UPDATE replaced SET body = ? WHERE place BETWEEN ? AND ?", b"", low, high)
        merged = changed  # a fork may go on from the rows of the channel it was forked from
        for where, items, wire in tx.rows(
            "SELECT place, items, length(wire) FROM shown WHERE place BETWEEN ? AND ? ORDER BY place", low, high
        ):
            # an unanswered request continues any row of the ledger, not the one before it here
            merged = changed if where & SEQ_MASK > FIRST_UNANSWERED else merged
            blank = _redact_row(bytes(items), places, first, merged=merged)
            if blank is not None or wire:  # an empty row changes nothing for the next one
                merged = blank is not None
            if blank is not None:
                tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", blank, b"", where)
                changed = True
    if changed:  # invalidate cached channels
        for channel, *_ in rows:
            tx.run("UPDATE channel SET version = version + 1 WHERE number = ?", channel)


def _invalidate_session(tx: Transaction, channel: int) -> None:
    """Invalidate the session of a channel: the next request is a full one and states the reason."""
    row = tx.row(f"SELECT state FROM channel WHERE number = ?{tx.dialect.row_lock}", channel)
    standing: JSONObject = decode_row(decode, row[0], CHANNEL_STATE) if row else {}
    if standing.pop("session", None):
        sql = "UPDATE channel SET state = ?, version = version + 1 WHERE number = ?"
        tx.run(sql, encode({**standing, "lost": REDACTED}), channel)


def _redact_row(items: bytes, places: Collection[int], first: int, *, merged: bool) -> bytes | None:
    """Return the row without the text of these messages, or None if it contains none of them."""
    held = {int(found) for found in PLACE_PATTERN.findall(items)}
    summary = b'"k":"summary"' in items
    merged = merged and b'"drop":' in items
    if held.isdisjoint(places) and not merged and not (summary and any(where & SEQ_MASK >= first for where in held)):
        return None
    row: JSONObject = decode_row(decode, items, "Ledger row")
    row.pop("drop", None)
    row.pop("held", None)  # its wire form is empty now, for another reason
    row["gone"] = True
    for item in cast(list[JSONObject], row["items"]):
        if item.get("k") == "summary" or item.get("p") in places:
            item.pop("w", None)
    return encode(row)


def delete_channels(tx: Transaction, conversation: str) -> None:
    """Remove all channels, ledgers and provider transcripts of a conversation."""
    delete_of_conversation(tx, conversation)
    for (channel,) in tx.rows("SELECT number FROM channel WHERE conversation = ?", conversation):
        for table in ("shown", "manifest", "replaced"):
            low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
            tx.run(f"DELETE FROM {table} WHERE place BETWEEN ? AND ?", low, high)
        tx.run("DELETE FROM head WHERE channel = ?", channel)
    tx.run("DELETE FROM channel WHERE conversation = ?", conversation)
    tx.run(  # forks may continue its rows
        "UPDATE channel SET version = version + 1 WHERE conversation IN (SELECT name FROM conversation WHERE tree ="
        " (SELECT tree FROM conversation WHERE name = ?))",
        conversation,
    )

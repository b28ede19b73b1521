"""What goes from the ledgers when content goes from the record.

A ledger holds what was sent, so it holds what is to be forgotten too. Rows keep their place; their words go. A session
of which we keep the transcript, or whose system prompt they stand in, is given up.
"""

import re
from collections.abc import Collection
from typing import cast

from contextc._json import JSONObject, decode, encode
from contextc.store.base import Transaction
from contextc.store.places import SEQ_MASK, UNANSWERED, place
from contextc.store.reading import read_as
from contextc.store.transcripts import drop_owned, forget

REDACTED = "redacted"
STANDING = "Where a model stands"
PLACES = re.compile(rb'"p":(\d+)')


def forget_shown(tx: Transaction, tree: int, places: Collection[int]) -> None:
    """Take messages out of everything that was shown, and out of summaries that may speak of them."""
    first = min((where & SEQ_MASK for where in places), default=0)
    tx.run("DELETE FROM overlay WHERE tree = ? AND anchor % 4294967296 >= ?", tree, first)
    rows = tx.rows(
        "SELECT number, state, attempt FROM channel"
        " WHERE conversation IN (SELECT name FROM conversation WHERE tree = ?) ORDER BY number",
        tree,
    )
    sessions = forget(tx, tree)
    changed = False
    for channel, state, attempt in rows:
        standing: JSONObject = read_as(decode, state, STANDING)
        leads = not {*(standing.get("lead") or ())}.isdisjoint(places)
        if leads:  # they stand in the system prompt too
            tx.run("DELETE FROM head WHERE channel = ?", channel)
            changed = True
        if (held := standing.get("session")) and (leads or held["id"] in sessions):
            _give_up(tx, channel)
        if attempt is not None:  # an error may quote what was sent
            sent: JSONObject = {**read_as(decode, attempt, "A request on its way"), "error": ""}
            tx.run("UPDATE channel SET attempt = ? WHERE number = ?", encode(sent), channel)
        low, high = place(channel, 0), place(channel, SEQ_MASK)
        tx.run("UPDATE replaced SET body = ? WHERE place BETWEEN ? AND ?", b"", low, high)
        merged = changed  # a fork may go on from the rows of the channel it was forked from
        for where, items, wire in tx.rows(
            "SELECT place, items, length(wire) FROM shown WHERE place BETWEEN ? AND ? ORDER BY place", low, high
        ):
            # a request that was not answered goes on from any row of the ledger, not from the one before it here
            merged = changed if where & SEQ_MASK > UNANSWERED else merged
            blank = _blanked(bytes(items), places, first, merged=merged)
            if blank is not None or wire:  # a row that says nothing leaves the last words to the next
                merged = blank is not None
            if blank is not None:
                tx.run("UPDATE shown SET items = ?, wire = ? WHERE place = ?", blank, b"", where)
                changed = True
    if changed:  # nobody goes on from what is still in memory
        for channel, *_ in rows:
            tx.run("UPDATE channel SET version = version + 1 WHERE number = ?", channel)


def _give_up(tx: Transaction, channel: int) -> None:
    """The session of a channel is not to be gone on with: the next request is a full one, and says why."""
    row = tx.row(f"SELECT state FROM channel WHERE number = ?{tx.dialect.lock}", channel)
    standing: JSONObject = read_as(decode, row[0], STANDING) if row else {}
    if standing.pop("session", None):
        sql = "UPDATE channel SET state = ?, version = version + 1 WHERE number = ?"
        tx.run(sql, encode({**standing, "lost": REDACTED}), channel)


def _blanked(items: bytes, places: Collection[int], first: int, *, merged: bool) -> bytes | None:
    """The row without the words it holds of these messages; None where it has none of them."""
    held = {int(found) for found in PLACES.findall(items)}
    summary = b'"k":"summary"' in items
    merged = merged and b'"drop":' in items
    if held.isdisjoint(places) and not merged and not (summary and any(where & SEQ_MASK >= first for where in held)):
        return None
    row: JSONObject = read_as(decode, items, "What a model was shown")
    row.pop("drop", None)
    row.pop("held", None)  # its wire form says nothing any more, and that is not why
    row["gone"] = True
    for item in cast(list[JSONObject], row["items"]):
        if item.get("k") == "summary" or item.get("p") in places:
            item.pop("w", None)
    return encode(row)


def drop_channels(tx: Transaction, conversation: str) -> None:
    """Remove everything a conversation was shown as, and what providers keep of it with us."""
    drop_owned(tx, conversation)
    for (channel,) in tx.rows("SELECT number FROM channel WHERE conversation = ?", conversation):
        for table in ("shown", "manifest", "replaced"):
            low, high = place(channel, 0), place(channel, SEQ_MASK)
            tx.run(f"DELETE FROM {table} WHERE place BETWEEN ? AND ?", low, high)
        tx.run("DELETE FROM head WHERE channel = ?", channel)
    tx.run("DELETE FROM channel WHERE conversation = ?", conversation)
    tx.run(  # forks may stand on its rows
        "UPDATE channel SET version = version + 1 WHERE conversation IN (SELECT name FROM conversation WHERE tree ="
        " (SELECT tree FROM conversation WHERE name = ?))",
        conversation,
    )

"""The ledger in the store: channels, the rows of what was shown, heads, requests on their way, manifests.

Functions over a transaction, as everything in a store is. What a commit writes follows what is new.
"""

from collections.abc import Iterable, Sequence

from contextc.ledger.items import Row
from contextc.ledger.standing import (
    Channel,
    Standing,
    StoredRow,
    Stretch,
    row_from_json,
    row_to_json,
    standing_from_json,
    standing_to_json,
)
from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, place

FIND = (
    "SELECT number, version, state FROM channel WHERE conversation = ? AND agent = ? AND provider = ? AND model = ?"
    " AND directory = ?"
)


def find(tx: Transaction, channel: Channel) -> tuple[int, int, bytes] | None:
    """A channel's number and version, and its standing as it is stored."""
    row = tx.row(FIND, *channel)
    return (row[0], row[1], row[2]) if row else None


def stood(tx: Transaction, channel: Channel) -> Standing | None:
    found = find(tx, channel)
    return standing_from_json(found[2]) if found else None


def load_rows(tx: Transaction, layout: Iterable[Stretch]) -> list[StoredRow]:
    """The rows of an epoch, in order."""
    return [
        StoredRow(where >> SEQ_BITS, where & SEQ_MASK, row_from_json(items), bytes(wire))
        for channel, first, last in layout
        for where, items, wire in tx.rows(
            "SELECT place, items, wire FROM shown WHERE place BETWEEN ? AND ? ORDER BY place",
            place(channel, first),
            place(channel, last),
        )
    ]


def write_rows(tx: Transaction, channel: int, first: int, rows: Sequence[tuple[Row, bytes]]) -> None:
    if len(rows) == 1:
        row, wire = rows[0]
        sql = "INSERT INTO shown (place, items, wire) VALUES (?, ?, ?)"
        tx.run(sql, place(channel, first), row_to_json(row), wire)
    elif rows:
        tx.run_many(
            "INSERT INTO shown (place, items, wire) VALUES (?, ?, ?)",
            [(place(channel, first + index), row_to_json(row), wire) for index, (row, wire) in enumerate(rows)],
        )


def create(tx: Transaction, channel: Channel, standing: Standing) -> int:
    """A new channel at version 1; 0 where another writer made it first."""
    row = tx.row(
        "INSERT INTO channel (conversation, agent, provider, model, directory, version, state)"
        " VALUES (?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO NOTHING RETURNING number",
        *channel,
        standing_to_json(standing),
    )
    return row[0] if row else 0


def advance(tx: Transaction, number: int, version: int, standing: Standing) -> bool:
    """Write where a channel stands now; False where it is no longer at `version`."""
    return (
        tx.run(
            "UPDATE channel SET version = version + 1, state = ? WHERE number = ? AND version = ?",
            standing_to_json(standing),
            number,
            version,
        )
        == 1
    )


def keep_head(tx: Transaction, name: bytes, body: bytes) -> None:
    tx.run("INSERT INTO head (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING", name, body)


def head(tx: Transaction, name: bytes) -> bytes | None:
    row = tx.row("SELECT body FROM head WHERE hash = ?", name)
    return bytes(row[0]) if row else None


def keep_manifest(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.run("INSERT INTO manifest (place, body) VALUES (?, ?)", place(channel, number), body)


def manifests(tx: Transaction, channel: int, first: int = 0, last: int = SEQ_MASK) -> list[tuple[int, bytes]]:
    rows = tx.rows(
        "SELECT place, body FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place",
        place(channel, first),
        place(channel, last),
    )
    return [(where & SEQ_MASK, bytes(body)) for where, body in rows]


def open_attempts(tx: Transaction, channel: int) -> list[tuple[int, str | None, bytes]]:
    """Requests that left, or may have left, and were not answered: number, error, what was about to go out."""
    rows = tx.rows("SELECT place, error, body FROM attempt WHERE channel = ? ORDER BY place", channel)
    return [(where & SEQ_MASK, error, bytes(body)) for where, error, body in rows]


def begin(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.run(
        "INSERT INTO attempt (place, channel, body) VALUES (?, ?, ?)"
        " ON CONFLICT (place) DO UPDATE SET body = excluded.body, error = NULL",
        place(channel, number),
        channel,
        body,
    )


def fail(tx: Transaction, channel: int, number: int, error: str) -> None:
    tx.run("UPDATE attempt SET error = ? WHERE place = ?", error, place(channel, number))


def close_attempts(tx: Transaction, channel: int) -> None:
    tx.run("DELETE FROM attempt WHERE channel = ?", channel)


def channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, int, Standing]]:
    rows = tx.rows(
        "SELECT number, agent, provider, model, directory, version, state FROM channel WHERE conversation = ?"
        " ORDER BY number",
        conversation,
    )
    return [
        (number, Channel(conversation, *name), version, standing_from_json(state))
        for number, *name, version, state in rows
    ]

"""The ledger in the store: channels, the rows of what was shown, heads, requests on their way, manifests.

Functions over a transaction, as everything in a store is. What a commit writes follows what is new.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from contextc.ledger.items import Row
from contextc.ledger.standing import (
    Channel,
    Sealed,
    Standing,
    Stretch,
    row_to_json,
    rows_from_json,
    standing_from_json,
    standing_to_json,
)
from contextc.store import Store
from contextc.store.base import Transaction
from contextc.store.places import SEQ_MASK, UNANSWERED, place
from contextc.store.reading import read_all, read_as


class OpenAttempt(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request that has left, or was about to: into which session, and the hashes of head and rows."""

    request: int
    token: str = ""
    session: str = ""
    head: str = ""
    chain: str = ""
    error: str = ""
    doubtful: bool = False
    """Another request was on its way when this one began, and may have reached the session too."""
    kept: int = 0
    """The number under which it can be looked at, since it failed; 0 where it cannot."""


_encode = Encoder().encode
_decode = Decoder(OpenAttempt).decode
_skip = Decoder(Raw).decode
SHOWN = "What a model was shown"

FIND = (
    "SELECT number, version, state, attempt FROM channel"
    " WHERE conversation = ? AND agent = ? AND provider = ? AND model = ? AND directory = ?"
)


class Found(NamedTuple):
    """A channel's number and version, its standing as it is stored, and the request on its way."""

    number: int
    version: int
    state: bytes
    attempt: bytes | None


def find(tx: Transaction, channel: Channel, *, lock: bool = False) -> Found | None:
    """Return a channel. With `lock`, no other writer changes its row before this transaction ends."""
    row = tx.row(FIND + tx.dialect.lock if lock else FIND, *channel)
    return Found(*row) if row else None


def stood(tx: Transaction, channel: Channel) -> Standing | None:
    found = find(tx, channel)
    return standing_of(channel.conversation, found.state) if found else None


def standing_of(conversation: str, state: bytes) -> Standing:
    return read_as(standing_from_json, state, f"Where a model stands in {conversation!r}")


def load_rows(tx: Transaction, layout: Iterable[Stretch]) -> list[Sealed]:
    """The rows of an epoch, in order."""
    return [Sealed(where, row, wire) for where, row, wire in _rows(tx, layout, "wire")]


def load_items(tx: Transaction, layout: Iterable[Stretch]) -> list[tuple[int, Row, int]]:
    """The rows of an epoch without what went out: the place of each, what it shows, and the bytes it took."""
    return _rows(tx, layout, "length(wire)")


def _rows(tx: Transaction, layout: Iterable[Stretch], what: str) -> list[tuple[int, Row, Any]]:  # as the column has it
    rows = [
        row
        for channel, first, last in layout
        for row in tx.rows(
            f"SELECT place, items, {what} FROM shown WHERE place BETWEEN ? AND ? ORDER BY place",
            place(channel, first),
            place(channel, last),
        )
    ]
    # all at once: half the time
    decoded = read_as(lambda given: rows_from_json(b"[%b]" % b",".join(given)), [items for _, items, _ in rows], SHOWN)
    return [(where, row, found) for (where, _, found), row in zip(rows, decoded, strict=True)]


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


def advance(tx: Transaction, number: int, version: int, standing: Standing, *, left: OpenAttempt | None = None) -> bool:
    """Write where a channel stands now, and what is still on its way; False where it is no longer at `version`."""
    return (
        tx.run(
            "UPDATE channel SET version = version + 1, state = ?, attempt = ? WHERE number = ? AND version = ?",
            standing_to_json(standing),
            None if left is None else _encode(left),
            number,
            version,
        )
        == 1
    )


def keep_head(tx: Transaction, channel: int, name: bytes, body: bytes) -> None:
    tx.run("INSERT INTO head (channel, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", channel, name, body)


def head(tx: Transaction, channel: int, name: bytes) -> bytes | None:
    row = tx.row("SELECT body FROM head WHERE channel = ? AND hash = ?", channel, name)
    return bytes(row[0]) if row else None


def keep_replaced(tx: Transaction, channel: int, request: int, body: bytes) -> None:
    """Store a request whole, because it is not what its rows say."""
    tx.run("INSERT INTO replaced (place, body) VALUES (?, ?)", place(channel, request), body)


def replaced(tx: Transaction, channel: int, request: int) -> bytes | None:
    row = tx.row("SELECT body FROM replaced WHERE place = ?", place(channel, request))
    return bytes(row[0]) if row else None


def keep_manifest(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.run("INSERT INTO manifest (place, body) VALUES (?, ?)", place(channel, number), body)


def manifests(tx: Transaction, channel: int, upto: int = UNANSWERED, *, last: int | None = None) -> list[bytes]:
    """The manifests of a channel up to a request, newest first; the last few of them, or all."""
    rows = tx.rows(
        "SELECT body FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC"
        + (f" LIMIT {last}" if last is not None else ""),
        place(channel, 0),
        place(channel, upto),
    )
    return read_all(_checked, [body for (body,) in rows], "The manifest of a request")


def unanswered(tx: Transaction, channel: int, number: int | None = None) -> tuple[int, bytes] | None:
    """A request that was not answered, by its number; by default the last one that was kept, with its number."""
    low, high = (UNANSWERED + 1, SEQ_MASK) if number is None else (number, number)
    row = tx.row(
        "SELECT place, body FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        place(channel, low),
        place(channel, high),
    )
    return (row[0] & SEQ_MASK, _checked(row[1])) if row else None


def next_unanswered_row(tx: Transaction, channel: int) -> int:
    """The number of the next row of a request that was not answered."""
    low, high = place(channel, UNANSWERED + 1), place(channel, SEQ_MASK)
    row = tx.row("SELECT max(place) FROM shown WHERE place BETWEEN ? AND ?", low, high)
    return (row[0] & SEQ_MASK) + 1 if row and row[0] is not None else UNANSWERED + 1


def _checked(body: bytes) -> bytes:
    """The body, which is JSON at least: whoever asked for it knows what else it should be."""
    _skip(body)
    return bytes(body)


def begin(tx: Transaction, number: int, attempt: OpenAttempt) -> None:
    tx.run("UPDATE channel SET attempt = ? WHERE number = ?", _encode(attempt), number)


def begin_alone(store: Store, number: int, version: int, attempt: OpenAttempt, seen: OpenAttempt | None) -> bool:
    """The same in one statement, where the channel still stands at `version`, with nothing on its way but what was
    `seen`; False where it could not be done so.
    """
    sql = "UPDATE channel SET attempt = ? WHERE number = ? AND version = ? AND (attempt IS NULL OR attempt = ?)"
    before = b"" if seen is None else _encode(seen)
    return bool(number) and store.write_one(sql, _encode(attempt), number, version, before)


def fail(tx: Transaction, number: int, token: str, error: str, kept: int = 0) -> None:
    """Note why a request failed, and the number under which it was kept. What a session may have taken in of it is not
    known, so the attempt stays.
    """
    row = tx.row(f"SELECT attempt FROM channel WHERE number = ?{tx.dialect.lock}", number)
    attempt = attempt_of(row[0]) if row else None
    if attempt is not None and attempt.token == token:
        begin(tx, number, replace(attempt, error=error, kept=kept))


def attempt_of(stored: bytes | None) -> OpenAttempt | None:
    return None if stored is None else read_as(_decode, stored, "A request on its way")


def channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, Standing, OpenAttempt | None]]:
    rows = tx.rows(
        "SELECT number, agent, provider, model, directory, state, attempt FROM channel WHERE conversation = ?"
        " ORDER BY number",
        conversation,
    )
    return [
        (number, Channel(conversation, *name), standing_of(conversation, state), attempt_of(attempt))
        for number, *name, state, attempt in rows
    ]

"""The ledger in the store: channels, rows, request heads, attempts and manifests.

Functions over a transaction. The cost of a commit depends on what is new only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from contextc.compiler.ledger.observed_compression import unpack_record, unpack_wire
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import (
    Channel,
    ChannelState,
    LedgerRow,
    RowRange,
    StoredRow,
    row_to_json,
    rows_from_json,
    state_from_json,
    state_to_json,
)
from contextc.store.message_rows import (
    DOCTOR_HINT,
    FIRST_UNANSWERED,
    SEQ_MASK,
    BranchTip,
    decode_row,
    decode_rows,
    load_lineage,
    make_place,
)
from contextc.store.turn_and_event_records import load_last_turn


class OpenAttempt(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request that was sent, or was about to be: its session, and the hashes of its head and rows."""

    request: int
    token: str = ""
    session: str = ""
    head: str = ""
    chain: str = ""
    error: str = ""
    doubtful: bool = False
    """True if another request was open when this one began, and may have reached the session too."""
    kept: int = 0
    """The number under which a failed request can be inspected; 0 if it cannot."""


_encode_attempt = Encoder().encode
_decode_attempt = Decoder(OpenAttempt).decode
_check_json = Decoder(Raw).decode
ROW_LABEL = "A ledger row"
BODIES_PER_QUERY = 512

FIND_CHANNEL = (
    "SELECT number, version, state, attempt FROM channel"
    " WHERE conversation = ? AND agent = ? AND provider = ? AND model = ? AND directory = ?"
)


UPDATE_STATE = "UPDATE channel SET version = version + 1, state = ?, attempt = ? WHERE number = ? AND version = ?"


class ChannelRow(NamedTuple):
    """A channel's number and version, its encoded state, and its encoded attempt."""

    number: int
    version: int
    state: bytes
    attempt: bytes | None


def find_channel(tx: Transaction, channel: Channel, *, lock: bool = False) -> ChannelRow | None:
    """Return a channel. With `lock`, no other writer changes its row before this transaction ends."""
    row = tx.row(FIND_CHANNEL + tx.dialect.row_lock if lock else FIND_CHANNEL, *channel)
    return ChannelRow(*row) if row else None


def prefetch_locked_channel(tx: Transaction, channel: Channel) -> None:
    """Announce `find_channel(…, lock=True)`, which follows the check of a lease."""
    if tx.locked is not None:
        tx.prefetch(FIND_CHANNEL + tx.dialect.row_lock, *channel)


def load_state(tx: Transaction, channel: Channel) -> ChannelState | None:
    """Return the state of a channel; None if the channel does not exist."""
    found = find_channel(tx, channel)
    return decode_state(channel.conversation, found.state) if found else None


def load_parent_state(tx: Transaction, channel: Channel, at: BranchTip) -> ChannelState | None:
    """Return the state of the same channel in the conversation from which this one was forked.

    A run that has a channel of its own begins with the ledger of its agent, unless that has messages of another run
    that is still going, or the message that this run must answer: it was sent to the other run, too.
    """
    if channel.agent != channel.author:
        own = load_state(tx, channel._replace(agent=channel.author))
        turn = load_last_turn(tx, at.conversation, channel.agent)
        if own is None or not own.requests or not own.answered or own.going:
            return None
        return own if turn is None or own.seen < turn.opened else None
    for branch, _ in load_lineage(tx, at.branch)[1:]:
        row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
        if row is None or row[0] is None or row[0] == channel.conversation:
            continue
        standing = load_state(tx, channel._replace(conversation=row[0]))
        if standing is not None and standing.requests:
            return standing
    return None


def decode_state(conversation: str, state: bytes) -> ChannelState:
    """Decode the state of a channel. Raises `StoreCorrupt`."""
    return decode_row(state_from_json, state, f"The state of a channel of {conversation!r}", DOCTOR_HINT)


def load_rows(tx: Transaction, layout: Iterable[RowRange]) -> list[StoredRow]:
    """Return the rows of an epoch, in order."""
    rows = _rows(tx, layout, "wire")
    packed = [item.place for _, row, wire in rows if row.packed and wire for item in row.items]
    bodies = load_bodies(tx, list(dict.fromkeys(packed))) if packed else {}
    chunks: dict[tuple[int, bytes], bytes] = {}  # epochs repeat rows
    found: list[StoredRow] = []
    for where, row, wire in rows:
        if row.packed and wire:
            key = (id(row), wire)
            if (chunk := chunks.get(key)) is None:
                chunk = chunks[key] = _unpacked(row, wire, bodies)
            wire = chunk
        found.append(StoredRow(where, row, wire))
    return found


def load_bodies(tx: Transaction, places: Sequence[int]) -> dict[int, bytes]:
    """Return the stored bytes of messages by place."""
    found: dict[int, bytes] = {}
    for start in range(0, len(places), BODIES_PER_QUERY):
        some = places[start : start + BODIES_PER_QUERY]
        marks = ", ".join("?" * len(some))
        found |= {
            where: body.encode() if isinstance(body, str) else bytes(body)  # text only if it was changed from outside
            for where, body in tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *some)
        }
    return found


def _unpacked(row: LedgerRow, wire: bytes, bodies: Mapping[int, bytes]) -> bytes:
    known = b"".join([bodies.get(item.place, b"") for item in row.items])
    return decode_row(lambda stored: unpack_wire(stored, known), bytes(wire), ROW_LABEL)


def load_row_items(tx: Transaction, layout: Iterable[RowRange]) -> list[tuple[int, LedgerRow, int]]:
    """Return the rows of an epoch without their wire form: place, row, and number of wire bytes."""
    return [(where, row, row.packed or size) for where, row, size in _rows(tx, layout, "length(wire)")]


def _rows(
    tx: Transaction, layout: Iterable[RowRange], what: str
) -> list[tuple[int, LedgerRow, Any]]:  # Any: the type of the column
    rows = [
        row
        for channel, first, last in layout
        for row in tx.rows(
            f"SELECT place, items, {what} FROM shown WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(channel, first),
            make_place(channel, last),
        )
    ]
    # decoding all rows at once takes half the time; equal ones, which epochs repeat, are decoded once
    distinct = list(dict.fromkeys([items for _, items, _ in rows]))
    decoded = decode_row(lambda given: rows_from_json(b"[%b]" % b",".join(given)), distinct, ROW_LABEL)
    known = dict(zip(distinct, decoded, strict=True))
    return [(where, known[items], found) for where, items, found in rows]


def write_rows(tx: Transaction, channel: int, first: int, rows: Sequence[tuple[LedgerRow, bytes]]) -> None:
    if len(rows) == 1:
        row, wire = rows[0]
        sql = "INSERT INTO shown (place, items, wire) VALUES (?, ?, ?)"
        tx.send(sql, make_place(channel, first), row_to_json(row), wire)
    elif rows:
        tx.run_many(
            "INSERT INTO shown (place, items, wire) VALUES (?, ?, ?)",
            [(make_place(channel, first + index), row_to_json(row), wire) for index, (row, wire) in enumerate(rows)],
        )


def create_channel(tx: Transaction, channel: Channel, standing: ChannelState) -> int:
    """Create a channel at version 1 and return its number; 0 if another writer created it first."""
    row = tx.row(
        "INSERT INTO channel (conversation, agent, provider, model, directory, version, state)"
        " VALUES (?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO NOTHING RETURNING number",
        *channel,
        state_to_json(standing),
    )
    return row[0] if row else 0


def update_state(
    tx: Transaction, number: int, version: int, standing: ChannelState, *, open_attempt: OpenAttempt | None = None
) -> bool:
    """Write the state of a channel and its open attempt. Returns False if it is no longer at `version`."""
    return tx.run(UPDATE_STATE, *_state_values(number, version, standing, open_attempt)) == 1


def replace_state(tx: Transaction, number: int, standing: ChannelState, *, close_attempt: bool) -> None:
    """Write the state of a channel at whatever version, and close its open attempt if it is unreadable too."""
    attempt = "attempt = NULL, " if close_attempt else ""
    sql = f"UPDATE channel SET {attempt}version = version + 1, state = ? WHERE number = ?"
    tx.run(sql, state_to_json(standing), number)


def update_locked_state(
    tx: Transaction, number: int, version: int, standing: ChannelState, *, open_attempt: OpenAttempt | None = None
) -> None:
    """Write the state of a channel that this transaction has locked at `version`, and its open attempt."""
    tx.send(UPDATE_STATE, *_state_values(number, version, standing, open_attempt))


def _state_values(
    number: int, version: int, standing: ChannelState, open_attempt: OpenAttempt | None
) -> tuple[bytes, bytes | None, int, int]:
    attempt = None if open_attempt is None else _encode_attempt(open_attempt)
    return state_to_json(standing), attempt, number, version


def save_head(tx: Transaction, channel: int, name: bytes, body: bytes) -> None:
    tx.send("INSERT INTO head (channel, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", channel, name, body)


def load_head(tx: Transaction, channel: int, name: bytes) -> bytes | None:
    row = tx.row("SELECT body FROM head WHERE channel = ? AND hash = ?", channel, name)
    return bytes(row[0]) if row else None


def save_replaced(tx: Transaction, channel: int, request: int, body: bytes) -> None:
    """Store a whole request that differs from its rows."""
    tx.send("INSERT INTO replaced (place, body) VALUES (?, ?)", make_place(channel, request), body)


def load_replaced(tx: Transaction, channel: int, request: int) -> bytes | None:
    row = tx.row("SELECT body FROM replaced WHERE place = ?", make_place(channel, request))
    return bytes(row[0]) if row else None


def save_manifest(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.send("INSERT INTO manifest (place, body) VALUES (?, ?)", make_place(channel, number), body)


def replace_manifest(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.run("UPDATE manifest SET body = ? WHERE place = ?", body, make_place(channel, number))


def load_manifests(
    tx: Transaction, channel: int, until: int = FIRST_UNANSWERED, *, limit: int | None = None
) -> list[bytes]:
    """Return the manifests of a channel up to a request, newest first; the last few of them, or all."""
    rows = tx.rows(
        "SELECT body FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC"
        + (f" LIMIT {limit}" if limit is not None else ""),
        make_place(channel, 0),
        make_place(channel, until),
    )
    return decode_rows(_checked_body, [body for (body,) in rows], "The manifest of a request")


def load_unanswered(tx: Transaction, channel: int, number: int | None = None) -> tuple[int, bytes] | None:
    """Return an unanswered request by its number; by default the last stored one, with its number."""
    low, high = (FIRST_UNANSWERED + 1, SEQ_MASK) if number is None else (number, number)
    row = tx.row(
        "SELECT place, body FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        make_place(channel, low),
        make_place(channel, high),
    )
    return (row[0] & SEQ_MASK, _checked_body(row[1])) if row else None


def next_unanswered_row(tx: Transaction, channel: int) -> int:
    """Return the next free row number for unanswered requests."""
    low, high = make_place(channel, FIRST_UNANSWERED + 1), make_place(channel, SEQ_MASK)
    row = tx.row("SELECT max(place) FROM shown WHERE place BETWEEN ? AND ?", low, high)
    return (row[0] & SEQ_MASK) + 1 if row and row[0] is not None else FIRST_UNANSWERED + 1


def _checked_body(body: bytes) -> bytes:
    """Return the body if it is valid JSON. The caller decodes it."""
    body = unpack_record(bytes(body))
    _check_json(body)
    return body


def save_attempt(tx: Transaction, number: int, attempt: OpenAttempt) -> None:
    """Store the attempt of a channel."""
    tx.send("UPDATE channel SET attempt = ? WHERE number = ?", _encode_attempt(attempt), number)


def save_attempt_if_unchanged(
    store: Store, number: int, version: int, attempt: OpenAttempt, seen: OpenAttempt | None
) -> bool:
    """Store the attempt with one statement, if the channel is at `version` and has no other attempt than `seen`.

    Returns False if that is not the case.
    """
    sql = "UPDATE channel SET attempt = ? WHERE number = ? AND version = ? AND (attempt IS NULL OR attempt = ?)"
    before = b"" if seen is None else _encode_attempt(seen)
    return bool(number) and store.try_write_statement(sql, _encode_attempt(attempt), number, version, before)


def save_failure(tx: Transaction, number: int, token: str, error: str, stored_as: int = 0) -> None:
    """Record why a request failed, and the number under which it was stored.

    It is unknown how much of it a session received, so the attempt stays open.
    """
    row = tx.row(f"SELECT attempt FROM channel WHERE number = ?{tx.dialect.row_lock}", number)
    attempt = decode_attempt(row[0]) if row else None
    if attempt is not None and attempt.token == token:
        save_attempt(tx, number, replace(attempt, error=error, kept=stored_as))


def decode_attempt(stored: bytes | None) -> OpenAttempt | None:
    if stored is None:
        return None
    return decode_row(_decode_attempt, stored, "The open attempt of a channel", DOCTOR_HINT)


def load_channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, ChannelState, OpenAttempt | None]]:
    """Return number, name, state and attempt of all channels of a conversation."""
    return [
        (number, channel, decode_state(conversation, state), decode_attempt(attempt))
        for number, channel, state, attempt in load_encoded_channels(tx, conversation)
    ]


def load_encoded_channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, bytes, bytes | None]]:
    """Return number, name, and encoded state and attempt of all channels of a conversation."""
    rows = tx.rows(
        "SELECT number, agent, provider, model, directory, state, attempt FROM channel WHERE conversation = ?"
        " ORDER BY number",
        conversation,
    )
    return [(number, Channel(conversation, *name), state, attempt) for number, *name, state, attempt in rows]


def recover_counters(tx: Transaction, channel: int) -> ChannelState:
    """Return a state for a channel whose own one cannot be read: no session, and numbers that are still free."""

    def last(table: str) -> int:
        low, high = make_place(channel, 0), make_place(channel, FIRST_UNANSWERED)
        row = tx.row(f"SELECT max(place) FROM {table} WHERE place BETWEEN ? AND ?", low, high)
        return row[0] & SEQ_MASK if row and row[0] is not None else 0

    requests = last("manifest")
    return ChannelState(requests=requests, rows=last("shown"), epoch=requests)

"""Responses as they arrived: the first bytes, and when each piece came. Functions over a transaction.

Only responses to requests of other software are kept. contextc stores the replies to its own requests as messages. A
row is compressed and bounded. It is what a program got, without transfer encoding and compression, and with the
credentials of its request masked. Redaction in a conversation removes the rows of its whole tree, because a text may
be split between pieces.
"""

import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from contextc.store.message_log import SEQ_MASK, bytes_or_none, decode_row, make_place
from contextc.store.transaction_engine import Transaction

MAX_BYTES = 256 << 10
"""Bytes of a response that are kept."""
MAX_PIECES = 2_000
LEVEL = 6

Piece = tuple[int, int]
"""Milliseconds since the request was sent, and the number of bytes."""


class RawReply(Struct, frozen=True, kw_only=True, array_like=True):
    """A response: its HTTP status (0: unknown), its size, its first bytes, and the pieces in which these arrived.

    Without known times, there are no `pieces`.
    """

    status: int
    size: int
    data: bytes
    pieces: list[Piece]


_raw_from_msgpack = msgspec.msgpack.Decoder(RawReply).decode


def pack_raw_reply(data: bytes, pieces: Sequence[Piece] = (), *, status: int = 0) -> bytes:
    """Return a response as it is stored. Pieces that do not add up to its bytes are left out."""
    kept = data[:MAX_BYTES]
    found = _merge(pieces, len(kept)) if sum([size for _, size in pieces]) == len(data) else []
    raw = RawReply(status=status, size=len(data), data=kept, pieces=found)
    return zlib.compress(msgspec.msgpack.encode(raw), LEVEL)


def _merge(pieces: Sequence[Piece], length: int) -> list[Piece]:
    """Return pieces of the first bytes. Those of the same time are one; of too many, neighbours are joined."""
    found: list[Piece] = []
    left = length
    for time, size in pieces:
        size = min(size, left)
        left -= size
        if not size:
            continue
        if found and found[-1][0] == time:
            found[-1] = (time, found[-1][1] + size)
        else:
            found.append((time, size))
    while len(found) > MAX_PIECES:
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        found = [(pair[-1][0], sum([size for _, size in pair])) for pair in pairs]
    return found


def save_raw_reply(tx: Transaction, channel: int, request: int, packed: bytes) -> None:
    tx.run(
        "INSERT INTO main.raw_reply (place, body) VALUES (?, ?) ON CONFLICT (place) DO NOTHING",
        make_place(channel, request),
        packed,
    )


def load_raw_reply(tx: Transaction, channel: int, request: int) -> RawReply | None:
    """Return the response to a request, None if it is not kept. Raises `StoreCorrupt`."""
    row = tx.row("SELECT body FROM main.raw_reply WHERE place = ?", make_place(channel, request))
    packed = bytes_or_none(row[0]) if row is not None else None
    return None if packed is None else decode_row(_unpack, packed, "RawReply")


def delete_raw_replies(tx: Transaction, channel: int) -> None:
    """Remove the responses of a channel."""
    low, high = make_place(channel, 0), make_place(channel, SEQ_MASK)
    tx.run("DELETE FROM main.raw_reply WHERE place BETWEEN ? AND ?", low, high)


def _unpack(packed: bytes) -> RawReply:
    try:
        return _raw_from_msgpack(zlib.decompress(packed))
    except zlib.error as error:
        raise ValueError(str(error)) from error

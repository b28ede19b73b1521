"""Decoding of database rows. A row that cannot be decoded raises `StoreCorrupt` with its location and a fix.

Other programs can write to the database. Rows are therefore validated here: a body may not be JSON, a number may be a
text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import MsgspecError

from contextc.errors import StoreCorrupt
from contextc.messages import Message, from_json
from contextc.store.base import Transaction

Value = TypeVar("Value")
Source = TypeVar("Source")

SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1
UNREADABLE = (MsgspecError, UnicodeDecodeError, TypeError, RecursionError)
"""Exceptions that a decoder raises for an invalid body."""
LOOK = "Run `contextc doctor` to list the damage and the possible repairs."


def read_message(tx: Transaction, where: int, body: bytes) -> Message:
    """Decode the message at a place."""
    try:
        return from_json(body)
    except UNREADABLE as error:
        raise unreadable(tx, where, error) from error


def read_messages(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, Message]]:
    """Decode messages. Return them with their places."""
    try:
        return [(where, from_json(body)) for where, body in rows]
    except UNREADABLE:  # decode one by one to name the unreadable one
        return [(where, read_message(tx, where, body)) for where, body in rows]


def unreadable(tx: Transaction, where: int, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"{_named(tx, where)} cannot be read: {_told(error)}", fix=LOOK)


def mismatched(tx: Transaction, where: int) -> StoreCorrupt:
    """Return the error for a row that was changed after it was stored."""
    return StoreCorrupt(f"{_named(tx, where)} does not match its hash: the row was changed or damaged", fix=LOOK)


def _named(tx: Transaction, where: int) -> str:
    branch, seq = where >> SEQ_BITS, where & SEQ_MASK
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    whose = f" of {row[0]!r}" if row and row[0] else ""
    return f"Message {seq} on branch {branch}{whose}"


def read_as(decode: Callable[[Source], Value], body: Source, what: str) -> Value:
    """Decode a row other than a message. `what` names it in the error."""
    try:
        return decode(body)
    except (*UNREADABLE, ValueError) as error:
        raise StoreCorrupt(f"{what} cannot be read: {_told(error)}", fix="Restore a backup of the store.") from error


def read_all(decode: Callable[[bytes], Value], bodies: Iterable[bytes], what: str) -> list[Value]:
    return read_as(lambda given: [decode(body) for body in given], bodies, what)


def as_bytes(value: object) -> bytes | None:
    """Return the value if it is bytes, otherwise None."""
    return value if isinstance(value, bytes) else None


def as_id(value: object) -> bytes:
    """Return the id of a message as bytes. A value of another type becomes bytes that match no id."""
    return value if isinstance(value, bytes) else str(value).encode()


def _told(error: Exception) -> str:
    return str(error).rstrip(".")

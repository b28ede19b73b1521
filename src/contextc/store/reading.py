"""Rows read back. What cannot be read is `StoreCorrupt`, and says whose it is, where it stands and the way out.

A database gives back what somebody wrote into it, and not only we can write there. So nothing of a row is believed
before it is read here: a body may be no JSON, a number a text.
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
"""What a decoder raises for a body that is not what it should be."""
LOOK = "Run `contextc doctor`: it says what is wrong, and what healing would do."


def read_message(tx: Transaction, where: int, body: bytes) -> Message:
    """The message that stands at a place."""
    try:
        return from_json(body)
    except UNREADABLE as error:
        raise unreadable(tx, where, error) from error


def read_messages(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, Message]]:
    """Messages with their places."""
    try:
        return [(where, from_json(body)) for where, body in rows]
    except UNREADABLE:  # one of them, and now it is worth the time to say which
        return [(where, read_message(tx, where, body)) for where, body in rows]


def unreadable(tx: Transaction, where: int, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"{_named(tx, where)} cannot be read: {_told(error)} {LOOK}")


def mismatched(tx: Transaction, where: int) -> StoreCorrupt:
    """The error for a row whose content was changed after it was stored."""
    return StoreCorrupt(f"{_named(tx, where)} does not match its hash: the row was changed or damaged. {LOOK}")


def _named(tx: Transaction, where: int) -> str:
    branch, seq = where >> SEQ_BITS, where & SEQ_MASK
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    whose = f" of {row[0]!r}" if row and row[0] else ""
    return f"Message {seq} on branch {branch}{whose}"


def read_as(decode: Callable[[Source], Value], body: Source, what: str) -> Value:
    """Another row than a message; `what` it is, is said where it cannot be read."""
    try:
        return decode(body)
    except (*UNREADABLE, ValueError) as error:
        raise StoreCorrupt(f"{what} cannot be read: {_told(error)} Restore a copy of the store.") from error


def read_all(decode: Callable[[bytes], Value], bodies: Iterable[bytes], what: str) -> list[Value]:
    return read_as(lambda given: [decode(body) for body in given], bodies, what)


def as_bytes(value: object) -> bytes | None:
    """A blob as it should be; None where something else stands in its place."""
    return value if isinstance(value, bytes) else None


def as_id(value: object) -> bytes:
    """The id of a message. One of another type is no id of ours, and is not held for one."""
    return value if isinstance(value, bytes) else str(value).encode()


def _told(error: Exception) -> str:
    return f"{str(error).rstrip('.')}."

"""Decoding of database rows. A row that cannot be decoded raises `StoreCorrupt` with its location and a fix.

Other programs can write to the database. Rows are therefore validated here: a body may not be JSON, a number may be a
text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import MsgspecError

from contextc.errors import StoreCorrupt
from contextc.messages import Message, decode_message
from contextc.store.types import Transaction

Value = TypeVar("Value")
Source = TypeVar("Source")

SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1
DECODE_ERRORS = (MsgspecError, UnicodeDecodeError, TypeError, RecursionError)
"""Exceptions that a decoder raises for an invalid body."""
DOCTOR_HINT = "Run `contextc doctor` to list the damage and the possible repairs."


def decode_message_row(tx: Transaction, where: int, body: bytes) -> Message:
    """Decode the message at a place."""
    try:
        return decode_message(body)
    except DECODE_ERRORS as error:
        raise unreadable_error(tx, where, error) from error


def decode_message_rows(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, Message]]:
    """Decode messages. Return them with their places."""
    try:
        return [(where, decode_message(body)) for where, body in rows]
    except DECODE_ERRORS:  # decode one by one to name the unreadable one
        return [(where, decode_message_row(tx, where, body)) for where, body in rows]


def unreadable_error(tx: Transaction, where: int, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"{_describe_place(tx, where)} cannot be read: {_error_text(error)}", fix=DOCTOR_HINT)


def hash_mismatch_error(tx: Transaction, where: int) -> StoreCorrupt:
    """Return the error for a row that was changed after it was stored."""
    return StoreCorrupt(
        f"{_describe_place(tx, where)} does not match its hash: the row was changed or damaged", fix=DOCTOR_HINT
    )


def _describe_place(tx: Transaction, where: int) -> str:
    branch, seq = where >> SEQ_BITS, where & SEQ_MASK
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    whose = f" of {row[0]!r}" if row and row[0] else ""
    return f"Message {seq} on branch {branch}{whose}"


def decode_row(decode: Callable[[Source], Value], body: Source, what: str) -> Value:
    """Decode a row other than a message. `what` names it in the error."""
    try:
        return decode(body)
    except (*DECODE_ERRORS, ValueError) as error:
        raise StoreCorrupt(
            f"{what} cannot be read: {_error_text(error)}", fix="Restore a backup of the store."
        ) from error


def decode_rows(decode: Callable[[bytes], Value], bodies: Iterable[bytes], what: str) -> list[Value]:
    return decode_row(lambda given: [decode(body) for body in given], bodies, what)


def bytes_or_none(value: object) -> bytes | None:
    """Return the value if it is bytes, otherwise None."""
    return value if isinstance(value, bytes) else None


def to_id(value: object) -> bytes:
    """Return the id of a message as bytes. A value of another type becomes bytes that match no id."""
    return value if isinstance(value, bytes) else str(value).encode()


def _error_text(error: Exception) -> str:
    return str(error).rstrip(".")

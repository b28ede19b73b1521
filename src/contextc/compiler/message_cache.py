"""Messages that were read from the store lately, and what was derived from each of them alone.

Where a context is trimmed, every message of the window is read again: its words, facts and tokens are those of the last
time. The cache finds a message by its stored bytes, so one that was redacted or repaired is another message. It is
shared by all stores of the process, and bounded by the size of these bytes; the oldest ones go first.

    message = cache.decode(body)                     a message that is known, or a new one
    facts = derive(message, find_mentions)           computed once, as long as the cache has the message
"""

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import TypeVar, cast

from msgspec import Struct

from contextc.messages import Message
from contextc.messages import decode_message as decode_body
from contextc.store import message_log
from contextc.store.transaction_engine import Transaction

MAX_BYTES, MAX_BODY = 4 << 20, 1 << 16
"""Stored bytes of all messages in the cache, and of one of them."""
BODY_BYTES = 200
"""Bytes that a message counts besides its own, so that many small ones are bounded too."""
MIN_ROWS = 32
"""Fewer messages than this, read at a time, are not kept: most conversations are never trimmed."""

Value = TypeVar("Value")


class _KnownMessage(Struct, gc=False):
    body: bytes
    message: Message
    derived: dict[object, object] = {}


class MessageCache:
    """Finds messages by their stored bytes, and what was derived of them by their identity."""

    def __init__(self) -> None:
        self._by_body: dict[bytes, _KnownMessage] = {}
        self._by_identity: dict[int, _KnownMessage] = {}
        self._size = 0
        self._lock = Lock()

    def find(self, body: bytes) -> Message:
        """Return the message of a stored body. It is not added."""
        known = self._by_body.get(body)
        return known.message if known is not None else decode_body(body)

    def decode(self, body: bytes) -> Message:
        """Return the message of a stored body, and keep it."""
        known = self._by_body.get(body)
        return known.message if known is not None else self._add(body)

    def _add(self, body: bytes) -> Message:
        message = decode_body(body)
        if type(body) is not bytes or len(body) > MAX_BODY:
            return message
        with self._lock:
            known = self._by_body.get(body)
            if known is not None:
                return known.message
            self._by_body[body] = self._by_identity[id(message)] = _KnownMessage(body, message)
            self._size += len(body) + BODY_BYTES
            while self._size > MAX_BYTES:
                oldest = self._by_body.pop(next(iter(self._by_body)))
                del self._by_identity[id(oldest.message)]
                self._size -= len(oldest.body) + BODY_BYTES
        return message

    def derive(self, message: Message, compute: Callable[..., Value], *given: Hashable) -> Value:
        """Return what a function computes from a message and what is given: once, if the cache has the message."""
        known = self._by_identity.get(id(message))
        if known is None or known.message is not message:
            return compute(message, *given)
        call = (compute, *given) if given else compute
        found = known.derived.get(call)
        if found is None:
            found = known.derived[call] = compute(message, *given)
        return cast(Value, found)

    def clear(self) -> None:
        with self._lock:
            self._by_body.clear()
            self._by_identity.clear()
            self._size = 0


cache = MessageCache()
derive = cache.derive


def decode_message_rows(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, Message]]:
    """Decode stored messages. Return them with their places."""
    try:
        decode = cache.decode if len(rows) >= MIN_ROWS else cache.find
        return [(where, decode(body)) for where, body in rows]
    except message_log.DECODE_ERRORS:  # the error names the message
        return message_log.decode_message_rows(tx, rows)

"""Encoders of streamed replies: the stream that a client of a format expects, from the deltas of any provider's reply.

A reply is a sequence of texts and calls. Reasoning is not passed on: only its provider can verify it, and a client
might send it to another one. It becomes an event without content, so that the client knows that the reply continues.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

from contextc._json import JSON, JSONObject, encode
from contextc.formats.stream import Delta
from contextc.messages import Message, Text, ToolCall

BlockKey: TypeAlias = tuple[str, str]
"""The kind of a block, "text" or "call", and the id of the call."""
TEXT: BlockKey = ("text", "")


class ReplyStream(ABC):
    """Encodes one reply. `request` is the client's request, `model` and `id` are those of the reply.

    With `interleaved`, the provider may send pieces of several calls in turn. Then what follows a call is kept until
    the end, because a format may allow only one open block.
    """

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    def __init__(
        self, request: JSONObject, model: str, id: str, *, created: int = 0, interleaved: bool = False
    ) -> None:
        self.request, self.model, self.id, self.created = request, model, id, created
        self._interleaved = interleaved
        self._open: BlockKey | None = None
        self._name = ""
        self._pieces: list[str] = []
        self._kept: dict[BlockKey, list[Delta]] = {}

    @abstractmethod
    def begin(self) -> bytes:
        """Return the beginning of the stream."""

    def add(self, delta: Delta) -> bytes:
        """Return the events of a delta. Ids and names are those of the client."""
        if not isinstance(delta, Text | ToolCall):
            return self.keep_alive()
        key = TEXT if isinstance(delta, Text) else ("call", delta.id)
        if self._interleaved and self._open is not None and self._open != TEXT and key != self._open:
            self._kept.setdefault(key, []).append(delta)
            return b""
        return self._write(key, delta)

    def end(self, message: Message) -> bytes:
        """Return the rest of the stream. `message` is the whole reply."""
        rest = [self._write(key, delta) for key, deltas in self._kept.items() for delta in deltas]
        return b"".join([*rest, self._close(), self._end(message)])

    def whole(self, message: Message) -> JSONObject | None:
        """Return the reply as one object after the end of the stream; None if `encode_reply` makes it."""
        return None

    def keep_alive(self) -> bytes:
        """Return an event without content."""
        return b": \n\n"

    @abstractmethod
    def fail(self, error: JSONObject) -> bytes:
        """Return the event of an error after the stream has begun. `error` is the body of an error in this format."""

    def _write(self, key: BlockKey, delta: Delta) -> bytes:
        made: list[bytes] = []
        if key != self._open:
            made.append(self._close())
            self._open, self._name = key, delta.name if isinstance(delta, ToolCall) else ""
            made.append(self._begin_call(key[1], self._name) if isinstance(delta, ToolCall) else self._begin_text())
        piece = delta.text if isinstance(delta, Text) else _written(delta) if isinstance(delta, ToolCall) else ""
        if piece:
            self._pieces.append(piece)
            made.append(self._add_arguments(piece) if isinstance(delta, ToolCall) else self._add_text(piece))
        return b"".join(made)

    def _close(self) -> bytes:
        key, whole = self._open, "".join(self._pieces)
        self._open, self._pieces = None, []
        if key is None:
            return b""
        return self._end_text(whole) if key == TEXT else self._end_call(key[1], self._name, whole)

    @abstractmethod
    def _begin_text(self) -> bytes: ...
    @abstractmethod
    def _add_text(self, piece: str) -> bytes: ...
    @abstractmethod
    def _end_text(self, whole: str) -> bytes: ...
    @abstractmethod
    def _begin_call(self, id: str, name: str) -> bytes: ...
    @abstractmethod
    def _add_arguments(self, piece: str) -> bytes: ...
    @abstractmethod
    def _end_call(self, id: str, name: str, whole: str) -> bytes: ...
    @abstractmethod
    def _end(self, message: Message) -> bytes: ...


def _written(call: ToolCall) -> str:
    return call.raw if call.raw is not None else encode(call.arguments).decode()


def server_sent_event(data: JSON, name: str = "", line_end: bytes = b"\n") -> bytes:
    """Return an event of a stream."""
    head = b"event: " + name.encode() + line_end if name else b""
    return head + b"data: " + encode(data) + line_end * 2

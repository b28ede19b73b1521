"""A reply while it comes: what each event of a stream adds, and the whole of what came so far.

Deltas are for those who watch; the message is read from all events in one go, as `decode_stream` does it, so that what
is stored does not depend on who was watching. What is shown live is the text, the reasoning and the calls of that
message: joined, the deltas are the same. A provider may also answer with a whole reply where a stream was asked for;
it is read like a stream of one event.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Protocol, TypeAlias

from contextc._json import JSONObject
from contextc.formats.spelling import Speller
from contextc.messages import Message, Reasoning, Text, ToolCall, tool_call

Delta: TypeAlias = Text | Reasoning | ToolCall


class Decodes(Protocol):
    """What a reader needs of its formatter."""

    spelling: ClassVar[Speller]
    provider: str

    def decode_stream(self, events: Iterable[object]) -> Message: ...

    def decode_reply(self, reply: object) -> Message: ...


class Reader(ABC):
    """Reads one reply. A format says what an event adds, and which events are the last ones."""

    def __init__(self, formatter: Decodes) -> None:
        self.formatter = formatter
        self.events: list[JSONObject] = []
        self.finished = False
        """Whether the provider said that this was all."""
        self.error: JSONObject | None = None
        """The event that said what went wrong, as it came."""
        self._whole: JSONObject | None = None

    def read(self, event: JSONObject) -> list[Delta]:
        """What this event adds."""
        self.events.append(event)
        if is_error(event):
            self.error = event
        elif self._is_whole(event):
            self._whole, self.finished = event, True
            return [part for part in self.message().parts if isinstance(part, Text | Reasoning | ToolCall)]
        return [self._read_back(delta) for delta in self._deltas(event)]

    def message(self) -> Message:
        """The whole reply so far."""
        if self._whole is not None:
            return self.formatter.decode_reply(self._whole)
        return self.formatter.decode_stream(self.events)

    def _is_whole(self, event: JSONObject) -> bool:
        """Whether this is a reply that was not streamed."""
        return False

    @abstractmethod
    def _deltas(self, event: JSONObject) -> Iterable[Delta]: ...

    def _read_back(self, delta: Delta) -> Delta:
        if not isinstance(delta, ToolCall):
            return delta
        names, ids = self.formatter.spelling.names, self.formatter.spelling.ids
        name = names.read(delta.name) if names is not None else delta.name
        call_id = ids.read(delta.id) if ids is not None else delta.id
        if (name, call_id) == (delta.name, delta.id):
            return delta
        return tool_call(call_id, name, delta.arguments if delta.raw is None else delta.raw)


class Growing:
    """A call whose arguments come in pieces. A piece is given when the call can be named."""

    def __init__(self) -> None:
        self.written = self.given = 0
        self._waiting: list[str] = []
        self._named = False

    def add(self, piece: str) -> None:
        self.written += len(piece)
        self._waiting.append(piece)

    def take(self, call_id: str, name: str) -> Iterable[ToolCall]:
        """What is to be given now; the first piece may be empty, and says that there is a call."""
        if not call_id or not name or (self._named and self.given == self.written):
            return
        piece = "".join(self._waiting)
        self._waiting, self._named, self.given = [], True, self.written
        yield tool_call(call_id, name, piece)


def is_error(event: JSONObject) -> bool:
    """Whether an event says that the reply failed, in any provider's way of saying so."""
    return bool(event.get("error")) or event.get("type") in ("error", "response.failed")

"""A reply while it comes: what each event of a stream adds, and the whole of what came so far.

Deltas are for those who watch; the message is read from all events in one go, as `decode_stream` does it, so that what
is stored does not depend on who was watching. What is shown live is the text, the reasoning and the calls of that
message: joined, the deltas are the same. A provider may also answer with a whole reply where a stream was asked for;
it is read like a stream of one event.

A provider that runs tools by itself answers with several messages: calls, their results, and the final words. One that
keeps a session says its name, and where it stands.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Protocol, TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.spelling import Speller
from contextc.messages import Message, Reasoning, Text, ToolCall, ToolResult, tool_call

Delta: TypeAlias = Text | Reasoning | ToolCall | ToolResult
NOTE = "contextc.note"


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
        self.session = ""
        """The provider's name for the session that this reply belongs to, as far as it has said."""
        self.cursor = ""
        """Where that session stands after this reply, in the provider's words."""
        self.compacted = False
        """Whether the provider shortened its own history on the way."""
        self.at: int | None = None
        """Which of its messages the last deltas belong to, from 0 as they began; None where results part them."""
        self.begun: list[int] = []
        """Of each assistant message that `messages` gave last, how manieth it was to begin, where `at` is told."""
        self.notes: list[str] = []
        """What happened on the way that the account of the request should tell."""
        self._whole: JSONObject | None = None

    def read(self, event: JSONObject) -> list[Delta]:
        """What this event adds."""
        if event.get("type") == NOTE:
            self.notes.append(event["text"])
            return []
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

    def messages(self) -> list[Message]:
        """All messages of the reply so far, in order: those of a provider that runs tools by itself; `message` is the
        last of them.
        """
        return [self.message()]

    def _is_whole(self, event: JSONObject) -> bool:
        """Whether this is a reply that was not streamed."""
        return False

    @abstractmethod
    def _deltas(self, event: JSONObject) -> Iterable[Delta]: ...

    def _read_back(self, delta: Delta) -> Delta:
        if isinstance(delta, ToolResult):
            return replace(delta, call_id=self._id(delta.call_id), name=self._name(delta.name))
        if not isinstance(delta, ToolCall):
            return delta
        name, call_id = self._name(delta.name), self._id(delta.id)
        if (name, call_id) == (delta.name, delta.id):
            return delta
        return tool_call(call_id, name, delta.arguments if delta.raw is None else delta.raw)

    def _name(self, name: str) -> str:
        names = self.formatter.spelling.names
        return names.read(name) if names is not None else name

    def _id(self, call_id: str) -> str:
        ids = self.formatter.spelling.ids
        return ids.read(call_id) if ids is not None else call_id


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


def note(text: str) -> JSONObject:
    """An event of ours among a provider's own: something the account of the request should tell."""
    return {"type": NOTE, "text": text}


def is_error(event: JSONObject) -> bool:
    """Whether an event says that the reply failed, in any provider's way of saying so."""
    if event.get("error") or event.get("type") in ("error", "response.failed") or event.get("object") == "error":
        return True
    choices: JSON = event.get("choices")  # a gateway tells in one of them what it was told itself
    return isinstance(choices, list) and any(
        isinstance(each, dict) and bool(cast(JSONObject, each).get("error")) for each in cast(list[JSON], choices)
    )

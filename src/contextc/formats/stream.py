"""Readers of streamed replies: the delta of each event, and the message so far.

Deltas are for live display. The stored message is decoded from all events at once, as `decode_stream` does, so it does
not depend on the display. Text, reasoning and calls of the joined deltas equal those of the message. A provider may
answer a streaming request with a whole reply, which is read like a stream of one event.

A provider that runs tools itself answers with several messages: calls, their results, and the final text. A provider
with sessions also sends the session's id and position.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol, TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, fix_surrogates, id_text
from contextc.errors import InvalidInput
from contextc.formats.identifiers import NameCodec
from contextc.messages import Message, Reasoning, Text, ToolCall, ToolResult, tool_call

Delta: TypeAlias = Text | Reasoning | ToolCall | ToolResult
NOTE_EVENT = "contextc.note"


class StreamDecoder(Protocol):
    """The methods of a formatter that a reader uses."""

    name_codec: ClassVar[NameCodec]
    provider: str

    def decode_stream(self, events: Iterable[object]) -> Message: ...

    def decode_reply(self, reply: object) -> Message: ...


class StreamReader(ABC):
    """Reads one reply. A format defines the deltas of an event, and which events end the reply."""

    session_fields: ClassVar[tuple[str, ...]] = ()
    """Request settings that name a session of the format itself. Any other one is a provider's own."""

    def __init__(self, formatter: StreamDecoder) -> None:
        self.formatter = formatter
        self.events: list[JSONObject] = []
        self.finished = False
        """True if the provider has signalled the end of the reply."""
        self.error: JSONObject | None = None
        """The event that reported an error, as received."""
        self.session = ""
        """The provider's id of the session that this reply belongs to, or "" while it is unknown."""
        self.cursor = ""
        """The position of that session after this reply, in the provider's notation."""
        self.compacted = False
        """True if the provider shortened its own history during this reply."""
        self.message_index: int | None = None
        """Index of the message that the last deltas belong to, in order of their start. None if results separate
        messages.
        """
        self.message_starts: list[int] = []
        """For each assistant message that `messages` last returned, its index in order of start, where `at` is set."""
        self.notes: list[str] = []
        """Notes for the manifest of the request."""
        self._unstreamed: JSONObject | None = None

    def read(self, event: JSONObject) -> list[Delta]:
        """Return the deltas of this event."""
        if event.get("type") == NOTE_EVENT:
            self.notes.append(fix_surrogates(str(event["text"])))
            return []
        self.events.append(event)
        if is_error(event):
            self.error = event
        elif self._is_whole(event):
            self._unstreamed, self.finished = event, True
            return [part for part in self.message().parts if isinstance(part, Text | Reasoning | ToolCall)]
        return [self._decode_names(delta) for delta in self._deltas(event)]

    def find_session(self, field: str, resumed: str = "") -> str:
        """Return the id of the session that this reply belongs to, or "".

        An event, or the reply that it contains, has it in `field`, the request setting that names the session. Without
        it, the reply belongs to the session that the request `resumed`, or to what the format itself calls its session.
        """
        is_own = bool(field) and field not in self.session_fields
        return (self._find_text(field) or resumed if is_own else "") or self.session

    def find_cursor(self, field: str) -> str:
        """Return the position of the session after this reply: the `cursor` of an event, or ""."""
        return self.cursor or (self._find_text("cursor") if field else "")

    def _find_text(self, name: str) -> str:
        """Return the last text or number of this name in an event, or in the reply that an event contains."""
        for event in reversed(self.events):
            for holder in (event, event.get("response"), event.get("message")):
                if isinstance(holder, dict) and (text := id_text(cast(JSONObject, holder).get(name))):
                    return text
        return ""

    def message(self) -> Message:
        """Return the whole reply so far."""
        if self._unstreamed is not None:
            return self.formatter.decode_reply(self._unstreamed)
        return self.formatter.decode_stream(self.events)

    def messages(self) -> list[Message]:
        """Return all messages of the reply so far, in order. `message` returns the last one.

        Only a provider that runs tools itself has several.
        """
        return [self.message()]

    def _is_whole(self, event: JSONObject) -> bool:
        """Return True if this event is a reply that was not streamed."""
        return False

    @abstractmethod
    def _deltas(self, event: JSONObject) -> Iterable[Delta]: ...

    def _decode_names(self, delta: Delta) -> Delta:
        if isinstance(delta, ToolResult):
            return replace(delta, call_id=self._id(delta.call_id), name=self._name(delta.name))
        if not isinstance(delta, ToolCall):
            return delta
        name, call_id = self._name(delta.name), self._id(delta.id)
        if (name, call_id) == (delta.name, delta.id):
            return delta
        return tool_call(call_id, name, delta.arguments if delta.raw is None else delta.raw)

    def _name(self, name: str) -> str:
        names = self.formatter.name_codec.names
        return names.decode(name) if names is not None else name

    def _id(self, call_id: str) -> str:
        ids = self.formatter.name_codec.ids
        return ids.decode(call_id) if ids is not None else call_id


class ToolCallAccumulator:
    """Accumulates the arguments of a streamed call. A piece is returned once the call's id and name are known."""

    def __init__(self) -> None:
        self.received = self.returned = 0
        self._waiting: list[str] = []
        self._named = False

    def add(self, piece: str) -> None:
        self.received += len(piece)
        self._waiting.append(piece)

    def take_new(self, call_id: str, name: str) -> Iterable[ToolCall]:
        """Yield the arguments not yet returned. The first piece may be empty, and announces the call."""
        if not call_id or not name or (self._named and self.returned == self.received):
            return
        piece = "".join(self._waiting)
        self._waiting, self._named, self.returned = [], True, self.received
        yield tool_call(call_id, name, piece)


def note_event(text: str) -> JSONObject:
    """Return an event, inserted among the provider's own, that carries a note for the manifest."""
    return {"type": NOTE_EVENT, "text": text}


def is_error(event: JSONObject) -> bool:
    """Return True if an event reports a failed reply, in the shape of any provider."""
    if event.get("error") or event.get("type") in ("error", "response.failed") or event.get("object") == "error":
        return True
    choices: JSON = event.get("choices")  # a gateway passes on an upstream error in a choice
    return isinstance(choices, list) and any(
        isinstance(each, dict) and bool(cast(JSONObject, each).get("error")) for each in cast(list[JSON], choices)
    )


def as_json(value: object) -> JSONObject:
    """Return a reply or an event of any SDK as plain data."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, JSON], value))
    # Classes of OpenAI and Anthropic have `to_dict`. Google's field names in JSON differ from those in Python.
    dumps = (("to_dict", {"mode": "json"}), ("model_dump", {"mode": "json", "by_alias": True, "exclude_none": True}))
    for name, options in dumps:
        if callable(dump := getattr(value, name, None)):
            return cast(JSONObject, dump(**options))
    raise InvalidInput(
        f"reply: expected an object of the vendor's SDK or a dict, got {type(value).__name__}",
        fix="Pass the SDK's return value, or its JSON as a dict.",
    )

"""What a wire format is: pure functions between our messages and a provider's JSON.

A history is encoded in *segments*: a reply of the model and what came after it. A segment, once encoded, never
changes, and a request is assembled from segments; encoding a whole history at once is the same thing done in one go.
What came from a provider and has no place in our types rides along in `extra`, under that provider's name, and goes
back to it alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSONObject
from contextc.formats.checking import RuleBook
from contextc.messages import Extra, Media, Message, Native, Reasoning, system
from contextc.pairing import pair
from contextc.tools import NativeTool, Tool

Done: TypeAlias = Literal["left out", "described", "moved", "made up", "tagged"]


class Note(Struct, frozen=True):
    """Something a format could not say as it was: what was done, and to what."""

    done: Done
    text: str


class Encoded(Struct, frozen=True):
    """A segment in a provider's shape, and what had to be done to fit it in."""

    messages: tuple[JSONObject, ...]
    notes: tuple[Note, ...] = ()


class Request(Struct, frozen=True, kw_only=True):
    """A request in our terms. `settings` is everything else the caller set, in the format's own words."""

    messages: tuple[Message, ...]
    system: Message | None = None
    tools: tuple[Tool | NativeTool, ...] = ()
    settings: JSONObject = {}


class Formatter(ABC):
    """One wire format, and the endpoint it is spoken to. `provider` names whose reasoning and native blocks go back."""

    name: ClassVar[str]
    rules: ClassVar[RuleBook]
    messages_key: ClassVar[str] = "messages"
    system_among_messages: ClassVar[bool] = False
    provider: str

    @abstractmethod
    def encode(self, segment: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> Encoded:
        """One segment, whose calls are paired. It depends on nothing before or after it."""

    @abstractmethod
    def join(self, segments: Iterable[Encoded]) -> list[JSONObject]:
        """The messages of a request, from sealed segments, none of which is changed."""

    @abstractmethod
    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        """The whole body: settings, system prompt, tools and messages."""

    @abstractmethod
    def encode_tool(self, tool: Tool) -> JSONObject: ...

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        """The tools a model is told about; a tool that only another provider has is left out."""
        return [
            tool.data if isinstance(tool, NativeTool) else restored(self.encode_tool(tool), tool.extra, self.provider)
            for tool in tools
            if not isinstance(tool, NativeTool) or tool.provider == self.provider
        ]

    @abstractmethod
    def decode_request(self, body: JSONObject) -> Request: ...

    @abstractmethod
    def decode_reply(self, reply: JSONObject) -> Message: ...

    @abstractmethod
    def decode_stream(self, events: Iterable[JSONObject]) -> Message:
        """The whole reply, from its events."""

    def format(self, history: Sequence[Message], system_prompt: str | None = None) -> list[JSONObject]:
        """The `messages` of a request, as the vendor's own SDK takes them."""
        head = self.encode([system(system_prompt)]).messages if self.system_among_messages and system_prompt else ()
        return [*head, *self.encode_history(history)]

    def get_system_prompt(self, system_prompt: str | None) -> str | None:
        """The system prompt where the format has a place of its own for it; None where it stands among the messages."""
        return None if self.system_among_messages else system_prompt or None

    def encode_request(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> JSONObject:
        """The whole body of a request, ready to be sent."""
        return self.assemble(request, self.encode_history(request.messages, blobs=blobs))

    def encode_history(self, history: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> list[JSONObject]:
        return self.join(self.encode(segment, blobs=blobs) for segment in segments(pair(history).messages))


def segments(history: Sequence[Message]) -> Iterator[list[Message]]:
    """A paired history, cut before each reply of the model."""
    segment: list[Message] = []
    for message in history:
        if message.role == "assistant" and segment:
            yield segment
            segment = []
        segment.append(message)
    if segment:
        yield segment


def kept(extra: Extra | None, provider: str) -> JSONObject:
    """What this provider had said beyond our types."""
    return extra.get(provider, {}) if extra else {}


def remember(original: JSONObject, ours: JSONObject, provider: str) -> Extra | None:
    """What our own encoding of a provider's object would say otherwise; null stands for what it does not say at all."""
    rest: JSONObject = {
        name: value for name, value in original.items() if value is not None and ours.get(name) != value
    }
    rest |= {name: None for name, value in ours.items() if value is not None and original.get(name) is None}
    return {provider: rest} if rest else None


def restored(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Our encoding of an object, with what its provider had said: the other half of `remember`."""
    rest = kept(extra, provider)
    if not rest:
        return ours
    return {name: value for name, value in {**ours, **rest}.items() if rest.get(name, 0) is not None}


def describe_media(media: Media) -> str:
    """One line in place of bytes that cannot be sent."""
    name = f" {media.name!r}" if media.name else ""
    size = f", {media.size:,} bytes" if media.size else ""
    where = f", {media.url}" if media.url else ""
    return f"[{media.kind}{name}: {media.mime_type}{size}{where}; not shown]"


def describe_native(native: Native) -> str:
    """One line in place of a block nobody else understands."""
    data = cast(JSONObject, native.data) if isinstance(native.data, dict) else {}
    kind = data.get("type") or next(iter(data), "block")
    return f"[{native.provider} {kind}; not shown]"


def is_foreign(reasoning: Reasoning, provider: str) -> bool:
    return reasoning.provider != provider

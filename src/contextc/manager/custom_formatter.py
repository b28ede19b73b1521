"""Custom formatters: any object with `format`, and `get_system_prompt` if the system prompt has a field of its own.

The compiler encodes a history segment by segment, and such an object encodes all of it at once. So the compiler uses
`PlainFormatter`, which writes messages as JSON. The result is decoded and passed to the object.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.errors import InvalidReply
from contextc.formats.base import EncodedSegment, Formatter, Request
from contextc.formats.identifiers import NameCodec
from contextc.messages import AnyPart, Media, Message, ToolResult
from contextc.tools.spec import Tool


@runtime_checkable
class HistoryFormatter(Protocol):
    """The interface that `MessageManager` requires of a formatter. Every `Formatter` has it.

    A second method is optional: `get_system_prompt(system_prompt)` returns the system prompt if it has a field of its
    own, and None if `format` includes it in the messages.
    """

    def format(self, history: Sequence[Message], system_prompt: str | None) -> list[Any]:
        """Return the messages of a request. Every call in `history` is followed by its result."""
        ...


class PlainFormatter(Formatter):
    """Encodes messages as JSON, one for one."""

    name: ClassVar[str] = "contextc"
    text_documents: ClassVar[tuple[str, ...]] = ("*/*",)
    name_codec: ClassVar[NameCodec] = NameCodec("contextc")
    provider = "contextc"

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        whole = [replace(each, parts=tuple([_with_media(part, blobs) for part in each.parts])) for each in segment]
        return EncodedSegment(tuple([msgspec.to_builtins(message) for message in whole]))

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        prompt = {} if request.system is None else {"system": msgspec.to_builtins(request.system)}
        return {**request.settings, **prompt, "messages": messages, "tools": self.encode_tools(request.tools)}

    def encode_tool(self, tool: Tool) -> JSONObject:
        return msgspec.to_builtins(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        fields = ("messages", "system", "tools")
        return Request(
            messages=tuple([decode_message(each) for each in body.get("messages", ())]),
            system=decode_message(body["system"]) if body.get("system") else None,
            tools=tuple([msgspec.convert(each, Tool) for each in body.get("tools", ())]),
            settings={name: value for name, value in body.items() if name not in fields},
        )

    def _is_reply(self, reply: JSONObject) -> bool:
        return reply.get("role") == "assistant" and isinstance(reply.get("parts"), list | tuple)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return decode_message(reply)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        given = list(events)
        if len(given) != 1:
            raise InvalidReply(self.name, {"events": given})
        return given[0]


def decode_message(wire: JSONObject) -> Message:
    return msgspec.convert(wire, Message)


def _with_media(part: AnyPart, blobs: Mapping[str, bytes]) -> AnyPart:
    """Return the part with the bytes of its media, if the store has them."""
    if isinstance(part, Media) and part.blob is not None and part.blob in blobs:
        return replace(part, data=blobs[part.blob], blob=None)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return replace(part, content=tuple([_with_media(each, blobs) for each in part.content]))
    return part

"""The Vercel AI SDK before version 4: `function_call`, and role `function` for results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from contextc._json import JSONObject
from contextc.formats.base import Encoded, Formatter, Request
from contextc.formats.vercel_legacy import decode
from contextc.formats.vercel_legacy.encode import encode_segment
from contextc.messages import Message
from contextc.tools import Tool


class VercelLegacyFormatter(Formatter):
    """The shape of old code and old logs. Later versions of the SDK strip `function_call` without a word."""

    name: ClassVar[str] = "vercel_legacy"
    system_among_messages: ClassVar[bool] = True

    def __init__(self, *, provider: str = "vercel_legacy") -> None:
        self.provider = provider

    def encode(self, segment: Sequence[Message], *, first: bool = False, blobs: Mapping[str, bytes] = {}) -> Encoded:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def join(self, segments: Iterable[Encoded]) -> list[JSONObject]:
        return [message for segment in segments for message in segment.messages]

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        head = self.encode([request.system]).messages if request.system is not None else ()
        body: JSONObject = {**request.settings, "messages": [*head, *messages]}
        if tools := self.encode_tools(request.tools):
            body["functions"] = tools
        return body

    def encode_tool(self, tool: Tool) -> JSONObject:
        return decode.encode_tool(tool)

    def decode_request(self, body: JSONObject) -> Request:
        return decode.decode_request(body, self.provider)

    def decode_reply(self, reply: JSONObject) -> Message:
        return decode.decode_reply([reply], self.provider)

    def decode_stream(self, events: Iterable[JSONObject]) -> Message:
        """The messages of one reply, each whole: one per call. The chunks of that time are not read."""
        return decode.decode_reply(events, self.provider)

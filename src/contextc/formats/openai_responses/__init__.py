"""OpenAI's Responses API."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from contextc._json import JSONObject
from contextc.formats.base import Encoded, Formatter, Request, restored
from contextc.formats.openai_responses import decode
from contextc.formats.openai_responses.encode import encode_held, encode_segment, encode_text, is_bare, place
from contextc.messages import Message
from contextc.tools import NativeTool, Tool


class OpenAIResponsesFormatter(Formatter):
    """The `messages` of this format are the items of `input`; the system prompt is `instructions`."""

    name: ClassVar[str] = "openai_responses"

    def __init__(self, *, provider: str = "openai") -> None:
        self.provider = provider

    def encode(self, segment: Sequence[Message], *, first: bool = False, blobs: Mapping[str, bytes] = {}) -> Encoded:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def join(self, segments: Iterable[Encoded]) -> list[JSONObject]:
        return [item for segment in segments for item in segment.messages]

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings}
        if is_bare(request.messages, self.provider):
            body["input"] = request.messages[0].text
        elif messages:
            body["input"] = messages
        if request.system is not None and (text := encode_text(request.system, self.provider)):
            body["instructions"] = text
        if tools := self.encode_tools(request.tools):
            body["tools"] = tools
        return body

    def encode_request(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> JSONObject:
        """The whole body. Results of calls that the provider holds itself are sent too, though no call stands here."""
        messages = encode_held(request, provider=self.provider, blobs=blobs)
        return self.assemble(request, self.encode_history(messages, blobs=blobs))

    def encode_tool(self, tool: Tool) -> JSONObject:
        return decode.encode_tool(tool)

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        return [
            tool.data
            if isinstance(tool, NativeTool)
            else restored(self.encode_tool(tool), tool.extra, place(self.provider))
            for tool in tools
            if not isinstance(tool, NativeTool) or tool.provider == self.provider
        ]

    def decode_request(self, body: JSONObject) -> Request:
        return decode.decode_request(body, self.provider)

    def decode_reply(self, reply: JSONObject) -> Message:
        return decode.decode_reply(reply, self.provider)

    def decode_stream(self, events: Iterable[JSONObject]) -> Message:
        return self.decode_reply(decode.gather(events))

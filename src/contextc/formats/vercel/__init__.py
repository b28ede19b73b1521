"""Vercel AI SDK format: encodes and decodes `ModelMessage`, decodes `UIMessage` and its stream."""

from collections.abc import Mapping, Sequence

from contextc._json import JSONObject
from contextc.formats.base import Codec, CodecFormatter, EncodedSegment, Request
from contextc.formats.message_preparation import NameCodec, ReasoningPolicy
from contextc.formats.vercel import codec, ui_messages
from contextc.formats.vercel.codec import (
    CARRIED_FIELDS,
    ORIGINAL_FORM,
    encode_instructions,
    encode_segment,
    seal_decided_calls,
)
from contextc.formats.vercel.request_settings import SETTINGS
from contextc.formats.vercel.rules import RULES
from contextc.messages import Message


class VercelFormatter(CodecFormatter):
    """Format of version 7 of the AI SDK. Reasoning is sent under the name of the provider that signed it."""

    name = "vercel"
    text_documents = ("*/*",)
    codec = Codec(codec.encode_tool, codec.decode_request, codec.decode_reply, ui_messages.collect_events)
    keeps_layout = False  # `UIMessage`s are decoded too, and a result belongs beside its approval
    rules = RULES
    settings = SETTINGS
    name_codec = NameCodec("vercel")
    unique_ids = True
    allows_leading_system = True
    carried_extra = CARRIED_FIELDS
    layout_extra = (ORIGINAL_FORM,)

    def __init__(self, *, provider: str = "vercel", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def with_session_results(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Sequence[Message]:
        """Return the messages; calls that a person has just approved are sent without a result, because the SDK runs
        them.
        """
        return seal_decided_calls(request.messages, provider=self.provider, blobs=blobs)

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings, "messages": messages}
        if request.system is not None:
            body |= encode_instructions(request.system, self.provider)
        if any(message["role"] == "system" for message in messages):
            body.setdefault("allowSystemInMessages", True)
        if tools := self.encode_tools(request.tools):
            own = ("name", ORIGINAL_FORM)
            body["tools"] = {
                tool["name"]: {name: value for name, value in tool.items() if name not in own}
                | tool.get(ORIGINAL_FORM, {})
                for tool in tools
            }
        return body

    def _is_reply(self, reply: JSONObject) -> bool:
        return "role" in reply and ("content" in reply or "parts" in reply)

"""Vercel AI SDK format before version 4: `function_call`, and role `function` for results."""

from collections.abc import Mapping, Sequence

from contextc._json import JSONObject
from contextc.formats.base import Codec, CodecFormatter, EncodedSegment, Request
from contextc.formats.message_preparation import NameCodec, ReasoningPolicy
from contextc.formats.vercel_legacy import codec
from contextc.formats.vercel_legacy.codec import encode_segment
from contextc.formats.vercel_legacy.request_settings import SETTINGS
from contextc.formats.vercel_legacy.rules import RULES
from contextc.messages import Message


class VercelLegacyFormatter(CodecFormatter):
    """Format of old code and old logs. Later versions of the SDK silently remove `function_call`."""

    name = "vercel_legacy"
    text_documents = ("*/*",)
    codec = Codec(codec.encode_tool, codec.decode_request, codec.decode_reply, codec.collect_messages)
    rules = RULES
    settings = SETTINGS
    name_codec = NameCodec("vercel_legacy")
    unique_ids = True
    system_among_messages = True
    allows_leading_system = True
    strict_tools = False

    def __init__(self, *, provider: str = "vercel_legacy", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        return self._body_with_system_message(request, messages, "functions")

    def _is_reply(self, reply: JSONObject) -> bool:
        return any(name in reply for name in ("role", "content", "function_call", "messages"))

"""Ollama's native format, `/api/chat`."""

from collections.abc import Mapping, Sequence

from contextc._json import JSONObject
from contextc.formats.base import Codec, CodecFormatter, EncodedSegment, Request, merge_function_extra
from contextc.formats.message_preparation import NameCodec, ReasoningPolicy
from contextc.formats.ollama import codec
from contextc.formats.ollama.codec import IMAGE_TYPES, OllamaStreamReader, encode_segment, encode_tool
from contextc.formats.ollama.request_settings import SETTINGS
from contextc.formats.ollama.rules import RULES
from contextc.formats.request_settings import object_or_empty
from contextc.messages import Extra, Message

SDK_ARGUMENTS = (
    "model",
    "messages",
    "tools",
    "stream",
    "think",
    "format",
    "options",
    "keep_alive",
    "logprobs",
    "top_logprobs",
)
"""Arguments of the SDK's `chat`. `truncate` is not among them, so the server truncates a request that is too long."""


class OllamaFormatter(CodecFormatter):
    """Format of Ollama's `/api/chat`. `num_ctx` is the context window to run the model with.

    Without `num_ctx`, the server uses its own default and silently truncates longer requests. With it, the request also
    sets `truncate` to false.
    """

    name = "ollama"
    media_types = IMAGE_TYPES
    codec = Codec(encode_tool, codec.decode_request, codec.decode_reply, codec.collect_events)
    stream_reader = OllamaStreamReader
    rules = RULES
    settings = SETTINGS
    name_codec = NameCodec("ollama")
    prefix_settings = ("think",)
    system_among_messages = True
    allows_leading_system = True
    input_includes_cached = False  # older servers count only tokens that were not cached
    strict_tools = False
    nested_extra = ("function",)
    layout_extra = ("role", "index", "type")

    def __init__(
        self, *, provider: str = "ollama", num_ctx: int | None = None, reasoning: ReasoningPolicy = "native"
    ) -> None:
        self.provider, self.num_ctx, self.reasoning = provider, num_ctx, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        head = self.encode([request.system]).messages if request.system is not None else ()
        body: JSONObject = {**request.settings, "messages": [*head, *messages]}
        if self.num_ctx:
            body["options"] = {"num_ctx": self.num_ctx, **object_or_empty(request.settings.get("options"))}
            body.setdefault("truncate", False)
        if tools := self.encode_tools(request.tools):
            body["tools"] = tools
        return body

    def sdk_arguments(self, body: JSONObject, model: str) -> JSONObject:
        return {name: value for name, value in body.items() if name in SDK_ARGUMENTS}

    def _restored_tool(self, ours: JSONObject, extra: Extra | None) -> JSONObject:
        return merge_function_extra(ours, extra, self.provider)

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("message"), dict)

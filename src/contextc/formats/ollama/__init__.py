"""Ollama's native format, `/api/chat`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from contextc._json import JSONObject
from contextc.formats.base import EncodedSegment, Formatter, Request
from contextc.formats.identifiers import NameCodec
from contextc.formats.lint_engine import RuleSet
from contextc.formats.ollama import decode
from contextc.formats.ollama.encode import encode_segment, encode_tool
from contextc.formats.ollama.rules import RULES
from contextc.formats.ollama.settings import SETTINGS
from contextc.formats.ollama.stream import OllamaStreamReader
from contextc.formats.reasoning_policy import ReasoningPolicy
from contextc.formats.request_settings import SettingsTable, object_or_empty
from contextc.formats.stream import StreamReader
from contextc.formats.tool_codecs import merge_function_extra
from contextc.messages import Extra, Message
from contextc.tools.spec import Tool

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


class OllamaFormatter(Formatter):
    """Format of Ollama's `/api/chat`. `num_ctx` is the context window to run the model with.

    Without `num_ctx`, the server uses its own default and silently truncates longer requests. With it, the request also
    sets `truncate` to false.
    """

    name: ClassVar[str] = "ollama"
    stream_reader: ClassVar[type[StreamReader] | None] = OllamaStreamReader
    rules: ClassVar[RuleSet] = RULES
    settings: ClassVar[SettingsTable] = SETTINGS
    name_codec: ClassVar[NameCodec] = NameCodec("ollama")
    prefix_settings: ClassVar[tuple[str, ...]] = ("think",)
    system_among_messages: ClassVar[bool] = True
    allows_leading_system: ClassVar[bool] = True
    input_includes_cached: ClassVar[bool] = False  # older servers count only tokens that were not cached
    strict_tools: ClassVar[bool] = False
    nested_extra: ClassVar[tuple[str, ...]] = ("function",)
    layout_extra: ClassVar[tuple[str, ...]] = ("role", "index", "type")

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

    def encode_tool(self, tool: Tool) -> JSONObject:
        return encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return decode.decode_request(body, self.provider)

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("message"), dict)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return decode.decode_reply(reply, self.provider)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        return decode.gather(events)

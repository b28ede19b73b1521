"""OpenAI's Chat Completions format, and its variants at other endpoints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from contextc._json import JSON, JSONObject, id_text
from contextc.formats.base import (
    EncodedSegment,
    Formatter,
    Request,
    cache_control,
    list_cache_controls,
    merge_function_extra,
)
from contextc.formats.message_preparation import IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.formats.openai_chat import codec
from contextc.formats.openai_chat.codec import AUDIO_FORMATS, DOCUMENT_TYPES, encode_segment
from contextc.formats.openai_chat.request_settings import SETTINGS
from contextc.formats.openai_chat.rules import RULES
from contextc.formats.openai_chat.streams import ChatReplyStream, ChatStreamReader
from contextc.messages import Extra, Message
from contextc.tools.definitions import Tool


class OpenAIFormatter(Formatter):
    """Format of Chat Completions.

    `reasoning_field` is the message field in which an endpoint accepts its model's reasoning, such as
    `reasoning_content`; None if it accepts none. With `cache_marks` the endpoint accepts cache breakpoints in the
    content, as Anthropic does, with `breakpoints` those of OpenAI. With `media_in_results` a tool message may hold
    images. `model` is the requested model. It matters at endpoints with models of several vendors, because one vendor's
    signed reasoning is not valid for another's. With `reports_cost`, `usage.cost` of a reply has its dollars.
    """

    name = "openai_chat"
    media_types = ("image/*", *AUDIO_FORMATS, *DOCUMENT_TYPES)
    stream_reader = ChatStreamReader
    reply_stream = ChatReplyStream
    rules = RULES
    prefix_settings = (*("reasoning_effort", "reasoning"), *("response_format", "verbosity"))
    settings = SETTINGS
    name_codec = NameCodec(
        "openai_chat",
        ids=IdentifierCodec("a-zA-Z0-9_-", 40, accepted=".{1,64}"),
        names=IdentifierCodec("a-zA-Z0-9_-", 64),
    )
    system_among_messages = True
    nested_extra = ("function", "image_url", "input_audio", "file")
    shared_extra = (
        *("name", "arguments", "description", "parameters"),
        *("url", "data", "format", "file_id", "file_data", "filename"),
    )
    layout_extra = ("role",)
    allows_leading_system = True
    tool_key = "function"

    def __init__(
        self,
        *,
        provider: str = "openai_chat",
        reasoning_field: str | None = None,
        cache_marks: bool = False,
        breakpoints: bool = False,
        media_in_results: bool = False,
        model: str | None = None,
        reasoning: ReasoningPolicy = "native",
        reports_cost: bool = False,
    ) -> None:
        self.provider, self.reasoning_field, self.reasoning = provider, reasoning_field, reasoning
        self.reports_cost = reports_cost
        self.cache_marks, self.media_in_results, self.model = cache_marks, media_in_results, model
        self.breakpoints, self.default_lifetime = breakpoints, "" if cache_marks else None

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(
            segment,
            provider=self.provider,
            reasoning_field=self.reasoning_field,
            blobs=blobs,
            model=self.model,
            media_in_results=self.media_in_results,
        )

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        return self._body_with_system_message(request, messages)

    def with_cache_breakpoint(self, message: JSONObject, ttl: str = "") -> JSONObject | None:
        mark = self._mark(ttl)
        if not mark or (self.breakpoints and message.get("role") == "assistant"):
            return None
        return codec.with_cache_breakpoint(message, mark)

    def list_cache_lifetimes(self, blocks: Iterable[JSONObject]) -> list[str]:
        return list_cache_controls(blocks) if self.cache_marks else []

    def cache_settings(self, ttl: str) -> JSONObject:
        return {"prompt_cache_options": {"ttl": ttl}} if self.breakpoints else {}

    def without_cache_breakpoints(self, messages: list[JSONObject]) -> list[JSONObject]:
        if not (self.cache_marks or self.breakpoints):
            return messages
        return [codec.without_cache_breakpoints(message) for message in messages]

    def with_head_breakpoint(self, body: JSONObject, ttl: str = "") -> JSONObject:
        mark = self._mark(ttl)
        return codec.with_head_breakpoint(body, mark) if mark else body

    def _mark(self, ttl: str) -> JSONObject:
        """Return the fields of a cache breakpoint. OpenAI sets one itself, so more are set only with a lifetime."""
        if self.cache_marks:
            return {codec.CACHE_FIELD: cache_control(ttl)}
        return {codec.BREAKPOINT_FIELD: {"mode": "explicit"}} if self.breakpoints and ttl else {}

    def _restored_tool(self, ours: JSONObject, extra: Extra | None) -> JSONObject:
        return merge_function_extra(ours, extra, self.provider)

    def encode_tool(self, tool: Tool) -> JSONObject:
        """Return a tool definition in the format of OpenAI's chat."""
        return codec.encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return codec.decode_request(body, self.provider, self.reasoning_field)

    def _is_reply(self, reply: JSONObject) -> bool:
        first: JSON = next(iter(cast(list[JSON], reply.get("choices") or [])), None)
        return isinstance(first, dict) and isinstance(cast(JSONObject, first).get("message"), dict)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return codec.decode_reply(reply, self.provider, self.reasoning_field, reports_cost=self.reports_cost)

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        return super().session_id_of(reply, field) or id_text(reply.get("id"))

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        return codec.collect_events(events)

"""OpenAI's Responses API format."""

from collections.abc import Collection, Mapping, Sequence

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidSetting
from contextc.formats.base import (
    Codec,
    CodecFormatter,
    EncodedChange,
    EncodedSegment,
    HeadChange,
    Request,
    list_valid_tools,
    text_of,
)
from contextc.formats.message_preparation import IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.formats.openai_chat.codec import DOCUMENT_TYPES
from contextc.formats.openai_responses import codec
from contextc.formats.openai_responses.codec import (
    ITEM,
    NESTED,
    STRING_INPUT,
    encode_segment,
    encode_stored_results,
    encode_text,
    extra_key,
    was_string_input,
)
from contextc.formats.openai_responses.request_settings import LEAST_COMPACT_AT, SETTINGS
from contextc.formats.openai_responses.rules import (
    RULES,
    is_openai_model,
    is_other_vendor_model,
    without_foreign_ids,
    without_unstored_items,
)
from contextc.formats.openai_responses.streams import ResponsesReplyStream, ResponsesStreamReader
from contextc.formats.request_settings import NativeContext, NativeSettings, object_or_empty
from contextc.messages import PLACED_KEY, AnyPart, Message, ProviderBlock, Reasoning

NEEDED_FEATURES = {"additional_tools": "additional_tools", "configuration_update": "effort_changes"}
"""The feature of a provider that an item needs."""


class OpenAIResponsesFormatter(CodecFormatter):
    """Format of the Responses API. Its `messages` are the items of `input`; the system prompt is `instructions`."""

    name = "openai_responses"
    media_types = ("image/*", *DOCUMENT_TYPES)
    codec = Codec(codec.encode_tool, codec.decode_request, codec.decode_reply, codec.collect_events)
    stream_reader = ResponsesStreamReader
    reply_stream = ResponsesReplyStream
    rules = RULES
    prefix_settings = ("reasoning", "text")
    effort_path = ("reasoning", "effort")
    messages_key = "input"
    settings = SETTINGS
    name_codec = NameCodec(
        "openai_responses",
        ids=IdentifierCodec("a-zA-Z0-9_-", 64, accepted=".{1,64}"),
        names=IdentifierCodec("a-zA-Z0-9_-", 128),
    )
    unique_ids = True
    least_compact_at = LEAST_COMPACT_AT
    allows_leading_system = True
    result_placement = "later"
    nested_extra = (ITEM,)
    layout_extra = (STRING_INPUT, NESTED, PLACED_KEY)

    def __init__(self, *, provider: str = "openai", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    @property
    def extra_key(self) -> str:
        return extra_key(self.provider)

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def _replacement_for(self, reasoning: Reasoning) -> tuple[AnyPart, ...]:
        return (Reasoning(provider=reasoning.provider),)  # so that the item after it is sent without its id

    def apply_settings(self, messages: list[JSONObject], settings: JSONObject) -> list[JSONObject]:
        body: JSONObject = {**settings, "input": messages}
        if is_openai_model(settings):
            body = without_foreign_ids(body)
        unstored = settings.get("store") is False and not is_other_vendor_model(settings)
        return (without_unstored_items(body) if unstored else body)["input"]

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings}
        if was_string_input(request.messages, self.provider):
            body["input"] = request.messages[0].text
        elif messages:
            body["input"] = messages
        if request.system is not None and (text := encode_text(request.system, self.provider)):
            body["instructions"] = text
        if tools := self.encode_tools(request.tools):
            body["tools"] = tools
        if isinstance(body.get("input"), list):
            body["input"] = self.apply_settings(messages, request.settings)
        return body

    def with_cache_breakpoint(self, message: JSONObject, ttl: str = "") -> JSONObject | None:
        """OpenAI sets a breakpoint itself at the end, so more are set only with a lifetime, which the request has."""
        return codec.with_cache_breakpoint(message) if ttl else None

    def without_cache_breakpoints(self, messages: list[JSONObject]) -> list[JSONObject]:
        return [codec.without_cache_breakpoints(message) for message in messages]

    def cache_settings(self, ttl: str) -> JSONObject:
        return {"prompt_cache_options": {"ttl": ttl}}

    def encode_change(self, change: HeadChange, features: Collection[str]) -> EncodedChange | None:
        """Tools can be added only. An item that defines one again, or that removes one, does not exist."""
        if change.replaced or change.returned or change.removed:
            return None
        items: list[JSONObject] = []
        if change.added:
            items.append({"type": "additional_tools", "role": "developer", "tools": [*change.added]})
        if change.effort:
            items.append({"type": "configuration_update", "reasoning": {"effort": change.effort}})
        needed = [NEEDED_FEATURES[item["type"]] for item in items]
        if not set(needed) <= set(features):
            return None
        parts = tuple([ProviderBlock(provider=self.provider, data=item) for item in items])
        return EncodedChange(Message(role="system", parts=parts), tuple(needed))

    def read_change(self, block: JSONObject) -> HeadChange | None:
        match block.get("type"):
            case "additional_tools":
                return HeadChange(added=list_valid_tools(block.get("tools")))
            case "configuration_update" if not block.get("text"):
                return HeadChange(effort=text_of(object_or_empty(block.get("reasoning")).get("effort")))
            case _:
                return None

    def can_change_effort(self, settings: JSONObject) -> bool:
        return object_or_empty(settings.get("reasoning")).get("mode") in (None, "standard")

    def encode_native(self, context: NativeContext) -> NativeSettings:
        missing = tuple([name for name in context.names if name != "compact_at"])
        if context.compact_at is None:
            return NativeSettings({}, missing=missing)
        entry: JSONObject = {"type": "compaction", "compact_threshold": context.compact_at}
        return NativeSettings({"context_management": [entry]}, ("compaction",), missing)

    def read_compaction(self, block: JSONObject) -> str:
        return "compaction" if block.get("type") == "compaction" and block.get("encrypted_content") else ""

    def compaction_settings(self, settings: JSONObject, instructions: str) -> NativeSettings | None:
        if instructions.strip():
            raise InvalidSetting(
                "instructions: this API takes none for a compaction of its own",
                fix="Leave them out, or compact without native=True.",
            )
        return NativeSettings(settings, ("compaction_on_demand",))

    def with_compaction_trigger(self, body: JSONObject) -> JSONObject:
        return {**body, self.messages_key: [*body[self.messages_key], {"type": "compaction_trigger"}]}

    def with_session_results(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Sequence[Message]:
        """Include results whose calls the provider stores, although those calls are not in the request."""
        return encode_stored_results(request, provider=self.provider, blobs=blobs)

    def is_tool(self, definition: Mapping[str, JSON]) -> bool:
        return definition.get("type") == "function" and "name" in definition

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("output"), list) or "status" in reply

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        return codec.find_session(reply, field)

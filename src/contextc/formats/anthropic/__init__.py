"""Anthropic's Messages API."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, cast

from msgspec.structs import replace

from contextc._json import JSONObject, as_object
from contextc.formats.anthropic.codec import (
    BETWEEN_KEY,
    CHANGE_BLOCKS,
    COMPACTION,
    DOCUMENT_TYPES,
    FIELDS_KEY,
    IMAGE_TYPES,
    decode_reply,
    decode_request,
    describe_applied_edits,
    encode_segment,
    encode_system,
    encode_tool,
    find_container,
    without_trailing_space,
)
from contextc.formats.anthropic.request_settings import (
    COMPACTION_NOW,
    LEAST_COMPACT_AT,
    SETTINGS,
    encode_context_management,
    request_compaction,
)
from contextc.formats.anthropic.rules import RULES
from contextc.formats.anthropic.streams import AnthropicReplyStream, AnthropicStreamReader, collect_events
from contextc.formats.base import (
    OPENING_TEXT,
    Codec,
    CodecFormatter,
    Continuation,
    EncodedChange,
    EncodedSegment,
    HeadChange,
    Request,
    cache_control,
    list_cache_controls,
    list_valid_tools,
    own_extra,
    tag_system_blocks,
    text_of,
    without_cache_control,
)
from contextc.formats.message_preparation import APART_KEY, IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.formats.request_settings import NativeContext, NativeSettings
from contextc.messages import PLACED_KEY, Message, ProviderBlock
from contextc.tools.definitions import NativeTool

BLOCKS_WITHOUT_BREAKPOINT = ("thinking", "redacted_thinking")


class AnthropicFormatter(CodecFormatter):
    """Anthropic's Messages API. `system_between`: the model accepts system messages between other messages."""

    name = "anthropic"
    codec = Codec(encode_tool, decode_request, decode_reply, collect_events)
    stream_reader = AnthropicStreamReader
    reply_stream = AnthropicReplyStream
    settings = SETTINGS
    name_codec = NameCodec(
        "anthropic",
        ids=IdentifierCodec("a-zA-Z0-9_-", 64, accepted="[a-zA-Z0-9_-]+"),
        names=IdentifierCodec("a-zA-Z0-9_-", 128),
    )
    unique_ids = True
    nested_extra = (FIELDS_KEY,)
    layout_extra = (APART_KEY, PLACED_KEY, BETWEEN_KEY)
    rules = RULES
    prefix_settings = ("thinking", "output_config")
    effort_path: ClassVar[tuple[str, ...]] = ("output_config", "effort")
    user_first = True
    tool_key = "input_schema"
    merges_neighbours = True
    result_placement = "after replies"
    requires_max_tokens = True
    least_compact_at = LEAST_COMPACT_AT
    default_lifetime = ""
    media_types = (*IMAGE_TYPES, *DOCUMENT_TYPES)
    text_documents = ("text/plain",)

    def __init__(
        self, *, provider: str = "anthropic", system_between: bool | None = None, reasoning: ReasoningPolicy = "native"
    ) -> None:
        self.provider, self.system_between, self.reasoning = provider, system_between, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, system_between=self.system_between, blobs=blobs)

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        messages = list(before)
        last = messages[-1]["role"] if messages else None
        merged: JSONObject = {}  # the last message, if it was created here and may be changed
        for segment in segments:
            if not (wire := segment.messages):
                continue
            role = wire[0]["role"]
            if last is None and role != "user" and not (segment.apart or self.begins_with_compaction(wire[0])):
                messages.append({"role": "user", "content": [{"type": "text", "text": OPENING_TEXT}]})
                last = "user"
            moved: JSONObject = {}
            if last == "system" and role == "user":  # the reply that should follow was empty
                moved, last = self._tag_last_system_messages(messages)
            if role == last and not segment.apart:
                if messages[-1] is not merged:
                    merged = messages[-1] = {**messages[-1], "content": [*messages[-1]["content"]]}
                merged["content"] += wire[0]["content"]
                messages += wire[1:]
            else:
                messages += wire
            if moved and messages[-1]["role"] == "system":
                last_one = messages[-1]
                messages[-1] = {**moved, **last_one, "content": [*moved["content"], *last_one["content"]]}
            elif moved:
                messages.append(moved)
            last = messages[-1]["role"]
        if last == "assistant":
            messages[-1] = without_trailing_space(messages[-1])
        return messages

    def _tag_last_system_messages(self, messages: list[JSONObject]) -> tuple[JSONObject, str]:
        """Convert the texts of the system messages at the end into text of the user message before them.

        Returns a system message with their changes of tools and effort, which must stand after the next user message.
        """
        found: list[JSONObject] = []
        while messages[-1]["role"] == "system":
            found.insert(0, messages.pop())
        fields: JSONObject = {}
        for message in found:
            fields |= {name: value for name, value in message.items() if name not in ("role", "content", "clear_at")}
        blocks = [block for message in found for block in message["content"]]
        changes = [block for block in blocks if self._is_change(block)]
        texts = tag_system_blocks([block for block in blocks if not self._is_change(block)])
        last = messages[-1]
        if texts:
            messages[-1] = {**last, "content": [*last["content"], *texts]}
        moved: JSONObject = {"role": "system", "content": changes, **fields} if changes or fields else {}
        return moved, last["role"]

    def _is_change(self, block: JSONObject) -> bool:
        return block.get("type") in CHANGE_BLOCKS

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings, "messages": messages}
        if request.system is not None and (blocks := encode_system(request.system, self.provider)):
            body["system"] = blocks
        if tools := self.encode_tools(request.tools):
            body["tools"] = tools
        return body

    def with_cache_breakpoint(self, message: JSONObject, ttl: str = "") -> JSONObject | None:
        content: list[JSONObject] = message["content"]
        if not content or content[-1].get("type") in BLOCKS_WITHOUT_BREAKPOINT:
            return None
        *before, last = content
        return {**message, "content": [*before, {**last, "cache_control": cache_control(ttl)}]}

    def tools_of(self, body: JSONObject) -> list[JSONObject]:
        tools: list[JSONObject] = body.get("tools") or []
        at = None if body.get("system") else _last_cached(tools)
        return tools if at is None else [*tools[:at], without_cache_control(tools[at]), *tools[at + 1 :]]

    def encode_change(self, change: HeadChange, features: Collection[str]) -> EncodedChange | None:
        defined, named = (*change.added, *change.replaced), (*change.returned, *change.removed)
        if defined and not change.has_tools:  # the first tools have to be beside the messages
            return None
        needed = [
            name
            for name, is_needed in (
                ("inline_tools", defined),
                ("tool_changes", named),
                ("effort_changes", change.effort),
            )
            if is_needed
        ]
        if not set(needed) <= set(features):
            return None
        blocks = [_change("removal", {"type": "tool_reference", "name": name}) for name in change.removed]
        blocks += [_change("addition", {"type": "tool_reference", "name": name}) for name in change.returned]
        for tool in map(without_cache_control, defined):  # between our breakpoints, its lifetime might be too long
            blocks.append(_change("addition", {"type": "tool_definition", "definition": tool}))
        own: JSONObject = {BETWEEN_KEY: True}
        if change.effort:
            own[FIELDS_KEY] = {"output_config": {"effort": change.effort}}
        parts = tuple([ProviderBlock(provider=self.provider, data=block) for block in blocks])
        return EncodedChange(Message(role="system", parts=parts, extra={self.provider: own}), tuple(needed))

    def read_change(self, block: JSONObject) -> HeadChange | None:
        if not self._is_change(block):
            return None
        tool = cast(JSONObject, block.get("tool"))
        kind, name = tool.get("type"), text_of(tool.get("name"))
        if kind == "tool_definition":
            definitions = list_valid_tools([tool.get("definition")])
            return HeadChange(added=definitions) if definitions else None
        if kind != "tool_reference" or not name:
            return None
        return HeadChange(removed=(name,)) if block["type"] == "tool_removal" else HeadChange(returned=(name,))

    def read_message_effort(self, message: Message) -> str:
        fields = as_object(own_extra(message.extra, self.provider).get(FIELDS_KEY))
        return text_of(as_object(fields.get("output_config")).get("effort"))

    def encode_native(self, context: NativeContext) -> NativeSettings:
        names = self.name_codec.names
        spelled = [names.encode(name) if names is not None else name for name in context.keep_results_of or ()]
        return encode_context_management(context, spelled)

    def describe_edits(self, reply: Message) -> tuple[str, ...]:
        own = own_extra(reply.extra, self.provider)
        return tuple(describe_applied_edits(own)) if "context_management" in own else ()

    def read_compaction(self, block: JSONObject) -> str:
        if block.get("type") != COMPACTION or not block.get("content"):  # without a text it failed, and has no effect
            return ""
        return COMPACTION_NOW if block.get("signature") else COMPACTION

    def begins_with_compaction(self, message: JSONObject) -> bool:
        return any([self.read_compaction(block) for block in message["content"][:1]])

    def compaction_settings(self, settings: JSONObject, instructions: str) -> NativeSettings | None:
        return request_compaction(settings, instructions)

    def read_continuation(self, reply: Message) -> Continuation | None:
        """Return the container of a reply: the code in it waits for results, and its files are there."""
        own = own_extra(reply.extra, self.provider)
        return find_container(own) if "container" in own else None

    def with_continuation(self, request: Request, value: str) -> Request:
        """Return the request with a container, if it has tools that the API runs and names no container itself."""
        given = request.settings.get("container")
        own: JSONObject = cast(JSONObject, given) if isinstance(given, dict) else {}
        has_server_tools = any(
            [isinstance(tool, NativeTool) and tool.provider == self.provider for tool in request.tools]
        )
        if not has_server_tools or own.get("id") or isinstance(given, str):
            return request
        container = {"id": value, **{name: each for name, each in own.items() if name != "id"}} if own else value
        return replace(request, settings={**request.settings, "container": container})

    def list_cache_lifetimes(self, blocks: Iterable[JSONObject]) -> list[str]:
        return list_cache_controls(blocks)

    def without_cache_breakpoints(self, messages: list[JSONObject]) -> list[JSONObject]:
        return [
            {**message, "content": [without_cache_control(block) for block in message["content"]]}
            if any(["cache_control" in block for block in message["content"]])
            else message
            for message in messages
        ]

    def with_head_breakpoint(self, body: JSONObject, ttl: str = "") -> JSONObject:
        place = "system" if body.get("system") else "tools"
        blocks: list[JSONObject] = body.get(place) or []
        if (at := _last_cached(blocks)) is None or "cache_control" in blocks[at]:
            return body
        last: JSONObject = {**blocks[at], "cache_control": cache_control(ttl)}
        return {**body, place: [*blocks[:at], last, *blocks[at + 1 :]]}

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("content"), list) and "parts" not in reply


def _last_cached(blocks: Sequence[JSONObject]) -> int | None:
    """Return the place of the last block that can have a cache breakpoint: a deferred tool cannot."""
    return next((at for at in reversed(range(len(blocks))) if not blocks[at].get("defer_loading")), None)


def _change(kind: str, tool: JSONObject) -> JSONObject:
    return {"type": f"tool_{kind}", "tool": tool}

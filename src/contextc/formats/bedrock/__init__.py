"""Bedrock's Converse API, one format for the models of many vendors."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, cast

from contextc._json import JSONObject, as_object
from contextc.formats.anthropic import AnthropicFormatter
from contextc.formats.base import OPENING_TEXT, Codec, EncodedChange, EncodedSegment, HeadChange, Request, text_of
from contextc.formats.bedrock import codec
from contextc.formats.bedrock.codec import (
    BETWEEN_KEY,
    CACHE_POINT_KEY,
    CHANGE_BLOCKS,
    FORMATS,
    PLACEHOLDER_TOOL,
    UNCHANGED_KEY,
    encode_segment,
    encode_system,
    encode_tool,
    encode_tools,
    is_blank,
    with_bytes,
    with_unique_document_names,
)
from contextc.formats.bedrock.request_settings import SETTINGS
from contextc.formats.bedrock.rules import RULES
from contextc.formats.bedrock.streams import BedrockStreamReader
from contextc.formats.message_preparation import APART_KEY, IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.formats.streams import StreamReader
from contextc.messages import PLACED_KEY, Message, ProviderBlock
from contextc.tools.definitions import NativeTool, Tool

BLOCKS_WITHOUT_BREAKPOINT = frozenset(("document", "video", "reasoningContent"))
"""Blocks that no cache breakpoint may follow."""
OPENING_SEGMENT = EncodedSegment(({"role": "user", "content": [{"text": OPENING_TEXT}]},))


class BedrockFormatter(AnthropicFormatter):
    """Bedrock's Converse API. `system_between`: the model accepts system messages between other messages.

    `model` is the requested model: replies do not name it, and reasoning signed by another vendor's model is refused.
    Segments are joined as for Anthropic. Nothing else is shared.
    """

    name = "bedrock"
    reply_stream = None
    codec = Codec(encode_tool, codec.decode_request, codec.decode_reply, codec.collect_events)
    settings = SETTINGS
    name_codec: ClassVar[NameCodec] = NameCodec(
        "bedrock",
        ids=IdentifierCodec("a-zA-Z0-9_-", 64, accepted="[a-zA-Z0-9_.:-]{1,64}"),
        names=IdentifierCodec("a-zA-Z0-9_-", 64),
    )
    unique_ids = True
    nested_extra = ("toolUse", "toolResult", "toolSpec", "reasoningContent", *FORMATS)
    layout_extra = (APART_KEY, PLACED_KEY, BETWEEN_KEY, UNCHANGED_KEY)
    rules = RULES
    prefix_settings = ("additionalModelRequestFields", "outputConfig")
    effort_path: ClassVar[tuple[str, ...]] = ()
    user_first = True
    merges_neighbours = True
    requires_max_tokens = False
    tool_key = "toolSpec"
    placeholder_tool = PLACEHOLDER_TOOL
    media_types = tuple(name for names in FORMATS.values() for name in names)
    text_documents = tuple(name for name in FORMATS["document"] if name.startswith("text/"))

    def __init__(
        self,
        *,
        provider: str = "bedrock",
        system_between: bool | None = None,
        model: str | None = None,
        reasoning: ReasoningPolicy = "native",
    ) -> None:
        super().__init__(provider=provider, system_between=system_between, reasoning=reasoning)
        self.model = model

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(
            segment, provider=self.provider, system_between=self.system_between, blobs=blobs, model=self.model
        )

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        found = [segment for segment in segments if segment.messages]
        if not before and found and found[0].messages[0]["role"] != "user" and not found[0].apart:
            found.insert(0, OPENING_SEGMENT)
        return with_unique_document_names(super().join(found, before))

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings, "messages": messages}
        config = cast(JSONObject, body.pop("toolConfig", None) or {})
        if request.system is not None and (blocks := encode_system(request.system, self.provider)):
            body["system"] = blocks
        if tools := self.encode_tools(request.tools):
            return {**body, "toolConfig": {"tools": tools, **config}}
        return (
            {**body, "toolConfig": {"tools": [encode_tool(PLACEHOLDER_TOOL)]}}
            if any(map(has_calls, messages))
            else body
        )

    def tools_of(self, body: JSONObject) -> list[JSONObject]:
        return cast(JSONObject, body.get("toolConfig") or {}).get("tools") or []

    def encode_change(self, change: HeadChange, features: Collection[str]) -> EncodedChange | None:
        """Tools are named only: each of them has to be in `toolConfig`, which a new one would change."""
        if change.added or change.replaced or change.effort or "tool_changes" not in features:
            return None
        blocks = [("toolRemoval", name) for name in change.removed] + [
            ("toolAddition", name) for name in change.returned
        ]
        parts = [
            ProviderBlock(provider=self.provider, data={kind: {"tool": {"type": "tool_reference", "name": name}}})
            for kind, name in blocks
        ]
        message = Message(role="system", parts=tuple(parts), extra={self.provider: {BETWEEN_KEY: True}})
        return EncodedChange(message, ("tool_changes",))

    def read_change(self, block: JSONObject) -> HeadChange | None:
        for kind in CHANGE_BLOCKS & block.keys():
            name = cast(JSONObject, block[kind])["tool"].get("name", "")
            return HeadChange(removed=(name,)) if kind == "toolRemoval" else HeadChange(returned=(name,))
        return None

    def _is_change(self, block: JSONObject) -> bool:
        return not CHANGE_BLOCKS.isdisjoint(block)

    def sdk_arguments(self, body: JSONObject, model: str) -> JSONObject:
        return {"modelId": model, **with_bytes(body)}

    def with_cache_breakpoint(self, message: JSONObject, ttl: str = "") -> JSONObject | None:
        content: list[JSONObject] = message["content"]
        end = len(content)
        while end and not BLOCKS_WITHOUT_BREAKPOINT.isdisjoint(content[end - 1]):
            end -= 1
        return {**message, "content": [*content[:end], cache_point(ttl), *content[end:]]} if end else None

    def without_tool_breakpoints(self, tools: list[JSONObject]) -> list[JSONObject]:
        return [tool for tool in tools if CACHE_POINT_KEY not in tool]

    def list_cache_lifetimes(self, blocks: Iterable[JSONObject]) -> list[str]:
        points = [block[CACHE_POINT_KEY] for block in blocks if CACHE_POINT_KEY in block]
        return [text_of(as_object(point).get("ttl")) for point in points]

    def without_cache_breakpoints(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Also remove the white space before the breakpoints, which is accepted nowhere else."""
        return [
            {
                **message,
                "content": [each for each in message["content"] if CACHE_POINT_KEY not in each and not is_blank(each)],
            }
            if any([CACHE_POINT_KEY in block for block in message["content"]])
            else message
            for message in messages
        ]

    def with_head_breakpoint(self, body: JSONObject, ttl: str = "") -> JSONObject:
        """Mark only the end of the system prompt. Tools come before it, and some models accept no breakpoint there."""
        return {**body, "system": [*body["system"], cache_point(ttl)]} if body.get("system") else body

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        spelled = [tool if isinstance(tool, NativeTool) else self.name_codec.encode_tool(tool) for tool in tools]
        return encode_tools(spelled, self.provider)

    def decode_tools(self, definitions: list[JSONObject]) -> tuple[Tool | NativeTool, ...]:
        return self.decode_request({"messages": [], "toolConfig": {"tools": definitions}}).tools

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("output"), dict) and "stopReason" in reply

    def _decode_reply(self, reply: JSONObject) -> Message:
        return codec.decode_reply(reply, self.provider, self.model)

    def create_reader(self) -> StreamReader:
        return BedrockStreamReader(self, self.model)


def cache_point(ttl: str) -> JSONObject:
    """Return a cache breakpoint with a lifetime; "" is the default."""
    return {CACHE_POINT_KEY: {"type": "default", "ttl": ttl} if ttl else {"type": "default"}}


def has_calls(message: JSONObject) -> bool:
    return any("toolUse" in block or "toolResult" in block for block in message.get("content", ()))

"""Decoding of Converse requests, replies and streams into messages.

Each block becomes a part. Data that encoding this part would not reproduce is kept in its `extra`. A block without a
matching part type becomes a `ProviderBlock`. A cache breakpoint is kept with the part before it. A user message with
results and text becomes a tool message and a user message. The placeholder tool is not decoded as a tool.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_objects, encode
from contextc.formats.anthropic.codec import split_message
from contextc.formats.base import Request, append_text, extra_of, text_of
from contextc.formats.bedrock.encode import (
    CACHE_POINT_KEY,
    DOCUMENT_TEXT,
    EMPTY_ERROR_TEXT,
    PLACEHOLDER_TOOL,
    TEXT_BLOCKS,
    UNCHANGED_KEY,
    block_text,
    encode_part,
    encode_tool,
)
from contextc.formats.bedrock.fixes import is_blank, is_separator
from contextc.formats.bedrock.lint_parser import is_client_tool
from contextc.formats.bedrock.media import DOCUMENT_NAME, decode_media
from contextc.formats.encoder_decoder_base import UNKNOWN_TOOL, generated_id, mark_apart, other_fields
from contextc.formats.media_encoding import decode_base64
from contextc.formats.request_settings import object_or_empty
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider, sent=True)
    messages = [each for wire in cast(list[JSONObject], body.get("messages") or []) for each in decoder.message(wire)]
    if messages and messages[0].role == "assistant":
        messages[0] = mark_apart(messages[0], provider)
    given = cast(list[JSONObject], body.get("system") or [])
    system = Message(role="system", parts=tuple(decoder.parts(given, "system"))) if given else None
    if system is None and messages and messages[0].role == "system":  # a position the API does not accept
        system, *messages = messages
    config = cast(JSONObject, body.get("toolConfig") or {})
    rest = {name: value for name, value in config.items() if name != "tools"}
    settings = other_fields(body, "messages", "system", "toolConfig")
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decoder.tools(cast(list[JSONObject], config.get("tools") or []))),
        settings={**settings, "toolConfig": rest} if rest else settings,
    )


def decode_reply(reply: JSONObject, provider: str, model: str | None = None) -> Message:
    """Decode a reply. `model` is the requested model, which the reply does not name."""
    reply = cast(JSONObject, bytes_to_base64(reply))
    usage = cast(JSONObject, reply.get("usage") or {})
    read, written = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
    kept = [each.get("inputTokens") or 0 for each in as_objects(usage.get("cacheDetails")) if each.get("ttl") == "1h"]
    reason = cast(str | None, reply.get("stopReason"))
    error = cast(JSONObject | None, reply.get("error"))
    message = cast(JSONObject, cast(JSONObject, reply.get("output") or {}).get("message") or {})
    named = ("stopReason", "additionalModelResponseFields", "trace", "performanceConfig", "serviceTier")
    rest = {name: reply[name] for name in named if reply.get(name)}
    return Message(
        role="assistant",
        parts=tuple(_Decoder(provider, model).parts(_blocks(message.get("content")), "assistant")),
        finish="error" if error else FINISH_REASONS.get(reason, reason) if reason else None,
        status="error" if error else "sent",
        error=str(error.get("message")) if error else None,
        usage=Usage(
            input=(usage.get("inputTokens") or 0) + read + written,
            output=usage.get("outputTokens") or 0,
            cache_read=read,
            cache_write=written,
            cache_write_long=next(iter(kept), 0),
        ),
        extra={provider: rest} if rest else None,
    )


def _blocks(content: JSON) -> list[JSONObject]:
    """Return the content of a reply, in which every call has an id and a name."""
    found = [cast(JSONObject, each) for each in cast(list[JSON], content or []) if isinstance(each, dict) and each]
    return [
        {"toolUse": complete_tool_use(cast(JSONObject, block["toolUse"]), index)}
        if isinstance(block.get("toolUse"), dict)
        else block
        for index, block in enumerate(found)
    ]


def complete_tool_use(use: JSONObject, index: int) -> JSONObject:
    """Return a call with its missing fields added. `index` is its position in the reply."""
    made: JSONObject = {"toolUseId": generated_id(index), "name": UNKNOWN_TOOL, "input": {}}
    return {**made, **{name: value for name, value in use.items() if value or name not in made}}


def block_index(said: JSONObject) -> int:
    """Return the index of the block that an event refers to."""
    index: JSON = said.get("contentBlockIndex")
    return index if isinstance(index, int) else 0


def bytes_to_base64(value: JSON) -> JSON:
    """Return the value with bytes, as boto3 returns them, converted to base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: bytes_to_base64(each) for name, each in cast(JSONObject, value).items()}
    return [bytes_to_base64(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Return a reply from the events of its stream."""
    reply: JSONObject = {}
    blocks: dict[int, JSONObject] = {}
    for event in events:
        for name, value in event.items():
            if not isinstance(value, dict):
                continue
            said = cast(JSONObject, bytes_to_base64(cast(JSON, value)))
            match name:
                case "contentBlockStart":
                    blocks[block_index(said)] = _start_block(object_or_empty(said.get("start")))
                case "contentBlockDelta":
                    _apply(blocks.setdefault(block_index(said), {}), object_or_empty(said.get("delta")))
                case "messageStop":
                    reply |= said
                case "metadata":
                    reply |= said
                case "error":
                    reply["error"] = said
                case _:  # messageStart, contentBlockStop, and event types of the future
                    pass
    content = [_finish_block(blocks[index], index) for index in sorted(blocks)]
    return {**reply, "output": {"message": {"role": "assistant", "content": [each for each in content if each]}}}


def _start_block(start: JSONObject) -> JSONObject:
    return {name: dict(cast(JSONObject, value)) for name, value in start.items() if isinstance(value, dict)}


def _apply(block: JSONObject, delta: JSONObject) -> None:
    for kind, said in delta.items():
        match kind:
            case "text":
                append_text(block, "text", text_of(said))
            case "toolUse":
                append_text(block.setdefault("toolUse", {}), "written", text_of(object_or_empty(said).get("input")))
            case "reasoningContent":
                _append_reasoning(block.setdefault(kind, {}), object_or_empty(said))
            case "citation":
                block.setdefault("citations", []).append(said)
            case "toolResult":
                block.setdefault(kind, {}).setdefault("content", []).extend(said if isinstance(said, list) else [])
            case _:
                _append_media(block, kind, said)


def _append_media(block: JSONObject, kind: str, said: JSON) -> None:
    """Append to media or an unknown block, whose bytes also arrive in pieces."""
    if not isinstance(said, dict) or not isinstance(block.setdefault(kind, {}), dict):
        block[kind] = said
        return
    held, more = cast(JSONObject, block[kind]), cast(JSONObject, said)
    pieces = [decode_base64(text_of(object_or_empty(each.get("source")).get("bytes"))) or b"" for each in (held, more)]
    held |= more
    if any(pieces):
        held["source"] = {"bytes": bytes_to_base64(b"".join(pieces))}


def _append_reasoning(thought: JSONObject, said: JSONObject) -> None:
    if "redactedContent" in said:
        pieces = [decode_base64(text_of(each.get("redactedContent"))) or b"" for each in (thought, said)]
        thought["redactedContent"] = bytes_to_base64(b"".join(pieces))
    for name in ("text", "signature"):
        if name in said:
            append_text(thought.setdefault("reasoningText", {"text": ""}), name, text_of(said[name]))


def _finish_block(block: JSONObject, index: int) -> JSONObject:
    """Return a block as it would be in an unstreamed reply. The stream may be incomplete."""
    if "citations" in block:
        return {"citationsContent": {"content": [{"text": block.get("text", "")}], "citations": block["citations"]}}
    if "toolUse" not in block:
        return block
    use = cast(JSONObject, block["toolUse"])
    call = tool_call("-", "-", use.get("written") or "")
    given: JSON = call.raw if call.malformed else call.arguments
    told = {name: value for name, value in use.items() if name != "written"}
    return {"toolUse": {**complete_tool_use(told, index), "input": given}}


class _Decoder:
    """Decodes messages. `model` is their author, if known. `sent`: this is a request, so all content was accepted."""

    def __init__(self, provider: str, model: str | None = None, *, sent: bool = False) -> None:
        self.provider, self.model, self.sent = provider, model, sent
        self.names: dict[str, str] = {}

    def message(self, wire: JSONObject) -> Iterator[Message]:
        role, content = cast(Role, wire["role"]), cast(list[JSONObject], wire["content"])
        made_up: JSONObject = {"text": DOCUMENT_TEXT}
        said = [each for each in content if "text" in each and not is_blank(each)]
        if said == [made_up] and any("document" in block for block in content):
            content = [block for block in content if block != made_up]
        yield from split_message(role, self.parts(content, role), self.provider)

    def parts(self, content: list[JSONObject], role: str) -> list[AnyPart]:
        found: list[AnyPart] = []
        for index, block in enumerate(content):
            if CACHE_POINT_KEY in block and found and not isinstance(found[-1], ProviderBlock):
                found[-1] = self._with(found[-1], {CACHE_POINT_KEY: block[CACHE_POINT_KEY]})
            elif self.sent and is_separator(content, index, role):
                found.append(self._with(Text(block["text"]), {UNCHANGED_KEY: True}))
            else:
                found.append(self.part(block, role))
        return found

    def part(self, block: JSONObject, role: str) -> AnyPart:
        kind = next(iter(block), "")
        part = self._part(kind, block, role)
        if part is None:
            return ProviderBlock(provider=self.provider, data=block)
        if isinstance(part, Text) or kind not in block or not isinstance(block[kind], dict):
            return part
        ours = encode_part(part, self.provider).get(kind)
        if ours is None:
            return part
        rest = extra_of(_as_sendable(part, block[kind], cast(JSONObject, ours)), cast(JSONObject, ours), kind)
        return self._with(part, rest) if rest else part

    def _with(self, part: AnyPart, rest: JSONObject) -> AnyPart:
        extra = part.extra or {}
        return replace(part, extra={**extra, self.provider: {**extra.get(self.provider, {}), **rest}})

    def _part(self, kind: str, block: JSONObject, role: str) -> AnyPart | None:
        """Return the part of a block, or None if only Bedrock can read it."""
        inside: JSON = block[kind]
        match kind:
            case "text":
                return Text(inside)
            case "citationsContent" | "guardContent":
                return self._text(block)
            case "reasoningContent":
                return self._reasoning(cast(JSONObject, inside))
            case "toolUse" if is_client_tool(inside):
                self.names[inside["toolUseId"]] = inside["name"]
                return ToolCall(id=inside["toolUseId"], name=inside["name"], arguments=inside["input"])
            case "toolResult" if is_client_tool(inside):
                return self._result(cast(JSONObject, inside))
            case "image" | "document" if isinstance(inside, dict):
                return decode_media(kind, cast(JSONObject, inside))
            case "video" | "audio" if role == "user":
                return decode_media(kind, cast(JSONObject, inside))
            case _:
                return None

    def _text(self, block: JSONObject) -> Text | None:
        kind = next(kind for kind in TEXT_BLOCKS if kind in block)
        if kind == "guardContent" and "text" not in block[kind]:
            return None
        return Text(block_text(block), extra={self.provider: {kind: block[kind]}})

    def _reasoning(self, inside: JSONObject) -> Reasoning | None:
        if "redactedContent" in inside:
            return Reasoning(data=inside["redactedContent"], provider=self.provider, model=self.model)
        if not isinstance(inside.get("reasoningText"), dict):
            return None
        thought = cast(JSONObject, inside["reasoningText"])
        unsigned = self.sent and thought.get("signature") is None
        return Reasoning(
            text=text_of(thought.get("text")),
            signature=thought.get("signature"),
            provider=self.provider,
            model=self.model,
            extra={self.provider: {UNCHANGED_KEY: True}} if unsigned else None,
        )

    def _result(self, inside: JSONObject) -> ToolResult:
        call_id, content = inside["toolUseId"], cast(list[JSONObject], inside["content"])
        parts = [self.part(each, "user") for each in content]
        fits = all(isinstance(part, Text | Media) for part in parts)
        failed = inside.get("status") == "error"
        plain = len(parts) == 1 and isinstance(parts[0], Text)
        said: object = tuple(parts) if fits and parts else encode(content).decode() if parts else ""
        if plain:
            said = "" if failed and content == [{"text": EMPTY_ERROR_TEXT}] else cast(Text, parts[0]).text
        elif len(content) == 1 and "json" in content[0]:
            said = encode(content[0]["json"]).decode()
        return ToolResult(
            call_id=call_id,
            name=self.names.get(call_id, UNKNOWN_TOOL),
            content=cast(str, said),
            is_error=failed,
        )

    def tools(self, given: list[JSONObject]) -> list[Tool | NativeTool]:
        found: list[Tool | NativeTool] = []
        for wire in given:
            last = found[-1] if found else None
            if CACHE_POINT_KEY in wire and isinstance(last, Tool):
                rest = (last.extra or {}).get(self.provider, {})
                found[-1] = replace(last, extra={self.provider: {**rest, CACHE_POINT_KEY: wire[CACHE_POINT_KEY]}})
            elif wire != encode_tool(PLACEHOLDER_TOOL):
                found.append(self.tool(wire))
        return found

    def tool(self, wire: JSONObject) -> Tool | NativeTool:
        if "toolSpec" not in wire:
            return NativeTool(provider=self.provider, data=wire)
        spec = cast(JSONObject, wire["toolSpec"])
        made = Tool(
            name=spec["name"],
            description=spec.get("description") or "",
            parameters=spec["inputSchema"].get("json") or {},
            strict=spec.get("strict"),
        )
        given = {name: value for name, value in spec.items() if (name, value) != ("description", "")}
        rest = extra_of(given, encode_tool(made)["toolSpec"], "toolSpec")
        return replace(made, extra={self.provider: rest}) if rest else made


def _as_sendable(part: AnyPart, given: JSONObject, ours: JSONObject) -> JSONObject:
    """Return the content of a block, with our encoding in place of fields that a request must not have."""
    if isinstance(part, ToolCall):  # replies of some models contain a type
        given = {name: value for name, value in given.items() if (name, value) != ("type", "tool_use")}
        return {**given, "input": ours["input"]} if part.malformed else given
    if isinstance(part, Media) and "name" in ours and not DOCUMENT_NAME.fullmatch(given["name"]):
        return {**given, "name": ours["name"]}
    if isinstance(part, ToolResult) and not _is_sendable_result(part, given["content"]):
        return {**given, "content": ours["content"]}
    return given


def _is_sendable_result(part: ToolResult, content: list[JSONObject]) -> bool:
    named = [each["document"]["name"] for each in content if "document" in each]
    plain = all(isinstance(each["json"], dict) for each in content if "json" in each)
    return plain and all(map(DOCUMENT_NAME.fullmatch, named)) and not (part.is_error and part.content == "")

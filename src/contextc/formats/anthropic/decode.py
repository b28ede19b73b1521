"""Decoding of Anthropic's requests, replies and streams into messages.

Each block becomes a part. Data that encoding this part would not reproduce is kept in its `extra`. A block without a
matching part type becomes a `ProviderBlock`. A user message with results and text becomes a tool message and a user
message.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object
from contextc.formats.anthropic.encode import BETWEEN_KEY, FIELDS_KEY, encode_segment
from contextc.formats.base import Request, append_text, own_extra
from contextc.formats.encoder_decoder_base import (
    UNKNOWN_TOOL,
    decode_definition,
    encode_definition,
    mark_apart,
    other_fields,
    result_content,
    split_at_results,
    with_extra,
)
from contextc.formats.media_encoding import decode_base64, guess_media_type
from contextc.messages import (
    AnyPart,
    Extra,
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
    "pause_turn": "pause",
    "refusal": "refusal",
}


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    messages: list[Message] = []
    before = "assistant"
    for wire in cast(list[JSONObject], body.get("messages", [])):
        decoded = list(decoder.message(wire))
        if decoded and wire["role"] == before:
            decoded[0] = mark_apart(decoded[0], provider)
        before = wire["role"]
        messages += decoded
    given = body.get("system")
    system = Message(role="system", parts=tuple(decoder.parts(given))) if given else None
    if system is None and messages and messages[0].role == "system":  # a position the API does not accept
        system, *messages = messages
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decoder.tool(tool) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "system", "tools"),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    decoder = _Decoder(provider, model=reply.get("model"))
    usage = cast(JSONObject, reply.get("usage") or {})
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    details = cast(JSONObject, usage.get("output_tokens_details") or {})
    kept = as_object(usage.get("cache_creation"))
    reason = cast(str | None, reply.get("stop_reason"))
    rest = {
        name: reply[name] for name in ("id", "model", "stop_reason", "stop_details", "container") if reply.get(name)
    }
    return Message(
        role="assistant",
        parts=tuple(decoder.parts(reply.get("content"))),
        finish="error" if reply.get("error") else FINISH_REASONS.get(reason, reason) if reason else None,
        status="error" if reply.get("error") else "sent",
        error=str(cast(JSONObject, reply["error"]).get("message")) if reply.get("error") else None,
        usage=Usage(
            input=(usage.get("input_tokens") or 0) + read + written,
            output=usage.get("output_tokens") or 0,
            cache_read=read,
            cache_write=written,
            reasoning=details.get("thinking_tokens") or 0,
            cache_write_long=kept.get("ephemeral_1h_input_tokens") or 0,
        ),
        extra={provider: rest} if rest else None,
    )


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Return a reply from the events of its stream."""
    reply: JSONObject = {}
    blocks: dict[int, JSONObject] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                reply = {**event["message"]}
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                _apply(blocks.setdefault(event["index"], {"type": "text"}), event["delta"])
            case "content_block_stop":
                _close(blocks.get(event["index"], {}))
            case "message_delta":
                reply |= {name: value for name, value in event["delta"].items() if value is not None}
                used = cast(JSONObject, event.get("usage") or {})
                reply["usage"] = {
                    **reply.get("usage", {}),
                    **{name: each for name, each in used.items() if each is not None},
                }
            case "error":
                reply["error"] = event.get("error")
            case _:  # ping, message_stop, and event types of the future
                pass
    for block in blocks.values():
        _close(block)  # blocks of an incomplete stream
    return {**reply, "content": [blocks[index] for index in sorted(blocks)]}


def _apply(block: JSONObject, delta: JSONObject) -> None:
    match delta["type"]:
        case "text_delta":
            append_text(block, "text", delta["text"])
        case "thinking_delta":
            append_text(block, "thinking", delta["thinking"])
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            append_text(block, "input_text", delta["partial_json"])
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case _:
            block.setdefault("deltas", []).append(delta)


def _close(block: JSONObject) -> None:
    if (text := block.pop("input_text", None)) is not None:
        call = tool_call("-", "-", text)
        block["input"] = text if call.malformed else call.arguments


class _Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model
        self.names: dict[str, str] = {}

    def message(self, wire: JSONObject) -> Iterator[Message]:
        role = cast(Role, wire["role"])
        fields = {name: value for name, value in wire.items() if name not in ("role", "content") and value is not None}
        if fields and not wire["content"]:
            yield Message(role=role, parts=(), extra={self.provider: {BETWEEN_KEY: True, FIELDS_KEY: fields}})
            return
        if fields:
            first, *others = self.message({"role": role, "content": wire["content"]})
            yield replace(first, extra={self.provider: {**own_extra(first.extra, self.provider), FIELDS_KEY: fields}})
            yield from others
            return
        yield from split_message(role, self.parts(wire["content"]), self.provider)

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        if isinstance(content, str):
            yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            yield self.part(block)

    def part(self, block: JSONObject) -> AnyPart:
        part = self._part(block)
        if isinstance(part, ProviderBlock):
            return part
        return self._with_rest(part, block)

    def _part(self, block: JSONObject) -> AnyPart:
        match block.get("type"):
            case "text":
                return Text(block["text"])
            case "thinking":
                return Reasoning(
                    text=block["thinking"],
                    signature=block.get("signature"),
                    provider=self.provider,
                    model=self.model,
                )
            case "redacted_thinking":
                return Reasoning(data=block["data"], provider=self.provider, model=self.model)
            case "tool_use":
                self.names[block["id"]] = block["name"]
                return ToolCall(id=block["id"], name=block["name"], arguments=block["input"])
            case "tool_result":
                return self._result(block)
            case "image" | "document":
                return self._media(block)
            case _:
                return ProviderBlock(provider=self.provider, data=block)

    def _result(self, block: JSONObject) -> ToolResult:
        call_id = block["tool_use_id"]
        return ToolResult(
            call_id=call_id,
            name=self.names.get(call_id, UNKNOWN_TOOL),
            content=result_content(block.get("content"), self.parts),
            is_error=bool(block.get("is_error")),
        )

    def _media(self, block: JSONObject) -> AnyPart:
        source = cast(JSONObject, block["source"])
        default = "image/png" if block["type"] == "image" else "application/pdf"
        match source.get("type"):
            case "base64":
                if (data := decode_base64(source["data"])) is None:
                    return ProviderBlock(provider=self.provider, data=block)
                return Media(mime_type=source["media_type"], data=data)
            case "text":
                return Media(mime_type=source["media_type"], data=source["data"].encode())
            case "url":
                return Media(mime_type=guess_media_type(source["url"], default), url=source["url"])
            case "file":
                return Media(mime_type=default, file_id=source["file_id"], provider=self.provider)
            case _:
                return ProviderBlock(provider=self.provider, data=block)

    def _with_rest(self, part: AnyPart, block: JSONObject) -> AnyPart:
        """Return the part, with data of its block that our encoding would not reproduce."""
        role: Role = "tool" if isinstance(part, ToolResult) else "assistant"
        alone = Message(role=role, parts=(part,))
        wire = encode_segment([alone], provider=self.provider, system_between=False, blobs={}).messages
        ours = cast(JSONObject, wire[0]["content"][0]) if wire else {}
        given = {**block, "input": ours["input"]} if isinstance(part, ToolCall) and part.malformed else block
        return with_extra(part, given, ours, self.provider) if wire else part

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        if tool.get("type") not in (None, "custom"):
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(tool, "input_schema")
        return with_extra(made, tool, encode_tool(made), self.provider)


def encode_tool(tool: Tool) -> JSONObject:
    return encode_definition(tool, "input_schema")


def split_message(role: Role, parts: Iterable[AnyPart], provider: str) -> Iterator[Message]:
    """Yield the messages of one wire message. Results become tool messages."""
    extra: Extra | None = {provider: {BETWEEN_KEY: True}} if role == "system" else None
    for group in split_at_results(parts):
        yield Message(role="tool" if isinstance(group[0], ToolResult) else role, parts=tuple(group), extra=extra)

"""Decode Ollama's requests, replies and streams into messages.

A chunk of a stream is a complete reply object, and its tool calls are complete.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Request, append_text, extra_of, own_extra, text_of
from contextc.formats.encoder_decoder_base import UNKNOWN_TOOL, decode_definition, other_fields, with_extra
from contextc.formats.media_encoding import decode_base64
from contextc.formats.ollama.call_matching import CallMatcher, is_assistant_message
from contextc.formats.ollama.encode import encode_segment, encode_tool
from contextc.formats.request_settings import object_or_empty
from contextc.messages import (
    AnyPart,
    Extra,
    Media,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
IMAGE_SIGNATURES = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"RIFF", "image/webp"))
"""First bytes of images. Nothing else states their media type."""
STREAMED_FIELDS = ("content", "thinking")


def decode_request(body: JSONObject, provider: str) -> Request:
    wire = cast(list[JSONObject], body.get("messages") or [])
    decoder = _Decoder(provider, CallMatcher(wire))
    messages = [decoder.message(each) for each in wire]
    system = messages.pop(0) if messages and messages[0].role == "system" else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "tools"),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    said: JSONObject = {name: value for name, value in object_or_empty(reply.get("message")).items() if value}
    if calls := with_call_ids(said.pop("tool_calls", None), CallMatcher()):
        said["tool_calls"] = calls
    decoder = _Decoder(provider, CallMatcher(), model=reply.get("model"))
    words: JSONObject = {"content": ""} if said.keys() - {"role"} else {}  # an empty reply is not sent back
    message = decoder.message({**words, **said, "role": "assistant"})
    facts: JSONObject = {name: reply[name] for name in ("model", "created_at", "remote_model") if reply.get(name)}
    error: JSON = reply.get("error")
    return replace(
        message,
        finish="error" if error else _finish(reply, message),
        status="error" if error else "sent",
        error=str(error) if error else None,
        usage=Usage(input=reply.get("prompt_eval_count") or 0, output=reply.get("eval_count") or 0),
        extra={**(message.extra or {}), f"{provider} reply": facts} if facts else message.extra,
    )


def _finish(reply: JSONObject, message: Message) -> str | None:
    """Return the finish reason; None for a truncated stream."""
    if not reply.get("done", True):
        return None
    reason = cast(str, reply.get("done_reason") or "stop")
    return "tool_calls" if reason == "stop" and message.tool_calls else reason


def with_call_ids(calls: JSON, matcher: CallMatcher) -> list[JSONObject]:
    """Return the calls of a reply, each with an id, so that their results can be matched."""
    listed = cast(list[JSON], calls) if isinstance(calls, list) else []
    return [{**call, "id": matcher.add_call(call)} for call in map(object_or_empty, listed) if call]


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the lines of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {"done": False}
    message: JSONObject = {}
    calls: list[JSON] = []
    for event in events:
        reply |= {name: value for name, value in event.items() if name != "message" and value is not None}
        for name, value in object_or_empty(event.get("message")).items():
            if name in STREAMED_FIELDS and isinstance(value, str):
                append_text(message, name, value)
            elif name == "tool_calls" and isinstance(value, list):
                calls += cast(list[JSON], value)
            elif value is not None:
                message[name] = value
    return {**reply, "message": {**message, "tool_calls": calls} if calls else message}


class _Decoder:
    def __init__(self, provider: str, calls: CallMatcher, model: str | None = None) -> None:
        self.provider, self.calls, self.model = provider, calls, model

    def message(self, wire: JSONObject) -> Message:
        role = text_of(wire.get("role")).lower()
        if is_assistant_message(wire):
            self.calls.begin_reply()
        elif role == "tool":
            return Message(role="tool", parts=(self.result(wire),))
        message = Message(role=ROLES.get(role, "user"), parts=tuple(self.parts(wire)))
        ours = next(iter(self.encoded(message)), JSONObject())
        calls: JSONObject = {"tool_calls": ours["tool_calls"]} if "tool_calls" in ours else {}
        return with_extra(message, {**wire, **calls}, ours, self.provider)  # each call keeps its own extra fields

    def encoded(self, message: Message) -> tuple[JSONObject, ...]:
        return encode_segment([message], provider=self.provider, blobs={}).messages

    def parts(self, wire: JSONObject) -> Iterator[AnyPart]:
        if thought := text_of(wire.get("thinking")):
            yield Reasoning(text=thought, provider=self.provider, model=self.model)
        for image in cast(list[JSON], wire.get("images") or []):
            if (data := decode_base64("".join(text_of(image).split()))) is not None:
                yield Media(mime_type=_media_type(data), data=data)
        if text := text_of(wire.get("content")):
            yield Text(text)
        for call in cast(list[JSONObject], wire.get("tool_calls") or []):
            yield self.call(call)

    def call(self, call: JSONObject) -> ToolCall:
        function, call_id = object_or_empty(call.get("function")), self.calls.add_call(call)
        made = tool_call(call_id, function.get("name") or UNKNOWN_TOOL, function.get("arguments") or {})
        ours = cast(list[JSONObject], self.encoded(Message(role="assistant", parts=(made,)))[0]["tool_calls"])[0]
        return replace(made, extra=_extra_fields(call, ours, self.provider))

    def result(self, wire: JSONObject) -> ToolResult:
        answers = self.calls.match_result(wire)
        made = ToolResult(call_id=answers.id, name=answers.name or UNKNOWN_TOOL, content=text_of(wire.get("content")))
        return with_extra(made, wire, self.encoded(Message(role="tool", parts=(made,)))[0], self.provider)


def _tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    function = object_or_empty(tool.get("function"))
    if not isinstance(function.get("name"), str):
        return NativeTool(provider=provider, data=tool)
    made = decode_definition(function, "parameters", strict=False)
    return replace(made, extra=_extra_fields(tool, encode_tool(made), provider))


def _extra_fields(wire: JSONObject, ours: JSONObject, provider: str) -> Extra | None:
    """Return the extra fields of a call or tool, nested inside `function`, as `merge_function_extra` expects them."""
    outer = {name: value for name, value in wire.items() if name != "function"}
    rest = dict(own_extra(extra_of({**outer, "function": ours["function"]}, ours, provider), provider))
    if inside := own_extra(extra_of(object_or_empty(wire.get("function")), ours["function"], provider), provider):
        rest["function"] = inside
    return {provider: rest} if rest else None


def _media_type(data: bytes) -> str:
    return next((kind for begins, kind in IMAGE_SIGNATURES if data.startswith(begins)), "image/png")

"""Messages of LangChain, read as data: as `model_dump` wrote them, or in the older form of its serializer.

Content has three forms: text, LangChain's own blocks, and the blocks of the provider. Calls are in `tool_calls`, and
mostly in the content again. A block without a matching part type is kept unchanged for its provider.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from contextc._json import JSON, JSONObject, as_object, as_objects, encode
from contextc.formats.message_preparation import decode_base64, from_data_url, guess_media_type
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

ROLES: dict[str, Role] = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "user",
}
CALL_BLOCK_TYPES = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "function_call",
    "invalid_tool_call",
    "input_json_delta",
)
DEFAULT_MIME_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4", "file": "application/pdf"}
PROVIDERS = {"anthropic": "anthropic", "openai": "openai", "google_genai": "google", "google_vertexai": "google"}
UNKNOWN_TOOL = "unknown"


def is_message(value: JSON) -> bool:
    return isinstance(value, dict) and "content" in value and message_type(cast(JSONObject, value)) in ROLES


def message_type(value: JSONObject) -> str:
    """Return the type of a message: `human`, `ai` …, also for a stored chunk of a stream."""
    return str(value.get("type") or "").removesuffix("MessageChunk").removesuffix("Message").lower()


def to_message(value: JSONObject, tool_names: dict[str, str], *, time: int = 0) -> Message:
    """Return one message. `tool_names` collects the tool of each call, because a result may not name it."""
    role = ROLES[message_type(value)]
    if message_type(value) == "chat":
        role = ROLES.get(str(value.get("role")), "user")
    about = as_object(value.get("response_metadata"))
    provider = _provider(about)
    author = value.get("name") if role == "user" and isinstance(value.get("name"), str) else None
    if role == "tool":
        return Message(role="tool", parts=(_result(value, tool_names, provider),), time=time)
    parts = list(_parts(value.get("content"), provider, str(about.get("model_name") or "") or None))
    if role != "assistant":
        return Message(role=role, parts=tuple(parts), author=author or None, time=time)
    calls = list(_calls(value))
    tool_names.update({call.id: call.name for call in calls})
    finish: JSON = about.get("stop_reason") or about.get("finish_reason")
    return Message(
        role="assistant",
        parts=(*_reasoning_content(value, parts), *parts, *calls),
        usage=_usage(value.get("usage_metadata")),
        finish=FINISH_REASONS.get(finish, finish) if isinstance(finish, str) else None,
        time=time,
    )


FINISH_REASONS = {
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "max_tokens": "length",
    "STOP": "stop",
    "MAX_TOKENS": "length",
}


def _provider(about: JSONObject) -> str:
    named = str(about.get("model_provider") or "langchain")
    return PROVIDERS.get(named, named)


def _calls(value: JSONObject) -> Iterator[ToolCall]:
    for number, call in enumerate(as_objects(value.get("tool_calls"))):
        id = str(call.get("id") or f"call_{number}")
        yield ToolCall(id=id, name=str(call.get("name") or UNKNOWN_TOOL), arguments=as_object(call.get("args")))
    for number, call in enumerate(as_objects(value.get("invalid_tool_calls"))):
        id = str(call.get("id") or f"invalid_{number}")
        yield tool_call(id, str(call.get("name") or UNKNOWN_TOOL), str(call.get("args") or "") or "?")


def _result(value: JSONObject, names: Mapping[str, str], provider: str) -> ToolResult:
    call_id = str(value.get("tool_call_id") or value.get("name") or UNKNOWN_TOOL)
    name = str(value.get("name") or "") or names.get(call_id, UNKNOWN_TOOL)
    content: JSON = value.get("content")
    parts = list(_parts(content, provider, None))
    inner = tuple(part for part in parts if isinstance(part, Text | Media))
    whole = len(inner) == len(parts)
    text = content if isinstance(content, str) else inner if whole else encode(content).decode()
    return ToolResult(call_id=call_id, name=name, content=text, is_error=value.get("status") == "error")


def _reasoning_content(value: JSONObject, parts: list[AnyPart]) -> Iterator[Reasoning]:
    """Return reasoning that is stored beside the content, as OpenAI-compatible endpoints do."""
    text: JSON = as_object(value.get("additional_kwargs")).get("reasoning_content")
    if isinstance(text, str) and text and not any(isinstance(part, Reasoning) for part in parts):
        yield Reasoning(text=text)


def _parts(content: JSON, provider: str, model: str | None) -> Iterator[AnyPart]:
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    for block in cast(list[JSON], content) if isinstance(content, list) else []:
        if isinstance(block, str):
            yield Text(block)
        elif isinstance(block, dict) and cast(JSONObject, block).get("type") not in CALL_BLOCK_TYPES:
            yield _part(cast(JSONObject, block), provider, model)


def _part(block: JSONObject, provider: str, model: str | None) -> AnyPart:
    kind = block.get("type")
    if kind in ("text", "output_text", "input_text") and isinstance(block.get("text"), str):
        return Text(block["text"])
    if kind in ("thinking", "redacted_thinking", "reasoning"):
        return _reasoning(block, provider, model)
    return _media(block) or ProviderBlock(
        provider=provider, data=block.get("value", block) if kind == "non_standard" else block
    )


def _reasoning(block: JSONObject, provider: str, model: str | None) -> Reasoning:
    own = block.get("type") in ("thinking", "redacted_thinking")
    extras = as_object(block.get("extras"))
    summary = [str(each.get("text") or "") for each in as_objects(block.get("summary"))]
    text = block.get("thinking") or block.get("reasoning") or "\n\n".join(summary)
    hidden = block.get("data") or block.get("encrypted_content") or extras.get("encrypted_content")
    return Reasoning(
        text=str(text),
        signature=_text(block.get("signature") or extras.get("signature")),
        data=_text(hidden),
        id=_text(block.get("id")),
        provider="anthropic" if own else provider,
        model=model,
    )


def _media(block: JSONObject) -> Media | None:
    kind = str(block.get("type"))
    source, name = as_object(block.get("source")), _text(block.get("filename") or block.get("name"))
    mime = _text(block.get("mime_type") or block.get("media_type") or source.get("media_type"))
    if kind == "image_url":
        held: JSON = block.get("image_url")
        return _media_from_url(
            str(as_object(held).get("url") or "") if isinstance(held, dict) else str(held or ""), "image/png"
        )
    if kind == "input_audio":
        sound = as_object(block.get("input_audio"))
        return _media_from_bytes(sound.get("data"), f"audio/{sound.get('format') or 'wav'}", None)
    if kind not in DEFAULT_MIME_TYPES and kind != "document":
        return None
    mime = mime or DEFAULT_MIME_TYPES.get(kind, "application/pdf")
    held = as_object(block.get("file"))
    if found := _media_from_url(str(held.get("file_data") or ""), mime, _text(held.get("filename"))):
        return found
    data = block.get("base64") or block.get("data") or source.get("data")
    address = block.get("url") or source.get("url")
    return _media_from_bytes(data, mime, name) if data else _media_from_url(str(address or ""), mime, name)


def _media_from_bytes(data: JSON, mime: str, name: str | None) -> Media | None:
    found = data if isinstance(data, bytes) else decode_base64(data) if isinstance(data, str) else None
    return Media(mime_type=mime, data=found, name=name) if found else None


def _media_from_url(url: str, default: str, name: str | None = None) -> Media | None:
    if not url:
        return None
    return from_data_url(url, name) or Media(mime_type=guess_media_type(url, default), url=url, name=name)


def _usage(value: JSON) -> Usage | None:
    counts = as_object(value)
    if not any(isinstance(counts.get(name), int) for name in ("input_tokens", "output_tokens")):
        return None
    read, wrote = as_object(counts.get("input_token_details")), as_object(counts.get("output_token_details"))
    return Usage(
        input=_count(counts.get("input_tokens")),
        output=_count(counts.get("output_tokens")),
        cache_read=_count(read.get("cache_read")),
        cache_write=_count(read.get("cache_creation")),
        reasoning=_count(wrote.get("reasoning")),
    )


def _count(value: JSON) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value else None

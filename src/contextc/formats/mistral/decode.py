"""Decode Mistral's requests, replies and streams into messages.

Only fields that Mistral defines are read from a message, chunk or call. Mistral rejects any others when they are sent
back.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Request, grow, remember
from contextc.formats.media import from_data_url, guessed, unpacked
from contextc.formats.mistral.encode import CONTENT, NAMELESS, OBJECT, Encoder, blocks, thought
from contextc.formats.mistral.sketch import CHUNKS, TAKEN
from contextc.formats.openai_chat.decode import UNKNOWN_TOOL, apply_call, made_id
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    Native,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    tool_call,
)
from contextc.tools import NativeTool, Tool

ENDS = {"model_length": "length"}
"""Finish reasons of Mistral by their common name. `model_length`: the context window was full."""
MARKS = ("signature", "closed")
FAILED, UNTOLD = "error", "the model ended its reply with an error, and does not say which"
NO_ID = "null"  # written by the SDK for a call without an id
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
SOUNDS = {
    b"RIFF": "audio/wav",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
}
"""First bytes of audio data, by media type."""


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    messages = [decoder.message(wire) for wire in cast(list[JSONObject], body.get("messages", []))]
    # A system message directly before a reply stays in place: it begins the conversation.
    leads = messages and messages[0].role == "system" and (len(messages) == 1 or messages[1].role != "assistant")
    system = messages.pop(0) if leads else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decode_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings={name: value for name, value in body.items() if name not in ("messages", "tools") or value == []},
    )


def decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    function = cast(JSONObject | None, tool.get("function"))
    if function is None:
        return NativeTool(provider=provider, data=tool)
    return Tool(
        name=function["name"],
        description=function.get("description") or "",
        parameters=function.get("parameters") or {},
        strict=function.get("strict"),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    choices = cast(list[JSONObject], reply.get("choices") or [{}])
    choice = next((each for each in choices if each.get("index") == 0), choices[0])
    decoder = _Decoder(provider, model=reply.get("model"))
    said: JSONObject = {**cast(JSONObject, choice.get("message") or {}), "role": "assistant"}
    said["content"] = [_listed(block) for block in blocks(said.get("content"))]
    usage = cast(JSONObject, reply.get("usage") or {})
    facts: JSONObject = {name: reply[name] for name in ("id", "model") if reply.get(name)}
    cut = choice.get("finish_reason", "") is None and not usage
    finish = choice.get("finish_reason") or (None if cut else "stop")
    error = _problem(reply.get("error"), finish)
    return replace(
        decoder.message(said),
        finish=FAILED if error else ENDS.get(finish or "", finish),
        status="error" if error else "sent",
        error=error,
        usage=Usage(
            input=usage.get("prompt_tokens") or 0,
            output=usage.get("completion_tokens") or 0,
            cache_read=_cached(usage),
        ),
        extra={f"{provider} reply": facts} if facts else None,
    )


def _cached(usage: JSONObject) -> int:
    """Return the tokens read from the cache. Endpoints of Mistral's models use several names for them."""
    details = [usage.get(name) for name in ("prompt_tokens_details", "prompt_token_details")]
    inside = [cast(JSONObject, each).get("cached_tokens") for each in details if isinstance(each, dict)]
    found = [usage.get("num_cached_tokens"), *inside]
    return next((each for each in found if isinstance(each, int)), 0)


def _problem(error: JSON, finish: str | None) -> str | None:
    """Return the error text, or None. Some replies only have the finish reason `error`."""
    said = cast(JSONObject, error).get("message") if isinstance(error, dict) else error
    return str(said) if error else UNTOLD if finish == FAILED else None


def gather(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the chunks of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {}
    content: list[JSONObject] = []
    calls: list[JSONObject] = []
    finish = None
    for event in map(_inner, events):
        reply |= {name: event[name] for name in ("id", "model", "usage", "error") if event.get(name)}
        if event.get("object") == "error":
            reply["error"] = event
        for choice in cast(list[JSONObject], event.get("choices") or []):
            if choice.get("index") not in (None, 0):
                continue
            finish = choice.get("finish_reason") or finish
            delta = cast(JSONObject, choice.get("delta") or {})
            for block in blocks(delta.get("content")):
                _add(content, block)
            for piece in cast(list[JSONObject], delta.get("tool_calls") or []):
                apply_call(calls, named(piece))
    message: JSONObject = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [{**call, "id": call["id"] or made_id(number)} for number, call in enumerate(calls)]
    return {**reply, "choices": [{"message": message, "finish_reason": finish}]}


def _inner(event: JSONObject) -> JSONObject:
    """Return the event itself; the SDK wraps it in `data`."""
    inner: JSON = event.get("data")
    return cast(JSONObject, inner) if isinstance(inner, dict) else event


def _add(content: list[JSONObject], block: JSONObject) -> None:
    """Merge a chunk into the last one of its type, or append it."""
    last = content[-1] if content else {}
    if block.get("type") == "text" == last.get("type"):
        grow(last, "text", block["text"])
    elif block.get("type") == "thinking":
        if last.get("type") != "thinking" or _is_another(last, block):
            content.append(last := {**block, "thinking": []})
        for inner in blocks(block.get("thinking")):
            _add(last["thinking"], inner)
        last |= {name: block[name] for name in MARKS if block.get(name) is not None}
    else:
        content.append(dict(block))


def _is_another(last: JSONObject, block: JSONObject) -> bool:
    """Return True if a new thought begins: the last one is signed or closed, and this chunk does not just close or sign
    it.
    """
    ended = any([last.get(name) for name in MARKS])
    says = any([each.get("text", True) for each in blocks(block.get("thinking"))])
    again = any([last.get(name) is not None and block.get(name) is not None for name in MARKS])
    return ended and (says or again)


def _listed(block: JSONObject) -> JSONObject:
    """Return a chunk of a reply; a thought given as a string becomes the list that Mistral accepts back."""
    is_text = block.get("type") == "thinking" and isinstance(block.get("thinking"), str)
    return {**block, "thinking": blocks(block["thinking"])} if is_text else block


def named(piece: JSONObject) -> JSONObject:
    """Return a fragment of a call; the placeholder id becomes None."""
    return {**piece, "id": None} if piece.get("id") == NO_ID else piece


class _Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model
        self.names: dict[str, str] = {}
        self.encoder = Encoder(provider, {})

    def message(self, wire: JSONObject) -> Message:
        if wire["role"] == "tool":
            return Message(role="tool", parts=(self.result(wire),))
        role, content = ROLES.get(wire["role"], "user"), cast(JSON, wire.get("content"))
        parts = [*self.parts(content, role)]
        parts += [self.call(call) for call in cast(list[JSONObject], wire.get("tool_calls") or [])]
        if not parts and role != "assistant":
            return Message(role=role, parts=(), extra={self.provider: {CONTENT: content}})
        return Message(role=role, parts=tuple(parts))

    def parts(self, content: JSON, role: Role) -> Iterator[AnyPart]:
        for block in blocks(content):
            block = _plain(block)
            part = self.part(block, role)
            if (isinstance(part, Text) and part.text) or isinstance(part, Native):
                yield part
            elif isinstance(part, Media | Reasoning):
                ours = self.encoder.media(part) if isinstance(part, Media) else self.encoder.reasoning(part)
                extra = remember(block, ours or {}, self.provider)
                yield replace(part, extra=extra) if extra else part

    def part(self, block: JSONObject, role: Role) -> AnyPart:
        match block["type"]:
            case "text":
                return Text(block["text"])
            case "thinking" if role == "assistant":
                signature = cast(str | None, block.get("signature"))
                return Reasoning(text=thought(block), signature=signature, provider=self.provider, model=self.model)
            case "image_url":
                picture: JSON = block["image_url"]
                url = cast(str, cast(JSONObject, picture)["url"] if isinstance(picture, dict) else picture)
                return from_data_url(url) or Media(mime_type=guessed(url, "image/png"), url=url)
            case "document_url":
                url, name = cast(str, block["document_url"]), cast(str | None, block.get("document_name"))
                return from_data_url(url, name) or Media(mime_type=guessed(url, "application/pdf"), url=url, name=name)
            case "input_audio":
                return _sound(block["input_audio"]) or Native(provider=self.provider, data=block)
            case "file":
                return Media(mime_type="application/octet-stream", file_id=block["file_id"], provider=self.provider)
            case "thinking" if role != "system":
                return Text(thought(block))
            case _:
                return Native(provider=self.provider, data=block)

    def call(self, call: JSONObject) -> ToolCall:
        function = cast(JSONObject, call["function"])
        call_id = cast(str | None, named(call).get("id")) or made_id(len(self.names))
        self.names[call_id] = function["name"]
        made = tool_call(call_id, function["name"], function.get("arguments") or "")
        is_object = isinstance(function.get("arguments"), dict)
        return replace(made, extra={self.provider: {OBJECT: True}}) if is_object else made

    def result(self, wire: JSONObject) -> ToolResult:
        call_id, content = cast(str, wire.get("tool_call_id") or ""), cast(JSON, wire.get("content"))
        inner = tuple(self.parts(content, "tool")) if isinstance(content, list) else ()
        said = tuple(part for part in inner if isinstance(part, Text | Media))
        rest: JSONObject = {} if wire.get("name") else {NAMELESS: True}
        if any(not isinstance(part, Text) for part in inner):  # the newest models accept images here
            rest[CONTENT] = [_plain(block) for block in blocks(content) if block["type"] in TAKEN["tool"]]
        return ToolResult(
            call_id=call_id,
            name=self.names.get(call_id) or cast(str, wire.get("name") or UNKNOWN_TOOL),
            content=said or (content if isinstance(content, str) else ""),
            extra={self.provider: rest} if rest else None,
        )


def _plain(block: JSONObject) -> JSONObject:
    """Return a chunk with only the fields that Mistral defines; a chunk of an unknown type keeps all fields."""
    known = [name.removesuffix("?") for name in CHUNKS.get(block["type"], {})] or list(block)
    return {name: block[name] for name in ("type", *known) if block.get(name) is not None}


def _sound(place: str) -> Media | None:
    """Return the audio in an `input_audio`: a URL, or base64 without a media type."""
    if (found := from_data_url(place)) is not None:
        return found
    if place.startswith(("http://", "https://")):
        return Media(mime_type=guessed(place, "audio/mpeg"), url=place)
    data = unpacked(place) or b""
    kind = next((kind for start, kind in SOUNDS.items() if data.startswith(start)), None)
    return Media(mime_type=kind, data=data) if kind else None

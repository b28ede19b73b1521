"""Decode Chat Completions requests, replies and streams into messages."""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Request, append_text, extra_of, own_extra
from contextc.formats.encoder_decoder_base import (
    UNKNOWN_TOOL,
    decode_definition,
    encode_definition,
    generated_id,
    other_fields,
    with_extra,
)
from contextc.formats.media_encoding import decode_base64, from_data_url, media_from_url
from contextc.formats.open_calls import OpenCalls
from contextc.formats.openai_chat import reasoning_details
from contextc.formats.openai_chat.encode import AUDIO_FORMATS, FIELD, REASONING_FIELDS, encode_segment
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

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
SENDABLE_FIELDS = ("role", "content", "refusal", "tool_calls", "function_call", "name", reasoning_details.DETAILS)
"""Fields of a reply that a request may contain. Others, such as `annotations`, are kept as facts about the reply."""
FAILED, NO_REASON_GIVEN = "error", "the provider ended the reply with an error, and does not say which"
"""Finish reason and error text of a failed reply. Some servers also state the cause."""
MIME = {sound: mime for mime, sound in AUDIO_FORMATS.items() if mime != "audio/mp3"}


def decode_request(body: JSONObject, provider: str, reasoning_field: str | None) -> Request:
    decoder = _Decoder(provider, reasoning_field)
    messages = [decoder.message(wire) for wire in cast(list[JSONObject], body.get("messages", []))]
    system = messages.pop(0) if messages and messages[0].role == "system" else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decoder.tool(tool) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "tools"),
    )


def decode_reply(reply: JSONObject, provider: str, reasoning_field: str | None) -> Message:
    choices = cast(list[JSONObject], reply.get("choices") or [{}])
    choice = next((each for each in choices if each.get("index") == 0), choices[0])
    decoder = _Decoder(provider, reasoning_field, model=reply.get("model"), replied=True)
    said: JSONObject = {"role": "assistant", **(choice.get("message") or {})}
    back = (*SENDABLE_FIELDS, *([reasoning_field] if reasoning_field else []))
    message = decoder.message({name: value for name, value in said.items() if name in back or name in REASONING_FIELDS})
    silent = _select_extra(message.extra, provider, tuple(name for name in back if name != "content"))
    if (reasoning_field and message.parts) or decoder.encoded(replace(message, extra=silent)):
        silent = _select_extra(message.extra, provider, back)
    message = replace(message, extra=silent)  # a reply with nothing but an empty text is not sent back
    usage = cast(JSONObject, reply.get("usage") or {})
    read = cast(JSONObject, usage.get("prompt_tokens_details") or {})
    wrote = cast(JSONObject, usage.get("completion_tokens_details") or {})
    facts: JSONObject = {name: reply[name] for name in ("id", "model", "provider") if reply.get(name)}
    facts |= {"cost": usage["cost"]} if usage.get("cost") is not None else {}
    facts |= {name: value for name, value in said.items() if name not in (*back, *REASONING_FIELDS) and value}
    return replace(
        message,
        finish=_finish(reply, choice),
        status="error" if _error_text(reply, choice) else "sent",
        error=_error_text(reply, choice),
        usage=Usage(
            input=usage.get("prompt_tokens") or 0,
            output=usage.get("completion_tokens") or 0,
            cache_read=read.get("cached_tokens") or 0,
            cache_write=read.get("cache_write_tokens") or 0,
            reasoning=wrote.get("reasoning_tokens") or 0,
        ),
        extra={**(message.extra or {}), f"{provider} reply": facts} if facts else message.extra,
    )


def _finish(reply: JSONObject, choice: JSONObject) -> str | None:
    """Return the finish reason; None for a truncated stream, which has neither a reason nor its usage."""
    if _error_text(reply, choice):
        return FAILED
    cut = choice.get("finish_reason", "") is None and not reply.get("usage")
    return choice.get("finish_reason") or (None if cut else "stop")


def _error_text(reply: JSONObject, choice: JSONObject) -> str | None:
    """Return the error text, or None. A gateway may report the error inside the choice."""
    error: JSON = reply.get("error") or choice.get("error")
    said = cast(JSONObject, error).get("message") if isinstance(error, dict) else error
    return str(said) if error else None


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the chunks of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {}
    message: JSONObject = {"role": "assistant"}
    calls: list[JSONObject] = []
    finish = None
    for event in events:
        reply |= {name: event[name] for name in ("id", "model", "provider", "usage", "error") if event.get(name)}
        groq = cast(JSONObject, event.get("x_groq") or {})
        reply |= {"usage": groq["usage"]} if groq.get("usage") else {}
        for choice in cast(list[JSONObject], event.get("choices") or []):
            if choice.get("index") not in (None, 0):
                continue
            reply |= {name: choice[name] for name in ("usage", "error") if choice.get(name)}
            if choice.get("finish_reason") is not None:  # some endpoints send an empty string for none
                finish = choice["finish_reason"] or finish or ""
            _merge_delta(message, calls, cast(JSONObject, choice.get("delta") or {}))
    if calls:
        named = [{**call, "id": call["id"] or generated_id(number)} for number, call in enumerate(calls)]
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in named]
    return {**reply, "choices": [{"message": message, "finish_reason": finish}]}


def _merge_delta(message: JSONObject, calls: list[JSONObject], delta: JSONObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for piece in cast(list[JSONObject], value or []):
                merge_call_fragment(calls, piece)
        elif name == reasoning_details.DETAILS:
            reasoning_details.merge_fragments(cast(list[JSON], message.setdefault(name, [])), value)
        elif name != "role":
            _grow(message, name, value)


def _grow(holder: JSONObject, name: str, more: JSON) -> None:
    if isinstance(more, str) and isinstance(holder.get(name), str):
        append_text(holder, name, more)
    else:
        holder[name] = _extended(holder.get(name), more)


def _extended(before: JSON, more: JSON) -> JSON:
    """Return a message field, extended by the value in the next chunk."""
    if before is None or more is None:
        return more if before is None else before
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    if isinstance(before, dict) and isinstance(more, dict):
        known, given = cast(JSONObject, before), cast(JSONObject, more)
        return {**known, **{name: _extended(known.get(name), value) for name, value in given.items()}}
    if isinstance(before, list) or isinstance(more, list):  # some endpoints send blocks with text in between
        return [*cast(list[JSON], _blocks(before)), *cast(list[JSON], _blocks(more))]
    return more


def merge_call_fragment(calls: list[JSONObject], fragment: JSONObject) -> JSONObject:
    """Merge a fragment into its call and return the call. It is found by id, else by index, else it is the last one.

    A new id begins a new call, and so does the same id at another index.
    """
    call_id, index = fragment.get("id"), fragment.get("index")
    same = [
        call
        for call in calls
        if call_id and call.get("id") == call_id and (index is None or call["index"] in (None, index))
    ]
    same = same or [
        call for call in calls if not (call_id and call.get("id")) and index is not None and call["index"] == index
    ]
    if not same and not call_id and index is None and calls:
        same = [calls[-1]]
    if not same:
        calls.append({"index": index, "id": call_id or "", "type": fragment.get("type") or "function"})
        same = [calls[-1]]
    call = same[-1]
    call["id"] = call_id or call["id"]
    for name, value in fragment.items():
        if name in ("index", "id", "type"):
            continue
        inner = cast(JSONObject, value or {}) if isinstance(value, dict) else None
        if inner is None:
            call[name] = value
            continue
        known = cast(JSONObject, call.setdefault(name, {}))
        for field, each in inner.items():
            if field != "name" or known.get(field) != each:
                _grow(known, field, each)
    return call


class _Decoder:
    def __init__(
        self, provider: str, reasoning_field: str | None, model: str | None = None, *, replied: bool = False
    ) -> None:
        self.provider, self.reasoning_field, self.model, self.replied = provider, reasoning_field, model, replied
        self.names: dict[str, str] = {}
        self.waiting = OpenCalls[ToolCall]()  # legacy `function_call`s, which have no ids

    def message(self, wire: JSONObject) -> Message:
        if wire["role"] in ("tool", "function"):
            return Message(role="tool", parts=(self.result(wire),))
        parts = [*self.reasoning(wire), *self.parts(wire.get("content"))]
        parts += [self.call(call) for call in cast(list[JSONObject], wire.get("tool_calls") or [])]
        if (old := wire.get("function_call")) and isinstance(old, dict) and cast(JSONObject, old).get("name"):
            parts.append(self.old_call(cast(JSONObject, old)))
        if isinstance(refusal := wire.get("refusal"), str) and refusal:
            data = {"type": "refusal", "refusal": refusal}
            parts.append(ProviderBlock(provider=self.provider, data=data, extra={self.provider: {FIELD: True}}))
        message = Message(role=ROLES.get(wire["role"], "user"), parts=tuple(parts))
        return self.with_rest(message, wire)

    def with_rest(self, message: Message, wire: JSONObject) -> Message:
        """Return the message with the fields that encoding would not reproduce in its `extra`."""
        encoded = self.encoded(message)
        ours = encoded[0] if encoded else {}
        known = {**wire, "refusal": wire.get("refusal") or None}
        if wire.get("tool_calls"):
            known["tool_calls"] = ours.get("tool_calls")
        if self.replied and reasoning_details.decode_blocks(wire.get(reasoning_details.DETAILS), self.provider, None):
            known[reasoning_details.DETAILS] = ours.get(reasoning_details.DETAILS)
        if _blocks(known.get("content")) == _blocks(ours.get("content")):
            known["content"] = ours.get("content")
        return with_extra(message, known, ours, self.provider)

    def encoded(self, message: Message) -> tuple[JSONObject, ...]:
        return encode_segment(
            [message], provider=self.provider, reasoning_field=self.reasoning_field, blobs={}
        ).messages

    def reasoning(self, wire: JSONObject) -> Iterator[AnyPart]:
        """Return the reasoning, from blocks or from one field. If both are present, they have the same content."""
        blocks = reasoning_details.decode_blocks(
            wire.get(reasoning_details.DETAILS), self.provider, self.model, is_reply=self.replied
        )
        texts = [text for name in REASONING_FIELDS if isinstance(text := wire.get(name), str) and text]
        if texts and not (blocks and reasoning_details.blocks_text(wire[reasoning_details.DETAILS])):
            yield Reasoning(text=texts[0], provider=self.provider, model=self.model)
        yield from blocks

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        if isinstance(content, str):
            if content:
                yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            part = self.part(block)
            if isinstance(part, ProviderBlock):
                yield part
                continue
            ours = self.encoded(Message(role="user", parts=(part,)))
            blocks = cast(list[JSONObject], _blocks(ours[0]["content"])) if ours else [cast(JSONObject, {})]
            yield with_extra(part, block, blocks[0], self.provider)

    def part(self, block: JSONObject) -> AnyPart:
        match block.get("type"):
            case "text":
                return Text(block["text"])
            case "image_url" if isinstance(block["image_url"], dict):
                return media_from_url(cast(JSONObject, block["image_url"])["url"], "image/png")
            case "input_audio" if isinstance(block["input_audio"], dict):
                sound = cast(JSONObject, block["input_audio"])
                data = decode_base64(sound["data"])
                if data is not None and sound["format"] in MIME:
                    return Media(mime_type=MIME[sound["format"]], data=data)
            case "file" if isinstance(block.get("file"), dict):
                file = cast(JSONObject, block["file"])
                if "file_id" in file:
                    return Media(mime_type="application/octet-stream", file_id=file["file_id"], provider=self.provider)
                if found := from_data_url(file.get("file_data") or "", file.get("filename")):
                    return found
            case _:
                pass
        return ProviderBlock(provider=self.provider, data=block)

    def call(self, call: JSONObject) -> AnyPart:
        named = cast(JSONObject, call.get("function") or call.get("custom") or {})
        if "name" not in named:
            return ProviderBlock(provider=self.provider, data=call)
        if self.replied:
            call = _sendable_call(call)
            named = cast(JSONObject, call.get("function") or call.get("custom"))
        if not call.get("id"):
            call = {**call, "id": generated_id(len(self.names))}
        self.names[call["id"]] = named["name"]
        made = tool_call(call["id"], named["name"], named.get("arguments") or named.get("input") or "")
        ours = cast(list[JSONObject], self.encoded(Message(role="assistant", parts=(made,)))[0]["tool_calls"])[0]
        return with_extra(made, call, ours, self.provider)

    def old_call(self, function: JSONObject) -> AnyPart:
        """Decode a legacy `function_call`, which has no id. Results refer to it by name."""
        name = cast(str, function.get("name") or UNKNOWN_TOOL)
        made = tool_call(f"function_{len(self.names)}", name, cast(str, function.get("arguments") or ""))
        self.names[made.id] = name
        self.waiting.add(made, name)
        return made

    def old_id(self, name: JSON) -> str:
        found = self.waiting.pop(name) if isinstance(name, str) else None
        return "" if found is None else found.id

    def result(self, wire: JSONObject) -> ToolResult:
        old = wire["role"] == "function"
        call_id = self.old_id(wire.get("name")) if old else cast(str, wire.get("tool_call_id") or "")
        content: JSON = wire.get("content")
        inner = tuple(self.parts(content)) if isinstance(content, list) else ()
        texts = tuple(part for part in inner if isinstance(part, Text | Media))
        made = ToolResult(
            call_id=call_id,
            name=self.names.get(call_id) or cast(str, wire.get("name") or UNKNOWN_TOOL),
            content=texts or (content if isinstance(content, str) else ""),
        )
        return with_extra(made, wire, self.encoded(Message(role="tool", parts=(made,)))[0], self.provider)

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        function = cast(JSONObject | None, tool.get("function"))
        if function is None:
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(function, "parameters")
        ours = encode_tool(made)
        rest = dict(own_extra(extra_of(tool, ours, self.provider), self.provider))
        if inside := own_extra(extra_of(function, ours["function"], self.provider), self.provider):
            rest["function"] = inside
        return replace(made, extra={self.provider: rest}) if rest else made


def _sendable_call(call: JSONObject) -> JSONObject:
    """Return a call of a reply as a request may contain it: without its index, and with arguments."""
    call = {name: value for name, value in call.items() if name != "index"}
    function: JSON = call.get("function")
    if isinstance(function, dict) and cast(JSONObject, function).get("arguments") is None:
        call["function"] = {**cast(JSONObject, function), "arguments": "{}"}
    return call


def encode_tool(tool: Tool) -> JSONObject:
    return {"type": "function", "function": encode_definition(tool, "parameters", tool.parameters)}


def _select_extra(extra: Extra | None, provider: str, names: tuple[str, ...]) -> Extra | None:
    rest = {name: value for name, value in (extra or {}).get(provider, {}).items() if name in names}
    return {provider: rest} if rest else None


def _blocks(content: JSON) -> JSON:
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else content

"""Decode requests, replies and streams of the Responses API into messages.

The output of one model response consists of several items and becomes one assistant message. Each item, or each block
of a message item, becomes a part. An item without a corresponding part type becomes a `ProviderBlock` part.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, encode, id_text
from contextc.formats.base import Request, append_text, extra_of
from contextc.formats.encoder_decoder_base import (
    NO_PARAMETERS,
    UNKNOWN_TOOL,
    decode_definition,
    encode_definition,
    other_fields,
    result_content,
)
from contextc.formats.media_encoding import from_data_url, media_from_url
from contextc.formats.message_groups import merge_neighbours
from contextc.formats.openai_responses.encode import (
    ITEM,
    NESTED,
    STRING_INPUT,
    encode_block,
    encode_item,
    encode_segment,
    extra_fields,
    extra_key,
)
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolResult,
    Usage,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
FINISH = {"max_output_tokens": "length"}
INPUT_ITEMS = (  # items without a role that come from the caller, not from the model
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "mcp_approval_response",
    "configuration_update",
    "compaction_trigger",
)
CALLER_SUFFIXES = ("_output", "_response")  # of types of items that come from the caller
TOOL_SEARCH = "tool_search"
"""The name of a call with which the model searches the client's tools. It is an item type of its own."""
SESSION_FIELDS = ("previous_response_id", "conversation")
"""The settings of a request that name its session."""
TEXTS = ("input_text", "output_text", "text")
TEXT_DELTAS = {  # by type of delta: the list it extends, the name of its index, and the block type
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
ARGUMENT_DELTAS = {
    "response.function_call_arguments.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.code_interpreter_call_code.delta": "code",
}


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    given, instructions = body.get("input"), body.get("instructions")
    if isinstance(given, str):
        messages = [Message(role="user", parts=(Text(given),), extra={extra_key(provider): {STRING_INPUT: True}})]
    else:
        messages = decoder.messages(cast(list[JSONObject], given or []))
    prompt = isinstance(instructions, str) and bool(instructions.strip())
    taken = ("input", "tools", "instructions") if prompt else ("input", "tools")
    return Request(
        messages=tuple(messages),
        system=Message(role="system", parts=(Text(cast(str, instructions)),)) if prompt else None,
        tools=tuple(decoder.tool(tool) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, *taken),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    decoder = _Decoder(provider, model=reply.get("model"))
    messages = decoder.messages(
        [{"role": "assistant", **item} if item.get("type") == "message" else item for item in _output(reply)]
    )
    parts = tuple(part for message in messages for part in message.parts)
    usage = cast(JSONObject, reply.get("usage") or {})
    read = cast(JSONObject, usage.get("input_tokens_details") or {})
    kept = as_object(read.get("cache_write_tokens_details"))
    wrote = cast(JSONObject, usage.get("output_tokens_details") or {})
    names = ("id", "model", "status", "incomplete_details", "error", "conversation")
    rest = {name: reply[name] for name in names if reply.get(name)}
    message = Message(
        role="assistant",
        parts=parts,
        usage=Usage(
            input=usage.get("input_tokens") or 0,
            output=usage.get("output_tokens") or 0,
            cache_read=read.get("cached_tokens") or 0,
            cache_write=read.get("cache_write_tokens") or 0,
            reasoning=wrote.get("reasoning_tokens") or 0,
            cache_write_long=kept.get("ttl_12h_tokens") or 0,
        ),
        extra={extra_key(provider): rest} if rest else None,
    )
    message = replace(message, finish=_finish(reply, calls=bool(message.tool_calls)))
    if message.finish != "error":
        return message
    problem = cast(JSON, reply.get("error") or {})
    said = cast(JSONObject, problem).get("message") if isinstance(problem, dict) else problem
    return replace(message, status="error", error=str(said or "The provider gave no reason."))


def is_client_search(item: JSONObject) -> bool:
    """Return True if an item is a tool search that the client runs, and answers as it answers a function call."""
    has_arguments = isinstance(item.get("arguments") or {}, dict | str)
    return isinstance(item.get("call_id"), str) and item.get("execution") != "server" and has_arguments


def is_model_output(item: JSONObject) -> bool:
    """Return True if an item of a history comes from the model, also if its type is unknown."""
    if "role" in item:
        return item["role"] == "assistant"
    return not str(item.get("type") or "").endswith(CALLER_SUFFIXES)


def find_session(reply: JSONObject, field: str) -> str:
    """Return the session of a response: its conversation, or its own id if it was stored.

    Another `field` than these two is one of a provider's own.
    """
    if reply.get("store") is False:
        return ""
    if field not in SESSION_FIELDS and (named := id_text(reply.get(field))):
        return named
    conversation: JSON = reply.get("conversation")
    within = cast(JSONObject, conversation) if isinstance(conversation, dict) else {"id": conversation}
    return id_text((within if field == "conversation" else reply).get("id"))


def _output(reply: JSONObject) -> list[JSONObject]:
    return cast(list[JSONObject], reply.get("output") or [])


def _finish(reply: JSONObject, *, calls: bool) -> str | None:
    status = cast(str | None, reply.get("status")) or ("failed" if reply.get("error") else "completed")
    match status:
        case "completed" | "complete":
            return "tool_calls" if calls else "stop"
        case "incomplete":
            reason = cast(JSONObject, reply.get("incomplete_details") or {}).get("reason") or status
            return FINISH.get(reason, reason)
        case "failed":
            return "error"
        case "in_progress" | "queued":  # a truncated stream
            return None
        case _:
            return status


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the events of its stream. The last event holds all of it; a truncated stream is assembled."""
    reply: JSONObject = {}
    items: dict[int, JSONObject] = {}
    for event in events:
        index = cast(int, event.get("output_index", len(items)))
        if isinstance(response := event.get("response"), dict):
            reply |= cast(JSONObject, response)
        elif event.get("type") == "error":
            reply |= {"status": "failed", "error": event.get("error") or event}
        elif isinstance(item := event.get("item"), dict):
            items[index] = deepcopy(cast(JSONObject, item))
        elif index in items:
            _merge_event(items[index], event)
    return {**reply, "output": _output(reply) or [items[index] for index in sorted(items)]}


def _merge_event(item: JSONObject, event: JSONObject) -> None:
    kind = cast(str, event.get("type") or "")
    if name := ARGUMENT_DELTAS.get(kind):
        append_text(item, name, event["delta"])
    elif kind in TEXT_DELTAS:
        blocks, index, made, text = TEXT_DELTAS[kind]
        block = _block(item, blocks, event.get(index, 0), made)
        append_text(block, text, event["delta"])
    elif kind == "response.output_text.annotation.added":
        block = _block(item, "content", event.get("content_index", 0), "output_text")
        block["annotations"] = [*(block.get("annotations") or []), event["annotation"]]


def _block(item: JSONObject, blocks: str, index: int, kind: str) -> JSONObject:
    found = cast(list[JSONObject], item.get(blocks) or [])
    item[blocks] = found
    while len(found) <= index:
        found.append({"type": kind})
    return found[index]


class _Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model, self.place = provider, model, extra_key(provider)
        self.names: dict[str, str] = {}

    def messages(self, items: Iterable[JSONObject]) -> list[Message]:
        """Return the items as messages. Consecutive items of the model become one message."""
        return merge_neighbours([self.message(item) for item in items], "assistant")

    def message(self, item: JSONObject) -> Message:
        role = ROLES.get(item.get("role") or "")
        match item.get("type"):
            case None | "message" if "role" in item:
                if role == "assistant":
                    return Message(role="assistant", parts=tuple(self.spoken(item)))
                return self.said(item, role or "user")
            case "reasoning":
                return Message(role="assistant", parts=(self.reasoning(item),))
            case "function_call":
                return Message(role="assistant", parts=(self.call(item, item["name"], item.get("arguments") or ""),))
            case "function_call_output":
                return Message(role="tool", parts=(self.result(item, item.get("output")),))
            case "tool_search_call" if is_client_search(item):
                return Message(role="assistant", parts=(self.call(item, TOOL_SEARCH, item.get("arguments") or {}),))
            case "tool_search_output" if self.names.get(item.get("call_id") or "") == TOOL_SEARCH:
                return Message(role="tool", parts=(self.result(item, encode(item.get("tools")).decode()),))
            case kind:
                native = ProviderBlock(provider=self.provider, data=item)
                return Message(role=role or ("user" if kind in INPUT_ITEMS else "assistant"), parts=(native,))

    def said(self, item: JSONObject, role: Role) -> Message:
        """Decode an item that was input to the model."""
        message = Message(role=role, parts=tuple(self.parts(item.get("content"))))
        encoded = encode_segment([message], provider=self.provider, blobs={}).messages
        ours = encoded[0] if encoded else {}
        known = {**item}
        if ours and _blocks(item.get("content"), "input_text") == _blocks(ours["content"], "input_text"):
            known["content"] = ours["content"]
        return replace(message, extra=extra_fields(known, ours, self.provider))

    def spoken(self, item: JSONObject) -> Iterator[AnyPart]:
        """Decode a message item of the model: a part for each block, each with its item."""
        fields = {name: value for name, value in item.items() if name not in ("role", "content") and value is not None}
        blocks = cast(list[JSONObject], _blocks(item.get("content"), "output_text") or [])
        for number, block in enumerate(blocks):
            part: AnyPart = ProviderBlock(provider=self.provider, data=block)
            rest: JSONObject = {}
            if block.get("type") in TEXTS and isinstance(text := block.get("text"), str):
                part = Text(text)
                ours: JSONObject = {"type": "output_text", "text": text}
                rest = (extra_of(block, ours, self.place) or {}).get(self.place, {})
            if fields or rest or number or not isinstance(part, Text) or not part.text.strip():
                rest = {**rest, ITEM: fields, **({NESTED: True} if number else {})}
            yield replace(part, extra={self.place: rest}) if rest else part
        if not blocks:
            yield ProviderBlock(provider=self.provider, data=item)

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        if isinstance(content, str):
            if content:
                yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            part = self.part(block)
            if isinstance(part, ProviderBlock):
                yield replace(part, extra={self.place: {NESTED: True}})
                continue
            yield replace(part, extra=extra_fields(block, encode_block(part, self.provider), self.provider))

    def part(self, block: JSONObject) -> AnyPart:
        held, url = block.get("file_id"), block.get("image_url") or block.get("file_url")
        match block.get("type"):
            case "input_text" | "output_text" | "text" if isinstance(block.get("text"), str):
                return Text(block["text"])
            case "input_image":
                if held:
                    return Media(mime_type="image/png", file_id=held, provider=self.provider)
                if url:
                    return media_from_url(url, "image/png")
            case "input_file":
                if held:
                    return Media(mime_type="application/pdf", file_id=held, provider=self.provider)
                if url:
                    return Media(mime_type="application/pdf", url=url, name=block.get("filename"))
                if found := from_data_url(block.get("file_data") or "", block.get("filename")):
                    return found
            case _:
                pass
        return ProviderBlock(provider=self.provider, data=block)

    def reasoning(self, item: JSONObject) -> AnyPart:
        thoughts = cast(list[JSONObject], item.get("summary") or item.get("content") or [])
        if not all(isinstance(thought, dict) and isinstance(thought.get("text") or "", str) for thought in thoughts):
            return ProviderBlock(provider=self.provider, data=item)
        part = Reasoning(
            text="\n\n".join(thought.get("text") or "" for thought in thoughts),
            data=item.get("encrypted_content"),
            id=item.get("id"),
            provider=self.provider,
            model=self.model,
        )
        ours = encode_item(part, self.provider)
        if ours is None:
            return ProviderBlock(provider=self.provider, data=item)
        return replace(part, extra=extra_fields(item, ours, self.provider))

    def call(self, item: JSONObject, name: str, arguments: str | JSONObject) -> AnyPart:
        self.names[item["call_id"]] = name
        made = tool_call(item["call_id"], name, arguments)
        return replace(made, extra=extra_fields(item, encode_item(made, self.provider), self.provider))

    def result(self, item: JSONObject, output: JSON) -> ToolResult:
        call_id = cast(str, item.get("call_id") or "")
        content = result_content(output, self.parts)
        made = ToolResult(call_id=call_id, name=self.names.get(call_id, UNKNOWN_TOOL), content=content)
        ours = cast(JSONObject, encode_item(made, self.provider))
        known = {**item}
        if "output" in item and _blocks(output, "input_text") == _blocks(ours["output"], "input_text"):
            known["output"] = ours["output"]
        return replace(made, extra=extra_fields(known, ours, self.provider))

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        if tool.get("type") != "function" or "name" not in tool:
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(tool, "parameters")
        return replace(made, extra=extra_fields(tool, encode_tool(made), self.provider))


def encode_tool(tool: Tool) -> JSONObject:
    """Encode a function tool. `strict` is always written, because the API treats a tool without it as strict."""
    fields = encode_definition(tool, "parameters", tool.parameters or NO_PARAMETERS)
    return {"type": "function", **fields, "strict": bool(tool.strict)}


def _blocks(content: JSON, kind: str) -> JSON:
    return [{"type": kind, "text": content}] if isinstance(content, str) else content

"""Decoding of Codex threads into messages.

Consecutive items of the agent become one assistant message, followed by a tool message with the results of its calls.
Text after a call starts the next assistant message, because a model continues only after its results. An item without a
matching part type becomes a `ProviderBlock`. A call keeps the rest of its item, so that it is sent back as the same
item.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import Request, extra_of, text_of
from contextc.formats.codex import rollout_decoding
from contextc.formats.codex.encode import BARE_KEY, EMPTY_REASONING, ITEM_KEY, Encoder
from contextc.formats.codex.event_collector import (
    SHOWN_TEXT_KEY,
    collect_items,
    completed_notification,
    is_event,
    reasoning_text,
)
from contextc.formats.codex.items import CALL_TYPES, CallType, is_error, is_running, with_result, without_output
from contextc.formats.encoder_decoder_base import NO_PARAMETERS, decode_definition, other_fields, with_extra
from contextc.formats.media_encoding import media_from_url
from contextc.formats.request_settings import object_or_empty
from contextc.messages import (
    AnyPart,
    Extra,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

OWN_FIELDS = ("items", "developerInstructions", "dynamicTools")


class CallWithResult(NamedTuple):
    """A call, and its result where it has one."""

    call: ToolCall
    result: ToolResult | None


def decode_request(body: JSONObject, provider: str) -> Request:
    instructions: JSON = body.get("developerInstructions")
    prompt = isinstance(instructions, str) and bool(instructions.strip())
    given: list[JSONObject] = [item for item in cast(list[JSON], body.get("items") or []) if isinstance(item, dict)]
    recorded, others = _separate_rollout(given)
    messages = [*rollout_decoding.decode_rollout(recorded, provider), *decode_items(extract_items(others), provider)]
    taken = OWN_FIELDS if prompt else ("items", "dynamicTools")
    tools = cast(list[JSONObject], body.get("dynamicTools") or [])
    return Request(
        messages=tuple(messages),
        system=Message(role="system", parts=(Text(cast(str, instructions)),)) if prompt else None,
        tools=tuple(decode_tool(tool, provider) for tool in tools),
        settings=other_fields(body, *taken),
    )


def _separate_rollout(given: Sequence[JSONObject]) -> tuple[list[JSONObject], list[JSONObject]]:
    """Return the lines of a rollout file, and everything else."""
    recorded = [each for each in given if rollout_decoding.is_rollout_line(each)]
    return recorded, [each for each in given if not rollout_decoding.is_rollout_line(each)]


def extract_items(given: Sequence[JSONObject]) -> list[JSONObject]:
    """Return the items of a thread, extracted from any events around them."""
    if not any(is_event(each) for each in given):
        return list(given)
    return collect_items(each if is_event(each) else completed_notification(each) for each in given)


def decode_items(items: Iterable[JSONObject], provider: str) -> list[Message]:
    """Return the items as messages. Consecutive items of the agent become one message."""
    decoder = Decoder(provider)
    found: list[Message] = []
    run: list[JSONObject] = []
    for item in items:
        own = decoder.user(item)
        after_calls = run and item.get("type") not in CALL_TYPES and run[-1].get("type") in CALL_TYPES
        if own is not None or after_calls or item == EMPTY_REASONING:
            found += decoder.decode_run(run)
            run = []
        if own is None:
            run.append(item)
        else:
            found.append(own)
    return [*found, *decoder.decode_run(run)]


class Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model

    def user(self, item: JSONObject) -> Message | None:
        """Return a user message, or None if this is an item of the agent."""
        if item.get("type") == "hookPrompt":
            return Message(role="user", parts=(ProviderBlock(provider=self.provider, data=item),))
        if item.get("type") != "userMessage":
            return None
        blocks = cast(list[JSONObject], item.get("content") or [])
        message = Message(role="user", parts=tuple(part for block in blocks if (part := self.block(block)) is not None))
        ours = Encoder(self.provider, {}).encode_message(message)
        return replace(message, extra=self.extra_fields(item, ours[0] if len(ours) == 1 else {})) if ours else message

    def decode_run(self, items: Sequence[JSONObject]) -> Iterator[Message]:
        """Return the messages of items for which the starts of the model's replies are unknown."""
        bare = bool(items) and items[0].get("type") in CALL_TYPES
        for message in self.decode_step(items):
            marked = bare and message.role == "assistant"
            yield replace(message, extra={self.provider: {BARE_KEY: True}}) if marked else message

    def decode_step(self, items: Sequence[JSONObject]) -> Iterator[Message]:
        """Return the messages of consecutive items of the agent, with the results of its tools."""
        parts: list[AnyPart] = []
        results: list[ToolResult] = []
        running: set[str] = set()
        for item in items:
            if (kind := CALL_TYPES.get(item.get("type") or "")) is not None:
                asked = self.decode_call(item, kind)
                if asked.call.id not in running or item["type"] != "functionCallOutput":
                    parts.append(asked.call)
                if asked.result is None:
                    running.add(asked.call.id)
                results += [asked.result] if asked.result is not None else []
            elif (part := self.part(item)) is not None:
                parts.append(part)
        if parts:
            yield Message(role="assistant", parts=tuple(parts))
        if results:
            yield Message(role="tool", parts=tuple(results))

    def block(self, block: JSONObject) -> AnyPart | None:
        url, held = text_of(block.get("url")), block.get("fileId")
        part: AnyPart
        match block.get("type"):
            case "text":
                if not block.get("text"):
                    return None
                part = Text(block["text"])
            case "image" | "audio" as kind if url:
                default = "image/png" if kind == "image" else "audio/wav"
                part = media_from_url(url, default)
                if part.kind != kind:
                    return ProviderBlock(provider=self.provider, data=block)
            case "image" if isinstance(held, str):
                part = Media(mime_type="image/png", file_id=held, provider=self.provider)
            case _:
                return ProviderBlock(provider=self.provider, data=block)
        ours = Encoder(self.provider, {}).block(part)
        return replace(part, extra=extra_of(block, ours or {}, self.provider))

    def part(self, item: JSONObject) -> AnyPart | None:
        """Return the part of an item other than a call, or None if it is empty."""
        match item.get("type"):
            case "agentMessage":
                return self.with_extra(Text(text_of(item.get("text"))), item) if item.get("text") else None
            case "reasoning":
                return self.reasoning(item) if item != EMPTY_REASONING else None
            case _:
                return ProviderBlock(provider=self.provider, data=item)

    def reasoning(self, item: JSONObject) -> AnyPart | None:
        text, known = reasoning_text(item), {name: value for name, value in item.items() if name != SHOWN_TEXT_KEY}
        part = Reasoning(text=text, id=item.get("id"), provider=self.provider, model=self.model)
        return self.with_extra(part, known) if text or part.id else None

    def with_extra(self, part: Text | Reasoning, item: JSONObject) -> AnyPart:
        ours = Encoder(self.provider, {}).item(part)
        return replace(part, extra=self.extra_fields(item, ours or {}))

    def decode_call(self, item: JSONObject, kind: CallType) -> CallWithResult:
        call_id = text_of(item.get("id"))
        call = tool_call(call_id, kind.name(item), _arguments(kind.arguments(item)))
        result: ToolResult | None = None
        if not is_running(item):
            result = ToolResult(call_id=call_id, name=call.name, content=kind.output(item), is_error=is_error(item))
        if kind is CALL_TYPES["dynamicToolCall"]:
            ours = Encoder(self.provider, {}).call(call, result)
            return CallWithResult(replace(call, extra=self.extra_fields(item, ours)), result)
        rest = without_output(item, kind)
        if result is not None and with_result(rest, kind, result) != item:
            rest = item
        rest = {name: value for name, value in rest.items() if name != "id" and value is not None}
        return CallWithResult(replace(call, extra={self.provider: {ITEM_KEY: rest}}), result)

    def extra_fields(self, item: JSONObject, ours: JSONObject) -> Extra | None:
        """Return the fields of an item in which our encoding would differ."""
        rest = (extra_of(item, ours, self.provider) or {}).get(self.provider, {})
        return {self.provider: {ITEM_KEY: rest}} if rest else None


def decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    if tool.get("type", "function") != "function" or not isinstance(tool.get("name"), str):
        return NativeTool(provider=provider, data=tool)
    schema = object_or_empty(tool.get("inputSchema"))
    made = decode_definition({**tool, "inputSchema": schema}, "inputSchema", strict=False)
    return with_extra(made, tool, encode_tool(made), provider)


def encode_tool(tool: Tool) -> JSONObject:
    """Return a tool definition. Codex requires a description, which may be empty."""
    schema = tool.parameters or NO_PARAMETERS
    return {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": schema}


def _arguments(given: JSON) -> str | JSONObject:
    if isinstance(given, str | dict):
        return cast("str | JSONObject", given)
    return {} if given is None else encode(given).decode()

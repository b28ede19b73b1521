"""Anthropic's Messages API: the table of its blocks, and the encoding and decoding of requests and replies.

Encoding: roles alternate. The messages between two replies become one user message, results first. A system message
between others keeps its role if the model accepts it and its position is valid ("must follow a user message, and be
last or followed by an assistant"). Otherwise it becomes tagged user text. Blank text is left out, because the API
refuses it.

Decoding: each block becomes a part. A user message with results and text becomes a tool message and a user message.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, id_text
from contextc.formats.base import (
    UNKNOWN_TOOL,
    Continuation,
    EncodedSegment,
    Request,
    billing_word,
    decode_definition,
    encode_definition,
    mark_apart,
    merge_extra,
    other_fields,
    own_extra,
    result_content,
    split_at_results,
    tag_system_blocks,
    with_extra,
)
from contextc.formats.block_table import Block, BlockCodec, BlockTable, Field
from contextc.formats.lint_engine import FieldTypes
from contextc.formats.message_preparation import APART_KEY, bytes_of, decode_base64, encode_base64, guess_media_type
from contextc.formats.streams import DECLINED, WEB_SEARCH
from contextc.messages import (
    AnyPart,
    BilledCall,
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
)
from contextc.tools.definitions import NativeTool, Tool

BETWEEN_KEY, FIELDS_KEY = "between", "fields"
CHANGE_BLOCKS = ("tool_addition", "tool_removal")
"""Blocks of a system message that change the tools from there on."""
CLEARED = {
    "cleared_tool_uses": "the results of {} calls",
    "cleared_thinking_turns": "the thinking of {} replies",
}
"""The things that the fields of an applied edit count."""
NO_BLOBS: Mapping[str, bytes] = {}
NO_EXTRA: JSONObject = {}
PLAIN_CALL = {"type", "id", "name", "input"}
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
DOCUMENT_TYPES = ("application/pdf", "text/plain")
COMPACTION, FALLBACK = "compaction", "fallback_message"
SAMPLINGS = ("message", FALLBACK)
"""Iterations of a reply's usage that are its own calls of the model."""
BILLED_APART = (COMPACTION, "advisor_message")
"""Iterations that are never part of the figures of a reply. Those of other types are unknown."""
MESSAGE = "message"
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
    "refusal": "refusal",
}


class AnthropicCodec(BlockCodec):
    """Encodes and decodes blocks. `names` are the tools of the calls that were decoded, by the id of the call."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes] = NO_BLOBS, model: str | None = None) -> None:
        super().__init__(provider, blobs)
        self.model = model
        self.names: dict[str, str] = {}

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        """Yield the parts of a text or of a list of blocks."""
        if isinstance(content, str):
            yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            # A fast path for the most common blocks, as in `blocks`.
            kind: JSON = block.get("type")
            if kind == "text" and len(block) == 2 and type(text := block.get("text")) is str:
                yield Text(text)
            elif kind == "tool_use" and block.keys() == PLAIN_CALL and type(block["input"]) is dict:
                yield self.create_part(
                    ToolCall, {"id": block["id"], "name": block["name"], "arguments": block["input"]}
                )
            else:
                yield BLOCKS.decode(block, self)

    def blocks(self, parts: Iterable[AnyPart]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for part in parts:
            # A fast path for the most common parts.
            if part.extra is None:
                if type(part) is Text and part.text and not part.text.isspace():
                    found.append({"type": "text", "text": part.text})
                    continue
                if type(part) is ToolCall and not part.malformed:
                    found.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments})
                    continue
                if type(part) is ToolResult and type(part.content) is str and not part.is_error:
                    found.append({"type": "tool_result", "tool_use_id": part.call_id, "content": part.content})
                    continue
            if (block := BLOCKS.encode(part, self)) is not None:
                found.append(merge_extra(block, part.extra, self.provider) if part.extra else block)
        return found

    def text_blocks(self, message: Message) -> list[JSONObject]:
        """Return the blocks of a message that may contain only text. Media are described."""
        return self.blocks(self.with_media_as_text(message).parts)

    def create_part(self, part: type[AnyPart], values: dict[str, Any]) -> AnyPart:
        if part is ToolCall:
            self.names[values["id"]] = values["name"]
        elif part is ToolResult:
            values["name"] = self.names.get(values["call_id"], UNKNOWN_TOOL)
        return part(**values)

    def encode_unmapped(self, part: AnyPart) -> JSONObject | None:
        if isinstance(part, ProviderBlock):
            return part.data if part.provider == self.provider else {"type": "text", "text": self.native_text(part)}
        if isinstance(part, Reasoning):
            self.note("left out", f"reasoning of {part.provider or 'an unknown provider'}")
        return None  # also blank text, and notices for the user


def _write_result(result: ToolResult, codec: AnthropicCodec) -> JSON:
    return result.content if isinstance(result.content, str) else codec.blocks(result.content)


def _decode_media(block: JSONObject, codec: AnthropicCodec) -> Media | None:
    source = cast(JSONObject, block["source"])
    default = "image/png" if block["type"] == "image" else "application/pdf"
    match source.get("type"):
        case "base64":
            data = decode_base64(source["data"])
            return None if data is None else Media(mime_type=source["media_type"], data=data)
        case "text":
            return Media(mime_type=source["media_type"], data=source["data"].encode())
        case "url":
            return Media(mime_type=guess_media_type(source["url"], default), url=source["url"])
        case "file":
            return Media(mime_type=default, file_id=source["file_id"], provider=codec.provider)
        case _:
            return None


def _encode_media(part: Media, codec: AnthropicCodec) -> JSONObject:
    kind = "image" if part.mime_type in IMAGE_TYPES else "document" if part.mime_type in DOCUMENT_TYPES else None
    source: JSONObject = {}
    if data := bytes_of(part, codec.blobs):
        is_text = part.mime_type == "text/plain"
        given = data.decode("utf-8", "replace") if is_text else encode_base64(part, codec.blobs)
        source = {"type": "text" if is_text else "base64", "media_type": part.mime_type, "data": given}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    elif codec.is_own_file(part):
        source = {"type": "file", "file_id": part.file_id}
    if kind is None or not source:
        return {"type": "text", "text": codec.media_text(part)}
    title: JSONObject = {"title": part.name} if part.name and kind == "document" else {}
    return {"type": kind, "source": source, **title}


CACHE: FieldTypes = {"cache_control?": dict}
SERVER_CALL: FieldTypes = {"id": str, "name": str, "input": dict}
SERVER_RESULT: FieldTypes = {"tool_use_id": str, "content": dict}
BLOCKS = BlockTable(
    {
        "text": Block(
            Text, {"text": Field(str, "text"), "citations?": list, **CACHE}, is_sent=lambda part: part.text.strip()
        ),
        "image": Block(
            Media, {"source": dict, **CACHE, "transformations?": object}, decode=_decode_media, encode=_encode_media
        ),
        "document": Block(
            Media,
            {"source": dict, **CACHE, "citations?": object, "context?": object, "title?": object},
            decode=_decode_media,
            encode=_encode_media,
        ),
        "search_result": Block(None, {"content": list, "source": str, "title": str, "citations?": object}),
        "thinking": Block(
            Reasoning,
            {"thinking": Field(str, "text"), "signature?": Field(str, "signature", default=None)},
            is_sent=lambda part: part.data is None and part.signature,
            is_own=True,
        ),
        "redacted_thinking": Block(
            Reasoning,
            {"data": Field(str, "data")},
            is_sent=lambda part: part.data is not None and (part.signature or part.data),
            is_own=True,
        ),
        "tool_use": Block(
            ToolCall,
            {
                "id": Field(str, "id"),
                "name": Field(str, "name"),
                "input": Field(
                    dict,
                    "arguments",
                    write=lambda call, codec: codec.arguments_object(call),
                    is_held=lambda call: call.malformed,
                ),
                **CACHE,
                "caller?": object,
                "toolset_name?": object,
            },
        ),
        "tool_result": Block(
            ToolResult,
            {
                "tool_use_id": Field(str, "call_id"),
                "content?": Field(
                    (str, list),
                    "content",
                    read=lambda content, codec: result_content(content, codec.parts),
                    write=_write_result,
                ),
                "is_error?": Field(bool, "is_error", read=lambda value, codec: bool(value), default=False),
                **CACHE,
                "toolset_name?": object,
            },
        ),
        "server_tool_use": Block(None, {**SERVER_CALL, "caller?": object}),
        "web_search_tool_result": Block(None, {"tool_use_id": str, "content": (list, dict), "caller?": object}),
        "web_fetch_tool_result": Block(None, {**SERVER_RESULT, "caller?": object}),
        "advisor_tool_result": Block(None, SERVER_RESULT),
        "code_execution_tool_result": Block(None, SERVER_RESULT),
        "bash_code_execution_tool_result": Block(None, SERVER_RESULT),
        "text_editor_code_execution_tool_result": Block(None, SERVER_RESULT),
        "tool_search_tool_result": Block(None, SERVER_RESULT),
        "mcp_tool_use": Block(None, {"id": str, "name": str, "server_name": str, "input": dict}),
        "mcp_tool_result": Block(None, {"tool_use_id": str, "content?": (str, list), "is_error?": object}),
        "container_upload": Block(None, {"file_id": str}),
        "compaction": Block(
            None, {"content?": str, "encrypted_content?": object, "signature?": object, "tool_changes?": object}
        ),
        "tool_addition": Block(None, {"tool": dict}),
        "tool_removal": Block(None, {"tool": dict}),
        "mcp_tool_listing": Block(None, {"tools": list, "mcp_server_name?": object}),
        "fallback": Block(None, {"from?": object, "to?": object, "trigger?": object}),
        "tool_reference": Block(None, {"tool_name": str}),
        "browser_state": Block(None, {"state_changes?": object, "tabs?": object}),
    },
    common=("cache_control",),
)
SOURCE_TYPES: dict[str, FieldTypes] = {
    "base64": {"media_type": str, "data": str},
    "text": {"media_type": str, "data": str},
    "url": {"url": str},
    "file": {"file_id": str},
    "content": {"content": (str, list)},
}
"""The fields of the `source` of an image or document, by its type."""


def encode_segment(
    segment: Sequence[Message], *, provider: str, system_between: bool | None, blobs: Mapping[str, bytes]
) -> EncodedSegment:
    codec = AnthropicCodec(provider, blobs)
    wire: list[JSONObject] = []
    segment = with_changes_last(segment, provider, lambda block: block.get("type") in CHANGE_BLOCKS)
    end = len(segment) - 1
    while end >= 0 and segment[end].role == "system":
        end -= 1  # only system messages at the end may keep their role
    for index, message in enumerate(segment):
        own = own_extra(message.extra, provider) if message.extra else NO_EXTRA
        is_system = message.role == "system"
        role = "assistant" if message.role == "assistant" else "user"
        if is_system:
            between = own.get(BETWEEN_KEY) if system_between is None else system_between
            before = wire[-1]["role"] if wire else None
            if index > end and (before == "system" or (between and before == "user")):
                role, blocks = "system", codec.text_blocks(message)
            else:
                codec.note_tagged_system()
                blocks = tag_system_blocks(codec.blocks(message.parts))
        else:
            blocks = codec.blocks(message.parts)
        if own and (fields := own.get(FIELDS_KEY)):
            if is_system and not blocks:
                if system_between is False:
                    codec.note("left out", f"{', '.join(fields)} of a system message, which the model does not take")
                    continue
                role = "system"
            if role == "system" and wire and wire[-1]["role"] == role and not own.get(APART_KEY):
                wire[-1] = {**wire[-1], "content": [*wire[-1]["content"], *blocks], **fields}
            else:
                wire.append({"role": role, "content": blocks, **fields})
        elif blocks and wire and wire[-1]["role"] == role and not (own and own.get(APART_KEY)):
            wire[-1]["content"] += blocks
        elif blocks:
            wire.append({"role": role, "content": blocks})
    apart = bool(segment) and bool(own_extra(segment[0].extra, provider).get(APART_KEY))
    return EncodedSegment(tuple(wire), tuple(codec.notes), apart)


def with_changes_last(
    segment: Sequence[Message], provider: str, is_change: Callable[[JSONObject], bool]
) -> Sequence[Message]:
    """Return a segment with the messages that change tools at its end, which is the only place for them."""
    if all([message.role != "system" for message in segment]):
        return segment
    return sorted(
        segment,
        key=lambda message: (
            message.role == "system"
            and any(
                isinstance(part, ProviderBlock) and part.provider == provider and is_change(as_object(part.data))
                for part in message.parts
            )
        ),
    )


def encode_system(message: Message, provider: str) -> list[JSONObject]:
    """Return the blocks of the system prompt."""
    return AnthropicCodec(provider).text_blocks(message)


def without_trailing_space(message: JSONObject) -> JSONObject:
    """Return an assistant message without white space at its end, which the API refuses in a last message."""
    if not message["content"]:
        return message
    *before, last = message["content"]
    if "text" not in last or last["text"] == last["text"].rstrip():
        return message
    return {**message, "content": [*before, {**last, "text": last["text"].rstrip()}]}


def decode_request(body: JSONObject, provider: str) -> Request:
    codec = AnthropicCodec(provider)
    messages: list[Message] = []
    before = "assistant"
    for wire in cast(list[JSONObject], body.get("messages", [])):
        decoded = list(_decode_message(wire, codec))
        if decoded and wire["role"] == before:
            decoded[0] = mark_apart(decoded[0], provider)
        before = wire["role"]
        messages += decoded
    given = body.get("system")
    system = Message(role="system", parts=tuple(codec.parts(given))) if given else None
    if system is None and messages and messages[0].role == "system":  # a position the API does not accept
        system, *messages = messages
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(_decode_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "system", "tools"),
    )


def _decode_message(wire: JSONObject, codec: AnthropicCodec) -> Iterator[Message]:
    role, provider = cast(Role, wire["role"]), codec.provider
    fields = {name: value for name, value in wire.items() if name not in ("role", "content") and value is not None}
    if fields and not wire["content"]:
        yield Message(role=role, parts=(), extra={provider: {BETWEEN_KEY: True, FIELDS_KEY: fields}})
        return
    messages = split_message(role, codec.parts(wire["content"]), provider)
    if fields:
        first = next(messages)
        yield replace(first, extra={provider: {**own_extra(first.extra, provider), FIELDS_KEY: fields}})
    yield from messages


def split_message(role: Role, parts: Iterable[AnyPart], provider: str) -> Iterator[Message]:
    """Yield the messages of one wire message. Results become tool messages."""
    extra: Extra | None = {provider: {BETWEEN_KEY: True}} if role == "system" else None
    for group in split_at_results(parts):
        yield Message(role="tool" if isinstance(group[0], ToolResult) else role, parts=tuple(group), extra=extra)


def encode_tool(tool: Tool) -> JSONObject:
    return encode_definition(tool, "input_schema")


def _decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    if tool.get("type") not in (None, "custom"):
        return NativeTool(provider=provider, data=tool)
    made = decode_definition(tool, "input_schema")
    return with_extra(made, tool, encode_tool(made), provider)


def decode_reply(reply: JSONObject, provider: str) -> Message:
    reason = cast(str | None, reply.get("stop_reason"))
    rest = {
        name: reply[name] for name in ("id", "model", "stop_reason", "stop_details", "container") if reply.get(name)
    }
    if "context_management" in reply and (edits := _applied_edits(reply)):
        rest["context_management"] = {"applied_edits": edits}
    return Message(
        role="assistant",
        parts=tuple(AnthropicCodec(provider, model=reply.get("model")).parts(reply.get("content"))),
        finish="error" if reply.get("error") else FINISH_REASONS.get(reason, reason) if reason else None,
        status="error" if reply.get("error") else "sent",
        error=str(cast(JSONObject, reply["error"]).get("message")) if reply.get("error") else None,
        usage=_decode_usage(reply),
        extra={provider: rest} if rest else None,
    )


def _applied_edits(reply: JSONObject) -> list[JSONObject]:
    return as_objects(as_object(reply.get("context_management")).get("applied_edits"))


def describe_applied_edits(reply: JSONObject) -> Iterator[str]:
    """Yield what context editing left out of a request."""
    for edit in _applied_edits(reply):
        tokens = edit.get("cleared_input_tokens")
        for name, what in CLEARED.items():
            if isinstance(count := edit.get(name), int) and count and isinstance(tokens, int):
                yield f"the provider cleared {what.format(count)}, {tokens:,} tokens"


def find_container(reply: JSONObject) -> Continuation | None:
    """Return the container that the tools of a reply ran in; None if there is none."""
    container = as_object(reply.get("container"))
    if not (name := id_text(container.get("id"))):
        return None
    expires = 0
    with suppress(ValueError):
        expires = int(datetime.fromisoformat(str(container.get("expires_at"))).timestamp() * 1000)
    return Continuation(name, expires)


def _decode_usage(reply: JSONObject) -> Usage:
    usage = as_object(reply.get("usage"))
    tokens, searches = _tokens(usage), as_object(usage.get("server_tool_use")).get("web_search_requests") or 0
    if not (searches or usage.get("iterations") or reply.get("context_management")):  # nearly always
        return Usage(**_figures(usage, tokens))
    iterations = as_objects(usage.get("iterations"))
    samplings = [each for each in iterations if each.get("type") in SAMPLINGS]
    served = next((str(each.get("model") or "") for each in samplings if each["type"] == FALLBACK), None)
    answered = served if served is not None else ""
    own = [each for each in samplings if served is None or _is_of_fallback(each, answered)]
    summed = [_tokens(each) for each in own]
    if len(own) < 2 or sum([each["input"] for each in summed]) != tokens["input"]:
        summed = []
    # The end of a stream reports the writes of all iterations, but their lifetimes only with each.
    lasting = max([tokens["cache_write_long"], sum([each["cache_write_long"] for each in summed])])
    calls = [*_billed_calls(iterations, answered, has_fallback=served is not None)]
    return Usage(
        **_figures(usage, {**tokens, "cache_write_long": lasting}),
        model=answered or (str(reply.get("model") or "") if served is not None else ""),
        calls=tuple([*calls, *[BilledCall(kind=WEB_SEARCH, count=searches)] * bool(searches)]),
        iterations=tuple([BilledCall(kind=MESSAGE, model="", **each) for each in summed]),
        input_differs=len(samplings) > 1
        or bool(_applied_edits(reply))
        or any([each.get("type") == COMPACTION for each in iterations]),
    )


def _figures(usage: JSONObject, tokens: Mapping[str, int]) -> dict[str, Any]:
    return {
        **tokens,
        "reasoning": as_object(usage.get("output_tokens_details")).get("thinking_tokens") or 0,
        "tier": billing_word(usage.get("service_tier")),
        "speed": billing_word(usage.get("speed")),
        "region": billing_word(usage.get("inference_geo")),
    }


def _billed_calls(iterations: Iterable[JSONObject], answered: str, *, has_fallback: bool) -> Iterator[BilledCall]:
    """Yield the iterations whose tokens are not in the figures of the reply.

    These are compactions, calls of an advisor, and the attempts of models that declined. The figures are those of the
    model that answered. An attempt that was declined before any output is not billed.
    """
    for each in iterations:
        kind, model = str(each.get("type") or ""), str(each.get("model") or "")
        if kind not in SAMPLINGS:
            yield BilledCall(kind=kind, model=model, **(_tokens(each) if kind in BILLED_APART else {}))
        elif has_fallback and not _is_of_fallback(each, answered) and each.get("output_tokens"):
            yield BilledCall(kind=DECLINED, model=model, **_tokens(each))


def _is_of_fallback(sampling: JSONObject, answered: str) -> bool:
    """Return True if the model that answered in place of another one made this call."""
    return sampling["type"] == FALLBACK or str(sampling.get("model") or "") == answered


def _tokens(usage: JSONObject) -> dict[str, int]:
    """Return the tokens of a reply or of an iteration, as fields of `Usage`."""
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    return {
        "input": (usage.get("input_tokens") or 0) + read + written,
        "output": usage.get("output_tokens") or 0,
        "cache_read": read,
        "cache_write": written,
        "cache_write_long": as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens") or 0,
    }

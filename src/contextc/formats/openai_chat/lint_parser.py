"""Parse Chat Completions requests for the rules: required fields of messages and parts, and their positions.

Many endpoints use this format, and some accept more than OpenAI: an image as a plain URL, a tool without a `type`.
`vendor_group` derives the vendor from the model's name. What only other vendors accept is not reported for their
models.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, cast

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import (
    ARGUMENT_NAMES,
    as_function_tool,
    as_text,
    coerce_messages,
    first_given,
    text_block,
    text_message,
    without_fields,
    without_nulls,
)
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.openai_chat import error_texts
from contextc.formats.request_parser import TYPED, RequestReader, first_field, nested_error
from contextc.formats.request_settings import is_list, is_object, object_or_empty

OPENAI_MODEL = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o[1-9](-|$))")
CONTENT_FIELDS: FieldTypes = {"content": (str, list), "name?": str}
ROLES: dict[str, FieldTypes] = {
    "developer": CONTENT_FIELDS,
    "system": CONTENT_FIELDS,
    "user": CONTENT_FIELDS,
    "assistant": {"content?": (str, list), "name?": str, "refusal?": str, "audio?": dict},
    "tool": {"content": (str, list), "tool_call_id": str, "name?": str},
    "function": {"content?": (str, list), "name": str},
}
CALLS: FieldTypes = {"tool_calls?": list, "function_call?": dict}
ROLE_FIELDS: dict[str, FieldTypes] = {role: {**fields, **CALLS} for role, fields in ROLES.items()}
PARTS: dict[str, FieldTypes] = {
    "text": {"text": str},
    "image_url": {"image_url": (dict, str)},
    "input_audio": {"input_audio": (dict, str)},
    "file": {"file": dict},
    "refusal": {"refusal": str},
    "audio": {},
}
OTHER_VENDOR_PARTS: dict[str, FieldTypes] = {
    "audio_embeds": {},
    "audio_url": {"audio_url": (dict, str)},
    "document": {},
    "document_url": {"document_url": (dict, str)},
    "image_embeds": {},
    "image_pil": {},
    "input_video": {},
    "reference": {"reference_ids": list},
    "thinking": {"thinking": (list, str)},
    "video_url": {"video_url": (dict, str)},
}
"""Part types that OpenRouter, Mistral, Groq and vLLM accept in addition."""
ALL_PARTS = {**OTHER_VENDOR_PARTS, **PARTS}
NESTED_FIELDS: dict[str, FieldTypes] = {
    "image_url": {"url": str},
    "input_audio": {"data": str, "format": str},
    "file": {"file_id?": str, "file_data?": str, "filename?": str},
    "function": {"name": str, "arguments": str},
    "custom": {"name": str, "input": str},
}
TOOL_TYPES = "'function' and 'custom'"
FUNCTION_DEFINITION: FieldTypes = {"name": str, "description?": str, "parameters?": dict}
ALIASES = {"human": "user", "model": "assistant", "ai": "assistant"}
FIELDS_WITHOUT_CONTENT = {"role", "name", "tool_call_id", "tool_calls", "function_call", "refusal", "audio", "prefix"}
"""Message fields without content. If a message has other fields and no `content`, those may be its content."""
KINDS: dict[str, PartKind] = {
    "text": "text",
    "refusal": "other",
    "thinking": "reasoning",
    "reference": "other",
    "audio": "other",
}
"""Part types that are not media."""


FIELDS = frozenset(
    (
        *("role", "content", "name", "refusal", "audio", "annotations", "tool_calls", "function_call", "tool_call_id"),
        *("reasoning", "reasoning_content", "reasoning_details", "cache_control", "prefix"),
    )
)
"""Fields that a message may have in requests, in returned replies, and at endpoints that accept more."""
PART_FIELDS = {
    kind: field_names(fields, "type", "cache_control", "prompt_cache_breakpoint") for kind, fields in PARTS.items()
}
CALL_FIELDS = frozenset(("id", "type", "index", "function", "custom", "extra_content"))
CAMEL_CASE_NAMES = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id", "functionCall": "function_call"}
"""Camel-case names that TypeScript programs use for fields of this format."""


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages, parts and calls that no known endpoint defines."""
    for turn in sketch.messages:
        yield from unknown_field_findings(turn.wire, FIELDS, turn.path)
        for piece in turn.parts:
            if piece.kind == "call":
                yield from unknown_field_findings(piece.wire, CALL_FIELDS, piece.path)
                kind = "custom" if piece.wire.get("function") is None else "function"
                yield from unknown_field_findings(
                    piece.wire[kind], field_names(NESTED_FIELDS[kind]), (*piece.path, kind)
                )
            elif piece.kind != "result" and (fields := PART_FIELDS.get(str(piece.wire.get("type")))):
                yield from unknown_field_findings(piece.wire, fields, piece.path)


def vendor_group(body: JSONObject) -> Literal["openai", "other", ""]:
    """Return "openai" or "other" by the name of the requested model; empty if the request names none."""
    model: JSON = body.get("model")
    if not isinstance(model, str):
        return ""
    return "openai" if OPENAI_MODEL.match(model) else "other"


def vendor_path(path: JSONPath) -> str:
    """Return a path as OpenAI writes it, `messages[2].content[0]`, also for bare messages."""
    return format_path(path if not path or isinstance(path[0], str) else ("messages", *path))


class _Reader(RequestReader):
    messages_required = True
    part_kinds, default_kind = KINDS, "media"

    def __init__(self, body: JSONObject) -> None:
        super().__init__(body)
        self.vendor = vendor_group(body)

    def message_error(self, wire: JSON) -> Fault | None:
        if wrong := schema_error(wire, {"role": str}):
            return wrong
        if (role := wire["role"]) not in ROLES:
            message = f"invalid role {role!r}: expected one of {', '.join(ROLES)}."
            return Fault("role", message, detail=_wrong_value(role, _join_names(ROLES)))
        return schema_error(wire, ROLE_FIELDS[role]) or _misplaced_field_error(wire) or _unnamed_call_error(wire)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        if wire["role"] == "tool":
            yield RequestPart(kind="result", path=path, wire=wire, id=wire["tool_call_id"])
        yield from self.blocks(wire.get("content"), (*path, "content"))
        for index, call in enumerate(wire.get("tool_calls") or []):
            here = (*path, "tool_calls", index)
            kind = "custom" if call.get("function") is None and "custom" in (call.get("type"), *call) else "function"
            if wrong := self.call_error(call, kind):
                self.refuse_typed(call, here, wrong)
            else:
                yield RequestPart(kind="call", path=here, wire=call, id=call["id"], name=call[kind]["name"])

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        if wrong := schema_error(block, TYPED):
            return wrong
        kind = block["type"]
        if (fields := ALL_PARTS.get(kind)) is None:
            unknown = Fault("type", f"unknown part type {kind!r}.", detail=_wrong_value(kind, _join_names(PARTS)))
            return None if self.vendor == "other" else unknown
        if self.vendor != "other" and kind in NESTED_FIELDS:
            fields = {kind: dict}
        elif kind == "file" and "file_id" in block:
            fields = {"file_id": str}
        return schema_error(block, fields) or _nested_error(block, kind)

    def call_error(self, call: JSONObject, kind: str) -> Fault | None:
        """Return the first fault of a call. Some vendors accept arguments as an object."""
        if wrong := schema_error(call, {"id": str, ("type" if self.vendor == "openai" else "type?"): str}):
            return wrong
        if call.get("type") not in ("function", "custom", None):
            return Fault(
                "type", f"unknown tool call type {call['type']!r}.", detail=_wrong_value(call["type"], TOOL_TYPES)
            )
        if (wrong := schema_error(call, {kind: dict})) or self.vendor != "other":
            return wrong or _nested_error(call, kind)
        written = is_object(call[kind].get("arguments"))
        return _nested_error({kind: {**call[kind], "arguments": ""}} if written else call, kind)

    def tool_error(self, tool: JSON) -> Fault | None:
        kind = _tool_kind(object_or_empty(tool))
        if wrong := schema_error(tool, {"type" if self.vendor == "openai" or kind is None else "type?": str}):
            return wrong
        if kind in ("function", "custom"):
            return schema_error(tool, {kind: dict}) or schema_error(tool[kind], FUNCTION_DEFINITION)
        unknown = Fault("type", f"unknown tool type {kind!r}.", detail=_wrong_value(kind, TOOL_TYPES))
        return unknown if self.vendor == "openai" else None

    def tool_name(self, tool: JSONObject) -> str | None:
        kind = _tool_kind(tool)
        return tool[kind]["name"] if kind in ("function", "custom") else None

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        where = vendor_path((*path, *fault.field.split(".")) if fault.field else path) or "messages"
        what: str = fault.detail or error_texts.MISSING
        return wrong_type_text(where, fault) or what.replace("{where}", where)


parse_request = _Reader.parse


def wrong_type_text(where: str, fault: Fault) -> str:
    """Return OpenAI's error for a value of a wrong type; "" for another fault."""
    if fault.problem is not Problem.TYPE:
        return ""
    first, *rest = [error_texts.TYPES[each] for each in fault.expected]
    expected = " or ".join([f"one of {first}", *[each.partition(" ")[2] for each in rest]]) if rest else first
    given = "null" if fault.got is None else error_texts.TYPES[type(cast(object, fault.got))]
    return error_texts.WRONG_TYPE.format(where=where, expected=expected, given=given)


def _tool_kind(tool: JSONObject) -> JSON:
    return tool.get("type") if tool.get("function") is None else "function"


def _wrong_value(value: JSON, known: str) -> str:
    return error_texts.WRONG_VALUE.format(value=value, known=known)


def _misplaced_field_error(message: JSONObject) -> Fault | None:
    """Return the error for a field of another role or library, such as a camel-case name; None if there is none."""
    if message["role"] != "tool" and message.get("tool_call_id") is not None:
        return Fault(
            "tool_call_id", "only a tool message may have a `tool_call_id`.", detail=error_texts.UNKNOWN_PARAMETER
        )
    if camel := first_field(message, CAMEL_CASE_NAMES):
        return Fault(
            camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", detail=error_texts.UNKNOWN_PARAMETER
        )
    if message["role"] == "tool" and (message.get("tool_calls") or message.get("function_call")):
        what = error_texts.ASSISTANT_ONLY.format(what="tool calls")
        return Fault("tool_calls", "a tool message cannot contain tool calls.", detail=what)
    return None


def _unnamed_call_error(message: JSONObject) -> Fault | None:
    """Return the error for a call that does not name its tool; None if all do."""
    if (index := find_unnamed_call(message)) is not None:
        name = f"tool_calls[{index}]"
        return Fault(f"{name}.function.name", f"`{name}` does not name the tool to call.", detail=error_texts.MISSING)
    function: JSON = message.get("function_call")
    return nested_error("function_call", function, NESTED_FIELDS["function"]) if function else None


def find_unnamed_call(message: JSONObject) -> int | None:
    """Return the index of the first call that does not name its tool."""
    calls = enumerate(message.get("tool_calls") or [])
    return next((index for index, call in calls if find_function(call) is None), None)


def find_function(call: JSON) -> JSONObject | None:
    """Return the object in a call, of any shape, that names the tool."""
    wire = object_or_empty(call)
    places = map(object_or_empty, (wire.get("function"), wire.get("custom"), wire))
    return next((place for place in places if isinstance(place.get("name"), str)), None)


def _nested_error(wire: JSONObject, kind: str) -> Fault | None:
    inner: JSON = wire.get(kind)
    return nested_error(kind, inner, NESTED_FIELDS[kind]) if kind in NESTED_FIELDS and is_object(inner) else None


def _join_names(names: Iterable[str]) -> str:
    *most, last = [f"'{name}'" for name in names]
    return f"{', '.join(most)}, and {last}"


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, part, call or tool: other roles, other APIs, arguments as an object."""
    match path:
        case () | ("messages",):
            return coerce_messages(value, path)
        case ("tools", _):
            return _reshaped_tool(value)
        case ("messages", turn):
            return text_message(value) if isinstance(value, str) else _reshaped_message(value, turn)
        case ("messages", turn, "tool_calls", index):
            return _reshaped_call(value, f"call_{turn}_{index}")
        case ("messages", *_):
            return text_block(value) if isinstance(value, str) else _reshaped_part(value)
        case _:
            return value


def _reshaped_message(value: JSON, turn: str | int) -> JSON:
    wire = {CAMEL_CASE_NAMES.get(name, name): each for name, each in without_nulls(object_or_empty(value)).items()}
    content: JSON = wire.get("content", "")
    if not wire or ("content" not in wire and wire.keys() - FIELDS_WITHOUT_CONTENT):
        return value
    calls: JSON = wire.pop("tool_calls", [])
    calls = calls if is_list(calls) else [calls]
    if function := find_function(wire.get("function_call")):
        wire["function_call"] = {"name": function["name"], "arguments": as_text(function.get("arguments", "{}"))}
    else:
        calls = [*calls, wire.pop("function_call", None)]
    strays = [text_block(as_text(call)) for call in calls if call and find_function(call) is None]
    if calls := [call for call in calls if find_function(call) is not None]:
        wire["tool_calls"] = [_reshaped_call(call, f"call_{turn}_{index}") for index, call in enumerate(calls)]
    if isinstance(content, dict | list):
        wire["content"] = [*(content if is_list(content) else [content]), *strays]
    elif strays:
        wire["content"] = [*([text_block(as_text(content))] if content != "" else []), *strays]
    else:
        wire["content"] = as_text(content)
    wire["role"] = _role(wire)
    if wire["role"] != "tool":
        wire.pop("tool_call_id", None)
    fields = ROLE_FIELDS[wire["role"]]
    for name in ("name", "refusal", "audio"):
        if (kind := fields.get(f"{name}?")) is not None and name in wire and not isinstance(wire[name], kind):
            del wire[name]
    return wire


def _role(wire: JSONObject) -> str:
    """Return the role of a message. Its content decides before its stated role."""
    role = str(wire.get("role")).lower()
    role = ALIASES.get(role, role)
    if isinstance(wire.get("tool_call_id"), str) and not wire.get("tool_calls"):
        return "tool"
    if wire.get("tool_calls") and role not in ("developer", "system", "user"):
        return "assistant"
    nameless = role == "function" and not isinstance(wire.get("name"), str)
    return "user" if role == "tool" or role not in ROLES or nameless else role


def _reshaped_part(value: JSON) -> JSON:
    if not is_object(value):
        return value
    picture: JSON = value.get("image_url")
    if value.get("type") in ("input_text", "output_text", None) and isinstance(value.get("text"), str):
        return {**value, "type": "text"}
    if value.get("type") in ("input_image", "image_url") and isinstance(picture, str):
        return {"type": "image_url", "image_url": {"url": picture}}
    return value


def _reshaped_call(value: JSON, id: str) -> JSON:
    if (inner := find_function(value)) is None:
        return value
    outer = without_fields(value, ("function", "custom", "name", *ARGUMENT_NAMES))
    written = as_text(first_given(inner, ARGUMENT_NAMES, "{}"))
    outer["id"] = outer["id"] if isinstance(outer.get("id"), str) else id
    if outer.get("type") == "custom":
        return {**outer, "custom": {"name": inner["name"], "input": written}}
    inside = {} if inner is value else inner
    return {**outer, "type": "function", "function": {**inside, "name": inner["name"], "arguments": written}}


def _reshaped_tool(value: JSON) -> JSON:
    """Convert a tool of the Responses API or of Anthropic."""
    wire = object_or_empty(value)
    if is_object(wire.get("function")):
        return {**wire, "type": "function"}
    named = isinstance(wire.get("name"), str) and wire.get("type") in (None, "function")
    return as_function_tool(wire) if named else value

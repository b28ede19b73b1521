"""Parse Chat Completions requests for the rules: required fields of messages and parts, and their positions.

Many endpoints use this format, and some accept more than OpenAI: an image as a plain URL, a tool without a `type`.
`vendor_group` derives the vendor from the model's name. What only other vendors accept is not reported for their
models.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    make_finding,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.openai_chat import error_texts

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
NESTED_FIELDS: dict[str, FieldTypes] = {
    "image_url": {"url": str},
    "input_audio": {"data": str, "format": str},
    "file": {"file_id?": str, "file_data?": str, "filename?": str},
    "function": {"name": str, "arguments": str},
    "custom": {"name": str, "input": str},
}
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


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON value as a request, or as the messages of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    reader = _Reader(vendor_group(whole))
    turns: list[RequestMessage] = []
    if isinstance(messages, list):
        turns = [
            turn for index, wire in enumerate(cast(list[JSON], messages)) for turn in reader.turn(wire, (*base, index))
        ]
    elif isinstance(body, dict) and "messages" not in body:
        reader.refuse((), "messages", "`messages` is missing.")
    else:
        reader.refuse(base, "", "the messages must be a list.")
    tools = tuple(reader.tools(whole.get("tools")))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tools, malformed=tuple(reader.misshapen))


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


class _Reader:
    def __init__(self, house: str) -> None:
        self.house = house
        self.misshapen: list[RuleFinding] = []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"role": str}):
            return self.refuse(path, *wrong)
        given = cast(JSONObject, wire)
        role = given["role"]
        if role not in ROLES:
            what = error_texts.WRONG_VALUE.format(value=role, known=_join_names(ROLES))
            return self.refuse(path, "role", f"invalid role {role!r}: expected one of {', '.join(ROLES)}.", what)
        if (
            wrong := schema_error(given, {**ROLES[role], **CALLS})
            or _misplaced_field_error(given)
            or _unnamed_call_error(given)
        ):
            return self.refuse(path, *wrong)
        pieces = [RequestPart(kind="result", path=path, wire=given, id=given["tool_call_id"])] if role == "tool" else []
        pieces += self.parts(given.get("content"), (*path, "content"))
        pieces += self.calls(given.get("tool_calls"), (*path, "tool_calls"))
        yield RequestMessage(role=role, path=path, wire=given, parts=tuple(pieces))

    def parts(self, content: JSON, path: JSONPath) -> Iterator[RequestPart]:
        if isinstance(content, str):
            yield RequestPart(kind="text", path=path, wire={}, text=content)
        elif isinstance(content, list):
            for index, part in enumerate(cast(list[JSON], content)):
                here = (*path, index)
                if wrong := schema_error(part, {"type": str}) or self.part(cast(JSONObject, part)):
                    self.refuse(here, *wrong)
                    continue
                wire = cast(JSONObject, part)
                kind = KINDS.get(wire["type"], "media")
                yield RequestPart(kind=kind, path=here, wire=wire, text=wire["text"] if kind == "text" else "")

    def part(self, part: JSONObject) -> tuple[str, ...] | None:
        kind = cast(str, part["type"])
        fields = {**OTHER_VENDOR_PARTS, **PARTS}.get(kind)
        if fields is None and self.house == "other":
            return None
        if fields is None:
            what = error_texts.WRONG_VALUE.format(value=kind, known=_join_names(PARTS))
            return "type", f"unknown part type {kind!r}.", what
        if self.house != "other" and kind in NESTED_FIELDS:
            fields = {kind: dict}
        elif kind == "file" and "file_id" in part:
            fields = {"file_id": str}
        return schema_error(part, fields) or _nested_error(part, kind)

    def calls(self, calls: JSON, path: JSONPath) -> Iterator[RequestPart]:
        for index, call in enumerate(cast(list[JSONObject], calls or [])):
            here = (*path, index)
            kind = "custom" if call.get("function") is None and "custom" in (call.get("type"), *call) else "function"
            if wrong := schema_error(call, {"id": str, ("type" if self.house == "openai" else "type?"): str}):
                self.refuse(here, *wrong)
            elif call.get("type") not in ("function", "custom", None):
                what = error_texts.WRONG_VALUE.format(value=call["type"], known="'function' and 'custom'")
                self.refuse(here, "type", f"unknown tool call type {call['type']!r}.", what)
            elif wrong := schema_error(call, {kind: dict}) or self.inside(call, kind):
                self.refuse(here, *wrong)
            else:
                yield RequestPart(kind="call", path=here, wire=call, id=call["id"], name=call[kind]["name"])

    def inside(self, call: JSONObject, kind: str) -> tuple[str, str] | None:
        """Return the schema error inside a call, or None. Some vendors accept arguments as an object."""
        arguments: JSON = call[kind].get("arguments")
        written = {**call, kind: {**call[kind], "arguments": ""}} if isinstance(arguments, dict) else call
        return _nested_error(written if self.house == "other" else call, kind)

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if tools is not None and not isinstance(tools, list):
            self.refuse(("tools",), "", "the tools must be a list.")
        for index, tool in enumerate(cast(list[JSON], tools if isinstance(tools, list) else [])):
            path: JSONPath = ("tools", index)
            wire = cast(JSONObject, tool if isinstance(tool, dict) else {})
            kind = wire.get("type") if wire.get("function") is None else "function"
            if wrong := schema_error(
                cast(object, tool), {"type" if self.house == "openai" or kind is None else "type?": str}
            ):
                self.refuse(path, *wrong)
            elif kind in ("function", "custom"):
                if wrong := schema_error(wire, {kind: dict}) or schema_error(wire[kind], FUNCTION_DEFINITION):
                    self.refuse(path, *wrong)
                else:
                    yield RequestPart(kind="other", path=path, wire=wire, id=wire[kind]["name"])
            elif self.house == "openai":
                what = error_texts.WRONG_VALUE.format(value=kind, known="'function' and 'custom'")
                self.refuse(path, "type", f"unknown tool type {kind!r}.", what)

    def refuse(self, path: JSONPath, field: str, message: str, what: str = "") -> None:
        where = vendor_path((*path, *field.split(".")) if field else path) or "messages"
        if not what and message.endswith("missing."):
            what = error_texts.MISSING
        elif not what:
            expected, _, given = message.removesuffix(".").partition(" must be ")[2].partition(", not ")
            what = error_texts.WRONG_TYPE.format(where=where, expected=expected, given=given or "something else")
            what = what.replace("a list", "an array")
        self.misshapen.append(make_finding(path, message, what=what.replace("{where}", where)))


def _misplaced_field_error(message: JSONObject) -> tuple[str, ...] | None:
    """Return the error for a field of another role or library, such as a camel-case name; None if there is none."""
    if message["role"] != "tool" and message.get("tool_call_id") is not None:
        return "tool_call_id", "only a tool message may have a `tool_call_id`.", error_texts.UNKNOWN_PARAMETER
    if camel := next((name for name in CAMEL_CASE_NAMES if message.get(name)), None):
        return camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", error_texts.UNKNOWN_PARAMETER
    if message["role"] == "tool" and (message.get("tool_calls") or message.get("function_call")):
        return (
            "tool_calls",
            "a tool message cannot contain tool calls.",
            error_texts.ASSISTANT_ONLY.format(what="tool calls"),
        )
    return None


def _unnamed_call_error(message: JSONObject) -> tuple[str, ...] | None:
    """Return the error for a call that does not name its tool; None if all do."""
    for index, call in enumerate(cast(list[JSON], message.get("tool_calls") or [])):
        if find_function(call) is None:
            name = f"tool_calls[{index}]"
            return f"{name}.function.name", f"`{name}` does not name the tool to call.", error_texts.MISSING
    if message.get("function_call") and (wrong := schema_error(message["function_call"], NESTED_FIELDS["function"])):
        return f"function_call.{wrong[0]}", wrong[1]
    return None


def find_function(call: JSON) -> JSONObject | None:
    """Return the object in a call, of any shape, that names the tool."""
    if not isinstance(call, dict):
        return None
    wire = cast(JSONObject, call)
    places = [wire.get("function"), wire.get("custom"), wire]
    named = [cast(JSONObject, place) for place in places if isinstance(place, dict)]
    return next((place for place in named if isinstance(place.get("name"), str)), None)


def _nested_error(wire: JSONObject, kind: str) -> tuple[str, str] | None:
    inner: JSON = wire.get(kind)
    wrong = (
        schema_error(cast(object, inner), NESTED_FIELDS[kind])
        if kind in NESTED_FIELDS and isinstance(inner, dict)
        else None
    )
    return (f"{kind}.{wrong[0]}", wrong[1]) if wrong else None


def _join_names(names: Iterable[str]) -> str:
    *most, last = [f"'{name}'" for name in names]
    return f"{', '.join(most)}, and {last}"


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, part, call or tool: other roles, other APIs, arguments as an object."""
    match path:
        case ():
            return {**cast(JSONObject, value), "messages": []} if isinstance(value, dict) else value
        case ("tools", _):
            return _reshaped_tool(value)
        case ("messages",):
            return [value] if isinstance(value, dict) else [text_message(value)] if isinstance(value, str) else value
        case ("messages", turn):
            return text_message(value) if isinstance(value, str) else _reshaped_message(value, turn)
        case ("messages", turn, "tool_calls", index):
            return _reshaped_call(value, f"call_{turn}_{index}")
        case ("messages", *_):
            return text_block(value) if isinstance(value, str) else _reshaped_part(value)
        case _:
            return value


def _reshaped_message(value: JSON, turn: str | int) -> JSON:
    given = cast(JSONObject, value if isinstance(value, dict) else {})
    wire = {CAMEL_CASE_NAMES.get(name, name): each for name, each in given.items() if each is not None}
    content: JSON = wire.get("content", "")
    if not wire or ("content" not in wire and wire.keys() - FIELDS_WITHOUT_CONTENT):
        return cast(JSON, value)
    calls: JSON = wire.pop("tool_calls", [])
    calls = cast(list[JSON], calls if isinstance(calls, list) else [calls])
    if function := find_function(wire.get("function_call")):
        wire["function_call"] = {"name": function["name"], "arguments": _text(function.get("arguments", "{}"))}
    else:
        calls = [*calls, wire.pop("function_call", None)]
    strays = [text_block(_text(call)) for call in calls if call and find_function(call) is None]
    if calls := [call for call in calls if find_function(call) is not None]:
        wire["tool_calls"] = [_reshaped_call(call, f"call_{turn}_{index}") for index, call in enumerate(calls)]
    if isinstance(content, dict | list):
        wire["content"] = [*(cast(list[JSON], content) if isinstance(content, list) else [content]), *strays]
    elif strays:
        wire["content"] = [*([text_block(_text(content))] if content != "" else []), *strays]
    else:
        wire["content"] = _text(content)
    wire["role"] = _role(wire)
    if wire["role"] != "tool":
        wire.pop("tool_call_id", None)
    fields = {**ROLES[wire["role"]], **CALLS}
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
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    picture: JSON = wire.get("image_url")
    if wire.get("type") in ("input_text", "output_text", None) and isinstance(wire.get("text"), str):
        return {**wire, "type": "text"}
    if wire.get("type") in ("input_image", "image_url") and isinstance(picture, str):
        return {"type": "image_url", "image_url": {"url": picture}}
    return wire


def _reshaped_call(value: JSON, id: str) -> JSON:
    if (inner := find_function(value)) is None:
        return value
    outer = {
        name: each
        for name, each in cast(JSONObject, value).items()
        if name not in ("function", "custom", "name", "arguments", "input", "args")
    }
    written = _text(next((inner[name] for name in ("arguments", "input", "args") if inner.get(name) is not None), "{}"))
    outer["id"] = outer["id"] if isinstance(outer.get("id"), str) else id
    if outer.get("type") == "custom":
        return {**outer, "custom": {"name": inner["name"], "input": written}}
    inside = {} if inner is value else inner
    return {**outer, "type": "function", "function": {**inside, "name": inner["name"], "arguments": written}}


def _reshaped_tool(value: JSON) -> JSON:
    """Convert a tool of the Responses API or of Anthropic."""
    wire = cast(JSONObject, value) if isinstance(value, dict) else {}
    if isinstance(wire.get("function"), dict):
        return {**wire, "type": "function"}
    if not isinstance(wire.get("name"), str) or wire.get("type") not in (None, "function"):
        return cast(JSON, value)
    schema: JSON = wire.get("parameters") or wire.get("input_schema")
    described = {"description": wire["description"]} if isinstance(wire.get("description"), str) else {}
    parameters = cast(JSONObject, schema) if isinstance(schema, dict) else {}
    return {"type": "function", "function": {"name": wire["name"], **described, "parameters": parameters}}


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text}

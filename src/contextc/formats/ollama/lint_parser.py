"""Parse Ollama's requests for the rules: required fields of messages, and positions of calls and results.

The server decodes JSON into Go types. It rejects a field of a wrong type, treats a missing one as empty, and ignores an
unknown one. It also ignores a message whose role the model's template does not know, so that is reported.
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode, parse_object
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    make_finding,
    results_while,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.media_encoding import decode_base64, from_data_url
from contextc.formats.ollama import error_texts
from contextc.formats.ollama.call_matching import CallMatcher, is_assistant_message
from contextc.formats.request_settings import object_or_empty

ROLES = ("system", "user", "assistant", "tool")
ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant", "function": "tool"}
MESSAGE: FieldTypes = {
    "role": str,
    "content?": str,
    "thinking?": str,
    "images?": list,
    "tool_calls?": list,
    "tool_name?": str,
    "tool_call_id?": str,
}
CALL: FieldTypes = {"id?": str, "function": dict}
FUNCTION: FieldTypes = {"name": str, "arguments?": dict, "index?": int}
TOOL: FieldTypes = {"type?": str, "function": dict}
FUNCTION_DEFINITION: FieldTypes = {"name": str, "description?": str, "parameters?": dict}
SETTINGS: FieldTypes = {
    "model?": str,
    "stream?": bool,
    "truncate?": bool,
    "shift?": bool,
    "logprobs?": bool,
    "top_logprobs?": int,
    "options?": dict,
}
GO_TYPES = {
    "messages": "[]api.Message",
    "tools": "api.Tools",
    "images": "[]api.ImageData",
    "tool_calls": "[]api.ToolCall",
    "function": "api.ToolCallFunction",
    "arguments": "api.ToolCallFunctionArguments",
    "parameters": "api.ToolFunctionParameters",
    "options": "map[string]interface {}",
    **dict.fromkeys(("stream", "truncate", "shift", "logprobs"), "bool"),
    **dict.fromkeys(("index", "top_logprobs"), "int"),
}
"""Go's type names of fields; all other fields are strings."""
GO_ITEM_TYPES = {
    "messages": "api.Message",
    "tools": "api.Tool",
    "tool_calls": "api.ToolCall",
    "images": "api.ImageData",
}


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON value as a request, or as the messages of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    listed = cast(list[JSON], messages) if isinstance(messages, list) else []
    reader = _Reader(CallMatcher(listed))
    for name, kind in SETTINGS.items():
        if wrong := schema_error(whole, {name: kind}):
            reader.refuse((wrong[0],), "", wrong[1], whole.get(wrong[0]))
    if isinstance(body, dict) and "messages" not in body:
        reader.refuse((), "messages", "`messages` is missing.", None)
    elif not isinstance(messages, list):
        reader.refuse(base, "", "the messages must be a list.", messages)
    turns = [turn for number, wire in enumerate(listed) for turn in reader.turn(wire, (*base, number))]
    tools = tuple(reader.tools(whole.get("tools")))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tools, malformed=tuple(reader.misshapen))


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and calls that Ollama does not define and would ignore."""
    for turn in sketch.messages:
        yield from unknown_field_findings(turn.wire, field_names(MESSAGE), turn.path)
        for image in turn.parts_of("media"):
            if decode_base64("".join(image.text.split())) is None:
                yield make_finding(image.path, "`images` must contain base64.")
        for call in turn.parts_of("call"):
            yield from unknown_field_findings(call.wire, field_names(CALL, "type"), call.path)
            yield from unknown_field_findings(
                call.wire.get("function"), field_names(FUNCTION), (*call.path, "function")
            )


before_next_reply = results_while(lambda turn: not is_assistant_message(turn.wire))
"""Results must come before the next assistant message; other messages may come in between."""


class _Reader:
    def __init__(self, calls: CallMatcher) -> None:
        self.seen = calls
        self.misshapen: list[RuleFinding] = []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, MESSAGE):
            return self.refuse(path, *wrong, wire)
        given = cast(JSONObject, wire)
        role = given["role"].lower()
        if role not in ROLES:
            return self.refuse(
                path, "role", f"invalid role {given['role']!r}: expected system, user, assistant or tool.", None
            )
        calls = cast(list[JSON], given.get("tool_calls") or [])
        if role == "tool" and calls:
            return self.refuse(path, "tool_calls", "a tool message cannot contain tool calls.", None)
        if (nameless := next((number for number, call in enumerate(calls) if not _is_named(call)), None)) is not None:
            return self.refuse(path, "tool_calls", f"`tool_calls[{nameless}]` does not name the tool to call.", None)
        if is_assistant_message(given):
            self.seen.begin_reply()
        pieces = [self.result(given, path)] if role == "tool" else []
        if given.get("content"):
            pieces.append(RequestPart(kind="text", path=(*path, "content"), wire={}, text=given["content"]))
        if given.get("thinking"):
            pieces.append(RequestPart(kind="reasoning", path=(*path, "thinking"), wire={}, text=given["thinking"]))
        pieces += self.images(given.get("images"), (*path, "images"))
        pieces += self.calls(calls, (*path, "tool_calls"))
        yield RequestMessage(role=role, path=path, wire=given, parts=tuple(pieces))

    def result(self, wire: JSONObject, path: JSONPath) -> RequestPart:
        answers = self.seen.match_result(wire)
        return RequestPart(kind="result", path=path, wire=wire, id=answers.id, name=answers.name)

    def images(self, images: JSON, path: JSONPath) -> Iterator[RequestPart]:
        for number, image in enumerate(cast(list[JSON], images or [])):
            if isinstance(image, str):
                yield RequestPart(kind="media", path=(*path, number), wire={}, text=image)
            else:
                self.refuse((*path, number), "", "an image must be a base64 string.", image)

    def calls(self, calls: list[JSON], path: JSONPath) -> Iterator[RequestPart]:
        for number, call in enumerate(calls):
            here, function = (*path, number), object_or_empty(object_or_empty(call).get("function"))
            if wrong := schema_error(call, CALL) or _function_error(function, FUNCTION):
                self.refuse(here, *wrong, call)
            else:
                wire = cast(JSONObject, call)
                yield RequestPart(kind="call", path=here, wire=wire, id=self.seen.add_call(wire), name=function["name"])

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if tools is not None and not isinstance(tools, list):
            self.refuse(("tools",), "", "the tools must be a list.", tools)
        for number, tool in enumerate(cast(list[JSON], tools) if isinstance(tools, list) else []):
            function = object_or_empty(object_or_empty(tool).get("function"))
            if wrong := schema_error(tool, TOOL) or _function_error(function, FUNCTION_DEFINITION):
                self.refuse(("tools", number), *wrong, tool)
            else:
                yield RequestPart(
                    kind="other", path=("tools", number), wire=cast(JSONObject, tool), id=function["name"]
                )

    def refuse(self, path: JSONPath, field: str, message: str, value: JSON) -> None:
        """Record a malformed value. `value` is the field or the object that holds it. Go does not report missing
        fields.
        """
        for name in field.split(".") if field else ():
            value = object_or_empty(value).get(name)
        self.misshapen.append(
            make_finding(path, message, what=_go_error((*path, *field.split(".")) if field else path, value))
        )


def _function_error(function: JSONObject, fields: FieldTypes) -> tuple[str, str] | None:
    wrong = schema_error(function, fields)
    return (f"function.{wrong[0]}", wrong[1]) if wrong else None


def _go_error(path: JSONPath, value: JSON) -> str:
    """Return Go's error for a value of a wrong type. It states the position by field names alone."""
    given = error_texts.GO_KINDS.get(type(cast(object, value)))
    names = [step for step in path if isinstance(step, str)]
    if path and isinstance(path[0], int):
        names = ["messages", *names]
    if given is None or (names and names[-1] == "role" and given == "string"):
        return ""
    if not names:
        return error_texts.WRONG_TYPE.format(given=given, place="value", expected="api.ChatRequest")
    listed = isinstance(path[-1], int) if path else False
    expected = GO_ITEM_TYPES.get(names[-1], "string") if listed else GO_TYPES.get(names[-1], "string")
    place = error_texts.FIELD.format(where=".".join(names))
    return error_texts.WRONG_TYPE.format(given=given, place=place, expected=expected)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, call or tool: content in parts, roles of other providers, arguments as text."""
    match path:
        case ():
            return {**cast(JSONObject, value), "messages": []} if isinstance(value, dict) else value
        case ("messages",):
            return [value] if isinstance(value, dict) else [text_message(value)] if isinstance(value, str) else value
        case ("messages", _):
            return text_message(value) if isinstance(value, str) else _reshaped_message(value)
        case ("messages", _, "tool_calls", _):
            return _reshaped_call(value)
        case ("messages", _, "images", _):
            return _text(value)
        case ("tools", _):
            return _reshaped_tool(value)
        case _:
            return value


def _reshaped_message(value: JSON) -> JSON:
    given = object_or_empty(value)
    wire = {name: each for name, each in given.items() if each is not None}
    if not wire or ("content" not in wire and not wire.keys() & {"tool_calls", "thinking", "images", "role"}):
        return value
    said, images = _text_and_images(wire.get("content", ""))
    calls = _as_list(wire.pop("tool_calls", []))
    strays = [_text(call) for call in calls if not _is_named(call)]
    images += [_text(image) for image in _as_list(wire.pop("images", []))]
    wire["content"] = "\n\n".join(filter(None, [said, *strays]))
    if images:
        wire["images"] = images
    if calls := [_reshaped_call(call) for call in calls if _is_named(call)]:
        wire["tool_calls"] = calls
    role = str(wire.get("role")).lower()
    role = role if role in ROLES else ALIASES.get(role, "user")
    wire["role"] = "assistant" if calls and role == "tool" else role
    texts = ("thinking", "tool_name", "tool_call_id")
    return {name: each for name, each in wire.items() if name not in texts or isinstance(each, str)}


def _text_and_images(content: JSON) -> tuple[str, list[str]]:
    """Return the text of a content in parts, and its images if their data is included."""
    if not isinstance(content, list):
        return _text(content), []
    words: list[str] = []
    images: list[str] = []
    for part in cast(list[JSON], content):
        url: JSON = object_or_empty(object_or_empty(part).get("image_url")).get("url")
        if isinstance(url, str) and from_data_url(url) is not None:
            images.append(url.partition(",")[2])
        else:
            words.append(_text(object_or_empty(part).get("text", part)))
    return "\n\n".join(words), images


def _reshaped_call(value: JSON) -> JSON:
    if not _is_named(value):
        return value
    wire = object_or_empty(value)
    named = object_or_empty(wire.get("function")) or wire
    written: JSON = next((named[name] for name in ("arguments", "input", "args") if named.get(name) is not None), "")
    given = object_or_empty(written)
    if not isinstance(written, dict) and written != "":
        whole = parse_object(written) if isinstance(written, str) else None
        given = {"malformed_arguments": _text(written)} if whole is None else whole
    index = {"index": named["index"]} if type(named.get("index")) is int else {}
    call_id = {"id": wire["id"]} if isinstance(wire.get("id"), str) else {}
    return {**call_id, "function": {**index, "name": named["name"], "arguments": given}}


def _is_named(call: JSON) -> bool:
    """Return True if a call, in any shape, names its tool."""
    wire = object_or_empty(call)
    return isinstance((object_or_empty(wire.get("function")) or wire).get("name"), str)


def _reshaped_tool(value: JSON) -> JSON:
    """Convert a tool of the Responses API or of Anthropic, or one with an invalid field."""
    wire = object_or_empty(value)
    named = object_or_empty(wire.get("function")) or wire
    if not isinstance(named.get("name"), str):
        return value
    schema: JSON = named.get("parameters") or named.get("input_schema")
    described = {"description": named["description"]} if isinstance(named.get("description"), str) else {}
    parameters = cast(JSONObject, schema) if isinstance(schema, dict) else {}
    return {"type": "function", "function": {"name": named["name"], **described, "parameters": parameters}}


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def _as_list(value: JSON) -> list[JSON]:
    return cast(list[JSON], value) if isinstance(value, list) else [value] if value not in (None, "") else []


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()

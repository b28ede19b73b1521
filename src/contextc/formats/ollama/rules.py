"""Rules of Ollama's `/api/chat` that can be checked without calling the API: the reader, the fixes, and the rules.

The server decodes JSON into Go types. It rejects a field of a wrong type, treats a missing one as empty, and ignores an
unknown one. It also ignores a message whose role the model's template does not know, so that is reported.

The server checks types and settings, and passes the messages to the template of the model. Some templates reject
unmatched calls and results. Others silently show the model a part of them. Both cases are reported here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from contextc._json import JSON, JSONObject, encode, parse_object
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    Problem,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    field_names,
    make_finding,
    nested_error,
    require_results_while,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import decode_base64, from_data_url
from contextc.formats.ollama.codec import (
    FIELD_TEXT,
    GO_KINDS,
    WRONG_TYPE_TEXT,
    CallMatcher,
    find_type_mismatches,
    is_assistant_message,
    remove_type_mismatches,
)
from contextc.formats.ollama.request_settings import THINK_LEVELS
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ARGUMENT_NAMES,
    ROLE_ALIASES,
    PairingChecks,
    as_function_tool,
    as_list,
    as_role,
    as_text,
    change_messages,
    coerce_messages,
    duplicate_ids,
    first_given,
    insert_first_message,
    iter_parts,
    malformed_values,
    messages_where,
    no_messages,
    remove_settings,
    text_message,
    without_fields,
    without_nulls,
    without_wrong_types,
)

ROLES = ("system", "user", "assistant", "tool")
ALIASES = {**ROLE_ALIASES, "function": "tool"}
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


before_next_reply = require_results_while(lambda turn: not is_assistant_message(turn.wire))
"""Results must come before the next assistant message; other messages may come in between."""


class _Reader(RequestReader):
    messages_required = True

    def messages(self, given: JSON, base: JSONPath) -> Iterable[RequestMessage]:
        self.given, self.seen = given, CallMatcher(list_or_empty(given))
        for name, kind in SETTINGS.items():
            if wrong := schema_error(self.body, {name: kind}):
                self.refuse((wrong.field,), wrong._replace(field=""))
        return super().messages(given, base)

    def role(self, wire: JSONObject) -> str:
        return wire["role"].lower()

    def message_error(self, wire: JSON) -> Fault | None:
        if wrong := schema_error(wire, MESSAGE):
            return wrong
        if (role := wire["role"].lower()) not in ROLES:
            return Fault("role", f"invalid role {wire['role']!r}: expected system, user, assistant or tool.")
        calls = list_or_empty(wire.get("tool_calls"))
        if role == "tool" and calls:
            return Fault("tool_calls", "a tool message cannot contain tool calls.")
        nameless = next((number for number, call in enumerate(calls) if not _is_named(call)), None)
        missing = Fault("tool_calls", f"`tool_calls[{nameless}]` does not name the tool to call.")
        return None if nameless is None else missing

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        if is_assistant_message(wire):
            self.seen.begin_reply()
        if wire["role"].lower() == "tool":
            answers = self.seen.match_result(wire)
            yield RequestPart(kind="result", path=path, wire=wire, id=answers.id, name=answers.name)
        if wire.get("content"):
            yield RequestPart(kind="text", path=(*path, "content"), wire={}, text=wire["content"])
        if wire.get("thinking"):
            yield RequestPart(kind="reasoning", path=(*path, "thinking"), wire={}, text=wire["thinking"])
        for number, image in enumerate(wire.get("images") or []):
            if isinstance(image, str):
                yield RequestPart(kind="media", path=(*path, "images", number), wire={}, text=image)
            else:
                fault = Fault("", "an image must be a base64 string.", Problem.TYPE, (str,), image)
                self.refuse((*path, "images", number), fault)
        for number, call in enumerate(wire.get("tool_calls") or []):
            here = (*path, "tool_calls", number)
            if wrong := _function_error(call, CALL, FUNCTION):
                self.refuse(here, wrong)
            else:
                call_id = self.seen.add_call(call)
                yield RequestPart(kind="call", path=here, wire=call, id=call_id, name=call["function"]["name"])

    def tool_error(self, tool: JSON) -> Fault | None:
        return _function_error(tool, TOOL, FUNCTION_DEFINITION)

    def tool_name(self, tool: JSONObject) -> str | None:
        return tool["function"]["name"]

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        """Return Go's error. Go reports wrong types only."""
        if fault.problem is not Problem.TYPE:
            return ""
        return _go_error((*path, *fault.field.split(".")) if fault.field else path, fault.got)


parse_request = _Reader.parse


def _function_error(wire: JSON, fields: FieldTypes, inner_fields: FieldTypes) -> Fault | None:
    """Return the first fault of a call or a tool."""
    return schema_error(wire, fields) or nested_error("function", wire["function"], inner_fields)


def _go_error(path: JSONPath, value: JSON) -> str:
    """Return Go's error for a value of a wrong type. It states the position by field names alone."""
    given = GO_KINDS.get(type(cast(object, value)))
    names = [step for step in path if isinstance(step, str)]
    if path and isinstance(path[0], int):
        names = ["messages", *names]
    if given is None or (names and names[-1] == "role" and given == "string"):
        return ""
    if not names:
        return WRONG_TYPE_TEXT.format(given=given, place="value", expected="api.ChatRequest")
    listed = isinstance(path[-1], int) if path else False
    expected = GO_ITEM_TYPES.get(names[-1], "string") if listed else GO_TYPES.get(names[-1], "string")
    place = FIELD_TEXT.format(where=".".join(names))
    return WRONG_TYPE_TEXT.format(given=given, place=place, expected=expected)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, call or tool: content in parts, roles of other providers, arguments as text."""
    match path:
        case () | ("messages",):
            return coerce_messages(value, path)
        case ("messages", _):
            return text_message(value) if isinstance(value, str) else _reshaped_message(value)
        case ("messages", _, "tool_calls", _):
            return _reshaped_call(value)
        case ("messages", _, "images", _):
            return as_text(value)
        case ("tools", _):
            return as_function_tool(_named(value)) if _is_named(value) else value
        case _:
            return value


def _reshaped_message(value: JSON) -> JSON:
    wire = without_nulls(object_or_empty(value))
    if not wire or ("content" not in wire and not wire.keys() & {"tool_calls", "thinking", "images", "role"}):
        return value
    said, images = _text_and_images(wire.get("content", ""))
    calls = _as_list(wire.pop("tool_calls", []))
    strays = [as_text(call) for call in calls if not _is_named(call)]
    images += [as_text(image) for image in _as_list(wire.pop("images", []))]
    wire["content"] = "\n\n".join([text for text in (said, *strays) if text])
    if images:
        wire["images"] = images
    if calls := [_reshaped_call(call) for call in calls if _is_named(call)]:
        wire["tool_calls"] = calls
    role = as_role(wire.get("role"), ROLES, ALIASES)
    wire["role"] = "assistant" if calls and role == "tool" else role
    return without_wrong_types(wire, {"thinking": str, "tool_name": str, "tool_call_id": str})


def _text_and_images(content: JSON) -> tuple[str, list[str]]:
    """Return the text of a content in parts, and its images if their data is included."""
    if not is_list(content):
        return as_text(content), []
    words: list[str] = []
    images: list[str] = []
    for part in content:
        url: JSON = object_or_empty(object_or_empty(part).get("image_url")).get("url")
        if isinstance(url, str) and from_data_url(url) is not None:
            images.append(url.partition(",")[2])
        else:
            words.append(as_text(object_or_empty(part).get("text", part)))
    return "\n\n".join(words), images


def _reshaped_call(value: JSON) -> JSON:
    if not _is_named(value):
        return value
    wire, named = object_or_empty(value), _named(value)
    written: JSON = first_given(named, ARGUMENT_NAMES, "")
    given = object_or_empty(written)
    if not is_object(written) and written != "":
        whole = parse_object(written) if isinstance(written, str) else None
        given = {"malformed_arguments": as_text(written)} if whole is None else whole
    index = {"index": named["index"]} if type(named.get("index")) is int else {}
    call_id = {"id": wire["id"]} if isinstance(wire.get("id"), str) else {}
    return {**call_id, "function": {**index, "name": named["name"], "arguments": given}}


def _named(value: JSON) -> JSONObject:
    """Return the object in a call or a tool, in any shape, that should have the name of the tool."""
    wire = object_or_empty(value)
    return object_or_empty(wire.get("function")) or wire


def _is_named(value: JSON) -> bool:
    return isinstance(_named(value).get("name"), str)


def _as_list(value: JSON) -> list[JSON]:
    return [] if value == "" else as_list(value)


MAX_LOGPROBS, MAX_NAME_LENGTH = 20, 200
NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
INTEGERS = ("num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "seed", "top_k")
FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
OPTIONS: Mapping[str, str] = {
    **dict.fromkeys((*INTEGERS, "repeat_last_n"), "type integer"),
    **dict.fromkeys(FLOATS, "type float32"),
    "use_mmap": "type boolean",
    "stop": "type array",
}
"""Ollama's names for the types of its options. A fraction is truncated where an integer is expected."""


def with_plain_images(body: JSONObject) -> JSONObject:
    """Reduce images to plain base64; replace those without data by a line of text."""
    return change_messages(body, _with_plain_images)


def _with_plain_images(wire: JSONObject) -> JSONObject:
    given = cast(list[str], wire.get("images") or [])
    if all(first_invalid_byte(image) is None for image in given):
        return wire
    shown = [image for image in map(strip_data_url, given) if first_invalid_byte(image) is None]
    lost = [
        f"[image: {_shorten(image)}; not shown]"
        for image in map(strip_data_url, given)
        if first_invalid_byte(image) is not None
    ]
    words = "\n\n".join([text for text in (wire.get("content"), *lost) if text])
    return {**without_fields(wire, "images"), "content": words, **({"images": shown} if shown else {})}


def _shorten(image: str) -> str:
    return image if len(image) <= MAX_NAME_LENGTH else f"{image[:MAX_NAME_LENGTH]}…"


def strip_data_url(image: str) -> str:
    """Return an image without the prefix of a data URL."""
    head, comma, data = image.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else image


def first_invalid_byte(image: str) -> int | None:
    """Return the position of the first byte that is not base64, as Go counts; None if all are valid."""
    plain = image.replace("\r", "").replace("\n", "")
    if decode_base64(plain) is not None:
        return None
    strange = NOT_BASE64.search(plain)
    return strange.start() if strange else len(plain) // 4 * 4


def with_valid_options(body: JSONObject) -> JSONObject:
    return {**body, "options": without_fields(object_or_empty(body["options"]), *invalid_options(body))}


def with_allowed_logprobs(body: JSONObject) -> JSONObject:
    return {**body, "top_logprobs": min(max(body["top_logprobs"], 0), MAX_LOGPROBS)}


def with_valid_schemas(body: JSONObject) -> JSONObject:
    return {**body, "tools": [_with_valid_schema(tool) for tool in cast(list[JSONObject], body["tools"])]}


def _with_valid_schema(tool: JSONObject) -> JSONObject:
    function = object_or_empty(tool.get("function"))
    schema = object_or_empty(function.get("parameters"))
    return {**tool, "function": {**function, "parameters": remove_type_mismatches(schema)}} if schema else tool


def invalid_options(body: JSONObject) -> dict[str, str]:
    """Yield the options of a wrong type, with the type that is expected."""
    given = object_or_empty(body.get("options"))
    found = {name: OPTIONS[name] for name, value in given.items() if name in OPTIONS and not _fits(name, value)}
    if "stop" in found and isinstance(given["stop"], list):
        found["stop"] = "an array of strings"
    return found


def _fits(name: str, value: JSON) -> bool:
    if value is None:
        return True
    if name == "stop":
        return isinstance(value, list) and all(isinstance(each, str) for each in cast(list[JSON], value))
    if OPTIONS[name] == "type boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


RULES = RuleSet(
    "OLL",
    "ollama",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_message,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
PAIRING = PairingChecks.within(
    before_next_reply, lambda message, part: {"result": part.id or part.name or "without a name"}
)


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())
rule(3)(PAIRING.unanswered)
rule(4)(PAIRING.orphans)
rule(5)(PAIRING.duplicates)
rule(6)(duplicate_ids())
rule(7)(
    messages_where(
        lambda turn: (
            turn.role != "assistant" and (turn.parts_of("call") or (turn.role != "tool" and turn.parts_of("reasoning")))
        )
    )
)


@rule(8, fix=with_plain_images)
def check_images_base64(request: ParsedRequest) -> Iterable[RuleFinding]:
    for _, picture in iter_parts(request, "media"):
        if (byte := first_invalid_byte(picture.text)) is not None:
            yield make_finding(picture.path, "this image is not plain base64.", byte=byte)


@rule(9, fix=remove_settings("think"))
def check_think(request: ParsedRequest) -> Iterable[RuleFinding]:
    value: JSON = request.body.get("think")
    if not (value is None or isinstance(value, bool) or value in ("", *THINK_LEVELS)):
        yield make_finding(("think",), f"invalid `think` value {value!r}.", value=encode(value).decode())


@rule(10, fix=remove_settings("format"))
def check_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    value: JSON = request.body.get("format")
    if not (value in (None, "", "json") or isinstance(value, dict)):
        yield make_finding(("format",), f"invalid `format` value {value!r}.", value=encode(value).decode())


@rule(11, fix=with_valid_options)
def check_option_types(request: ParsedRequest) -> Iterable[RuleFinding]:
    for name, expected in invalid_options(request.body).items():
        message = f"option `{name}` must be of {expected}."
        yield make_finding(("options", name), message, name=name, expected=expected)


@rule(12, fix=with_allowed_logprobs)
def check_top_logprobs(request: ParsedRequest) -> Iterable[RuleFinding]:
    count: JSON = request.body.get("top_logprobs")
    if type(count) is int and not 0 <= count <= MAX_LOGPROBS:
        yield make_finding(("top_logprobs",), f"`top_logprobs` must be between 0 and 20, got {count}.")


@rule(13, fix=with_valid_schemas)
def check_tool_schemas(request: ParsedRequest) -> Iterable[RuleFinding]:
    for tool in request.tools:
        for wrong in find_type_mismatches(object_or_empty(tool.wire["function"].get("parameters"))):
            path = (*tool.path, "function", "parameters", *wrong.path)
            yield make_finding(path, f"`{wrong.path[-1]}` has the wrong type in this schema.", what=wrong.error)

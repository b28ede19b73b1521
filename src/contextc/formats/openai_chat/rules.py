"""Rules of OpenAI's Chat Completions that can be checked without calling the API.

OpenRouter, Groq, Mistral, DeepSeek, vLLM and others use this API too. All of them require matching calls and results.
Limits that only OpenAI sets are not checked if a request names another vendor's model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Literal, cast

from contextc._json import JSON, JSONObject, as_objects
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleCheck,
    RuleFinding,
    RuleSet,
    field_names,
    first_field,
    format_path,
    make_finding,
    nested_error,
    results_in_role,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import (
    MIN_LENGTH,
    IdentifierCodec,
    decode_base64,
    is_fernet_token,
    is_valid_signature,
)
from contextc.formats.openai_chat.codec import PARTS
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ARGUMENT_NAMES,
    SAMPLING_SETTINGS,
    PairingChecks,
    StrictSchema,
    as_function_tool,
    as_text,
    change_messages,
    coerce_messages,
    duplicate_ids,
    duplicate_tools,
    first_given,
    insert_first_message,
    iter_calls,
    iter_parts,
    keep_messages,
    limit_list,
    long_cache_keys,
    malformed_values,
    messages_of,
    messages_where,
    no_messages,
    open_strict_schemas,
    part_finding,
    remove_settings,
    sampling_settings,
    set_setting,
    text_block,
    text_message,
    unknown_cache_options,
    with_lenient_schemas,
    with_short_cache_key,
    without_fields,
    without_nulls,
    without_unknown_cache_options,
)

ASSISTANT_ONLY_TEXT = "Invalid parameter: only messages with role 'assistant' can have {what}."
TOO_LONG_TEXT = (
    "string too long. Expected a string with maximum length {most}, but got a string with length {length} instead"
)
TOO_SHORT_TEXT = "empty string. Expected a string with minimum length 1, but got an empty string instead"
TYPES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "an array",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
}
"""OpenAI's names of types."""
MISSING_TEXT = "Missing required parameter: '{where}'."
WRONG_TYPE_TEXT = "Invalid type for '{where}': expected {expected}, but got {given} instead."
WRONG_VALUE_TEXT = "Invalid value: '{value}'. Supported values are: {known}."
UNKNOWN_PARAMETER_TEXT = "Unknown parameter: '{where}'."

# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# Parse Chat Completions requests for the rules: required fields of messages and parts, and their positions.
#
# Many endpoints use this format, and some accept more than OpenAI: an image as a plain URL, a tool without a `type`.
# `vendor_group` derives the vendor from the model's name. What only other vendors accept is not reported for their
# models.


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
ALL_PARTS = {**OTHER_VENDOR_PARTS, **PARTS.schemas}
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
            elif piece.kind != "result":
                yield from PARTS.unknown_fields(piece.wire, piece.path)


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
            known = _join_names(PARTS.schemas)
            unknown = Fault("type", f"unknown part type {kind!r}.", detail=_wrong_value(kind, known))
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
        what: str = fault.detail or MISSING_TEXT
        return wrong_type_text(where, fault) or what.replace("{where}", where)


parse_request = _Reader.parse


def wrong_type_text(where: str, fault: Fault) -> str:
    """Return OpenAI's error for a value of a wrong type; "" for another fault."""
    if fault.problem is not Problem.TYPE:
        return ""
    first, *rest = [TYPES[each] for each in fault.expected]
    expected = " or ".join([f"one of {first}", *[each.partition(" ")[2] for each in rest]]) if rest else first
    given = "null" if fault.got is None else TYPES[type(cast(object, fault.got))]
    return WRONG_TYPE_TEXT.format(where=where, expected=expected, given=given)


def _tool_kind(tool: JSONObject) -> JSON:
    return tool.get("type") if tool.get("function") is None else "function"


def _wrong_value(value: JSON, known: str) -> str:
    return WRONG_VALUE_TEXT.format(value=value, known=known)


def _misplaced_field_error(message: JSONObject) -> Fault | None:
    """Return the error for a field of another role or library, such as a camel-case name; None if there is none."""
    if message["role"] != "tool" and message.get("tool_call_id") is not None:
        return Fault("tool_call_id", "only a tool message may have a `tool_call_id`.", detail=UNKNOWN_PARAMETER_TEXT)
    if camel := first_field(message, CAMEL_CASE_NAMES):
        return Fault(camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", detail=UNKNOWN_PARAMETER_TEXT)
    if message["role"] == "tool" and (message.get("tool_calls") or message.get("function_call")):
        what = ASSISTANT_ONLY_TEXT.format(what="tool calls")
        return Fault("tool_calls", "a tool message cannot contain tool calls.", detail=what)
    return None


def _unnamed_call_error(message: JSONObject) -> Fault | None:
    """Return the error for a call that does not name its tool; None if all do."""
    if (index := find_unnamed_call(message)) is not None:
        name = f"tool_calls[{index}]"
        return Fault(f"{name}.function.name", f"`{name}` does not name the tool to call.", detail=MISSING_TEXT)
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
        case ("tools", _):  # maybe one of the Responses API or of Anthropic
            wire = object_or_empty(value)
            if is_object(wire.get("function")):
                return {**wire, "type": "function"}
            named = isinstance(wire.get("name"), str) and wire.get("type") in (None, "function")
            return as_function_tool(wire) if named else value
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
    outer = without_fields(value, "function", "custom", "name", *ARGUMENT_NAMES)
    written = as_text(first_given(inner, ARGUMENT_NAMES, "{}"))
    outer["id"] = outer["id"] if isinstance(outer.get("id"), str) else id
    if outer.get("type") == "custom":
        return {**outer, "custom": {"name": inner["name"], "input": written}}
    inside = {} if inner is value else inner
    return {**outer, "type": "function", "function": {**inside, "name": inner["name"], "arguments": written}}


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Repairs that decoding and encoding does not make: empty lists, names, tools, settings and media.


MAX_STOPS, MAX_TOOLS = 4, 128
TOOL_NAME_CODEC = IdentifierCodec("a-zA-Z0-9_-", 64)
INVALID_NAME_CHARACTERS = re.compile(r"[\s<|\\/>]")
CONTENT_SUBSTITUTES = (
    *("tool_calls", "function_call", "refusal", "audio"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
REQUIRED_FIELDS = {"tool_choice": "tools", "parallel_tool_calls": "tools", "function_call": "functions"}
"""Settings that are rejected unless the field they depend on is present."""
IMAGE_TYPE = "image_url"


def is_empty_reply(message: JSONObject) -> bool:
    """Return True if an assistant message has neither content nor anything that may replace it."""
    return message.get("content") is None and not any(message.get(name) for name in CONTENT_SUBSTITUTES)


def without_empty_replies(body: JSONObject) -> JSONObject:
    """Remove assistant messages without content, also if they have unknown fields."""
    return keep_messages(body, lambda message: message.get("role") != "assistant" or not is_empty_reply(message))


def without_unknown_fields(body: JSONObject) -> JSONObject:
    return change_messages(body, lambda message: {name: message[name] for name in message if name in FIELDS})


def without_empty_content(body: JSONObject) -> JSONObject:
    """Remove messages whose content is an empty list. A tool message stays, because its call needs it."""
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if message.get("content") != [] or message.get("tool_calls"):
            messages.append(message)
        elif message["role"] in ("tool", "function") or message.get("function_call"):
            messages.append({**message, "content": ""})
    return {**body, "messages": messages}


def without_empty_lists(body: JSONObject) -> JSONObject:
    body = {name: value for name, value in body.items() if name != "tools" or value != []}
    return change_messages(
        body, lambda message: without_fields(message, "tool_calls") if message.get("tool_calls") == [] else message
    )


def with_assistant_calls(body: JSONObject) -> JSONObject:
    return change_messages(body, lambda message: {**message, "role": "assistant"} if has_calls(message) else message)


def with_valid_tool_names(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    choice: JSON = copy.get("tool_choice")
    things = [*cast(list[JSON], copy.get("tools") or []), choice]
    for message in messages_of(copy):
        things += cast(list[JSON], message.get("tool_calls") or [])
    for named in filter(None, map(find_function, things)):
        if not TOOL_NAME_CODEC.accepts(named["name"]):  # encoding has already changed some of them
            named["name"] = TOOL_NAME_CODEC.encode(named["name"])
    return copy


def with_valid_message_names(body: JSONObject) -> JSONObject:
    def plain(message: JSONObject) -> JSONObject:
        if message.get("name") is None or message["role"] in ("tool", "function"):
            return message
        return {**message, "name": INVALID_NAME_CHARACTERS.sub("_", message["name"]) or "_"}

    return change_messages(body, plain)


def with_unique_tools(body: JSONObject) -> JSONObject:
    given = list(enumerate(cast(list[JSONObject], body["tools"])))
    tools = {tool_name(tool) or str(index): tool for index, tool in reversed(given)}
    return {**body, "tools": list(tools.values())[::-1]}


def without_unusable_settings(body: JSONObject) -> JSONObject:
    return {
        name: value for name, value in body.items() if name not in REQUIRED_FIELDS or body.get(REQUIRED_FIELDS[name])
    }


def with_user_media(body: JSONObject) -> JSONObject:
    """Move media from other messages into user messages, after the results of that step."""
    messages: list[JSONObject] = []
    shown: list[JSONObject] = []
    for message in messages_of(body):
        if shown and message["role"] != "tool":
            messages.append({"role": "user", "content": shown})
            shown = []
        if message["role"] != "user" and isinstance(message.get("content"), list):
            parts = cast(list[JSONObject], message["content"])
            if media := [part for part in parts if part["type"] not in KINDS]:
                whose = "a tool" if message["role"] in ("tool", "function") else f"the {message['role']}"
                shown += [text_block(f"[media of {whose}:]"), *media]
                message = {**message, "content": [part for part in parts if part["type"] in KINDS] or ""}
        messages.append(message)
    return {**body, "messages": [*messages, {"role": "user", "content": shown}] if shown else messages}


def with_completion_limit(body: JSONObject) -> JSONObject:
    return {"max_completion_tokens": body["max_tokens"], **without_fields(body, "max_tokens")}


def with_images_described(body: JSONObject) -> JSONObject:
    def described(part: JSONObject) -> JSONObject:
        if part["type"] != IMAGE_TYPE:
            return part
        given: JSON = part[IMAGE_TYPE]
        url = cast(str, cast(JSONObject, given)["url"] if isinstance(given, dict) else given)
        return text_block("[image; not shown]" if url.startswith("data:") else f"[image: {url}; not shown]")

    def seen(message: JSONObject) -> JSONObject:
        if not isinstance(message.get("content"), list):
            return message
        return {**message, "content": [described(part) for part in cast(list[JSONObject], message["content"])]}

    return change_messages(body, seen)


def without_damaged_reasoning(body: JSONObject) -> JSONObject:
    return change_messages(
        body, lambda message: without_fields(message, "reasoning_details") if damaged_details(message) else message
    )


def damaged_details(message: JSONObject) -> list[int]:
    """Return the indexes of a message's `reasoning_details` whose encrypted content is detectably altered."""
    details: JSON = message.get("reasoning_details")
    given = enumerate(cast(list[JSON], details) if isinstance(details, list) else [])
    return [index for index, each in given if isinstance(each, dict) and not _is_whole(cast(JSONObject, each))]


def _is_whole(detail: JSONObject) -> bool:
    format = str(detail.get("format"))
    secrets = [secret for name in ("signature", "data") if isinstance(secret := cast(JSON, detail.get(name)), str)]
    for secret in secrets:
        sound = is_valid_signature(secret) if format.startswith("anthropic") else _is_encrypted(secret, format)
        if len(secret) >= MIN_LENGTH and not sound:
            return False
    return True


def _is_encrypted(secret: str, format: str) -> bool:
    """Return True if this is base64 and, if OpenAI wrote it, has the frame of a Fernet token."""
    data = decode_base64(secret, urlsafe=True)
    if data is None:
        return False
    return is_fernet_token(data) or not format.startswith("openai")


def has_calls(message: JSONObject) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def tool_name(tool: JSON) -> str | None:
    return named["name"] if (named := find_function(tool)) else None


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_ID_LENGTH = 64
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

RULES = RuleSet(
    "OAC",
    "openai_chat",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    vendor="openai",
    format_path=vendor_path,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
CACHE_LIFETIMES = ("30m",)
PAIRING = PairingChecks.within(results_in_role("tool"))


def is_openai(body: JSONObject) -> bool:
    """Return True unless a request names another vendor's model."""
    return vendor_group(body) != "other"


def too_many(name: str, most: int) -> RuleCheck:
    """Return the check that a list has at most so many entries, for a model of OpenAI."""

    def check(request: ParsedRequest) -> Iterator[RuleFinding]:
        count = len(list_or_empty(request.body.get(name)))
        if count > most and is_openai(request.body):
            yield make_finding((name,), most=most, count=count)

    return check


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())
rule(3, fix=without_empty_replies)(messages_where(lambda turn: turn.role == "assistant" and is_empty_reply(turn.wire)))


@rule(4, fix=without_empty_content)
def check_content_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if turn.wire.get("content") == [] and not has_calls(turn.wire):
            yield make_finding(
                turn.path, "`content` is an empty list.", field="content", where=f"{vendor_path(turn.path)}.content"
            )


@rule(5, fix=without_empty_lists)
def check_tool_lists_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    if not is_openai(request.body):
        return
    if request.body.get("tools") == []:
        yield make_finding(("tools",), "`tools` is an empty list.")
    for turn in request.messages:
        if turn.wire.get("tool_calls") == []:
            yield make_finding(
                (*turn.path, "tool_calls"),
                "`tool_calls` is an empty list.",
                where=f"{vendor_path(turn.path)}.tool_calls",
            )


rule(6)(PAIRING.unanswered)
rule(7)(PAIRING.orphans)


@rule(8)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    doubled = {finding.path for finding in PAIRING.duplicates(request)}
    latest: dict[str, RequestMessage] = {}
    for turn, result in iter_parts(request, "result"):
        first = latest.get(result.id, turn)
        latest[result.id] = turn
        if result.path in doubled:
            yield part_finding(turn, result, first=vendor_path(first.path))


rule(9)(duplicate_ids(facts=lambda turn, call: {"where": vendor_path(turn.path)}))


@rule(10, fix=with_assistant_calls)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if turn.role != "assistant" and has_calls(turn.wire):
            what = "tool calls" if turn.wire.get("tool_calls") else "a function call"
            yield make_finding(turn.path, what=what, role=turn.role)


@rule(11)
def check_call_id_length(request: ParsedRequest) -> Iterable[RuleFinding]:
    for call in _calls(request):
        length = len(call.id)
        if not 1 <= length <= MAX_ID_LENGTH:
            what = TOO_LONG_TEXT.format(most=MAX_ID_LENGTH, length=length) if length else TOO_SHORT_TEXT
            message = f"the id {call.id!r} must have 1 to {MAX_ID_LENGTH} characters, got {length}."
            yield make_finding(call.path, message, where=f"{vendor_path(call.path)}.id", what=what)


@rule(12, fix=with_valid_tool_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    if not is_openai(request.body):
        return
    named = [(tool, tool.id) for tool in request.tools] + [(call, call.name) for call in _calls(request)]
    for piece, name in named:
        if not TOOL_NAME.fullmatch(name):
            message = f"invalid tool name {name!r}: expected 1 to 64 letters, digits, `_` and `-`."
            where = f"{vendor_path(piece.path)}.{'custom' if 'custom' in piece.wire else 'function'}.name"
            yield make_finding(piece.path, message, where=where, pattern="^[a-zA-Z0-9_-]+$")


@rule(13, fix=with_valid_message_names)
def check_message_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages if is_openai(request.body) else ():
        name = cast(str | None, turn.wire.get("name"))
        if turn.role in ("tool", "function") or name is None:
            continue
        if not name or INVALID_NAME_CHARACTERS.search(name):
            message = f"invalid name {name!r}: it is empty, or contains characters that are not allowed."
            yield make_finding(turn.path, message, where=f"{vendor_path(turn.path)}.name", pattern=r"^[^\s<|\\/>]+$")


rule(14, fix=with_unique_tools)(duplicate_tools)
rule(15, fix=limit_list("tools", MAX_TOOLS))(too_many("tools", MAX_TOOLS))


@rule(16, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    known = [tool_name(tool) for tool in list_or_empty(request.body.get("tools"))]
    for name in _chosen_tool_names(request.body.get("tool_choice")):
        if known and name not in known:
            yield make_finding(("tool_choice",), name=name)


@rule(17, fix=without_unusable_settings)
def check_choice_has_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    for setting, needed in REQUIRED_FIELDS.items() if is_openai(request.body) else ():
        if request.body.get(setting) not in (None, "none") and not request.body.get(needed):
            yield make_finding((setting,), setting=setting, needed=needed)


rule(18, fix=limit_list("stop", MAX_STOPS))(too_many("stop", MAX_STOPS))


@rule(19, fix=with_user_media)
def check_media_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, piece in iter_parts(request, "media") if is_openai(request.body) else ():
        if turn.role != "user":
            yield part_finding(turn, piece, where=vendor_path(turn.path), kind=piece.wire["type"])


@rule(20, fix=without_damaged_reasoning)
def check_reasoning_intact(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        for index in damaged_details(turn.wire):
            yield make_finding((*turn.path, "reasoning_details", index))


@rule(21, fix=with_completion_limit)
def check_token_limit_name(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.facts.reasoning and request.body.get("max_tokens") is not None:
        yield make_finding(("max_tokens",), "reasoning models do not accept `max_tokens`.")


rule(22, fix=remove_settings(*SAMPLING_SETTINGS))(sampling_settings(lambda body: body.get("reasoning_effort")))


@rule(23, fix=set_setting("reasoning_effort", "none"))
def check_tools_and_effort(request: ParsedRequest) -> Iterable[RuleFinding]:
    effort: JSON = request.body.get("reasoning_effort")
    asked = effort not in (None, "none") and "none" in request.facts.efforts
    if asked and request.body.get("tools") and not request.facts.tools_in_chat:
        message = "this model accepts tools here only with the effort `none`."
        yield make_finding(("reasoning_effort",), message, model=request.body["model"])


@rule(24, fix=with_images_described)
def check_image_support(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.facts.media != ():
        return
    for _, piece in iter_parts(request, "media"):
        if piece.wire["type"] == IMAGE_TYPE:
            yield make_finding(piece.path, "this model accepts only text.")


@rule(25, fix=without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages if is_openai(request.body) else ():
        yield from unknown_field_findings(turn.wire, FIELDS, turn.path)


@rule(26, fix=with_short_cache_key)
def check_cache_key(request: ParsedRequest) -> Iterable[RuleFinding]:
    return long_cache_keys(request) if is_openai(request.body) else ()


@rule(27, fix=without_unknown_cache_options(CACHE_LIFETIMES))
def check_cache_options(request: ParsedRequest) -> Iterable[RuleFinding]:
    return unknown_cache_options(CACHE_LIFETIMES)(request) if is_openai(request.body) else ()


def find_strict_schemas(body: JSONObject) -> Iterator[StrictSchema]:
    """Yield the strict schemas of functions, and the one of the answer."""
    for index, tool in enumerate(as_objects(body.get("tools"))):
        function = object_or_empty(tool.get("function"))
        if function.get("strict") is True:
            path = ("tools", index, "function", "parameters")
            yield StrictSchema(path, f"function {str(function.get('name'))!r}", function.get("parameters"))
    described = object_or_empty(object_or_empty(body.get("response_format")).get("json_schema"))
    if described.get("strict") is True:
        path = ("response_format", "json_schema", "schema")
        yield StrictSchema(path, f"response_format {str(described.get('name'))!r}", described.get("schema"))


@rule(28, fix=lambda body: with_lenient_schemas(body, find_strict_schemas))
def check_strict_schemas(request: ParsedRequest) -> Iterable[RuleFinding]:
    return open_strict_schemas(find_strict_schemas)(request) if is_openai(request.body) else ()


def _calls(request: ParsedRequest) -> Iterator[RequestPart]:
    return iter_calls(request) if is_openai(request.body) else iter(())


def _chosen_tool_names(choice: JSON) -> Iterator[str]:
    """Return the names of the tools that `tool_choice` allows."""
    if not isinstance(choice, dict):
        return
    wire = cast(JSONObject, choice)
    allowed: JSON = wire.get("allowed_tools")
    tools: JSON = cast(JSONObject, allowed).get("tools") if isinstance(allowed, dict) else None
    for each in cast(list[JSON], tools) if isinstance(tools, list) else [wire]:
        if (named := find_function(each)) is not None:
            yield named["name"]

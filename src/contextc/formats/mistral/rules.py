"""Rules of Mistral's chat completions that can be checked without calling the API.

Mistral's validators differ between generations of its models. What the newest accept is not reported here, with one
exception: ids must have nine letters. The newest models accept other ids, but most served models do not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    field_names,
    first_field,
    format_dotted_path,
    make_finding,
    results_in_role,
    schema_error,
)
from contextc.formats.mistral.codec import ALLOWED_CHUNKS, CHUNKS
from contextc.formats.openai_chat import rules as chat
from contextc.formats.openai_chat.rules import CAMEL_CASE_NAMES, find_function, with_assistant_calls
from contextc.formats.request_settings import is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    PairingChecks,
    change_messages,
    duplicate_ids,
    insert_first_message,
    invalid_tool_names,
    iter_calls,
    iter_parts,
    malformed_values,
    no_messages,
    part_finding,
    parts_where,
    remove_settings,
    settings_among,
    text_block,
    text_message,
    without_fields,
    without_nulls,
    without_wrong_types,
)

MISSING_TEXT = "{where}: Field required"
WRONG_TYPE_TEXT = "{where}: Input should be a valid {kind}"
WRONG_TAG_TEXT = "{where}: Input tag '{value}' found using '{field}' does not match any of the expected tags: {known}"
EXTRA_TEXT = "{where}: Extra inputs are not permitted"
UNEXPECTED_ID_TEXT = "Unexpected tool call id {id} in tool results"
UNEXPECTED_ROLE_TEXT = "Unexpected role '{role}' after role '{before}'"

# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# Parse Mistral's requests for the rules: required and optional fields of messages and chunks, and their parts.
#
# Mistral rejects every field it does not define. The fields of messages, chunks, calls and tools are all listed here.
# So `unknown_field_names` finds the others, and decoding drops them.


CONTENT_FIELDS: FieldTypes = {"content": (str, list), "tool_calls?": list}
ROLES: dict[str, FieldTypes] = {
    "system": CONTENT_FIELDS,
    "user": CONTENT_FIELDS,
    "assistant": {"content?": (str, list), "tool_calls?": list, "prefix?": bool},
    "tool": {"content": (str, list), "tool_call_id": str, "name?": str},
}
THINKING_CHUNKS: dict[str, FieldTypes] = {
    "text": {"text": str},
    "reference": {"reference_ids": list},
    "tool_reference": {"tool": str, "title": str, "url?": str, "favicon?": str, "description?": str},
}
IMAGE_URL: FieldTypes = {"url": str, "detail?": str}
CALL: FieldTypes = {"id?": str, "type?": str, "index?": int, "function": dict}
FUNCTION: FieldTypes = {"name": str, "arguments": (str, dict)}
TOOL: FieldTypes = {"type?": str, "function": dict}
FUNCTION_DEFINITION: FieldTypes = {"name": str, "parameters": dict, "description?": str, "strict?": bool}
OTHER_TOOLS = ("connector", "document_library", "image_generation")
KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "reference": "other",
    "resource": "other",
    "resource_link": "other",
}
"""Chunk types that are not media."""
TYPE_NAMES: dict[type, str] = {str: "string", list: "list", dict: "dictionary", bool: "boolean", int: "integer"}
ROLE_ALIASES = {"developer": "system", "function": "user"}


def vendor_path(path: JSONPath) -> str:
    """Return a path as Mistral's errors write it: `body.messages.2.content`."""
    return f"body.{format_dotted_path(path)}".removesuffix(".")


def unknown_field_names(wire: JSONObject, fields: FieldTypes, *more: str) -> Iterator[str]:
    """Yield the field names that are neither in `fields` nor in `more`."""
    known = field_names(fields, *more)
    return (name for name in wire if name not in known)


class _Reader(RequestReader):
    messages_required = True
    part_kinds, default_kind = KINDS, "media"

    def message_error(self, wire: JSON) -> Fault | None:
        if wrong := _error(wire, {"role": str}):
            return wrong
        if (role := wire["role"]) not in ROLES:
            message = f"invalid role {role!r}: expected system, user, assistant or tool."
            return Fault("role", message, detail=_wrong_tag_message("role", role, ROLES))
        if role != "tool" and wire.get("tool_call_id") is not None:
            return Fault("tool_call_id", "only a tool message may have a `tool_call_id`.", detail=EXTRA_TEXT)
        if role == "tool" and wire.get("tool_calls"):
            return Fault("tool_calls", "a tool message cannot contain tool calls.", detail=EXTRA_TEXT)
        if camel := first_field(wire, CAMEL_CASE_NAMES):
            return Fault(camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", detail=EXTRA_TEXT)
        if wrong := _error(wire, ROLES[role]):
            return wrong
        if (index := chat.find_unnamed_call(wire)) is None:
            return None
        message = f"`tool_calls[{index}]` does not name the tool to call."
        return Fault(f"tool_calls.{index}.function.name", message, detail=MISSING_TEXT)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        if wire["role"] == "tool":
            yield RequestPart(kind="result", path=path, wire=wire, id=wire["tool_call_id"])
        yield from self.blocks(wire.get("content"), (*path, "content"))
        for index, call in enumerate(wire.get("tool_calls") or []):
            here = (*path, "tool_calls", index)
            if wrong := _error(call, CALL) or _error(call["function"], FUNCTION, "function."):
                self.refuse(here, wrong)
            else:
                name = call["function"]["name"]
                yield RequestPart(kind="call", path=here, wire=call, id=call.get("id") or "", name=name)

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        if wrong := _chunk_error(block, CHUNKS):
            return wrong
        if is_object(block.get("image_url")) and (wrong := _error(block["image_url"], IMAGE_URL, "image_url.")):
            return wrong
        thoughts = enumerate(block["thinking"] if block["type"] == "thinking" else ())
        errors = (_chunk_error(each, THINKING_CHUNKS, f"thinking.{index}.") for index, each in thoughts)
        return next(filter(None, errors), None)

    def tool_error(self, tool: JSON) -> Fault | None:
        if _runs_at_provider(object_or_empty(tool)):
            return None
        return _error(tool, TOOL) or _error(tool["function"], FUNCTION_DEFINITION, "function.")

    def tool_name(self, tool: JSONObject) -> str | None:
        return None if _runs_at_provider(tool) else tool["function"]["name"]

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        where = vendor_path((*path, *fault.field.removesuffix(".").split(".")) if fault.field else path)
        if fault.problem is Problem.TYPE:
            return WRONG_TYPE_TEXT.format(where=where, kind=TYPE_NAMES[fault.expected[0]])
        return (fault.detail or MISSING_TEXT).format(where=where)


parse_request = _Reader.parse


def _runs_at_provider(tool: JSONObject) -> bool:
    return tool.get("type") in OTHER_TOOLS and "function" not in tool


def _chunk_error(chunk: JSON, kinds: Mapping[str, FieldTypes], before: str = "") -> Fault | None:
    """Return the fault of a chunk if its type is unknown or a field of that type is missing."""
    if wrong := _error(chunk, TYPED, before):
        return wrong
    if (kind := chunk["type"]) in kinds:
        return _error(chunk, kinds[kind], before)
    return Fault(f"{before}type", f"unknown chunk type {kind!r}.", detail=_wrong_tag_message("type", kind, kinds))


def _error(value: object, fields: FieldTypes, before: str = "") -> Fault | None:
    """Return the fault of a value that is not an object with these fields."""
    wrong = schema_error(value, fields)
    return wrong._replace(field=before + wrong.field) if wrong else None


def _wrong_tag_message(field: str, value: str, known: Iterable[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in known)
    shown = value.replace("{", "{{").replace("}", "}}")
    return WRONG_TAG_TEXT.format(where="{where}", value=shown, field=field, known=listed)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, chunk, call or tool, as OpenAI and others write them."""
    shaped: JSON = chat.coerce_value(value, path)
    if not is_object(shaped):
        return shaped
    match path:
        case ("messages", _):
            return _reshaped_message(shaped)
        case ("messages", _, "tool_calls", _):
            return _reshaped_call(shaped)
        case ("messages", _, *_):
            if shaped.get("type") == "thinking" and isinstance(shaped.get("thinking"), str):
                return {**shaped, "thinking": [text_block(shaped["thinking"])]}
            if shaped.get("type") == "refusal" and isinstance(shaped.get("refusal"), str):
                return text_block(shaped["refusal"])
            return without_nulls(shaped)
        case ("tools", _) if is_object(shaped.get("function")):
            function = without_wrong_types(shaped["function"], {"description": str, "strict": bool})
            return {**shaped, "function": {**function, "parameters": object_or_empty(function.get("parameters"))}}
        case _:
            return shaped


def _reshaped_message(wire: JSONObject) -> JSONObject:
    role = ROLE_ALIASES.get(str(wire.get("role")), wire.get("role"))
    if not isinstance(role, str) or role not in ROLES or "content" not in wire:
        return wire
    calls = [
        *list_or_empty(wire.get("tool_calls")),
        *([wire["function_call"]] if find_function(wire.get("function_call")) else []),
    ]
    kept = {**without_fields(wire, *unknown_field_names(wire, ROLES[role], "role")), "role": role}
    if calls:
        kept["tool_calls"] = [
            _reshaped_call(chat.coerce_value(call, ("messages", 0, "tool_calls", 0))) for call in calls
        ]
    kept = without_wrong_types(kept, {"prefix": bool, "name": str})
    refusal: JSON = wire.get("refusal")
    if isinstance(refusal, str) and refusal and not kept.get("content"):
        kept["content"] = refusal
    return kept


def _reshaped_call(call: JSONObject) -> JSONObject:
    """Return a function call, also for a call of a custom tool, whose input is a text."""
    custom: JSON = call.get("custom")
    function = {"name": custom["name"], "arguments": custom["input"]} if custom else call.get("function")
    kept = {name: each for name, each in call.items() if name in ("id", "type") and isinstance(each, str)}
    return {**kept, "type": "function", "function": function}


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Repairs that decoding and encoding does not make: settings and fields that Mistral does not define.


RENAMED_SETTINGS = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}
OPENAI_SETTINGS = (
    *RENAMED_SETTINGS,
    *("audio", "function_call", "functions", "logit_bias", "modalities", "prompt_cache_options", "safety_identifier"),
    *("store", "stream_options", "user", "verbosity", "web_search_options"),
)
"""Settings of Chat Completions that Mistral does not define."""
OTHER_API_SETTINGS = (
    *("reasoning", "include_reasoning", "thinking", "think", "system", "instructions", "input", "include", "text"),
    *("max_output_tokens", "stop_sequences", "previous_response_id", "truncation", "cache_control", "output_config"),
    *("options", "format", "keep_alive"),
)
"""Settings of other APIs. New Mistral settings are in no list here, so only these are known to be rejected."""
TOOL_CHOICES = ("auto", "none", "any", "required")
RESPONSE_FORMATS = ("text", "json_object", "json_schema")
FUNCTION_TYPE = "function"


def without_unknown_chunk_fields(body: JSONObject) -> JSONObject:
    """Remove fields of chunks that Mistral does not define. Encoding already removes those of messages."""

    def known(chunk: JSONObject) -> JSONObject:
        others = (
            set(unknown_field_names(chunk, CHUNKS.get(str(chunk.get("type")), {}), "type"))
            if "type" in chunk
            else set[str]()
        )
        return without_fields(chunk, *others)

    def with_known(message: JSONObject) -> JSONObject:
        content: JSON = message.get("content")
        if not isinstance(content, list):
            return message
        chunks = cast(list[JSON], content)
        return {**message, "content": [known(cast(JSONObject, c)) if isinstance(c, dict) else c for c in chunks]}

    return change_messages(body, with_known)


def without_openai_settings(body: JSONObject) -> JSONObject:
    """Rename OpenAI settings to Mistral's names, and remove those without an equivalent."""
    said = {new: body[old] for old, new in RENAMED_SETTINGS.items() if body.get(old) is not None}
    return {**said, **without_fields(body, *OPENAI_SETTINGS)}


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


ID = re.compile(r"[a-zA-Z0-9]{9}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHUNK_CLASS_NAMES = {"image_url": "ImageURLChunk", "input_audio": "AudioChunk", "thinking": "ThinkChunk"}

RULES = RuleSet(
    "MIS",
    "mistral",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    vendor="mistral",
    format_path=vendor_path,
)
rule = RULES.register
PAIRING = PairingChecks.within(results_in_role("tool"))


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())


@rule(3)
def check_assistant_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if turn.role == "assistant" and not turn.wire.get("content") and not turn.wire.get("tool_calls"):
            yield make_finding(turn.path, "this assistant message has neither content nor tool calls.")


@rule(4, fix=without_unknown_chunk_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        yield from _unknown_field_findings(turn.path, turn.wire, ROLES[turn.role], "role")
        for piece in turn.parts:
            if piece.kind == "call":
                yield from _unknown_field_findings(piece.path, piece.wire, CALL)
                yield from _unknown_field_findings((*piece.path, "function"), piece.wire["function"], FUNCTION)
            elif piece.kind != "result" and piece.wire:
                yield from _unknown_field_findings(piece.path, piece.wire, CHUNKS[piece.wire["type"]], "type")
    for tool in request.tools:
        yield from _unknown_field_findings(tool.path, tool.wire, TOOL)
        yield from _unknown_field_findings((*tool.path, "function"), tool.wire["function"], FUNCTION_DEFINITION)


RULES.unknown_fields = check_known_fields


rule(5, fix=without_openai_settings)(settings_among(OPENAI_SETTINGS))
rule(6)(PAIRING.unanswered)


@rule(7)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    roles = {turn.path: before.role for before, turn in pairwise(request.messages)}
    for turn, result in PAIRING.match(request).orphan_results:
        what = UNEXPECTED_ID_TEXT.format(id=result.id)
        if (before := roles.get(turn.path)) in ("system", "user"):
            what = UNEXPECTED_ROLE_TEXT.format(role="tool", before=before)
        yield part_finding(turn, result, what=what)


rule(8)(PAIRING.duplicates)
rule(9)(duplicate_ids())


@rule(10, fix=with_assistant_calls)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if turn.role != "assistant" and turn.wire.get("tool_calls"):
            yield make_finding(turn.path, role=turn.role, where=vendor_path((*turn.path, "tool_calls")))


rule(11)(parts_where(lambda call: not ID.fullmatch(call.id), "call"))


@rule(12)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    named = [(turn.path, turn.wire.get("name")) for turn in request.messages if turn.role == "tool"]
    yield from invalid_tool_names(TOOL_NAME)(request)
    yield from (make_finding(path, name=name) for path, name in named if name and not TOOL_NAME.fullmatch(name))


@rule(13)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    for before, turn in pairwise(request.messages):
        if turn.role == "system" and before.role in ("assistant", "tool"):
            message = f"a system message cannot follow a message of role {before.role}."
            yield make_finding(turn.path, message, role=turn.role, before=before.role)


@rule(14)
def check_first_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    turns = request.messages
    if turns and turns[0].role == "assistant" and (len(turns) == 1 or turns[0].parts_of("call")):
        yield make_finding(turns[0].path, "the conversation begins with the assistant.")


@rule(15)
def check_last_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    last = request.messages[-1] if len(request.messages) > 1 else None
    if last is not None and last.role == "assistant" and not last.wire.get("prefix"):
        yield make_finding(last.path, "the last message is the assistant's and does not have `prefix`.", role=last.role)


@rule(16)
def check_prefix_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages[:-1]:
        if turn.role == "assistant" and turn.wire.get("prefix"):
            yield make_finding(turn.path, "this message has `prefix` but is not the last.")


@rule(17)
def check_chunk_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, piece in iter_parts(request):
        kind: JSON = piece.wire.get("type") if piece.kind not in ("call", "result") else None
        if kind is not None and kind not in ALLOWED_CHUNKS[turn.role]:
            message = f"a message of role {turn.role} cannot contain a chunk of type `{kind}`."
            yield make_finding(piece.path, message, role=turn.role, chunk=CHUNK_CLASS_NAMES.get(kind, kind))


@rule(18, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    value: JSON = request.body.get("tool_choice")
    if not (
        value is None
        or value in TOOL_CHOICES
        or isinstance(object_or_empty(object_or_empty(value).get("function")).get("name"), str)
    ):
        message = f"invalid `tool_choice` {value!r}."
        yield make_finding(
            ("tool_choice",), message, where=vendor_path(("tool_choice",)), known=_pydantic_choices(TOOL_CHOICES)
        )


rule(19, fix=remove_settings(*OTHER_API_SETTINGS))(settings_among(OTHER_API_SETTINGS))


@rule(20)
def check_function_type(request: ParsedRequest) -> Iterable[RuleFinding]:
    for each in (*iter_calls(request), *request.tools):
        kind: JSON = each.wire.get("type", FUNCTION_TYPE)
        if kind != FUNCTION_TYPE:
            message = f"`type` must be `function`, got {kind!r}."
            yield make_finding(
                each.path, message, where=vendor_path((*each.path, "type")), known=_pydantic_choices([FUNCTION_TYPE])
            )


@rule(21, fix=remove_settings("response_format"))
def check_response_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    value: JSON = request.body.get("response_format")
    if not (
        value is None
        or (isinstance(value, dict) and object_or_empty(cast(object, value)).get("type", "text") in RESPONSE_FORMATS)
    ):
        where = vendor_path(("response_format", "type"))
        message = f"invalid `response_format` {value!r}."
        yield make_finding(("response_format",), message, where=where, known=_pydantic_choices(RESPONSE_FORMATS))


def _pydantic_choices(words: Sequence[str]) -> str:
    """Return the values as pydantic lists the allowed ones."""
    *others, last = [f"'{word}'" for word in words]
    return f"{', '.join(others)} or {last}" if others else last


def _unknown_field_findings(path: JSONPath, wire: JSONObject, fields: FieldTypes, *more: str) -> Iterator[RuleFinding]:
    for name in unknown_field_names(wire, fields, *more):
        yield make_finding(
            path, f"`{name}` is not a field that Mistral defines.", field=name, where=vendor_path((*path, name))
        )

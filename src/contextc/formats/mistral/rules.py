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
from contextc.formats.mistral import error_texts
from contextc.formats.mistral.codec import ALLOWED_CHUNKS, CHUNKS
from contextc.formats.openai_chat import rules as chat
from contextc.formats.openai_chat.rules import CAMEL_CASE_NAMES, find_function, with_assistant_calls
from contextc.formats.request_settings import is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    change_messages,
    find_duplicate_ids,
    find_empty_request,
    insert_first_message,
    iter_calls,
    iter_parts,
    remove_settings,
    text_block,
    text_message,
    without_fields,
    without_nulls,
    without_wrong_types,
)

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
            return Fault("tool_call_id", "only a tool message may have a `tool_call_id`.", detail=error_texts.EXTRA)
        if role == "tool" and wire.get("tool_calls"):
            return Fault("tool_calls", "a tool message cannot contain tool calls.", detail=error_texts.EXTRA)
        if camel := first_field(wire, CAMEL_CASE_NAMES):
            return Fault(camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", detail=error_texts.EXTRA)
        if wrong := _error(wire, ROLES[role]):
            return wrong
        if (index := chat.find_unnamed_call(wire)) is None:
            return None
        message = f"`tool_calls[{index}]` does not name the tool to call."
        return Fault(f"tool_calls.{index}.function.name", message, detail=error_texts.MISSING)

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
            return error_texts.WRONG_TYPE.format(where=where, kind=TYPE_NAMES[fault.expected[0]])
        return (fault.detail or error_texts.MISSING).format(where=where)


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
    return error_texts.WRONG_TAG.format(where="{where}", value=shown, field=field, known=listed)


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
            return _reshaped_chunk(shaped)
        case ("tools", _) if is_object(shaped.get("function")):
            return _reshaped_tool(shaped)
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


def _reshaped_chunk(wire: JSONObject) -> JSONObject:
    if wire.get("type") == "thinking" and isinstance(wire.get("thinking"), str):
        return {**wire, "thinking": [text_block(wire["thinking"])]}
    if wire.get("type") == "refusal" and isinstance(wire.get("refusal"), str):
        return text_block(wire["refusal"])
    return without_nulls(wire)


def _reshaped_tool(wire: JSONObject) -> JSONObject:
    function = without_wrong_types(wire["function"], {"description": str, "strict": bool})
    return {**wire, "function": {**function, "parameters": object_or_empty(function.get("parameters"))}}


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


def is_valid_tool_choice(value: JSON) -> bool:
    """Return True if `tool_choice` may have this value."""
    return (
        value is None
        or value in TOOL_CHOICES
        or isinstance(object_or_empty(object_or_empty(value).get("function")).get("name"), str)
    )


def is_valid_response_format(value: JSON) -> bool:
    """Return True if `response_format` may have this value."""
    return value is None or (
        isinstance(value, dict) and object_or_empty(cast(object, value)).get("type", "text") in RESPONSE_FORMATS
    )


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


ID = re.compile(r"[a-zA-Z0-9]{9}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHUNK_CLASS_NAMES = {"image_url": "ImageURLChunk", "input_audio": "AudioChunk", "thinking": "ThinkChunk"}
results_directly_after = results_in_role("tool")

RULES = RuleSet(
    "MIS",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    vendor="mistral",
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, chunk, call and tool must have the fields its type requires.

    The roles are `system`, `user`, `assistant` and `tool`. Only a tool message has a `tool_call_id`. Audio and files
    are written differently from OpenAI's, and a tool must have `parameters`.

    Example: [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format":
        "wav"}}]}]
    Repair: a value whose meaning is clear is rewritten in the correct form; any other becomes text, and a malformed
        tool is removed.
    """
    return request.malformed


@rule(2, error_texts.NO_MESSAGES, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must contain at least one message.

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    return find_empty_request(request)


@rule(3, error_texts.EMPTY_REPLY)
def check_assistant_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    """An assistant message must have `content`, unless it has tool calls.

    A turn that was cancelled before its first token leaves an empty message. An empty text does not count as content.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content":
        "go on"}]
    Repair: the message is removed.
    """
    for turn in request.messages:
        if turn.role == "assistant" and not turn.wire.get("content") and not turn.wire.get("tool_calls"):
            yield make_finding(turn.path, "this assistant message has neither content nor tool calls.")


@rule(4, error_texts.EXTRA, fix=without_unknown_chunk_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Messages, chunks, calls and tools must have only the fields that Mistral defines.

    Fields that OpenAI and others add to a message are rejected: `name`, `refusal`, `reasoning_content`,
    `cache_control`.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is removed.
    """
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


@rule(5, error_texts.EXTRA, fix=without_openai_settings)
def check_no_openai_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Settings that only OpenAI has must not be sent.

    Examples are `max_completion_tokens` and `stream_options`. Mistral reports the usage of a stream without the latter.

    Example: {"max_completion_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the output limit and the seed are renamed to Mistral's names; other settings are removed.
    """
    for setting in OPENAI_SETTINGS:
        if setting in request.body:
            yield make_finding(
                (setting,), f"`{setting}` is an OpenAI setting, which Mistral rejects.", where=vendor_path((setting,))
            )


@rule(6, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call must be answered by a tool message before any other message.

    A crash, a cancelled turn or a truncated history leaves a call without its result. Every later request then fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in request.match_results(results_directly_after).unanswered_calls:
        yield make_finding(call.path, f"tool call {call.id} has no result in the tool messages after it.")


@rule(7, error_texts.MALFORMED)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool message must answer a call in the assistant message directly before the tool messages.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    roles = {turn.path: before.role for before, turn in pairwise(request.messages)}
    for turn, result in request.match_results(results_directly_after).orphan_results:
        what = error_texts.UNEXPECTED_ID.format(id=result.id)
        if (before := roles.get(turn.path)) in ("system", "user"):
            what = error_texts.UNEXPECTED_ROLE.format(role="tool", before=before)
        yield make_finding(
            result.path, f"tool call {result.id} of this result is not in the preceding assistant message.", what=what
        )


@rule(8, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "2"}]
    Repair: the first result is kept; a different one becomes text.
    """
    for _, result in request.match_results(results_directly_after).duplicate_results:
        yield make_finding(result.path, f"tool call {result.id} already has a result.", id=result.id)


@rule(9, error_texts.DUPLICATE_CALL_ID)
def check_distinct_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool calls in one message must have distinct ids.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function":
        {"name": "look", "arguments": "{}"}}, {"id": "a1b2c3d4e", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: the second call and its result get a new id.
    """
    for _, call in find_duplicate_ids(request.messages):
        yield make_finding(call.path, f"another tool call in this message already has the id {call.id}.", id=call.id)


@rule(10, error_texts.EXTRA, fix=with_assistant_calls)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the assistant may call tools.

    Example: [{"role": "system", "content": "hi"}, {"role": "user", "content": "hi", "tool_calls": [{"id":
        "a1b2c3d4e", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: the role of the message becomes `assistant`.
    """
    for turn in request.messages:
        if turn.role != "assistant" and turn.wire.get("tool_calls"):
            where = vendor_path((*turn.path, "tool_calls"))
            yield make_finding(turn.path, f"a {turn.role} message cannot contain tool calls.", where=where)


@rule(11, error_texts.ID_FORM)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a tool call must consist of exactly nine letters and digits.

    Ids of every other provider are longer, or contain other characters.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "call_1", "function":
        {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]
    Repair: the id is replaced by nine letters, on the call and on its result.
    """
    for call in iter_calls(request):
        if not ID.fullmatch(call.id):
            yield make_finding(
                call.path, f"the id {call.id!r} must consist of exactly nine letters and digits.", id=call.id
            )


@rule(12, error_texts.NAME_FORM)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool name must consist of 1 to 64 letters, digits, `_` and `-`, in tools and in calls.

    Example: {"tools": [{"type": "function", "function": {"name": "files.read", "parameters": {}}}], "messages":
        [{"role": "user", "content": "hi"}]}
    Repair: the name is encoded with the allowed characters, wherever it occurs.
    """
    named = [(tool.path, tool.id) for tool in request.tools] + [(call.path, call.name) for call in iter_calls(request)]
    named += [
        (turn.path, turn.wire["name"]) for turn in request.messages if turn.role == "tool" and turn.wire.get("name")
    ]
    for path, name in named:
        if not TOOL_NAME.fullmatch(name):
            yield make_finding(
                path, f"invalid tool name {name!r}: expected 1 to 64 letters, digits, `_` and `-`.", name=name
            )


@rule(13, error_texts.UNEXPECTED_ROLE)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A system message must come first, or follow system or user messages.

    After a reply or a tool result it is rejected.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}, {"role": "user", "content": "go on"}]
    Repair: it becomes user text, tagged as a system reminder.
    """
    for before, turn in pairwise(request.messages):
        if turn.role == "system" and before.role in ("assistant", "tool"):
            message = f"a system message cannot follow a message of role {before.role}."
            yield make_finding(turn.path, message, role=turn.role, before=before.role)


@rule(14, error_texts.WRONG_FIRST_ROLE)
def check_first_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A conversation must not begin with tool calls, nor consist of a single assistant message.

    A truncated history can begin this way.

    Example: [{"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "function": {"name": "look", "arguments":
        "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "1"}]
    Repair: a user message stating this is inserted before it.
    """
    turns = request.messages
    if turns and turns[0].role == "assistant" and (len(turns) == 1 or turns[0].parts_of("call")):
        yield make_finding(turns[0].path, "the conversation begins with the assistant.")


@rule(15, error_texts.WRONG_LAST_ROLE)
def check_last_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A last message from the assistant must have `prefix`: the model continues it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    Repair: `prefix` is set.
    """
    last = request.messages[-1] if len(request.messages) > 1 else None
    if last is not None and last.role == "assistant" and not last.wire.get("prefix"):
        yield make_finding(last.path, "the last message is the assistant's and does not have `prefix`.", role=last.role)


@rule(16, error_texts.PREFIX_NOT_LAST)
def check_prefix_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the last message may have `prefix`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello", "prefix": true}, {"role":
        "user", "content": "go on"}]
    Repair: `prefix` is removed.
    """
    for turn in request.messages[:-1]:
        if turn.role == "assistant" and turn.wire.get("prefix"):
            yield make_finding(turn.path, "this message has `prefix` but is not the last.")


@rule(17, error_texts.MISPLACED)
def check_chunk_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the assistant may have thoughts, it may not have images or audio, and system messages hold text.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "image_url", "image_url":
        "https://example.com/a.png"}]}, {"role": "user", "content": "go on"}]
    Repair: a line of text describes what was there; thoughts in other messages become text.
    """
    for turn, piece in iter_parts(request):
        kind: JSON = piece.wire.get("type") if piece.kind not in ("call", "result") else None
        if kind is not None and kind not in ALLOWED_CHUNKS[turn.role]:
            message = f"a message of role {turn.role} cannot contain a chunk of type `{kind}`."
            yield make_finding(piece.path, message, role=turn.role, chunk=CHUNK_CLASS_NAMES.get(kind, kind))


@rule(18, error_texts.ONE_OF, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`tool_choice` must be auto, none, any or required, or name a function.

    Example: {"tool_choice": "sometimes", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("tool_choice")
    if not is_valid_tool_choice(value):
        message = f"invalid `tool_choice` {value!r}."
        yield make_finding(
            ("tool_choice",), message, where=vendor_path(("tool_choice",)), known=_pydantic_choices(TOOL_CHOICES)
        )


@rule(19, error_texts.EXTRA, fix=remove_settings(*OTHER_API_SETTINGS))
def check_no_foreign_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Settings of other APIs must not be sent.

    This covers settings of Anthropic, Ollama, OpenAI's Responses API and gateways: `thinking`, `options`, `reasoning`.

    Example: {"reasoning": {"effort": "low"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    for setting in OTHER_API_SETTINGS:
        if setting in request.body:
            yield make_finding((setting,), f"`{setting}` is not a Mistral setting.", where=vendor_path((setting,)))


@rule(20, error_texts.ONE_OF)
def check_function_type(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The `type` of a tool call, and of a tool that has a `function`, must be `function`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a1b2c3d4e", "type":
        "custom", "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a1b2c3d4e",
        "content": "1"}]
    Repair: the type becomes `function`.
    """
    for each in (*iter_calls(request), *request.tools):
        kind: JSON = each.wire.get("type", FUNCTION_TYPE)
        if kind != FUNCTION_TYPE:
            message = f"`type` must be `function`, got {kind!r}."
            yield make_finding(
                each.path, message, where=vendor_path((*each.path, "type")), known=_pydantic_choices([FUNCTION_TYPE])
            )


@rule(21, error_texts.ONE_OF, fix=remove_settings("response_format"))
def check_response_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`response_format` must have the type text, json_object or json_schema.

    Example: {"response_format": {"type": "xml"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    value: JSON = request.body.get("response_format")
    if not is_valid_response_format(value):
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

"""The lint rules of Anthropic's Messages API: the reader of requests for them, the rules, and their fixes.

Fixes are repairs that decoding and encoding a request do not make: cache breakpoints, settings, tools.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import takewhile
from typing import cast

from contextc._json import JSON, JSONObject, as_objects, encode
from contextc.formats.anthropic.codec import BLOCKS, CHANGE_BLOCKS, SOURCE_TYPES
from contextc.formats.anthropic.request_settings import (
    CLEAR_THINKING_EDIT,
    COMPACT_EDIT,
    DEFAULT_MAX_TOKENS,
    LEAST_COMPACT_AT,
    find_answer_settings,
    without_answer_settings,
)
from contextc.formats.base import tag_system_blocks, text_of
from contextc.formats.lint_engine import (
    ROLES,
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    Problem,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    block_message_error,
    format_dotted_path,
    make_finding,
    nested_error,
    remove_fields,
    results_in_next_message,
    schema_error,
    tagged_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import is_valid_signature
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ROLE_ALIASES,
    PairingChecks,
    ToolChange,
    as_arguments,
    duplicate_ids,
    duplicate_tools,
    find_invalid_tool_changes,
    inner_tool,
    insert_first_message,
    invalid_tool_names,
    keep_messages,
    late_results,
    malformed_values,
    messages_of,
    misplaced_blocks,
    no_messages,
    parts_where,
    remove_settings,
    set_setting,
    text_block,
    text_message,
    tool_schema,
    without_blocks,
    without_fields,
)

MISSING_TEXT = "Field required"
WRONG_TYPE_TEXT = "Input should be a valid {kind}"

RESULT_BLOCKS = ("text", "image", "document", "search_result", "tool_reference", "browser_state")
"""Types of blocks inside a tool result. The last two are not allowed elsewhere."""
MESSAGE_SCHEMAS = {kind: fields for kind, fields in BLOCKS.schemas.items() if kind not in RESULT_BLOCKS[-2:]}
RESULT_SCHEMAS = {kind: BLOCKS.schemas[kind] for kind in RESULT_BLOCKS}
SYSTEM_SCHEMAS = {"text": BLOCKS.schemas["text"]}
SERVER_TOOL_SUFFIXES: dict[str, FieldTypes] = {
    "_tool_use": {"id": str, "name": str, "input": dict},
    "_tool_result": {"tool_use_id": str},
}
"""Suffixes of block types for tools that the API runs itself, with the required fields of such a block."""
MESSAGE_FIELDS = frozenset(("role", "content", "output_config", "clear_at"))
BODY_FIELDS = frozenset(
    (
        *("model", "messages", "system", "max_tokens", "stop_sequences", "stream", "temperature", "top_k", "top_p"),
        *("tools", "tool_choice", "mcp_servers", "container", "thinking", "output_config", "output_format"),
        *("metadata", "service_tier", "speed", "inference_geo", "user_profile_id", "workspace_id", "diagnostics"),
        *("cache_control", "context_management", "compaction", "thread", "fallbacks", "fallback_credit_token"),
        *("anthropic_version", "anthropic_beta"),  # on Vertex and Bedrock, which take no headers for them
    )
)
"""Fields of a request, with those of beta features: anthropic.types.beta.message_create_params."""
TYPES = {str: "string", list: "list", dict: "dictionary", bool: "boolean", int: "integer", float: "number"}
"""Anthropic's names of types."""
ANSWER_SETTINGS = ("stream", "stop_sequences", "metadata", "service_tier", "temperature", "top_p", "top_k", "container")
"""Settings that a request for an answer may have, but a request for a token count may not."""
ID, TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_BREAKPOINTS = 4
CACHE_CONTROL = {"type": ("ephemeral",), "ttl": ("5m", "1h")}
"""Values of the fields of `cache_control`."""
CONTINUE_TEXT = "Go on."


class _Reader(RequestReader):
    messages_error = "messages must be a list."
    tools_error = "tools must be a list, got {given}."
    part_kinds = BLOCKS.part_kinds

    def message_error(self, wire: JSON) -> Fault | None:
        return block_message_error(wire, (str, list))

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        if shapes is None:
            shapes, kind = MESSAGE_SCHEMAS, object_or_empty(block).get("type")
            if isinstance(kind, str) and kind not in shapes:
                suffix = next((end for end in SERVER_TOOL_SUFFIXES if kind.endswith(end)), "")
                shapes = {kind: SERVER_TOOL_SUFFIXES[suffix]} if suffix else shapes
        wrong = tagged_error(block, shapes)
        if wrong or block["type"] not in ("image", "document"):
            return wrong
        if (fields := SOURCE_TYPES.get(str(block["source"].get("type")))) is None:
            return Fault("source.type", "`source` must have a known `type`.")
        return nested_error("source", block["source"], fields)

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        kind = BLOCKS.part_kinds.get(block["type"], "other")
        call_id = {"call": block.get("id"), "result": block.get("tool_use_id")}.get(kind)
        text = block["text"] if kind == "text" else ""
        if kind == "result" and is_list(block.get("content")):
            list(self.blocks(block["content"], (*path, "content"), RESULT_SCHEMAS))
        return RequestPart(kind=kind, path=path, wire=block, id=call_id or "", name=block.get("name") or "", text=text)

    def system(self) -> Iterable[RequestPart]:
        system: JSON = self.body.get("system")
        if system is not None and not isinstance(system, str) and not is_list(system):
            message = "system must be a string or a list of text blocks."
            self.refuse(("system",), Fault("", message, Problem.TYPE, (str, list), system))
        return self.blocks(list_or_empty(system), ("system",), SYSTEM_SCHEMAS)

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, {"name": str, "input_schema": dict} if _is_custom(tool) else TYPED)

    def tool_name(self, tool: JSONObject) -> str | None:
        return tool["name"] if _is_custom(tool) else None

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        if fault.problem is Problem.TYPE:
            return WRONG_TYPE_TEXT.format(kind=TYPES[fault.expected[0]])
        return MISSING_TEXT if fault.problem is Problem.MISSING else fault.message


parse_request = _Reader.parse


def _is_custom(tool: JSON) -> bool:
    return object_or_empty(tool).get("type") in (None, "custom", "function")  # "function" is another provider's


def find_unknown_fields(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and blocks that Anthropic does not have."""
    for message in request.messages:
        yield from unknown_field_findings(message.wire, MESSAGE_FIELDS, message.path)
        for part in message.parts:
            yield from find_unknown_block_fields(part.wire, part.path)


def find_unknown_block_fields(block: JSONObject, path: JSONPath) -> Iterator[RuleFinding]:
    yield from BLOCKS.unknown_fields(block, path)
    for index, inner in enumerate(list_or_empty(block.get("content")) if block.get("type") == "tool_result" else []):
        if is_object(inner):
            yield from find_unknown_block_fields(inner, (*path, "content", index))


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid message or block in a valid shape, such as one with text arguments or a foreign role."""
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not is_object(value):
        return value
    if path[0] == "tools":  # one without a schema, or in another provider's shape
        if (given := inner_tool(value)) is None:
            return value
        made: JSONObject = {"name": given["name"], "input_schema": tool_schema(given, {"type": "object"})}
        return {**made, "description": given["description"]} if isinstance(given.get("description"), str) else made
    if value.get("type") == "tool_result" and not isinstance(value.get("content"), str | list):
        return {**value, "content": encode(value.get("content")).decode()}
    if value.get("type") == "tool_use" and not is_object(value.get("input")):
        return {**value, "input": as_arguments(value.get("input"))}
    if "role" in value and isinstance(value.get("content"), str | list):
        return {**value, "role": ROLE_ALIASES.get(str(value["role"]).lower(), "user")}
    if value.get("role") in ROLES and value.get("content") is None:
        return {**value, "content": []}
    return value


def with_last_user_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [*body["messages"], {"role": "user", "content": CONTINUE_TEXT}]}


def without_empty_messages(body: JSONObject) -> JSONObject:
    """Return the body without messages that are empty except for unknown fields."""
    return keep_messages(body, lambda message: bool(message["content"]))


def is_claude(body: JSONObject) -> bool:
    """Return True if a request is for a model of Anthropic, or does not name its model."""
    return "claude" in str(body.get("model", "claude")).lower()


def without_unknown_fields(body: JSONObject) -> JSONObject:
    return remove_fields(body, find_unknown_fields(parse_request(body)))


def find_unknown_settings(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of a request that Anthropic does not have. Beta flags belong in a header."""
    for finding in unknown_field_findings(request.body, BODY_FIELDS, ()):
        if finding.path == ("betas",):
            message = "`betas` is not a field of the body: send the flags in the header `anthropic-beta`."
            yield make_finding(finding.path, message, name="betas")
        else:
            yield finding


def without_unknown_settings(body: JSONObject) -> JSONObject:
    return remove_fields(body, find_unknown_settings(parse_request(body)))


def continues_thread(body: JSONObject) -> bool:
    """Return True if a request has only what is new in a conversation that the API holds."""
    return object_or_empty(body.get("thread")).get("type") == "continue"


def find_late_lifetimes(body: JSONObject) -> Iterator[tuple[JSONPath, JSONObject]]:
    """Yield the blocks with a cache lifetime of an hour that come after one with five minutes."""
    marked = list(find_breakpoints(body))
    is_short = False
    for path, block in sorted(marked, key=lambda each: each[0] == ()):  # that of the request is for its end
        lasts_long = object_or_empty(block["cache_control"]).get("ttl") == "1h"
        if lasts_long and is_short:
            yield path, block
        is_short = is_short or not lasts_long


def with_ordered_lifetimes(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, block in list(find_late_lifetimes(copy)):
        block["cache_control"]["ttl"] = "5m"
    return copy


def find_unknown_cache_values(body: JSONObject) -> Iterator[tuple[JSONPath, JSONObject, str]]:
    """Yield the fields of cache breakpoints whose value the API does not have: a path, the object, the field."""
    for path, block in find_breakpoints(body):
        control = object_or_empty(block["cache_control"])
        for name, values in CACHE_CONTROL.items():
            if control.get(name) is not None and control[name] not in values:
                yield (*path, "cache_control", name), control, name


def with_known_cache_values(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, control, name in list(find_unknown_cache_values(copy)):
        control[name] = CACHE_CONTROL[name][0]
    return copy


def find_invalid_edits(body: JSONObject) -> Iterator[tuple[int, str]]:
    """Yield the invalid edits of `context_management` with what is wrong."""
    edits = as_objects(object_or_empty(body.get("context_management")).get("edits"))
    for index, edit in enumerate(edits):
        trigger = object_or_empty(edit.get("trigger")).get("value")
        if index and edit.get("type") == CLEAR_THINKING_EDIT:
            yield index, f"`{CLEAR_THINKING_EDIT}` must be the first edit."
        if edit.get("type") == COMPACT_EDIT and isinstance(trigger, int) and trigger < LEAST_COMPACT_AT:
            yield index, f"a compaction is triggered at {LEAST_COMPACT_AT:,} tokens or more, got {trigger:,}."


def with_valid_edits(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    if list(find_invalid_edits(copy)):
        edits: list[JSONObject] = copy["context_management"]["edits"]
        for edit in [edits[index] for index, _ in find_invalid_edits(copy)]:
            if edit["type"] == COMPACT_EDIT:
                edit["trigger"]["value"] = LEAST_COMPACT_AT
        edits.sort(key=lambda edit: edit.get("type") != CLEAR_THINKING_EDIT)
    return copy


def with_last_breakpoints(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, block in list(find_breakpoints(copy))[:-MAX_BREAKPOINTS]:
        del block["cache_control"]
    return copy


def without_thinking_breakpoints(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, block in list(find_breakpoints(copy)):
        if block.get("type") in ("thinking", "redacted_thinking"):
            del block["cache_control"]
    return copy


def with_valid_thinking(body: JSONObject) -> JSONObject:
    """Return the body without thinking that the API could not verify.

    A message that contained nothing else is left out.
    """
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if not isinstance(message["content"], list):
            messages.append(message)
            continue
        blocks = cast(list[JSONObject], message["content"])
        kinds = ("thinking", "redacted_thinking")
        left = [b for b in blocks if b["type"] not in kinds or is_valid_signature(b.get("signature", b.get("data")))]
        messages += [{**message, "content": left}] if left else []
    return {**body, "messages": messages}


def with_tagged_system(body: JSONObject) -> JSONObject:
    """Return the body with the text of each system message as tagged text of the user."""
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if message["role"] != "system":
            messages.append(message)
            continue
        content = message["content"]
        blocks: list[JSONObject] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
            messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *tag_system_blocks(blocks)]}
        elif blocks:
            messages.append({"role": "user", "content": tag_system_blocks(blocks)})
    return {**body, "messages": messages}


def with_unique_tools(body: JSONObject) -> JSONObject:
    tools = {tool.get("name"): tool for tool in reversed(cast(list[JSONObject], body["tools"]))}
    return {**body, "tools": list(tools.values())[::-1]}


def tool_choice(body: JSONObject) -> JSONObject:
    return cast(JSONObject, body["tool_choice"]) if isinstance(body.get("tool_choice"), dict) else {}


def with_auto_tool_choice(body: JSONObject) -> JSONObject:
    rest = without_fields(tool_choice(body), "type", "name")
    return {**body, "tool_choice": {"type": "auto", **rest}}


def without_server_orphans(body: JSONObject) -> JSONObject:
    found = [
        block
        for message in messages_of(body)
        if message["role"] == "assistant" and isinstance(message["content"], list)
        for block in cast(list[JSONObject], message["content"])
    ]
    orphans = {id(block) for block in find_server_orphans(found)}
    messages: list[JSONObject] = []
    for message in messages_of(body):
        blocks = cast(list[JSONObject], message["content"]) if isinstance(message["content"], list) else []
        left = [block for block in blocks if id(block) not in orphans]
        if len(left) == len(blocks):
            messages.append(message)
        elif left:
            messages.append({**message, "content": left})
    return {**body, "messages": messages}


def find_server_orphans(blocks: list[JSONObject]) -> Iterator[JSONObject]:
    called: set[str] = set()
    for block in blocks:
        kind = cast(str, block.get("type") or "")
        if kind in ("server_tool_use", "mcp_tool_use"):
            called.add(block["id"])
        elif kind.endswith("_tool_result") and block["tool_use_id"] not in called:
            yield block


def read_tool_changes(block: JSONObject) -> Iterator[ToolChange]:
    """Yield what a block says about tools. A compaction says which tools the messages before it had changed."""
    if block.get("type") == "compaction":
        for each in list_or_empty(block.get("tool_changes")):
            yield from (change._replace(is_listed=True) for change in read_tool_changes(object_or_empty(each)))
    elif block.get("type") in CHANGE_BLOCKS:
        tool = object_or_empty(block.get("tool"))
        if tool.get("type") == "tool_definition":
            yield ToolChange(defined=text_of(object_or_empty(tool.get("definition")).get("name")))
        else:  # the tools of servers that the API calls are not in the request
            yield ToolChange(named=text_of(tool.get("name")) if tool.get("type") == "tool_reference" else "")


def find_declared_tools(body: JSONObject) -> list[str]:
    return [text_of(object_or_empty(tool).get("name")) for tool in list_or_empty(body.get("tools"))]


def find_tool_names(body: JSONObject) -> list[str]:
    """Return the names of the tools of a request, also of those that are defined in its messages."""
    names = find_declared_tools(body)
    for message in list_or_empty(body.get("messages")):
        for block in list_or_empty(object_or_empty(message).get("content")):
            names += [change.defined for change in read_tool_changes(object_or_empty(block)) if change.defined]
    return names


def without_invalid_tool_changes(body: JSONObject) -> JSONObject:
    return without_blocks(body, check_tool_changes(parse_request(body)))


def find_breakpoints(value: JSON, path: JSONPath = ()) -> Iterator[tuple[JSONPath, JSONObject]]:
    """Yield all blocks with a cache breakpoint, in the order of the prompt: tools, system, messages."""
    if isinstance(value, dict):
        block = cast(JSONObject, value)
        if block.get("cache_control"):
            yield path, block
        first = [name for name in ("tools", "system", "messages") if not path and name in block]
        for name in first or [name for name in ("content", "tool", "definition") if name in block]:
            yield from find_breakpoints(block[name], (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(cast(list[JSON], value)):
            yield from find_breakpoints(each, (*path, index))


RULES = RuleSet(
    "ANT",
    "anthropic",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    vendor="anthropic",
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
PAIRING = PairingChecks.within(
    results_in_next_message,
    lambda message, part: {"where": format_dotted_path(message.path)} if part.kind == "call" else {},
    merged=True,
)


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages(unless=("thread",)))


@rule(4, fix=without_empty_messages)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    for message in request.messages:
        last = message is request.messages[-1] and message.role == "assistant"
        if not message.wire["content"] and not last and "output_config" not in message.wire:
            yield make_finding(message.path, "this message is empty.")


@rule(5)
def check_no_blank_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    said = [part for message in request.messages if message.wire["content"] != "" for part in message.parts_of("text")]
    for part in (*request.system, *said):
        if not part.text.strip():
            yield make_finding(part.path, "this text is blank.")


rule(6)(PAIRING.unanswered)
rule(7)(late_results(lambda message: message.parts, merged=True))


@rule(8)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    held = ("messages", 0) if continues_thread(request.body) else None  # the calls are in the thread
    return [finding for finding in PAIRING.orphans(request) if finding.path[:2] != held]


rule(9)(PAIRING.duplicates)
rule(10)(duplicate_ids(merged=True))
check_block_roles = rule(11)(
    misplaced_blocks(lambda block: block.wire["type"], lambda message, media: message.role == "system")
)


check_call_id_format = rule(12)(parts_where(lambda call: not ID.fullmatch(call.id), "call"))


@rule(13)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    others = [(index, message) for index, message in enumerate(request.messages) if message.role != "system"]
    place = 0
    for index, message in enumerate(request.messages):
        while place < len(others) and others[place][0] < index:
            place += 1
        if message.role != "system" or (not message.wire["content"] and "output_config" in message.wire):
            continue
        before = others[place - 1][1] if place else None
        after = others[place][1] if place < len(others) else None
        ran = before is not None and before.parts and "tool" in str(before.parts[-1].wire.get("type"))
        follows = before is not None and (before.role == "user" or (ran and not before.parts_of("call")))
        if not (follows and (after is None or after.role == "assistant")):
            yield make_finding(message.path, "system message in an invalid position.")


check_thinking_signatures = rule(14, fix=with_valid_thinking)(
    parts_where(
        lambda part: not is_valid_signature(part.wire.get("signature", part.wire.get("data"))), "reasoning", is_claude
    )
)


@rule(15, fix=remove_settings("thinking"))
def check_thinking_first(request: ParsedRequest) -> Iterable[RuleFinding]:
    thinking: JSON = request.body.get("thinking")
    replies = [message for message in request.merged if message.role == "assistant"]
    if not isinstance(thinking, dict) or cast(JSONObject, thinking).get("type") != "enabled" or not replies:
        return
    last = replies[-1]
    begins = last.parts[0].kind if last.parts else "reasoning"
    if begins != "reasoning" and last.parts_of("call") and any(message.parts_of("reasoning") for message in replies):
        yield make_finding(
            last.parts[0].path,
            "the reply does not begin with its thinking block.",
            kind=last.parts[0].wire.get("type", "text"),
        )


@rule(16, fix=with_last_breakpoints)
def check_breakpoint_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    marked = [
        path
        for path, _ in find_breakpoints(request.body or {"messages": [message.wire for message in request.messages]})
    ]
    if len(marked) > MAX_BREAKPOINTS:
        yield make_finding(
            marked[0], f"at most 4 blocks may have `cache_control`, got {len(marked)}.", count=len(marked)
        )


rule(17, fix=without_thinking_breakpoints)(parts_where(lambda part: part.wire.get("cache_control"), "reasoning"))
check_tool_names = rule(18)(invalid_tool_names(TOOL_NAME))
rule(19, fix=with_unique_tools)(duplicate_tools)


@rule(20, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    choice: JSON = request.body.get("tool_choice")
    name = cast(JSONObject, choice).get("name") if isinstance(choice, dict) else None
    if name is not None and name not in find_tool_names(request.body):
        yield make_finding(("tool_choice",), f"tool {name!r} not found in `tools`.", name=name)


@rule(21)
def check_trailing_space(request: ParsedRequest) -> Iterable[RuleFinding]:
    last = request.messages[-1] if request.messages else None
    if last and last.role == "assistant" and last.parts and (text := last.parts[-1].text).rstrip() != text:
        yield make_finding(last.parts[-1].path, "the final text ends with white space.")


@rule(22, fix=set_setting("max_tokens", DEFAULT_MAX_TOKENS))
def check_max_tokens(request: ParsedRequest) -> Iterable[RuleFinding]:
    if any(request.body.get(name) is not None for name in ANSWER_SETTINGS) and request.body.get("max_tokens") is None:
        yield make_finding((), "`max_tokens` is missing.")


@rule(23, fix=without_server_orphans)
def check_no_server_orphans(request: ParsedRequest) -> Iterable[RuleFinding]:
    parts = [part for message in request.messages if message.role == "assistant" for part in message.parts]
    orphans = {id(wire) for wire in find_server_orphans([part.wire for part in parts])}
    for each in parts:
        if id(each.wire) in orphans:
            part, path = each.wire, each.path
            yield make_finding(
                path,
                f"result without a call: call {part['tool_use_id']} not found before it.",
                kind=part["type"],
                id=part["tool_use_id"],
            )


@rule(24, fix=with_last_user_message)
def check_last_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.facts.prefill or request.body.get("max_tokens") is None or request.body.get("compaction"):
        return
    last = list(takewhile(lambda message: message.role == "assistant", reversed(request.messages)))
    spoken = {part.kind for message in last for part in message.parts}
    if "text" in spoken and spoken <= {"text", "reasoning"} and not request.malformed:
        yield make_finding(last[0].path, "the last message is the assistant's, and this model does not continue it.")


@rule(25, fix=with_auto_tool_choice)
def check_no_forced_tool(request: ParsedRequest) -> Iterable[RuleFinding]:
    kind = tool_choice(request.body).get("type")
    if kind in ("any", "tool") and not request.facts.forced_tool_choice:
        yield make_finding(("tool_choice",), f"this model does not support `tool_choice` of type {kind!r}.")


@rule(26, fix=without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    if is_claude(request.body):
        yield from find_unknown_fields(request)


@rule(27, fix=with_tagged_system)
def check_system_role(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.facts.system_between or request.facts.system_ignored:
        return
    for message in request.messages:
        if message.role == "system":
            yield make_finding(message.path, "this model does not support system messages among the messages.")


@rule(28, fix=without_unknown_settings, is_open=True)
def check_known_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    if is_claude(request.body):
        yield from find_unknown_settings(request)


@rule(29, fix=with_ordered_lifetimes)
def check_lifetime_order(request: ParsedRequest) -> Iterable[RuleFinding]:
    body = request.body or {"messages": [message.wire for message in request.messages]}
    for path, _ in find_late_lifetimes(body):
        yield make_finding((*path, "cache_control", "ttl"))


@rule(30, fix=remove_settings("system", "tools"))
def check_continued_thread(request: ParsedRequest) -> Iterable[RuleFinding]:
    for name in ("system", "tools") if continues_thread(request.body) else ():
        if name in request.body:
            yield make_finding((name,), f"`{name}` is set in a request that continues a thread.", name=name)


@rule(31, fix=remove_settings("context_management"))
def check_single_compaction(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.body.get("compaction") and request.body.get("context_management"):
        yield make_finding(("context_management",))


@rule(32, fix=without_invalid_tool_changes)
def check_tool_changes(request: ParsedRequest) -> Iterable[RuleFinding]:
    if not request.body.get("thread"):  # the API has the rest of a thread
        yield from find_invalid_tool_changes(request, read_tool_changes, find_declared_tools(request.body))


@rule(33, fix=without_answer_settings)
def check_compaction_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    for path in find_answer_settings(request.body) if request.body.get("compaction") else ():
        name = ".".join(path)
        yield make_finding(path, f"`{name}` is set in a request for a compaction.", name=name)


@rule(34, fix=with_known_cache_values)
def check_cache_values(request: ParsedRequest) -> Iterable[RuleFinding]:
    body = request.body or {"messages": [message.wire for message in request.messages]}
    for path, control, name in find_unknown_cache_values(body):
        values = " or ".join(map(repr, CACHE_CONTROL[name]))
        yield make_finding(path, f"`{name}` must be {values}, got {control[name]!r}.", values=values)


@rule(35, fix=with_valid_edits)
def check_edits(request: ParsedRequest) -> Iterable[RuleFinding]:
    for index, problem in find_invalid_edits(request.body):
        yield make_finding(("context_management", "edits", index), problem)

"""The lint rules of Anthropic's Messages API: the reader of requests for them, the rules, and their fixes.

Fixes are repairs that decoding and encoding a request do not make: cache breakpoints, settings, tools.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import takewhile
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.anthropic import error_texts
from contextc.formats.anthropic.codec import BLOCKS, SOURCE_TYPES
from contextc.formats.anthropic.request_settings import DEFAULT_MAX_TOKENS
from contextc.formats.encoder_decoder_base import tag_system_blocks
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
    find_duplicates,
    find_id_mismatches,
    format_dotted_path,
    make_finding,
    nested_error,
    remove_fields,
    results_in_next_message,
    schema_error,
    tagged_error,
    unknown_field_findings,
)
from contextc.formats.reasoning_policy import is_valid_signature
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ROLE_ALIASES,
    as_arguments,
    find_duplicate_ids,
    find_empty_request,
    find_late_results,
    find_misplaced_blocks,
    inner_tool,
    insert_first_message,
    iter_calls,
    iter_parts,
    keep_messages,
    messages_of,
    remove_settings,
    set_setting,
    text_block,
    text_message,
    tool_schema,
    without_fields,
)

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
TYPES = {str: "string", list: "list", dict: "dictionary", bool: "boolean", int: "integer", float: "number"}
"""Anthropic's names of types."""
ANSWER_SETTINGS = ("stream", "stop_sequences", "metadata", "service_tier", "temperature", "top_p", "top_k", "container")
"""Settings that a request for an answer may have, but a request for a token count may not."""
ID, TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_BREAKPOINTS = 4
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
            return error_texts.WRONG_TYPE.format(kind=TYPES[fault.expected[0]])
        return error_texts.MISSING if fault.problem is Problem.MISSING else fault.message


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
    if path[0] == "tools":
        return _tool(value)
    if value.get("type") == "tool_result" and not isinstance(value.get("content"), str | list):
        return {**value, "content": encode(value.get("content")).decode()}
    if value.get("type") == "tool_use" and not is_object(value.get("input")):
        return {**value, "input": as_arguments(value.get("input"))}
    if "role" in value and isinstance(value.get("content"), str | list):
        return {**value, "role": ROLE_ALIASES.get(str(value["role"]).lower(), "user")}
    if value.get("role") in ROLES and value.get("content") is None:
        return {**value, "content": []}
    return value


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    if (given := inner_tool(wire)) is None:
        return wire
    made: JSONObject = {"name": given["name"], "input_schema": tool_schema(given, {"type": "object"})}
    return {**made, "description": given["description"]} if isinstance(given.get("description"), str) else made


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


def find_breakpoints(value: JSON, path: JSONPath = ()) -> Iterator[tuple[JSONPath, JSONObject]]:
    """Yield all blocks with a cache breakpoint, in the order of the prompt: tools, system, messages."""
    if isinstance(value, dict):
        block = cast(JSONObject, value)
        if block.get("cache_control"):
            yield path, block
        first = [name for name in ("tools", "system", "messages") if not path and name in block]
        for name in first or (["content"] if "content" in block else []):
            yield from find_breakpoints(block[name], (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(cast(list[JSON], value)):
            yield from find_breakpoints(each, (*path, index))


RULES = RuleSet(
    "ANT",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    vendor="anthropic",
    unknown_fields=find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, block and tool has the required fields of its type.

    A message has `role` and `content`. A block has a known `type` and the fields of that type.

    Example: [{"role": "user", "content": [{"type": "text"}]}]
    Repair: content without a valid shape becomes text, so that the model still sees it. An invalid tool is left out.
    """
    return request.malformed


@rule(2, error_texts.NO_MESSAGES, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request has at least one message.

    Example: []
    Repair: a user message is inserted which states that nothing has been said yet.
    """
    return find_empty_request(request, "messages is empty.")


@rule(4, error_texts.EMPTY_CONTENT, fix=without_empty_messages)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No message is empty, except a final message of the assistant.

    Example: [{"role": "user", "content": []}]
    Repair: the message is left out.
    """
    for message in request.messages:
        last = message is request.messages[-1] and message.role == "assistant"
        if not message.wire["content"] and not last and "output_config" not in message.wire:
            yield make_finding(message.path, "this message is empty.")


@rule(5, error_texts.BLANK_TEXT)
def check_no_blank_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No text block is empty or only white space.

    Models return such blocks next to a call, and a history that sends them back is refused.

    Example: [{"role": "user", "content": [{"type": "text", "text": " "}]}]
    Repair: the block is left out.
    """
    said = [part for message in request.messages if message.wire["content"] != "" for part in message.parts_of("text")]
    for part in (*request.system, *said):
        if not part.text.strip():
            yield make_finding(part.path, "this text is blank.")


@rule(6, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call has a result in the next message.

    The API merges neighbouring messages of one role, so one message may answer two replies. A crash, a cancelled turn
    or a trimmed history leaves a call without a result, and every later request fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": "and?"}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    for message, call in request.match_results(results_in_next_message, merged=True).unanswered_calls:
        text = f"call {call.id} has no result in the next message."
        yield make_finding(call.path, text, where=format_dotted_path(message.path), ids=call.id)


@rule(7, error_texts.RESULTS_FIRST)
def check_results_first(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool results come before all other blocks of their message.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "text", "text": "Here:"}, {"type":
        "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: results are moved to the front.
    """
    return find_late_results((message, message.parts) for message in request.merged)


@rule(8, error_texts.ORPHAN_RESULT)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool result answers a call in the previous message.

    Example: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    for _, result in request.match_results(results_in_next_message, merged=True).orphan_results:
        yield make_finding(
            result.path, f"result without a call: call {result.id} not found in the previous message.", id=result.id
        )


@rule(9, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call has only one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"},
        {"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for _, result in request.match_results(results_in_next_message, merged=True).duplicate_results:
        yield make_finding(result.path, f"duplicate result for call {result.id}.", id=result.id)


@rule(10, error_texts.DUPLICATE_CALL_ID)
def check_unique_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The calls of one reply have different ids.

    A later reply may reuse an id that was answered: some providers restart their ids in every reply.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: the later call and its result get a new id.
    """
    for _, call in find_duplicate_ids(request.merged):
        yield make_finding(call.path, f"duplicate call id {call.id} in one reply.")


@rule(11, error_texts.WRONG_ROLE)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls and thinking are in assistant messages, results in user messages, and system messages contain only text.

    Example: [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role":
        "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: calls and thinking are moved to an assistant message, results to a user message.
    """
    return find_misplaced_blocks(
        request, lambda block: block.wire["type"], lambda message, media: message.role == "system"
    )


@rule(12, error_texts.ID_FORM)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a call contains only letters, digits, `_` and `-`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a.1",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.1"}]}]
    Repair: other characters are replaced, in the call and in its result.
    """
    for call, id in find_id_mismatches(ID, (call for message in request.messages for call in message.parts_of("call"))):
        yield make_finding(call.path, f"invalid call id {id!r}: expected letters, digits, `_` and `-`.")


@rule(13, error_texts.SYSTEM_PLACE)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A system message follows a user message, and is last or followed by an assistant message.

    It cannot be the first message: initial instructions belong in `system`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}]
    Repair: the message becomes user text in `<system-reminder>`.
    """
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


@rule(14, error_texts.SIGNATURE, fix=with_valid_thinking)
def check_thinking_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A thinking block has its original signature.

    The signature authenticates the text. A changed signature, or one of another provider, is refused. Not checked if
    `model` names a model of another vendor, which signs in other ways.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": ""}, {"type": "text", "text": "Hello!"}]}, {"role": "user", "content": "go on"}]
    Repair: the block is left out. Only the model that wrote it could use it.
    """
    for _, part in iter_parts(request, "reasoning") if is_claude(request.body) else ():
        if not is_valid_signature(part.wire.get("signature", part.wire.get("data"))):
            yield make_finding(part.path, "the signature of this block is missing or invalid.")


@rule(15, error_texts.THINKING_FIRST, fix=remove_settings("thinking"))
def check_thinking_first(request: ParsedRequest) -> Iterable[RuleFinding]:
    """If thinking is enabled, the last reply begins with thinking if it contains calls.

    Example: {"model": "claude-sonnet-4-5", "max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking",
        "thinking": "", "signature": "s"}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role":
        "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, {"role": "assistant", "content": [{"type":
        "tool_use", "id": "b", "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result",
        "tool_use_id": "b"}]}]}
    Repair: thinking is disabled for this request.
    """
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


@rule(16, error_texts.TOO_MANY_BREAKPOINTS, fix=with_last_breakpoints)
def check_breakpoint_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """At most four blocks have `cache_control`.

    Example: {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text":
        "b", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "c", "cache_control": {"type":
        "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "d", "cache_control":
        {"type": "ephemeral"}}, {"type": "text", "text": "e", "cache_control": {"type": "ephemeral"}}]}]}
    Repair: the last four breakpoints are kept.
    """
    marked = [
        path
        for path, _ in find_breakpoints(request.body or {"messages": [message.wire for message in request.messages]})
    ]
    if len(marked) > MAX_BREAKPOINTS:
        yield make_finding(
            marked[0], f"at most 4 blocks may have `cache_control`, got {len(marked)}.", count=len(marked)
        )


@rule(17, error_texts.MISPLACED_BREAKPOINT, fix=without_thinking_breakpoints)
def check_breakpoint_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Thinking blocks and blank text have no `cache_control`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": "s", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Hello!"}]}, {"role":
        "user", "content": "go on"}]
    Repair: the breakpoint is removed.
    """
    for _, part in iter_parts(request, "reasoning"):
        if part.wire.get("cache_control"):
            yield make_finding(
                part.path, "a thinking block cannot have `cache_control`.", what="Extra inputs are not permitted"
            )


@rule(18, error_texts.TOOL_NAME)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a tool has 1 to 128 letters, digits, `_` and `-`.

    Example: {"tools": [{"name": "files.read", "input_schema": {"type": "object"}}], "messages": [{"role": "user",
        "content": "hi"}]}
    Repair: other characters are replaced, wherever the name is used.
    """
    for tool, name in find_id_mismatches(TOOL_NAME, request.tools):
        yield make_finding(tool.path, f"invalid tool name {name!r}: expected 1 to 128 letters, digits, `_` and `-`.")
    for call in iter_calls(request):
        if not TOOL_NAME.fullmatch(call.name):
            yield make_finding(
                call.path, f"invalid tool name {call.name!r}: expected 1 to 128 letters, digits, `_` and `-`."
            )


@rule(19, error_texts.DUPLICATE_TOOL, fix=with_unique_tools)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tools have different names.

    Example: {"tools": [{"name": "look", "input_schema": {"type": "object"}}, {"name": "look", "input_schema": {"type":
        "object"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first tool is kept.
    """
    for tool in find_duplicates(request.tools):
        yield make_finding(tool.path, f"duplicate tool name {tool.id}.")


@rule(20, error_texts.UNKNOWN_CHOICE, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The tool in `tool_choice` is one of the tools.

    Example: {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name":
        "find"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: `tool_choice` is removed, so the model chooses.
    """
    choice: JSON = request.body.get("tool_choice")
    name = cast(JSONObject, choice).get("name") if isinstance(choice, dict) else None
    if isinstance(request.body.get("tools"), list):
        tools = cast(list[object], request.body["tools"])
        known = [cast(JSONObject, tool).get("name") for tool in tools if isinstance(tool, dict)]
    else:
        known = []
    if name is not None and name not in known:
        yield make_finding(("tool_choice",), f"tool {name!r} not found in `tools`.", name=name)


@rule(21, error_texts.TRAILING_SPACE)
def check_trailing_space(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The text of a final assistant message does not end with white space.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello, "}]
    Repair: the white space is removed.
    """
    last = request.messages[-1] if request.messages else None
    if last and last.role == "assistant" and last.parts and (text := last.parts[-1].text).rstrip() != text:
        yield make_finding(last.parts[-1].path, "the final text ends with white space.")


@rule(22, error_texts.MAX_TOKENS, fix=set_setting("max_tokens", DEFAULT_MAX_TOKENS))
def check_max_tokens(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request for an answer has `max_tokens`.

    A request that only counts tokens has none. It is recognized by its lack of settings for an answer.

    Example: {"model": "claude-opus-5-5", "stream": true, "messages": [{"role": "user", "content": "hi"}]}
    Repair: `max_tokens` is set to 8,192.
    """
    if any(request.body.get(name) is not None for name in ANSWER_SETTINGS) and request.body.get("max_tokens") is None:
        yield make_finding((), "`max_tokens` is missing.")


@rule(23, error_texts.SERVER_ORPHAN, fix=without_server_orphans)
def check_server_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The result of a tool that Anthropic runs comes after its call.

    Usually both are in one message. After a pause, or if the tool's code calls a client tool, the result is in a later
    one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1", "content": []}, {"type": "text", "text": "Found it."}]}, {"role": "user",
        "content": "and?"}]
    Repair: the result is left out. Only Anthropic can read its content.
    """
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


@rule(24, error_texts.NO_PREFILL, fix=with_last_user_message)
def check_last_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Models from Claude 4.6 on do not continue a final assistant message.

    Checked if `model` names one of them. A turn that Anthropic paused while its own tools ran is sent back unchanged.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}, {"role":
        "assistant", "content": "Hello"}]}
    Repair: a user message is appended that asks the model to continue.
    """
    if request.facts.prefill or request.body.get("max_tokens") is None:
        return
    last = list(takewhile(lambda message: message.role == "assistant", reversed(request.messages)))
    spoken = {part.kind for message in last for part in message.parts}
    if "text" in spoken and spoken <= {"text", "reasoning"} and not request.malformed:
        yield make_finding(last[0].path, "the last message is the assistant's, and this model does not continue it.")


@rule(25, error_texts.FORCED_CHOICE, fix=with_auto_tool_choice)
def check_no_forced_tool(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Some models do not support forced tool calls: Opus 5.5, Sonnet 5.5, Fable and Mythos from 5.1 on.

    Checked if `model` names one of them.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "tools": [{"name": "look", "input_schema": {"type":
        "object"}}], "tool_choice": {"type": "any"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model. The setting for parallel calls is kept.
    """
    kind = tool_choice(request.body).get("type")
    if kind in ("any", "tool") and not request.facts.forced_tool_choice:
        yield make_finding(("tool_choice",), f"this model does not support `tool_choice` of type {kind!r}.")


@rule(26, error_texts.UNKNOWN_FIELD, fix=without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Messages and blocks have only fields that Anthropic defines.

    Anthropic refuses fields of other providers, such as `name`, `reasoning_content`, or the `id` and `usage` of a
    reply. Not checked if `model` names a model of another vendor, whose endpoint may accept more.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is left out.
    """
    if is_claude(request.body):
        yield from find_unknown_fields(request)


@rule(27, error_texts.SYSTEM_ROLE, fix=with_tagged_system)
def check_system_role(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Opus before 4.8, Sonnet before 5 and Haiku before 5.5 do not support system messages among the messages.

    Checked if `model` names one of them.

    Example: {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}, {"role":
        "system", "content": "Be brief."}]}
    Repair: the message becomes user text in `<system-reminder>`.
    """
    if request.facts.system_between or request.facts.system_ignored:
        return
    for message in request.messages:
        if message.role == "system":
            yield make_finding(message.path, "this model does not support system messages among the messages.")

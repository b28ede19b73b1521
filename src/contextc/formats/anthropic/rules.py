"""The lint rules of Anthropic's Messages API."""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import fixes, lint_parser, predicted_errors
from contextc.formats.fix_builders import insert_first_message, remove_settings, set_setting
from contextc.formats.lint_engine import (
    ParsedRequest,
    RuleFinding,
    RuleSet,
    find_duplicates,
    find_id_mismatches,
    format_dotted_path,
    make_finding,
    results_in_next_message,
)
from contextc.formats.rule_checks import (
    find_duplicate_ids,
    find_empty_request,
    find_late_results,
    find_misplaced_blocks,
    iter_calls,
    iter_parts,
)
from contextc.formats.signature_check import is_valid_signature

ANSWER_SETTINGS = ("stream", "stop_sequences", "metadata", "service_tier", "temperature", "top_p", "top_k", "container")
"""Settings that a request for an answer may have, but a request for a token count may not."""
ID, TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")


RULES = RuleSet(
    "ANT",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    vendor="anthropic",
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, predicted_errors.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, block and tool has the required fields of its type.

    A message has `role` and `content`. A block has a known `type` and the fields of that type.

    Example: [{"role": "user", "content": [{"type": "text"}]}]
    Repair: content without a valid shape becomes text, so that the model still sees it. An invalid tool is left out.
    """
    return request.malformed


@rule(2, predicted_errors.NO_MESSAGES, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request has at least one message.

    Example: []
    Repair: a user message is inserted which states that nothing has been said yet.
    """
    return find_empty_request(request, "messages is empty.")


@rule(4, predicted_errors.EMPTY_CONTENT, fix=fixes.without_empty_messages)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No message is empty, except a final message of the assistant.

    Example: [{"role": "user", "content": []}]
    Repair: the message is left out.
    """
    for turn in request.messages:
        last = turn is request.messages[-1] and turn.role == "assistant"
        if not turn.wire["content"] and not last and "output_config" not in turn.wire:
            yield make_finding(turn.path, "this message is empty.")


@rule(5, predicted_errors.BLANK_TEXT)
def check_no_blank_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No text block is empty or only white space.

    Models return such blocks next to a call, and a history that sends them back is refused.

    Example: [{"role": "user", "content": [{"type": "text", "text": " "}]}]
    Repair: the block is left out.
    """
    said = [piece for turn in request.messages if turn.wire["content"] != "" for piece in turn.parts_of("text")]
    for piece in (*request.system, *said):
        if not piece.text.strip():
            yield make_finding(piece.path, "this text is blank.")


@rule(6, predicted_errors.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call has a result in the next message.

    The API merges neighbouring messages of one role, so one message may answer two replies. A crash, a cancelled turn
    or a trimmed history leaves a call without a result, and every later request fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": "and?"}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    for turn, call in request.match_results(results_in_next_message, merged=True).unanswered_calls:
        message = f"call {call.id} has no result in the next message."
        yield make_finding(call.path, message, where=format_dotted_path(turn.path), ids=call.id)


@rule(7, predicted_errors.RESULTS_FIRST)
def check_results_first(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool results come before all other blocks of their message.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "text", "text": "Here:"}, {"type":
        "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: results are moved to the front.
    """
    return find_late_results((turn, turn.parts) for turn in request.merged)


@rule(8, predicted_errors.ORPHAN_RESULT)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool result answers a call in the previous message.

    Example: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    for _, result in request.match_results(results_in_next_message, merged=True).orphan_results:
        yield make_finding(
            result.path, f"result without a call: call {result.id} not found in the previous message.", id=result.id
        )


@rule(9, predicted_errors.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call has only one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"},
        {"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for _, result in request.match_results(results_in_next_message, merged=True).duplicate_results:
        yield make_finding(result.path, f"duplicate result for call {result.id}.", id=result.id)


@rule(10, predicted_errors.DUPLICATE_CALL_ID)
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


@rule(11, predicted_errors.WRONG_ROLE)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls and thinking are in assistant messages, results in user messages, and system messages contain only text.

    Example: [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}, {"role":
        "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]
    Repair: calls and thinking are moved to an assistant message, results to a user message.
    """
    return find_misplaced_blocks(
        request, lambda block: block.wire["type"], lambda message, media: message.role == "system"
    )


@rule(12, predicted_errors.ID_FORM)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a call contains only letters, digits, `_` and `-`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a.1",
        "name": "look", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.1"}]}]
    Repair: other characters are replaced, in the call and in its result.
    """
    for call, id in find_id_mismatches(ID, (call for turn in request.messages for call in turn.parts_of("call"))):
        yield make_finding(call.path, f"invalid call id {id!r}: expected letters, digits, `_` and `-`.")


@rule(13, predicted_errors.SYSTEM_PLACE)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A system message follows a user message, and is last or followed by an assistant message.

    It cannot be the first message: initial instructions belong in `system`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "system",
        "content": "Be brief."}]
    Repair: the message becomes user text in `<system-reminder>`.
    """
    others = [(index, turn) for index, turn in enumerate(request.messages) if turn.role != "system"]
    place = 0
    for index, turn in enumerate(request.messages):
        while place < len(others) and others[place][0] < index:
            place += 1
        if turn.role != "system" or (not turn.wire["content"] and "output_config" in turn.wire):
            continue
        before = others[place - 1][1] if place else None
        after = others[place][1] if place < len(others) else None
        ran = before is not None and before.parts and "tool" in str(before.parts[-1].wire.get("type"))
        follows = before is not None and (before.role == "user" or (ran and not before.parts_of("call")))
        if not (follows and (after is None or after.role == "assistant")):
            yield make_finding(turn.path, "system message in an invalid position.")


@rule(14, predicted_errors.SIGNATURE, fix=fixes.with_valid_thinking)
def check_thinking_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A thinking block has its original signature.

    The signature authenticates the text. A changed signature, or one of another provider, is refused. Not checked if
    `model` names a model of another vendor, which signs in other ways.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": ""}, {"type": "text", "text": "Hello!"}]}, {"role": "user", "content": "go on"}]
    Repair: the block is left out. Only the model that wrote it could use it.
    """
    for _, piece in iter_parts(request, "reasoning") if fixes.is_claude(request.body) else ():
        if not is_valid_signature(piece.wire.get("signature", piece.wire.get("data"))):
            yield make_finding(piece.path, "the signature of this block is missing or invalid.")


@rule(15, predicted_errors.THINKING_FIRST, fix=remove_settings("thinking"))
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
    replies = [turn for turn in request.merged if turn.role == "assistant"]
    if not isinstance(thinking, dict) or cast(JSONObject, thinking).get("type") != "enabled" or not replies:
        return
    last = replies[-1]
    begins = last.parts[0].kind if last.parts else "reasoning"
    if begins != "reasoning" and last.parts_of("call") and any(turn.parts_of("reasoning") for turn in replies):
        yield make_finding(
            last.parts[0].path,
            "the reply does not begin with its thinking block.",
            kind=last.parts[0].wire.get("type", "text"),
        )


@rule(16, predicted_errors.TOO_MANY_BREAKPOINTS, fix=fixes.with_last_breakpoints)
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
        for path, _ in fixes.find_breakpoints(request.body or {"messages": [turn.wire for turn in request.messages]})
    ]
    if len(marked) > fixes.MAX_BREAKPOINTS:
        yield make_finding(
            marked[0], f"at most 4 blocks may have `cache_control`, got {len(marked)}.", count=len(marked)
        )


@rule(17, predicted_errors.MISPLACED_BREAKPOINT, fix=fixes.without_thinking_breakpoints)
def check_breakpoint_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Thinking blocks and blank text have no `cache_control`.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
        "hm", "signature": "s", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Hello!"}]}, {"role":
        "user", "content": "go on"}]
    Repair: the breakpoint is removed.
    """
    for _, piece in iter_parts(request, "reasoning"):
        if piece.wire.get("cache_control"):
            yield make_finding(
                piece.path, "a thinking block cannot have `cache_control`.", what="Extra inputs are not permitted"
            )


@rule(18, predicted_errors.TOOL_NAME)
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


@rule(19, predicted_errors.DUPLICATE_TOOL, fix=fixes.with_unique_tools)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tools have different names.

    Example: {"tools": [{"name": "look", "input_schema": {"type": "object"}}, {"name": "look", "input_schema": {"type":
        "object"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first tool is kept.
    """
    for tool in find_duplicates(request.tools):
        yield make_finding(tool.path, f"duplicate tool name {tool.id}.")


@rule(20, predicted_errors.UNKNOWN_CHOICE, fix=remove_settings("tool_choice"))
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


@rule(21, predicted_errors.TRAILING_SPACE)
def check_trailing_space(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The text of a final assistant message does not end with white space.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello, "}]
    Repair: the white space is removed.
    """
    last = request.messages[-1] if request.messages else None
    if last and last.role == "assistant" and last.parts and (text := last.parts[-1].text).rstrip() != text:
        yield make_finding(last.parts[-1].path, "the final text ends with white space.")


@rule(22, predicted_errors.MAX_TOKENS, fix=set_setting("max_tokens", fixes.DEFAULT_MAX_TOKENS))
def check_max_tokens(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request for an answer has `max_tokens`.

    A request that only counts tokens has none. It is recognized by its lack of settings for an answer.

    Example: {"model": "claude-opus-5-5", "stream": true, "messages": [{"role": "user", "content": "hi"}]}
    Repair: `max_tokens` is set to 8,192.
    """
    if any(request.body.get(name) is not None for name in ANSWER_SETTINGS) and request.body.get("max_tokens") is None:
        yield make_finding((), "`max_tokens` is missing.")


@rule(23, predicted_errors.SERVER_ORPHAN, fix=fixes.without_server_orphans)
def check_server_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The result of a tool that Anthropic runs comes after its call.

    Usually both are in one message. After a pause, or if the tool's code calls a client tool, the result is in a later
    one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1", "content": []}, {"type": "text", "text": "Found it."}]}, {"role": "user",
        "content": "and?"}]
    Repair: the result is left out. Only Anthropic can read its content.
    """
    pieces = [piece for turn in request.messages if turn.role == "assistant" for piece in turn.parts]
    orphans = {id(wire) for wire in fixes.find_server_orphans([piece.wire for piece in pieces])}
    for each in pieces:
        if id(each.wire) in orphans:
            piece, path = each.wire, each.path
            yield make_finding(
                path,
                f"result without a call: call {piece['tool_use_id']} not found before it.",
                kind=piece["type"],
                id=piece["tool_use_id"],
            )


@rule(24, predicted_errors.NO_PREFILL, fix=fixes.with_last_user_message)
def check_last_message(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Models from Claude 4.6 on do not continue a final assistant message.

    Checked if `model` names one of them. A turn that Anthropic paused while its own tools ran is sent back unchanged.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}, {"role":
        "assistant", "content": "Hello"}]}
    Repair: a user message is appended that asks the model to continue.
    """
    if request.facts.prefill or request.body.get("max_tokens") is None:
        return
    last = list(takewhile(lambda turn: turn.role == "assistant", reversed(request.messages)))
    spoken = {piece.kind for turn in last for piece in turn.parts}
    if "text" in spoken and spoken <= {"text", "reasoning"} and not request.malformed:
        yield make_finding(last[0].path, "the last message is the assistant's, and this model does not continue it.")


@rule(25, predicted_errors.FORCED_CHOICE, fix=fixes.with_auto_tool_choice)
def check_no_forced_tool(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Some models do not support forced tool calls: Opus 5.5, Sonnet 5.5, Fable and Mythos from 5.1 on.

    Checked if `model` names one of them.

    Example: {"model": "claude-opus-5-5", "max_tokens": 100, "tools": [{"name": "look", "input_schema": {"type":
        "object"}}], "tool_choice": {"type": "any"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model. The setting for parallel calls is kept.
    """
    kind = fixes.tool_choice(request.body).get("type")
    if kind in ("any", "tool") and not request.facts.forced_tool_choice:
        yield make_finding(("tool_choice",), f"this model does not support `tool_choice` of type {kind!r}.")


@rule(26, predicted_errors.UNKNOWN_FIELD, fix=fixes.without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Messages and blocks have only fields that Anthropic defines.

    Anthropic refuses fields of other providers, such as `name`, `reasoning_content`, or the `id` and `usage` of a
    reply. Not checked if `model` names a model of another vendor, whose endpoint may accept more.

    Example: [{"role": "user", "name": "ada", "content": "hi"}]
    Repair: the field is left out.
    """
    if fixes.is_claude(request.body):
        yield from lint_parser.find_unknown_fields(request)


@rule(27, predicted_errors.SYSTEM_ROLE, fix=fixes.with_tagged_system)
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

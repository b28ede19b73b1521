"""Rules of OpenAI's Chat Completions that can be checked without calling the API.

OpenRouter, Groq, Mistral, DeepSeek, vLLM and others use this API too. All of them require matching calls and results.
Limits that only OpenAI sets are not checked if a request names another vendor's model.
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import insert_first_message, limit_list, remove_settings, set_setting
from contextc.formats.lint_engine import (
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    RuleSet,
    find_duplicates,
    is_reasoning,
    make_finding,
    results_in_role,
    unknown_field_findings,
)
from contextc.formats.openai_chat import error_texts, fixes, lint_parser
from contextc.formats.openai_chat.lint_parser import vendor_group, vendor_path
from contextc.formats.rule_checks import (
    find_duplicate_ids,
    find_empty_request,
    iter_calls,
    iter_parts,
    repeat_in_example,
)

MAX_ID_LENGTH = 64
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
results_directly_after = results_in_role("tool")

RULES = RuleSet(
    "OAC",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    vendor="openai",
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, part, call and tool must have the fields its type requires.

    A message must have a `role` and the fields of that role. Only a tool message has a `tool_call_id`. The arguments of
    a call must be a string. Parts and tools of the Responses API have other names and are rejected here.

    Example: [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
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


@rule(3, error_texts.EMPTY_REPLY, fix=fixes.without_empty_replies)
def check_assistant_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    """An assistant message must have `content`, unless it has tool calls.

    A turn that was cancelled before its first token leaves a message without content.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null}]
    Repair: the message is removed.
    """
    for turn in request.messages:
        if turn.role == "assistant" and fixes.is_empty_reply(turn.wire):
            yield make_finding(turn.path, "this assistant message has neither content nor tool calls.")


@rule(4, error_texts.EMPTY_LIST, fix=fixes.without_empty_content)
def check_content_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A `content` that is a list must not be empty.

    Example: [{"role": "user", "content": []}]
    Repair: the message is removed; the content of a tool message becomes an empty string.
    """
    for turn in request.messages:
        if turn.wire.get("content") == [] and not fixes.has_calls(turn.wire):
            yield make_finding(
                turn.path, "`content` is an empty list.", field="content", where=f"{vendor_path(turn.path)}.content"
            )


@rule(5, error_texts.EMPTY_LIST, fix=fixes.without_empty_lists)
def check_tool_lists_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`tools` and `tool_calls` must be left out if they are empty.

    OpenAI's own SDK returns an empty list of calls in parsed replies, and its API rejects that list.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!", "tool_calls": []}, {"role":
        "user", "content": "go on"}]
    Repair: the list is removed.
    """
    if vendor_group(request.body) == "other":
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


@rule(6, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call must be answered by a tool message before any other message.

    A crash, a cancelled turn or a truncated history leaves a call without its result. Every later request then fails.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in request.match_results(results_directly_after).unanswered_calls:
        yield make_finding(call.path, f"tool call {call.id} has no result in the tool messages after it.", ids=call.id)


@rule(7, error_texts.ORPHAN)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool message must answer a call in the assistant message directly before the tool messages.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    for _, result in request.match_results(results_directly_after).orphan_results:
        yield make_finding(
            result.path, f"tool call {result.id} of this result is not in the preceding assistant message."
        )


@rule(8, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "a", "content": "2"}]
    Repair: the first result is kept; a different one becomes text.
    """
    doubled = {result.path for _, result in request.match_results(results_directly_after).duplicate_results}
    latest: dict[str, RequestMessage] = {}
    for turn, result in iter_parts(request, "result"):
        first = latest.get(result.id, turn)
        latest[result.id] = turn
        if result.path in doubled:
            message = f"tool call {result.id} already has a result."
            yield make_finding(
                result.path, message, id=result.id, first=vendor_path(first.path), where=vendor_path(result.path)
            )


@rule(9, error_texts.DUPLICATE_CALL_ID)
def check_distinct_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool calls in one message must have distinct ids.

    A later message may use an id again: some providers restart their numbering in every reply.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}, {"id": "a", "type": "function", "function": {"name": "find",
        "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the second call and its result get a new id.
    """
    for turn, call in find_duplicate_ids(request.messages):
        message = f"another tool call in this message already has the id {call.id}."
        yield make_finding(call.path, message, id=call.id, where=vendor_path(turn.path))


@rule(10, error_texts.ASSISTANT_ONLY, fix=fixes.with_assistant_calls)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the assistant may call tools.

    Example: [{"role": "user", "content": "hi", "tool_calls": [{"id": "a", "type": "function", "function": {"name":
        "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    Repair: the role of the message becomes `assistant`.
    """
    for turn in request.messages:
        if turn.role != "assistant" and fixes.has_calls(turn.wire):
            what = "tool calls" if turn.wire.get("tool_calls") else "a function call"
            yield make_finding(turn.path, f"a {turn.role} message cannot contain tool calls.", what=what)


@rule(11, error_texts.ID_LENGTH)
def check_call_id_length(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a tool call must have 1 to 64 characters.

    Other providers sometimes use longer ids. OpenAI has rejected ids of more than 40 characters, so contextc writes no
    longer ones.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id":
        "call_00000000000000000000000000000000000000000000000000000000000000", "type": "function", "function": {"name":
        "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id":
        "call_00000000000000000000000000000000000000000000000000000000000000", "content": "1"}]
    Repair: the id is shortened, on the call and on its result.
    """
    for call in _calls(request):
        length = len(call.id)
        if not 1 <= length <= MAX_ID_LENGTH:
            what = error_texts.TOO_LONG.format(most=MAX_ID_LENGTH, length=length) if length else error_texts.TOO_SHORT
            message = f"the id {call.id!r} must have 1 to {MAX_ID_LENGTH} characters, got {length}."
            yield make_finding(call.path, message, where=f"{vendor_path(call.path)}.id", what=what)


@rule(12, error_texts.PATTERN, fix=fixes.with_valid_tool_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool name must consist of 1 to 64 letters, digits, `_` and `-`.

    Example: {"tools": [{"type": "function", "function": {"name": "files.read"}}], "messages": [{"role": "user",
        "content": "hi"}]}
    Repair: the name is encoded with the allowed characters, wherever it occurs.
    """
    if vendor_group(request.body) == "other":
        return
    named = [(tool, tool.id) for tool in request.tools] + [(call, call.name) for call in _calls(request)]
    for piece, name in named:
        if not TOOL_NAME.fullmatch(name):
            message = f"invalid tool name {name!r}: expected 1 to 64 letters, digits, `_` and `-`."
            where = f"{vendor_path(piece.path)}.{'custom' if 'custom' in piece.wire else 'function'}.name"
            yield make_finding(piece.path, message, where=where, pattern="^[a-zA-Z0-9_-]+$")


@rule(13, error_texts.PATTERN, fix=fixes.with_valid_message_names)
def check_message_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The `name` of a message must not contain white space, slashes, bars or angle brackets.

    Example: [{"role": "user", "name": "Ada Lovelace", "content": "hi"}]
    Repair: each such character is replaced by `_`.
    """
    for turn in request.messages if vendor_group(request.body) != "other" else ():
        name = cast(str | None, turn.wire.get("name"))
        if turn.role in ("tool", "function") or name is None:
            continue
        if not name or fixes.INVALID_NAME_CHARACTERS.search(name):
            message = f"invalid name {name!r}: it is empty, or contains characters that are not allowed."
            yield make_finding(turn.path, message, where=f"{vendor_path(turn.path)}.name", pattern=r"^[^\s<|\\/>]+$")


@rule(14, error_texts.DUPLICATE_TOOL, fix=fixes.with_unique_tools)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool names must be unique.

    Example: {"tools": [{"type": "function", "function": {"name": "look"}}, {"type": "function", "function": {"name":
        "look"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first tool of a name is kept.
    """
    for tool in find_duplicates(request.tools):
        yield make_finding(tool.path, f"there is already a tool named {tool.id}.", name=tool.id)


@rule(15, error_texts.TOO_MANY, fix=limit_list("tools", fixes.MAX_TOOLS))
@repeat_in_example('{"type": "a"}', fixes.MAX_TOOLS + 1)
def check_tool_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must have at most 128 tools.

    Example: {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "a"}, …]}
    Repair: the first 128 tools are kept.
    """
    count = _length(request.body.get("tools"))
    if count > fixes.MAX_TOOLS and vendor_group(request.body) != "other":
        yield make_finding(
            ("tools",), f"at most 128 tools are allowed, got {count}.", most=fixes.MAX_TOOLS, count=count
        )


@rule(16, error_texts.UNKNOWN_CHOICE, fix=remove_settings("tool_choice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The tools that `tool_choice` names must be among the tools.

    Example: {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": {"type": "function",
        "function": {"name": "find"}}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is removed.
    """
    tools: JSON = request.body.get("tools")
    known = [fixes.tool_name(tool) for tool in cast(list[JSON], tools)] if isinstance(tools, list) else []
    for name in _chosen_tool_names(request.body.get("tool_choice")):
        if known and name not in known:
            yield make_finding(("tool_choice",), f"tool {name!r} is not among the tools.", name=name)


@rule(17, error_texts.NO_TOOLS, fix=fixes.without_unusable_settings)
def check_choice_has_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`tool_choice` and `parallel_tool_calls` must be set only if there are tools.

    Example: {"tool_choice": "auto", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    if vendor_group(request.body) == "other":
        return
    for setting, needed in fixes.REQUIRED_FIELDS.items():
        if request.body.get(setting) not in (None, "none") and not request.body.get(needed):
            yield make_finding(
                (setting,), f"`{setting}` is set, but there are no {needed}.", setting=setting, needed=needed
            )


@rule(18, error_texts.TOO_MANY, fix=limit_list("stop", fixes.MAX_STOPS))
def check_stop_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must have at most four stop sequences.

    Example: {"stop": ["a", "b", "c", "d", "e"], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the first four are kept.
    """
    count = _length(request.body.get("stop"))
    if count > fixes.MAX_STOPS and vendor_group(request.body) != "other":
        yield make_finding(("stop",), f"at most four stop sequences are allowed, got {count}.", most=4, count=count)


@rule(19, error_texts.MISPLACED_MEDIA, fix=fixes.with_user_media)
def check_media_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Images, audio and files must be in user messages.

    A tool cannot return an image in its result. Newer models do not reject it there, but they do not see it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": [{"type":
        "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]
    Repair: the media is moved to a user message after the results.
    """
    if vendor_group(request.body) == "other":
        return
    for turn in request.messages:
        for piece in turn.parts_of("media") if turn.role != "user" else ():
            message = f"a message of role {turn.role} cannot contain a part of type `{piece.wire['type']}`."
            yield make_finding(piece.path, message, where=vendor_path(turn.path), role=turn.role)


@rule(20, error_texts.DAMAGED_REASONING, fix=fixes.without_damaged_reasoning)
def check_reasoning_intact(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`reasoning_details` from OpenRouter must be sent back unchanged.

    Signatures and encrypted reasoning go to the provider that wrote them, which rejects altered ones.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!", "reasoning_details":
        [{"type": "reasoning.encrypted", "format": "openai-responses-v1", "data":
        "gAAAAAB… and here somebody has cut a piece out of the middle, to save some tokens"}]}, {"role": "user",
        "content": "go on"}]
    Repair: the reasoning of that message is removed; only the model that wrote it could have read it.
    """
    for turn in request.messages:
        for index in fixes.damaged_details(turn.wire):
            path = (*turn.path, "reasoning_details", index)
            yield make_finding(path, "this reasoning was altered after its provider wrote it.", where=vendor_path(path))


@rule(21, error_texts.NO_MAX_TOKENS, fix=fixes.with_completion_limit)
def check_token_limit_name(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning models require `max_completion_tokens` in place of `max_tokens`.

    Checked if `model` names an OpenAI model.

    Example: {"model": "gpt-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is renamed.
    """
    if request.facts.reasoning and request.body.get("max_tokens") is not None:
        yield make_finding(("max_tokens",), "reasoning models do not accept `max_tokens`.")


@rule(22, error_texts.NO_SAMPLING, fix=remove_settings(*fixes.SAMPLING))
def check_sampling_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning models accept neither `temperature` nor `top_p`, unless their effort is `none`.

    Checked if `model` names an OpenAI model that is certain to reason.

    Example: {"model": "gpt-5", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the setting is removed.
    """
    for setting in fixes.SAMPLING:
        value: JSON = request.body.get(setting)
        if value not in (None, 1) and is_reasoning(request.facts, request.body.get("reasoning_effort")):
            yield make_finding((setting,), f"reasoning models do not accept `{setting}`.", setting=setting, value=value)


@rule(23, error_texts.TOOLS_AND_EFFORT, fix=set_setting("reasoning_effort", "none"))
def check_tools_and_effort(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Models from GPT-5.4 on accept tools here only with the effort `none`.

    Checked if `model` names one of them and an effort is set. Use the Responses API to have both.

    Example: {"model": "gpt-5.6", "reasoning_effort": "high", "tools": [{"type": "function", "function": {"name":
        "look"}}], "messages": [{"role": "user", "content": "hi"}]}
    Repair: the effort becomes `none`, because the tools are needed.
    """
    effort: JSON = request.body.get("reasoning_effort")
    asked = effort not in (None, "none") and "none" in request.facts.efforts
    if asked and request.body.get("tools") and not request.facts.tools_in_chat:
        message = "this model accepts tools here only with the effort `none`."
        yield make_finding(("reasoning_effort",), message, model=request.body["model"])


@rule(24, error_texts.TEXT_ONLY, fix=fixes.with_images_described)
def check_image_support(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Some models accept no images: GPT-3.5, GPT-4, o1-mini, o3-mini.

    Checked if `model` names one of them.

    Example: {"model": "gpt-3.5-turbo", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url":
        {"url": "https://example.com/a.png"}}]}]}
    Repair: a line of text describes what was there.
    """
    if request.facts.media != ():
        return
    for _, piece in iter_parts(request, "media"):
        if piece.wire["type"] == fixes.IMAGE_TYPE:
            yield make_finding(piece.path, "this model accepts only text.")


@rule(25, error_texts.UNKNOWN_PARAMETER, fix=fixes.without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A message must have only fields that OpenAI or a compatible endpoint defines.

    Not checked if `model` names another vendor's model, because its endpoint may accept more fields.

    Example: [{"role": "user", "content": "hi", "createdAt": "2026-11-16"}]
    Repair: the field is removed.
    """
    if vendor_group(request.body) != "other":
        for turn in request.messages:
            for finding in unknown_field_findings(turn.wire, lint_parser.FIELDS, turn.path):
                yield make_finding(finding.path, finding.message, where=vendor_path(finding.path))


def _calls(request: ParsedRequest) -> Iterator[RequestPart]:
    return iter_calls(request) if vendor_group(request.body) != "other" else iter(())


def _length(value: JSON) -> int:
    return len(cast(list[JSON], value)) if isinstance(value, list) else 0


def _chosen_tool_names(choice: JSON) -> Iterator[str]:
    """Return the names of the tools that `tool_choice` allows."""
    if not isinstance(choice, dict):
        return
    wire = cast(JSONObject, choice)
    allowed: JSON = wire.get("allowed_tools")
    tools: JSON = cast(JSONObject, allowed).get("tools") if isinstance(allowed, dict) else None
    for each in cast(list[JSON], tools) if isinstance(tools, list) else [wire]:
        if (named := lint_parser.find_function(each)) is not None:
            yield named["name"]

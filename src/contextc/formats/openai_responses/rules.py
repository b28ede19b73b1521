"""Rules of OpenAI's Responses API that can be checked without calling the API.

Other vendors offer this API too, and accept more. What only OpenAI rejects is checked only for OpenAI models.
"""

import re
from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import insert_first_message, remove_settings, set_setting
from contextc.formats.lint_engine import (
    ParsedRequest,
    RequestPart,
    RuleFinding,
    RuleSet,
    find_id_mismatches,
    is_reasoning,
    make_finding,
)
from contextc.formats.openai_chat.fixes import SAMPLING
from contextc.formats.openai_responses import error_texts, fixes, lint_parser
from contextc.formats.openai_responses.lint_parser import vendor_path
from contextc.formats.openai_responses.request_settings import MIN_OUTPUT_TOKENS
from contextc.formats.rule_checks import find_empty_request

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_ID_LENGTH = 64
HISTORIES = ("previous_response_id", "conversation", "prompt")


RULES = RuleSet(
    "OAR",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    messages_key="input",
    vendor="openai",
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every item, block and tool must have the fields its type requires.

    A message must have a `role` and `content`. Every other item must have a known `type` and the fields of that type.
    The arguments of a call must be a string. A reasoning item must have a `summary`, which may be empty.

    Example: [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "a", "name": "look", "arguments":
        {}}, {"type": "function_call_output", "call_id": "a", "output": "1"}]
    Repair: a value whose meaning is clear is rewritten in the correct form; any other becomes text, and a malformed
        tool is removed.
    """
    return request.malformed


@rule(2, error_texts.NO_INPUT, fix=insert_first_message(RULES))
def check_has_input(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must have an input, unless it refers to an earlier response, a conversation or a prompt.

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    stored = any(request.body.get(name) for name in HISTORIES)
    return () if stored else find_empty_request(request, "the request has no input.", "input")


@rule(3, error_texts.WRONG_BLOCK_TYPE, fix=fixes.with_correct_block_types)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Assistant messages must contain `output_text` or `refusal`, all others `input_…` blocks.

    Example: [{"role": "assistant", "content": [{"type": "input_text", "text": "Hello!"}]}, {"role": "user", "content":
        "hi"}]
    Repair: the type of a text is corrected; an image in an assistant message is moved to the user.
    """
    for turn in request.messages if not lint_parser.is_other_vendor_model(request.body) else ():
        own, others = (
            (lint_parser.OUTPUT_BLOCKS, lint_parser.INPUT_BLOCKS)
            if turn.role == "assistant"
            else (lint_parser.INPUT_BLOCKS[:3], lint_parser.OUTPUT_BLOCKS)
        )
        for piece in turn.parts:
            kind = piece.wire.get("type")
            if kind in others:
                supported = ", ".join(f"'{each}'" for each in own)
                yield make_finding(
                    piece.path,
                    f"a message of role {turn.role} cannot contain a `{kind}` block.",
                    kind=kind,
                    supported=supported,
                )


@rule(4, error_texts.UNANSWERED, fix=fixes.with_paired_items)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call must have a result after it.

    A crash, a cancelled turn or a truncated history leaves a call without its result. Every later request then fails.

    Example: [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "a", "name": "look", "arguments":
        "{}"}, {"role": "user", "content": "and?"}]
    Repair: a result stating that it is missing is inserted; if none can be made up for a type of call, the call becomes
        text.
    """
    for call in fixes.find_unpaired(request).unanswered:
        yield make_finding(
            call.path, f"tool call {call.id} has no result after it.", kind=_type_as_words(call), id=call.id
        )


@rule(5, error_texts.ORPHAN, fix=fixes.with_paired_items)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every result must answer a call before it.

    If OpenAI stores earlier items (`previous_response_id`, `conversation`, an `item_reference`), the call may be among
    those. A result without a call is then valid.

    Example: [{"role": "user", "content": "hi"}, {"type": "function_call_output", "call_id": "a", "output": "1"}]
    Repair: a result without a call becomes text.
    """
    for result in fixes.find_unpaired(request).orphans:
        yield make_finding(
            result.path, f"tool call {result.id} is not before its result.", kind=_type_as_words(result), id=result.id
        )


@rule(6, error_texts.DUPLICATE_RESULT, fix=fixes.with_paired_items)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "a", "name": "look", "arguments":
        "{}"}, {"type": "function_call_output", "call_id": "a", "output": "1"}, {"type": "function_call_output",
        "call_id": "a", "output": "1"}]
    Repair: the first result is kept; a different one becomes text.
    """
    for result in fixes.find_unpaired(request).duplicates:
        yield make_finding(
            result.path, f"tool call {result.id} already has a result.", kind=_type_as_words(result), id=result.id
        )


@rule(7, error_texts.CALL_ID, fix=fixes.with_short_ids)
def check_call_id_length(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a tool call must have 1 to 64 characters.

    Example: [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "", "name": "look", "arguments":
        "{}"}, {"type": "function_call_output", "call_id": "", "output": "1"}]
    Repair: the id is replaced by a valid one, on the call and on its result.
    """
    for call in [piece for turn in request.messages for piece in turn.parts_of("call")]:
        if not call.id or (len(call.id) > MAX_ID_LENGTH and not lint_parser.is_other_vendor_model(request.body)):
            problem, wanted = ("too long", "maximum length 64") if call.id else ("too short", "minimum length 1")
            message = f"the id of a tool call must have 1 to 64 characters, got {len(call.id)}."
            yield make_finding(
                call.path,
                message,
                where=vendor_path(call.path),
                problem=problem,
                wanted=wanted,
                length=f"a string with length {len(call.id)}",
            )


@rule(8, error_texts.LONE_REASONING, fix=fixes.without_lone_reasoning)
def check_reasoning_followed(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A reasoning item must be followed by the item it led to, with its original id.

    A truncated history, an edited answer or a removed call leaves reasoning without that item. Other vendors accept
    this.

    Example: [{"role": "user", "content": "hi"}, {"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user",
        "content": "and?"}]
    Repair: the reasoning is removed.
    """
    for turn in (
        fixes.find_lone_reasoning(request.messages) if not lint_parser.is_other_vendor_model(request.body) else ()
    ):
        yield make_finding(
            turn.path, f"the item that reasoning {turn.wire['id']} led to does not follow it.", id=turn.wire["id"]
        )


@rule(9, error_texts.NOT_STORED, fix=fixes.without_unstored_items)
def check_unstored_items(request: ParsedRequest) -> Iterable[RuleFinding]:
    """With `store` false, items must include their content, and reasoning its encrypted content.

    Example: {"store": false, "input": [{"role": "user", "content": "hi"}, {"type": "reasoning", "id": "rs_1",
        "summary": []}, {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content":
        [{"type": "output_text", "text": "Hello!", "annotations": []}]}]}
    Repair: the item is removed.
    """
    if request.body.get("store") is False and not lint_parser.is_other_vendor_model(request.body):
        for turn in request.messages:
            if fixes.is_unstored(turn.wire):
                name = turn.wire["id"]
                yield make_finding(turn.path, f"{name} is not stored, and its content is not in the request.", id=name)


@rule(10, error_texts.ENCRYPTED, fix=fixes.without_damaged_items)
def check_encrypted_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Encrypted content must be sent back unchanged.

    Without the key, only truncated, padded or overwritten content can be detected.

    Example: [{"role": "user", "content": "hi"}, {"type": "reasoning", "id": "rs_1", "summary": [],
        "encrypted_content": "gAAAAABqSomethingThatIsNoLongerWhatItWasWhenItCameFromTheModelAndSoOn"}, {"type":
        "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text",
        "text": "Hello!", "annotations": []}]}]
    Repair: the item is removed, and the item it led to loses its id; only OpenAI could have read the content.
    """
    for turn in request.messages:
        if not fixes.is_intact(turn.wire):
            begins = f"{turn.wire['encrypted_content'][:4]}..."
            yield make_finding(turn.path, "the encrypted content of this item is damaged.", content=begins)


@rule(11, error_texts.DUPLICATE_ITEM, fix=fixes.without_repeated_ids)
def check_unique_item_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Item ids must be unique.

    Example: [{"role": "user", "content": "hi"}, {"type": "message", "id": "msg_1", "role": "assistant", "status":
        "completed", "content": [{"type": "output_text", "text": "Hello!", "annotations": []}]}, {"type": "message",
        "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Bye!",
        "annotations": []}]}]
    Repair: the later message or call loses its id; any other duplicate is removed.
    """
    for turn in (
        fixes.find_repeated_items(request.messages) if not lint_parser.is_other_vendor_model(request.body) else ()
    ):
        yield make_finding(turn.path, f"an earlier item already has the id {turn.wire['id']}.", id=turn.wire["id"])


@rule(12, error_texts.ID_FORM, fix=fixes.without_foreign_ids)
def check_item_id_prefix(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of an item must be one that OpenAI assigned: `msg_…`, `fc_…`, `rs_…`.

    The id of a call is its `call_id`. An item that OpenAI did not create has no `id`. Checked for OpenAI models.

    Example: {"model": "gpt-5.6", "input": [{"role": "user", "content": "hi"}, {"type": "function_call", "id": "call_1",
        "call_id": "call_1", "name": "look", "arguments": "{}"}, {"type": "function_call_output", "call_id": "call_1",
        "output": "1"}]}
    Repair: the id is removed.
    """
    for turn in request.messages if lint_parser.is_openai_model(request.body) else ():
        if prefix := fixes.expected_prefix(turn.wire):
            name = turn.wire["id"]
            message = f"the id {name!r} is not from OpenAI: it must begin with `{prefix}`."
            yield make_finding(turn.path, message, where=vendor_path(turn.path), id=name, prefix=prefix)


@rule(13, error_texts.TOOL_NAME, fix=fixes.with_valid_tool_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool name must consist of 1 to 128 letters, digits, `_` and `-`.

    Example: {"tools": [{"type": "function", "name": "files.read", "parameters": {"type": "object"}}], "input": "hi"}
    Repair: the name is encoded with the allowed characters, wherever it occurs.
    """
    if lint_parser.is_other_vendor_model(request.body):
        return
    message = "invalid tool name {!r}: expected 1 to 128 letters, digits, `_` and `-`."
    for tool, name in find_id_mismatches(TOOL_NAME, request.tools):
        yield make_finding(tool.path, message.format(name), where=vendor_path(tool.path))
    for call in [piece for turn in request.messages for piece in turn.parts_of("call")]:
        if "name" in call.wire and not TOOL_NAME.fullmatch(call.name):
            yield make_finding(call.path, message.format(call.name), where=vendor_path(call.path))


@rule(14, error_texts.UNKNOWN_CHOICE, fix=fixes.with_known_choice)
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The tool that `tool_choice` names must be among the tools.

    Example: {"tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}], "tool_choice":
        {"type": "function", "name": "find"}, "input": "hi"}
    Repair: the choice is removed.
    """
    choice = cast(JSONObject, request.body["tool_choice"]) if isinstance(request.body.get("tool_choice"), dict) else {}
    name: JSON = choice.get("name")
    elsewhere = request.body.get("prompt") or any(finding.path[:1] == ("tools",) for finding in request.malformed)
    if choice.get("type") not in ("function", "custom") or not isinstance(name, str) or elsewhere:
        return
    if name not in fixes.tool_names(request):
        yield make_finding(("tool_choice",), f"tool {name!r} is not among the tools.", kind=choice["type"])


@rule(15, error_texts.TWO_HISTORIES, fix=remove_settings("previous_response_id"))
def check_single_history(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must not continue both a response and a conversation.

    Example: {"previous_response_id": "resp_1", "conversation": "conv_1", "input": "hi"}
    Repair: the conversation is kept.
    """
    if all(request.body.get(name) for name in fixes.STORED_HISTORY):
        yield make_finding(("previous_response_id",), "the request continues both a response and a conversation.")


@rule(16, error_texts.TOO_SHORT, fix=set_setting("max_output_tokens", MIN_OUTPUT_TOKENS))
def check_min_output_tokens(request: ParsedRequest) -> Iterable[RuleFinding]:
    """`max_output_tokens` must be at least 16. Checked for OpenAI models.

    Example: {"model": "gpt-5.6", "max_output_tokens": 1, "input": "hi"}
    Repair: the value becomes 16.
    """
    limit: JSON = request.body.get("max_output_tokens")
    if isinstance(limit, int) and limit < MIN_OUTPUT_TOKENS and lint_parser.is_openai_model(request.body):
        yield make_finding(
            ("max_output_tokens",), f"`max_output_tokens` must be at least 16, got {limit}.", limit=limit
        )


@rule(17, error_texts.TRIGGER_NOT_LAST, fix=fixes.with_trigger_last)
def check_compaction_last(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A `compaction_trigger` must be the last item.

    Example: [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}, {"role": "user", "content": "and?"}]
    Repair: it is moved to the end.
    """
    for turn in request.messages[:-1]:
        if turn.wire.get("type") == "compaction_trigger":
            yield make_finding(
                turn.path, "this `compaction_trigger` is not the last item.", where=vendor_path(turn.path)
            )


@rule(18, error_texts.NO_SAMPLING, fix=remove_settings(*SAMPLING))
def check_sampling_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning models accept neither `temperature` nor `top_p`, unless their effort is `none`.

    Checked if `model` names an OpenAI model that is certain to reason.

    Example: {"model": "gpt-5", "temperature": 0, "input": "hi"}
    Repair: the setting is removed.
    """
    given: JSON = request.body.get("reasoning")
    effort: JSON = cast(JSONObject, given).get("effort") if isinstance(given, dict) else None
    for setting in SAMPLING:
        if request.body.get(setting) not in (None, 1) and is_reasoning(request.facts, effort):
            yield make_finding((setting,), f"reasoning models do not accept `{setting}`.", setting=setting)


@rule(19, error_texts.UNKNOWN_PARAMETER, fix=fixes.without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Messages, calls and results must have only the fields that OpenAI defines.

    Not checked if `model` names another vendor's model, nor in items that OpenAI created itself.

    Example: [{"role": "user", "content": "hi", "name": "ada"}]
    Repair: the field is removed.
    """
    if "model" not in request.body or lint_parser.is_openai_model(request.body):
        for finding in lint_parser.find_unknown_fields(request):
            yield make_finding(finding.path, finding.message, where=vendor_path(finding.path))


def _type_as_words(piece: RequestPart) -> str:
    """Return the type of a call or result as OpenAI's error messages write it."""
    return cast(str, piece.wire["type"]).replace("_", " ")

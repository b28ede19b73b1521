"""Rules of the Vercel AI SDK, version 7, and of every provider behind it.

The rules were tested against the SDK itself, with a mock model. What the SDK accepts but no provider would, such as a
result without a call, is also a violation.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import insert_first_message, remove_settings, set_setting
from contextc.formats.lint_engine import ParsedRequest, RuleFinding, RuleSet, make_finding
from contextc.formats.request_settings import object_or_empty
from contextc.formats.rule_checks import find_empty_request, iter_parts
from contextc.formats.vercel import coerce, error_texts, fixes, lint_parser

RULES = RuleSet(
    "VER",
    lint_parser.parse_request,
    coerce=coerce.coerce_value,
    message=coerce.text_message,
    block=coerce.text_block,
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


def _misshapen(request: ParsedRequest, rule: str) -> Iterable[RuleFinding]:
    return [finding for finding in request.malformed if finding.facts["rule"] == rule]


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, part and tool must have the fields its type requires.

    A message must have a `role` and `content` or, as a `UIMessage`, `parts`. A part must have a known `type` and the
    fields of that type. The SDK does not validate this. Malformed values are dropped, or fail in the provider's code.

    Example: [{"role": "user", "content": [{"type": "text"}]}]
    Repair: forms of older versions are updated; a malformed value becomes text, and a malformed tool is removed.
    """
    return _misshapen(request, "")


@rule(2, error_texts.BAD_ROLE)
def check_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The role of a message must be `system`, `user`, `assistant` or `tool`.

    Role `function` was removed with version 4.

    Example: [{"role": "user", "content": "hi"}, {"role": "developer", "content": "Be brief."}]
    Repair: the role becomes the intended one, or `user`.
    """
    return _misshapen(request, "role")


@rule(3)
def check_calls_in_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool calls must be parts of `content`, not fields beside it.

    The SDK silently removes `function_call`, `tool_calls` and `toolInvocations` of older versions. The model then sees
    results without calls.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "function_call": {"name": "look",
        "arguments": "{}"}}]
    Repair: each becomes a `tool-call` part.
    """
    return _misshapen(request, "stripped")


@rule(4, error_texts.NO_INPUT)
def check_call_input(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have its arguments in `input`, even if it has none.

    Older versions used `args`. A call without arguments can lose the field in JSON, and the provider then rejects it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "args": {"at": "a.py"}}]}]
    Repair: `args` becomes `input`; if both are missing, `input` becomes an empty object.
    """
    return _misshapen(request, "input")


@rule(5, error_texts.BAD_DATA)
def check_file_data(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A file must be base64, a complete data URL, or a URL.

    Example: [{"role": "user", "content": [{"type": "file", "mediaType": "image/png", "data": {"type": "data", "data":
        "data:image/png;base64,iVBORw0KGgo="}}]}]
    Repair: a data URL is moved to where the SDK accepts one; anything else becomes text.
    """
    return _misshapen(request, "data")


@rule(6, error_texts.NO_MESSAGES, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must contain at least one message.

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    prompted = request.body.get("prompt") is not None and request.body.get("messages") is None
    return () if prompted else find_empty_request(request)


@rule(7, error_texts.EMPTY, fix=fixes.without_empty)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No user or assistant message may be empty.

    The SDK removes empty texts but sends the remaining empty message, which most providers reject.

    Example: [{"role": "user", "content": []}]
    Repair: the message is removed.
    """
    for turn in request.messages:
        if turn.role in fixes.NON_EMPTY_ROLES and fixes.is_empty(turn.wire):
            yield make_finding(turn.path, "this message is empty.")


@rule(8, error_texts.SYSTEM_AMONG_MESSAGES, fix=set_setting("allowSystemInMessages", True))
def check_system_allowed(request: ParsedRequest) -> Iterable[RuleFinding]:
    """System messages among the messages require `allowSystemInMessages`.

    The setting confirms that they come from the application. This can be checked only in a whole request.

    Example: {"model": "anthropic/claude-opus-5-5", "messages": [{"role": "system", "content": "Be brief."}, {"role":
        "user", "content": "hi"}]}
    Repair: `allowSystemInMessages` is set.
    """
    if len(request.body) < 2 or request.body.get("allowSystemInMessages"):
        return
    for turn in request.messages:
        if turn.role == "system":
            yield make_finding(
                turn.path, "a system message is among the messages, but `allowSystemInMessages` is not set."
            )
            return


@rule(9, fix=fixes.with_one_system_prompt)
def check_single_system_prompt(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The system prompt must be in `instructions` or in `system`, its older name, not in both.

    With both, the SDK uses `instructions` and silently ignores the other.

    Example: {"instructions": "Be brief.", "system": "Speak French.", "messages": [{"role": "user", "content": "hi"}]}
    Repair: both are joined.
    """
    if request.body.get("instructions") and request.body.get("system"):
        yield make_finding(("system",), "`instructions` is set too, so `system` would not be sent.")


@rule(10, error_texts.TWO_PROMPTS, fix=fixes.with_prompt_among_messages)
def check_prompt_or_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must have `messages` or a `prompt`, not both.

    With both, the SDK uses `prompt` and silently ignores the history.

    Example: {"prompt": "and now?", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the prompt becomes the last message.
    """
    if request.body.get("prompt") is not None and request.body.get("messages"):
        yield make_finding(("prompt",), "`messages` is set too, and would not be sent.")


@rule(11, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call must be answered in the tool messages after it, before the next user or system message.

    A call that waits for approval needs a result too, unless the last message approves or denies it. So does a call of
    a `UIMessage` in the state `input-available`. Provider-executed calls need none.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "input": {}}]}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in lint_parser.match_pairs(request.messages).unanswered_calls:
        yield make_finding(
            call.path, f"tool call {call.id} has no result before the next user or system message.", id=call.id
        )


@rule(12, error_texts.ORPHAN, fix=fixes.with_orphans_as_text)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool result must answer a call before it.

    The SDK accepts such a result, but the provider behind it rejects it.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}]}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    for _, result in lint_parser.match_pairs(request.messages).orphan_results:
        yield make_finding(result.path, f"there is no open tool call {result.id} for this result.", id=result.id)


@rule(13, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call must have exactly one result.

    The SDK accepts another result, but the provider behind it rejects it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "input": {}}]}, {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}, {"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}]}]
    Repair: the first result is kept; a different one becomes text.
    """
    for _, result in lint_parser.match_pairs(request.messages).duplicate_results:
        yield make_finding(result.path, f"tool call {result.id} already has a result.", id=result.id)


@rule(14, error_texts.WRONG_ROLE, fix=fixes.with_misplaced_as_text)
def check_part_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls and reasoning belong in assistant messages, results and approval responses in tool messages.

    Only a provider-executed call has its result beside it. In a `UIMessage` of the user such parts are lost.

    Example: [{"role": "user", "content": [{"type": "tool-call", "toolCallId": "a", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "look", "output": {"type":
        "text", "value": "1"}}]}]
    Repair: calls and reasoning move to the assistant, results to a tool message; a part without a valid place becomes
        text.
    """
    orphans = {piece.path for _, piece in lint_parser.match_pairs(request.messages).orphan_results}
    ran = lint_parser.provider_executed_calls(request.messages)
    for turn in request.messages:
        for piece in fixes.misplaced_parts(turn, ran):
            if piece.path not in orphans:
                yield make_finding(
                    piece.path, f"a message of role {turn.role} cannot contain a `{piece.wire['type']}` part."
                )


@rule(15, error_texts.UNKNOWN_APPROVAL, fix=fixes.without_unknown_approvals)
def check_approval_requests(request: ParsedRequest) -> Iterable[RuleFinding]:
    """An approval response in the last message must name a request that was made for a call.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "content": [{"type": "tool-approval-response",
        "approvalId": "ok1", "approved": true}]}]
    Repair: the response is removed; its reason becomes text.
    """
    for piece, call_id in lint_parser.find_approval_responses(request.messages):
        if call_id is None:
            asked = piece.wire["approvalId"]
            yield make_finding(
                piece.path, f"no approval request {asked} was found, or its tool call is missing.", id=asked
            )


@rule(16, error_texts.SIGNATURE, fix=fixes.without_invalid_signatures)
def check_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Reasoning signed by Anthropic must have its original signature.

    The SDK passes it on unchanged, and Anthropic rejects an invalid one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "reasoning", "text": "hm",
        "providerOptions": {"anthropic": {"signature":
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}}, {"type": "text", "text":
        "Hello!"}]}, {"role": "user", "content": "go on"}]
    Repair: the signature is removed; without one, the SDK does not send the reasoning to Anthropic.
    """
    for _, piece in iter_parts(request, "reasoning"):
        if not fixes.has_valid_signature(piece.wire):
            yield make_finding(piece.path, "the signature of this reasoning is not a valid Anthropic signature.")


@rule(17, error_texts.UNKNOWN_CHOICE, fix=remove_settings("toolChoice"))
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The tool that `toolChoice` names must be among the tools.

    Example: {"tools": {"look": {"inputSchema": {"type": "object"}}}, "toolChoice": {"type": "tool", "toolName":
        "find"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is removed.
    """
    name: JSON = object_or_empty(request.body.get("toolChoice")).get("toolName")
    tools = request.body.get("tools")
    known = cast(JSONObject, tools) if isinstance(tools, dict) else [tool.id for tool in request.tools]
    if isinstance(name, str) and tools and name not in known:
        yield make_finding(("toolChoice",), f"tool {name!r} is not among the tools.", name=name)


@rule(18)
def check_message_kind(request: ParsedRequest) -> Iterable[RuleFinding]:
    """All messages must be `ModelMessage`s, or all `UIMessage`s.

    `convertToModelMessages` fails on the first message without `parts`, and all other functions reject one with
    `parts`.

    Example: [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content":
        "Hello!"}]
    Repair: all become `ModelMessage`s.
    """
    shown = [isinstance(turn.wire.get("parts"), list) for turn in request.messages]
    if any(shown) and not all(shown):
        odd = request.messages[shown.index(not shown[0])]
        yield make_finding(
            odd.path, "`ModelMessage` and `UIMessage` are mixed: this message differs from the previous one."
        )

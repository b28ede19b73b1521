"""Rules of the AI SDK's older format, with `function_call` and role `function`.

No current version checks it. So these are the rules on calls and results of the API it was made for. For messages with
`toolInvocations` they are those of version 4 of the SDK.
"""

from collections.abc import Iterable

from contextc._json import JSON, encode
from contextc.formats.fix_builders import insert_first_message, remove_settings
from contextc.formats.lint_engine import ParsedRequest, RuleFinding, RuleSet, make_finding
from contextc.formats.request_settings import object_or_empty
from contextc.formats.rule_checks import find_empty_request, iter_calls
from contextc.formats.vercel_legacy import error_texts, fixes, lint_parser

RULES = RuleSet(
    "VEL",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_message,
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message and function must have the fields its type requires.

    A message must have a `role` and `content`, which is a string, or null beside a call.

    Example: [{"role": "user", "content": ["hi"]}]
    Repair: content in parts, and any malformed value, becomes one text; a malformed function is removed.
    """
    return request.malformed


@rule(2, error_texts.NO_MESSAGES, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A request must contain at least one message.

    Example: []
    Repair: a user message stating that nothing has been said yet is inserted.
    """
    return find_empty_request(request)


@rule(3, error_texts.EMPTY, fix=fixes.without_empty)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No message except a result may be empty.

    Example: [{"role": "user", "content": ""}]
    Repair: the message is removed.
    """
    for turn in request.messages:
        if fixes.is_empty(turn.wire):
            yield make_finding(turn.path, "this message is empty.")


@rule(4, error_texts.ARGUMENTS)
def check_arguments_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The arguments of a call must be a string: the JSON that the model wrote.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": {"at": "a.py"}}}, {"role": "function", "name": "look", "content": "1"}]
    Repair: they are encoded as a string.
    """
    for call in iter_calls(request):
        given: JSON = call.wire.get("arguments")
        if call.wire and not isinstance(given, str):
            kind = type(given).__name__
            yield make_finding(call.path, f"the arguments of {call.name} must be a string.", kind=kind)


@rule(5, error_texts.WRONG_ROLE, fix=fixes.with_assistant_calls)
def check_call_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Only the assistant may make calls.

    Example: [{"role": "user", "content": "hi", "function_call": {"name": "look", "arguments": "{}"}}, {"role":
        "function", "name": "look", "content": "1"}]
    Repair: the role of the message becomes `assistant`.
    """
    for turn in request.messages:
        if turn.role != "assistant" and (
            turn.parts_of("call") or (turn.role != "data" and lint_parser.tool_invocations(turn.wire))
        ):
            yield make_finding(turn.path, f"a message of role {turn.role} cannot contain a call.")


@rule(6, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every call must be answered by a message of role `function` before any other message.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}}, {"role": "user", "content": "and?"}]
    Repair: a result elsewhere in the history is moved to its call; if there is none, a result stating that it is
        missing is inserted.
    """
    for _, call in lint_parser.match_pairs(request.messages).unanswered_calls:
        name = call.name or call.id
        yield make_finding(call.path, f"the call of {name} has no result before the next message.", name=name)


@rule(7, error_texts.INVOCATION)
def check_invocation_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A call in `toolInvocations` must include its result.

    A stopped answer leaves a call in the state `call` or `partial-call`. The conversation cannot continue then.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "toolInvocations": [{"state":
        "call", "toolCallId": "a", "toolName": "look", "args": {}}]}]
    Repair: it becomes a `function_call`, followed by a result stating that it is missing.
    """
    for turn in request.messages:
        for each in lint_parser.tool_invocations(turn.wire) if turn.role != "data" else ():
            if each["state"] != "result":
                text = encode(each).decode()
                yield make_finding(turn.path, f"tool call {each['toolCallId']} has no result.", invocation=text)


@rule(8, error_texts.ORPHAN)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every result must answer an open call: by `tool_call_id` if both have one, else by name.

    Example: [{"role": "user", "content": "hi"}, {"role": "function", "name": "look", "content": "1"}]
    Repair: a result whose call is elsewhere is moved to it; a result without a call becomes text.
    """
    for _, result in lint_parser.match_pairs(request.messages).orphan_results:
        name = result.name or result.id
        yield make_finding(result.path, f"there is no open call of {name} for this result.", name=name)


@rule(9, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A call must have exactly one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}}, {"role": "function", "name": "look", "content": "1"}, {"role": "function", "name":
        "look", "content": "1"}]
    Repair: the first result is kept; any other becomes text.
    """
    for _, result in lint_parser.match_pairs(request.messages).duplicate_results:
        name = result.name or result.id
        yield make_finding(result.path, f"the call of {name} already has a result.", name=name)


@rule(10, error_texts.NO_NAME)
def check_result_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A message of role `function` must have the name of the function.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}, "tool_call_id": "a"}, {"role": "function", "content": "1", "tool_call_id": "a"}]
    Repair: it gets the name of its call.
    """
    for turn in request.messages:
        if turn.role == "function" and not turn.wire.get("name"):
            yield make_finding(turn.path, "this result does not name its function.")


@rule(11, error_texts.UNKNOWN_CHOICE, fix=remove_settings("function_call"))
def check_function_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The function that `function_call` names must be among the functions.

    Example: {"functions": [{"name": "look", "parameters": {"type": "object"}}], "function_call": {"name": "find"},
        "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is removed.
    """
    name: JSON = object_or_empty(request.body.get("function_call")).get("name")
    if isinstance(name, str) and request.tools and name not in [tool.id for tool in request.tools]:
        yield make_finding(("function_call",), f"function {name!r} is not among the functions.", name=name)

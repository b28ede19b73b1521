"""The lint rules of lines that are sent to Claude Code.

Claude Code refuses little. It drops or rewrites invalid input silently, and the model does not see that a call or its
result is missing. Rules for such input have no error text. Verified with the program, version 2.1.325.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from contextc._json import JSON
from contextc.formats.anthropic import rules as anthropic
from contextc.formats.claude_code import error_texts, fixes, lint_parser
from contextc.formats.fix_builders import insert_first_message, remove_settings
from contextc.formats.lint_engine import (
    ParsedRequest,
    RequestMessage,
    RuleFinding,
    RuleSet,
    find_duplicates,
    make_finding,
)
from contextc.formats.rule_checks import find_empty_request

RULES = RuleSet(
    "CLC",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


def results_before_next_reply(turns: Sequence[RequestMessage]) -> Sequence[int]:
    """Allow results of a line's calls in all user lines up to the next reply, which has one line per block."""
    ends = [len(turns)] * len(turns)
    spoken = len(turns)  # the first later turn that is not the user's
    for index in range(len(turns) - 1, -1, -1):
        name = turns[index].wire.get("id")
        same = bool(name) and spoken < len(turns) and turns[spoken].wire.get("id") == name
        ends[index] = ends[spoken] if same else spoken
        spoken = spoken if turns[index].role == "user" else index
    return ends


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every line has a known type, user and assistant lines have a message, and blocks and tools are complete.

    A message has `content`. A block has a known `type` and the fields of that type. A line that the program wrote,
    which names its session, may have any type.

    Example: [{"type": "user"}]
    Repair: content without a valid shape becomes text, so that the model still sees it. An invalid tool is left out.
    """
    return request.malformed


@rule(2, fix=insert_first_message(RULES))
def check_has_messages(request: ParsedRequest) -> Iterable[RuleFinding]:
    """There is at least one message of the user or the assistant.

    The output of a run that failed before any message is exempt.

    Example: [{"type": "mode", "mode": "normal"}]
    Repair: a user message is inserted which states that nothing has been said yet.
    """
    return find_empty_request(request, "messages is empty.")


@rule(3)
def check_line_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The type of a line equals the role of its message.

    Example: [{"type": "user", "message": {"role": "assistant", "content": "hi"}}]
    Repair: the role is set to the type.
    """
    for turn in request.messages:
        if (role := turn.wire.get("role", turn.role)) != turn.role:
            yield make_finding(
                (*turn.path, "message", "role"), f"role must equal the line's type {turn.role!r}, got {role!r}."
            )


@rule(4)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call has a result before the next reply.

    Claude Code leaves out a call without a result, or answers it with a text which states that it was interrupted.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": "and?"}}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    for _, call in request.match_results(results_before_next_reply).unanswered_calls:
        yield make_finding(call.path, f"call {call.id} has no result before the next reply.")


@rule(5)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool result answers a call in the reply before it.

    A result without a call is left out silently. In a request that continues a session (`resume`), the first results
    may answer calls in the session.

    Example: [{"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": "1"}]}}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    first = next((turn.path for turn in request.messages if turn.role == "assistant"), None)
    held = request.body.get("resume") is not None
    for turn, result in request.match_results(results_before_next_reply).orphan_results:
        if held and (first is None or turn.path < first):
            continue
        yield make_finding(result.path, f"result without a call: call {result.id} not found in the previous reply.")


@rule(6)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call has only one result.

    Claude Code drops a second result silently.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "tool_result",
        "tool_use_id": "a"}]}}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for _, result in request.match_results(results_before_next_reply).duplicate_results:
        yield make_finding(result.path, f"duplicate result for call {result.id}.")


@rule(7)
def check_unique_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The calls of a conversation have different ids.

    The second call is rewritten as "[Tool use interrupted]", and its result is left out.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}}, {"type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}},
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}}]
    Repair: the later call and its result get a new id.
    """
    for call in find_duplicates(call for turn in request.messages for call in turn.parts_of("call")):
        yield make_finding(call.path, f"duplicate call id {call.id}.")


@rule(8, error_texts.WRONG_ROLE)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls and thinking are in assistant lines, results in user lines.

    Example: [{"type": "user", "message": {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "look",
        "input": {}}]}}, {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result",
        "tool_use_id": "a"}]}}]
    Repair: calls and thinking are moved to an assistant line, results to a user line.
    """
    return anthropic.check_block_roles(request)


@rule(9, error_texts.ID_FORM)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of a call contains only letters, digits, `_` and `-`.

    Claude Code sends it unchanged, and the API refuses it.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a.1", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.1"}]}}]
    Repair: other characters are replaced, in the call and in its result.
    """
    return anthropic.check_call_id_format(request)


@rule(10, error_texts.SIGNATURE, fix=fixes.with_valid_thinking)
def check_thinking_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A thinking block has its original signature.

    Claude Code sends it unchanged, and the API refuses it.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text":
        "Hello!"}]}}, {"type": "user", "message": {"role": "user", "content": "go on"}}]
    Repair: the block is left out. Only the model that wrote it could use it.
    """
    return anthropic.check_thinking_signatures(request)


@rule(11, error_texts.INVALID_SESSION_ID, fix=remove_settings("resume"))
def check_session_id(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The id of the session to continue is a UUID.

    Example: {"resume": "my session", "messages": [{"type": "user", "message": {"role": "user", "content": "hi"}}]}
    Repair: the id is left out, and a new session begins.
    """
    if (name := request.body.get("resume")) is not None and not _is_uuid(name):
        yield make_finding(("resume",), f"`resume` must be a UUID, got {name!r}.")


@rule(12, error_texts.TOOL_NAME)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a tool has 1 to 128 letters, digits, `_` and `-`.

    Example: {"tools": [{"name": "files.read", "inputSchema": {"type": "object"}}], "messages": [{"type": "user",
        "message": {"role": "user", "content": "hi"}}]}
    Repair: other characters are replaced.
    """
    return anthropic.check_tool_names(request)


@rule(13, error_texts.DUPLICATE_TOOL, fix=fixes.with_unique_tools)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tools have different names.

    Example: {"tools": [{"name": "look", "inputSchema": {"type": "object"}}, {"name": "look", "inputSchema": {"type":
        "object"}}], "messages": [{"type": "user", "message": {"role": "user", "content": "hi"}}]}
    Repair: the first tool is kept.
    """
    return anthropic.check_unique_tools(request)


def _is_uuid(name: JSON) -> bool:
    try:
        return isinstance(name, str) and str(UUID(name)) == name.lower()
    except ValueError:
        return False

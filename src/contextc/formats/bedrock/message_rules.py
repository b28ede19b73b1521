"""The rules of Bedrock's Converse API for messages, and for tool calls with their results."""

from collections.abc import Iterable

from contextc.formats.bedrock import error_texts, fixes, lint_parser
from contextc.formats.bedrock.encode import USER_ONLY_BLOCKS
from contextc.formats.fix_builders import insert_first_message
from contextc.formats.lint_engine import (
    ParsedRequest,
    RuleFinding,
    RuleSet,
    format_dotted_path,
    make_finding,
    results_in_next_message,
)
from contextc.formats.rule_checks import (
    find_duplicate_ids,
    find_empty_request,
    find_late_results,
    find_misplaced_blocks,
)

RULES = RuleSet(
    "BED",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    vendor="bedrock",
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every message, block and tool has the required fields of its type.

    A message has `role` and `content`. A block is an object with one member, whose name is its type.

    Example: [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
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


@rule(3, error_texts.EMPTY_CONTENT)
def check_not_empty(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No message is empty.

    Example: [{"role": "user", "content": []}, {"role": "assistant", "content": [{"text": "Yes?"}]}, {"role": "user",
        "content": [{"text": "hi"}]}]
    Repair: the message is left out.
    """
    for turn in request.messages:
        if not turn.wire["content"]:
            yield make_finding(turn.path, "this message is empty.")


@rule(4, error_texts.BLANK_TEXT, fix=fixes.without_blank_texts)
def check_no_blank_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    """No text is empty or only white space.

    Models return such texts next to a call, and a history that sends them back is refused. White space is accepted
    between a user's document and a cache breakpoint, which may not follow the document directly.

    Example: [{"role": "user", "content": [{"text": " "}]}]
    Repair: the text is left out.
    """
    for piece in request.system:
        if piece.kind == "text" and not piece.text.strip():
            yield make_finding(piece.path, "this text is blank.")
    for turn in request.messages:
        wires = [piece.wire for piece in turn.parts]
        for index, piece in enumerate(turn.parts):
            if fixes.is_blank(piece.wire) and not fixes.is_separator(wires, index, turn.role):
                yield make_finding(piece.path, "this text is blank.")


@rule(5, error_texts.ROLES_MUST_ALTERNATE)
def check_roles_alternate(request: ParsedRequest) -> Iterable[RuleFinding]:
    """User messages and assistant messages alternate.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "user", "content": [{"text": "Are you there?"}]}]
    Repair: neighbouring messages of one role are merged.
    """
    for before, turn in zip(request.messages, request.messages[1:], strict=False):
        if turn.role == before.role != "system" and not request.malformed:
            yield make_finding(turn.path, f"two messages with role {turn.role} in a row.")


@rule(6, error_texts.UNANSWERED)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool call has a result in the next message.

    A crash, a cancelled turn or a trimmed history leaves a call without a result, and every later request fails.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"text": "and?"}]}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    places = {turn.path: number for number, turn in enumerate(request.messages)}
    for turn, call in request.match_results(results_in_next_message).unanswered_calls:
        where = f"messages.{places[turn.path] + 1}.content"
        yield make_finding(call.path, f"call {call.id} has no result in the next message.", where=where, ids=call.id)


@rule(7, error_texts.RESULTS_FIRST)
def check_results_first(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tool results come before all other blocks of their message.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"text": "Here:"}, {"toolResult":
        {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: results are moved to the front.
    """
    return find_late_results(
        (turn, [piece for piece in turn.parts if "cachePoint" not in piece.wire]) for turn in request.messages
    )


@rule(8, error_texts.ORPHAN_RESULT)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every tool result answers a call in the previous message.

    Example: [{"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    for turn, result in request.match_results(results_in_next_message).orphan_results:
        where = format_dotted_path((*turn.path, "content"))
        yield make_finding(
            result.path, f"result without a call: call {result.id} not found in the previous message.", where=where
        )


@rule(9, error_texts.DUPLICATE_RESULT)
def check_single_result(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A tool call has only one result.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [{"text": "1"}]}}, {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for turn, result in request.match_results(results_in_next_message).duplicate_results:
        where = format_dotted_path((*turn.path, "content"))
        yield make_finding(result.path, f"duplicate result for call {result.id}.", where=where, id=result.id)


@rule(10, error_texts.DUPLICATE_CALL_ID)
def check_unique_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The calls of one reply have different ids.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}, {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}]}, {"role":
        "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: the later call gets a new id.
    """
    for turn, call in find_duplicate_ids(request.messages):
        where = format_dotted_path((*turn.path, "content"))
        yield make_finding(call.path, f"duplicate call id {call.id} in one reply.", where=where, id=call.id)


@rule(11, error_texts.WRONG_ROLE, fix=fixes.with_text_system_messages)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Calls and reasoning are the assistant's, results and media are the user's, and system messages contain only text.

    Example: [{"role": "user", "content": [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"text": "hi"}]}]
    Repair: calls and reasoning are moved to an assistant message, results to a user message. A line of text replaces
        other media.
    """
    return find_misplaced_blocks(
        request,
        lambda block: next(iter(block.wire)),
        lambda message, media: message.role == "system" or not USER_ONLY_BLOCKS.isdisjoint(media.wire),
    )

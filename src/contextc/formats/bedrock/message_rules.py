"""The rules of Bedrock's Converse API for messages, and for tool calls with their results."""

from collections.abc import Iterable

from contextc.formats.bedrock import errors, mends, sketch
from contextc.formats.bedrock.encode import SHOWN
from contextc.formats.checking import (
    Finding,
    RuleBook,
    Sketch,
    at,
    dotted,
    match,
    next_turn,
    repeated,
)

BOOK = RuleBook("BED", sketch.read, reshape=sketch.reshape, message=sketch.message, block=sketch.block, house="bedrock")
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, block and tool has the required fields of its type.

    A message has `role` and `content`. A block is an object with one member, whose name is its type.

    Example: [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    Repair: content without a valid shape becomes text, so that the model still sees it. An invalid tool is left out.
    """
    return request.misshapen


@rule(2, errors.NO_MESSAGES, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """A request has at least one message.

    Example: []
    Repair: a user message is inserted which states that nothing has been said yet.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "messages is empty.")


@rule(3, errors.EMPTY_CONTENT)
def says_something(request: Sketch) -> Iterable[Finding]:
    """No message is empty.

    Example: [{"role": "user", "content": []}, {"role": "assistant", "content": [{"text": "Yes?"}]}, {"role": "user",
        "content": [{"text": "hi"}]}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        if not turn.wire["content"]:
            yield at(turn.path, "this message is empty.")


@rule(4, errors.BLANK_TEXT, mend=mends.without_blanks)
def texts_are_not_blank(request: Sketch) -> Iterable[Finding]:
    """No text is empty or only white space.

    Models return such texts next to a call, and a history that sends them back is refused. White space is accepted
    between a user's document and a cache breakpoint, which may not follow the document directly.

    Example: [{"role": "user", "content": [{"text": " "}]}]
    Repair: the text is left out.
    """
    for piece in request.prompt:
        if piece.kind == "text" and not piece.text.strip():
            yield at(piece.path, "this text is blank.")
    for turn in request.turns:
        wires = [piece.wire for piece in turn.pieces]
        for index, piece in enumerate(turn.pieces):
            if mends.is_blank(piece.wire) and not mends.is_separator(wires, index, turn.role):
                yield at(piece.path, "this text is blank.")


@rule(5, errors.ALTERNATE)
def roles_alternate(request: Sketch) -> Iterable[Finding]:
    """User messages and assistant messages alternate.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "user", "content": [{"text": "Are you there?"}]}]
    Repair: neighbouring messages of one role are merged.
    """
    for before, turn in zip(request.turns, request.turns[1:], strict=False):
        if turn.role == before.role != "system" and not request.misshapen:
            yield at(turn.path, f"two messages with role {turn.role} in a row.")


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every tool call has a result in the next message.

    A crash, a cancelled turn or a trimmed history leaves a call without a result, and every later request fails.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"text": "and?"}]}]
    Repair: a result found elsewhere is moved to its call. Otherwise a result is inserted which states that it is
        missing.
    """
    places = {turn.path: number for number, turn in enumerate(request.turns)}
    for turn, call in match(request.turns, next_turn).unanswered:
        where = f"messages.{places[turn.path] + 1}.content"
        yield at(call.path, f"call {call.id} has no result in the next message.", where=where, ids=call.id)


@rule(7, errors.RESULTS_FIRST)
def results_come_first(request: Sketch) -> Iterable[Finding]:
    """Tool results come before all other blocks of their message.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"text": "Here:"}, {"toolResult":
        {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: results are moved to the front.
    """
    for turn in request.turns:
        pieces = [piece for piece in turn.pieces if "cachePoint" not in piece.wire]
        results = [piece for piece in pieces if piece.kind == "result"]
        others = [index for index, piece in enumerate(pieces) if piece.kind != "result"]
        if results and others and others[0] < len(results):
            message = f"another block comes before the result of call {results[-1].id}."
            yield at(pieces[others[0]].path, message, where=dotted(turn.path), count=len(results))


@rule(8, errors.ORPHAN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every tool result answers a call in the previous message.

    Example: [{"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: a result is moved to its call. A result without a call becomes text.
    """
    for turn, result in match(request.turns, next_turn).orphans:
        where = dotted((*turn.path, "content"))
        yield at(
            result.path, f"result without a call: call {result.id} not found in the previous message.", where=where
        )


@rule(9, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A tool call has only one result.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content":
        [{"text": "1"}]}}, {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: the first result is kept. Another one with different content becomes text.
    """
    for turn, result in match(request.turns, next_turn).doubled:
        where = dotted((*turn.path, "content"))
        yield at(result.path, f"duplicate result for call {result.id}.", where=where, id=result.id)


@rule(10, errors.REUSED_ID)
def ids_are_used_once(request: Sketch) -> Iterable[Finding]:
    """The calls of one reply have different ids.

    Example: [{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId":
        "a", "name": "look", "input": {}}}, {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}]}, {"role":
        "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]}]
    Repair: the later call gets a new id.
    """
    for turn in request.turns:
        for call in repeated(turn.of("call")):
            where = dotted((*turn.path, "content"))
            yield at(call.path, f"duplicate call id {call.id} in one reply.", where=where, id=call.id)


@rule(11, errors.WRONG_ROLE, mend=mends.with_text_for_the_system)
def blocks_stand_with_their_role(request: Sketch) -> Iterable[Finding]:
    """Calls and reasoning are the assistant's, results and media are the user's, and system messages contain only text.

    Example: [{"role": "user", "content": [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"text": "hi"}]}]
    Repair: calls and reasoning are moved to an assistant message, results to a user message. A line of text replaces
        other media.
    """
    for turn in request.turns:
        for piece in turn.pieces:
            role = {"call": "assistant", "reasoning": "assistant", "result": "user"}.get(piece.kind, turn.role)
            if piece.kind == "media" and (turn.role == "system" or not SHOWN.isdisjoint(piece.wire)):
                role = "user"
            if role != turn.role:
                kind = next(iter(piece.wire))
                yield at(
                    piece.path,
                    f"a `{kind}` block is not allowed in a message with role {turn.role}.",
                    kind=kind,
                    role=role,
                )

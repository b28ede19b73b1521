"""The rules of the Vercel AI SDK, version 7, and those that every provider behind it has.

The SDK itself is the judge, tried with a model that answers nothing. What it lets pass but no provider would take (a
result without a call) is a violation all the same.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.checking import Finding, RuleBook, Sketch, at
from contextc.formats.settings import inner
from contextc.formats.vercel import errors, mends, reshape, sketch

BOOK = RuleBook(
    "VER",
    sketch.read,
    reshape=reshape.reshape,
    message=reshape.message,
    block=reshape.block,
    unknown=sketch.unknown,
)
rule = BOOK.rule


def _misshapen(request: Sketch, rule: str) -> Iterable[Finding]:
    return [finding for finding in request.misshapen if finding.facts["rule"] == rule]


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message, part and tool has the fields its kind must have.

    A message has a `role` and `content`, or, as a `UIMessage`, `parts`; a part has a `type` that the SDK knows, and the
    fields of that type. The SDK does not look: what has no shape is lost on the way, or fails in the provider's code.

    Example: [{"role": "user", "content": [{"type": "text"}]}]
    Repair: shapes of older versions become today's; what has no sound shape becomes text, and a tool is left out.
    """
    return _misshapen(request, "")


@rule(2, errors.BAD_ROLE)
def roles_are_known(request: Sketch) -> Iterable[Finding]:
    """A message is of the system, the user, the assistant or a tool.

    Role `function` went with version 4.

    Example: [{"role": "user", "content": "hi"}, {"role": "developer", "content": "Be brief."}]
    Repair: the role becomes the one that was meant, or the user's.
    """
    return _misshapen(request, "role")


@rule(3)
def calls_stand_in_content(request: Sketch) -> Iterable[Finding]:
    """Calls are parts of `content`, not fields beside it.

    `function_call`, `tool_calls` and `toolInvocations` of older versions are taken off without a word, and the model
    sees results it never asked for.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "function_call": {"name": "look",
        "arguments": "{}"}}]
    Repair: each becomes a `tool-call` part.
    """
    return _misshapen(request, "stripped")


@rule(4, errors.NO_INPUT)
def calls_have_an_input(request: Sketch) -> Iterable[Finding]:
    """A call has its arguments in `input`, even where there are none.

    Older versions called it `args`. A call without arguments easily loses the field on its way through JSON, and the
    provider refuses it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "args": {"at": "a.py"}}]}]
    Repair: `args` becomes `input`; where there is neither, it is an empty object.
    """
    return _misshapen(request, "input")


@rule(5, errors.BAD_DATA)
def files_have_data_or_an_address(request: Sketch) -> Iterable[Finding]:
    """A file is base64, a whole data URL, or the URL of something.

    Example: [{"role": "user", "content": [{"type": "file", "mediaType": "image/png", "data": {"type": "data", "data":
        "data:image/png;base64,iVBORw0KGgo="}}]}]
    Repair: a data URL is written where the SDK takes one; what is neither becomes text.
    """
    return _misshapen(request, "data")


@rule(6, errors.NO_MESSAGES, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message.

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    prompted = request.body.get("prompt") is not None and request.body.get("messages") is None
    if not request.turns and not request.misshapen and not prompted:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(7, errors.EMPTY, mend=mends.without_empty)
def says_something(request: Sketch) -> Iterable[Finding]:
    """No message of the user or the assistant is empty.

    The SDK takes empty texts out, but sends the message that is left; most providers refuse it.

    Example: [{"role": "user", "content": []}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        if turn.role in mends.WHO_SPEAKS and mends.is_empty(turn.wire):
            yield at(turn.path, "this message is empty.")


@rule(8, errors.SYSTEM_AMONG_MESSAGES, mend=mends.with_system_allowed)
def system_messages_are_allowed(request: Sketch) -> Iterable[Finding]:
    """System messages stand among the others only with `allowSystemInMessages`.

    The SDK wants to be told that they come from you. Without a whole request this cannot be checked.

    Example: {"model": "anthropic/claude-opus-5-5", "messages": [{"role": "system", "content": "Be brief."}, {"role":
        "user", "content": "hi"}]}
    Repair: `allowSystemInMessages` is set.
    """
    if len(request.body) < 2 or request.body.get("allowSystemInMessages"):
        return
    for turn in request.turns:
        if turn.role == "system":
            yield at(turn.path, "a system message stands among the others, and `allowSystemInMessages` is not set.")
            return


@rule(9, mend=mends.with_one_system_prompt)
def one_system_prompt(request: Sketch) -> Iterable[Finding]:
    """The system prompt is in `instructions`, or in `system`, as it was called before; not in both.

    With both, the SDK takes `instructions` and forgets the other without a word.

    Example: {"instructions": "Be brief.", "system": "Speak French.", "messages": [{"role": "user", "content": "hi"}]}
    Repair: both become one.
    """
    if request.body.get("instructions") and request.body.get("system"):
        yield at(("system",), "there are `instructions` already, and `system` would not be sent.")


@rule(10, errors.TWO_PROMPTS, mend=mends.with_prompt_among_messages)
def prompt_or_messages(request: Sketch) -> Iterable[Finding]:
    """A request has `messages` or a `prompt`; not both.

    With both, the SDK takes `prompt` and forgets the history without a word.

    Example: {"prompt": "and now?", "messages": [{"role": "user", "content": "hi"}]}
    Repair: the prompt becomes the last message.
    """
    if request.body.get("prompt") is not None and request.body.get("messages"):
        yield at(("prompt",), "there are messages as well, and they would not be sent.")


@rule(11, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered in the tool messages that follow, before the user or the system speaks again.

    A call that waits for approval needs a result as well, unless the last message approves or denies it; and so does
    a `UIMessage`'s call in the state `input-available`. What a provider ran itself does not.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "input": {}}]}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in sketch.pairs(request.turns).unanswered:
        yield at(call.path, f"the call {call.id} has no result before somebody else speaks.", id=call.id)


@rule(12, errors.ORPHAN, mend=mends.with_orphans_as_text)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every result answers a call that stands before it.

    The SDK lets such a result pass; the provider behind it refuses it.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}]}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    for _, result in sketch.pairs(request.turns).orphans:
        yield at(result.path, f"no call {result.id} waits for a result here.", id=result.id)


@rule(13, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    The SDK lets another pass; the provider behind it refuses it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId":
        "a", "toolName": "look", "input": {}}]}, {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}, {"type": "tool-result", "toolCallId": "a",
        "toolName": "look", "output": {"type": "text", "value": "1"}}]}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in sketch.pairs(request.turns).doubled:
        yield at(result.path, f"the call {result.id} has another result already.", id=result.id)


@rule(14, errors.WRONG_ROLE, mend=mends.with_strangers_as_text)
def parts_stand_with_their_role(request: Sketch) -> Iterable[Finding]:
    """Calls and reasoning are the assistant's, results stand in tool messages, and so do answers to approvals.

    Only what a provider ran itself has its result beside the call. A `UIMessage` of the user loses such parts.

    Example: [{"role": "user", "content": [{"type": "tool-call", "toolCallId": "a", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "look", "output": {"type":
        "text", "value": "1"}}]}]
    Repair: what a model said becomes the assistant's, results get a tool message; what has no place becomes text.
    """
    orphans = {piece.path for _, piece in sketch.pairs(request.turns).orphans}
    ran = sketch.ran_by_provider(request.turns)
    for turn in request.turns:
        for piece in mends.strangers(turn, ran):
            if piece.path not in orphans:
                yield at(piece.path, f"a `{piece.wire['type']}` part cannot stand in a message of role {turn.role}.")


@rule(15, errors.UNKNOWN_APPROVAL, mend=mends.without_unasked_answers)
def approvals_were_asked_for(request: Sketch) -> Iterable[Finding]:
    """An answer to a request for approval, in the last message, names a request that was made for a call.

    Example: [{"role": "user", "content": "hi"}, {"role": "tool", "content": [{"type": "tool-approval-response",
        "approvalId": "ok1", "approved": true}]}]
    Repair: the answer is left out; its reason becomes text.
    """
    for piece, call_id in sketch.approvals(request.turns):
        if call_id is None:
            asked = piece.wire["approvalId"]
            yield at(piece.path, f"nobody asked for the approval {asked}, or its call is gone.", id=asked)


@rule(16, errors.SIGNATURE, mend=mends.without_broken_proof)
def reasoning_is_signed(request: Sketch) -> Iterable[Finding]:
    """Reasoning that Anthropic signed has the signature it came with.

    The SDK passes it on as it is, and Anthropic refuses a damaged one.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "reasoning", "text": "hm",
        "providerOptions": {"anthropic": {"signature":
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}}, {"type": "text", "text":
        "Hello!"}]}, {"role": "user", "content": "go on"}]
    Repair: the signature is taken off; without one, the SDK keeps the reasoning from Anthropic.
    """
    for turn in request.turns:
        for piece in turn.of("reasoning"):
            if not mends.is_sound(piece.wire):
                yield at(piece.path, "the signature of this reasoning is not one of Anthropic's.")


@rule(17, errors.UNKNOWN_CHOICE, mend=mends.without_choice)
def chosen_tool_is_there(request: Sketch) -> Iterable[Finding]:
    """The tool that `toolChoice` names is among the tools.

    Example: {"tools": {"look": {"inputSchema": {"type": "object"}}}, "toolChoice": {"type": "tool", "toolName":
        "find"}, "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model.
    """
    name: JSON = inner(request.body.get("toolChoice")).get("toolName")
    tools = request.body.get("tools")
    known = cast(JSONObject, tools) if isinstance(tools, dict) else [tool.id for tool in request.tools]
    if isinstance(name, str) and tools and name not in known:
        yield at(("toolChoice",), f"there is no tool {name!r}.", name=name)


@rule(18)
def messages_are_of_one_kind(request: Sketch) -> Iterable[Finding]:
    """All messages are `ModelMessage`s, or all are `UIMessage`s.

    `convertToModelMessages` fails on the first message without `parts`, and nothing else takes one that has them.

    Example: [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content":
        "Hello!"}]
    Repair: all become `ModelMessage`s.
    """
    shown = [isinstance(turn.wire.get("parts"), list) for turn in request.turns]
    if any(shown) and not all(shown):
        odd = request.turns[shown.index(not shown[0])]
        yield at(odd.path, "this message is of another kind than the one before it.")

"""The rules of the AI SDK's older shape, with `function_call` and role `function`.

Nobody checks it any more, so these are the rules of the API it was made for, as far as they concern what goes with
what; and of version 4 of the SDK where a message has `toolInvocations`.
"""

from collections.abc import Iterable

from contextc._json import JSON, encode
from contextc.formats.checking import Finding, RuleBook, Sketch, at
from contextc.formats.settings import inner
from contextc.formats.vercel_legacy import errors, mends, sketch

BOOK = RuleBook(
    "VEL",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.message,
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every message and function has the fields its kind must have.

    A message has a `role` and `content`, which is text, or null beside a call.

    Example: [{"role": "user", "content": ["hi"]}]
    Repair: content in parts becomes one text, and so does what has no sound shape; a function is left out.
    """
    return request.misshapen


@rule(2, errors.NO_MESSAGES, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message.

    Example: []
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(3, errors.EMPTY, mend=mends.without_empty)
def says_something(request: Sketch) -> Iterable[Finding]:
    """No message is empty, except a result.

    Example: [{"role": "user", "content": ""}]
    Repair: the message is left out.
    """
    for turn in request.turns:
        if mends.is_empty(turn.wire):
            yield at(turn.path, "this message is empty.")


@rule(4, errors.ARGUMENTS)
def arguments_are_text(request: Sketch) -> Iterable[Finding]:
    """The arguments of a call are text: JSON as the model wrote it.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": {"at": "a.py"}}}, {"role": "function", "name": "look", "content": "1"}]
    Repair: they are written as text.
    """
    for turn in request.turns:
        for call in turn.of("call"):
            given: JSON = call.wire.get("arguments")
            if call.wire and not isinstance(given, str):
                kind = type(given).__name__
                yield at(call.path, f"the arguments of {call.name} are not text.", kind=kind)


@rule(5, errors.WRONG_ROLE, mend=mends.with_calls_of_the_assistant)
def calls_are_the_assistants(request: Sketch) -> Iterable[Finding]:
    """Only the assistant makes calls.

    Example: [{"role": "user", "content": "hi", "function_call": {"name": "look", "arguments": "{}"}}, {"role":
        "function", "name": "look", "content": "1"}]
    Repair: the message becomes the assistant's.
    """
    for turn in request.turns:
        if turn.role != "assistant" and (turn.of("call") or (turn.role != "data" and sketch.invocations(turn.wire))):
            yield at(turn.path, f"a message of the {turn.role} makes a call.")


@rule(6, errors.UNANSWERED)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered by a message of role `function`, before anybody says something else.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}}, {"role": "user", "content": "and?"}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in sketch.pairs(request.turns).unanswered:
        name = call.name or call.id
        yield at(call.path, f"the call of {name} has no result before somebody speaks.", name=name)


@rule(7, errors.INVOCATION)
def invocations_have_a_result(request: Sketch) -> Iterable[Finding]:
    """A call in `toolInvocations` has its result in it.

    An answer that was stopped leaves one in the state `call` or `partial-call`, and the conversation is stuck.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "toolInvocations": [{"state":
        "call", "toolCallId": "a", "toolName": "look", "args": {}}]}]
    Repair: it becomes a `function_call`, and a result says that it is missing.
    """
    for turn in request.turns:
        for each in sketch.invocations(turn.wire) if turn.role != "data" else ():
            if each["state"] != "result":
                text = encode(each).decode()
                yield at(turn.path, f"the call {each['toolCallId']} has no result.", invocation=text)


@rule(8, errors.ORPHAN)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every result answers a call that waits for it: by `tool_call_id` where both have one, else by name.

    Example: [{"role": "user", "content": "hi"}, {"role": "function", "name": "look", "content": "1"}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    for _, result in sketch.pairs(request.turns).orphans:
        name = result.name or result.id
        yield at(result.path, f"no call of {name} waits for this result.", name=name)


@rule(9, errors.DOUBLED)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}}, {"role": "function", "name": "look", "content": "1"}, {"role": "function", "name":
        "look", "content": "1"}]
    Repair: the first is kept; another becomes text.
    """
    for _, result in sketch.pairs(request.turns).doubled:
        name = result.name or result.id
        yield at(result.path, f"the call of {name} has another result already.", name=name)


@rule(10, errors.NO_NAME)
def results_are_named(request: Sketch) -> Iterable[Finding]:
    """A message of role `function` has the name of the function.

    Example: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "function_call": {"name":
        "look", "arguments": "{}"}, "tool_call_id": "a"}, {"role": "function", "content": "1", "tool_call_id": "a"}]
    Repair: it gets the name of its call.
    """
    for turn in request.turns:
        if turn.role == "function" and not turn.wire.get("name"):
            yield at(turn.path, "this result does not say of which function it is.")


@rule(11, errors.UNKNOWN_CHOICE, mend=mends.without_choice)
def chosen_function_is_there(request: Sketch) -> Iterable[Finding]:
    """The function that `function_call` names is among the functions.

    Example: {"functions": [{"name": "look", "parameters": {"type": "object"}}], "function_call": {"name": "find"},
        "messages": [{"role": "user", "content": "hi"}]}
    Repair: the choice is left to the model.
    """
    name: JSON = inner(request.body.get("function_call")).get("name")
    if isinstance(name, str) and request.tools and name not in [tool.id for tool in request.tools]:
        yield at(("function_call",), f"there is no function {name!r}.", name=name)

"""What must be true of lines that are given to Claude Code.

It refuses little. What does not fit it drops or rewrites without a word, and a model that misses a call or its result
is not told so; those rules come without a sentence of its own. Held against the real program, version 2.1.325.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from contextc._json import JSON
from contextc.formats.anthropic import rules as anthropic
from contextc.formats.checking import Finding, RuleBook, Sketch, Turn, at, match, repeated
from contextc.formats.claude_code import errors, mends, sketch

BOOK = RuleBook(
    "CLC",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.block,
    unknown=sketch.unknown,
)
rule = BOOK.rule


def answers(turns: Sequence[Turn]) -> Sequence[int]:
    """Where the results of a line's calls may stand: in all lines of the user up to the next reply, of which there is
    a line a block.
    """
    ends = [len(turns)] * len(turns)
    spoken = len(turns)  # the first turn behind this one that is not the user's
    for index in range(len(turns) - 1, -1, -1):
        name = turns[index].wire.get("id")
        same = bool(name) and spoken < len(turns) and turns[spoken].wire.get("id") == name
        ends[index] = ends[spoken] if same else spoken
        spoken = spoken if turns[index].role == "user" else index
    return ends


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every line has a type that is known; one of the user or the assistant has a message; blocks and tools are whole.

    A message has `content`, a block a `type` that the API knows, and the fields of that type. A line that the program
    wrote itself, which names its session, may have any type.

    Example: [{"type": "user"}]
    Repair: what has no sound shape becomes text, so that the model still sees it; a tool is left out.
    """
    return request.misshapen


@rule(2, mend=mends.with_a_message)
def has_messages(request: Sketch) -> Iterable[Finding]:
    """There is at least one message of the user or the assistant.

    What a run printed that failed before anything was said is a record, and needs none.

    Example: [{"type": "mode", "mode": "normal"}]
    Repair: a line that says so is put in, from the user.
    """
    if not request.turns and not request.misshapen:
        yield at(("messages",) if request.body else (), "there are no messages.")


@rule(3)
def type_and_role_agree(request: Sketch) -> Iterable[Finding]:
    """The type of a line is the role of its message.

    Example: [{"type": "user", "message": {"role": "assistant", "content": "hi"}}]
    Repair: the role becomes what the type says.
    """
    for turn in request.turns:
        if (role := turn.wire.get("role", turn.role)) != turn.role:
            yield at((*turn.path, "message", "role"), f"the role is {role!r} in a line of type {turn.role!r}.")


@rule(4)
def calls_are_answered(request: Sketch) -> Iterable[Finding]:
    """Every call is answered before the next reply.

    A call without a result is left out of what the model sees, or answered with a text that says it was interrupted.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": "and?"}}]
    Repair: a result that stands elsewhere is brought to its call; where there is none, one says that it is missing.
    """
    for _, call in match(request.turns, answers).unanswered:
        yield at(call.path, f"the call {call.id} has no result before the next reply.")


@rule(5)
def results_have_calls(request: Sketch) -> Iterable[Finding]:
    """Every result answers a call of the reply before it.

    A result without a call is left out without a word. In a request that goes on with a session (`resume`), the first
    results may answer calls that the session holds.

    Example: [{"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": "1"}]}}]
    Repair: a result whose call stands elsewhere is brought to it; one without a call becomes text.
    """
    first = next((turn.path for turn in request.turns if turn.role == "assistant"), None)
    held = request.body.get("resume") is not None
    for turn, result in match(request.turns, answers).orphans:
        if held and (first is None or turn.path < first):
            continue
        yield at(result.path, f"no call {result.id} stands in the reply before.")


@rule(6)
def calls_have_one_result(request: Sketch) -> Iterable[Finding]:
    """A call has one result.

    A second one is left out without a word.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "tool_result",
        "tool_use_id": "a"}]}}]
    Repair: the first is kept; another that says something else becomes text.
    """
    for _, result in match(request.turns, answers).doubled:
        yield at(result.path, f"the call {result.id} has another result already.")


@rule(7)
def ids_are_used_once(request: Sketch) -> Iterable[Finding]:
    """No two calls of a conversation have the same id.

    The second is rewritten as "[Tool use interrupted]", and its result left out.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}}, {"type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}},
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}}]
    Repair: the later call and its result get an id of their own.
    """
    for call in repeated(call for turn in request.turns for call in turn.of("call")):
        yield at(call.path, f"an earlier call is called {call.id} already.")


@rule(8, errors.WRONG_ROLE)
def blocks_stand_with_their_role(request: Sketch) -> Iterable[Finding]:
    """Calls and thinking are the assistant's, results are the user's.

    Example: [{"type": "user", "message": {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "look",
        "input": {}}]}}, {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result",
        "tool_use_id": "a"}]}}]
    Repair: what a model said becomes the assistant's, results become the user's.
    """
    return anthropic.blocks_stand_with_their_role(request)


@rule(9, errors.ID_FORM)
def ids_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The id of a call is made of letters, digits, `_` and `-`.

    Claude Code hands it on as it is, and the API refuses it.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "tool_use", "id": "a.1", "name": "look", "input": {}}]}}, {"type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.1"}]}}]
    Repair: the id is spelled with the characters that are allowed, on the call and on its result.
    """
    return anthropic.ids_have_the_form(request)


@rule(10, errors.SIGNATURE, mend=mends.with_sound_thinking)
def thinking_is_signed(request: Sketch) -> Iterable[Finding]:
    """A thinking block has the signature it came with.

    Claude Code hands it on as it is, and the API refuses it.

    Example: [{"type": "user", "message": {"role": "user", "content": "hi"}}, {"type": "assistant", "message": {"role":
        "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text":
        "Hello!"}]}}, {"type": "user", "message": {"role": "user", "content": "go on"}}]
    Repair: the block is left out; nobody but the model that wrote it could have read it.
    """
    return anthropic.thinking_is_signed(request)


@rule(11, errors.SESSION, mend=mends.without_session)
def a_session_is_named_by_a_uuid(request: Sketch) -> Iterable[Finding]:
    """The session to go on with is named by a UUID.

    Example: {"resume": "my session", "messages": [{"type": "user", "message": {"role": "user", "content": "hi"}}]}
    Repair: the name is left out, and a new session begins.
    """
    if (name := request.body.get("resume")) is not None and not _is_uuid(name):
        yield at(("resume",), f"{name!r} is no UUID.")


@rule(12, errors.TOOL_NAME)
def tools_have_good_names(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is made of letters, digits, `_` and `-`, at most 128 of them.

    Example: {"tools": [{"name": "files.read", "inputSchema": {"type": "object"}}], "messages": [{"type": "user",
        "message": {"role": "user", "content": "hi"}}]}
    Repair: the name is spelled with the characters that are allowed.
    """
    return anthropic.tool_names_have_the_form(request)


@rule(13, errors.TOOL_TWICE, mend=mends.with_tools_once)
def tools_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two tools have the same name.

    Example: {"tools": [{"name": "look", "inputSchema": {"type": "object"}}, {"name": "look", "inputSchema": {"type":
        "object"}}], "messages": [{"type": "user", "message": {"role": "user", "content": "hi"}}]}
    Repair: the first of them is kept.
    """
    return anthropic.tools_are_named_once(request)


def _is_uuid(name: JSON) -> bool:
    try:
        return isinstance(name, str) and str(UUID(name)) == name.lower()
    except ValueError:
        return False

"""The rules of a thread of Codex, as far as it can be held against them without asking.

The app-server refuses some of this in words. Of the rest it says nothing, and goes on with something else than was
meant, which is worse.
"""

from collections.abc import Iterable

from contextc.formats.checking import Finding, RuleBook, Sketch, at, repeated
from contextc.formats.codex import errors, mends, sketch
from contextc.formats.codex.names import NAMES

BOOK = RuleBook(
    "COD",
    sketch.read,
    reshape=sketch.reshape,
    message=sketch.message,
    block=sketch.block,
    key="items",
    unknown=sketch.unknown,
)
rule = BOOK.rule


@rule(1, errors.MISSHAPEN)
def has_the_shape(request: Sketch) -> Iterable[Finding]:
    """Every item, block and tool has the fields its kind must have.

    An item has a `type` that Codex knows, and the fields of that type. What a user says is a list of blocks, and what a
    tool returned is one too. What Codex itself wrote, in an event or a line of its record, may have any type.

    Example: [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}, {"type": "agentMessage",
        "id": "2"}]
    Repair: it gets the shape that was meant; what has none becomes text, and a tool is left out.
    """
    return request.misshapen


@rule(2, errors.NO_ID, mend=mends.with_ids)
def items_have_ids(request: Sketch) -> Iterable[Finding]:
    """Every item has an id.

    The results of approvals, the deltas of a stream and a call of a tool are told apart by it.

    Example: [{"type": "userMessage", "content": [{"type": "text", "text": "hi"}]}]
    Repair: the item gets an id that is made of what it says.
    """
    for turn in request.turns:
        if turn.role != "record" and not turn.wire.get("id"):
            yield at(turn.path, f"this {turn.wire['type']} has no id.")


@rule(3, errors.THREAD_ID, mend=mends.without_thread)
def thread_is_named_by_a_uuid(request: Sketch) -> Iterable[Finding]:
    """A thread is resumed by its id, which is a UUID.

    `codex exec resume` takes anything else for a name, and where there is none of it begins a new thread without a
    word: the history is gone, and the answer is one to a question without it.

    Example: {"threadId": "thread_1", "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text":
        "hi"}]}]}
    Repair: the id is left out, and a new thread begins.
    """
    name = request.body.get("threadId")
    if name is not None and not mends.is_thread(name):
        yield at(("threadId",), "a thread is named by a UUID, and this is none.", problem=repr(name))


@rule(4)
def calls_are_done(request: Sketch) -> Iterable[Finding]:
    """A call that other items follow has come to its end.

    A crash or a cancelled turn leaves a call `inProgress`. Imported so, it has no result, and the API refuses every
    later request of the thread.

    Example: [{"type": "dynamicToolCall", "id": "a", "tool": "look", "arguments": {}, "status": "inProgress"}, {"type":
        "userMessage", "id": "1", "content": [{"type": "text", "text": "and?"}]}]
    Repair: a result says that it is missing.
    """
    for turn in mends.left_running(request.turns):
        yield at(turn.path, f"the call {turn.wire.get('id')} is still running, and the thread has gone on.")


@rule(5, errors.TOOL_NAME, mend=mends.with_spelled_names)
def tool_names_have_the_form(request: Sketch) -> Iterable[Finding]:
    """The name of a tool is made of 1 to 128 letters, digits, `_` and `-`, and does not begin with `mcp__`.

    Example: {"dynamicTools": [{"type": "function", "name": "files.read", "description": "", "inputSchema": {"type":
        "object"}}], "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}]}
    Repair: the name is spelled with the characters that are allowed, wherever it stands.
    """
    for tool in request.tools:
        if not NAMES.takes(tool.name) or tool.name.startswith(NAMES.reserved):
            message = f"the name {tool.name!r} has characters that are not allowed, too many, or is kept for others."
            yield at(tool.path, message, name=tool.name)


@rule(6, errors.DOUBLED, mend=mends.with_names_once)
def tools_are_named_once(request: Sketch) -> Iterable[Finding]:
    """No two tools have the same name.

    Example: {"dynamicTools": [{"type": "function", "name": "look", "description": "", "inputSchema": {"type":
        "object"}}, {"type": "function", "name": "look", "description": "", "inputSchema": {"type": "object"}}],
        "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}]}
    Repair: the first is kept.
    """
    for tool in repeated(request.tools):
        yield at(tool.path, f"another tool is called {tool.name!r} already.", name=tool.name)

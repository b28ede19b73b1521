"""The lint rules of a Codex thread.

The app-server refuses some violations with an error. It accepts others silently and does something else than intended.
"""

from collections.abc import Iterable

from contextc.formats.codex import error_texts, fixes, lint_parser
from contextc.formats.codex.names_and_ids import NAMES
from contextc.formats.fix_builders import remove_settings
from contextc.formats.lint_engine import ParsedRequest, RuleFinding, RuleSet, find_duplicates, make_finding

RULES = RuleSet(
    "COD",
    lint_parser.parse_request,
    coerce=lint_parser.coerce_value,
    message=lint_parser.text_message,
    block=lint_parser.text_block,
    messages_key="items",
    unknown_fields=lint_parser.find_unknown_fields,
)
rule = RULES.register


@rule(1, error_texts.MALFORMED)
def check_schema(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every item, block and tool has the required fields of its type.

    An item has a known `type` and the fields of that type. The content of a user message, and the output of a tool, are
    lists of blocks. An event, or a line of a rollout file that Codex wrote, may have any type.

    Example: [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}, {"type": "agentMessage",
        "id": "2"}]
    Repair: the intended shape is restored. Anything else becomes text, and an invalid tool is left out.
    """
    return request.malformed


@rule(2, error_texts.NO_ID, fix=fixes.with_item_ids)
def check_item_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Every item has an id.

    Approvals, stream deltas and tool calls refer to items by id.

    Example: [{"type": "userMessage", "content": [{"type": "text", "text": "hi"}]}]
    Repair: the item gets an id derived from its content.
    """
    for turn in request.messages:
        if turn.role != "record" and not turn.wire.get("id"):
            yield make_finding(turn.path, f"this {turn.wire['type']} has no `id`.")


@rule(3, error_texts.INVALID_THREAD_ID, fix=remove_settings("threadId"))
def check_thread_id(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A thread is resumed by its id, which is a UUID.

    `codex exec resume` treats any other text as a name. If no thread has this name, it silently starts a new thread
    without the history.

    Example: {"threadId": "thread_1", "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text":
        "hi"}]}]}
    Repair: the id is left out, and a new thread begins.
    """
    name = request.body.get("threadId")
    if name is not None and not fixes.is_thread_id(name):
        yield make_finding(("threadId",), "`threadId` must be a UUID.", problem=repr(name))


@rule(4)
def check_calls_finished(request: ParsedRequest) -> Iterable[RuleFinding]:
    """A call that is followed by other items has finished.

    A crash or a cancelled turn leaves a call `inProgress`. If it is imported like that, it has no result, and the API
    refuses every later request of the thread.

    Example: [{"type": "dynamicToolCall", "id": "a", "tool": "look", "arguments": {}, "status": "inProgress"}, {"type":
        "userMessage", "id": "1", "content": [{"type": "text", "text": "and?"}]}]
    Repair: a result is added which states that it is missing.
    """
    for turn in fixes.find_unfinished_calls(request.messages):
        yield make_finding(turn.path, f"call {turn.wire.get('id')} is still running, although other items follow.")


@rule(5, error_texts.TOOL_NAME, fix=fixes.with_encoded_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    """The name of a tool has 1 to 128 letters, digits, `_` and `-`, and does not begin with `mcp__`.

    Example: {"dynamicTools": [{"type": "function", "name": "files.read", "description": "", "inputSchema": {"type":
        "object"}}], "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}]}
    Repair: other characters are replaced, wherever the name is used.
    """
    for tool in request.tools:
        if not NAMES.accepts(tool.name) or tool.name.startswith(NAMES.reserved):
            message = f"invalid or reserved tool name {tool.name!r}: expected 1 to 128 letters, digits, `_` and `-`."
            yield make_finding(tool.path, message, name=tool.name)


@rule(6, error_texts.DUPLICATE_TOOL, fix=fixes.with_unique_names)
def check_unique_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    """Tools have different names.

    Example: {"dynamicTools": [{"type": "function", "name": "look", "description": "", "inputSchema": {"type":
        "object"}}, {"type": "function", "name": "look", "description": "", "inputSchema": {"type": "object"}}],
        "items": [{"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}]}
    Repair: the first tool is kept.
    """
    for tool in find_duplicates(request.tools):
        yield make_finding(tool.path, f"duplicate tool name {tool.name!r}.", name=tool.name)

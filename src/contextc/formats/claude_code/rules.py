"""The lint rules of lines that are sent to Claude Code: the reader of lines, the fixes, and the rules.

Claude Code refuses little. It drops or rewrites invalid input silently, and the model does not see that a call or its
result is missing. Rules for such input have no error text. Verified with the program, version 2.1.325. Anthropic's
reader reads the messages in the lines.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast
from uuid import UUID

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import rules as anthropic
from contextc.formats.claude_code import error_texts
from contextc.formats.claude_code.codec import (
    MESSAGE_TYPES,
    active_lines,
    is_conversation_message,
    is_program_event,
    is_result_line,
    make_line,
    message_of,
)
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestReader,
    RuleFinding,
    RuleSet,
    find_duplicates,
    make_finding,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.formats.rule_library import (
    find_empty_request,
    insert_first_message,
    remove_settings,
    text_block,
    without_fields,
)
from contextc.formats.rule_library import text_message as anthropic_text_message
from contextc.formats.streams import NOTE_EVENT

MESSAGE_FIELDS = frozenset(("role", "content", "type"))
REPLY_FIELDS = MESSAGE_FIELDS | {"id", "model", "usage", "stop_reason", "stop_details", "container"}
"""The fields of a line's message, and the additional ones of a reply with usage."""


class _Reader(RequestReader):
    messages_error = "messages must be a list."
    tools_error = "tools must be a list."

    def messages(self, given: JSON, base: JSONPath) -> Iterable[RequestMessage]:
        prompt: JSON = self.body.get("system_prompt")
        if prompt is not None and not isinstance(prompt, str | dict):
            self.refuse(("system_prompt",), Fault("", "system_prompt must be a string or an object."))
        if not is_list(given):
            return super().messages(given, base)
        for index, each in enumerate(given):
            if wrong := _line_error(each):
                self.refuse((*base, index), wrong)
        return list(self.turns(given, base)) or _run_results(given, base)

    def turns(self, lines: list[JSON], base: JSONPath) -> Iterator[RequestMessage]:
        """Yield the messages in conversation order. Record those without a valid shape."""
        sound: list[JSONObject] = [{"type": NOTE_EVENT} if _line_error(each) else each for each in lines]
        places = [index for index in active_lines(sound) if is_conversation_message(sound[index])]
        found = anthropic.parse_request([{**sound[index]["message"], "role": sound[index]["type"]} for index in places])

        def lifted(path: JSONPath) -> JSONPath:
            index, *rest = path
            here: JSONPath = (*base, places[cast(int, index)])
            return (*here, "message", *rest) if rest else here

        self.misshapen += [RuleFinding(lifted(each.path), each.message, each.facts) for each in found.malformed]
        for turn in found.messages:
            pieces = tuple([replace(piece, path=lifted(piece.path)) for piece in turn.parts])
            wire = sound[places[cast(int, turn.path[0])]]["message"]
            yield RequestMessage(role=turn.role, path=lifted(turn.path), wire=wire, parts=pieces)

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(
            tool, TYPED if _is_native(tool) else {"name": str, "inputSchema": dict, "description?": str}
        )

    def tool_name(self, tool: JSONObject) -> str | None:
        return None if _is_native(tool) else tool["name"]


parse_request = _Reader.parse


def _is_native(tool: JSON) -> bool:
    return object_or_empty(tool).get("type") not in (None, "custom")


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and blocks that Claude Code ignores."""
    for turn in sketch.messages:
        replied = turn.role == "assistant" and is_object(turn.wire.get("usage"))
        yield from unknown_field_findings(
            turn.wire, REPLY_FIELDS if replied else MESSAGE_FIELDS, (*turn.path, "message")
        )
        for piece in turn.parts:
            yield from anthropic.find_unknown_block_fields(piece.wire, piece.path)


def _line_error(line: JSON) -> Fault | None:
    """Return the field and message of a fault in a line, without its message, or None."""
    if wrong := schema_error(line, TYPED):
        return wrong
    if is_program_event(line):
        return None
    if line["type"] not in MESSAGE_TYPES:
        return Fault("type", f"unknown line type {line['type']!r}.")
    return schema_error(line, {"message": dict})


def _run_results(lines: list[JSON], base: JSONPath) -> Iterator[RequestMessage]:
    """Yield the ends of runs in which only the program wrote anything. They failed, and their output is valid."""
    for index, each in enumerate(lines):
        if not _line_error(each) and is_result_line(each):
            yield RequestMessage(role="record", path=(*base, index), wire=each)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid line in a valid shape: an API message, a line of unknown type, a tool in another shape."""
    if path[0] == "tools":
        return _tool(value)
    if len(path) != 2:
        return anthropic.coerce_value(value, path)
    if isinstance(value, str):
        return text_message(value)
    if not is_object(value):
        return value
    inner: JSON = value["message"] if isinstance(value.get("message"), dict | str) else value
    if isinstance(inner, str):
        return make_line({"role": "assistant" if value.get("type") == "assistant" else "user", "content": inner})
    role = value["type"] if value.get("type") in MESSAGE_TYPES else inner.get("role")
    made: JSONObject = anthropic.coerce_value({"role": role, **inner}, path)
    valid = made.get("role") in MESSAGE_TYPES and isinstance(made.get("content"), str | list)
    return make_line(made) if valid else value


def _tool(value: JSON) -> JSON:
    wire = object_or_empty(anthropic.coerce_value(value, ("tools", 0)))
    if not is_object(wire.get("input_schema")):
        return value
    return {**without_fields(wire, "input_schema"), "inputSchema": wire["input_schema"]}


def text_message(text: str) -> JSONObject:
    return make_line(anthropic_text_message(text))


with_unique_tools = anthropic.with_unique_tools


def with_valid_thinking(body: JSONObject) -> JSONObject:
    bare = anthropic.with_valid_thinking({"messages": [message_of(each) for each in body["messages"]]})
    return {**body, "messages": [make_line(message) for message in bare["messages"]]}


RULES = RuleSet(
    "CLC",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    unknown_fields=find_unknown_fields,
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


@rule(10, error_texts.SIGNATURE, fix=with_valid_thinking)
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


@rule(13, error_texts.DUPLICATE_TOOL, fix=with_unique_tools)
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

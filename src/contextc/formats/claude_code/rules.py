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
    PairingChecks,
    duplicate_tools,
    insert_first_message,
    iter_calls,
    malformed_values,
    no_messages,
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
        wire = object_or_empty(anthropic.coerce_value(value, ("tools", 0)))
        if not is_object(wire.get("input_schema")):
            return value
        return {**without_fields(wire, "input_schema"), "inputSchema": wire["input_schema"]}
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


def text_message(text: str) -> JSONObject:
    return make_line(anthropic_text_message(text))


with_unique_tools = anthropic.with_unique_tools


def with_valid_thinking(body: JSONObject) -> JSONObject:
    bare = anthropic.with_valid_thinking({"messages": [message_of(each) for each in body["messages"]]})
    return {**body, "messages": [make_line(message) for message in bare["messages"]]}


RULES = RuleSet(
    "CLC",
    "claude_code",
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


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())


PAIRING = PairingChecks.within(results_before_next_reply)


@rule(3)
def check_line_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if (role := turn.wire.get("role", turn.role)) != turn.role:
            yield make_finding(
                (*turn.path, "message", "role"), f"role must equal the line's type {turn.role!r}, got {role!r}."
            )


rule(4)(PAIRING.unanswered)


@rule(5)
def check_results_have_calls(request: ParsedRequest) -> Iterable[RuleFinding]:
    first = next((turn.path for turn in request.messages if turn.role == "assistant"), None)
    held = request.body.get("resume") is not None
    for finding in PAIRING.orphans(request):
        if not held or (first is not None and finding.path >= first):
            yield finding


rule(6)(PAIRING.duplicates)


@rule(7)
def check_unique_call_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    return (make_finding(call.path, id=call.id) for call in find_duplicates(iter_calls(request)))


rule(8)(anthropic.check_block_roles)
rule(9)(anthropic.check_call_id_format)
rule(10, fix=with_valid_thinking)(anthropic.check_thinking_signatures)


@rule(11, fix=remove_settings("resume"))
def check_session_id(request: ParsedRequest) -> Iterable[RuleFinding]:
    if (name := request.body.get("resume")) is not None and not _is_uuid(name):
        yield make_finding(("resume",), f"`resume` must be a UUID, got {name!r}.")


rule(12)(anthropic.check_tool_names)
rule(13, fix=with_unique_tools)(duplicate_tools)


def _is_uuid(name: JSON) -> bool:
    try:
        return isinstance(name, str) and str(UUID(name)) == name.lower()
    except ValueError:
        return False

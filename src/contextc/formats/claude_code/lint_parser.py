"""The parser of Claude Code's lines for lint rules. Anthropic's parser reads the messages in them."""

from collections.abc import Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import lint_parser as anthropic
from contextc.formats.claude_code.message_lines import (
    MESSAGE_TYPES,
    is_conversation_message,
    is_program_event,
    is_result_line,
    make_line,
)
from contextc.formats.claude_code.transcript_chain import active_lines
from contextc.formats.lint_engine import (
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    make_finding,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.stream import NOTE_EVENT

text_block = anthropic.text_block
MESSAGE_FIELDS = frozenset(("role", "content", "type"))
REPLY_FIELDS = MESSAGE_FIELDS | {"id", "model", "usage", "stop_reason", "stop_details", "container"}
"""The fields of a line's message, and the additional ones of a reply with usage."""


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON as a request, or as the lines of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    given: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    misshapen: list[RuleFinding] = [*_check_system_prompt(whole)]
    turns: list[RequestMessage] = []
    if isinstance(given, list):
        lines = cast(list[JSON], given)
        misshapen += [
            make_finding((*base, index), wrong[1], what=wrong[1])
            for index, each in enumerate(lines)
            if (wrong := _schema_error(each))
        ]
        turns = list(_turns(lines, base, misshapen)) or list(_run_results(lines, base))
    else:
        misshapen.append(make_finding(base, "messages must be a list.", what="messages must be a list."))
    return ParsedRequest(
        messages=tuple(turns), body=whole, tools=tuple(_tools(whole, misshapen)), malformed=tuple(misshapen)
    )


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and blocks that Claude Code ignores."""
    for turn in sketch.messages:
        replied = turn.role == "assistant" and isinstance(turn.wire.get("usage"), dict)
        yield from unknown_field_findings(
            turn.wire, REPLY_FIELDS if replied else MESSAGE_FIELDS, (*turn.path, "message")
        )
        for piece in turn.parts:
            yield from anthropic.find_unknown_block_fields(piece.wire, piece.path)


def _schema_error(given: JSON) -> tuple[str, str] | None:
    """Return the field and message of a fault in a line, without its message, or None."""
    if wrong := schema_error(given, {"type": str}):
        return wrong
    each = cast(JSONObject, given)
    if is_program_event(each):
        return None
    if each["type"] not in MESSAGE_TYPES:
        return "type", f"unknown line type {each['type']!r}."
    return schema_error(each, {"message": dict})


def _turns(lines: list[JSON], base: JSONPath, misshapen: list[RuleFinding]) -> Iterator[RequestMessage]:
    """Yield the messages in conversation order. Append a finding for each without a valid shape."""
    sound = [cast(JSONObject, each if not _schema_error(each) else {"type": NOTE_EVENT}) for each in lines]
    places = [index for index in active_lines(sound) if is_conversation_message(sound[index])]
    bare: JSON = [{**sound[index]["message"], "role": sound[index]["type"]} for index in places]
    found = anthropic.parse_request(bare)

    def lifted(path: JSONPath) -> JSONPath:
        index, *rest = path
        here: JSONPath = (*base, places[cast(int, index)])
        return (*here, "message", *rest) if rest else here

    for each in found.malformed:
        misshapen.append(RuleFinding(lifted(each.path), each.message, each.facts))
    for turn in found.messages:
        pieces = tuple([replace(piece, path=lifted(piece.path)) for piece in turn.parts])
        wire = sound[places[cast(int, turn.path[0])]]["message"]
        yield RequestMessage(role=turn.role, path=lifted(turn.path), wire=wire, parts=pieces)


def _run_results(lines: list[JSON], base: JSONPath) -> Iterator[RequestMessage]:
    """Yield the ends of runs in which only the program wrote anything. They failed, and their output is valid."""
    for index, each in enumerate(lines):
        if not _schema_error(each) and is_result_line(cast(JSONObject, each)):
            yield RequestMessage(role="record", path=(*base, index), wire=cast(JSONObject, each))


def _check_system_prompt(body: JSONObject) -> Iterator[RuleFinding]:
    given: JSON = body.get("system_prompt")
    if given is not None and not isinstance(given, str | dict):
        yield make_finding(
            ("system_prompt",),
            "system_prompt must be a string or an object.",
            what="system_prompt must be a string or an object.",
        )


def _tools(body: JSONObject, misshapen: list[RuleFinding]) -> Iterator[RequestPart]:
    given: JSON = body.get("tools")
    if given is not None and not isinstance(given, list):
        misshapen.append(make_finding(("tools",), "tools must be a list.", what="tools must be a list."))
        return
    for index, tool in enumerate(cast(list[JSON], given or [])):
        path: JSONPath = ("tools", index)
        native = isinstance(tool, dict) and cast(JSONObject, tool).get("type") not in (None, "custom")
        if wrong := schema_error(
            cast(object, tool), {"type": str} if native else {"name": str, "inputSchema": dict, "description?": str}
        ):
            misshapen.append(make_finding(path, wrong[1], what=wrong[1]))
        elif not native:
            yield RequestPart(kind="other", path=path, wire=cast(JSONObject, tool), id=cast(JSONObject, tool)["name"])


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid line in a valid shape: an API message, a line of unknown type, a tool in another shape."""
    if path[0] == "tools":
        return _tool(value)
    if len(path) != 2:
        return anthropic.coerce_value(value, path)
    if isinstance(value, str):
        return text_message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    inner: JSON = wire["message"] if isinstance(wire.get("message"), dict | str) else wire
    if isinstance(inner, str):
        return (
            text_message(inner)
            if wire.get("type") != "assistant"
            else make_line({"role": "assistant", "content": inner})
        )
    given = cast(JSONObject, inner)
    role = wire["type"] if wire.get("type") in MESSAGE_TYPES else given.get("role")
    made = cast(JSONObject, anthropic.coerce_value({"role": role, **given}, path))
    return (
        make_line(made) if made.get("role") in MESSAGE_TYPES and isinstance(made.get("content"), str | list) else wire
    )


def _tool(value: JSON) -> JSON:
    made: JSON = anthropic.coerce_value(value, ("tools", 0))
    wire = cast(JSONObject, made) if isinstance(made, dict) else {}
    if not isinstance(wire.get("input_schema"), dict):
        return value
    rest = {name: each for name, each in wire.items() if name != "input_schema"}
    return {**rest, "inputSchema": wire["input_schema"]}


def text_message(text: str) -> JSONObject:
    return make_line(anthropic.text_message(text))

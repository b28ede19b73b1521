"""The parser of Claude Code's lines for lint rules. Anthropic's parser reads the messages in them."""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import rules as anthropic
from contextc.formats.claude_code.message_lines import (
    MESSAGE_TYPES,
    is_conversation_message,
    is_program_event,
    is_result_line,
    make_line,
)
from contextc.formats.claude_code.transcript_chain import active_lines
from contextc.formats.coercion import text_block, without_fields
from contextc.formats.coercion import text_message as anthropic_text_message
from contextc.formats.lint_engine import (
    Fault,
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RuleFinding,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.request_parser import TYPED, RequestReader
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.formats.stream import NOTE_EVENT

__all__ = ["coerce_value", "find_unknown_fields", "parse_request", "text_block", "text_message"]

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
    return {**without_fields(wire, ("input_schema",)), "inputSchema": wire["input_schema"]}


def text_message(text: str) -> JSONObject:
    return make_line(anthropic_text_message(text))

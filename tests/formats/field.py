"""Helpers for the tests of failures known from practice."""

from collections.abc import Sequence
from string import ascii_lowercase
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names, formatter
from contextc.messages import SYSTEM_CONTEXT
from tests.formats.known import having, problems

NAMES = format_names()
IN_TWO = having("UNANSWERED")
"""The formats in which a call and its result are two things, of which one can get lost."""
IDS = (*ascii_lowercase, "dead", "late")
"""The ids of calls in these tests: a format that hashes them cannot say any more what they were."""
USE: JSONObject = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
LOOK = cc.Tool(name="look", description="Reads a file.", parameters={"type": "object"})
every_format = pytest.mark.parametrize("name", NAMES)
every_format_in_two = pytest.mark.parametrize("name", IN_TWO)


def call(id: str, arguments: str = "{}") -> cc.ToolCall:
    return cc.tool_call(id, "look", arguments)


def result(id: str, text: str = "print(1)") -> cc.Message:
    return cc.tool_result(id, "look", text)


def sent(name: str, history: Sequence[cc.Message]) -> list[JSONObject]:
    """The messages of a request, which neither our rules nor the vendor's types find fault with."""
    wire = formatter(name).format(history)
    sound(name, wire)
    return wire


def sound(name: str, wire: list[JSONObject]) -> None:
    assert cc.lint(wire, format=name) == []
    assert problems(name, {formatter(name).messages_key: wire}) == []


def outline(name: str, wire: list[JSONObject]) -> list[str]:
    """Return texts, calls and results, in the order of the request."""
    found: list[str] = []
    known = {formatter(name).name_codec.encode_id(each): each for each in IDS}
    request = formatter(name).decode_request({formatter(name).messages_key: wire})
    for message in [*([request.system] if request.system else []), *request.messages]:
        for part in message.parts:
            if isinstance(part, cc.Text):
                text = part.text.removeprefix("<system-reminder>\n").removesuffix("\n</system-reminder>")
                found.append(text.removeprefix(SYSTEM_CONTEXT))
            elif isinstance(part, cc.ToolCall):
                found.append(f"call {known.get(part.id, part.id)}")
            elif isinstance(part, cc.ToolResult):
                found.append(f"result {known.get(part.call_id, part.call_id)}: {part.text}")
    return found


def without(name: str, history: Sequence[cc.Message], kind: str) -> list[JSONObject]:
    """A request as a framework leaves it that loses all calls, or all results, of a history."""
    wire = formatter(name).format(history)
    for turn in reversed(formatter(name).rules.parse(wire).messages):
        for piece in reversed(turn.parts_of("call" if kind == "call" else "result")):
            message = wire[cast(int, turn.path[0])]
            inner: JSONObject = message.get("message", message)  # Claude Code has it in a line
            parts: object = inner.get("parts", inner.get("content"))
            if isinstance(parts, list) and len(cast(list[object], parts)) > 1:
                cast(list[JSONObject], parts).remove(piece.wire)
            else:
                wire.remove(message)
    return wire


def codes(name: str, wire: JSONObject | list[JSONObject]) -> list[str]:
    return [violation.code for violation in cc.lint(wire, format=name)]

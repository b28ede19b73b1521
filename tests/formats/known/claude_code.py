"""Claude Code: its SDK parses lines, and their content is in Anthropic's format."""

from importlib import import_module
from typing import cast

from contextc._json import JSON, JSONObject
from tests.formats.judging import Problem
from tests.formats.known import PARTIAL, anthropic

SETTINGS: JSONObject = {"model": "claude-sonnet-4-5", "effort": "high"}
MODEL = ""
UNANSWERED, ORPHAN = "CLC004", "CLC005"
RESULTS_ANYWHERE = True
MALFORMED: JSONObject = {"type": "tool_use", "id": "a", "name": "look", "input": {"malformed_arguments": PARTIAL}}


def arguments(wire: JSONObject) -> JSON:
    return wire["input"]


def problems(body: JSONObject) -> list[Problem]:
    parser = import_module("claude_agent_sdk._internal.message_parser")
    lines = cast(list[JSONObject], body.get("messages") or [])
    found: list[Problem] = []
    for index, line in enumerate(lines):
        try:
            parser.parse_message({**line, "message": {"model": "claude", **line["message"]}})
        except Exception as error:  # whatever it raises is its objection
            found.append((("messages", index), str(error)))
    messages = [line["message"] for line in lines]
    asked = {"model": "claude", "max_tokens": 1, "messages": messages}
    return found or anthropic.problems(asked)

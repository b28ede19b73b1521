"""Lines that the real Claude Code wrote, and handwritten ones."""

from pathlib import Path

import msgspec

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.claude_code import ClaudeCodeFormatter
from contextc.messages import Message

FORM = ClaudeCodeFormatter()
FOLDER = Path(__file__).parent.parent / "data" / "claude_code"
STREAMS = sorted(path.stem for path in FOLDER.glob("stdout-*"))
TRANSCRIPTS = sorted(path.stem for path in FOLDER.glob("transcript-*"))


def sample(name: str) -> list[JSONObject]:
    return [msgspec.json.decode(each) for each in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


def user(content: JSON, **more: JSON) -> JSONObject:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def assistant(*content: JSONObject, **more: JSON) -> JSONObject:
    return {"type": "assistant", "message": {"role": "assistant", "content": list(content)}, **more}


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def use(id: str, name: str = "look", **given: JSON) -> JSONObject:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(id: str, content: JSON = "1", **more: JSON) -> JSONObject:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def outline(messages: list[Message]) -> list[str]:
    """Return roles and parts, one line per part."""
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case cc.Text():
                    found.append(f"{message.role}: {part.text}")
                case cc.Reasoning():
                    found.append(f"{message.role} thinks: {part.text}")
                case cc.ToolCall():
                    found.append(f"{message.role} calls {part.name} as {part.id}")
                case cc.ToolResult():
                    found.append(f"{message.role} answers {part.name} as {part.call_id}: {part.text}")
                case _:
                    found.append(f"{message.role}: {type(part).__name__}")
    return found

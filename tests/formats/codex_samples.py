"""Output of a real Codex (`tests/data/codex`), and helpers for the tests of its format."""

import json
from pathlib import Path

from contextc._json import JSONObject
from contextc.formats.codex import CodexFormatter

DATA = Path(__file__).parent.parent / "data" / "codex"
FORM = CodexFormatter()
SAMPLES = sorted(path.stem for path in DATA.glob("*.jsonl"))
TURNS = [name for name in SAMPLES if not name.startswith(("exec", "rollout", "compact"))]
"""Notifications of one turn."""


def lines(name: str) -> list[JSONObject]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def said(text: str, id: str = "u1") -> JSONObject:
    return {"type": "userMessage", "id": id, "content": [{"type": "text", "text": text, "text_elements": []}]}


def answer(text: str, id: str = "a1") -> JSONObject:
    return {"type": "agentMessage", "id": id, "text": text}


def called(status: str = "completed", id: str = "c1", text: str = "rain") -> JSONObject:
    item: JSONObject = {"type": "dynamicToolCall", "id": id, "tool": "weather", "arguments": {"city": "Oslo"}}
    if status == "inProgress":
        return {**item, "status": status}
    returned = [{"type": "inputText", "text": text}]
    return {**item, "status": status, "contentItems": returned, "success": status == "completed"}


def ran(status: str = "completed", output: str | None = "hello\n") -> JSONObject:
    return {
        "type": "commandExecution",
        "id": "x1",
        "command": "echo hello",
        "cwd": "/project",
        "commandActions": [{"type": "unknown", "command": "echo hello"}],
        "status": status,
        "exitCode": 0 if status == "completed" else 3,
        "aggregatedOutput": output,
        "durationMs": 4,
    }

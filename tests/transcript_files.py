"""Write transcripts of Claude Code and Codex for tests that need one on disk."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from contextc._json import JSONObject

TranscriptMessage: TypeAlias = tuple[str, str]
"""Who said it, and what: `user`, `assistant`, `call`, `result`."""

GARDEN: Sequence[TranscriptMessage] = (
    ("user", "What grows here?"),
    ("call", "the bed"),
    ("result", "Thyme."),
    ("assistant", "Thyme does."),
)
CLAUDE_ID = "3d7dca91-c629-447c-829d-bee88e7efcd1"
CODEX_ID = "01a1dfb0-8cf9-7e71-91bb-fc567abed7cf"


def claude_lines(messages: Sequence[TranscriptMessage], directory: str, session: str = CLAUDE_ID) -> list[JSONObject]:
    """One line a content block, each with its parent; and lines that are not messages."""
    lines: list[JSONObject] = [{"type": "queue-operation", "operation": "enqueue", "sessionId": session}]
    parent: str | None = None
    for number, (who, text) in enumerate(messages):
        uuid = f"{session[:-4]}{number:04x}"
        role = "assistant" if who in ("assistant", "call") else "user"
        content: list[JSONObject] = [{"type": "text", "text": text}]
        if who == "call":
            content = [{"type": "tool_use", "id": f"toolu_{number}", "name": "Look", "input": {"at": text}}]
        elif who == "result":
            content = [{"type": "tool_result", "tool_use_id": f"toolu_{number - 1}", "content": text}]
        message: JSONObject = {"role": role, "content": content}
        if role == "assistant":
            usage = {"input_tokens": 100, "output_tokens": 20}
            message |= {"id": f"msg_{number}", "type": "message", "model": "claude-opus-5-5", "usage": usage}
        lines.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "type": role,
                "message": message,
                "uuid": uuid,
                "timestamp": f"2026-11-15T10:00:{number % 60:02}.000Z",
                "cwd": directory,
                "sessionId": session,
                "version": "2.1.325",
                "userType": "external",
            }
        )
        parent = uuid
    return [*lines, {"type": "last-prompt", "lastPrompt": messages[0][1], "sessionId": session}]


def codex_lines(
    content: Sequence[TranscriptMessage],
    directory: str,
    thread: str = CODEX_ID,
    *,
    first: int = 0,
    base: JSONObject | None = None,
) -> list[JSONObject]:
    """The head of a thread, and what was said as items of the Responses API."""
    meta: JSONObject = {"id": thread, "cwd": directory, "cli_version": "0.163.0", "source": "exec"}
    payloads: list[tuple[str, JSONObject]] = [("session_meta", meta | ({"history_base": base} if base else {}))]
    if base is None:
        context = f"<environment_context>\n  <cwd>{directory}</cwd>\n</environment_context>"
        payloads.append(("response_item", _item("user", context)))
    payloads += [
        ("response_item", _message_line(number, who, text)) for number, (who, text) in enumerate(content, first)
    ]
    return [
        {"timestamp": "2026-11-15T10:00:00.000Z", "ordinal": first + index, "type": kind, "payload": payload}
        for index, (kind, payload) in enumerate(payloads)
    ]


def _message_line(number: int, who: str, text: str) -> JSONObject:
    if who == "call":
        arguments = json.dumps({"at": text})
        return {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": arguments}
    if who == "result":
        return {"type": "function_call_output", "call_id": f"call_{number - 1}", "output": text}
    return _item(who, text)


def _item(role: str, text: str) -> JSONObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def written(path: Path, lines: Sequence[JSONObject], time: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if time is not None:
        os.utime(path, (time, time))
    return path


def claude_file(config: Path, directory: str, session: str = CLAUDE_ID) -> Path:
    folder = re.sub("[^a-zA-Z0-9]", "-", os.path.realpath(directory))
    return config / "projects" / folder / f"{session}.jsonl"


def codex_file(home: Path, thread: str = CODEX_ID, segment: str = "") -> Path:
    name = f"rollout-2026-11-15T10-00-00-{thread}{'_' + segment if segment else ''}.jsonl"
    return home / "sessions" / "2026" / "11" / "15" / name

"""The CLI's own transcript file of a session, which is used to resume if it equals our stored transcript.

A session that is resumed from our transcript runs in a temporary configuration folder. There the user's memory, skills
and plugins are missing, and the login cannot be renewed. So the CLI's file is preferred if it has the same entries. It
is only read here. If it is missing, unreadable or different, our transcript is used.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contextc._json import JSONObject, parse_object

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry

CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"


class WriteOnlySessionStore:
    """Session store that is written but reads as empty, so that the CLI resumes from its own file."""

    def __init__(self, store: "SessionStore") -> None:
        self.store = store

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        await self.store.append(key, entries)

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        return None


def file_matches(key: "SessionKey", entries: list[JSONObject], env: Mapping[str, str]) -> bool:
    """Return True if the CLI's own file of this session has exactly these entries."""
    try:
        written = _file(key, env).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    lines = [parse_object(line) for line in written.split("\n") if line]
    found = [line for line in lines if line is not None]
    return len(found) == len(lines) and _names(found) == _names(entries)


def _file(key: "SessionKey", env: Mapping[str, str]) -> Path:
    folder = env.get(CONFIG_VARIABLE) or os.environ.get(CONFIG_VARIABLE) or Path.home() / ".claude"
    return Path(folder) / "projects" / key["project_key"] / f"{key['session_id']}.jsonl"


def _names(entries: list[JSONObject]) -> list[str]:
    """Return the ids of messages and queue operations. The CLI writes other entries only to its own file."""
    return [
        entry.get("uuid") or f"{entry['type']} {entry.get('operation')}"
        for entry in entries
        if entry.get("uuid") or entry.get("type") == "queue-operation"
    ]

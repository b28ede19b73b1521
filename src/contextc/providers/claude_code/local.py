"""The CLI's own file of a session, where it can be resumed from: with all that the user has set up there.

A session that is resumed from our record runs in a folder made for it: without the user's own memory, skills and
plugins, and with a login that cannot be renewed. So the CLI's file is used where it holds exactly what the record
holds. It is only read here. Where it is missing, behind or ahead, or cannot be read, the record is what counts.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contextc._json import JSONObject, parse_object

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry

FOLDER = "CLAUDE_CONFIG_DIR"


class Mirror:
    """A store that is written to and never read from: the SDK then leaves it to the CLI to find the session."""

    def __init__(self, store: "SessionStore") -> None:
        self.store = store

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        await self.store.append(key, entries)

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        return None


def holds(key: "SessionKey", entries: list[JSONObject], env: Mapping[str, str]) -> bool:
    """Whether the CLI's own file of this session says what these entries say, and no more."""
    try:
        written = _file(key, env).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    lines = [parse_object(line) for line in written.split("\n") if line]
    found = [line for line in lines if line is not None]
    return len(found) == len(lines) and _names(found) == _names(entries)


def _file(key: "SessionKey", env: Mapping[str, str]) -> Path:
    folder = env.get(FOLDER) or os.environ.get(FOLDER) or Path.home() / ".claude"
    return Path(folder) / "projects" / key["project_key"] / f"{key['session_id']}.jsonl"


def _names(entries: list[JSONObject]) -> list[str]:
    """What was said, and what was queued to be said. The rest the CLI notes down for itself, and not in the record."""
    return [
        entry.get("uuid") or f"{entry['type']} {entry.get('operation')}"
        for entry in entries
        if entry.get("uuid") or entry.get("type") == "queue-operation"
    ]

"""Stored transcript of a session: split it at a cursor, find an existing answer, and rename its session.

Entries are the CLI's own lines, in the order of writing, and each names its parent. A prefix of a transcript is a valid
session too. After the cursor's entry, entries of the same turn are kept: the snapshot of a prompt, or the result of a
tool that ended the turn. The next prompt, a queued prompt or the next output of the model is after the cursor.

The CLI's own transcript file is used to resume if it equals our stored transcript. A session that is resumed from our
transcript runs in a temporary configuration folder. There the user's memory, skills and plugins are missing, and the
login cannot be renewed. So the CLI's file is preferred if it has the same entries. It is only read here. If it is
missing, unreadable or different, our transcript is used.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from contextc._json import JSON, JSONObject, encode_canonical, parse_object

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry


MESSAGE_TYPES = ("user", "assistant")
FINAL_STOP_REASONS = ("end_turn", "stop_sequence", "max_tokens", "refusal")


class SplitTranscript(NamedTuple):
    """A transcript that is split at a cursor."""

    kept: list[JSONObject]
    after: list[JSONObject]

    @property
    def is_clean(self) -> bool:
        """True if there is no message and no queued prompt after the cursor."""
        return not any(_is_message(entry) or _is_queued(entry) for entry in self.after)

    @property
    def last_uuid(self) -> str:
        """UUID of the entry that is the parent of the next one."""
        return next((entry["uuid"] for entry in reversed(self.kept) if _is_linked(entry)), "")


def split_transcript(entries: list[JSONObject], cursor: str) -> SplitTranscript | None:
    """Split the transcript at the cursor. An empty cursor means its end.

    Return None if the cursor is missing, or if entries before it are.
    """
    if not cursor:
        return SplitTranscript(entries, [])
    place = next((place for place, entry in enumerate(entries) if entry.get("uuid") == cursor), None)
    if place is None or not _is_whole(entries[: place + 1]):
        return None
    end = place + 1
    while end < len(entries) and not _starts_turn(entries[end]):
        end += 1
    return SplitTranscript(entries[:end], entries[end:])


def find_answer(after: list[JSONObject], history: list[JSONObject], prompt: JSONObject) -> list[JSONObject]:
    """Return the lines of a complete answer to exactly this prompt, in the CLI's form. Empty if there is none."""
    messages = [entry for entry in after if _is_message(entry)]
    asked = [place for place, entry in enumerate(messages) if "promptId" in entry and not _is_result(entry)]
    if len(asked) != 1 or _role_and_blocks(messages[: asked[0] + 1]) != _role_and_blocks(
        [*history, {"message": prompt}]
    ):
        return []
    answer = messages[asked[0] + 1 :]
    last = answer[-1] if answer else {}
    if last.get("type") != "assistant" or last["message"].get("stop_reason") not in FINAL_STOP_REASONS:
        return []
    return [] if any(_is_synthetic(entry) for entry in answer) else [_line(entry) for entry in answer]


def with_session_id(entries: list[JSONObject], session: str) -> list[JSONObject]:
    """Return the entries with another session id."""
    return [{**entry, "sessionId": session} if "sessionId" in entry else entry for entry in entries]


def result_line(lines: list[JSONObject]) -> JSONObject:
    """Return a `result` line for a turn whose own was never received."""
    last = lines[-1]
    texts = [block["text"] for block in _blocks(last["message"]) if block.get("type") == "text"]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": last["session_id"],
        "stop_reason": last["message"]["stop_reason"],
        "result": "".join(texts),
    }


def _line(entry: JSONObject) -> JSONObject:
    names = ("type", "message", "uuid", "timestamp")
    line = {name: entry[name] for name in names if name in entry}
    if "toolUseResult" in entry:
        line["tool_use_result"] = entry["toolUseResult"]
    return {**line, "session_id": entry.get("sessionId", ""), "parent_tool_use_id": None}


def _is_whole(entries: list[JSONObject]) -> bool:
    """Return True if the parents of the last entry are complete. A failed append leaves a gap."""
    parents = {entry["uuid"]: entry.get("parentUuid") for entry in entries if "uuid" in entry}
    found: JSON = entries[-1].get("uuid")
    while found is not None:
        if found not in parents:
            return False
        found = parents.pop(found)
    return True


def _starts_turn(entry: JSONObject) -> bool:
    """Return True if this entry does not belong to the turn before it."""
    return _is_queued(entry) or (_is_message(entry) and not _is_result(entry))


def _is_queued(entry: JSONObject) -> bool:
    return entry.get("type") == "queue-operation"


def _is_linked(entry: JSONObject) -> bool:
    return bool(entry.get("uuid")) and "parentUuid" in entry and not entry.get("isSidechain")


def _is_message(entry: JSONObject) -> bool:
    return entry.get("type") in MESSAGE_TYPES and not entry.get("isSidechain") and not entry.get("isMeta")


def _is_result(entry: JSONObject) -> bool:
    return entry.get("type") == "user" and any(
        block.get("type") == "tool_result" for block in _blocks(entry["message"])
    )


def _is_synthetic(entry: JSONObject) -> bool:
    """Return True if the CLI wrote this entry in place of the model, to report an error."""
    return bool(entry.get("isApiErrorMessage")) or entry["message"].get("model") == "<synthetic>"


def _role_and_blocks(lines: list[JSONObject]) -> list[bytes]:
    """Return role and content of each block. The split into lines does not matter."""
    return [encode_canonical([line["message"]["role"], block]) for line in lines for block in _blocks(line["message"])]


def _blocks(message: JSONObject) -> list[JSONObject]:
    content: JSON = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(list[JSONObject], content or [])


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

"""Transcripts of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl` in its folder.

After a rollback or a fork, a thread continues in a new file. Its first line names the file and the line that it
continues. The newest file of a thread is the current one. Earlier lines are read from the files it is based on.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput
from contextc.interchange.found_conversation import UUID, FoundConversation
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.session_transcript_reader import (
    TranscriptReader,
    modified_time,
    parse_lines,
    read_first_lines,
    read_transcripts,
)
from contextc.interchange.sources import TranscriptFile

ABOUT = "transcripts of Codex, one file per session"
FILE_NAME = re.compile(rf"rollout-.+?-({UUID.pattern})(?:_({UUID.pattern}))?\.jsonl", re.IGNORECASE)
MAX_DEPTH = 1000  # files in a chain of continuations
CONTENT_TYPES = ("session_meta", "response_item", "event_msg", "compacted", "turn_context")
"""The types of lines that hold content. New versions add other types."""


def matches(sample: FileSample) -> bool:
    return any(line.get("type") == "session_meta" and isinstance(line.get("payload"), dict) for line in sample.objects)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    return read_transcripts(given, TranscriptReader("codex", all_lines, session_id, session_title))


def session_id(lines: Sequence[JSONObject]) -> str:
    return str(_meta(lines).get("id") or "")


def session_title(lines: Sequence[JSONObject]) -> str:
    return ""


def find_transcripts(directory: str | None) -> Iterator[TranscriptFile]:
    sessions = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "sessions"
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(sessions.glob("**/rollout-*.jsonl")):
        if (name := FILE_NAME.fullmatch(path.name)) is None:
            continue
        thread, segment = name.group(1), name.group(2) or ""  # segments are named in the order of time
        newest[thread] = max(newest.get(thread, ("", path)), (segment, path))
    for thread, (_, path) in newest.items():
        meta = _meta(read_first_lines(path, 1))
        ran = str(meta.get("cwd") or "")
        is_of_an_agent = isinstance(meta.get("source"), dict)  # a subagent of another thread
        if not is_of_an_agent and (directory is None or os.path.realpath(ran) == os.path.realpath(directory)):
            yield TranscriptFile(id=thread, path=path, directory=ran, time=modified_time(path))


def all_lines(path: Path | None, lines: Sequence[JSONObject]) -> list[JSONObject]:
    """Return all lines of a thread, from all files that it is based on."""
    found = list(lines)
    for _ in range(MAX_DEPTH):
        base: JSON = _meta(found).get("history_base")
        if not isinstance(base, dict):
            return [line for line in found if line.get("type") in CONTENT_TYPES]
        asked = cast(JSONObject, base)
        before = _file(path, str(asked.get("thread_id")))
        if before is None:
            raise InvalidInput(
                f"The transcript continues another one, {asked.get('thread_id')}, whose file is missing",
                fix="Import it from the `sessions` folder of Codex, where it was written.",
            )
        earlier, _ = parse_lines(before.read_bytes())
        end: JSON = asked.get("end_ordinal_exclusive")
        found = [*[line for line in earlier if _ordinal(line) < int(end or 0)], *found]
    raise InvalidInput(f"The transcript continues more than {MAX_DEPTH} others, or itself.")


def _meta(lines: Sequence[JSONObject]) -> JSONObject:
    """Return the metadata of a thread from its first line."""
    for line in lines:
        if line.get("type") == "session_meta" and isinstance(payload := line.get("payload"), dict):
            return cast(JSONObject, payload)
    return {}


def _ordinal(line: JSONObject) -> int:
    found: JSON = line.get("ordinal")
    return found if isinstance(found, int) else 0


def _file(path: Path | None, name: str) -> Path | None:
    """Return the file of a thread, or of a segment of one, in the same `sessions` folder."""
    if path is None or not UUID.fullmatch(name):
        return None
    root = next((folder for folder in path.absolute().parents if folder.name == "sessions"), path.absolute().parent)
    for each in sorted(root.glob(f"**/rollout-*{name}.jsonl")):
        found = FILE_NAME.fullmatch(each.name)
        if found is not None and (found.group(2) or found.group(1)) == name:
            return each
    return None

"""Transcripts of Claude Code: `projects/<directory>/<session>.jsonl` in its folder, one file per session.

The folder of a directory is named after its path, with a dash for all but letters and digits. Two directories may
share a folder; then the directory that a transcript names decides. Transcripts of subagents are in a subfolder of a
session, and are not sessions of their own.
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from contextc._json import JSONObject
from contextc.interchange.found_conversation import UUID, FoundConversation
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.session_transcript_reader import (
    TranscriptReader,
    modified_time,
    read_first_lines,
    read_transcripts,
)
from contextc.interchange.sources import TranscriptFile

ABOUT = "transcripts of Claude Code, one file per session"
MAX_FOLDER_NAME = 200  # characters of a folder name; a longer one is cut and gets a hash
HEADER_LINES = 40  # first lines, of which one names the working directory


def matches(sample: FileSample) -> bool:
    messages = [line for line in sample.objects if line.get("type") in ("user", "assistant")]
    return any("parentUuid" in line and isinstance(line.get("uuid"), str) for line in messages)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    return read_transcripts(given, TranscriptReader("claude_code", all_lines, session_id, session_title))


def session_id(lines: Sequence[JSONObject]) -> str:
    return _last(lines, "sessionId")


def session_title(lines: Sequence[JSONObject]) -> str:
    """Return the title of the user, or of Claude Code; for a session that begins with a summary, the last prompt."""
    shortened = any(line.get("isCompactSummary") for line in lines)
    return _last(lines, "customTitle") or _last(lines, "aiTitle") or (_last(lines, "lastPrompt") if shortened else "")


def find_transcripts(directory: str | None) -> Iterator[TranscriptFile]:
    projects = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    wanted = None if directory is None else _real(directory)
    for folder in sorted(projects.iterdir()) if projects.is_dir() else []:
        if wanted is not None and not _may_be(folder.name, wanted):
            continue
        for path in sorted(folder.glob("*.jsonl")):
            if not UUID.fullmatch(path.stem):
                continue
            ran = next(
                (each for line in read_first_lines(path, HEADER_LINES) if isinstance(each := line.get("cwd"), str)), ""
            )
            if wanted is None or not ran or _real(ran) == wanted or not _may_be(folder.name, _real(ran)):
                yield TranscriptFile(id=path.stem, path=path, directory=ran, time=modified_time(path))


def all_lines(path: Path | None, lines: Sequence[JSONObject]) -> list[JSONObject]:
    return list(lines)


def _last(lines: Sequence[JSONObject], name: str) -> str:
    return next((found for line in reversed(lines) if isinstance(found := line.get(name), str) and found), "")


def _real(directory: str) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(directory))


def _may_be(folder: str, directory: str) -> bool:
    """Return True if a folder may belong to a directory. Other directories may have the same folder name."""
    name = re.sub("[^a-zA-Z0-9]", "-", directory)
    return folder == name if len(name) <= MAX_FOLDER_NAME else folder.startswith(f"{name[:MAX_FOLDER_NAME]}-")

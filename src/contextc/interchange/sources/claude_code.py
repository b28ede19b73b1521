"""Transcripts of Claude Code: `projects/<directory>/<session>.jsonl` in its folder, one file per session.

The folder of a directory is named after its path, with a dash for all but letters and digits. Two directories may
share a folder; then the directory that a transcript names decides. Transcripts of sub-agents are in a subfolder of a
session, and are imported with it.
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, as_object, encode
from contextc.formats import formatter
from contextc.formats.claude_code.decode import decode_lines
from contextc.formats.claude_code.message_lines import is_conversation_message, make_line, merge_lines
from contextc.formats.claude_code.transcript_chain import active_lines
from contextc.interchange.claude_code_agents import read_agents
from contextc.interchange.found_conversation import UUID, FoundConversation, ModelCall, parse_time
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.session_transcript_reader import (
    ReadCalls,
    TranscriptReader,
    modified_time,
    read_first_lines,
    read_transcripts,
)
from contextc.interchange.sources import TranscriptFile
from contextc.messages import Message

ABOUT = "transcripts of Claude Code, one file per session"
MAX_FOLDER_NAME = 200  # characters of a folder name; a longer one is cut and gets a hash
FORMAT, SENT_FORMAT = "claude_code", "anthropic"
TIME_FIELD = "contextc_time"
MAX_PATHS = 500  # abandoned paths whose calls are read
HEADER_LINES = 40  # first lines, of which one names the working directory


def matches(sample: FileSample) -> bool:
    messages = [line for line in sample.objects if line.get("type") in ("user", "assistant")]
    return any("parentUuid" in line and isinstance(line.get("uuid"), str) for line in messages)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    return read_transcripts(
        given, TranscriptReader(FORMAT, all_lines, session_id, session_title, read_calls, read_agents)
    )


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


class _WireMessage(NamedTuple):
    """A message as Claude Code sent or received it, its time, and its decoded messages."""

    wire: JSONObject
    time: int
    messages: list[Message]


def read_calls(lines: Sequence[JSONObject], messages: list[Message]) -> ReadCalls:
    """Return the messages with their times, and one call per reply of the model. Its last line has the final usage.

    Calls before a compaction, and those that were abandoned, are calls too, on paths of their own.
    """
    path = _read_path(lines)
    flat = [message for each in path for message in each.messages]
    is_same = [message.role for message in flat] == [message.role for message in messages]
    if is_same:
        times = [each.time for each in path for _ in each.messages]
        messages = [
            replace(message, time=time) if time and not message.time else message
            for message, time in zip(messages, times, strict=True)
        ]
        path = _with_messages(path, messages)
    shared = _SharedPrefixes()
    calls = _calls_of(shared.add(path), is_stored=is_same)
    missing = {
        str(as_object(line["message"]).get("id")): number
        for number, line in enumerate(lines)
        if is_conversation_message(line) and _has_usage(as_object(line["message"]))
    }
    abandoned: list[list[Message]] = []
    for _ in range(MAX_PATHS):
        for call in calls:
            missing.pop(call.id, None)
        if not missing:
            break
        name, end = missing.popitem()
        other = shared.add(_read_path(lines[: end + 1]))
        found = {call.id: call for call in _calls_of(other, is_stored=is_same, line=len(abandoned))}
        own = [found[each] for each in (*missing, name) if each in found]
        calls += own
        if own:
            abandoned.append([message for each in other for message in each.messages])
    ordered = sorted(calls, key=lambda call: call.ended)
    return ReadCalls(messages, ordered, abandoned if is_same else ())


class _SharedPrefixes:
    """Paths that begin alike share the objects of their common messages."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], list[Message]] = {}

    def add(self, path: Sequence[_WireMessage]) -> list[_WireMessage]:
        found: list[_WireMessage] = []
        before = b""
        for each in path:
            content = encode(each.wire)
            timed = [replace(message, time=message.time or each.time) for message in each.messages]
            own = self._known.setdefault((before, content), timed)
            before = blake2b(before + content, digest_size=16).digest()
            found.append(each._replace(messages=own))
        return found


def _with_messages(path: Sequence[_WireMessage], messages: Sequence[Message]) -> list[_WireMessage]:
    """Return a path with other objects of its messages."""
    found: list[_WireMessage] = []
    count = 0
    for each in path:
        end = count + len(each.messages)
        found.append(each._replace(messages=list(messages[count:end])))
        count = end
    return found


def _read_path(lines: Sequence[JSONObject]) -> list[_WireMessage]:
    """Return the messages from the first line to the last one, as `decode_lines` merges them."""
    own = [lines[index] for index in active_lines(lines) if is_conversation_message(lines[index])]
    marked = [{**line, "message": {**line["message"], TIME_FIELD: parse_time(line.get("timestamp"))}} for line in own]
    provider = formatter(FORMAT).provider
    names: dict[str, str] = {}
    found: list[_WireMessage] = []
    for merged in merge_lines(marked):
        wire = {name: value for name, value in merged.items() if name != TIME_FIELD}
        decoded = decode_lines([make_line(wire)], provider, names)
        names |= {call.id: call.name for message in decoded for call in message.tool_calls}
        found.append(_WireMessage(wire, int(merged.get(TIME_FIELD) or 0), decoded))
    return found


def _calls_of(path: Sequence[_WireMessage], *, is_stored: bool, line: int = -1) -> list[ModelCall]:
    elements: list[bytes] = []
    messages: list[tuple[int, int]] = []
    calls: list[ModelCall] = []
    count, before = 0, 0
    for number, (wire, time, decoded) in enumerate(path, 1):
        own = list(range(count, count + len(decoded)))
        if _has_usage(wire):
            calls.append(
                ModelCall(
                    id=str(wire.get("id")),
                    format=SENT_FORMAT,
                    provider=SENT_FORMAT,
                    model=str(wire.get("model")),
                    elements=elements[:],
                    messages=messages[:] if is_stored else (),
                    reply=own if is_stored else (),
                    line=line,
                    finished=number < len(path) or wire.get("stop_reason", "end_turn") is not None,
                    usage=formatter(SENT_FORMAT).decode_reply({"content": [], **wire}).usage,
                    began=before or time,
                    ended=time,
                )
            )
        messages += [(len(elements), index) for index in own]
        elements.append(encode({"role": wire["role"], "content": wire.get("content")}))
        count, before = count + len(decoded), time
    return calls


def _has_usage(message: JSONObject) -> bool:
    named = (message.get("id"), message.get("model"))
    return isinstance(message.get("usage"), dict) and all(isinstance(each, str) and each for each in named)


def _last(lines: Sequence[JSONObject], name: str) -> str:
    return next((found for line in reversed(lines) if isinstance(found := line.get(name), str) and found), "")


def _real(directory: str) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(directory))


def _may_be(folder: str, directory: str) -> bool:
    """Return True if a folder may belong to a directory. Other directories may have the same folder name."""
    name = re.sub("[^a-zA-Z0-9]", "-", directory)
    return folder == name if len(name) <= MAX_FOLDER_NAME else folder.startswith(f"{name[:MAX_FOLDER_NAME]}-")

"""Transcripts of Claude Code: `projects/<directory>/<session>.jsonl` in its folder, one file per session.

The folder of a directory is named after its path, with a dash for all but letters and digits. Two directories may
share a folder; then the directory that a transcript names decides. Transcripts of sub-agents are in a subfolder of a
session, and are imported with it.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, as_object, encode
from contextc.formats import formatter
from contextc.formats.claude_code.codec import (
    active_lines,
    content_blocks,
    decode_lines,
    is_conversation_message,
    make_line,
    merge_lines,
    tool_results,
)
from contextc.interchange.found_conversation import (
    UUID,
    AgentLink,
    AgentTranscript,
    FoundConversation,
    ModelCall,
    ReadCalls,
    TranscriptReader,
    modified_time,
    parse_lines,
    parse_time,
    read_first_lines,
    read_transcripts,
    short_id,
)
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.sources import TranscriptFile
from contextc.messages import Message

# ── sub-agents ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Sub-agents of a Claude Code session: their transcripts, and the calls that started them.
#
# A sub-agent has a file of its own, `<session>/subagents/agent-<id>.jsonl` beside the session's file. Older versions
# wrote `agent-<id>.jsonl` beside it, or lines in the session's file. All of its lines have `isSidechain`. The result
# of the call that started it names its id; older ones are found by the task, which is the first message of the
# sub-agent.


AGENT_FILE = re.compile(r"agent-([\w-]+)\.jsonl")
AGENT_IN_TEXT = re.compile(r"\bagentId: ?([\w-]+)")
AGENT_HEADER_LINES = 5
MIN_TASK_LENGTH = 8


class _StartedAgents(NamedTuple):
    """The calls that started sub-agents, by the id of those and by their task: the calling agent, and its reply."""

    by_id: dict[str, tuple[str, str]]
    by_task: dict[str, tuple[str, str]]


def is_of_agent(line: JSONObject) -> bool:
    return bool(line.get("isSidechain"))


def read_agents(path: Path | None, lines: Sequence[JSONObject], session: str) -> list[AgentTranscript]:
    """Return the transcripts of a session's sub-agents, in the order of their first lines."""
    found = {**_split_inline(lines), **_read_files(path, session)}
    started = _StartedAgents({}, {})
    _add_started(started, "", [line for line in lines if not is_of_agent(line)])
    for agent, own in found.items():
        _add_started(started, agent, own)
    ordered = sorted(found, key=lambda agent: _first_time(found[agent]))
    return [_make_transcript(session, agent, found[agent], started, found) for agent in ordered]


def _make_transcript(
    session: str, agent: str, lines: Sequence[JSONObject], started: _StartedAgents, known: Mapping[str, object]
) -> AgentTranscript:
    caller, call = started.by_id.get(agent) or started.by_task.get(_task_of(lines)) or ("", "")
    link = AgentLink(agent=agent, session=session, caller=caller if caller in known else "", call=call)
    own = [{**line, "isSidechain": False} for line in lines]
    return AgentTranscript(f"{short_id(session)}-agent-{agent}", own, link)


def _split_inline(lines: Sequence[JSONObject]) -> dict[str, list[JSONObject]]:
    """Return the lines of sub-agents in the session's own file, by id, or else by their first line."""
    found: dict[str, list[JSONObject]] = {}
    agents: dict[str, str] = {}
    for line in filter(is_of_agent, lines):
        uuid, parent = str(line.get("uuid")), str(line.get("parentUuid"))
        agent = _text_field(line, "agentId") or agents.get(parent) or short_id(uuid)
        agents[uuid] = agent
        found.setdefault(agent, []).append(line)
    return found


def _read_files(path: Path | None, session: str) -> dict[str, list[JSONObject]]:
    found: dict[str, list[JSONObject]] = {}
    if path is None:
        return found
    beside = [each for each in _agent_files(path.parent) if _session_of(each) == session and each != path]
    for file in [*beside, *_agent_files(path.parent / path.stem / "subagents")]:
        name = AGENT_FILE.fullmatch(file.name)
        try:
            lines, _ = parse_lines(file.read_bytes())
        except OSError:
            continue
        if name is not None and any(map(is_of_agent, lines)):
            found[name[1]] = [line for line in lines if is_of_agent(line)]
    return found


def _agent_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("agent-*.jsonl")) if folder.is_dir() else []


def _session_of(path: Path) -> str:
    return next(
        (_text_field(line, "sessionId") for line in read_first_lines(path, AGENT_HEADER_LINES) if "sessionId" in line),
        "",
    )


def _add_started(started: _StartedAgents, caller: str, lines: Iterable[JSONObject]) -> None:
    """Add the sub-agents that an agent started."""
    replies: dict[str, str] = {}
    for line in lines:
        message = as_object(line.get("message"))
        for block in content_blocks(message) if line.get("type") == "assistant" else []:
            if as_object(block).get("type") == "tool_use":
                replies[str(block.get("id"))] = str(message.get("id") or "")
                task = _text_field(as_object(block.get("input")), "prompt").strip()
                if len(task) >= MIN_TASK_LENGTH:
                    started.by_task.setdefault(task, (caller, str(message.get("id") or "")))
        for block in tool_results(line):
            for agent in _named_agents(line, block):
                started.by_id[agent] = caller, replies.get(str(block.get("tool_use_id")), "")


def _named_agents(line: JSONObject, result: JSONObject) -> Iterator[str]:
    if agent := _text_field(as_object(line.get("toolUseResult")), "agentId"):
        yield agent
        return
    blocks = content_blocks({"content": result.get("content")})
    for text in [as_object(block).get("text") for block in blocks]:
        if isinstance(text, str) and (found := AGENT_IN_TEXT.search(text)):
            yield found[1]


def _task_of(lines: Sequence[JSONObject]) -> str:
    """Return the first text of a user in a sub-agent's transcript."""
    for line in lines:
        if line.get("type") == "user":
            blocks = content_blocks(as_object(line.get("message")))
            return next((text.strip() for each in blocks if isinstance(text := as_object(each).get("text"), str)), "")
    return ""


def _first_time(lines: Sequence[JSONObject]) -> int:
    return next((time for line in lines if (time := parse_time(line.get("timestamp")))), 0)


def _text_field(value: JSONObject, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    return _last_value(lines, "sessionId")


def session_title(lines: Sequence[JSONObject]) -> str:
    """Return the title of the user, or of Claude Code; for a session that begins with a summary, the last prompt."""
    shortened = any(line.get("isCompactSummary") for line in lines)
    return (
        _last_value(lines, "customTitle")
        or _last_value(lines, "aiTitle")
        or (_last_value(lines, "lastPrompt") if shortened else "")
    )


def find_transcripts(directory: str | None) -> Iterator[TranscriptFile]:
    projects = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    wanted = None if directory is None else _real_path(directory)
    for folder in sorted(projects.iterdir()) if projects.is_dir() else []:
        if wanted is not None and not _may_be_folder_of(folder.name, wanted):
            continue
        for path in sorted(folder.glob("*.jsonl")):
            if not UUID.fullmatch(path.stem):
                continue
            ran = next(
                (each for line in read_first_lines(path, HEADER_LINES) if isinstance(each := line.get("cwd"), str)), ""
            )
            if (
                wanted is None
                or not ran
                or _real_path(ran) == wanted
                or not _may_be_folder_of(folder.name, _real_path(ran))
            ):
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


def _last_value(lines: Sequence[JSONObject], name: str) -> str:
    return next((found for line in reversed(lines) if isinstance(found := line.get(name), str) and found), "")


def _real_path(directory: str) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(directory))


def _may_be_folder_of(folder: str, directory: str) -> bool:
    """Return True if a folder may belong to a directory. Other directories may have the same folder name."""
    name = re.sub("[^a-zA-Z0-9]", "-", directory)
    return folder == name if len(name) <= MAX_FOLDER_NAME else folder.startswith(f"{name[:MAX_FOLDER_NAME]}-")

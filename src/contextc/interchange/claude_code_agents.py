"""Sub-agents of a Claude Code session: their transcripts, and the calls that started them.

A sub-agent has a file of its own, `<session>/subagents/agent-<id>.jsonl` beside the session's file. Older versions
wrote `agent-<id>.jsonl` beside it, or lines in the session's file. All of its lines have `isSidechain`. The result of
the call that started it names its id; older ones are found by the task, which is the first message of the sub-agent.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contextc._json import JSONObject, as_object
from contextc.formats.claude_code.message_lines import content_blocks, tool_results
from contextc.interchange.found_conversation import AgentLink, parse_time, short_id
from contextc.interchange.session_transcript_reader import AgentTranscript, parse_lines, read_first_lines

AGENT_FILE = re.compile(r"agent-([\w-]+)\.jsonl")
AGENT_IN_TEXT = re.compile(r"\bagentId: ?([\w-]+)")
HEADER_LINES = 5
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
        agent = _text(line, "agentId") or agents.get(parent) or short_id(uuid)
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
    return next((_text(line, "sessionId") for line in read_first_lines(path, HEADER_LINES) if "sessionId" in line), "")


def _add_started(started: _StartedAgents, caller: str, lines: Iterable[JSONObject]) -> None:
    """Add the sub-agents that an agent started."""
    replies: dict[str, str] = {}
    for line in lines:
        message = as_object(line.get("message"))
        for block in content_blocks(message) if line.get("type") == "assistant" else []:
            if as_object(block).get("type") == "tool_use":
                replies[str(block.get("id"))] = str(message.get("id") or "")
                task = _text(as_object(block.get("input")), "prompt").strip()
                if len(task) >= MIN_TASK_LENGTH:
                    started.by_task.setdefault(task, (caller, str(message.get("id") or "")))
        for block in tool_results(line):
            for agent in _named_agents(line, block):
                started.by_id[agent] = caller, replies.get(str(block.get("tool_use_id")), "")


def _named_agents(line: JSONObject, result: JSONObject) -> Iterator[str]:
    if agent := _text(as_object(line.get("toolUseResult")), "agentId"):
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


def _text(value: JSONObject, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""

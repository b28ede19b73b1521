"""Transcripts: a program's record of one session, whose lines are one conversation.

A program may have died during a write, and newer versions write more kinds of lines. So unreadable lines are left out,
and a note names them.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, parse_object
from contextc.formats import formatter
from contextc.interchange.found_conversation import AgentLink, FoundConversation, ModelCall, read_or_error
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.linting.request_files import describe_unreadable_lines
from contextc.messages import Message


class ReadCalls(NamedTuple):
    """The messages of a transcript with their times, its model calls, and the paths that were abandoned."""

    messages: list[Message]
    calls: list[ModelCall]
    abandoned: Sequence[list[Message]] = ()


class AgentTranscript(NamedTuple):
    """The transcript of a sub-agent: the id of its conversation, its lines, and what started it."""

    id: str
    lines: list[JSONObject]
    link: AgentLink


class TranscriptReader(NamedTuple):
    """The functions that read the transcripts of one program. `sources` documents them. `read_agents` returns the
    sub-agents of a session, from its path, its lines and its id.
    """

    format: str
    all_lines: Callable[[Path | None, Sequence[JSONObject]], list[JSONObject]]
    session_id: Callable[[Sequence[JSONObject]], str]
    session_title: Callable[[Sequence[JSONObject]], str]
    read_calls: Callable[[Sequence[JSONObject], list[Message]], ReadCalls]
    read_agents: Callable[[Path | None, Sequence[JSONObject], str], list[AgentTranscript]] | None = None


def read_transcripts(given: ImportInput, reading: TranscriptReader) -> Iterator[FoundConversation]:
    """Return the sessions of some files, each followed by its sub-agents."""
    for file in given.files:
        lines: list[JSONObject] = []
        found = read_or_error(file.stem, lambda file=file, lines=lines: _read_file(file, reading, lines))
        agents: list[AgentTranscript] = []
        if reading.read_agents is not None and not found.error:
            agents = reading.read_agents(file.path, lines, found.id)
        if any(found.lines) or not agents:  # the file of a sub-agent has no message of the session
            yield found
        for agent in agents:
            yield read_or_error(agent.id, lambda agent=agent: _read_agent(agent, reading))


def _read_file(file: InputFile, reading: TranscriptReader, lines: list[JSONObject]) -> FoundConversation:
    """Return the session of a file, and add its lines to the given list."""
    given, broken = parse_lines(file.read())
    lines += reading.all_lines(file.path, given)
    id = reading.session_id(lines)
    found = _read_lines(lines, reading, id or file.stem)
    left_out = [describe_unreadable_lines(broken)] if broken else []
    return replace(found, is_derived_id=not id, left_out=[*left_out, *found.left_out])


def _read_agent(agent: AgentTranscript, reading: TranscriptReader) -> FoundConversation:
    return replace(_read_lines(agent.lines, reading, agent.id), title="", agent=agent.link)


def _read_lines(lines: list[JSONObject], reading: TranscriptReader, id: str) -> FoundConversation:
    request = formatter(reading.format).decode_request(lines)
    messages: list[Message] = [*([request.system] if request.system is not None else []), *request.messages]
    read = reading.read_calls(lines, messages)
    return FoundConversation(
        id=id, title=reading.session_title(lines), lines=[*read.abandoned, read.messages], calls=read.calls
    )


def parse_lines(data: bytes) -> tuple[list[JSONObject], list[int]]:
    """Return the objects in the lines of a file, and the numbers of unreadable lines."""
    lines = enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
    found = [(number, parse_object(line.decode("utf-8", "replace"))) for number, line in lines if line.strip()]
    return [each for _, each in found if each is not None], [number for number, each in found if each is None]


def read_first_lines(path: Path, count: int) -> list[JSONObject]:
    """Return the readable ones of the first lines of a file."""
    try:
        with path.open("rb") as file:
            return parse_lines(b"".join([file.readline() for _ in range(count)]))[0]
    except OSError:
        return []


def modified_time(path: Path) -> int:
    """Return the time of the last change of a file in Unix milliseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0

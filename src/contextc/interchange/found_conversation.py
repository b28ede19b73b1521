"""Conversations that a source returns: messages in one line, or in several lines with a common prefix."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, parse_object
from contextc.errors import ContextcError
from contextc.formats import formatter
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.linting.request_reading import describe_unreadable_lines
from contextc.messages import Message, Usage

SECONDS_LIMIT = 100_000_000_000  # a smaller number is a Unix time in seconds, a larger one in milliseconds
MAX_NAME_LENGTH = 80
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
DEFAULT_NAME = "session"
ORIGIN_KEY = "imported"
"""The key in the `meta` of a conversation's first message that holds its origin."""
DATA_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)
"""Exceptions that a reader raises for unexpected data."""
TIME_UUID_VERSION = "7"  # version 7 begins with the time, so the first eight characters are not unique


class ModelCall(Struct, frozen=True, kw_only=True):
    """A model call of a session. Its body is not known: `elements` are the messages so far, `head` the other fields.

    `messages` are indexes in a `line` of the conversation (the last one, if it is not given), each with its first
    element; a call whose messages are not part of the conversation has none. `reply` are the indexes of its reply. If
    it is not `finished`, the reply had not ended when the file was written. Times are in Unix milliseconds.
    """

    id: str
    format: str
    provider: str
    model: str
    elements: Sequence[bytes]
    head: JSONObject = {}
    messages: Sequence[tuple[int, int]] = ()
    reply: Sequence[int] = ()
    line: int = -1
    finished: bool = True
    usage: Usage | None = None
    began: int = 0
    ended: int = 0


class AgentLink(Struct, frozen=True, kw_only=True):
    """A sub-agent's session, and what started it: the id of the `caller` ("" for the session itself), and that of its
    model call ("" if it is not known).
    """

    agent: str
    session: str
    caller: str = ""
    call: str = ""


class FoundConversation(Struct, frozen=True, kw_only=True):
    """A conversation of a source. `id` is the source's own id. If it `is_derived_id`, it was derived from the messages
    or from the name of a file, and may not be unique. `title` is the name shown to people.

    Lines share the objects of their common messages. The last line is the current one. `left_out` lists the content
    that could not be imported, and why. `calls` are the model calls, oldest first. `agent` is set for the conversation
    of a sub-agent, which follows that of its caller. `directory` is where the program worked, "" if it is not known.
    `error` is the reason if nothing can be imported.
    """

    id: str
    title: str = ""
    lines: Sequence[Sequence[Message]]
    left_out: Sequence[str] = ()
    is_derived_id: bool = False
    calls: Sequence[ModelCall] = ()
    agent: AgentLink | None = None
    directory: str = ""
    error: str = ""


class Origin(Struct, frozen=True):
    """The origin of a conversation: a source, and the id there. `is_unique` is True if that id is unique."""

    source: str
    id: str
    is_unique: bool = True

    @property
    def short_id(self) -> str:
        return to_name(self.id) or DEFAULT_NAME


def make_origin(source: str, found: FoundConversation) -> Origin:
    return Origin(source, found.id, not found.is_derived_id and bool(found.id))


def read_origin(message: Message) -> Origin | None:
    """Return the origin that the first message of an imported conversation names."""
    held: object = (message.meta or {}).get(ORIGIN_KEY)
    about = as_object(cast(JSON, held))
    source, id = about.get("from"), about.get("id")
    if not isinstance(source, str) or not isinstance(id, str):
        return None
    return Origin(source, id, not about.get("made_up"))


def origin_meta(origin: Origin, title: str) -> JSONObject:
    """Return the origin in the form it has in `meta`."""
    more: JSONObject = {**({"title": title} if title else {}), **({} if origin.is_unique else {"made_up": True})}
    return {ORIGIN_KEY: {"from": origin.source, "id": origin.id, **more}}


def read_or_error(id: str, read: Callable[[], FoundConversation]) -> FoundConversation:
    """Return the conversation that `read` reads; if it raises, one with that error."""
    try:
        return read()
    except ContextcError as error:
        return FoundConversation(id=id, lines=(), error=str(error))
    except DATA_ERRORS as error:
        why = f"{type(error).__name__}: {error}"
        return FoundConversation(
            id=id,
            lines=(),
            error=f"The conversation does not have the structure that its program writes: {why.rstrip('.')}.",
        )


def short_id(id: str) -> str:
    """Return a prefix of an id that distinguishes it, for display."""
    return id[:13] if id[14:15] == TIME_UUID_VERSION else id[:8]


def to_name(text: str) -> str:
    """Return an id in the form used in the name of a conversation."""
    if UUID.fullmatch(text):
        return short_id(text)
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return "-".join(plain.split())[:MAX_NAME_LENGTH]


def parse_time(value: JSON) -> int:
    """Return a Unix time in milliseconds from a number or a date; 0 if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = value if value >= SECONDS_LIMIT else value * 1000
        return int(found) if 0 < found < 1 << 53 else 0
    if not isinstance(value, str) or not value:
        return 0
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return 0
    found = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000
    return int(found) if found > 0 else 0


# ── transcripts ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Transcripts: a program's record of one session, whose lines are one conversation.
#
# A program may have died during a write, and newer versions write more kinds of lines. So unreadable lines are left
# out, and a note names them.


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
        found = read_or_error(file.stem, lambda file=file, lines=lines: _read_transcript(file, reading, lines))
        agents: list[AgentTranscript] = []
        if reading.read_agents is not None and not found.error:
            agents = reading.read_agents(file.path, lines, found.id)
        if any(found.lines) or not agents:  # the file of a sub-agent has no message of the session
            yield found
        for agent in agents:
            yield read_or_error(agent.id, lambda agent=agent: _read_agent_transcript(agent, reading))


def _read_transcript(file: InputFile, reading: TranscriptReader, lines: list[JSONObject]) -> FoundConversation:
    """Return the session of a file, and add its lines to the given list."""
    given, broken = parse_lines(file.read())
    lines += reading.all_lines(file.path, given)
    id = reading.session_id(lines)
    found = _read_transcript_lines(lines, reading, id or file.stem)
    left_out = [describe_unreadable_lines(broken)] if broken else []
    return replace(found, is_derived_id=not id, left_out=[*left_out, *found.left_out])


def _read_agent_transcript(agent: AgentTranscript, reading: TranscriptReader) -> FoundConversation:
    return replace(_read_transcript_lines(agent.lines, reading, agent.id), title="", agent=agent.link)


def _read_transcript_lines(lines: list[JSONObject], reading: TranscriptReader, id: str) -> FoundConversation:
    request = formatter(reading.format).decode_request(lines)
    messages: list[Message] = [*([request.system] if request.system is not None else []), *request.messages]
    read = reading.read_calls(lines, messages)
    return FoundConversation(
        id=id,
        title=reading.session_title(lines),
        lines=[*read.abandoned, read.messages],
        calls=read.calls,
        directory=_find_directory(lines),
    )


def _find_directory(lines: Sequence[JSONObject]) -> str:
    """Return the first working directory that the lines of a transcript name."""
    for line in lines:
        for holder in (line, as_object(line.get("payload"))):
            if isinstance(named := holder.get("cwd"), str) and named:
                return named
    return ""


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

"""Read a session transcript: a program's record of one session, whose lines are one conversation.

A program may have died during a write, and newer versions write more kinds of lines. So unreadable lines are left out
and counted.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from contextc._json import JSONObject, parse_object
from contextc.formats import formatter
from contextc.interchange.found_conversation import FoundConversation, read_or_error
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.messages import Message


class TranscriptReader(NamedTuple):
    """The functions that read the transcripts of one program. `sources` documents them."""

    format: str
    all_lines: Callable[[Path | None, Sequence[JSONObject]], list[JSONObject]]
    session_id: Callable[[Sequence[JSONObject]], str]
    session_title: Callable[[Sequence[JSONObject]], str]


def read_transcripts(given: ImportInput, reading: TranscriptReader) -> Iterator[FoundConversation]:
    for file in given.files:
        yield read_or_error(file.stem, lambda file=file: read_transcript(file, reading))


def read_transcript(file: InputFile, reading: TranscriptReader) -> FoundConversation:
    lines, broken = parse_lines(file.read())
    lines = reading.all_lines(file.path, lines)
    request = formatter(reading.format).decode_request(lines)
    messages: list[Message] = [*([request.system] if request.system is not None else []), *request.messages]
    left_out = [f"{broken} {'line' if broken == 1 else 'lines'} that cannot be read"] if broken else []
    id = reading.session_id(lines)
    return FoundConversation(
        id=id or file.stem,
        is_derived_id=not id,
        title=reading.session_title(lines),
        lines=[messages],
        left_out=left_out,
    )


def parse_lines(data: bytes) -> tuple[list[JSONObject], int]:
    """Return the objects in the lines of a file, and the number of unreadable lines."""
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    found = [parse_object(line.decode("utf-8", "replace")) for line in lines]
    return [each for each in found if each is not None], sum(each is None for each in found)


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

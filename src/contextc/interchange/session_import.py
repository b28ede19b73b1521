"""Import of sessions of other programs, such as Claude Code and Codex, as conversations.

All messages are stored, calls and results included, and the conversation can continue with any provider. The program's
own files are never written. A second import adds the new messages. If the conversation was continued here in the
meantime, the import is refused. Another name for the conversation solves that.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from contextc.errors import ContextcError, InvalidInput
from contextc.interchange.file_import import TITLE_LENGTH, detect_source, import_files
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.interchange.request_import_export import has_content
from contextc.interchange.sources import TranscriptFile, load_session_source, load_source, session_source_names
from contextc.messages.client_context import first_user_text
from contextc.store import Conversation, Store

DEFAULT_LIMIT = 20


class ListedSession(Struct, frozen=True, kw_only=True):
    """A session in a list. `time` is its last change in Unix milliseconds. `title` is its name or first text."""

    source: str
    id: str
    time: int
    messages: int
    title: str
    directory: str
    path: str


class ImportedSession(NamedTuple):
    """The conversation after an import, the number of new messages, and the content that was left out."""

    conversation: Conversation
    added: int
    warnings: list[str]


def list_sessions(
    source_name: str, *, directory: str | None = ".", limit: int | None = DEFAULT_LIMIT
) -> tuple[list[ListedSession], int]:
    """Return the sessions of a program in a directory (None: in all), newest first, and the number of further ones.

    Sessions without messages are left out.
    """
    listed: list[ListedSession] = []
    ordered = _list_newest(source_name, directory)
    for index, each in enumerate(ordered):
        if limit is not None and len(listed) == limit:
            return listed, len(ordered) - index
        try:
            read = _read_file(source_name, each)
        except ContextcError as error:
            listed.append(_listed(source_name, each, 0, f"cannot be read: {error}"))
            continue
        if messages := [message for message in read.lines[-1] if has_content(message)] if read is not None else []:
            title = (read.title if read else "") or " ".join(first_user_text(messages).split())[:TITLE_LENGTH]
            listed.append(_listed(source_name, each, len(messages), title))
    return listed, 0


def find_session_file(source_name: str, session: str | None = None, *, directory: str | None = ".") -> Path:
    """Return the file of a session, by its id or a prefix; without one, the last of a directory (None: of all)."""
    return (_find_last(source_name, directory) if session is None else _find_by_id(source_name, session)).path


def import_session(
    store: Store, source_name: str, session: str | None = None, *, directory: str | None = ".", into: str | None = None
) -> ImportedSession:
    """Import a session of a program by its id or a prefix; without one, the last of a directory (None: of all).

    `into` is the name of the conversation. By default, it is derived from the session.
    """
    return _import(store, InputFile(find_session_file(source_name, session, directory=directory)), source_name, into)


def import_transcript(
    store: Store, data: bytes, *, path: Path | None = None, source_name: str | None = None, into: str | None = None
) -> ImportedSession:
    """Import the bytes of a transcript completely or not at all. Without `source_name`, the program is recognised."""
    file = InputFile(path, data)
    source_name = source_name or detect_source(file)
    if source_name not in session_source_names():
        raise InvalidInput(f"The data is not a transcript of {' or '.join(session_source_names())}.")
    return _import(store, file, source_name, into)


def _import(store: Store, file: InputFile, name: str, into: str | None) -> ImportedSession:
    summary = import_files(store, [file], source_name=name, into=into)
    taken = summary.conversations[0]  # the others are sub-agents
    if taken.error is not None:
        raise InvalidInput(taken.error)
    return ImportedSession(
        store.conversation(taken.name), taken.new, [f"left out: {note}" for note in summary.left_out]
    )


def _listed(name: str, found: TranscriptFile, messages: int, title: str) -> ListedSession:
    return ListedSession(
        source=name,
        id=found.id,
        time=found.time,
        messages=messages,
        title=title,
        directory=found.directory,
        path=str(found.path),
    )


def _read_file(name: str, found: TranscriptFile) -> FoundConversation | None:
    """Return the content of a transcript on this machine; None if the file is not one."""
    if not found.path.is_file():
        return None
    file = InputFile(found.path)
    kind = load_source(name)
    read = next(iter(kind.read_conversations(ImportInput([file]))), None) if kind.matches(file.sample()) else None
    if read is not None and read.error:
        raise InvalidInput(read.error)
    return read


def _list_newest(name: str, directory: str | None) -> list[TranscriptFile]:
    found: Iterator[TranscriptFile] = load_session_source(name).find_transcripts(directory)
    return sorted(found, key=lambda each: (each.time, each.id), reverse=True)


def _find_last(name: str, directory: str | None) -> TranscriptFile:
    for each in _list_newest(name, directory):
        read = _read_file(name, each)
        if read is not None and any(map(has_content, read.lines[-1])):
            return each
    where = "on this machine" if directory is None else f"in {Path(directory).absolute()}"
    raise InvalidInput(
        f"No session of {name} found {where}",
        fix="Pass another directory, or None to search in all directories.",
        case="no-session",
    )


def _find_by_id(name: str, session: str) -> TranscriptFile:
    ordered = _list_newest(name, None)
    found = [each for each in ordered if session and each.id.startswith(session.lower())]
    exact = [each for each in found if each.id == session.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InvalidInput(
            f"{name} has no session {session!r} on this machine",
            fix="Call `list_sessions(directory=None)` to list its sessions.",
            case="unknown-session",
            detail=name,
        )
    which = ", ".join(each.id for each in found[:5])
    raise InvalidInput(
        f"{session!r} matches {len(found)} sessions of {name}: {which}", fix="Pass more characters of the id."
    )

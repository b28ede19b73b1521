"""Sessions of other programs, taken in as conversations: Claude Code's, Codex'.

What was said is ours afterwards, calls and results included, and may go on with any provider. The program's own files
are read and never written. A transcript that is imported again adds what is new in it; where the conversation has gone
on by itself in the meantime, nothing is mixed: it is refused, and another name is the way out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from contextc.errors import ContextcError, ConversationExists, InvalidInput, InvalidRequest
from contextc.formats import formatter
from contextc.messages import Message, admit
from contextc.store import Conversation, Store, chain, places
from contextc.store.base import Transaction
from contextc.store.branches import describe
from contextc.store.sync import compare
from contextc.transfer.requests import says_something
from contextc.transfer.sources import Source, Transcript, parsed, source, source_names

SHOWN = 20
FIRST_WORDS = 80
HEAD, LONG_LINE = 200, 1 << 20  # lines at which a transcript is known, and bytes of one that is passed over for that
NEWER_UUID = 7  # begins with the time, so that the first eight characters say little


class ListedSession(Struct, frozen=True, kw_only=True):
    """A session as it is listed: `time` is when it was last written, in milliseconds; `title` its first words where it
    has no name.
    """

    source: str
    id: str
    time: int
    messages: int
    title: str
    directory: str
    path: str


class ImportedSession(NamedTuple):
    """The conversation as it is now, how many messages were new, and what could not be taken."""

    conversation: Conversation
    added: int
    warnings: list[str]


class _Read(NamedTuple):
    session: str
    title: str
    messages: list[Message]
    warnings: list[str]


def list_sessions(
    name: str, *, directory: str | None = ".", limit: int | None = SHOWN
) -> tuple[list[ListedSession], int]:
    """The sessions of a program in a directory (None: in all), newest first; and how many more there are.

    Those in which nothing was said are left out.
    """
    listed: list[ListedSession] = []
    ordered = _newest(name, directory)
    for index, each in enumerate(ordered):
        if limit is not None and len(listed) == limit:
            return listed, len(ordered) - index
        try:
            read = _read_file(name, each)
        except ContextcError as error:
            listed.append(_listed(name, each, 0, f"cannot be read: {error}"))
            continue
        if read is not None and read.messages:
            first = next((message.text for message in read.messages if message.role == "user"), "")
            title = read.title or " ".join(first.split())[:FIRST_WORDS]
            listed.append(_listed(name, each, len(read.messages), title))
    return listed, 0


def import_session(
    store: Store, name: str, session: str | None = None, *, directory: str | None = ".", into: str | None = None
) -> ImportedSession:
    """Take in a session of a program by its id, or the beginning of it; without one, the last of a directory (None: of
    all). The conversation is named for it, unless `into` says another name.
    """
    found = _last(name, directory) if session is None else _by_id(name, session)
    try:
        data = found.path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{found.path} cannot be read: {error.strerror}.") from error
    return import_transcript(store, data, path=found.path, name=name, into=into)


def import_transcript(
    store: Store, data: bytes, *, path: Path | None = None, name: str | None = None, into: str | None = None
) -> ImportedSession:
    """Take in the bytes of a transcript: of the program `name`, or of whichever it is. All of it, or nothing."""
    name = name or transcript_source(data)
    if name is None:
        raise InvalidInput(f"This is no transcript of {' or '.join(source_names())}.")
    read = _read(source(name), data, path)
    if not read.messages:
        raise InvalidRequest("nothing was said in this session.")
    conversation = into or f"{name.replace('_', '-')}-{short(read.session) or 'session'}"
    entries = [chain.entry(admit(message)) for message in read.messages]

    def work(tx: Transaction) -> tuple[Conversation, int]:
        new = _new(tx, conversation, entries)
        if new:
            chain.append(tx, conversation, new)
        return describe(tx, conversation), len(new)

    described, added = store.write(work, repeatable=True)
    return ImportedSession(described, added, read.warnings)


def transcript_source(data: bytes) -> str | None:
    """The program whose transcript this is; None where it is none of those we know."""
    head = [line for line in data.split(b"\n", HEAD)[:HEAD] if len(line) < LONG_LINE]
    lines, _ = parsed(b"\n".join(head))
    return next((name for name in source_names() if source(name).recognises(lines)), None)


def short(session: str) -> str:
    """As much of an id as tells it from others, for people."""
    return session[:13] if session[14:15] == str(NEWER_UUID) else session[:8]


def _listed(name: str, found: Transcript, messages: int, title: str) -> ListedSession:
    return ListedSession(
        source=name,
        id=found.id,
        time=found.time,
        messages=messages,
        title=title,
        directory=found.directory,
        path=str(found.path),
    )


def _read_file(name: str, found: Transcript) -> _Read | None:
    """What is in a transcript on this machine; None where the file holds none."""
    try:
        data = found.path.read_bytes()
    except OSError:
        return None
    return _read(source(name), data, found.path) if transcript_source(data) else None


def _read(kind: Source, data: bytes, path: Path | None) -> _Read:
    lines, broken = parsed(data)
    lines = kind.whole(path, lines)
    request = formatter(kind.FORMAT).decode_request(lines)
    said = [*([request.system] if request.system is not None else []), *request.messages]
    kept = [message for message in said if says_something(message)]
    warnings = [f"left out: {broken} {'line' if broken == 1 else 'lines'} that cannot be read"] if broken else []
    if len(kept) < len(said):
        warnings.append(f"left out: {len(said) - len(kept)} messages that say nothing")
    return _Read(kind.session_of(lines), kind.title_of(lines), kept, warnings)


def _new(tx: Transaction, conversation: str, entries: Sequence[chain.Entry]) -> Sequence[chain.Entry]:
    """Of a transcript, what the conversation does not have."""
    here = places.find_head(tx, conversation, True)
    if here is None:
        return entries
    ours = chain.messages_between(tx, here.branch, 0, here.seq)
    difference = compare(ours, [entry.admitted.message for entry in entries])
    if difference.tail == len(entries):
        raise ConversationExists(conversation)
    if difference.rewrites:
        raise InvalidInput(
            f"Conversation {conversation!r} and this session went on differently after message {difference.after}. "
            "Import the session under another name (--as)."
        )
    return entries[len(entries) - difference.tail :]


def _newest(name: str, directory: str | None) -> list[Transcript]:
    found: Iterator[Transcript] = source(name).found(directory)
    return sorted(found, key=lambda each: (each.time, each.id), reverse=True)


def _last(name: str, directory: str | None) -> Transcript:
    for each in _newest(name, directory):
        read = _read_file(name, each)
        if read is not None and read.messages:
            return each
    where = "on this machine" if directory is None else f"in {Path(directory).absolute()}"
    raise InvalidInput(f"There is no session of {name} {where}. Look elsewhere with --directory or --all.")


def _by_id(name: str, session: str) -> Transcript:
    ordered = _newest(name, None)
    found = [each for each in ordered if session and each.id.startswith(session.lower())]
    exact = [each for each in found if each.id == session.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InvalidInput(
            f"{name} has no session {session!r} on this machine. List them: contextc import --from {name} --all."
        )
    which = ", ".join(each.id for each in found[:5])
    raise InvalidInput(f"{session!r} may be {len(found)} sessions of {name}: {which}. Give more of the id.")

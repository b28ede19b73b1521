"""Sources of an import: the files of other programs, one module each.

A source is a module that is found by its name; a new source needs only a new file. It has

    ABOUT                             the description in the list of sources
    matches(sample)                   return True if a file is of this kind, by its start
    read_conversations(given)         return the conversations in the given files

or, if it logs requests and replies,

    read_log(given)                   return the exchanges in the given files, each with its position

and, if the program stores each session in a file at a known place,

    find_transcripts(directory)       return the sessions on this machine, of one directory or (None) of all

and, if it records provider requests in an envelope of its own,

    read_exchanges(value)             return the requests in a value of a file, each with its reply

A source writes nothing, and runs or opens nothing that a file names. If one of several conversations is invalid,
`read_or_error` records the error for that conversation, and the others are returned.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from msgspec import Struct

from contextc._json import JSON
from contextc._plugins import SOURCES, load_plugin, plugins, submodules
from contextc._sequence_comparison import find_near_names
from contextc.errors import InvalidSetting
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import LoggedExchange, LoggedExchanges


class TranscriptFile(Struct, frozen=True, kw_only=True):
    """A transcript on this machine. `directory` is where its program ran, `time` its last change in Unix ms."""

    id: str
    path: Path
    directory: str
    time: int


class ImportSource(Protocol):
    ABOUT: str

    def matches(self, sample: FileSample) -> bool: ...

    def read_conversations(self, given: ImportInput) -> Iterator[FoundConversation]: ...


@runtime_checkable
class LogSource(Protocol):
    """A source that logs requests and replies."""

    def read_log(self, given: ImportInput) -> LoggedExchanges: ...


@runtime_checkable
class SessionSource(Protocol):
    """A source that stores its sessions at a known place."""

    def find_transcripts(self, directory: str | None) -> Iterator[TranscriptFile]: ...


@runtime_checkable
class ExchangeSource(Protocol):
    """A source that records requests in an envelope of its own."""

    def read_exchanges(self, value: JSON) -> list[LoggedExchange]: ...


def source_names() -> list[str]:
    """Return the names of all sources: those of this package, then those of plugins (group `contextc.sources`)."""
    own = [name.replace("_", "-") for name in submodules(__name__)]
    return list(dict.fromkeys([*own, *sorted(plugins(SOURCES))]))


def session_source_names() -> list[str]:
    """Return the names of the sources whose sessions can be listed."""
    return [name for name in source_names() if isinstance(load_source(name), SessionSource)]


def load_source(name: str) -> ImportSource:
    known = source_names()
    if name.replace("_", "-") not in known:
        close = find_near_names(name, known)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise InvalidSetting(f"Source {name!r} not found.{meant} Known sources: {', '.join(known)}.")
    module = name.replace("-", "_")
    if module in submodules(__name__):
        return cast(ImportSource, import_module(f"{__name__}.{module}"))
    return cast(ImportSource, load_plugin(SOURCES, name))


def load_session_source(name: str) -> SessionSource:
    found = load_source(name)
    if not isinstance(found, SessionSource):
        raise InvalidSetting(
            f"Sessions of {name} cannot be listed", fix="Import one of its files.", case="source-file", detail=name
        )
    return found

"""What other programs keep, one file each: how it is known, how it is read, and where it lies.

A source is a module found by its name: one more is one more file, and no line elsewhere. It has

    ABOUT                             what it reads, for the list of sources
    recognises(sample)                whether a file is of this kind, by what it begins with
    conversations(given)              what is in the files that are given, one conversation after the other

and, where a program keeps a session a file at a place of its own,

    found(directory)                  the sessions on this machine, of one directory or (None) of all

and, where it records what went to providers in an envelope of its own,

    exchanges(value)                  the requests in a value of a file, each with its reply

Nothing here writes anything, and nothing that a file names is run or opened. Where one conversation of several is not
as its program writes them, `attempt` makes that the conversation's own error, and the others are found.
"""

import pkgutil
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from msgspec import Struct

from contextc._json import JSON
from contextc.errors import InvalidSetting
from contextc.transfer.exchanges import Exchange
from contextc.transfer.found import Found
from contextc.transfer.given import Given, Sample


class Transcript(Struct, frozen=True, kw_only=True):
    """A transcript on this machine. `directory` is where its program ran, `time` when it was last written (ms)."""

    id: str
    path: Path
    directory: str
    time: int


class Source(Protocol):
    ABOUT: str

    def recognises(self, sample: Sample) -> bool: ...

    def conversations(self, given: Given) -> Iterator[Found]: ...


@runtime_checkable
class Kept(Protocol):
    """A source that keeps its sessions at a place of its own."""

    def found(self, directory: str | None) -> Iterator[Transcript]: ...


@runtime_checkable
class Recorded(Protocol):
    """A source that records requests as they went out, wrapped in something of its own."""

    def exchanges(self, value: JSON) -> list[Exchange]: ...


def source_names() -> list[str]:
    """What may stand behind `--from`."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def kept_names() -> list[str]:
    """The sources whose sessions can be listed."""
    return [name for name in source_names() if isinstance(source(name), Kept)]


def source(name: str) -> Source:
    known = source_names()
    if name.replace("_", "-") not in known:
        close = get_close_matches(name, known, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise InvalidSetting(f"Source {name!r} not found.{meant} Known sources: {', '.join(known)}.")
    return cast(Source, import_module(f"{__name__}.{name.replace('-', '_')}"))


def kept(name: str) -> Kept:
    found = source(name)
    if not isinstance(found, Kept):
        raise InvalidSetting(
            f"Sessions of {name} cannot be listed", fix="Import one of its files.", case="source-file", detail=name
        )
    return found

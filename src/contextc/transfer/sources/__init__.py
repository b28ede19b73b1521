"""Programs that keep transcripts of their own on this machine, one file each: where they are, and how they are read.

A source is a module found by its name: one more is one more file, and no line elsewhere. It has

    FORMAT                            the format its lines are decoded with
    recognises(lines)                 whether these are lines of such a transcript
    session_of(lines)                 the program's name for the session they are of; "" where they do not say
    title_of(lines)                   what the program calls it; "" where it has no name for it
    found(directory)                  the transcripts on this machine, of one directory or (None) of all
    whole(path, lines)                the lines, with those before them that stand in other files

Nothing here writes anything.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from msgspec import Struct

from contextc._json import JSONObject, parse_object
from contextc.errors import InvalidSetting

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""How programs name their sessions, in any case of letters."""


class Transcript(Struct, frozen=True, kw_only=True):
    """A transcript on this machine. `directory` is where its program ran, `time` when it was last written (ms)."""

    id: str
    path: Path
    directory: str
    time: int


class Source(Protocol):
    FORMAT: str

    def recognises(self, lines: Sequence[JSONObject]) -> bool: ...

    def session_of(self, lines: Sequence[JSONObject]) -> str: ...

    def title_of(self, lines: Sequence[JSONObject]) -> str: ...

    def found(self, directory: str | None) -> Iterator[Transcript]: ...

    def whole(self, path: Path | None, lines: Sequence[JSONObject]) -> list[JSONObject]: ...


def source_names() -> list[str]:
    """What may stand behind `--from`."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def source(name: str) -> Source:
    known = source_names()
    if name.replace("_", "-") not in known:
        raise InvalidSetting(f"{name!r} is no source of transcripts. There are {', '.join(known)}.")
    return cast(Source, import_module(f"{__name__}.{name.replace('-', '_')}"))


def parsed(data: bytes) -> tuple[list[JSONObject], int]:
    """The objects in the lines of a file, and how many lines hold none: a program may have died while it wrote."""
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    found = [parse_object(line.decode("utf-8", "replace")) for line in lines]
    return [each for each in found if each is not None], sum(each is None for each in found)


def first_lines(path: Path, count: int) -> list[JSONObject]:
    """The first lines of a file, as far as they can be read."""
    try:
        with path.open("rb") as file:
            return parsed(b"".join([file.readline() for _ in range(count)]))[0]
    except OSError:
        return []


def modified(path: Path) -> int:
    """When a file was last written, in milliseconds; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0

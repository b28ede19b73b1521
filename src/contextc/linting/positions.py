"""Lines and columns of values in the text of JSON, by their paths: for editors and code scanning."""

import re
from collections.abc import Iterable
from contextlib import suppress
from json import JSONDecodeError, JSONDecoder
from typing import NamedTuple, TypeAlias

from contextc._json import parse_object
from contextc.linting.request_reading import RequestFile

STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
SPACE = re.compile(r"[ \t\r\n]*")
Steps: TypeAlias = tuple[int | str, ...]
Branches: TypeAlias = "dict[int | str, Branches]"
_decoder = JSONDecoder(strict=False)


class Position(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


def find_positions(text: str, paths: Iterable[str], line: int = 1) -> dict[str, Position]:
    """Return where the value of each path begins, such as `messages[2].content[0]`.

    Where a part of a path is missing, the place of its parent is returned. Text that is not JSON has one place, its
    beginning. `line` is the number of the first line.
    """
    wanted = {path: _parse_path(path) for path in paths}
    branches: Branches = {}
    for steps in wanted.values():
        inner = branches
        for step in steps:
            inner = inner.setdefault(step, {})
    offsets: dict[Steps, int] = {(): 0}
    with suppress(JSONDecodeError, IndexError, RecursionError):  # what was found until there is kept
        _walk(text, _skip_space(text, len(text) - len(text.removeprefix("\ufeff"))), branches, (), offsets)
    found: dict[str, Position] = {}
    for path, steps in wanted.items():
        at = next(offsets[steps[:length]] for length in range(len(steps), -1, -1) if steps[:length] in offsets)
        found[path] = Position(line + text.count("\n", 0, at), at - text.rfind("\n", 0, at))
    return found


def find_positions_in_file(data: bytes, requests: RequestFile, index: int, paths: Iterable[str]) -> dict[str, Position]:
    """Return where values of the request with this index begin in the file that it was read from."""
    text, paths = data.decode(errors="replace"), list(paths)
    if requests.layout == "whole":
        return find_positions(text, paths)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if requests.layout == "lines":
        number, line = lines[index]
        return find_positions(line, paths, number)
    if requests.layout == "session":  # lines that are not objects were left out
        lines = [(number, line) for number, line in lines if parse_object(line) is not None]
    found: dict[str, Position] = {}
    for path in paths:  # a path begins with the number of its message
        steps = STEP.match(path)
        at = int(steps[1]) if steps and steps[1] else 0
        number, line = lines[min(at, len(lines) - 1)]
        inner = path[steps.end() :] if steps else ""
        found[path] = find_positions(line, [inner], number)[inner]
    return found


def _parse_path(path: str) -> Steps:
    return tuple([int(found[1]) if found[1] else found[2] for found in STEP.finditer(path)])


def _walk(text: str, at: int, branches: Branches, steps: Steps, offsets: dict[Steps, int]) -> int:
    """Note the offset of a value and of the wanted ones in it, and return the offset of its end."""
    offsets[steps] = at
    opening = text[at]
    if not branches or opening not in "{[":
        return _decoder.raw_decode(text, at)[1]
    number, at = 0, _skip_space(text, at + 1)
    while text[at] not in "}]":
        step: int | str = number
        if opening == "{":
            step, at = _decoder.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)
        inner = branches.get(step)
        end = _decoder.raw_decode(text, at)[1] if inner is None else _walk(text, at, inner, (*steps, step), offsets)
        number, at = number + 1, _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return at + 1


def _skip_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at

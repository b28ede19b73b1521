"""Search a folder with a regular expression. This file is also run as a program, by search_files.

A model's pattern may take exponential time, and Python's `re` can neither be interrupted nor run beside other threads.
A process can be killed. This file therefore imports only the standard library, reads its job as JSON from standard
input, and writes each match as a line of JSON as soon as it is found.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

IGNORED_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "node_modules",
        "bower_components",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".cache",
        ".idea",
        ".gradle",
        ".next",
        ".terraform",
    }
)
BRACES = re.compile(r"\{([^{}]*)\}")
MAX_GLOB_CHARACTERS = 200
MAX_FILE_BYTES = 2_000_000
MAX_LINE_CHARACTERS = 300


class Match(NamedTuple):
    """A matching line: its path, its number and its text."""

    path: str
    line: int
    text: str


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return a glob (`*.py` at any depth, `src/**/*.py`, `*.{js,ts}`) as a regular expression over relative paths.

    A star takes the first match and does not backtrack, so no pattern can take long.
    """
    if len(glob) > MAX_GLOB_CHARACTERS or glob.count("{") > 2 or glob.count("**") > 4:
        raise ValueError("The glob is too long, or has too many ** or braces. Use a simpler one, such as src/**/*.py.")
    return re.compile("|".join(_glob_regex(each) for each in _expand_braces(glob.removeprefix("./"))))


def _expand_braces(glob: str) -> list[str]:
    match = BRACES.search(glob)
    if match is None:
        return [glob]
    before, after = glob[: match.start()], glob[match.end() :]
    return [each for option in match[1].split(",") for each in _expand_braces(f"{before}{option}{after}")]


def _glob_regex(glob: str) -> str:
    *folders, last = glob.split("/") if "/" in glob else ["**", glob]
    groups: list[list[str]] = [[]]
    for each in folders:
        if each == "**":
            groups.append([])
        else:
            groups[-1].append(_segment_regex(each) + "/")
    first, *rest = ["".join(each) for each in groups]
    middle = "".join(f"(?>(?:[^/]+/)*?{each})" for each in rest[:-1] if each)
    end = f"(?:[^/]+/)*{rest[-1]}" if rest else ""
    return first + middle + end + (".*" if last == "**" else _segment_regex(last))


def _segment_regex(segment: str) -> str:
    first, *rest = [re.escape(piece).replace(r"\?", "[^/]") for piece in re.split(r"\*+", segment)]
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1]) + "[^/]*" + rest[-1]


def matches_path(pattern: re.Pattern[str], path: str, *folders: str) -> bool:
    """Return True if a path, relative to one of these folders, matches."""
    return any(pattern.fullmatch(os.path.relpath(path, top)) for top in folders)


def walk_files(top: str) -> Iterator[str]:
    """Yield the regular files below a folder, in order. Links are not followed, so the walk ends and stays inside."""
    try:
        with os.scandir(top) as found:
            entries = sorted(found, key=lambda each: each.name)
    except OSError:
        return
    for each in entries:
        if each.is_file(follow_symlinks=False):
            yield each.path
    for each in entries:
        if each.is_dir(follow_symlinks=False) and each.name not in IGNORED_FOLDERS:
            yield from walk_files(each.path)


def search(root: str, start: str, pattern: re.Pattern[str], glob: str | None) -> Iterator[Match]:
    """Yield every matching line of the text files at or below `start`."""
    wanted = glob_pattern(glob) if glob else None
    for path in [start] if os.path.isfile(start) else walk_files(start):
        if wanted is not None and not matches_path(wanted, path, root, start):
            continue
        if text := _read_text(path):
            for line, shown in _matching_lines(text, pattern):
                yield Match(os.path.relpath(path, root), line, shown)


def _read_text(path: str) -> str:
    try:
        found = os.stat(path)
        if found.st_size > MAX_FILE_BYTES or (
            found.st_nlink > 1 and not found.st_mode & 0o044
        ):  # as Folder.file rejects it
            return ""
        with open(path, "rb") as handle:
            data = handle.read(MAX_FILE_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode(errors="replace")


def _matching_lines(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    number, counted, place = 1, 0, 0
    while place <= len(text) and (match := pattern.search(text, place)):
        begin = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        number += text.count("\n", counted, begin)
        counted, place = begin, end + 1
        if begin < len(text):
            yield number, _shorten_line(text[begin:end].rstrip("\r"), match.start() - begin)


def _shorten_line(line: str, at: int) -> str:
    """Return a long line shortened to the text around the match."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    begin = max(0, min(at - MAX_LINE_CHARACTERS // 3, len(line) - MAX_LINE_CHARACTERS))
    cut = line[begin : begin + MAX_LINE_CHARACTERS]
    return f"{'…' if begin else ''}{cut}{'…' if begin + MAX_LINE_CHARACTERS < len(line) else ''}"


def main() -> None:
    job = json.load(sys.stdin)
    try:
        pattern = re.compile(job["pattern"], re.MULTILINE | (re.IGNORECASE if job["ignore_case"] else 0))
        for count, match in enumerate(search(job["root"], job["start"], pattern, job["glob"]), 1):
            _write_json(match)
            if count >= job["limit"]:
                break
        _write_json(None)
    except (re.error, RecursionError, OverflowError) as error:
        _write_json(f"The pattern is no regular expression: {error}. Escape what is meant literally.")
    except ValueError as error:
        _write_json(str(error))


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

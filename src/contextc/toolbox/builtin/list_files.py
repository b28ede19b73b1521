"""The list_files tool: the contents of a folder as a tree, or the files whose names match a pattern."""

import os
from collections import deque
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from contextc.errors import InvalidInput
from contextc.toolbox.builtin.folder import Folder
from contextc.toolbox.builtin.searching import IGNORED, fits, glob_pattern, walk
from contextc.toolbox.function import FunctionTool, tool

MOST = 500


def list_files_tool(folder: Folder) -> FunctionTool:
    @tool(timeout=30)
    def list_files(
        path: Annotated[str, "The folder to list, relative to the top of the project."] = ".",
        depth: Annotated[int, Meta(ge=1, le=20), "How many levels of folders to open."] = 3,
        pattern: Annotated[str | None, "Only files that match, at any depth, such as *.py or src/**/test_*.py."] = None,
    ) -> str:
        """List the files and folders of the project as a tree, or find files by a pattern of their names. Folders that
        hold what is generated or installed, such as .git and node_modules, are left out."""
        place = folder.find(path)
        if not place.is_dir():
            raise InvalidInput(
                f"{path} is not a folder. Use list_files on the folder it is in, or read_file for a file."
            )
        return _matching(folder, place, pattern) if pattern else _tree(place, depth)

    return list_files


def _matching(folder: Folder, place: Path, pattern: str) -> str:
    try:
        wanted = glob_pattern(pattern)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    found: list[str] = []
    for each in walk(str(place)):
        if fits(wanted, each, str(place), str(folder.root)):
            found.append(folder.name(Path(each)))
            if len(found) > MOST:
                return "\n".join([*found[:MOST], f"[More than {MOST} files match. Give a narrower pattern.]"])
    return "\n".join(found) or f"[No file matches {pattern}.]"


def _tree(top: Path, depth: int) -> str:
    """Return a tree, collected breadth-first so that one large folder does not use up the limit."""
    inside: dict[str, list[os.DirEntry[str]]] = {}
    waiting, count = deque([(str(top), 1)]), 0
    while waiting and count < MOST:
        here, level = waiting.popleft()
        inside[here] = _entries(here)
        count += len(inside[here])
        if level < depth:
            waiting += [(each.path, level + 1) for each in inside[here] if _opens(each)]
    lines: list[str] = []
    _write(str(top), 0, inside, lines)
    if len(lines) > MOST:
        lines = [*lines[:MOST], f"[{len(lines) - MOST:,} more entries. List one of the folders, or find by a pattern.]"]
    elif any("/ …" in line for line in lines):
        lines.append("[A folder with … has more in it: list it by its path.]")
    return "\n".join(lines) or "[The folder is empty.]"


def _entries(here: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(here) as found:
            return sorted(found, key=lambda each: (not _is_folder(each), each.name))
    except OSError:
        return []


def _is_folder(each: os.DirEntry[str]) -> bool:
    return each.is_dir(follow_symlinks=False)


def _opens(each: os.DirEntry[str]) -> bool:
    return _is_folder(each) and each.name not in IGNORED


def _write(here: str, level: int, inside: dict[str, list[os.DirEntry[str]]], lines: list[str]) -> None:
    for each in inside.get(here, ()):
        margin = "  " * level
        if each.is_symlink():
            lines.append(f"{margin}{each.name} (a link)")
        elif not _is_folder(each):
            lines.append(f"{margin}{each.name}")
        elif each.name in IGNORED:
            lines.append(f"{margin}{each.name}/ (left out)")
        else:
            lines.append(f"{margin}{each.name}/{'' if each.path in inside else ' …'}")
            _write(each.path, level + 1, inside, lines)

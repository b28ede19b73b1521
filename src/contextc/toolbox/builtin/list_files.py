"""The list_files tool: the contents of a folder as a tree, or the files whose names match a pattern."""

import os
from collections import deque
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from contextc.errors import InvalidInput
from contextc.toolbox.builtin.folder import Workspace
from contextc.toolbox.builtin.searching import IGNORED_FOLDERS, glob_pattern, matches_path, walk_files
from contextc.toolbox.function import FunctionTool, tool

MAX_ENTRIES = 500


def make_list_files(folder: Workspace) -> FunctionTool:
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
        return _list_matching(folder, place, pattern) if pattern else _list_tree(place, depth)

    return list_files


def _list_matching(folder: Workspace, place: Path, pattern: str) -> str:
    try:
        wanted = glob_pattern(pattern)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    found: list[str] = []
    for each in walk_files(str(place)):
        if matches_path(wanted, each, str(place), str(folder.root)):
            found.append(folder.name(Path(each)))
            if len(found) > MAX_ENTRIES:
                return "\n".join(
                    [*found[:MAX_ENTRIES], f"[More than {MAX_ENTRIES} files match. Give a narrower pattern.]"]
                )
    return "\n".join(found) or f"[No file matches {pattern}.]"


def _list_tree(top: Path, depth: int) -> str:
    """Return a tree, collected breadth-first so that one large folder does not use up the limit."""
    inside: dict[str, list[os.DirEntry[str]]] = {}
    waiting, count = deque([(str(top), 1)]), 0
    while waiting and count < MAX_ENTRIES:
        here, level = waiting.popleft()
        inside[here] = _entries(here)
        count += len(inside[here])
        if level < depth:
            waiting += [(each.path, level + 1) for each in inside[here] if _is_listed_folder(each)]
    lines: list[str] = []
    _append_tree_lines(str(top), 0, inside, lines)
    if len(lines) > MAX_ENTRIES:
        lines = [
            *lines[:MAX_ENTRIES],
            f"[{len(lines) - MAX_ENTRIES:,} more entries. List one of the folders, or find by a pattern.]",
        ]
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


def _is_listed_folder(each: os.DirEntry[str]) -> bool:
    return _is_folder(each) and each.name not in IGNORED_FOLDERS


def _append_tree_lines(here: str, level: int, inside: dict[str, list[os.DirEntry[str]]], lines: list[str]) -> None:
    for each in inside.get(here, ()):
        margin = "  " * level
        if each.is_symlink():
            lines.append(f"{margin}{each.name} (a link)")
        elif not _is_folder(each):
            lines.append(f"{margin}{each.name}")
        elif each.name in IGNORED_FOLDERS:
            lines.append(f"{margin}{each.name}/ (left out)")
        else:
            lines.append(f"{margin}{each.name}/{'' if each.path in inside else ' …'}")
            _append_tree_lines(each.path, level + 1, inside, lines)

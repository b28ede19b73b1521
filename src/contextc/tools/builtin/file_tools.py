"""The file tools for one folder.

- read_file: the numbered lines of a text file, and the offset at which to continue.
- write_file: create a file, or replace the whole text of one.
- edit_file: replace a text in a file.
- list_files: the contents of a folder as a tree, or the files whose names match a pattern.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, BinaryIO, cast

from msgspec import Meta

from contextc.errors import InvalidInput
from contextc.tools.builtin import search_worker
from contextc.tools.builtin.search_worker import IGNORED_FOLDERS, glob_pattern, matches_path, walk_files
from contextc.tools.builtin.workspace import SAMPLE_BYTES, Workspace, check_line_offset, is_binary
from contextc.tools.context import ToolContext
from contextc.tools.function_tool import FunctionTool, tool

# ── search_files ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The search_files tool: lines that match a regular expression. `search_worker.py` runs in a process of its own.


SEARCH_SECONDS = 20.0
DEFAULT_MATCHES = 100
MAX_SEARCH_CHARACTERS = 40_000


def make_search_files(workspace: Workspace, *, seconds: float = SEARCH_SECONDS) -> FunctionTool:
    @tool(timeout=seconds + 10)
    def search_files(
        pattern: Annotated[str, "A regular expression, as Python writes them; it is looked for line by line."],
        context: ToolContext,
        path: Annotated[str, "A folder or a file to search in, relative to the top of the project."] = ".",
        glob: Annotated[str | None, "Only files that match, such as *.py or src/**/*.ts."] = None,
        ignore_case: bool = False,
        limit: Annotated[int, Meta(ge=1, le=1_000), "How many lines to show at most."] = DEFAULT_MATCHES,
    ) -> str:
        """Search the text of the files in the project with a regular expression. The answer is path:line: text for each
        line that matches. Binary and very large files, and folders such as .git and node_modules, are left out."""
        start = workspace.resolve(path)
        if not start.exists():
            raise InvalidInput(f"There is no {path}. Use list_files to see what there is.")
        job = {"root": str(workspace.root), "start": str(start), "pattern": pattern, "glob": glob}
        job |= {"ignore_case": ignore_case, "limit": limit + 1}
        found, whole = _run_worker(json.dumps(job), seconds, context)
        return _format_matches(found, whole, pattern, limit, seconds)

    return search_files


def _run_worker(job: str, seconds: float, context: ToolContext) -> tuple[list[search_worker.Match], bool]:
    """Return the matches until the search ended or timed out, and True if it was completed."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", search_worker.__file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    stdin, stdout = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    reader = threading.Thread(target=_read_worker_lines, args=(stdout, lines), daemon=True)
    try:
        stdin.write(job.encode())
        stdin.close()
        reader.start()
        return _collect_matches(lines, time.monotonic() + seconds, context)
    finally:
        process.kill()
        process.wait()
        reader.join(1)
        stdout.close()


def _read_worker_lines(source: IO[bytes], lines: "queue.SimpleQueue[bytes]") -> None:
    for line in source:
        lines.put(line)
    lines.put(b"")


def _collect_matches(
    lines: "queue.SimpleQueue[bytes]", deadline: float, context: ToolContext
) -> tuple[list[search_worker.Match], bool]:
    found: list[search_worker.Match] = []
    while (left := deadline - time.monotonic()) > 0 and not context.cancelled.is_set():
        try:
            line = lines.get(timeout=min(left, 0.1))
        except queue.Empty:
            continue
        if not line:
            return found, False
        answer = json.loads(line)
        if answer is None:
            return found, True
        if isinstance(answer, str):
            raise InvalidInput(answer)
        found.append(search_worker.Match(*answer))
    return found, False


def _format_matches(found: list[search_worker.Match], whole: bool, pattern: str, limit: int, seconds: float) -> str:
    lines: list[str] = []
    length = 0
    for match in found[:limit]:
        lines.append(f"{match.path}:{match.line}: {match.text}")
        length += len(lines[-1]) + 1
        if length > MAX_SEARCH_CHARACTERS:
            break
    if not whole:
        lines.append(
            f"[The search was not finished within {seconds:g} seconds. Use a simpler pattern, a path or a glob.]"
        )
    elif len(found) > len(lines):
        lines.append(f"[There are more than these {len(lines):,} lines. Narrow the search with a path or a glob.]")
    return "\n".join(lines) or f"[No line matches {pattern}.]"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def file_tools(root: str | Path, *, approval: bool = True) -> list[FunctionTool]:
    """Return tools that read, list, search, edit and write files below `root`, and nothing outside it.

    With `approval` a person must approve each change of a file.
    """
    folder = Workspace(root)
    return [
        make_read_file(folder),
        make_list_files(folder),
        make_search_files(folder),
        make_edit_file(folder, approval=approval),
        make_write_file(folder, approval=approval),
    ]


DEFAULT_LINES = 2_000
MAX_LINE_CHARACTERS = 2_000
MAX_READ_CHARACTERS = 60_000
MAX_COUNTED_BYTES = 20_000_000


def make_read_file(workspace: Workspace) -> FunctionTool:
    @tool(timeout=30)
    def read_file(
        path: Annotated[str, "Relative to the top of the project."],
        offset: Annotated[int, Meta(ge=1), "The number of the first line to read."] = 1,
        limit: Annotated[int, Meta(ge=1), "How many lines to read at most."] = DEFAULT_LINES,
    ) -> str:
        """Read a text file. Each line comes with its number and a tab before it, which are not part of the file."""
        place = workspace.resolve_file(path)
        try:
            with place.open("rb") as handle:
                size = place.stat().st_size
                if is_binary(handle.peek(SAMPLE_BYTES)[:SAMPLE_BYTES]):
                    raise InvalidInput(
                        f"{path} is not text ({size:,} bytes of binary data), so it cannot be read here."
                    )
                return _numbered_lines(handle, path, offset, limit, size)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error

    return read_file


def _numbered_lines(handle: BinaryIO, path: str, offset: int, limit: int, size: int) -> str:
    shown: list[str] = []
    number = length = 0
    last = 0
    for number, line in enumerate(_read_lines(handle), 1):
        if number >= offset and not last:
            shown.append(f"{number:>6}\t{line}")
            length += len(shown[-1]) + 1
            if len(shown) >= limit or length >= MAX_READ_CHARACTERS:
                last = number
        elif last and size > MAX_COUNTED_BYTES:
            break
    if not number:
        return f"[{path} is empty.]"
    check_line_offset(path, offset, number)
    if last and number > last:
        whole = "more lines follow" if size > MAX_COUNTED_BYTES else f"{number:,} lines in all"
        shown.append(f"[Lines {offset:,} to {last:,}; {whole}. Read on with offset {last + 1}.]")
    return "\n".join(shown)


def _read_lines(handle: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file, long lines truncated. A line that is too long is never in memory as a whole."""
    while piece := handle.readline(MAX_LINE_CHARACTERS * 4):
        rest = 0
        while not piece.endswith(b"\n") and (more := handle.readline(1 << 16)):
            rest += len(more)
            if more.endswith(b"\n"):
                break
        text = piece.decode("utf-8-sig", "replace").rstrip("\r\n")
        cut = len(text) - MAX_LINE_CHARACTERS
        hidden = max(0, cut) + rest
        yield f"{text[:MAX_LINE_CHARACTERS]}… [about {hidden:,} characters more]" if hidden else text


def make_write_file(workspace: Workspace, *, approval: bool = True) -> FunctionTool:
    @tool(timeout=30, approval=approval, parallel=False)
    def write_file(
        path: Annotated[str, "Relative to the top of the project. Folders on the way are made."],
        content: Annotated[str, "The whole text of the file."],
        overwrite: Annotated[bool, "Replace the whole text of a file that is there already."] = False,
    ) -> str:
        """Write a new file. To change a part of a file, use edit_file."""
        place = workspace.resolve_for_writing(path)
        there = place.exists()
        if there and not overwrite:
            raise InvalidInput(
                f"{path} is there already, and was left as it is. Use edit_file to change it, or set overwrite to "
                "replace it as a whole."
            )
        if there:
            workspace.resolve_file(path)
        workspace.write_text(place, content, new=not there)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        return f"Wrote {path} ({lines:,} {'line' if lines == 1 else 'lines'})."

    return write_file


MAX_LISTED_LINES = 10


def make_edit_file(workspace: Workspace, *, approval: bool = True) -> FunctionTool:
    @tool(timeout=30, approval=approval, parallel=False)
    def edit_file(
        path: Annotated[str, "Relative to the top of the project."],
        old: Annotated[str, "The text to replace, exactly as it is in the file, without line numbers."],
        new: Annotated[str, "The text to put there."],
        replace_all: Annotated[bool, "Replace every occurrence. Otherwise there must be exactly one."] = False,
    ) -> str:
        """Replace a text in a file. The old text must be there exactly once, white space included: take in enough of
        the lines around it."""
        workspace.resolve_for_writing(path)
        place, text = workspace.read_text(path)
        old, new = _match_line_ends(text, old), _match_line_ends(text, new)
        lines = _occurrence_lines(text, old, path)
        if old == new:
            raise InvalidInput("The old and the new text are the same. Nothing was changed.")
        if len(lines) > 1 and not replace_all:
            raise InvalidInput(
                f"The old text is in {path} {len(lines)} times ({_line_list(lines)}). Nothing was changed. Take "
                "in more "
                "of the lines around the one you mean, or set replace_all."
            )
        workspace.write_text(place, text.replace(old, new), new=False)
        return f"Replaced {len(lines)} {'place' if len(lines) == 1 else 'places'} in {path} ({_line_list(lines)})."

    return edit_file


def _match_line_ends(text: str, given: str) -> str:
    """Return the text with the file's line ends. Models read and write plain `\\n`."""
    return given.replace("\n", "\r\n") if "\r\n" in text and "\r" not in given else given


def _occurrence_lines(text: str, old: str, path: str) -> list[int]:
    """Return the line number of each occurrence of the old text."""
    if not old:
        raise InvalidInput("The old text is empty. Give the text to replace; write_file makes new files.")
    found: list[int] = []
    number, place = 1, 0
    while (match := text.find(old, place)) >= 0:
        number += text.count("\n", place, match)
        found.append(number)
        number += old.count("\n")
        place = match + len(old)
    if not found:
        raise InvalidInput(f"The old text is not in {path}. Nothing was changed. {_mismatch_hint(text, old)}")
    return found


def _mismatch_hint(text: str, old: str) -> str:
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if first and first in line]
    if lines:
        return (
            f"Its first line is there ({_line_list(lines)}), but not what follows, or with other white space. "
            "Read those "
            "lines again and copy them exactly."
        )
    return "Read the file again and copy the text exactly, without line numbers."


def _line_list(lines: list[int]) -> str:
    more = f" and {len(lines) - MAX_LISTED_LINES} more" if len(lines) > MAX_LISTED_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:MAX_LISTED_LINES]))}{more}"


MAX_ENTRIES = 500


def make_list_files(workspace: Workspace) -> FunctionTool:
    @tool(timeout=30)
    def list_files(
        path: Annotated[str, "The folder to list, relative to the top of the project."] = ".",
        depth: Annotated[int, Meta(ge=1, le=20), "How many levels of folders to open."] = 3,
        pattern: Annotated[str | None, "Only files that match, at any depth, such as *.py or src/**/test_*.py."] = None,
    ) -> str:
        """List the files and folders of the project as a tree, or find files by a pattern of their names. Folders that
        hold what is generated or installed, such as .git and node_modules, are left out."""
        place = workspace.resolve(path)
        if not place.is_dir():
            raise InvalidInput(
                f"{path} is not a folder. Use list_files on the folder it is in, or read_file for a file."
            )
        return _list_matching(workspace, place, pattern) if pattern else _list_tree(place, depth)

    return list_files


def _list_matching(folder: Workspace, place: Path, pattern: str) -> str:
    try:
        wanted = glob_pattern(pattern)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    found: list[str] = []
    for each in walk_files(str(place)):
        if matches_path(wanted, each, str(place), str(folder.root)):
            found.append(folder.relative_path(Path(each)))
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

"""The search_files tool: lines that match a regular expression. `search_worker.py` runs in a process of its own."""

import json
import queue
import subprocess
import sys
import threading
import time
from typing import IO, Annotated, cast

from msgspec import Meta

from contextc.errors import InvalidInput
from contextc.tools.builtin import search_worker
from contextc.tools.builtin.workspace import Workspace
from contextc.tools.context import ToolContext
from contextc.tools.function_tool import FunctionTool, tool

DEFAULT_SECONDS = 20.0
DEFAULT_LIMIT = 100
MAX_SEARCH_CHARACTERS = 40_000


def make_search_files(workspace: Workspace, *, seconds: float = DEFAULT_SECONDS) -> FunctionTool:
    @tool(timeout=seconds + 10)
    def search_files(
        pattern: Annotated[str, "A regular expression, as Python writes them; it is looked for line by line."],
        context: ToolContext,
        path: Annotated[str, "A folder or a file to search in, relative to the top of the project."] = ".",
        glob: Annotated[str | None, "Only files that match, such as *.py or src/**/*.ts."] = None,
        ignore_case: bool = False,
        limit: Annotated[int, Meta(ge=1, le=1_000), "How many lines to show at most."] = DEFAULT_LIMIT,
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

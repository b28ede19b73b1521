"""The read_file tool: the numbered lines of a text file, and the offset at which to continue."""

from collections.abc import Iterator
from typing import Annotated, BinaryIO

from msgspec import Meta

from contextc.errors import InvalidInput
from contextc.toolbox.builtin.folder import SAMPLE_BYTES, Workspace, is_binary
from contextc.toolbox.function import FunctionTool, tool

DEFAULT_LINES = 2_000
MAX_LINE_CHARACTERS = 2_000
MAX_READ_CHARACTERS = 60_000
MAX_COUNTED_BYTES = 20_000_000


def make_read_file(folder: Workspace) -> FunctionTool:
    @tool(timeout=30)
    def read_file(
        path: Annotated[str, "Relative to the top of the project."],
        offset: Annotated[int, Meta(ge=1), "The number of the first line to read."] = 1,
        limit: Annotated[int, Meta(ge=1), "How many lines to read at most."] = DEFAULT_LINES,
    ) -> str:
        """Read a text file. Each line comes with its number and a tab before it, which are not part of the file."""
        place = folder.file(path)
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
    if number < offset:
        raise InvalidInput(f"{path} has {number:,} lines; there is no line {offset:,}.")
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

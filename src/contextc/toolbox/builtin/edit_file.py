"""The edit_file tool: replace a text in a file."""

from typing import Annotated

from contextc.errors import InvalidInput
from contextc.toolbox.builtin.folder import Workspace
from contextc.toolbox.function import FunctionTool, tool

MAX_LISTED_LINES = 10


def make_edit_file(folder: Workspace, *, approval: bool = True) -> FunctionTool:
    @tool(timeout=30, approval=approval, parallel=False)
    def edit_file(
        path: Annotated[str, "Relative to the top of the project."],
        old: Annotated[str, "The text to replace, exactly as it is in the file, without line numbers."],
        new: Annotated[str, "The text to put there."],
        replace_all: Annotated[bool, "Replace every occurrence. Otherwise there must be exactly one."] = False,
    ) -> str:
        """Replace a text in a file. The old text must be there exactly once, white space included: take in enough of
        the lines around it."""
        folder.for_writing(path)
        place, text = folder.text(path)
        old, new = _match_line_ends(text, old), _match_line_ends(text, new)
        lines = _occurrence_lines(text, old, path)
        if old == new:
            raise InvalidInput("The old and the new text are the same. Nothing was changed.")
        if len(lines) > 1 and not replace_all:
            raise InvalidInput(
                f"The old text is in {path} {len(lines)} times ({_line_list(lines)}). Nothing was changed. Take in more "
                "of the lines around the one you mean, or set replace_all."
            )
        folder.write(place, text.replace(old, new), new=False)
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
            f"Its first line is there ({_line_list(lines)}), but not what follows, or with other white space. Read those "
            "lines again and copy them exactly."
        )
    return "Read the file again and copy the text exactly, without line numbers."


def _line_list(lines: list[int]) -> str:
    more = f" and {len(lines) - MAX_LISTED_LINES} more" if len(lines) > MAX_LISTED_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:MAX_LISTED_LINES]))}{more}"

"""Approval in the terminal: the whole action is shown, and an approval applies to that action only."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

import contextc as cc
from contextc._json import JSONObject
from contextc.cli.chat.terminal import MAX_PREVIEW_LINES, TerminalApproval, TerminalInput, TerminalRenderer
from contextc.tools.builtin.file_tools import file_tools


class Typist(TerminalInput):
    """Types these lines, one for each question; one that is a function does something first."""

    def __init__(self, *lines: str | Callable[[], str]) -> None:
        super().__init__()
        self.lines = list(lines)

    def flush_input(self) -> None:
        pass

    async def read_answer(self) -> str:
        line = self.lines.pop(0)
        return line if isinstance(line, str) else line()


def ask(root: Path, typist: Typist, arguments: JSONObject, name: str = "write_file") -> tuple[bool | str, list[str]]:
    """The answer, and the lines that were printed."""
    page = Console(file=io.StringIO(), width=60)
    asks = TerminalApproval(TerminalRenderer(page, page), typist, root)
    answer = asyncio.run(asks(cc.ToolCall(id="c1", name=name, arguments=arguments), file_tools(root)[-1]))
    assert isinstance(page.file, io.StringIO)
    assert typist.lines == []
    return answer, page.file.getvalue().splitlines()


def test_a_yes_to_a_difference_that_has_become_another_one_asks_again(tmp_path: Path) -> None:
    """A file that changes during the approval is not overwritten unseen."""
    file = tmp_path / "a.txt"
    file.write_text("old")

    def changes() -> str:
        file.write_text("years of work")
        return "y"

    arguments = {"path": "a.txt", "content": "new", "overwrite": True}
    answer, lines = ask(tmp_path, Typist(changes, "y"), arguments)
    assert answer is True
    assert [line for line in lines if line.startswith("│ -")] == ["│ -old", "│ -years of work"]
    file.write_text("old")
    assert ask(tmp_path, Typist(changes, "n"), arguments)[0] is False


def test_of_a_very_long_line_it_is_reported_how_much_is_not_shown(tmp_path: Path) -> None:
    """One line can fill the screen many times over; `a` shows the rest before anything is decided."""
    command = "echo " + "x" * 57 * 300 + " && rm -rf ~"
    answer, lines = ask(tmp_path, Typist("a", "why?"), {"command": command}, "run_command")
    assert answer == "why?"
    assert lines[MAX_PREVIEW_LINES + 1].startswith("Do it? y/n, or why not   a shows the other 101 lines: ")
    assert [line for line in lines if line.startswith("│ ")][-1].endswith("rm -rf ~")
    assert "".join(line[2:] for line in lines[-301 - 1 : -1]) == command

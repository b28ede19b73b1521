"""Approval in the terminal: the whole action is shown, and an approval applies to that action only."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

import contextc as cc
from contextc._json import JSONObject
from contextc.cli.chat.terminal import MAX_PREVIEW_LINES, TerminalApproval, TerminalInput, TerminalRenderer
from contextc.store import Always
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


def ask(
    root: Path, typist: Typist, arguments: JSONObject, name: str = "write_file"
) -> tuple[bool | str | Always, list[str]]:
    """The answer, and the lines that were printed."""
    page = Console(file=io.StringIO(), width=60)
    asks = TerminalApproval(TerminalRenderer(page, page), typist, root)
    tool = file_tools(root)[-1]
    tool = replace(tool, tool=replace(tool.tool, name=name))
    answer = asyncio.run(asks(cc.ToolCall(id="c1", name=name, arguments=arguments), tool))
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
    assert lines[MAX_PREVIEW_LINES + 1].startswith("Do it? y/n, always, or why not   a shows the other 101 lines: ")
    assert [line for line in lines if line.startswith("│ ")][-1].endswith("rm -rf ~")
    assert "".join(line[2:] for line in lines[-301 - 1 : -1]) == command


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ("always", Always(who="chat")),
        ("Always any agent 1d", Always(arguments="any", scope="agent", seconds=86_400, who="chat")),
        ("always command=git status", Always(argument="command", prefix="git status", who="chat")),
        ("always everywhere command=git", Always(argument="command", prefix="git", scope="store", who="chat")),
        ("never any", Always(allow=False, arguments="any", who="chat")),
    ],
)
def test_always_and_never_answer_later_calls_too(tmp_path: Path, typed: str, rule: Always) -> None:
    """Guarantee 18.7. What the rule will answer is printed."""
    answer, lines = ask(tmp_path, Typist(typed), {"command": "git status -s"}, "run_command")
    assert answer == rule
    assert f"{'allow' if rule.allow else 'deny'} run_command with" in " ".join(lines)


def test_a_rule_that_does_not_hold_for_the_call_is_no_answer(tmp_path: Path) -> None:
    answer, lines = ask(tmp_path, Typist("always command=git push", "n"), {"command": "git status"}, "run_command")
    assert answer is False
    assert "the rule does not hold for the call itself" in " ".join(lines)


@pytest.mark.parametrize("typed", ["always use tabs", "never mind", "always any any", "always =x", "never any path=x"])
def test_a_reason_that_begins_like_a_rule_is_a_reason(tmp_path: Path, typed: str) -> None:
    """A sentence to the model denies the call, and makes no rule."""
    assert ask(tmp_path, Typist(typed), {"command": "ls"}, "run_command")[0] == typed

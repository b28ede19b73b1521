"""Asking a person before a tool runs: exactly what would be done is shown, and then the question.

Everything shown stands behind a bar at the left, broken to the width of the terminal, with what cannot be seen spelled
out: nothing a model writes can look like the question, or hide a part of the command.
"""

import asyncio
import difflib
from pathlib import Path
from typing import cast

import msgspec
from rich.text import Text

from contextc._json import JSONObject, encode
from contextc.cli.chat.keyboard import Keyboard
from contextc.cli.chat.screen import Screen
from contextc.cli.chat.words import folded, visible
from contextc.errors import InvalidInput
from contextc.messages import ToolCall
from contextc.toolbox import FunctionTool
from contextc.toolbox.builtin.folder import Folder

MOST = 200
LARGEST = 1_000_000
YES, NO, ALL = ("y", "yes"), ("", "n", "no"), ("a", "all")
STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Approval:
    """Asks in the terminal. True is yes; a text is the reason of a no, which the model is told."""

    def __init__(self, screen: Screen, keyboard: Keyboard, root: Path) -> None:
        self.screen, self.keyboard, self.root = screen, keyboard, root

    async def __call__(self, call: ToolCall, tool: FunctionTool) -> bool | str:
        what, lines = described(call, self.root)
        whole = len(lines) <= MOST
        self._show(what, lines if whole else lines[:MOST])
        while True:
            rest = "" if whole else f"   a shows the other {len(lines) - MOST:,} lines"
            question = Text.assemble(("Do it? ", "bold yellow"), f"y/n, or why not{rest}: ")
            self.keyboard.forget()
            self.screen.around.print(question, end="", soft_wrap=True)
            try:
                answer = (await self.keyboard.answer()).strip()
            except asyncio.CancelledError:
                self.screen.around.print()
                raise
            if answer.lower() in ALL and not whole:
                self._show(what, lines)
                whole = True
                continue
            return True if answer.lower() in YES else False if answer.lower() in NO else answer

    def _show(self, what: str, lines: list[str]) -> None:
        around = self.screen.around
        self.screen.line(what, "bold yellow", "? ")
        for line in lines:
            style = STYLES.get(line[:1], "")
            for piece in folded(line, around.width - 3):
                around.print(Text.assemble(("│ ", "yellow"), (piece, style)), soft_wrap=True)


def described(call: ToolCall, root: Path) -> tuple[str, list[str]]:
    """What a call would do, in words and line by line."""
    given = call.arguments
    command, path = given.get("command"), given.get("path")
    if call.name == "run_command" and isinstance(command, str):
        return f"run a command in {root}", visible(command).split("\n")
    if call.name in ("edit_file", "write_file") and isinstance(path, str):
        return f"{'change' if call.name == 'edit_file' else 'write'} {visible(path)}", _difference(
            call.name, given, root
        )
    if isinstance(command, str):  # a provider's own tool
        return f"{visible(call.name)}: run a command in {root}", visible(command).split("\n")
    shown = msgspec.json.format(encode(given), indent=2).decode()
    return f"{visible(call.name)}, with these arguments", visible(shown).split("\n")


def _difference(name: str, given: JSONObject, root: Path) -> list[str]:
    """What would be different in the file, and why it would fail, where it would."""
    before, note = "", ""
    try:
        before = Folder(root).text(cast(str, given["path"]))[1].replace("\r\n", "\n")
    except InvalidInput as error:
        note = "" if name == "write_file" else str(error)
    if name == "write_file":
        after = str(given.get("content", ""))
        note = "the file is there already" if before and not given.get("overwrite") else note
    else:
        old, new = str(given.get("old", "")), str(given.get("new", ""))
        places = before.count(old) if old else 0
        if not note and places != 1 and not (places and given.get("replace_all")):
            note = f"the old text is there {places} times"
        plainly = bool(note) or len(before) > LARGEST
        before, after = (old, new) if plainly else (before, before.replace(old, new))
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=3)
    told = [visible(line) for line in list(lines)[2:]]
    return ([f"(it would fail: {visible(note)})"] if note else []) + (told or ["(no line would be different)"])

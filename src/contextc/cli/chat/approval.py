"""Asking a person before a tool runs: exactly what would be done is shown, and then the question.

Everything shown stands behind a bar at the left, broken to the width of the terminal, with what cannot be seen spelled
out: nothing a model writes can look like the question, or hide a part of the command.
"""

import asyncio
from pathlib import Path

from rich.text import Text

from contextc.agents.deeds import described
from contextc.cli.chat.keyboard import Keyboard
from contextc.cli.chat.screen import Screen
from contextc.cli.chat.words import folded
from contextc.messages import ToolCall
from contextc.toolbox import FunctionTool

MOST = 200
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

"""Asking a person before a tool runs: exactly what would be done is shown, and then the question.

Everything shown stands behind a bar at the left, broken to the width of the terminal, with what cannot be seen spelled
out: nothing a model writes can look like the question, or hide a part of the command. A yes counts for what was shown:
where a file has changed meanwhile, what would be done now is shown, and asked about again.
"""

import asyncio
from pathlib import Path

from rich.text import Text

from contextc.agents.deeds import described
from contextc.cli.chat.keyboard import Keyboard
from contextc.cli.chat.screen import Screen
from contextc.cli.chat.words import folded
from contextc.executor.threads import durable
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
        shown, rows = None, list[Text]()
        while True:
            if (now := await durable(described, call, self.root)) != shown:
                if shown is not None:
                    self.screen.warn("What it would do has changed since it was shown. It is now:")
                shown, rows = now, self._rows(now[1])
                self._show(now[0], rows[:MOST])
                rows = rows[MOST:]
            rest = f"   a shows the other {len(rows):,} lines" if rows else ""
            question = Text.assemble(("Do it? ", "bold yellow"), f"y/n, or why not{rest}: ")
            self.keyboard.forget()
            self.screen.around.print(question, end="", soft_wrap=True)
            try:
                answer = (await self.keyboard.answer()).strip()
            except asyncio.CancelledError:
                self.screen.around.print()
                raise
            if answer.lower() in ALL and rows:
                self._show(now[0], self._rows(now[1]))
                rows = []
            elif answer.lower() in YES:
                if await durable(described, call, self.root) == shown:
                    return True
            else:
                return False if answer.lower() in NO else answer

    def _rows(self, lines: list[str]) -> list[Text]:
        """The lines as they are printed, broken to the width of the terminal."""
        width = self.screen.around.width - 3
        return [
            Text.assemble(("│ ", "yellow"), (piece, STYLES.get(line[:1], "")))
            for line in lines
            for piece in folded(line, width)
        ]

    def _show(self, what: str, rows: list[Text]) -> None:
        self.screen.line(what, "bold yellow", "? ")
        for row in rows:
            self.screen.around.print(row, soft_wrap=True)

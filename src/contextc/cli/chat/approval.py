"""Approval of tool calls in the terminal: a preview of the exact action, and then the question.

The preview has a bar at the left, is wrapped to the width of the terminal, and shows invisible characters escaped. So
text of a model cannot imitate the question, or hide a part of a command. A yes applies to the preview only: if a file
changed in the meantime, the new preview is shown, and the question is asked again.
"""

import asyncio
from pathlib import Path

from rich.text import Text

from contextc._worker_threads import run_blocking
from contextc.app.approval_preview import preview_call
from contextc.cli.chat.formatting import wrap_lines
from contextc.cli.chat.renderer import TerminalRenderer
from contextc.cli.chat.terminal_input import TerminalInput
from contextc.messages import ToolCall
from contextc.tools import FunctionTool

MAX_LINES = 200
YES, NO, ALL = ("y", "yes"), ("", "n", "no"), ("a", "all")
STYLES = {"+": "green", "-": "red", "@": "cyan"}


class TerminalApproval:
    """Approval by questions in the terminal. True is yes. A text is the reason for a no, which the model gets."""

    def __init__(self, screen: TerminalRenderer, keyboard: TerminalInput, root: Path) -> None:
        self.screen, self.keyboard, self.root = screen, keyboard, root

    async def __call__(self, call: ToolCall, tool: FunctionTool) -> bool | str:
        shown, rows = None, list[Text]()
        while True:
            if (now := await run_blocking(preview_call, call, self.root)) != shown:
                if shown is not None:
                    self.screen.warn("The action changed since it was shown. It is now:")
                shown, rows = now, self._rows(now[1])
                self._show(now[0], rows[:MAX_LINES])
                rows = rows[MAX_LINES:]
            rest = f"   a shows the other {len(rows):,} lines" if rows else ""
            question = Text.assemble(("Do it? ", "bold yellow"), f"y/n, or why not{rest}: ")
            self.keyboard.flush_input()
            self.screen.notices.print(question, end="", soft_wrap=True)
            try:
                answer = (await self.keyboard.read_answer()).strip()
            except asyncio.CancelledError:
                self.screen.notices.print()
                raise
            if answer.lower() in ALL and rows:
                self._show(now[0], self._rows(now[1]))
                rows = []
            elif answer.lower() in YES:
                if await run_blocking(preview_call, call, self.root) == shown:
                    return True
            else:
                return False if answer.lower() in NO else answer

    def _rows(self, lines: list[str]) -> list[Text]:
        """Return the lines for printing, wrapped to the width of the terminal."""
        width = self.screen.notices.width - 3
        return [
            Text.assemble(("│ ", "yellow"), (piece, STYLES.get(line[:1], "")))
            for line in lines
            for piece in wrap_lines(line, width)
        ]

    def _show(self, what: str, rows: list[Text]) -> None:
        self.screen.line(what, "bold yellow", "? ")
        for row in rows:
            self.screen.notices.print(row, soft_wrap=True)

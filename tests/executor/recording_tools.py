"""Tools that record their calls: immediate, waiting, failing, and with a long result.

What a tool did is known from its own list and from nothing else, so that a tool which ran twice, or a result that is
not what was returned, is found.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from contextc.messages import ToolCall
from contextc.tools import FunctionTool, ToolContext, tool

WAIT = 0.02


class Deed(Struct):
    """One run of a tool. `returned` is None where it has not come to its end; `failed` says how it does not."""

    conversation: str
    turn: int
    step: int
    call: str
    returned: str | None = None
    failed: str | None = None

    @property
    def place(self) -> tuple[int | None, int | None, str]:
        """Which call it answers."""
        return self.turn, self.step, self.call


class Hands:
    """The tools, and everything they did, in the order in which they began."""

    def __init__(self) -> None:
        self.deeds: list[Deed] = []
        self._lock = threading.Lock()

    def of(self, conversation: str) -> list[Deed]:
        with self._lock:
            return [deed for deed in self.deeds if deed.conversation == conversation]

    def _begin(self, context: ToolContext) -> Deed:
        deed = Deed(context.conversation, context.turn, context.step, context.call.id)
        with self._lock:
            self.deeds.append(deed)
        return deed

    def tools(self) -> Sequence[FunctionTool]:
        @tool
        def look(thing: str, context: ToolContext, times: int = 1) -> str:
            """Look at a thing."""
            deed = self._begin(context)
            deed.returned = f"{thing} was seen {times} times."
            return deed.returned

        @tool
        async def wait(seconds: int, context: ToolContext) -> str:
            """Wait a little."""
            deed = self._begin(context)
            await asyncio.sleep(WAIT * (seconds % 4))
            deed.returned = f"{seconds} have passed."
            return deed.returned

        @tool
        def work(hours: int, mood: Literal["calm", "hasty"], context: ToolContext) -> str:
            """Work on something, which takes a while."""
            deed = self._begin(context)
            time.sleep(WAIT * (hours % 3))
            context.progress(f"{hours} hours")
            deed.returned = f"Worked {hours} hours, {mood}."
            return deed.returned

        @tool
        async def stumble(over: str, context: ToolContext) -> str:
            """Try something that does not work."""
            deed = self._begin(context)
            deed.failed = f"stumbled over {over}"
            raise RuntimeError(deed.failed)

        @tool(timeout=WAIT)
        async def oversleep(context: ToolContext) -> str:
            """Sleep for too long."""
            deed = self._begin(context)
            deed.failed = ""
            await asyncio.sleep(60)
            raise AssertionError("Nobody stopped it.")

        @tool(parallel=False)
        def read(lines: int, context: ToolContext) -> str:
            """Read so many lines."""
            deed = self._begin(context)
            deed.returned = "\n".join(f"{number}: nothing to be seen here" for number in range(lines % 150))
            return deed.returned

        @tool(approval=True)
        def sign(name: str, context: ToolContext) -> str:
            """Sign something."""
            deed = self._begin(context)
            deed.returned = f"Signed, {name}"
            return deed.returned

        return (look, wait, work, stumble, oversleep, read, sign)


def approve(call: ToolCall, _: FunctionTool) -> bool | str:
    """Yes, no, or no with a reason, by the call's own words."""
    return (True, "not this one", False)[len(str(call.arguments)) % 3]

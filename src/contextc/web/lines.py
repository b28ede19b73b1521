"""The agents this server speaks through, one for each model that is asked for, each with its open line.

An agent holds nothing of a conversation, so all conversations with one model share it. Those used last are kept; one
that a turn still speaks on is never closed under it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias
from weakref import WeakValueDictionary

from contextc.agents.whom import Whom, find
from contextc.executor import AgentExecutor
from contextc.executor.threads import durable
from contextc.providers import Endpoint

KEPT = 16

Make: TypeAlias = Callable[[Whom], tuple[AgentExecutor, Endpoint]]


class Line:
    """An agent, and how many speak through it now."""

    def __init__(self, executor: AgentExecutor, endpoint: Endpoint) -> None:
        self.executor, self.endpoint, self.users = executor, endpoint, 0


class Lines:
    def __init__(self, make: Make) -> None:
        self._make = make
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def use(self, spec: str) -> AsyncGenerator[AgentExecutor]:
        """The agent of a model, which is there until the block ends. Empty is the one configured, or the local one."""
        line = self._lines.get(spec) or await self._opened(spec)
        self._lines.move_to_end(spec)
        line.users += 1
        try:
            yield line.executor
        finally:
            line.users -= 1
            await self._trim()

    async def _opened(self, spec: str) -> Line:
        """A line that was not open. Those who ask for it meanwhile wait, for others nobody does."""
        making = self._making.setdefault(spec, asyncio.Lock())  # is gone when the last who holds it is
        async with making:
            line = self._lines.get(spec) or await durable(self._open, spec)
            self._lines[spec] = line
        return line

    def _open(self, spec: str) -> Line:
        return Line(*self._make(find(spec or None)))

    async def _trim(self) -> None:
        """Close the idle lines used longest ago while too many are open. Closing waits, so each is chosen anew."""
        while len(self._lines) > KEPT:
            idle = next((spec for spec, line in self._lines.items() if not line.users), None)
            if idle is None:
                return
            await self._lines.pop(idle).endpoint.close()

    async def close(self) -> None:
        while self._lines:
            await self._lines.popitem()[1].endpoint.close()

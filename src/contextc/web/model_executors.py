"""Pool of agent executors with their provider clients, one for each model.

An executor has no state of a conversation, so all conversations with one model share it. The most recently used ones
are kept. An executor in use is never closed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias
from weakref import WeakValueDictionary

from contextc._worker_threads import run_blocking
from contextc.app.agent_factory import ModelChoice, resolve_model
from contextc.executor import AgentExecutor
from contextc.providers import Endpoint

MAX_EXECUTORS = 16

ExecutorFactory: TypeAlias = Callable[[ModelChoice], tuple[AgentExecutor, Endpoint]]


class PooledExecutor:
    """A pooled executor, its provider client, and its number of users."""

    def __init__(self, executor: AgentExecutor, endpoint: Endpoint) -> None:
        self.executor, self.client, self.users = executor, endpoint, 0

    async def close(self) -> None:
        await self.executor.close()
        await self.client.close()


class ExecutorPool:
    """Pool of executors by model spec."""

    def __init__(self, make: ExecutorFactory) -> None:
        self._make = make
        self._lines: OrderedDict[str, PooledExecutor] = OrderedDict()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def acquire(self, spec: str) -> AsyncGenerator[AgentExecutor]:
        """Yield the executor of a model, kept open until the block ends. An empty spec is the default model."""
        line = self._lines.get(spec) or await self._open_once(spec)
        self._lines.move_to_end(spec)
        line.users += 1
        try:
            yield line.executor
        finally:
            line.users -= 1
            await self._trim()

    async def _open_once(self, spec: str) -> PooledExecutor:
        """Open an executor. Concurrent callers wait for the same spec only."""
        making = self._making.setdefault(spec, asyncio.Lock())  # dropped with its last reference
        async with making:
            line = self._lines.get(spec) or await run_blocking(self._open, spec)
            self._lines[spec] = line
        return line

    def _open(self, spec: str) -> PooledExecutor:
        return PooledExecutor(*self._make(resolve_model(spec or None)))

    async def _trim(self) -> None:
        """Close the least recently used idle executors above the limit. Closing awaits, so each is chosen again."""
        while len(self._lines) > MAX_EXECUTORS:
            idle = next((spec for spec, line in self._lines.items() if not line.users), None)
            if idle is None:
                return
            await self._lines.pop(idle).close()

    async def close(self) -> None:
        while self._lines:
            await self._lines.popitem()[1].close()

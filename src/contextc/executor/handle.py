"""A turn that runs, seen from outside: what happens in it, how to stop it, how it ended.

It runs as a task of its own, whoever watches and however slowly. An error that ends it is told as an event, kept in
the result, and raised to whoever follows its events.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from contextc.errors import ContextcError
from contextc.events import AnyEvent
from contextc.executor.limits import TurnResult
from contextc.executor.record import Record
from contextc.executor.threads import durable
from contextc.executor.turn import Loop
from contextc.executor.watching import Inbox, hub, watch
from contextc.messages import Message
from contextc.store.base import Transaction
from contextc.store.places import find_head
from contextc.store.turns import last_number

if TYPE_CHECKING:
    from contextc.executor.executor import AgentExecutor


class Turn:
    """One turn, and those that follow it because their input was waiting when it ended."""

    def __init__(
        self, executor: "AgentExecutor", conversation: str, given: list[Message], *, resume: bool, wait: float
    ) -> None:
        self.executor, self.conversation = executor, conversation
        self._given, self._resume, self._wait = given, resume, wait
        self._asked_to_stop = False
        self._first = 0
        self._inbox = Inbox()
        hub(executor.store).join(conversation, self._inbox)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn of {conversation}")
        self._task.add_done_callback(self._over)

    def cancel(self) -> None:
        """Stop the turn. What was said so far stays, with its status; open calls are answered."""
        self._asked_to_stop = True
        self._task.cancel()

    @property
    def done(self) -> bool:
        return self._task.done()

    async def wait(self) -> TurnResult:
        """How it ended, when it has."""
        await asyncio.wait({self._task})
        return self._task.result()

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """What happens, from the beginning of the turn to its end. Raises the error that ended it, if one did."""
        store, agent = self.executor.store, self.executor.agent
        while not self._first and not self._task.done():
            await self._inbox.wait(1.0)
            if not self._first:
                self._inbox.take()
        if self._first:
            async for event in watch(store, self.conversation, self._first - 1, inbox=self._inbox, done=self._ended):
                if event.agent == agent:
                    yield event
        result = await self.wait()
        if result.error is not None:
            raise result.error

    def _ended(self) -> bool:
        return self._task.done()

    def _over(self, _: "asyncio.Task[TurnResult]") -> None:
        hub(self.executor.store).leave(self.conversation, self._inbox)
        self._inbox.wake()

    async def _run(self) -> TurnResult:
        executor, lease = self.executor, None
        try:
            lease = await durable(
                lambda: executor.store.acquire(
                    self.conversation, executor.agent, ttl=executor.lease_seconds, wait=self._wait
                )
            )
            record = Record(executor.store, self.conversation, executor.agent, lease)
            first = await durable(_next_event, record)
            if not await durable(lambda: record.open(self._given, resume=self._resume)):
                await durable(executor.store.release, record.lease)
                return TurnResult(turn=0, finish="nothing to do")
            self._first = first
            self._inbox.wake()
            loop = await durable(Loop, executor, record)
        except ContextcError as error:
            if lease is not None:
                executor.store.release(lease)
            return TurnResult(turn=0, finish="error", error=error)
        except asyncio.CancelledError:
            if lease is not None:
                executor.store.release(lease)
            if not self._asked_to_stop:
                raise
            return TurnResult(turn=0, finish="cancelled")
        result = await loop.run()
        if result.finish == "cancelled" and not self._asked_to_stop:
            raise asyncio.CancelledError
        return result


def _next_event(record: Record) -> int:
    """The number that the next event of the conversation will have."""

    def number(tx: Transaction) -> int:
        here = find_head(tx, record.conversation, False)
        return last_number(tx, "event", here.conversation) + 1 if here is not None else 1

    return record.store.read(number)

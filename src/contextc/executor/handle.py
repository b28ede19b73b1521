"""A turn that runs, seen from outside: what happens in it, how to stop it, how it ended.

It runs as a task of its own, whoever watches and however slowly. An error that ends it is told as an event, kept in
the result, and raised to whoever follows its events.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from contextc.errors import ContextcError, ConversationBusy, LeaseLost
from contextc.events import AnyEvent
from contextc.executor.limits import TurnResult
from contextc.executor.record import Record
from contextc.executor.threads import durable
from contextc.executor.turn import Loop
from contextc.executor.watching import Inbox, hub, watch_together
from contextc.messages import Message
from contextc.store.base import Lease

if TYPE_CHECKING:
    from contextc.executor.executor import AgentExecutor


class Turn:
    """One turn, and those that follow it because their input was waiting when it ended.

    `async for event in turn` tells what happens. `results` has how each of them ended, in their order.
    """

    def __init__(
        self, executor: "AgentExecutor", conversation: str, given: list[Message], *, resume: bool, wait: float
    ) -> None:
        self.executor, self.conversation = executor, conversation
        self._given, self._resume, self._wait = given, resume, wait
        self.results: list[TurnResult] = []
        self._asked_to_stop = False
        self._lease: Lease | None = None
        self._record: Record | None = None
        self._loop: Loop | None = None
        self._first = 0
        self._opened = asyncio.Event()
        self._followed = False
        self._inbox = Inbox()
        self._inboxes = [self._inbox]
        hub(executor.store).join(conversation, self._inbox)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn of {conversation}")
        self._task.add_done_callback(self._over)

    def cancel(self) -> None:
        """Stop the turn. What was said so far stays, with its status; open calls are answered."""
        if not self._asked_to_stop:  # the second time changes nothing: the turn is being brought to its end
            self._asked_to_stop = True
            self._task.cancel()

    @property
    def done(self) -> bool:
        return self._task.done()

    async def begun(self) -> int:
        """Wait until the turn is there, and return the number of its first event: 0 where there was nothing to do.

        Raises why it could not begin: `ConversationBusy`, for one.
        """
        await self._opened.wait()
        if not self._first and self.results and (error := self.results[0].error) is not None:
            raise error
        if not self._first and self._task.done() and not self._task.cancelled():
            self._task.result()
        return self._first

    async def wait(self) -> TurnResult:
        """How it ended, when it has, and those that followed it have too; how these ended is in `results`."""
        await asyncio.wait({self._task})
        self._task.result()
        return self.results[0]

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self.events()

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """What happens, from the beginning of the turn to its end. Raises the error that ended it, if one did."""
        async with aclosing(self.together()) as found:
            async for events in found:
                for event in events:
                    yield event
        await self.wait()
        if (error := self.results[-1].error) is not None:
            raise error

    async def together(
        self, *, after: int | None = None, pulse: float | None = None
    ) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """What happens, from the beginning of the turn or after an event, as `watch_together` tells it."""
        inbox, look = self._inbox, self._followed or after not in (None, self._first - 1)
        if look:  # somebody follows already, and takes what that inbox gets; or it may have missed something
            inbox = Inbox()
            if not self._task.done():
                self._inboxes.append(inbox)
                hub(self.executor.store).join(self.conversation, inbox)
        else:
            self._followed = True
        try:
            await self._opened.wait()
            if self._first:
                start = self._first - 1 if after is None else after
                store = self.executor.store
                found = watch_together(
                    store, self.conversation, start, inbox=inbox, done=self._ended, look=look, pulse=pulse
                )
                async with aclosing(found):
                    async for events in found:
                        yield [event for event in events if event.agent == self.executor.agent]
        finally:
            if look and inbox in self._inboxes:
                self._inboxes.remove(inbox)
                hub(self.executor.store).leave(self.conversation, inbox)

    def _ended(self) -> bool:
        return self._task.done()

    def _over(self, _: "asyncio.Task[None]") -> None:
        self._opened.set()
        for inbox in self._inboxes:
            hub(self.executor.store).leave(self.conversation, inbox)
            inbox.wake()

    async def _run(self) -> None:
        try:
            await self._work()
        finally:  # a lease that was not given back ends by itself: no turn runs under it any more
            if self._lease is not None:
                self.executor.store.stop_renewing(self._lease)

    async def _work(self) -> None:
        stopped = False
        try:
            record = await self._recorded()
        except (Exception, asyncio.CancelledError) as error:
            if self._record is None or not self._record.turn.number:
                self.results.append(await self._not_begun(error))
                return
            record, stopped = self._record, True  # it was stored all the same
        if not record.turn.number:
            await self._let_go(record.lease)
            self.results.append(TurnResult(turn=0, finish="nothing to do"))
            return
        self._first = record.first_event
        self._opened.set()
        for inbox in self._inboxes:
            inbox.wake()
        loop = self._loop = Loop(self.executor, record, self.results)
        await loop.run(stopped=stopped)
        if loop.cancelled and not self._asked_to_stop:
            raise asyncio.CancelledError

    async def _recorded(self) -> Record:
        """The record of this turn, which it opens under a lease, as soon as it gets one."""
        store, agent, ttl = self.executor.store, self.executor.agent, self.executor.lease_seconds
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def on_loop(call: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop was closed: there is nothing to wake or to stop
                loop.call_soon_threadsafe(call)

        def begin(patient: bool) -> Record:
            lease = self._lease = store.acquire_now(self.conversation, agent, ttl=ttl, patient=patient)
            store.on_loss(lease, lambda: on_loop(lambda: self._lose(lease)))
            self._record = Record(
                store,
                self.conversation,
                agent,
                lease,
                run=self.executor.asked["run"],
                channel=str(self.executor.channel(self.conversation)),
                of_channel=self.executor.of_channel,
            )
            self._record.open(self._given, resume=self._resume)
            return self._record

        def wake() -> None:
            on_loop(woken.set)

        with store.waiting.join(self.conversation, agent, wake, wait=self._wait, ttl=ttl) as waiter:
            while True:
                woken.clear()
                try:
                    if not waiter.is_first:
                        raise await durable(store.busy, self.conversation, agent)
                    return await durable(begin, waiter.is_patient)
                except ConversationBusy as busy:
                    held_here = store.holds(self.conversation, agent, busy.number)
                    seconds = waiter.pause(busy, held_here=held_here)
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), seconds)

    def _lose(self, lease: Lease) -> None:
        """Stop what runs: another process has the turn now, and nothing of this one can be stored any more."""
        if self._loop is not None and not self._task.done():
            self._loop.lost = LeaseLost(lease.conversation, lease.agent, number=lease.number)
            self._task.cancel()

    async def _not_begun(self, error: Exception | asyncio.CancelledError) -> TurnResult:
        """What a turn comes to that was stopped, or failed, before it was there."""
        if self._lease is not None:
            with suppress(ContextcError):  # why it could not begin is worth more than why this failed, too
                await self._let_go(self._lease)
        if isinstance(error, Exception):
            return TurnResult(turn=0, finish="error", error=error)
        if not self._asked_to_stop:
            raise error
        return TurnResult(turn=0, finish="cancelled")

    async def _let_go(self, lease: Lease) -> None:
        try:
            await durable(self.executor.store.release, lease)
        except asyncio.CancelledError:  # it is given back all the same
            if not self._asked_to_stop:
                raise

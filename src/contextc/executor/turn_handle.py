"""The handle of a running turn: its events, its cancellation and its result.

The turn runs in a task of its own, independent of readers. An error that ends it becomes an event, is stored in the
result, and is raised to readers of its events.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from contextc.errors import ContextcError, ConversationBusy, LeaseLost
from contextc.events import AnyEvent
from contextc.executor.blocking import run_blocking
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.executor.limits import TurnResult
from contextc.executor.turn_loop import TurnRunner
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message
from contextc.store.types import Lease

if TYPE_CHECKING:
    from contextc.executor.agent_executor import AgentExecutor


class Turn:
    """A turn, and the turns that follow it because input was queued when it ended.

    `async for event in turn` yields their events. `results` holds the result of each, in order.
    """

    def __init__(
        self, executor: "AgentExecutor", conversation: str, given: list[Message], *, resume: bool, wait: float
    ) -> None:
        self.executor, self.conversation = executor, conversation
        self._given, self._resume, self._wait = given, resume, wait
        self.results: list[TurnResult] = []
        self._asked_to_stop = False
        self._lease: Lease | None = None
        self._record: TurnStore | None = None
        self._loop: TurnRunner | None = None
        self._first = 0
        self._opened = asyncio.Event()
        self._followed = False
        self._inbox = Inbox()
        self._inboxes = [self._inbox]
        event_hub(executor.store).join(conversation, self._inbox)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn of {conversation}")
        self._task.add_done_callback(self._over)

    def cancel(self) -> None:
        """Cancel the turn. The reply so far is stored with its status, and open calls are answered."""
        if not self._asked_to_stop:  # a second call has no effect: the turn is ending
            self._asked_to_stop = True
            self._task.cancel()

    @property
    def done(self) -> bool:
        return self._task.done()

    async def begun(self) -> int:
        """Wait until the turn has started and return the number of its first event, 0 if there was nothing to do.

        Raises the error that kept it from starting, such as `ConversationBusy`.
        """
        await self._opened.wait()
        if not self._first and self.results and (error := self.results[0].error) is not None:
            raise error
        if not self._first and self._task.done() and not self._task.cancelled():
            self._task.result()
        return self._first

    async def wait(self) -> TurnResult:
        """Wait for this turn and those that follow it, and return this turn's result. `results` has all of them."""
        await asyncio.wait({self._task})
        self._task.result()
        return self.results[0]

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self.events()

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """Yield the events from the start of the turn to its end. Raises the error that ended it, if any."""
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
        """Yield batches of events, from the start of the turn or after an event number, as `watch_batches` does."""
        inbox, look = self._inbox, self._followed or after not in (None, self._first - 1)
        if look:  # the inbox already has a reader, or it may have missed events
            inbox = Inbox()
            if not self._task.done():
                self._inboxes.append(inbox)
                event_hub(self.executor.store).join(self.conversation, inbox)
        else:
            self._followed = True
        try:
            await self._opened.wait()
            if self._first:
                start = self._first - 1 if after is None else after
                store = self.executor.store
                found = watch_batches(
                    store, self.conversation, start, inbox=inbox, done=self._ended, look=look, pulse=pulse
                )
                async with aclosing(found):
                    async for events in found:
                        yield [event for event in events if event.agent == self.executor.agent]
        finally:
            if look and inbox in self._inboxes:
                self._inboxes.remove(inbox)
                event_hub(self.executor.store).leave(self.conversation, inbox)

    def _ended(self) -> bool:
        return self._task.done()

    def _over(self, _: "asyncio.Task[None]") -> None:
        self._opened.set()
        for inbox in self._inboxes:
            event_hub(self.executor.store).leave(self.conversation, inbox)
            inbox.wake()

    async def _run(self) -> None:
        try:
            await self._work()
        finally:  # a lease that was not released expires: no turn runs under it any more
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
            record, stopped = self._record, True  # the turn was stored nevertheless
        if not record.turn.number:
            await self._let_go(record.lease)
            self.results.append(TurnResult(turn=0, finish="nothing to do"))
            return
        self._first = record.first_event
        self._opened.set()
        for inbox in self._inboxes:
            inbox.wake()
        loop = self._loop = TurnRunner(self.executor, record, self.results)
        await loop.run(stopped=stopped)
        if loop.cancelled and not self._asked_to_stop:
            raise asyncio.CancelledError

    async def _recorded(self) -> TurnStore:
        """Acquire the lease, waiting if necessary, then open the turn and return its record."""
        store, agent, ttl = self.executor.store, self.executor.agent, self.executor.lease_seconds
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def on_loop(call: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop was closed: nothing to wake or to cancel
                loop.call_soon_threadsafe(call)

        def begin(patient: bool) -> TurnStore:
            lease = self._lease = store.acquire_now(self.conversation, agent, ttl=ttl, patient=patient)
            store.on_loss(lease, lambda: on_loop(lambda: self._lose(lease)))
            self._record = TurnStore(
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
                        raise await run_blocking(store.busy, self.conversation, agent)
                    return await run_blocking(begin, waiter.is_patient)
                except ConversationBusy as busy:
                    held_here = store.holds(self.conversation, agent, busy.number)
                    seconds = waiter.pause(busy, held_here=held_here)
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), seconds)

    def _lose(self, lease: Lease) -> None:
        """Cancel the turn: another process holds the lease, so this one can store nothing more."""
        if self._loop is not None and not self._task.done():
            self._loop.lost = LeaseLost(lease.conversation, lease.agent, number=lease.number)
            self._task.cancel()

    async def _not_begun(self, error: Exception | asyncio.CancelledError) -> TurnResult:
        """Return the result of a turn that failed or was cancelled before it was opened."""
        if self._lease is not None:
            with suppress(ContextcError):  # the first error matters more than this one
                await self._let_go(self._lease)
        if isinstance(error, Exception):
            return TurnResult(turn=0, finish="error", error=error)
        if not self._asked_to_stop:
            raise error
        return TurnResult(turn=0, finish="cancelled")

    async def _let_go(self, lease: Lease) -> None:
        try:
            await run_blocking(self.executor.store.release, lease)
        except asyncio.CancelledError:  # the lease is released nevertheless
            if not self._asked_to_stop:
                raise

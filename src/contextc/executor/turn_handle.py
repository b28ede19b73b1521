"""The handle of a running turn: its events, its cancellation and its result.

The turn runs in a task of its own, independent of readers. An error that ends it becomes an event, is stored in the
result, and is raised to readers of its events.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress

from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, ConversationBusy, LeaseLost
from contextc.events import AnyEvent
from contextc.executor.agent_config import AgentConfig, Suspend
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.executor.turn_loop import WAITING, TurnRunner
from contextc.executor.turn_result import TurnResult
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message
from contextc.store.async_store import wait_for_lease
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Lease, run_name
from contextc.store.message_rows import find_tip
from contextc.store.turn_and_event_records import TurnRecord, load_last_turn

CANCEL_REQUEST = "cancel"


class Turn:
    """A turn, and the turns that follow it because input was queued when it ended.

    `async for event in turn` yields their events. `results` holds the result of each, in order.
    """

    def __init__(
        self, config: AgentConfig, conversation: str, given: list[Message], *, resume: bool, wait: float
    ) -> None:
        self.config, self.conversation = config, conversation
        self._input, self._resume, self._wait = given, resume, wait
        self.results: list[TurnResult] = []
        self._is_cancelled = False
        self._lease: Lease | None = None
        self._turn_store: TurnStore | None = None
        self._loop: TurnRunner | None = None
        self._first_event = 0
        self._opened = asyncio.Event()
        self._has_reader = False
        self._inbox = Inbox()
        self._inboxes = [self._inbox]
        event_hub(config.store).add_watcher(conversation, self._inbox)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn of {conversation}")
        self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Cancel the turn. The reply so far is stored with its status, and open calls are answered."""
        if not self._is_cancelled:  # a second call has no effect: the turn is ending
            self._is_cancelled = True
            self._task.cancel()

    @property
    def agent(self) -> str:
        """The name of the agent, and of the run if it began beside another turn. Events of the turn have it, too."""
        return self.config.agent if self._turn_store is None else self._turn_store.agent

    @property
    def done(self) -> bool:
        """True if the turn has ended."""
        return self._task.done()

    async def begun(self) -> int:
        """Wait until the turn has started and return the number of its first event, 0 if there was nothing to do.

        Raises the error that kept it from starting, such as `ConversationBusy`.
        """
        await self._opened.wait()
        if not self._first_event and self.results and (error := self.results[0].error) is not None:
            raise error
        if not self._first_event and self._task.done() and not self._task.cancelled():
            self._task.result()
        return self._first_event

    async def wait(self) -> TurnResult:
        """Wait for this turn and those that follow it, and return this turn's result. `results` has all of them."""
        await asyncio.wait({self._task})
        self._task.result()
        return self.results[0]

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self.events()

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """Yield the events from the start of the turn to its end. Raises the error that ended it, if any."""
        async with aclosing(self.batches()) as found:
            async for events in found:
                for event in events:
                    yield event
        await self.wait()
        if (error := self.results[-1].error) is not None:
            raise error

    async def batches(
        self, *, after: int | None = None, pulse: float | None = None
    ) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """Yield batches of events, from the start of the turn or after an event number, as `watch_batches` does."""
        inbox, look = self._inbox, self._has_reader or after not in (None, self._first_event - 1)
        if look:  # the inbox already has a reader, or it may have missed events
            inbox = Inbox()
            if not self._task.done():
                self._inboxes.append(inbox)
                event_hub(self.config.store).add_watcher(self.conversation, inbox)
        else:
            self._has_reader = True
        try:
            await self._opened.wait()
            if self._first_event:
                start = self._first_event - 1 if after is None else after
                store = self.config.store
                found = watch_batches(
                    store, self.conversation, start, inbox=inbox, done=self._task.done, read_first=look, heartbeat=pulse
                )
                async with aclosing(found):
                    async for events in found:
                        yield [event for event in events if event.agent == self.agent]
        finally:
            if look and inbox in self._inboxes:
                self._inboxes.remove(inbox)
                event_hub(self.config.store).remove_watcher(self.conversation, inbox)

    def _on_done(self, _: "asyncio.Task[None]") -> None:
        self._opened.set()
        for inbox in self._inboxes:
            event_hub(self.config.store).remove_watcher(self.conversation, inbox)
            inbox.wake()

    async def _run(self) -> None:
        try:
            await self._run_turns()
        finally:  # a lease that was not released expires: no turn runs under it any more
            if self._lease is not None:
                self.config.store.stop_renewing(self._lease)

    async def _run_turns(self) -> None:
        stopped = False
        try:
            record = await self._acquire_and_open()
        except (Exception, asyncio.CancelledError) as error:
            if self._turn_store is None or not self._turn_store.turn.number:
                self.results.append(await self._unstarted_result(error))
                return
            record, stopped = self._turn_store, True  # the turn was stored nevertheless
        if not record.turn.number:
            await self._release(record.lease)
            self.results.append(_unopened_result(record))
            self._first_event = record.first_event if record.waiting is not None else 0
            return
        self._first_event = record.first_event
        self._opened.set()
        for inbox in self._inboxes:
            inbox.wake()
        loop = self._loop = TurnRunner(self.config, record, self.results)
        await loop.run(cancelled=stopped)
        if loop.cancelled and not self._is_cancelled:
            raise asyncio.CancelledError

    async def _acquire_and_open(self) -> TurnStore:
        """Acquire the lease, waiting if necessary, then open the turn and return its record.

        A run does not wait for another run of its agent: it gets a lease, a turn and a channel of its own.
        """
        config = self.config
        agent, beside = config.agent, "" if config.run is None else run_name(config.agent, config.run)
        if not beside:
            return await self._open_as(agent, self._wait)
        if await run_blocking(self._find_open_turn, beside) is None:
            running: TurnRecord | None = None
            for _ in range(2):
                with suppress(ConversationBusy):
                    return await self._open_as(agent, 0)
                running = await run_blocking(self._find_open_turn, agent)
                if running is not None:
                    break  # otherwise it has ended meanwhile, and the name is free
            if running is not None and running.run is None:  # nothing tells its messages from those of this run
                return await self._open_as(agent, self._wait)
        return await self._open_as(beside, self._wait)

    def _find_open_turn(self, name: str) -> TurnRecord | None:
        """Return the last turn under this name, unless it has ended."""

        def work(tx: Transaction) -> TurnRecord | None:
            here = find_tip(tx, self.conversation, False)
            last = None if here is None else load_last_turn(tx, here.conversation, name)
            return last if last is not None and last.state != "finished" else None

        return self.config.store.read(work)

    async def _open_as(self, agent: str, wait: float) -> TurnStore:
        config = self.config
        store, ttl = config.store, config.lease_seconds
        loop = asyncio.get_running_loop()

        def on_loop(call: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop was closed: nothing to wake or to cancel
                loop.call_soon_threadsafe(call)

        def begin(patient: bool) -> TurnStore:
            lease = self._lease = store.try_acquire(self.conversation, agent, ttl=ttl, patient=patient)
            store.on_lease_lost(lease, lambda: on_loop(lambda: self._on_lease_lost(lease)))
            turn_store = self._turn_store = TurnStore(
                store,
                self.conversation,
                agent,
                lease,
                run=config.run,
                channel=str(
                    config.compiler.channel(self.conversation, agent=agent, directory=config.directory or None)
                ),
                channel_triggers=config.channel_trigger_names,
            )
            store.on_end_request(lease, lambda kind: on_loop(lambda: self._on_end_request(lease, kind)))
            callback = config.approve is not None and not isinstance(config.approve, Suspend)
            try:
                turn_store.open(
                    self._input, resume=self._resume, ask_again=callback, only_submitted=config.owner is not None
                )
            except ConversationBusy:  # the same run has begun meanwhile
                self._lease = self._turn_store = None
                store.release(lease)
                raise
            return turn_store

        return await wait_for_lease(store, self.conversation, agent, wait=wait, ttl=ttl, take=begin)

    def _on_lease_lost(self, lease: Lease) -> None:
        """Cancel the turn: another process holds the lease, so this one can store nothing more."""
        if self._loop is not None and not self._task.done():
            self._loop.lease_lost = LeaseLost(lease.conversation, lease.agent, number=lease.number)
            self._task.cancel()

    def _on_end_request(self, lease: Lease, kind: str) -> None:
        """End the turn, because any process requested it: at once, or after the step."""
        if self._turn_store is None or self._turn_store.lease != lease or self._task.done():
            return
        self._turn_store.end_request = kind
        if kind == CANCEL_REQUEST:
            self.cancel()

    async def _unstarted_result(self, error: Exception | asyncio.CancelledError) -> TurnResult:
        """Return the result of a turn that failed or was cancelled before it was opened."""
        if self._lease is not None:
            with suppress(ContextcError):  # the first error matters more than this one
                await self._release(self._lease)
        if isinstance(error, Exception):
            return TurnResult(turn=0, finish="error", error=error)
        if not self._is_cancelled:
            raise error
        return TurnResult(turn=0, finish="cancelled")

    async def _release(self, lease: Lease) -> None:
        try:
            await run_blocking(self.config.store.release, lease)
        except asyncio.CancelledError:  # the lease is released nevertheless
            if not self._is_cancelled:
                raise


def _unopened_result(record: TurnStore) -> TurnResult:
    """Return the result if no turn was opened: there was nothing to do, or input was queued for a waiting turn."""
    waiting = record.waiting
    if waiting is None:
        return TurnResult(turn=0, finish="nothing to do")
    return TurnResult(turn=waiting.number, finish=WAITING, steps=waiting.steps, tool_calls=waiting.tool_calls)


async def run_turn(start: Callable[[], Turn]) -> AsyncGenerator[AnyEvent, None]:
    """Start a turn and yield its events. Leaving the loop early cancels the turn."""
    turn = start()
    try:
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
    finally:
        if not turn.done:
            turn.cancel()
            await turn.wait()

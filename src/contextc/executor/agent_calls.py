"""Agents as tools: an agent works on a task in a conversation of its own, and its answer is the result of the call.

The call is stored before the other agent begins, so a turn that is resumed goes on with the same conversation, in any
process. A called agent that waits for approval, or is handed over to another process, leaves its call open: the turn of
the caller is suspended or handed over, too. What the called agent has used counts as used by its caller.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidInput, LeaseLost, StoreError, TurnWaits
from contextc.events import AgentCallStart, AgentEvent, AnyEvent, ToolFailed, ToolFinished
from contextc.executor.agent_config import AgentConfig, TurnOwner
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.executor.limits import Limits
from contextc.executor.turn_store import TurnResult, TurnState, TurnStore
from contextc.messages import ToolCall, ToolResult, user
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.agent_calls import AgentCall, load_called_turn
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.store.turn_records import TurnRecord
from contextc.tools import FunctionTool

if TYPE_CHECKING:
    from contextc.executor.agent_executor import AgentExecutor

Number = TypeVar("Number", int, float)
CallMode: TypeAlias = Literal["alone", "fork"]
CALL_MODES: tuple[CallMode, ...] = ("alone", "fork")
OPEN_FINISHES = ("waiting", "handed over")
"""Finish reasons of a turn that goes on later."""
TOO_DEEP_RESULT = "Not run: agents may call each other {depth} deep, and this one would be deeper. Do it yourself."
ENDED_EARLY_RESULT = "{name} did not finish ({finish})."
NO_ANSWER_RESULT = "{name} ended without an answer."


class AgentTool(FunctionTool, frozen=True, kw_only=True, eq=False):
    """A tool that is an agent. Its function is for callers other than a turn: it runs the agent once, on its own."""

    executor_in: "Callable[[Store], AgentExecutor]"
    mode: CallMode = "alone"


class CalledTurnOwner:
    """The owner of the turn of a called agent: what its caller's owner wants holds for it, too."""

    def __init__(self, above: TurnOwner | None) -> None:
        self._above = above

    def check(self, turn: TurnRecord) -> None:
        """Accept every turn."""

    def wants_back(self) -> bool:
        return self._above is not None and self._above.wants_back()

    def retries(self, turn: TurnRecord, error: Exception) -> bool:
        return False

    def store_continuation(self, tx: Transaction, turn: TurnRecord, error: Exception | None) -> None:
        """Store nothing: the caller's turn continues it."""

    def model_call(self, provider: Provider) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._above is None else self._above.model_call(provider)


class CallOutcome(NamedTuple):
    """The result of a call, with the call and the turn that answered it; `result` is None if it goes on later."""

    result: ToolResult | None
    call: AgentCall | None = None
    turn: TurnRecord | None = None


class AgentCaller:
    """Runs the agents that the tool calls of one turn ask for."""

    def __init__(
        self, config: AgentConfig, turn_store: TurnStore, turn_state: TurnState, has_lost_lease: Callable[[], bool]
    ) -> None:
        self._config, self._turn_store, self._turn_state = config, turn_store, turn_state
        self._has_lost_lease = has_lost_lease

    async def run(self, tool: AgentTool, call: ToolCall, *, seq: int, position: int) -> CallOutcome:
        """Let the agent work on a call, or go on with it. `seq` is 0 if the call is not stored yet."""
        try:
            task = str(tool.parameters.read_arguments({} if call.malformed else call.arguments)["task"])
        except InvalidInput:
            return CallOutcome(await tool.run(call))  # says what is wrong
        limits, limit = self._limits_left(self._config.limits)
        if limit is not None:
            return CallOutcome(_failure(call, NOT_RUN_RESULT.format(why=limit)))
        store, depth = self._turn_store.store, self._config.limits.agent_depth
        executor = tool.executor_in(store)
        opened = await run_blocking(
            lambda: self._turn_store.open_agent_call(
                call, seq=seq, position=position, agent=executor.name, forks=tool.mode == "fork", max_depth=depth
            )
        )
        if opened is None:
            return CallOutcome(_failure(call, TOO_DEEP_RESULT.format(depth=depth)))
        owner = CalledTurnOwner(self._config.owner)
        result = await self._run_turn(executor.called_by(self._config, limits, owner), opened, task)
        if seq and (result.finish in OPEN_FINISHES or isinstance(result.error, TurnWaits)):
            return CallOutcome(None)
        called = await run_blocking(self._load_turn, opened)
        if isinstance(result.error, TurnWaits) or result.finish in OPEN_FINISHES:  # nothing could continue the call
            await run_blocking(store.cancel_turn, opened.name, opened.agent)
        return CallOutcome(_result_of(call, tool.name, result), opened, called)

    async def _run_turn(self, executor: "AgentExecutor", opened: AgentCall, task: str) -> TurnResult:
        """Run the turn of a called agent, or continue it. It was answered before if its answer is stored."""
        while True:
            turn = executor.start(opened.name, user(task), key=opened.name)
            try:
                result = await turn.wait()
            except asyncio.CancelledError:
                is_given_up = self._has_lost_lease()
                (turn.give_up if is_given_up else turn.cancel)()
                await turn.wait()
                if not is_given_up:
                    await self._count_cancelled(opened)
                raise
            if isinstance(result.error, StoreError):
                raise result.error
            if not isinstance(result.error, LeaseLost):
                return result

    async def _count_cancelled(self, opened: AgentCall) -> None:
        record = self._turn_store
        called = await run_blocking(self._load_turn, opened)
        if called is not None:
            self.count(opened, called)
        record.running_calls.add(opened.call)
        with suppress(LeaseLost):  # the next holder of the lease goes on
            await run_blocking(record.end_agent_call, opened)

    def count(self, opened: AgentCall, called: TurnRecord) -> None:
        """Count what a called agent has used as used by this turn. It is stored with the result of the call, or if that
        fails with the end of the turn.
        """
        self._turn_store.counted_agents.add(opened.conversation)
        self._turn_store.turn = self._turn_state.add_called_turn(self._turn_store.turn, called)

    def _load_turn(self, opened: AgentCall) -> TurnRecord | None:
        return self._turn_store.store.read(lambda tx: load_called_turn(tx, opened))

    def _limits_left(self, limits: Limits) -> tuple[Limits, str | None]:
        """Return what is left of the limits of this turn, and the reason if nothing is."""
        turn, spent = self._turn_store.turn, self._turn_state.cost
        steps = None if limits.steps is None else limits.steps - turn.steps - turn.agent_steps
        calls = None if limits.tool_calls is None else limits.tool_calls - turn.tool_calls - turn.agent_tool_calls
        cost = None if limits.cost is None or spent is None else limits.cost - spent
        for left, name in ((steps, "steps"), (calls, "tool calls"), (cost, "cost")):
            if left is not None and left <= 0:
                return limits, f"its limit of {name}"
        return replace(limits, steps=steps, tool_calls=calls, cost=cost), None


def tighter_limits(own: Limits, above: Limits) -> Limits:
    """Return the limits of a called agent: its own ones, and what is left of those of its caller."""

    return replace(
        own,
        steps=_lower(own.steps, above.steps),
        tool_calls=_lower(own.tool_calls, above.tool_calls),
        cost=_lower(own.cost, above.cost),
        agent_depth=_lower(own.agent_depth, above.agent_depth),
    )


def _lower(first: Number | None, second: Number | None) -> Number | None:
    return min([each for each in (first, second) if each is not None], default=None)


def _result_of(call: ToolCall, name: str, result: TurnResult) -> ToolResult:
    """Return the answer of a called agent as the result of its call."""
    if result.finish == "stop" and result.text:
        return ToolResult(call_id=call.id, name=call.name, content=result.text)
    if result.finish == "stop":
        return _failure(call, NO_ANSWER_RESULT.format(name=name))
    why = str(result.error) if result.error is not None else result.finish
    text = ENDED_EARLY_RESULT.format(name=name, finish=why)
    return _failure(call, f"{text} Its last answer: {result.text}" if result.text else text)


def _failure(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True)


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def with_agent_events(
    store: Store, batches: AsyncGenerator[Sequence[AnyEvent], None]
) -> AsyncGenerator[AnyEvent | AgentEvent, None]:
    """Yield the events of a turn, and among them those of the agents that it calls, each as an `AgentEvent`.

    The events of a called agent come before the result of its call.
    """
    streams: dict[str, _CalledStream] = {}
    own: asyncio.Task[Sequence[AnyEvent] | None] | None = None
    try:
        while True:
            if streams:
                own = own or asyncio.create_task(_next_batch(batches))
                reading = [each.start_reading() for each in streams.values()]
                await asyncio.wait({own, *reading}, return_when=asyncio.FIRST_COMPLETED)
                for each in streams.values():
                    if (read := each.take()) is not None:
                        yield read
                if not own.done():
                    continue
                found, own = own.result(), None
            else:  # most turns call no agent
                found = await anext(batches, None)
            for event in found or ():
                if isinstance(event, ToolFinished | ToolFailed) and (ended := streams.pop(event.id, None)) is not None:
                    for last in await ended.drain():
                        yield last
                yield event
                if isinstance(event, AgentCallStart) and event.id not in streams:
                    streams[event.id] = _CalledStream(store, event)
            if found is None:  # the turn has ended, or waits for an agent
                while streams:
                    for last in await streams.popitem()[1].drain():
                        yield last
                return
    finally:
        if own is not None:
            own.cancel()
            await asyncio.wait({own})
        for each in streams.values():
            await each.close()


async def _next_batch(batches: AsyncGenerator[Sequence[AnyEvent], None]) -> Sequence[AnyEvent] | None:
    return await anext(batches, None)


class _CalledStream:
    """The events of one called agent, and of those that it calls."""

    def __init__(self, store: Store, start: AgentCallStart) -> None:
        self._store, self._start, self._is_over = store, start, False
        self._inbox = Inbox()
        event_hub(store).add_watcher(start.conversation, self._inbox)
        batches = watch_batches(store, start.conversation, start.after, inbox=self._inbox, done=lambda: self._is_over)
        self._events = with_agent_events(store, batches)
        self._reading: asyncio.Task[AnyEvent | AgentEvent | None] | None = None

    def start_reading(self) -> "asyncio.Task[AnyEvent | AgentEvent | None]":
        self._reading = self._reading or asyncio.create_task(self._next())
        return self._reading

    def take(self) -> AgentEvent | None:
        """Return the event that was read, if there is one."""
        if self._reading is None or not self._reading.done():
            return None
        event, self._reading = self._reading.result(), None
        return self._mark(event) if event is not None else None

    async def drain(self) -> list[AgentEvent]:
        """Return all that is left: the agent has ended, or waits."""
        self._is_over = True
        self._inbox.mark_missed()
        found: list[AgentEvent] = []
        try:
            while (event := await self.start_reading()) is not None:
                self._reading = None
                found.append(self._mark(event))
        finally:
            await self.close()
        return found

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._events.aclose()
        event_hub(self._store).remove_watcher(self._start.conversation, self._inbox)

    async def _next(self) -> AnyEvent | AgentEvent | None:
        return await anext(self._events, None)

    def _mark(self, event: AnyEvent | AgentEvent) -> AgentEvent:
        if isinstance(event, AgentEvent):  # of an agent further down
            return event
        return AgentEvent(
            number=event.number,
            time=event.time,
            agent=event.agent,
            turn=event.turn,
            step=event.step,
            call=self._start.id,
            conversation=self._start.conversation,
            event=event,
        )

"""Agents as tools: an agent works on a task in a conversation of its own, and its answer is the result of the call.

The call is stored before the other agent begins, so a turn that is resumed goes on with the same conversation, in any
process. A called agent that waits for approval, or is handed over to another process, leaves its call open: the turn of
the caller is suspended or handed over, too. What the called agent has used counts as used by its caller: `TurnAccount`
has the account of both while they run, so that agents that run at the same time do not exceed a limit together.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidInput, LeaseLost, StoreError, TurnWaits
from contextc.events import AgentCallStart, AgentEvent, AnyEvent, ToolFailed, ToolFinished
from contextc.executor.agent_config import AgentConfig, TurnOwner
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.executor.limits import MAX_COST, MAX_STEPS, MAX_TOOL_CALLS, Limits
from contextc.executor.turn_store import TurnResult, TurnState, TurnStore
from contextc.messages import ToolCall, ToolResult, user
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.agent_calls import AgentCall, load_called_turn, load_uncounted_turns
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
LIMIT_NAMES = {
    MAX_STEPS: "its limit of steps",
    MAX_TOOL_CALLS: "its limit of tool calls",
    MAX_COST: "its limit of cost",
}


class AgentTool(FunctionTool, frozen=True, kw_only=True, eq=False):
    """A tool that is an agent. Its function is for callers other than a turn: it runs the agent once, on its own."""

    executor_in: "Callable[[Store], AgentExecutor]"
    mode: CallMode = "alone"


# ── limits of all agents that run ─────────────────────────────────────────────────────────────────────────────────────


class Used(NamedTuple):
    """Steps, tool calls and dollars. The cost is None if a price is unknown."""

    steps: int = 0
    tool_calls: int = 0
    cost: float | None = 0.0

    def plus(self, more: "Used") -> "Used":
        cost = None if self.cost is None or more.cost is None else self.cost + more.cost
        return Used(self.steps + more.steps, self.tool_calls + more.tool_calls, cost)


class TurnAccount:
    """Usage of a turn and of the agents that it has called. A limit holds for all of them together.

    A step and a tool call are reserved before they begin, in this account and in those of the callers. What a request
    costs is known only after its reply. All agents that a turn calls run in its process, so the account is in memory; a
    turn that is resumed restores it from the store.
    """

    def __init__(
        self, limits: Limits, turn_store: TurnStore, turn_state: TurnState, above: "TurnAccount | None" = None
    ) -> None:
        self._limits, self._turn_store, self._turn_state, self._above = limits, turn_store, turn_state, above
        self._lock = RLock() if above is None else above._lock
        self._steps = self._tool_calls = 0
        """The steps and tool calls of the turn itself, with those that are reserved."""
        self._called: dict[int, Callable[[], Used]] = {}
        """What agents have used that the record of the turn does not have yet, by their conversation."""
        if above is not None:
            with self._lock:
                above._called[turn_store.lease.root] = self._used

    def restore(self) -> None:
        """Load what agents have used that this turn has called before it was interrupted or suspended."""
        root, turn = self._turn_store.lease.root, self._turn_store.turn
        turns = self._turn_store.store.read(lambda tx: load_uncounted_turns(tx, root, turn.number))
        with self._lock:
            for conversation, called in turns.items():
                used = Used(called.steps + called.agent_steps, called.tool_calls + called.agent_tool_calls, called.cost)
                self._called.setdefault(conversation, lambda used=used: used)

    def begin_step(self) -> str | None:
        """Reserve the next step, or return the finish reason of the limit that was reached."""
        with self._lock:
            self._steps = 0
            if (limit := self.find_reached()) is None:
                self._steps = self._turn_store.turn.steps + 1
            return limit

    def find_reached(self) -> str | None:
        """Return the finish reason of a limit that was reached, of this turn or of one that has called it."""
        with self._lock:
            for each in self._with_callers():
                limits, used = each._limits, each._used()
                if limits.steps is not None and used.steps >= limits.steps:
                    return MAX_STEPS
                if limits.tool_calls is not None and used.tool_calls >= limits.tool_calls:
                    return MAX_TOOL_CALLS
            return MAX_COST if self.has_reached_cost(self._turn_state.cost) else None

    def has_reached_cost(self, cost: float | None) -> bool:
        """Return True if a limit of the cost was reached. `cost` is that of this turn, which may be within a reply."""
        own = self._turn_state.cost
        more = 0.0 if own is None or cost is None else cost - own
        with self._lock:
            limits = [(each._limits.cost, each._used().cost) for each in self._with_callers()]
        return any(used + more >= limit for limit, used in limits if limit is not None and used is not None)

    def reserve_calls(self, before: int, wanted: int) -> int:
        """Reserve tool calls after the first `before` ones of this turn. Return how many of them the limits allow."""
        with self._lock:
            allowed = int(max(0, min(wanted, self.calls_left(before))))
            self._tool_calls = before + allowed
            return allowed

    def calls_left(self, before: int) -> float:
        """Return how many tool calls are left after the first `before` ones of this turn."""
        with self._lock:
            again = max(self._turn_store.turn.tool_calls, self._tool_calls) - before
            left = inf
            for each in self._with_callers():
                if each._limits.tool_calls is not None:
                    left = min(left, each._limits.tool_calls - each._used().tool_calls)
            return left + again

    def limits_for(self, conversation: int) -> Limits:
        """Return what is left for the agent of a conversation, and what it has used. Its triggers warn of the end."""
        with self._lock:
            limits, used, before = self._limits, self._used(), self._called.get(conversation, Used)()
            return replace(
                limits,
                steps=_left(limits.steps, used.steps, before.steps),
                tool_calls=_left(limits.tool_calls, used.tool_calls, before.tool_calls),
                cost=_left(limits.cost, used.cost, before.cost),
            )

    def count(self, opened: AgentCall, called: TurnRecord) -> None:
        """Count what a called agent has used as used by this turn. It is stored with the result of the call, or if that
        fails with the end of the turn.
        """
        with self._lock:
            self._turn_store.counted_agents.add(opened.conversation)
            self._turn_store.turn = self._turn_state.add_called_turn(self._turn_store.turn, called)
            self._called.pop(opened.conversation, None)

    def _used(self) -> Used:
        turn = self._turn_store.turn
        used = Used(
            max(turn.steps, self._steps) + turn.agent_steps,
            max(turn.tool_calls, self._tool_calls) + turn.agent_tool_calls,
            self._turn_state.cost,
        )
        for called in self._called.values():
            used = used.plus(called())
        return used

    def _with_callers(self) -> Iterator["TurnAccount"]:
        account: TurnAccount | None = self
        while account is not None:
            yield account
            account = account._above


def _left(limit: Number | None, used: Number | None, before: Number | None) -> Number | None:
    if limit is None or used is None or before is None:
        return None
    return left if (left := limit - used + before) > 0 else limit  # if nothing is left, the account ends the agent


# ── the call of an agent ──────────────────────────────────────────────────────────────────────────────────────────────


class CalledTurnOwner:
    """The owner of the turn of a called agent: what its caller's owner wants holds for it, too."""

    def __init__(self, above: TurnOwner | None, account: TurnAccount) -> None:
        self._above, self.account = above, account

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
        self, config: AgentConfig, turn_store: TurnStore, account: TurnAccount, has_lost_lease: Callable[[], bool]
    ) -> None:
        self._config, self._turn_store, self.account = config, turn_store, account
        self._has_lost_lease = has_lost_lease

    async def run(self, tool: AgentTool, call: ToolCall, *, seq: int, position: int) -> CallOutcome:
        """Let the agent work on a call, or go on with it. `seq` is 0 if the call is not stored yet."""
        try:
            task = str(tool.parameters.read_arguments({} if call.malformed else call.arguments)["task"])
        except InvalidInput:
            return CallOutcome(await tool.run(call))  # says what is wrong
        store, depth, limit = self._turn_store.store, self._config.limits.agent_depth, self.account.find_reached()
        executor = tool.executor_in(store)
        opened = await run_blocking(
            lambda: self._turn_store.open_agent_call(
                call,
                *(seq, position, executor.name),
                forks=tool.mode == "fork",
                max_depth=depth if limit is None else 0,  # a conversation that exists ends its turn itself
            )
        )
        if opened is None:
            text = TOO_DEEP_RESULT.format(depth=depth)
            return CallOutcome(_failure(call, text if limit is None else NOT_RUN_RESULT.format(why=LIMIT_NAMES[limit])))
        owner, limits = CalledTurnOwner(self._config.owner, self.account), self.account.limits_for(opened.conversation)
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
            self.account.count(opened, called)
        record.running_calls.add(opened.call)
        with suppress(LeaseLost):  # the next holder of the lease goes on
            await run_blocking(record.end_agent_call, opened)

    def _load_turn(self, opened: AgentCall) -> TurnRecord | None:
        return self._turn_store.store.read(lambda tx: load_called_turn(tx, opened))


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

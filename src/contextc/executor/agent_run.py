"""A run of an agent: its texts and events while it runs, and its result.

A run is a turn of the executor. If the answer does not have the requested type, a second turn states the error to the
model, once.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

from msgspec import Struct

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidInput, InvalidOutput
from contextc.events import AnyEvent, TextDelta, TurnStart
from contextc.executor.output_type import OutputType
from contextc.executor.turn_handle import Turn, run_turn
from contextc.executor.turn_result import TurnResult
from contextc.executor.turn_totals import add_usage
from contextc.messages import Message, Usage, system
from contextc.store import Store

T = TypeVar("T")
CHECKED_FINISHES = ("stop", "length")
"""Finish reasons with an answer. A refusal or a limit would be the same in a second turn."""


class AgentResult(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a run. `finish` is why it ended: `stop`, a limit, or the model's or a trigger's reason.

    `messages` are those that the run added: input, replies, tool results, and messages of triggers. `usage` and `cost`
    are those of all its requests; `cost` is None if a price is unknown.
    """

    conversation: str
    finish: str
    text: str
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    steps: int = 0
    tool_calls: int = 0
    value: T | None = None
    problem: str = ""
    """The reason why the last answer does not have the requested type."""
    is_valid: bool = True
    """True if `value` is the answer."""

    @property
    def output(self) -> T:
        """The answer as a value of the agent's `output_type`; without one, its text.

        Raises `InvalidOutput` if the answer is invalid after the retry too.
        """
        if not self.is_valid:
            problem = f"the answer is not valid: {self.problem}" if self.problem else f"finish is {self.finish!r}"
            raise InvalidOutput(self.conversation, problem, finish=self.finish, text=self.text)
        return cast(T, self.value)


class AgentRun(Generic[T]):
    """A run of an agent. `async for text in run` yields the texts of its replies as they arrive.

    `events()` yields all events instead, and `await run.result()` waits for the end. The run starts with the first of
    these. Leaving the loop early cancels it; `async with` ensures that it has ended when the block is left.
    """

    def __init__(
        self,
        store: Store,
        conversation: str,
        start: Callable[[], Turn],
        start_again: Callable[[Message], Turn],
        output: OutputType[T] | None,
        input_messages: int,
    ) -> None:
        self.conversation = conversation
        self._store, self._start, self._start_again = store, start, start_again
        self._output, self._input_messages = output, input_messages
        self._starts: list[TurnStart] = []
        self._result: AgentResult[T] | None = None
        self._error: Exception | None = None
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[str]:
        return self.texts()

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the texts of the replies in pieces, as they arrive. Raises the error that ended the run, if any."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """Yield the events of the run. Raises the error that ended it, if any."""
        async with aclosing(self._events):
            async for event in self._events:
                yield event

    async def result(self) -> AgentResult[T]:
        """Wait for the end of the run and return its result. Raises the error that ended it, if any."""
        async for _ in self._events:
            pass
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise InvalidInput(
                "The run was left before its end, so it has no result", fix="Read it to its end, or start another run."
            )
        return self._result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._events.aclose()

    async def _run(self) -> AsyncGenerator[AnyEvent, None]:
        try:
            async with aclosing(self._run_turns()) as events:
                async for event in events:
                    yield event
        except Exception as error:
            self._error = error
            raise

    async def _run_turns(self) -> AsyncGenerator[AnyEvent, None]:
        """Run the turn, and the second one if its answer is invalid, and set the result."""
        results: list[TurnResult] = []
        async with aclosing(self._run_turn(self._start, results)) as events:
            async for event in events:
                yield event
        value, problem, is_valid = self._parse(results[-1])
        if problem:
            request = system(f"The answer is not valid: {problem}. Answer again, with nothing but valid JSON.")
            async with aclosing(self._run_turn(lambda: self._start_again(request), results)) as events:
                async for event in events:
                    yield event
            value, problem, is_valid = self._parse(results[-1])
        costs = [each.cost for each in results]
        usage = Usage()
        for each in results:
            usage = add_usage(usage, each.usage)
        self._result = AgentResult(
            conversation=self.conversation,
            finish=results[-1].finish,
            text=results[-1].text,
            messages=await run_blocking(self._load_messages, [each.turn for each in results]),
            usage=usage,
            cost=None if None in costs else sum(cast(list[float], costs)),
            steps=sum(each.steps for each in results),
            tool_calls=sum(each.tool_calls for each in results),
            value=value,
            problem=problem,
            is_valid=is_valid,
        )

    async def _run_turn(self, start: Callable[[], Turn], results: list[TurnResult]) -> AsyncGenerator[AnyEvent, None]:
        """Run a turn, yield its events, and append its result. Turns of queued input that follow it are not results."""
        turns: list[Turn] = []

        def begin() -> Turn:
            turns.append(start())
            return turns[0]

        async with aclosing(run_turn(begin)) as events:
            async for event in events:
                if isinstance(event, TurnStart):
                    self._starts.append(event)
                yield event
        results.append(await turns[0].wait())

    def _parse(self, result: TurnResult) -> tuple[T | None, str, bool]:
        """Return the answer as a value, the problem of an invalid answer, and True if there is a value."""
        if self._output is None:
            return cast(T, result.text), "", True  # the type of a plain answer is str
        if result.finish not in CHECKED_FINISHES:
            return None, "", False
        try:
            return self._output.parse(result.text), "", True
        except ValueError as error:
            return None, str(error).rstrip("."), False

    def _load_messages(self, turns: list[int]) -> tuple[Message, ...]:
        """Return the messages of these turns on the current branch: those that opened them, and those they wrote."""
        starts = [event for event in self._starts if event.turn in turns]
        if not starts:
            return ()
        opening = {starts[0].seq - number for number in range(max(1, self._input_messages))}
        opening |= {event.seq for event in starts}
        found = self._store.load(self.conversation, after=max(0, min(opening) - 1))
        return tuple([message for message in found if message.seq in opening or message.turn in turns])

"""A reply with very many tool calls: they run a few at a time, and not more than the limit."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import contextc as cc
from contextc.events import ToolFailed, TurnFinish
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, run_turn, says


class Counting:
    """Tools that count how many of them run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.most = self.calls = self.threads = 0

    def begin(self) -> None:
        with self._lock:
            self.running, self.calls = self.running + 1, self.calls + 1
            self.most = max(self.most, self.running)
            self.threads = max(self.threads, threading.active_count())

    def end(self) -> None:
        with self._lock:
            self.running -= 1

    def plain(self) -> str:
        """Work on a thread."""
        self.begin()
        self.end()
        return "done"

    async def on_loop(self) -> str:
        """Work on the event loop."""
        self.begin()
        await asyncio.sleep(0)
        self.end()
        return "done"


def reply(calls: int, name: str) -> Say:
    arguments: dict[str, Any] = {}
    return says(*[(f"c{number}", name, arguments) for number in range(calls)])


def tools_of(counting: Counting) -> list[Callable[..., object]]:
    return [counting.plain, counting.on_loop]


@pytest.mark.parametrize("name", ["plain", "on_loop"])
def test_the_calls_of_a_reply_run_a_few_at_a_time(store: cc.Store, name: str) -> None:
    """100 calls must not become as many threads; each has its result, in the order of the calls."""
    counting, before = Counting(), threading.active_count()
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=tools_of(counting),
        triggers=cc.default_triggers(),
        limits=cc.Limits(parallel_tools=3),
        endpoint=Scripted(reply(100, name), says("all done")),
    )

    result = asyncio.run(ended(executor))

    assert (result.finish, result.tool_calls, counting.calls) == ("stop", 100, 100)
    assert counting.most <= 3
    assert counting.threads - before <= 12
    ids = [part.call_id for message in store.load("demo") for part in message.tool_results]
    assert sorted(ids) == sorted(f"c{number}" for number in range(100))


async def ended(executor: cc.AgentExecutor) -> cc.TurnResult:
    return await executor.start("demo", "go").wait()


def test_a_reply_with_too_many_calls_ends_the_turn_with_a_reason_of_its_own(store: cc.Store) -> None:
    """2,000 calls are not a plan but a fault of the model: some are run, the others answered, and the turn ends."""
    counting = Counting()
    provider = Scripted(reply(2_000, "plain"), says("never asked for"))
    executor = cc.AgentExecutor(
        store, SONNET, tools=tools_of(counting), limits=cc.Limits(calls_per_reply=5), endpoint=provider, triggers=()
    )

    events = run_turn(executor, "go")

    assert [event.finish for event in events if isinstance(event, TurnFinish)] == ["max_calls_per_reply"]
    assert (counting.calls, len(provider.bodies)) == (5, 1)
    results = [part for message in store.load("demo") for part in message.tool_results]
    assert len({part.call_id for part in results}) == len(results) == 2_000
    assert [part.is_error for part in results] == [False] * 5 + [True] * 1_995
    assert results[-1].text == "Not run: the turn ended before (its limit of tool calls)."
    assert len([event for event in events if isinstance(event, ToolFailed)]) == 1_995
    assert store.turns("demo")[-1].tool_calls == 5


def test_the_limits_have_defaults_that_no_honest_reply_meets() -> None:
    """The defaults protect callers that set nothing."""
    assert (cc.Limits().calls_per_reply, cc.Limits().parallel_tools) == (1_000, 32)


def test_a_result_that_waits_to_be_stored_is_stored_though_the_turn_is_cancelled(store: cc.Store) -> None:
    """What a tool has done is on record: it does not count as interrupted because another result was stored first."""
    done = [threading.Event(), threading.Event()]

    async def first() -> str:
        """The first."""
        done[0].set()
        return "one"

    async def second() -> str:
        """The second."""
        done[1].set()
        return "two"

    async def main(patch: pytest.MonkeyPatch) -> cc.TurnResult:
        script = [says(call(1, "first"), call(2, "second"))]
        executor = cc.AgentExecutor(store, SONNET, tools=[first, second], endpoint=Scripted(*script), triggers=())
        turn, loop, write = executor.start("demo", "go"), asyncio.get_running_loop(), store.write

        def cancelling(*given: Any, **named: Any) -> object:
            if all(event.is_set() for event in done):
                loop.call_soon_threadsafe(turn.cancel)
            return write(*given, **named)

        patch.setattr(store, "write", cancelling)
        return await turn.wait()

    with pytest.MonkeyPatch.context() as patch:
        result = asyncio.run(main(patch))

    assert result.finish == "cancelled"
    texts = [part.text for message in store.load("demo") for part in message.tool_results]
    assert sorted(texts) == ["one", "two"]

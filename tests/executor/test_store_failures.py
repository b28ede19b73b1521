"""A store that refuses a write during a turn: the turn ends, and published events equal stored ones."""

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.errors import StoreFull
from contextc.events import StepStart, TextDelta, ToolFinished, ToolProgress
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Result, Transaction
from contextc.tools import ToolContext
from contextc.triggers import TriggerContext, trigger
from tests.conftest import some
from tests.executor.scripted_provider import SONNET, Scripted, add, call, run_turn, says

WRITES = 12
FULL = "The disk is full. Nothing was written."


class Unwilling(SQLiteEngine):
    """A store in a file that refuses some of its writes, which are counted from `count_from_here` on."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.refuse, self.count = range(0), 0

    def count_from_here(self, refuse: range) -> None:
        self.count, self.refuse = 0, refuse

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], Result], *, writing: bool, again: bool
    ) -> Result:
        if writing:
            self.count += 1
            if self.count in self.refuse:
                raise StoreFull(FULL)
        return super()._run(connection, work, writing=writing, again=again)


@pytest.fixture
def unwilling(tmp_path: Path) -> Unwilling:
    return Unwilling(tmp_path / "full.db")


@pytest.fixture
def store(unwilling: Unwilling) -> Iterator[cc.Store]:
    with open_with(unwilling) as store:
        yield store


def agent(store: cc.Store) -> cc.AgentExecutor:
    words = " ".join([f"word{number}" for number in range(30)])
    return cc.AgentExecutor(store, SONNET, endpoint=Scripted(*[says(words, pause=0.01)] * 2), triggers=())


@pytest.mark.parametrize("number", some(range(3, WRITES), 4))
def test_published_events_equal_stored_events(store: cc.Store, unwilling: Unwilling, number: int) -> None:
    """Guarantee 12.1: a piece of a reply that could not be journaled is published with its end, and not left out."""

    async def run() -> cc.TurnResult:
        unwilling.count_from_here(range(number, number + 1))
        return await agent(store).start("demo", "count").wait()

    result = asyncio.run(run())
    assert isinstance(result.error, StoreFull) or result.finish == "stop"  # there may have been fewer writes
    told = "".join([event.text for event in store.events("demo") if isinstance(event, TextDelta)])
    assert told == "".join([message.text for message in store.load("demo") if message.role == "assistant"])
    assert {turn.state for turn in store.turns("demo")} <= {"finished", "interrupted"}


def test_a_turn_that_could_not_be_stored_reports_it(store: cc.Store, unwilling: Unwilling) -> None:
    """Guarantee 15.1: not that there is nothing to do. The lease is taken in the transaction that opens the turn."""

    async def begin() -> int:
        unwilling.count_from_here(range(1, 100))
        return await agent(store).start("demo", "precious words").begun()

    with pytest.raises(StoreFull):
        asyncio.run(begin())
    unwilling.count_from_here(range(0))
    assert not store.conversations()


def test_a_turn_without_tools_is_three_transactions(store: cc.Store, unwilling: Unwilling) -> None:
    """Guarantee 3.3: each of them is synced to the disk. They open the turn, begin its request, and end both."""

    async def run() -> None:
        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("a"), says("b")), triggers=())
        for number in (1, 2):
            unwilling.count_from_here(range(0))
            result = await executor.start("demo", f"question {number}").wait()
            assert (result.finish, unwilling.count) == ("stop", 3)

    asyncio.run(run())


@pytest.mark.parametrize(("watched", "writes"), [(False, 7), (True, 9)])
def test_the_last_result_is_stored_with_the_next_request(
    store: cc.Store, unwilling: Unwilling, watched: bool, writes: int
) -> None:
    """Guarantees 3.3, 11.1: not if a trigger of the program may look into the store between the two."""
    seen: list[list[str]] = []

    @trigger("look", at="before_step")
    def look(_: TriggerContext) -> None:
        seen.append([message.role for message in store.load("demo")])

    async def run() -> None:
        scripted = Scripted(says(call(1)), says(call(2, a=2, b=2)), says("done"))
        triggers = [*cc.default_triggers(), *([look] if watched else [])]
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=scripted, triggers=triggers)
        unwilling.count_from_here(range(0))
        result = await executor.start("demo", "add").wait()
        assert (result.finish, unwilling.count) == ("stop", writes)
        sent = [executor.compiler.rebuild("demo", number) for number in (1, 2, 3)]
        assert sent == scripted.bodies

    asyncio.run(run())
    roles = [message.role for message in store.load("demo")]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert seen == ([["user"], roles[:3], roles[:5]] if watched else [])
    events = store.events("demo")
    kinds = [type(event).__name__ for event in events if isinstance(event, StepStart | ToolFinished)]
    assert kinds == ["StepStart", "ToolFinished", "StepStart", "ToolFinished", "StepStart"]


def test_a_message_that_arrives_before_the_last_result_is_stored_is_sent_too(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 3.2: the request was compiled with the result in another place, so it is compiled again."""
    begin, scripted = cc.MessageCompiler.begin, Scripted(says(call(1)), says("done"))

    def late(self: cc.MessageCompiler, compiled: cc.Compiled, **rest: Any) -> None:
        if compiled.request == 2 and len(store.load("demo")) == 2:
            store.append("demo", cc.user("And hurry.", author="Ann"))
        begin(self, compiled, **rest)

    monkeypatch.setattr(cc.MessageCompiler, "begin", late)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=scripted)
    run_turn(executor, "add")
    messages = store.load("demo")
    assert [message.role for message in messages] == ["user", "assistant", "user", "tool", "assistant"]
    assert [executor.compiler.rebuild("demo", number) for number in (1, 2)] == scripted.bodies
    assert b"And hurry." in scripted.bodies[1]
    assert scripted.bodies[1].count(b"tool_result") == 1


def test_a_cancellation_between_the_last_result_and_the_next_request_keeps_the_result(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 11.10: the tool has run, and what it returned is stored once."""
    begin, turns = cc.MessageCompiler.begin, list[cc.executor.Turn]()

    def cancelled(self: cc.MessageCompiler, compiled: cc.Compiled, **rest: Any) -> None:
        if compiled.request == 2:
            turns[0]._task.get_loop().call_soon_threadsafe(turns[0].cancel)  # pyright: ignore[reportPrivateUsage]
        begin(self, compiled, **rest)

    monkeypatch.setattr(cc.MessageCompiler, "begin", cancelled)
    scripted = Scripted(says(call(1)), says("done"))

    async def run() -> cc.TurnResult:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=scripted)
        turns.append(executor.start("demo", "add"))
        return await turns[0].wait()

    assert asyncio.run(run()).finish == "cancelled"
    results = [result for message in store.load("demo") for result in message.tool_results]
    assert [(result.text, result.is_error) for result in results] == [("3", False)]
    assert [step.state for step in store.steps("demo")] == ["finished", "failed"]
    assert len(scripted.bodies) == 1


def test_a_conversation_that_is_rewound_before_the_last_result_is_stored_ends_the_turn(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantees 3.5, 11.1: what was asked is gone, so no model is asked to go on."""
    begin, scripted = cc.MessageCompiler.begin, Scripted(says(call(1)), says("done"))

    def late(self: cc.MessageCompiler, compiled: cc.Compiled, **rest: Any) -> None:
        if compiled.request == 2 and len(store.load("demo")) == 3:
            store.rewind("demo", store.load("demo")[0].uid)
        begin(self, compiled, **rest)

    store.append("demo", cc.user("Hello."))
    monkeypatch.setattr(cc.MessageCompiler, "begin", late)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=scripted)

    async def run() -> cc.TurnResult:
        return await executor.start("demo", "add").wait()

    assert asyncio.run(run()).finish == "superseded"
    assert len(scripted.bodies) == 1


def test_progress_that_is_stored_late_leaves_the_last_result_to_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantees 3.3, 11.1: the thread that stores it may be slow, and go on when the tool has ended."""
    stored, goes_on, published = threading.Event(), threading.Event(), threading.Event()

    class Slow(SQLiteEngine):
        waits = False

        def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
            waits, self.waits = self.waits, False
            result = super().write(work, repeatable=repeatable)
            if waits:
                stored.set()
                assert goes_on.wait(60)
            return result

    engine, begin = Slow(str(tmp_path / "slow.db")), cc.MessageCompiler.begin

    def late(self: cc.MessageCompiler, compiled: cc.Compiled, **rest: Any) -> None:
        if compiled.request == 2:
            goes_on.set()
            assert published.wait(60)
        begin(self, compiled, **rest)

    def look(context: ToolContext) -> str:
        """Look."""
        engine.waits = True
        context.progress("half of it")
        assert stored.wait(60)
        return "all of it"

    async def run(executor: cc.AgentExecutor) -> None:
        async for event in executor.start("demo", "look"):
            if isinstance(event, ToolProgress):
                published.set()

    monkeypatch.setattr(cc.MessageCompiler, "begin", late)
    with open_with(engine) as store:
        scripted = Scripted(says(call(1, "look")), says("done"))
        executor = cc.AgentExecutor(store, SONNET, tools=[look], endpoint=scripted, triggers=())
        asyncio.run(run(executor))
        roles = [message.role for message in store.load("demo")]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert [executor.compiler.rebuild("demo", number) for number in (1, 2)] == scripted.bodies


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_result_that_could_not_be_stored_with_the_next_request_is_stored_later(
    store: cc.Store, unwilling: Unwilling, refused: int
) -> None:
    """Guarantee 3.3: the tool has run. The third write that is refused is the end of the turn."""

    async def run() -> cc.TurnResult:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=Scripted(says(call(1))))
        unwilling.count_from_here(range(4, 4 + refused))
        return await executor.start("demo", "add").wait()

    assert isinstance(asyncio.run(run()).error, StoreFull)
    results = [result for message in store.load("demo") for result in message.tool_results]
    assert [(result.text, result.is_error) for result in results] == [("3", False)]


def test_progress_that_could_not_be_stored_is_logged(
    store: cc.Store, unwilling: Unwilling, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 11.2: the tool goes on. An exception that nothing awaits is printed by the event loop, much later."""
    unexpected: list[object] = []

    async def read(context: ToolContext) -> str:
        """Read a file."""
        unwilling.count_from_here(range(1, 1_000_000))
        context.progress("half of it")
        while "progress of call c1 was not stored" not in caplog.text:
            await asyncio.sleep(0.01)
        unwilling.count_from_here(range(0))
        return "all of it"

    async def run() -> cc.TurnResult:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
        scripted = Scripted(says(call(1, "read")), says("done"))
        executor = cc.AgentExecutor(store, SONNET, tools=[read], endpoint=scripted, triggers=())
        return await executor.start("demo", "go").wait()

    assert asyncio.run(run()).finish == "stop"
    gc.collect()
    assert unexpected == []

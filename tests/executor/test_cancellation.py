"""Cancel a turn at any time: it ends, the store records it, and the next turn can begin at once."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import contextc as cc
from contextc.errors import ContextcError, StoreFull
from contextc.events import TextDelta, TurnFinish, TurnInterrupted
from contextc.store.store import leases_of
from tests.executor.scripted_provider import FIRST_WORD, SONNET, Scripted, add, call, kinds, run_turn, says
from tests.full_disk_sqlite import full_disk

ATTEMPTS = 40


def script() -> Scripted:
    said = [says("Let me add.", call(number, a=number, b=1), call(f"{number}b")) for number in range(2)]
    return Scripted(*said, says("It is done.", pause=0.002))


def test_a_turn_can_be_cancelled_at_any_moment(store: cc.Store) -> None:
    """Guarantee 11.10: also before it has begun. Every call is answered, nothing stays open, and the lease
    is released.
    """

    async def cancels(number: int) -> cc.TurnResult:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(), triggers=())
        turn = executor.start("demo", f"turn {number}")
        await asyncio.sleep(number * 0.0015)
        turn.cancel()
        async with asyncio.timeout(60):
            return await turn.wait()

    finishes = [asyncio.run(cancels(number)).finish for number in range(ATTEMPTS)]

    assert set(finishes) <= {"cancelled", "stop"}
    assert "cancelled" in finishes
    turns = store.turns("demo")
    assert {turn.state for turn in turns} == {"finished"}
    assert {step.state for step in store.steps("demo")} <= {"finished", "failed"}
    events = store.events("demo")
    assert kinds(events).count("turn-start") == kinds(events).count("turn-finish") == len(turns)
    messages = store.load("demo")
    assert sum(message.role == "user" for message in messages) == len(turns)
    for turn in turns:
        own = [message for message in messages if message.turn == turn.number]
        asked = [each.id for message in own for each in message.tool_calls]
        assert sorted(asked) == sorted(each.call_id for message in own for each in message.tool_results)
    run_turn(cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(), triggers=()), "at last")
    assert store.load("demo")[-1].text == "It is done."


def test_cancelling_twice_is_cancelling(store: cc.Store) -> None:
    """Guarantee 11.10: repeated cancellation still returns the result."""
    provider = Scripted(says("one two three four five six", silent=FIRST_WORD))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def cancels() -> cc.TurnResult:
        turn = executor.start("demo", "count")
        async for event in turn.events():
            if isinstance(event, TextDelta):
                for _ in range(5):
                    turn.cancel()
                    await asyncio.sleep(0)
        turn.cancel()
        return await turn.wait()

    assert asyncio.run(cancels()).finish == "cancelled"
    assert store.turns("demo")[0].finish == "cancelled"
    assert store.load("demo")[-1].status == "cancelled"


def test_a_waiting_turn_can_be_cancelled(store: cc.Store) -> None:
    """Guarantee 3.2: at once, and it leaves no lease behind."""
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Mine.")), triggers=())

    async def cancels() -> cc.TurnResult:
        with store.lease("demo"):
            turn = executor.start("demo", "me too", wait=60)
            while not len(leases_of(store).queue):
                await asyncio.sleep(0.001)
            turn.cancel()
            async with asyncio.timeout(60):
                return await turn.wait()

    assert asyncio.run(cancels()).finish == "cancelled"
    assert store.load("demo") == []
    run_turn(executor, "now")
    assert [message.text for message in store.load("demo")] == ["now", "Mine."]


def test_a_program_that_ends_leaves_a_turn_that_was_cancelled(store: cc.Store) -> None:
    """Guarantee 11.10: `asyncio.run` cancels what still runs."""
    executor = cc.AgentExecutor(
        store, SONNET, endpoint=Scripted(says("one two three four", silent=FIRST_WORD)), triggers=()
    )

    async def leaves() -> None:
        executor.start("demo", "count")
        while not store.steps("demo") if store.conversations() else True:
            await asyncio.sleep(0.01)

    asyncio.run(leaves())

    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [("finished", "cancelled")]


def test_a_store_closed_during_a_turn_reports_an_interruption(tmp_path: Path) -> None:
    """Guarantee 3.6: the next start goes on with it."""
    address = f"sqlite:///{tmp_path}/closed.db"
    store = cc.open_store(address)
    running, go_on = threading.Event(), threading.Event()

    def waits() -> str:
        """Wait."""
        running.set()
        go_on.wait(60)
        return "waited"

    executor = cc.AgentExecutor(store, SONNET, tools=[waits], endpoint=Scripted(says(call(1, "waits"))), triggers=())

    async def closes() -> cc.TurnResult:
        turn = executor.start("demo", "go")
        await asyncio.to_thread(running.wait, 60)
        store.close()
        go_on.set()
        return await turn.wait()

    assert isinstance(asyncio.run(closes()).error, ContextcError)
    with cc.open_store(address) as again:
        assert [turn.state for turn in again.turns("demo")] == ["interrupted"]
        assert isinstance(again.events("demo")[-1], TurnInterrupted)
        executor = cc.AgentExecutor(again, SONNET, tools=[waits], endpoint=Scripted(says("I see.")), triggers=())

        async def resumes() -> cc.TurnResult:
            return await executor.resume("demo").wait()

        assert asyncio.run(resumes()).finish == "stop"
        assert [message.text for message in again.load("demo")][-1] == "I see."


def test_a_disk_that_is_full_ends_the_turn_with_an_error_and_is_got_over(tmp_path: Path) -> None:
    """Guarantee 15.1: the turn cannot even say that it is over; its lease runs out, and the next one puts that
    right.
    """
    with cc.open_store(f"sqlite:///{tmp_path}/full.db") as store, ExitStack() as disk:

        def fill() -> str:
            """Fill the disk."""
            disk.enter_context(full_disk(store, pages=0))
            return "word " * 50_000

        provider = Scripted(says(call(1, "fill")), says("There is room again."))
        executor = cc.AgentExecutor(store, SONNET, tools=[fill], endpoint=provider, lease_seconds=0.5, triggers=())

        with pytest.raises(StoreFull):
            run_turn(executor, "go")
        disk.close()
        asyncio.run(waited(executor))

        assert store.load("demo")[-1].text == "There is room again."
        last = store.events("demo")[-1]
        assert isinstance(last, TurnFinish)
        assert last.finish == "stop"
        assert {turn.state for turn in store.turns("demo")} <= {"finished", "interrupted"}


async def waited(executor: cc.AgentExecutor) -> None:
    async for _ in executor.run("demo", "is there room?", wait=60):
        pass

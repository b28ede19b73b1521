"""Input that waits for another turn: stored before it waits, answered in order, once for each key."""

import asyncio
import multiprocessing
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

import contextc as cc
from contextc.errors import ConversationBusy, InvalidInput, KeyReused, ProviderFailed
from contextc.events import InputDequeued, InputQueued
from contextc.executor import Suspend
from contextc.executor.event_hub import watch
from contextc.formats.base import Request
from contextc.testing import FakeModel

PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE = 60


class Holding:
    """An agent whose answer to "one" waits in a tool until `gate` is set, and that answers everything else at once."""

    def __init__(self, store: cc.Store | None = None) -> None:
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.deps: list[object] = []

        @cc.tool
        async def hold(context: cc.ToolContext[object]) -> str:
            """Hold."""
            self.reached.set()
            await self.gate.wait()
            return "held"

        @cc.tool
        def note(context: cc.ToolContext[object]) -> str:
            """Note."""
            self.deps.append(context.deps)
            return "noted"

        self.model = FakeModel(self.answer)
        self.agent = cc.Agent(self.model, tools=[hold, note], store=store)

    def answer(self, request: Request) -> str | cc.ToolCall:
        asked = [message.text for message in request.messages if message.role == "user"][-1]
        if request.messages[-1].role == "tool":
            return f"answer to {asked}"
        return cc.tool_call(f"c{len(request.messages)}", "hold" if asked == "one" else "note", {})

    async def start(self) -> "asyncio.Task[cc.AgentResult[str]]":
        """Start a turn that runs until the gate is opened."""
        running = asyncio.create_task(self.agent.run("one", conversation="demo"))
        await self.reached.wait()
        return running

    def queued(self) -> list[str]:
        return [each.message.text for each in self.agent.store.queued("demo")]

    async def wait_for_inputs(self, count: int) -> None:
        """Wait until so many inputs wait for the turn."""
        waiting = 0
        async with asyncio.timeout(PATIENCE), aclosing(watch(self.agent.store, "demo")) as events:
            async for event in events:
                waiting += isinstance(event, InputQueued) - isinstance(event, InputDequeued)
                if waiting == count:
                    return

    def texts(self) -> list[str]:
        return [each.text for each in self.agent.store.load("demo") if each.text]


def test_a_second_input_is_stored_and_waits_its_turn() -> None:
    """Guarantee 20.10: in the order of the calls, and each with the dependencies of its own caller."""

    async def play() -> None:
        holding = Holding()
        running = await holding.start()
        names = ["two", "three", "four", "five"]
        waiting = [
            asyncio.create_task(holding.agent.run(name, conversation="demo", deps=f"deps of {name}")) for name in names
        ]
        await holding.wait_for_inputs(4)
        assert holding.queued() == names
        holding.gate.set()
        results = await asyncio.gather(running, *waiting)
        assert [result.text for result in results] == [f"answer to {name}" for name in ["one", *names]]
        assert [result.messages[0].text for result in results] == ["one", *names]
        assert holding.texts() == [text for name in ["one", *names] for text in (name, f"answer to {name}")]
        assert holding.deps == [f"deps of {name}" for name in names]
        assert holding.queued() == []

    asyncio.run(play())


def test_zero_refuses_and_a_limit_withdraws_the_input() -> None:
    """Guarantee 20.10: what was refused leaves nothing behind."""

    async def play() -> None:
        holding = Holding()
        running = await holding.start()
        for wait in (0, 0.05):
            with pytest.raises(ConversationBusy):
                await holding.agent.run("two", conversation="demo", wait=wait)
            assert holding.queued() == []
        events = [
            event for event in holding.agent.store.events("demo") if isinstance(event, InputQueued | InputDequeued)
        ]
        assert [type(event) for event in events] == [InputQueued, InputDequeued]
        cancelled = asyncio.create_task(holding.agent.run("two", conversation="demo"))
        await holding.wait_for_inputs(1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert holding.queued() == []
        holding.gate.set()
        await running
        assert holding.texts() == ["one", "answer to one"]

    asyncio.run(play())


def test_a_person_removes_input_that_waits() -> None:
    async def play() -> None:
        holding = Holding()
        running = await holding.start()
        waiting = asyncio.create_task(holding.agent.run("two", conversation="demo"))
        await holding.wait_for_inputs(1)
        number = holding.agent.store.queued("demo")[0].number
        holding.agent.store.write(lambda tx: tx.run("DELETE FROM main.queue WHERE number = ?", number))
        holding.gate.set()
        assert (await waiting).finish == "cancelled"
        await running
        assert holding.texts() == ["one", "answer to one"]

    asyncio.run(play())


def test_the_same_key_is_stored_and_answered_once(store: cc.Store) -> None:
    """Guarantee 20.10: before, while and after the first one runs."""

    async def play() -> None:
        holding = Holding(store)
        running = await holding.start()
        twice = [asyncio.create_task(holding.agent.run("two", conversation="demo", key="k")) for _ in range(3)]
        await holding.wait_for_inputs(1)
        holding.gate.set()
        results = await asyncio.gather(*twice)
        again = await holding.agent.run("two", conversation="demo", key="k")
        for result in (*results, again):
            assert (result.text, result.finish, result.steps, result.agent) == ("answer to two", "stop", 2, "assistant")
            assert [message.text for message in result.messages if message.text] == ["two", "answer to two"]
            assert result.usage == results[0].usage
        assert (again.model, len(holding.model.requests)) == ("model", 4)
        await running
        assert holding.texts() == ["one", "answer to one", "two", "answer to two"]
        with pytest.raises(KeyReused):
            await holding.agent.run("other", conversation="demo", key="k")
        assert holding.queued() == []

    asyncio.run(play())


def test_a_failed_turn_is_run_again_by_the_same_key() -> None:
    """The message is in the conversation once."""
    agent = cc.Agent(FakeModel(ProviderFailed("fake", "quota", "no credit left"), "At last."))
    with pytest.raises(ProviderFailed):
        agent.run_sync("hi", conversation="demo", key="k")
    assert agent.run_sync("hi", conversation="demo", key="k").text == "At last."
    assert [message.text for message in agent.store.load("demo")] == ["hi", "At last."]


def test_a_key_is_queued_once_behind_a_turn_that_waits_for_approval() -> None:
    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = cc.Agent(FakeModel(cc.tool_call("c1", "pay", {}), "Paid.", "Hello."), tools=[pay], approve=Suspend())
    assert agent.run_sync("pay", conversation="demo", key="a").finish == "waiting"
    for _ in range(2):
        assert agent.run_sync("hello", conversation="demo", key="b").finish == "waiting"
    assert [each.message.text for each in agent.store.queued("demo")] == ["hello"]
    agent.store.answer_approval(agent.store.approvals("demo")[0].id, True)
    assert agent.run_sync("pay", conversation="demo", key="a").text == "Paid."
    assert agent.run_sync("hello", conversation="demo", key="b").text == "Hello."
    texts = [message.text for message in agent.store.load("demo") if message.text]
    assert texts == ["pay", "Paid.", "hello", "Hello."]


def test_a_tool_that_runs_its_own_agent_is_refused_and_does_not_wait_for_itself() -> None:
    refused: list[Exception] = []

    @cc.tool
    async def ask() -> str:
        """Ask."""
        try:
            await agent.run("inside", conversation="demo")
        except ConversationBusy as error:
            refused.append(error)
        return "asked"

    agent = cc.Agent(FakeModel(cc.tool_call("c1", "ask", {}), "Done."), tools=[ask])
    assert agent.run_sync("hi", conversation="demo").text == "Done."
    assert len(refused) == 1


def test_keys_need_one_message_and_a_conversation() -> None:
    agent = cc.Agent(FakeModel())
    with pytest.raises(InvalidInput, match="none is named"):
        agent.run_sync("hi", key="k")
    with pytest.raises(InvalidInput, match="the input has 2"):
        agent.run_sync(["hi", "you"], conversation="demo", key="k")
    with pytest.raises(InvalidInput, match="the input has 0"):
        agent.run_sync(None, conversation="demo", key="k")
    with pytest.raises(InvalidInput, match="None for no limit"):
        agent.run_sync("hi", conversation="demo", wait=-1)


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def wait_until_killed(address: str) -> None:
    async def play() -> None:
        with cc.open_store(address) as store:
            holding = Holding(store)
            running = await holding.start()
            waiting = [
                asyncio.create_task(holding.agent.run(name, conversation="demo", key=f"key of {name}"))
                for name in ("two", "three")
            ]
            await holding.wait_for_inputs(2)
            os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.gather(running, *waiting)

    asyncio.run(play())


@pytest.mark.parametrize("way", ["resumed", "delivered again"])
def test_input_that_waited_when_its_process_died_is_answered(tmp_path: Path, way: str) -> None:
    """Guarantee 20.10: it is stored, and found by the next run without input, or by its key."""
    address = f"sqlite:///{tmp_path}/demo.db"
    child = PROCESSES.Process(target=wait_until_killed, args=(address,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL

    async def play() -> None:
        with cc.open_store(address) as store:
            holding = Holding(store)
            assert holding.queued() == ["two", "three"]
            holding.gate.set()
            assert (await holding.agent.resume("demo")).text == "answer to one"
            if way == "resumed":
                results = [await holding.agent.run(None, conversation="demo") for _ in range(2)]
            else:
                names = ("two", "three", "two")
                results = [await holding.agent.run(each, conversation="demo", key=f"key of {each}") for each in names]
            assert {result.text for result in results} == {"answer to two", "answer to three"}
            assert [text for text in holding.texts() if not text.startswith("answer")] == ["one", "two", "three"]
            assert [text for text in holding.texts() if text.startswith("answer")] == [
                f"answer to {name}" for name in ("one", "two", "three")
            ]
            assert holding.queued() == []

    asyncio.run(play())


def test_input_of_two_store_handles_waits_for_the_same_turn(shared_address: str) -> None:
    """Guarantee 20.10: as two processes have them. Each caller gets its own answer."""

    async def play() -> None:
        with cc.open_store(shared_address) as store, cc.open_store(shared_address) as other:
            here, there = Holding(store), Holding(other)
            running = await here.start()
            waiting = [
                asyncio.create_task(holding.agent.run(name, conversation="demo", deps=name))
                for name, holding in (("two", there), ("three", there), ("four", here))
            ]
            await here.wait_for_inputs(3)
            here.gate.set()
            results = await asyncio.gather(running, *waiting)
            assert [result.text for result in results] == [
                f"answer to {name}" for name in ("one", "two", "three", "four")
            ]
            assert (there.deps, here.deps) == (["two", "three"], ["four"])
            assert len(store.turns("demo")) == 4
            assert here.queued() == []

    asyncio.run(play())

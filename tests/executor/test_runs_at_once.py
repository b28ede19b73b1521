"""Two runs of one agent at once in one conversation: each has its turn and its channel; nothing is lost or doubled."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.doctor import scan_store
from contextc.errors import ConversationBusy
from contextc.events import TurnStart
from contextc.executor.turn import Turn
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.prompts import PromptContext
from contextc.providers.client import ProviderCall
from contextc.store.message_log import agent_of, run_name
from contextc.store.turn_records import TurnRecord
from tests.executor.scripted_provider import SONNET, Scripted, add, call, run_turn, says
from tests.executor.test_own_sessions import MINE, Service


class Gate:
    """A tool that runs until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def hold(self) -> str:
        """Hold on."""
        self.reached.set()
        await self.opened.wait()
        return "held"


HOLDING = says("r1 holds", ("h1", "hold", {}))


def texts(request: JSONObject) -> list[str]:
    """The words of a request in order, without the tags around them."""
    found: list[str] = []
    for message in request["messages"]:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            found.append(str(block.get("text", block.get("name", block.get("content")))))
    return found


def executor(store: cc.Store, provider: Scripted, run: str | None, *tools: object) -> cc.AgentExecutor:
    return cc.AgentExecutor(store, SONNET, name="coder", run=run, tools=[add, *tools], endpoint=provider, triggers=())  # type: ignore[list-item]


def test_two_runs_of_one_agent_answer_at_once() -> None:
    """The second does not see what the first has not finished; later requests have all of it once, in order."""

    async def play() -> None:
        gate = Gate()
        first = executor(store, Scripted(HOLDING, says("r1 done")), "r1", gate.hold)
        running = first.start("demo", "one")
        await gate.reached.wait()
        beside = second.start("demo", "two")
        assert (await beside.wait()).text == "r2 done"
        assert beside.agent == run_name("coder", "r2")
        gate.opened.set()
        assert (await running.wait()).text == "r1 done"
        events = [[event async for event in turn] for turn in (running, beside)]
        assert [{event.turn for event in each} for each in events] == [{1}, {2}]
        assert [sum(isinstance(event, TurnStart) for event in each) for each in events] == [1, 1]
        await third.start("demo", "three").wait()

    store = cc.open_store("memory:")
    provider, after = Scripted(says("r2", call(1)), says("r2 done")), Scripted(says("ok"))
    second, third = executor(store, provider, "r2"), executor(store, after, None)
    asyncio.run(play())

    assert [texts(request) for request in provider.requests] == [
        ["one", "two"],
        ["one", "two", "r2", "add", "3"],
    ]
    (request,) = after.requests
    words = texts(request)
    assert sorted(words) == sorted(
        ["one", "two", "three", "r1 holds", "hold", "held", "r1 done", "r2", "add", "3", "r2 done"]
    )
    assert words[-1] == "three"
    assert {(message.run, message.turn) for message in store.load("demo") if message.role != "user"} == {
        ("r1", 1), ("r2", 2), (None, 3),
    }  # fmt: skip


def test_the_first_run_gets_the_second_one_when_that_has_ended() -> None:
    """Between its own steps, in one piece."""

    async def play() -> None:
        gate = Gate()
        first = executor(store, provider, "r1", gate.hold)
        running = first.start("demo", "one")
        await gate.reached.wait()
        await executor(store, Scripted(says("r2", call(1)), says("r2 done")), "r2").start("demo", "two").wait()
        gate.opened.set()
        await running.wait()

    store, provider = cc.open_store("memory:"), Scripted(HOLDING, says("r1 done"))
    asyncio.run(play())
    assert texts(provider.requests[1]) == ["one", "r1 holds", "hold", "held", "two", "r2", "add", "3", "r2 done"]


def test_runs_at_once_have_sessions_of_their_own() -> None:
    """A session cannot take two prompts at once. The first one gets what the other run wrote, afterwards."""

    class Slow(Service):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            if call.session:
                reached.set()
                await opened.wait()
            async for event in super().stream(call):
                yield event

    async def play() -> None:
        await named("r0").start("demo", "zero").wait()
        running = named("r1").start("demo", "slow")
        await reached.wait()
        await named("r2").start("demo", "two").wait()
        opened.set()
        await running.wait()
        await named("r3").start("demo", "three").wait()

    def named(run: str) -> cc.AgentExecutor:
        return cc.AgentExecutor(store, MINE, run=run, endpoint=service, triggers=())

    store, service = cc.open_store("memory:"), Slow()
    reached, opened = asyncio.Event(), asyncio.Event()
    asyncio.run(play())

    assert service.calls == [
        ("", ["zero"]),
        ("", ["zero", "ok", "slow", "two"]),
        ("s1", ["slow"]),
        ("s1", ["two", "ok", "three"]),
    ]


def test_a_run_answers_its_message_also_if_another_run_read_it_and_has_ended() -> None:
    """Both messages are stored before the first request, which has both; its answer comes before the second request."""

    async def play() -> None:
        opened, ended = threading.Event(), threading.Event()

        def first_context(_: object) -> PromptContext:
            assert opened.wait(60)
            return PromptContext()

        def second_context(_: object) -> PromptContext:
            opened.set()
            assert ended.wait(60)
            return PromptContext()

        for name in ("tests", "docs"):
            await executor(store, Scripted(says("before")), name).start("demo", f"earlier {name}").wait()
        running = executor(store, tests, "tests").start("demo", "one", context=first_context)
        assert await running.begun()
        beside = executor(store, docs, "docs").start("demo", "two", context=second_context)
        assert (await running.wait()).text == "Green."
        ended.set()
        assert (await beside.wait()).text == "Written."
        await executor(store, docs, "docs").start("demo", "three").wait()

    store = cc.open_store("memory:")
    tests, docs = Scripted(says("Green.")), Scripted(says("Written."), says("Done."))
    asyncio.run(play())
    assert texts(tests.requests[-1])[-2:] == ["one", "two"]
    assert texts(docs.requests[0])[-2:] == ["one", "two"]
    assert texts(docs.requests[1])[-4:] == ["two", "Green.", "Written.", "three"]


def test_a_run_waits_for_a_turn_without_a_run() -> None:
    """Nothing tells their messages apart."""

    async def play() -> None:
        gate = Gate()
        running = executor(store, Scripted(HOLDING, says("ok")), None, gate.hold).start("demo", "one")
        await gate.reached.wait()
        named = executor(store, Scripted(says("ok")), "r2")
        assert isinstance((await named.start("demo", "two", wait=0).wait()).error, ConversationBusy)
        waiting = named.start("demo", "two", wait=60)
        gate.opened.set()
        assert (await running.wait()).finish == "stop"
        assert (await waiting.wait()).finish == "stop"

    store = cc.open_store("memory:")
    asyncio.run(play())
    assert [turn.agent for turn in store.turns("demo")] == ["coder", "coder"]


def test_a_run_takes_the_agents_own_name_if_the_other_turn_ends_while_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would begin a new channel, and send the whole conversation again."""

    async def play() -> None:
        loop, gate = asyncio.get_running_loop(), Gate()
        running = executor(store, Scripted(HOLDING, says("ok")), None, gate.hold).start("demo", "one")
        await gate.reached.wait()
        look = Turn._find_open_turn  # pyright: ignore[reportPrivateUsage]

        def look_late(turn: Turn, name: str) -> TurnRecord | None:
            if name == "coder":
                loop.call_soon_threadsafe(gate.opened.set)
                asyncio.run_coroutine_threadsafe(running.wait(), loop).result()
            return look(turn, name)

        monkeypatch.setattr(Turn, "_find_open_turn", look_late)
        assert (await executor(store, Scripted(says("ok")), "r2").start("demo", "two").wait()).finish == "stop"

    store = cc.open_store("memory:")
    asyncio.run(play())
    assert [turn.agent for turn in store.turns("demo")] == ["coder", "coder"]


def test_a_run_has_one_turn_at_a_time_and_so_has_an_agent_without_runs() -> None:
    """Whichever of its turns began first."""

    async def play() -> None:
        gate, other = Gate(), Gate()
        running = executor(store, Scripted(HOLDING, says("ok")), "r1", gate.hold).start("demo", "one")
        await gate.reached.wait()
        for run in ("r1", None):
            refused = await executor(store, Scripted(), run).start("demo", "again", wait=0).wait()
            assert isinstance(refused.error, ConversationBusy)
            assert "different names of `run`" in str(refused.error)
        beside = executor(store, Scripted(HOLDING, says("ok")), "r2", other.hold).start("demo", "two")
        await other.reached.wait()
        gate.opened.set()
        await running.wait()
        refused = await executor(store, Scripted(), "r2").start("demo", "again", wait=0).wait()
        assert isinstance(refused.error, ConversationBusy)
        other.opened.set()
        assert (await beside.wait()).finish == "stop"
        assert (await executor(store, Scripted(says("ok")), "r2").start("demo", "again").wait()).finish == "stop"

    store = cc.open_store("memory:")
    asyncio.run(play())
    assert [turn.agent for turn in store.turns("demo")] == ["coder", run_name("coder", "r2"), "coder"]
    assert [message.text for message in store.load("demo") if message.role == "user"] == ["one", "two", "again"]


def test_steering_reaches_the_run_it_is_meant_for() -> None:
    """And not the other one of the same agent."""

    async def play() -> None:
        gate, other = Gate(), Gate()
        executors = [
            executor(store, provider, run, each.hold)
            for provider, run, each in ((first, "r1", gate), (second, "r2", other))
        ]
        turns: list[cc.executor.Turn] = []
        for each, hold in zip(executors, (gate, other), strict=True):
            turns.append(each.start("demo", "go"))
            await hold.reached.wait()
        await executors[1].steer("demo", "left")
        other.opened.set()
        await turns[1].wait()
        gate.opened.set()
        await turns[0].wait()

    store = cc.open_store("memory:")
    first, second = Scripted(HOLDING, says("ok")), Scripted(HOLDING, says("ok"))
    asyncio.run(play())
    assert texts(second.requests[1])[-1] == "left"
    assert store.queued("demo") == []


def test_a_dead_run_is_recovered_alone_and_resumed_beside_the_other() -> None:
    """Its open calls get a result, those of the run that is still going do not."""
    store = cc.open_store("memory:")
    names, made = ("coder", run_name("coder", "r2")), list[TurnStore]()
    for run, name in zip(("r1", "r2"), names, strict=True):
        record = TurnStore(store, "demo", name, store.acquire("demo", name), run=run)
        record.open(GivenInput([cc.user(f"for {run}")]), resume=False)
        part = cc.tool_call(f"c-{run}", "add", {"a": 1, "b": 2})
        message = cc.messages.Message(role="assistant", parts=(part,), author="coder", run=run, turn=record.turn.number)
        store.append("demo", message)
        made.append(record)

    store.release(made[1].lease, failed=True)

    results = [message for message in store.load("demo") if message.role == "tool"]
    assert [(result.run, result.tool_results[0].call_id) for result in results] == [("r2", "c-r2")]
    provider = Scripted(says("r2 done"))

    async def resume() -> cc.executor.TurnResult:
        return await executor(store, provider, "r2").resume("demo").wait()

    result = asyncio.run(resume())
    assert (result.turn, result.text) == (2, "r2 done")
    assert "c-r1" not in encode(provider.requests).decode()
    made[0].close("stop")


def test_a_run_beside_another_is_kept_with_its_account(tmp_path: Path) -> None:
    """Its requests can be explained and built again, by the channel of the run."""

    async def play() -> None:
        gate = Gate()
        running = executor(store, Scripted(HOLDING, says("ok")), "r1", gate.hold).start("demo", "one")
        await gate.reached.wait()
        await executor(store, provider, "r2").start("demo", "two").wait()
        gate.opened.set()
        await running.wait()

    provider = Scripted(says("r2 done"))
    with cc.open_store(tmp_path / "store.db") as store:
        run_turn(executor(store, Scripted(says("before")), None), "zero")
        asyncio.run(play())
    with cc.open_store(tmp_path / "store.db") as store:
        compiler = cc.MessageCompiler(store, SONNET)
        assert [each.channel.agent for each in cc.SessionManager(store).sessions("demo")] == [
            "coder", run_name("coder", "r2"),
        ]  # fmt: skip
        assert compiler.rebuild("demo", name=run_name("coder", "r2")) == provider.bodies[0]
        assert "two" in str(compiler.explain("demo", name=run_name("coder", "r2")))


def test_a_run_that_waits_for_approval_is_continued_beside_the_other() -> None:
    """By an executor with the same run; the turn of the other run goes on."""

    async def play() -> None:
        gate = Gate()
        running = executor(store, Scripted(HOLDING, says("r1 done")), "r1", gate.hold).start("demo", "one")
        await gate.reached.wait()
        assert (await asking.start("demo", "two").wait()).finish == "waiting"
        (approval,) = store.approvals("demo")
        store.answer_approval(approval.id, True)
        result = await asking.resume("demo").wait()
        assert (result.finish, result.text, result.turn) == ("stop", "r2 done", 2)
        gate.opened.set()
        assert (await running.wait()).text == "r1 done"

    store, provider = cc.open_store("memory:"), Scripted(says(call(1)), says("r2 done"))
    asking = cc.AgentExecutor(
        store,
        SONNET,
        name="coder",
        run="r2",
        tools=[cc.tool(add, approval=True)],
        approve=cc.Suspend(),
        endpoint=provider,
        triggers=(),
    )
    asyncio.run(play())
    assert [message.run for message in store.load("demo") if message.tool_results] == ["r2", "r1"]


def test_a_run_that_begins_while_a_step_is_prepared_is_still_going() -> None:
    """Its open call is no interrupted one. What it wrote follows when it has ended, in one piece."""

    async def play() -> None:
        loop, gate = asyncio.get_running_loop(), Gate()
        begun: list[cc.executor.Turn] = []

        def wait_for_the_other(_: PromptContext) -> str:
            if first.requests and not begun:
                begun.append(asyncio.run_coroutine_threadsafe(begin(), loop).result())
            return ""

        async def begin() -> cc.executor.Turn:
            turn = executor(store, Scripted(HOLDING, says("r2 done")), "r2", gate.hold).start("demo", "two")
            await gate.reached.wait()
            return turn

        running = cc.AgentExecutor(
            store, SONNET, name="coder", run="r1", tools=[add], endpoint=first, triggers=(),
            instructions=wait_for_the_other,
        )  # fmt: skip
        assert (await running.start("demo", "one").wait()).text == "r1 done"
        gate.opened.set()
        assert (await begun[0].wait()).text == "r2 done"
        await executor(store, after, None).start("demo", "three").wait()

    store = cc.open_store("memory:")
    first, after = Scripted(says("r1", call(1)), says("r1 done")), Scripted(says("ok"))
    asyncio.run(play())
    assert texts(first.requests[1]) == ["one", "r1", "add", "3", "two"]
    assert texts(after.requests[0])[-5:] == ["r1 holds", "hold", "held", "r2 done", "three"]


def test_a_search_of_one_run_does_not_find_what_the_other_has_not_finished() -> None:
    """As its requests do not show it."""

    async def play() -> None:
        gate = Gate()
        running = executor(store, Scripted(HOLDING, says("r1 done")), "r1", gate.hold).start("demo", "one")
        await gate.reached.wait()
        await executor(store, searching, "r2").start("demo", "two").wait()
        gate.opened.set()
        await running.wait()
        await executor(store, later, "r3").start("demo", "three").wait()

    store = cc.open_store("memory:")
    asks = [("s1", "search_history", {"query": "holds"})]
    searching, later = (Scripted(says("looks", *asks), says("done")) for _ in range(2))
    asyncio.run(play())
    assert "r1 holds" not in str(searching.requests[1])
    assert "r1 holds" in str(later.requests[1]["messages"][-1])


def test_many_runs_at_once_lose_and_double_nothing(store: cc.Store) -> None:
    """On every kind of store: each question is answered once, and the next request has all of it once."""

    async def ask(run: str, questions: int) -> None:
        adds = [says(f"{run} adds", call(f"{run}-{number}")) for number in range(questions)]
        agent = executor(store, Scripted(*[line for add in adds for line in (add, says(f"{run} is done"))]), run)
        for number in range(questions):
            result = await agent.start("demo", f"{run} asks {number}").wait()
            assert (result.finish, result.error) == ("stop", None)

    async def play() -> None:
        await asyncio.gather(*[ask(f"r{index}", 3) for index in range(3)])
        await executor(store, after, None).start("demo", "the end").wait()

    after = Scripted(says("ok"))
    asyncio.run(play())

    messages = store.load("demo")
    assert sorted([message.text for message in messages if message.role == "user"][:-1]) == sorted(
        [f"r{run} asks {number}" for run in range(3) for number in range(3)]
    )
    found = Counter(texts(after.requests[0]))
    for run in ("r0", "r1", "r2"):
        assert found[f"{run} is done"] == found[f"{run} adds"] == 3
        assert [found[f"{run} asks {number}"] for number in range(3)] == [1, 1, 1]
    assert found["add"] == found["3"] == 9
    assert [finding for finding in scan_store(store) if finding.kind != "note"] == []


@pytest.mark.parametrize("run", ["r2", "with a\u2002space"])
def test_a_run_may_have_any_name(run: str) -> None:
    """Its agent is found in the name of its turns all the same."""
    assert agent_of(run_name("coder", run)) == "coder"

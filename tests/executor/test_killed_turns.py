"""kill -9 at random times during turns: the next start repairs the conversation, reports it and continues.

A child runs turn after turn, with replies that take their time and tools that write down, in a file of their own, when
they begin and when they end. It is killed at a random moment, and another one goes on.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.events import TextDelta, TurnInterrupted, TurnStart
from contextc.store.leases import PROCESS_ENDED, RESULT_PROCESS_ENDED
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Result, Transaction
from tests.conftest import often, some
from tests.executor.scripted_provider import FIRST_WORD, SONNET, Say, Scripted, call, kinds, run_turn, says

KILLS = often(2, 60)
STEPS, TOGETHER = 3, 3
MODELS = (SONNET, "openai:gpt-5", "openai-chat:gpt-5", "gemini:gemini-2.5-flash")
PROCESSES = multiprocessing.get_context("forkserver")


def model(request: JSONObject) -> Say:
    """A few steps with three calls each, under names that no other call has, and an answer."""
    last = [index for index, message in enumerate(request["messages"]) if asks(message)][-1]
    made = sum(message["role"] == "assistant" for message in request["messages"][last:])
    if made >= STEPS:
        return says("That is all I can say about it.", pause=0.004)
    calls = tuple(("toolu_" + uuid.uuid4().hex, "work", {"number": number}) for number in range(TOGETHER))
    return says("Let me see what there is.", *calls, pause=0.004)


def asks(message: JSONObject) -> bool:
    return message["role"] == "user" and "riddle" in str(message["content"])


def worker(path: Path) -> cc.tools.FunctionTool:
    async def work(number: int, context: cc.ToolContext) -> str:
        """Work, and write it down."""
        write(path, f"begins {context.call.id}")
        await asyncio.sleep(0.005 * (number + 1))
        write(path, f"ends {context.call.id}")
        return f"done by {context.call.id}"

    return cc.tool(work)


def write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def agent(store: cc.Store, path: Path) -> cc.AgentExecutor:
    tools = [worker(path)]
    return cc.AgentExecutor(store, SONNET, tools=tools, triggers=cc.default_triggers(), endpoint=Scripted(model))


def run_until_killed(address: str, path: Path, run: int, pipe: Connection) -> None:
    async def turns() -> None:
        with cc.open_store(address) as store:
            executor = agent(store, path)
            pipe.send("ready")
            await executor.resume("demo").wait()
            for number in range(1_000):
                async for _ in executor.run("demo", f"riddle {run}:{number}"):
                    pass

    asyncio.run(turns())


def kill_in_the_middle(address: str, path: Path, run: int, seconds: float) -> None:
    ours, theirs = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=run_until_killed, args=(address, path, run, theirs))
    child.start()
    theirs.close()
    assert ours.poll(60)
    time.sleep(seconds)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    ours.close()
    assert child.exitcode == -signal.SIGKILL


def test_kill_at_random_moments_of_running_turns(tmp_path: Path) -> None:
    """Guarantees 3.6, 11.1: no tool that has ended runs again, every call has one result, and the conversation is
    valid.
    """
    assert survives(tmp_path, KILLS, 20261115)["turns"]


def survives(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """So many kills of one conversation's turns, looked at from all sides at the end; what there was."""
    address, path = f"sqlite:///{folder}/killed.db", folder / "tools.txt"
    path.touch()
    chance = random.Random(seed)
    for run in range(kills):
        kill_in_the_middle(address, path, run, chance.uniform(0.0, 0.3))
    with cc.open_store(address) as store:
        interrupted = [event for event in store.events("demo") if isinstance(event, TurnInterrupted)]
        assert len(interrupted) >= kills // 3
        executor = agent(store, path)
        asyncio.run(played_to_the_end(executor))
        check_tools(store, path.read_text().split("\n"))
        check_record(store, executor)
        check_requests(store)
        steps = len(store.steps("demo"))
        return {"kills": kills, "in a turn": len(interrupted), "turns": len(store.turns("demo")), "steps": steps}


class Deadly(SQLiteEngine):
    """A store whose process is killed at one of its writes: before it is committed, or after it."""

    kill_at, count, is_before = 0, 0, False

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], Result], *, writing: bool, again: bool
    ) -> Result:
        self.count += writing
        is_last = writing and self.count == self.kill_at

        def deadly(tx: Transaction) -> Result:
            result = work(tx)
            if is_last and self.is_before:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        result = super()._run(connection, deadly, writing=writing, again=again)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def die_at_a_write(path: str, tools: Path, sent: Path, number: int, is_before: bool) -> None:
    def answer(request: JSONObject) -> Say:
        write(sent, "sent")
        return replace(model(request), pause=0.0)

    engine = Deadly(path)
    with open_with(engine) as store:
        engine.kill_at, engine.count, engine.is_before = number, 0, is_before
        executor = cc.AgentExecutor(store, SONNET, tools=[worker(tools)], endpoint=Scripted(answer))
        run_turn(executor, "riddle")


WRITES_OF_TURN = 2 + STEPS * (1 + TOGETHER) + 1
"""It opens, and its first request begins. Then each step stores its reply and its results, the last of them with the
beginning of the next request. The last reply is stored with the end of the turn.
"""


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("number", some(range(1, WRITES_OF_TURN + 1), 4))
def test_kill_at_every_transaction_of_a_turn(tmp_path: Path, number: int, is_before: bool) -> None:
    """Guarantees 3.3, 3.6: nothing stored is lost, no tool runs twice, and no request is sent before it is stored."""
    tools, sent = tmp_path / "tools.txt", tmp_path / "sent.txt"
    tools.touch()
    sent.touch()
    path = str(tmp_path / "killed.db")
    child = PROCESSES.Process(target=die_at_a_write, args=(path, tools, sent, number, is_before))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with cc.open_store(f"sqlite:///{path}") as store:
        is_begun = number > 1 or not is_before
        steps = store.steps("demo") if is_begun else []
        assert len(sent.read_text().split()) <= len(steps)
        results = [each.call_id for message in store.load("demo") for each in message.tool_results] if is_begun else []
        ended = [line.split()[1] for line in tools.read_text().splitlines() if line.startswith("ends")]
        assert set(ended) <= set(results)  # a result that was not stored is replaced by one that says so
        executor = agent(store, tools)
        asyncio.run(played_to_the_end(executor))
        check_tools(store, tools.read_text().split("\n"))
        check_record(store, executor)
        check_requests(store)


def test_an_unharmed_turn_has_as_many_transactions(tmp_path: Path) -> None:
    """Guarantee 3.3: the test above kills at every one of them."""
    engine = Deadly(str(tmp_path / "whole.db"))
    with open_with(engine) as store:
        for asked in ("riddle", "another riddle"):
            engine.count = 0
            scripted = Scripted(lambda request: replace(model(request), pause=0.0))
            run_turn(cc.AgentExecutor(store, SONNET, tools=[worker(tmp_path / "tools.txt")], endpoint=scripted), asked)
            assert engine.count == WRITES_OF_TURN


async def played_to_the_end(executor: cc.AgentExecutor) -> None:
    await executor.resume("demo").wait()
    result = await executor.start("demo", "one more riddle").wait()
    assert (result.finish, result.text) == ("stop", "That is all I can say about it.")


def check_tools(store: cc.Store, lines: list[str]) -> None:
    """What the tools themselves wrote down, beside what is stored."""
    begun, ended = (Counter(line.split()[1] for line in lines if line.startswith(word)) for word in ("begins", "ends"))
    assert set(begun.values()) == {1}
    messages = store.load("demo")
    calls = Counter(each.id for message in messages if message.status == "sent" for each in message.tool_calls)
    results = Counter(each.call_id for message in messages for each in message.tool_results)
    assert set(calls.values()) == {1}
    assert set(results.values()) == {1}
    assert set(calls) <= set(results)
    assert set(begun) <= set(calls)  # a call runs only after the reply that asks for it is stored
    for message in messages:
        for result in message.tool_results:
            if result.is_error:
                assert result.text == RESULT_PROCESS_ENDED
            else:
                assert ended[result.call_id] == 1
                assert result.text == f"done by {result.call_id}"


def check_record(store: cc.Store, executor: cc.AgentExecutor) -> None:
    """Turns, steps, events and messages agree, and nothing is left open."""
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
    events, turns, messages = store.events("demo"), store.turns("demo"), store.load("demo")
    assert [event.number for event in events] == [*range(1, len(events) + 1)]
    assert {turn.state for turn in turns} <= {"finished", "interrupted"}
    assert [turn for turn in turns if turn.state == "finished" and turn.finish != "stop"] == []
    assert {step.state for step in store.steps("demo")} <= {"finished", "failed"}
    assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.stream")) == (0,)
    resumed = [event for event in events if isinstance(event, TurnStart) and event.resumed]
    assert len(resumed) == sum(isinstance(event, TurnInterrupted) for event in events)
    asked = Counter(message.text for message in messages if message.role == "user")
    assert set(asked.values()) == {1}
    for turn in turns:
        replies = [each for each in messages if each.turn == turn.number and each.role == "assistant"]
        assert sum(each.status == "sent" for each in replies) == turn.steps == STEPS + 1
        assert sum(len(each.tool_calls) for each in replies if each.status == "sent") == turn.tool_calls
    pieces = Counter[str]()
    for event in events:
        if isinstance(event, TextDelta):
            pieces[event.uid] += len(event.text)
    for message in messages:
        if message.uid in pieces:
            assert pieces[message.uid] == len(message.text)
    requests = [step.request for step in store.steps("demo") if step.state == "finished"]
    assert requests == [*range(1, len(requests) + 1)]
    for request in requests[:: 1 + len(requests) // 50]:
        assert executor.compiler.rebuild("demo", request)


def check_requests(store: cc.Store) -> None:
    store.append("demo", cc.user("and now?"))
    for name in MODELS:
        compiled = cc.MessageCompiler(store, name).compile("demo")
        assert cc.lint(compiled.params, format=compiled.formatter.name) == []


def dies_in_the_stream(address: str) -> None:
    store = cc.open_store(address)

    async def dies() -> None:
        executor = cc.AgentExecutor(
            store, SONNET, endpoint=Scripted(says("one two three four", silent=FIRST_WORD)), triggers=()
        )
        async for event in executor.run("demo", "count"):
            if isinstance(event, TextDelta):
                os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(dies())


def test_resume_after_a_kill_in_the_middle_of_a_reply(tmp_path: Path) -> None:
    """Guarantees 3.3, 3.6: what was seen is kept, with its status; the model is asked again, and never sees it."""
    address = killed(dies_in_the_stream, tmp_path)
    with cc.open_store(address) as store:
        partial = store.load("demo")[-1]
        assert (partial.status, partial.error) == ("error", PROCESS_ENDED)
        assert partial.text.startswith("one")
        assert [event.text for event in store.events("demo") if isinstance(event, TextDelta)] == [partial.text]
        assert kinds(store.events("demo"))[-1] == "interrupted"
        assert [(turn.state, turn.steps) for turn in store.turns("demo")] == [("interrupted", 0)]
        assert [(step.state, step.error) for step in store.steps("demo")] == [("failed", PROCESS_ENDED)]
        provider = Scripted(says("One, two, three."))

        async def resumed() -> list[str]:
            executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())
            return kinds([event async for event in executor.resume("demo").events()])

        told = asyncio.run(resumed())

        assert (told[0], told[-1]) == ("turn-start", "turn-finish")
        assert b"one" not in provider.bodies[0]
        assert [message.text for message in store.load("demo")] == ["count", partial.text, "One, two, three."]
        assert [(turn.number, turn.state, turn.finish) for turn in store.turns("demo")] == [(1, "finished", "stop")]


def dies_in_a_tool(address: str) -> None:
    store = cc.open_store(address)

    def quick() -> str:
        """Be quick."""
        return "quick"

    def deadly() -> str:
        """Take the process down, once the other one has returned."""
        while len(store.load("demo")) < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    provider = Scripted(says(call(1, "quick"), call(2, "deadly")))
    run_turn(cc.AgentExecutor(store, SONNET, tools=[quick, deadly], endpoint=provider, triggers=()), "go")


@pytest.mark.parametrize("way", ["new input", "resume"])
def test_a_turn_that_died_is_reported_and_the_next_goes_on(tmp_path: Path, way: str) -> None:
    """Guarantee 3.6: the tool that had ended keeps its result; the other one is answered, and neither runs again."""
    address = killed(dies_in_a_tool, tmp_path)
    ran: list[str] = []

    def quick() -> str:
        """Be quick."""
        ran.append("quick")
        return "again"

    def deadly() -> str:
        """Be deadly."""
        ran.append("deadly")
        return "again"

    with cc.open_store(address) as store:
        assert [recovered.conversation for recovered in store.recovered] == ["demo"]
        assert kinds(store.events("demo"))[-1] == "interrupted"
        provider = Scripted(says("I see."))
        executor = cc.AgentExecutor(store, SONNET, tools=[quick, deadly], endpoint=provider, triggers=())

        async def goes_on() -> cc.TurnResult:
            turn = executor.start("demo", "what happened?") if way == "new input" else executor.resume("demo")
            return await turn.wait()

        assert asyncio.run(goes_on()).finish == "stop"

        assert ran == []
        results = [result for message in store.load("demo") for result in message.tool_results]
        assert [(result.call_id, result.text) for result in results] == [("c1", "quick"), ("c2", RESULT_PROCESS_ENDED)]
        states = [turn.state for turn in store.turns("demo")]
        assert states == (["interrupted", "finished"] if way == "new input" else ["finished"])
        assert (b"what happened?" in provider.bodies[0]) == (way == "new input")
        assert b"Whether the tool ran is not known" in provider.bodies[0]


def killed(target: object, folder: Path) -> str:
    """Run something in a process of its own, which kills itself."""
    address = f"sqlite:///{folder}/killed.db"
    child = PROCESSES.Process(target=target, args=(address,))  # pyright: ignore[reportArgumentType]
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    return address

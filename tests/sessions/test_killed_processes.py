"""kill -9 of our process while a program answers: another process continues, without loss or repetition.

A child talks to the real program and is killed: at moments that are chosen (before anything is sent, at the first
sign, while a tool of ours runs, when a message between two calls is stored and not delivered yet, when the answer is
there and is not stored yet), and at random moments. `make test`
has the last of the chosen moments, `make prove` all of them.
"""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.messages import Message
from contextc.providers.client import Deliver, Endpoint, Host, ProviderCall
from tests.conftest import often
from tests.fake_vendors import FakeVendors, RequestRecord
from tests.sessions.cli_agents import CLAUDE, VARIABLE, AgentSetup, ProgramUnderTest, marks, turn, twice, with_program
from tests.sessions.stress_simulation import SETTINGS, Busy, RecordingTool, pids, visible

Moment: TypeAlias = Literal["", "before", "first", "tool", "between", "last"]
KILLS = often(0, 20)
RANDOM: list[Moment] = [""] * KILLS
MOMENTS: tuple[Moment, ...] = ("before", "first", "tool", "between", *RANDOM, "last") if KILLS else ("last",)
SEED = int(os.environ.get("CONTEXTC_PROGRAM_SEED", "1"))
GONE_SECONDS = 60.0
PROCESSES = multiprocessing.get_context("forkserver")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyHost:
    """A host with which this process ends when a message is stored, and before the program gets it."""

    def __init__(self, host: Host) -> None:
        self.approve, self.run, self.admit, self.host = host.approve, host.run, host.admit, host

    async def between_calls(self, deliver: Deliver, results: Collection[str] = ()) -> str:
        return await self.host.between_calls(self.die, results)

    async def die(self, messages: Sequence[Message]) -> bool:
        die()
        return False


@cc.trigger("calls")
def calls(moment: cc.TriggerContext) -> str | None:
    """Say something new after each call."""
    return f"«t{int(moment.now * 1_000_000)}» A call is made." if moment.tool_calls else None


class Deadly(Endpoint):
    """A line on which this process ends, silently, at a moment of the next call, once `armed`."""

    def __init__(self, line: Endpoint, moment: Moment, programs: Path) -> None:
        self.line, self.moment, self.programs = line, moment, programs
        self.armed = False

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        if self.armed and self.moment == "before":
            die()
        if self.armed and self.moment == "between" and call.host is not None:
            call = replace(call, host=DeadlyHost(call.host))
        async with aclosing(self.line.stream(call)) as events:
            async for event in events:
                self.programs.write_text(" ".join(map(str, pids(self.line))))
                if self.armed and self.moment == "first":
                    die()
                yield event
                if self.armed and self.moment == "last" and _is_last(event):
                    die()

    async def close(self) -> None:
        await self.line.close()


class Noted(RecordingTool):
    """What the tool gave is written to a file, which outlives the process."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(name)
        self.path, self.deadly = path, False

    def note(self, call: str, mark: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{call} {mark}\n")
        if self.deadly:
            die()


class Bench:
    """What the processes share: a folder, and the address of the API."""

    def __init__(self, home: Path, program: ProgramUnderTest, url: str) -> None:
        self.home, self.program, self.url = home, program, url

    @property
    def address(self) -> str:
        return f"sqlite:///{self.home / 'chat.db'}"

    @property
    def tools(self) -> Path:
        return self.home / "tools.txt"

    @property
    def programs(self) -> Path:
        return self.home / "programs.txt"

    def agent(self, setup: AgentSetup, recorder: RecordingTool, moment: Moment = "") -> tuple[cc.AgentExecutor, Deadly]:
        provider = cc.provider(f"{self.program.name}:{self.program.model}", url=self.url, key=VARIABLE)
        line = Deadly(setup.line(provider), moment, self.programs)
        agent = cc.AgentExecutor(
            setup.store,
            provider,
            tools=[recorder.look],
            triggers=[calls] if KILLS else (),
            settings=SETTINGS[self.program.name],
            directory=str(setup.work),
            endpoint=line,
        )
        return agent, line

    def started(self, moment: Moment, run: int) -> BaseProcess:
        child = PROCESSES.Process(target=goes_on_until_killed, args=(self, moment, run))
        child.start()
        return child

    def killed(self, child: BaseProcess) -> None:
        """The child has been killed, or is about to be; what it started goes with it."""
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        left = [int(pid) for pid in self.programs.read_text().split()] if self.programs.exists() else []
        until = time.monotonic() + GONE_SECONDS
        while any(map(_runs, left)):
            assert time.monotonic() < until, "a program was left behind"
            time.sleep(0.05)


def goes_on_until_killed(bench: Bench, moment: Moment, run: int) -> None:
    """In a process of its own: end what the one before left, then begin something new, and die of it."""
    tempfile.tempdir = str(bench.home)  # what a killed process leaves goes with the other files of the test

    async def work() -> None:
        with cc.open_store(bench.address) as store:
            recorder = Noted(bench.tools, f"{run}x")
            agent, line = bench.agent(AgentSetup(store, bench.home), recorder, moment)
            await agent.resume("talk", wait=60).wait()
            await turn(agent, "talk", f"«u{run}» Hello.")
            line.armed, recorder.deadly = True, moment == "tool"
            for number in range(100):
                await turn(agent, "talk", f"«u{run}x{number}» And now?")

    asyncio.run(work())


def resumed(bench: Bench) -> tuple[list[Message], cc.AgentExecutor]:
    """Go on in this process; the conversation as it is then."""
    store = cc.open_store(bench.address)
    agent, line = bench.agent(AgentSetup(store, bench.home), Noted(bench.tools, "last"))

    async def work() -> None:
        result = await agent.resume("talk", wait=60).wait()
        assert result.finish == "stop"
        await line.close()

    asyncio.run(work())
    return store.load("talk"), agent


def check(messages: list[Message], record: RequestRecord, bench: Bench) -> None:
    """Whatever was said is there once and was shown once; every call has one result; no tool ran twice for a call."""
    text = Counter(message.text for message in messages if message.role == "user")
    assert not set(twice(text))
    calls = Counter(call.id for message in messages for call in message.tool_calls)
    results = Counter(result.call_id for message in messages for result in message.tool_results)
    assert calls == results
    assert not set(twice(calls))
    gave = [line.split() for line in bench.tools.read_text().splitlines()] if bench.tools.exists() else []
    assert not set(twice(Counter(call for call, _ in gave))), "a tool ran twice for one call"
    assert marks(record) == visible(messages[:-1])
    assert (messages[-1].role, messages[-1].status) == ("assistant", "sent")


@with_program(CLAUDE)
def test_another_process_continues_after_each_kill(program: ProgramUnderTest, tmp_path: Path) -> None:
    """Guarantees 3.6, 9.7, 9.8: an answer that was given and not stored is taken from the program's own record."""
    chance = Random(f"kills {SEED}")
    model = Busy(SEED)
    with FakeVendors(model) as standin:
        bench = Bench(tmp_path, program, standin.url(program.format))
        for run, moment in enumerate(MOMENTS):
            model.calls = model.calls if moment != "last" else 0  # what tools did would be known, and goes along
            child = bench.started(moment, run)
            if not moment:
                time.sleep(chance.uniform(0.5, 6.0))
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
            bench.killed(child)
        asked = len(standin.records)
        messages, agent = resumed(bench)
        check(messages, standin.records[-1], bench)
    manifest = agent.compiler.explain("talk", directory=agent.directory)
    assert len(standin.records) == asked, "what was answered was asked again"
    assert any("had already answered this prompt" in remark for remark in manifest.record.remarks)
    assert {turn.state for turn in agent.store.turns("talk")} <= {"finished", "interrupted"}
    assert not standin.refused


def _is_last(event: JSONObject) -> bool:
    return event.get("type") == "result" or event.get("method") == "turn/completed"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Compactions of several processes: kill -9 at each write of one, and two processes that compact at the same time."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from shutil import copyfile
from typing import Literal, TypeVar, get_args

import pytest

import contextc as cc
from contextc._json import decode
from contextc.doctor import scan_store
from contextc.events import CompactionFinished
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Transaction
from tests.executor.scripted_provider import played, run_turn
from tests.executor.test_background_summary import SUMMARY, Writer, agent

T = TypeVar("T")
Way = Literal["in the background", "while the turn waits", "executor.compact", "compiler.compact"]
FILLING_STEPS = 15
STEPS, ROUNDS = 3, 24
PROCESSES = multiprocessing.get_context("forkserver")


def fill(address: str | Path) -> None:
    """Begin a conversation whose window is almost full."""
    with cc.open_store(address) as store:
        run_turn(agent(store, Writer(FILLING_STEPS), None), "write")


def check_compactions(store: cc.Store, executor: cc.AgentExecutor) -> Counter[int]:
    """Check that each summary is stored whole and once. Return those in use for which there is no event."""
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
    events, stored = store.events("demo"), executor.compiler.compactions("demo")
    assert [event.number for event in events] == [*range(1, len(events) + 1)]
    used = Counter(each.upto for each in stored if not each.waits)
    done = Counter(event.upto for event in events if isinstance(event, CompactionFinished))
    assert done <= used
    messages = [message for message in store.load("demo") if message.status == "sent"]
    calls = Counter(each.id for message in messages for each in message.tool_calls)
    assert calls == Counter(each.call_id for message in messages for each in message.tool_results)
    compiled = executor.compiler.compile("demo", dry_run=True, **executor.config.arguments_for("demo"))
    assert cc.lint(decode(compiled.body), format=executor.provider.formatter.name) == []
    assert (SUMMARY.encode() in compiled.body) == bool(used)
    return used - done


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DeadlyStore(SQLiteEngine):
    """A store that ends its process in its write number `last`, before or after the commit. It counts the writes."""

    writes, last = 0, -1
    moment: Literal["before", "after"] = "before"

    def write(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> T:
        self.writes += 1
        number = self.writes

        def deadly(tx: Transaction) -> T:
            value = work(tx)
            if number == self.last and self.moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        value = super().write(deadly, repeatable=repeatable)
        if number == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def sum_up(messages: Sequence[cc.Message], previous: str | None) -> str:
    return SUMMARY


def writes_until_killed(path: Path, way: Way, last: int, moment: Literal["before", "after"]) -> int:
    """Compact a conversation whose window is almost full, in a store that ends the process. Return its writes."""
    deadly = DeadlyStore(str(path))
    store = open_with(deadly)
    deadly.writes, deadly.last, deadly.moment = 0, last, moment

    async def run() -> None:
        executor = agent(store, Writer(9), 0.75 if way == "in the background" else None)
        if way == "executor.compact":
            assert await executor.compact("demo") is not None
        elif way == "compiler.compact":
            assert executor.compiler.compact("demo", sum_up) is not None
        else:
            await played(executor, "demo", "go on")
        await executor.close()

    asyncio.run(run())
    store.close()
    return deadly.writes


@pytest.mark.thorough
@pytest.mark.parametrize("way", get_args(Way))
def test_kill_at_each_write_of_a_compaction(tmp_path: Path, way: Way) -> None:
    """Guarantees 3.6, 7.13: another process goes on. A summary is there whole, with one event, or not at all."""
    filled, copy = tmp_path / "filled.db", tmp_path / "copy.db"
    fill(filled)
    with closing(sqlite3.connect(filled)) as connection:  # a copy of this file alone has everything
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copyfile(filled, copy)
    writes = writes_until_killed(copy, way, -1, "after")
    for number in range(1, writes + 1):
        for moment in ("before", "after"):
            for each in tmp_path.glob("copy.db*"):
                each.unlink()
            copyfile(filled, copy)
            child = PROCESSES.Process(target=writes_until_killed, args=(copy, way, number, moment))
            child.start()
            child.join(120)
            assert child.exitcode == -signal.SIGKILL
            goes_on_after(copy, way)


def goes_on_after(path: Path, way: Way) -> None:
    """Continue a conversation whose process was killed."""
    with cc.open_store(path) as store:
        executor = agent(store, Writer(12), 0.75 if way == "in the background" else None)

        async def run() -> None:
            await executor.resume("demo").wait()
            result = await executor.start("demo", "and now?").wait()
            assert (result.finish, result.text) == ("stop", "Done.")
            await executor.config.background.wait("demo")
            await executor.close()

        asyncio.run(run())
        without_event = check_compactions(store, executor)
        assert without_event.total() <= (way == "compiler.compact")  # it stores no events
        assert executor.compiler.compactions("demo") != []


# ── two processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def compacts(address: str, name: str, run: str | None, meeting: Barrier, asked: "SimpleQueue[int]") -> None:
    """Run turns that write summaries in the background or wait for them, and compact after every third."""

    async def rounds(store: cc.Store) -> None:
        for number in range(ROUNDS):
            line = Writer(STEPS)
            executor = agent(store, line, None if number % 4 == 3 else 0.75, run=run)
            meeting.wait(60)
            result = await executor.start("demo", f"{name} {number}", wait=60).wait()
            assert result.finish == "stop"
            await executor.config.background.wait("demo")
            asked.put(len(line.summaries))
            if number % 3 == 2:
                meeting.wait(60)
                await executor.compact("demo")
            await executor.close()

    with cc.open_store(address) as store:
        asyncio.run(rounds(store))


@pytest.mark.thorough
@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "runs at once"])
def test_two_processes_compact_one_conversation(shared_address: str, at_once: bool) -> None:
    """Guarantees 3.2, 7.13: no summary is stored twice or used by halves, and no message, call or usage is lost. The
    turns wait for each other, or are two runs at once.
    """
    fill(shared_address)
    meeting, asked, names = PROCESSES.Barrier(2), PROCESSES.SimpleQueue(), ("ann", "bob")
    children = [
        PROCESSES.Process(target=compacts, args=(shared_address, name, name if at_once else None, meeting, asked))
        for name in names
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
    assert [child.exitcode for child in children] == [0, 0]
    requests = sum([asked.get() for _ in range(len(names) * ROUNDS)])
    with cc.open_store(shared_address) as store:
        assert check_compactions(store, agent(store, Writer(0))).total() == 0
        messages = store.load("demo")
        said = Counter(message.text for message in messages if message.role == "user")
        assert said == Counter(["write", *[f"{name} {number}" for name in names for number in range(ROUNDS)]])
        answers = [message for message in messages if message.role == "assistant"]
        assert len(answers) == FILLING_STEPS + 1 + len(names) * ROUNDS * (STEPS + 1)
        assert {message.status for message in messages} == {"sent"}
        usage = [turn.usage for turn in store.turns("demo")]
        assert sum([each.input for each in usage if each is not None]) == 7 * requests

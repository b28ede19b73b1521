"""200 conversations that stream at once, over HTTP: how soon the first event comes, whether all come, what stays.

A server runs in a process of its own, as `contextc serve` runs one: uvicorn on loopback, SQLite with full sync. Its
model is a metronome: it says its first word after a known time, and then word after word at the pace of a fast one.
Every conversation is watched on a connection of its own and answered again and again, each at its own time. What is
measured is what comes on top of the model's time, from the request to the first event, and to the first word; that
every event came, once and in order; and the memory of the server after the first rounds and after the last.

One reader takes nothing for as long as the others read. It is read from again at the end, and must get everything.
"""

import argparse
import asyncio
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc._garbage_collection import collect_garbage_rarely
from contextc._json import JSONObject, encode
from contextc.app.agent_factory import ModelChoice
from contextc.executor import AgentExecutor
from contextc.providers.client import Endpoint, ProviderCall
from contextc.triggers import default_triggers
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.server import create_server, listen
from contextc.web.turn_manager import ExecutorPool
from measure import Goal, show_goals

CONVERSATIONS, SECONDS = 200, 60
FIRST, PACE, WORDS = 0.3, 0.05, 160
"""The model: seconds to its first word, seconds between two, and how many it says."""
PAUSE = 2.0
"""Seconds that a person thinks before they say the next thing, on average."""
GOAL = 0.2
MODEL = "replay:metronome"


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Metronome(Endpoint):
    """A model that keeps time."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        await asyncio.sleep(FIRST)
        for number in range(WORDS):
            yield {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"content": f"word{number} "}}]}
            await asyncio.sleep(PACE)
        yield {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def serve(folder: Path) -> None:
    """Here, because this process does nothing else."""
    model = cc.provider(MODEL, window=128_000, output=4_000, url="metronome", format="openai_chat")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:

        def made(_: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
            line = Metronome()
            return AgentExecutor(store, model, triggers=default_triggers(), endpoint=line), line

        app = create_application(store, ServerOptions(root=folder, model=MODEL))
        app.state.app_state.turns.executors = ExecutorPool(made)
        listening = listen("127.0.0.1", 0)
        print(listening.getsockname()[1], flush=True)
        server = create_server(app)
        collect_garbage_rarely()
        server.run([listening])


# ── those who read ────────────────────────────────────────────────────────────────────────────────────────────────────


class Begun(NamedTuple):
    """How long after the request its first event and its first word came."""

    event: float
    word: float


class Reader:
    """One conversation: watched on one connection, spoken to on others."""

    def __init__(self, port: int, name: str) -> None:
        self.port, self.name = port, name
        self.last, self.wrong, self.words = 0, 0, 0
        self.turns: list[Begun] = []
        self._waiting: dict[str, asyncio.Future[float]] = {}

    async def watch(self) -> None:
        """Read everything, for ever."""
        stream, writer = await self.connect()
        try:
            await self.read(stream)
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        stream, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        path = f"/api/conversations/{self.name}/events?vocabulary=contextc&after={self.last}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await stream.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        return stream, writer

    async def read(self, stream: asyncio.StreamReader, *, until: int | None = None) -> None:
        kind = ""
        while until is None or self.last < until:
            line = await stream.readline()
            if line.startswith(b"event: "):
                kind = line[7:-1].decode()
            elif line.startswith(b"id: "):
                number = int(line[4:])
                self.wrong += number != self.last + 1
                self.last = number
                self._tell(kind)
            elif line.startswith(b"data: ") and kind == "text-delta":
                self.words += line.count(b"word")
            elif not line:
                return

    def _tell(self, kind: str) -> None:
        future = self._waiting.pop(kind, None)
        if future is not None and not future.done():
            future.set_result(perf_counter())

    async def say(self) -> None:
        """A turn, from the request to its end."""
        loop = asyncio.get_running_loop()
        kinds = ("turn-start", "text-delta", "turn-finish")
        waiting = {kind: loop.create_future() for kind in kinds}
        self._waiting |= waiting
        began = perf_counter()
        await self.post(f"/{self.name}/turns", {"input": "Go on."}, 202)
        event, word, _ = [await waiting[kind] for kind in kinds]
        self.turns.append(Begun(event - began, word - began - FIRST))

    async def post(self, path: str, body: JSONObject, status: int) -> None:
        stream, writer = await asyncio.open_connection("127.0.0.1", self.port)
        said = encode(body)
        head = f"POST /api/conversations{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(said)}\r\n\r\n".encode() + said)
        answer = await stream.read()
        assert f" {status} ".encode() in answer.splitlines()[0], answer
        writer.close()


class Found(NamedTuple):
    """What came of it all."""

    turns: list[Begun]
    burst: list[Begun]
    events: int
    wrong: int
    lost: int
    late: int
    """Events that the slow reader did not get in order."""
    resident: tuple[int, int, int]
    """At the beginning, in the middle and at the end."""
    cpu: float
    wall: float


async def measured(port: int, pid: int, conversations: int, seconds: float) -> Found:
    readers = [Reader(port, f"c{number}") for number in range(conversations)]
    dice = random.Random(1)
    for reader in readers:
        await reader.post("", {"name": reader.name}, 201)  # so that there is something to watch
    watching = [asyncio.create_task(reader.watch()) for reader in readers]
    await asyncio.gather(*[_talk(reader, dice, 0) for reader in readers])
    for reader in readers:
        reader.turns.clear()
    await asyncio.gather(*[reader.say() for reader in readers])  # all in one moment
    burst = [reader.turns.pop() for reader in readers]
    slow = Reader(port, "c0")
    taken, left = await slow.connect()
    left.transport.pause_reading()  # type: ignore[attr-defined]
    before, busy, began = resident(pid), cpu(pid), perf_counter()
    talking = asyncio.gather(*[_talk(reader, dice, began + seconds) for reader in readers])
    await asyncio.sleep(seconds / 2)  # by then caches have what they may hold
    middle = resident(pid)
    await talking
    wall, used, after = perf_counter() - began, cpu(pid) - busy, resident(pid)
    left.transport.resume_reading()  # type: ignore[attr-defined]
    await slow.read(taken, until=readers[0].last)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    turns = [turn for reader in readers for turn in reader.turns]
    wanted = WORDS * sum([len(reader.turns) + 2 for reader in readers])
    return Found(
        turns,
        burst,
        sum([reader.last for reader in readers]),
        sum([reader.wrong for reader in readers]),
        wanted - sum([reader.words for reader in readers]),
        slow.wrong,
        (before, middle, after),
        used / wall,
        wall,
    )


async def _talk(reader: Reader, dice: random.Random, end: float) -> None:
    await asyncio.sleep(dice.uniform(0, FIRST + PACE * WORDS + PAUSE))
    while True:
        await reader.say()
        if perf_counter() > end:
            return
        await asyncio.sleep(dice.uniform(0, 2 * PAUSE))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def at(share: float, values: Sequence[float]) -> str:
    found = sorted(values)
    return f"{found[min(len(found) - 1, int(share * len(found)))] * 1000:,.0f} ms"


def show(found: Found, conversations: int, out: Console) -> bool:
    table = Table(title=f"{conversations} conversations that stream at once", title_justify="left")
    for column in ("what comes beyond the model's own time", "median", "95 of 100", "99 of 100", "worst"):
        table.add_column(column, justify="left" if column.startswith("what") else "right")
    for name, turns in (("each at its own time", found.turns), ("all in one moment", found.burst)):
        for what, values in (
            ("first event", [turn.event for turn in turns]),
            ("first word", [turn.word for turn in turns]),
        ):
            table.add_row(f"{what}, {name}", *[at(share, values) for share in (0.5, 0.95, 0.99, 1.0)])
    out.print(table)
    before, middle, after = found.resident
    out.print(
        f"{len(found.turns):,} turns and {found.events:,} events in {found.wall:.0f} s; the server kept "
        f"{found.cpu:.0%} of a processor busy, and had {before >> 20} MB before, {middle >> 20} MB in the middle and "
        f"{after >> 20} MB after."
    )
    late = sorted([turn.event for turn in found.turns])[int(0.95 * len(found.turns))]
    goals = [
        Goal(f"first event at the 95th percentile: below {GOAL * 1000:.0f} ms", late < GOAL, f"{late * 1000:.0f} ms"),
        Goal("no event lost or out of order", not (found.wrong or found.lost), f"{found.wrong} and {found.lost}"),
        Goal("the slow reader gets everything, and slows nobody", not found.late, f"{found.late} out of order"),
        Goal("memory is flat from the middle on", after < middle * 1.1, f"{after / middle:.2f} times"),
    ]
    show_goals(out, goals)
    return all([goal.met for goal in goals])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return 0
    out = Console()
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, __file__, "--serve", folder]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                found = asyncio.run(measured(port, process.pid, given.conversations, given.seconds))
            finally:
                process.terminate()
    out.print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    return 0 if show(found, given.conversations, out) else 1


if __name__ == "__main__":
    sys.exit(main())

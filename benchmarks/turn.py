"""A turn of 100 tool steps on a history of 1,000 and of 10,000 messages: CPU time and written bytes, beside the peers.

Everybody runs the same scripted turn (`turns/script.py`) through the vendor's real SDK, with a transport that answers
at once in the place of the network: what is measured is the work of the agent, and not of a model. contextc stores
every step in SQLite with full sync, with its events, and streams its replies; the peers store what they store
(`turns/`). All cut to a window of 200,000 tokens in their own ways.

Each subject is a process of its own, so that processor time, bytes and memory are its own. Before the turn that counts
it runs one of a single tool call on the same conversation. The line `sdk` is the share of the vendor's SDK: the same
calls with bytes of the same size, and nothing else.
"""

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from time import perf_counter
from typing import NamedTuple, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from measure import Goal, show_goals, written
from peers import WORKPLACE, version
from tables import times
from transcripts import history
from turns.script import DONE, STEPS, Subject, scripted

OURS, SDK = "contextc", "sdk"
PEERS = ("langgraph", "pydantic_ai", "openai_agents", "strands")
LENGTHS = (1_000, 10_000)
GOAL = 0.5
OFTEN = (OURS, SDK)
"""Short enough to be run several times."""
ROUNDS = 5


class Turn(NamedTuple):
    """What one turn took: seconds of the processor, of those in the system, on the clock; bytes; and what stays."""

    cpu: float
    system: float
    wall: float
    written: int
    sent: int
    resident: int
    stores: str


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


def run(name: str, length: int, folder: Path) -> Turn:
    """Here, because this process does nothing else."""
    os.environ |= {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    subject: Subject = import_module(f"turns.{name}").Subject(folder)
    try:
        subject.fill(history(length))
        subject.prepare(scripted(1))
        subject.turn()
        subject.prepare(scripted(STEPS, after=1))
        sent, calls, before = subject.transport.sent, subject.transport.calls, written()
        gc.collect()
        used, began = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
        said = subject.turn()
        wall, now = perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        after = written()
        assert said == DONE, f"{name} ended with {said!r}"
        assert subject.transport.calls - calls == STEPS + 1, f"{name} made {subject.transport.calls - calls} calls"
    finally:
        subject.close()
    system = now.ru_stime - used.ru_stime
    return Turn(
        cpu=now.ru_utime - used.ru_utime + system,
        system=system,
        wall=wall,
        written=after.handed - before.handed if after and before else 0,
        sent=(subject.transport.sent - sent) // (STEPS + 1),
        resident=now.ru_maxrss * 1024,
        stores=subject.stores,
    )


def child(name: str, length: int) -> Turn | None:
    """One subject at one length; None where it is not installed."""
    folder = Path(mkdtemp(dir=WORKPLACE))
    command = [sys.executable, __file__, "--run", name, str(length), str(folder)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        rmtree(folder, ignore_errors=True)
    if ran.returncode:
        if "ModuleNotFoundError" in ran.stderr:
            return None
        raise ChildProcessError(f"{name} at {length:,}: {ran.stderr.strip()[-2000:]}")
    return Turn(*json.loads(ran.stdout.splitlines()[-1]))


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────

Found = dict[tuple[str, int], list[Turn]]


def middle(turns: list[Turn]) -> Turn:
    """The round in the middle, by its CPU time."""
    taken = median(sorted(turn.cpu for turn in turns)[: len(turns) - 1 + len(turns) % 2])
    return min(turns, key=lambda turn: abs(turn.cpu - taken))


def table(found: Found, lengths: tuple[int, ...], names: tuple[str, ...]) -> Table:
    shown = Table(title=f"A turn of {STEPS} tool steps", title_justify="left", caption_justify="left")
    shown.caption = (
        "CPU: user and system, all threads. Bytes are those handed to the system. A request: the mean size of one. "
        f"{SDK}: the same calls through Anthropic's SDK alone, with bytes; contextc holds this share too."
    )
    for column in ("messages", "", "CPU", "/ contextc", "clock", "written", "/ contextc", "a request", "memory"):
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    shown.add_column("stores", no_wrap=True)
    for length in lengths:
        ours = middle(found[OURS, length])
        for name in names:
            if (name, length) not in found:
                shown.add_row(f"{length:,}", name, "not installed")
                continue
            own = middle(found[name, length])
            ratios = (own.cpu / ours.cpu, own.written / ours.written if ours.written else 0.0)
            shown.add_row(
                f"{length:,}",
                name,
                f"{own.cpu:.2f} s",
                times(ratios[0]),
                f"{own.wall:.2f} s",
                size(own.written),
                times(ratios[1]),
                size(own.sent),
                size(own.resident),
                own.stores,
            )
        shown.add_section()
    return shown


def size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.0f} kB"


def goals(found: Found, lengths: tuple[int, ...]) -> Iterator[Goal]:
    for length in lengths:
        ours, vendor = middle(found[OURS, length]), middle(found[SDK, length])
        text = f"{length:,} messages: {STEPS} steps, each of them durable, under {GOAL} s of CPU"
        figure = f"{ours.cpu:.2f} s; {vendor.cpu:.2f} s are the SDK's share, {ours.cpu - vendor.cpu:.2f} s ours"
        yield Goal(text, ours.cpu < GOAL, figure)


def compare(options: argparse.Namespace) -> None:
    names = (OURS, SDK, *(() if options.quick else PEERS))
    lengths = cast(tuple[int, ...], tuple(options.lengths))
    console = Console(width=140)
    packages = ("contextc", "anthropic", "openai", "langgraph", "pydantic-ai-slim", "openai-agents", "strands-agents")
    versions = ", ".join(f"{name} {version(name) or 'not installed'}" for name in packages)
    console.print(f"Python {platform.python_version()}, {versions}", highlight=False, soft_wrap=True)
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    rounds = [name for name in names for _ in range(ROUNDS if name in OFTEN else 1)]
    found: Found = {}
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(rounds) * len(lengths))
        for length in lengths:
            for name in rounds:
                progress.update(task, description=f"{name}, {length:,} messages")
                if (turn := child(name, length)) is not None:
                    found.setdefault((name, length), []).append(turn)
                progress.advance(task)
    console.print(table(found, lengths, names))
    show_goals(console, goals(found, lengths))
    if options.json:
        rows = [
            {"name": name, "messages": length, **turn._asdict()}
            for (name, length), all_ in found.items()
            for turn in all_
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="A turn of 100 tool steps, by contextc and by its peers.")
    parser.add_argument("--quick", action="store_true", help="contextc and the SDK only")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N", help="messages of the history")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, length, folder = options.run
        print(json.dumps(run(name, int(length), Path(folder))))
    else:
        compare(options)


if __name__ == "__main__":
    main()

"""One step of an agent at 100 to 100,000 messages: CPU time, contextc and its peers in one run, as ratios.

A step makes the request for Anthropic within a window of 200,000 tokens and takes in the model's call and its result;
every eighth step the model answers and a person speaks. Everybody goes through the same transcripts (`transcripts.py`)
in its own documented way (`trimmers.py`). Ours stores what it does in a SQLite file with full sync (compile and body,
begin, commit, append), and is also shown with a store in memory. Where the window is full it is measured over whole
cycles, from one cut to the next, so that every mean holds its share of the steps that begin an epoch.

All take turns (`measure.py`), a length at a time, each after a step that is not timed. litellm does so in a Python of
its own, and only where everything fits: where it has to cut, its trim counts everything again for each message. The
logs of the SQLite files are brought to their full size first (`store.py`).

A cold start is what another process sees: nothing in memory but the open store. It is measured in a Python of its own,
with the rows it reads and the memory it takes, and beside it the first request of another model, which has no channel
yet: it reads and trims what fills the window. `--instructions` counts the instructions of a step with callgrind, which
says the same on a busy machine.
"""

import argparse
import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from time import perf_counter, process_time
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc.compiler.ledger import get_channel_cache
from contextc.store.sqlite import SQLiteTransaction
from measure import Cost, Goal, cpu, in_turn, ratio, show_goals
from peers import WORKPLACE, interpreter, version
from store import fill_log
from tables import duration, times
from transcripts import history, steps
from trimmers import PARTS, LangChain, LiteLLM, OpenAIAgents, Ours, PydanticAI, Strands, Subject

OURS, MEMORY, LITELLM = "contextc", "contextc, in memory", "litellm"
FULL_AT = 10_000
"""From this length on the window is full."""
LITELLM_UPTO = 1_000
OTHER_MODEL = "anthropic:claude-opus-4-1"
"""A model that has no channel in the stores."""
GOAL_LENGTHS = (10_000, 100_000)
STEP_GOAL, COLD_GOAL, FASTER, FASTER_BY_TOKENS, SAME = 0.5e-3, 5e-3, 10.0, 100.0, 1.25
MOST_STEPS, FEW = 2_000, 5
WIDTH = 130


class Block(NamedTuple):
    """Some steps in a row: what one of them costs, how many there were, how many began an epoch, what was sent last."""

    cost: Cost
    steps: int
    epochs: int
    sent: int
    parts: dict[str, float]
    typical: float
    """The CPU seconds of the step in the middle."""


class Cold(NamedTuple):
    """A cold start: CPU seconds, rows and bytes of them that were read, and what it takes of memory.

    `first` are the CPU seconds of the first request of a new channel.
    """

    cpu: float
    rows: int
    read: int
    traced: int
    resident: int
    first: float


class Runner(Protocol):
    def block(self) -> Block: ...

    def close(self) -> None: ...


# ── the measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Here:
    """A subject in this process, filled with a history of one length."""

    def __init__(self, subject: Subject, length: int, path: Path | None = None) -> None:
        self.subject, self.script = subject, steps()
        self._count = _count(subject, length)
        self._whole = length >= FULL_AT and isinstance(subject, Ours)
        subject.fill(history(length))
        if path is not None:
            fill_log(path)
        subject.step(self._next())
        while self._whole and not _begins_epoch(subject.step(self._next())):
            pass

    def _next(self) -> Any:
        return self.subject.made(next(self.script))

    def block(self) -> Block:
        subject = self.subject
        ready = [self._next() for _ in range(MOST_STEPS if self._whole else self._count + 1)]
        if not self._whole:
            subject.step(ready.pop())
        before = dict(subject.parts) if isinstance(subject, Ours) else {}
        singles: list[float] = []
        epochs = 0
        gc.collect()
        start = perf_counter()
        request: Any = None
        for each in ready:
            began = process_time()
            request = subject.step(each)
            singles.append(process_time() - began)
            if begins := _begins_epoch(request):
                epochs += 1
            if begins and self._whole:
                break
        wall = perf_counter() - start
        count = len(singles)
        parts = {name: (subject.parts[name] - was) / count for name, was in before.items() if isinstance(subject, Ours)}
        cost = Cost(wall / count, sum(singles) / count)
        return Block(cost, count, epochs, subject.sent(request), parts, median(singles))

    def close(self) -> None:
        self.subject.close()


def _count(subject: Subject, length: int) -> int:
    """Steps of a block, where no whole cycle is taken."""
    if isinstance(subject, Ours):
        return 10 if length < 1_000 else 50
    return 10 if length < 1_000 else 3 if length < 100_000 else 1


def _begins_epoch(request: object) -> bool:
    return isinstance(request, cc.Compiled) and bool(request.manifest.why)


class Apart:
    """litellm in its own Python, which answers each line with a block."""

    def __init__(self, python: str, length: int) -> None:
        command = [python, __file__, "--serve", str(length)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def block(self) -> Block:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print("block", file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            raise ChildProcessError(f"litellm's Python ended with {self._child.wait()}.")
        cost, *rest = json.loads(line)
        return Block(Cost(*cost), *rest)

    def close(self) -> None:
        self._child.communicate()


def serve(length: int) -> None:
    """The other end of `Apart`. What the package prints must not stand between the answers."""
    answers, sys.stdout = sys.stdout, sys.stderr
    runner = Here(LiteLLM(), length)
    for _ in sys.stdin:
        print(json.dumps(runner.block()), file=answers, flush=True)


def runners(folder: Path, length: int, python: str | None) -> dict[str, Runner]:
    files = {OURS: folder / f"ours-{length}.db", OpenAIAgents.name: folder / f"agents-{length}.db"}
    makers: dict[str, Callable[[], Subject]] = {
        OURS: lambda: Ours(f"sqlite:///{files[OURS]}"),
        MEMORY: lambda: Ours("memory:", MEMORY),
        LangChain.name: LangChain,
        PydanticAI.name: PydanticAI,
        OpenAIAgents.name: lambda: OpenAIAgents(files[OpenAIAgents.name]),
        Strands.name: Strands,
    }
    found: dict[str, Runner] = {}
    for name, make in makers.items():
        try:
            found[name] = Here(make(), length, files.get(name))
        except ModuleNotFoundError:
            continue
    if python and length <= LITELLM_UPTO:
        found[LITELLM] = Apart(python, length)
    return found


def measure_length(folder: Path, length: int, rounds: int, python: str | None) -> dict[str, list[Block]]:
    running = runners(folder, length, python)
    gc.collect()
    gc.freeze()
    found: dict[str, list[Block]] = {name: [] for name in running}
    try:
        for number in range(rounds):
            for name in in_turn(list(running), number):
                found[name].append(running[name].block())
    finally:
        for runner in running.values():
            runner.close()
        running.clear()
        gc.unfreeze()
        gc.collect()
    return found


# ── a cold start, and instructions: each in a Python of its own ───────────────────────────────────────────────────────


def cold(address: str) -> Cold:
    """Here, because this process has done nothing else. Code is loaded by a request of another conversation first."""
    with_code = Ours("memory:")
    with_code.fill(history(30))
    with_code.step(with_code.made(next(steps())))
    ours = Ours(address)
    ours.store.load("benchmark", last=1)
    before = resident()
    _start_cold(ours)
    grown = resident() - before
    times_taken = [_start_cold(ours) for _ in range(7)]
    tracemalloc.start()
    _start_cold(ours)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rows, size = _counted(lambda: _start_cold(ours))
    other = Ours(address, provider=OTHER_MODEL)
    first = median([_start_cold(other) for _ in range(7)])
    other.close()
    return Cold(median(times_taken), rows, size, traced, grown, first)


def _start_cold(ours: Ours) -> float:
    get_channel_cache(ours.store).clear()
    ours.compiler = cc.MessageCompiler(ours.store, ours.provider)
    gc.collect()
    start = process_time()
    body = ours.compiled().body
    taken = process_time() - start
    assert body
    return taken


def _counted(work: Callable[[], object]) -> tuple[int, int]:
    """Rows that are read meanwhile, and the bytes in them."""
    rows, read_all, read_one = list[Any](), SQLiteTransaction.rows, SQLiteTransaction.row

    def counted_rows(self: SQLiteTransaction, sql: str, *values: object) -> Any:
        found = read_all(self, sql, *values)
        rows.extend(found)
        return found

    def counted_row(self: SQLiteTransaction, sql: str, *values: object) -> Any:
        found = read_one(self, sql, *values)
        rows.extend([found] if found else [])
        return found

    SQLiteTransaction.rows, SQLiteTransaction.row = counted_rows, counted_row
    try:
        work()
    finally:
        SQLiteTransaction.rows, SQLiteTransaction.row = read_all, read_one
    return len(rows), sum(len(value) for row in rows for value in row if isinstance(value, bytes | str))


def resident() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def take_steps(address: str, count: int) -> None:
    """What callgrind watches, from the moment on that it is told to."""
    ours = Ours(address)
    script = islice(steps(), MOST_STEPS, None)  # calls with ids that are not in the file yet
    ready = [ours.made(step) for step in islice(script, FEW + count)]
    for step in ready[:FEW]:
        ours.step(step)
    subprocess.run(["callgrind_control", "--instr=on", str(os.getpid())], stdout=subprocess.DEVNULL, check=True)
    for step in ready[FEW:]:
        ours.step(step)
    os._exit(0)  # what a process does at its end is not part of a step


def instructions(path: Path, count: int) -> int:
    """The instructions of a step, over so many of them on a copy of a store."""
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={path.with_suffix('.callgrind')}"]
    command += [sys.executable, __file__, "--steps", f"sqlite:///{copy}", str(count)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode or found is None:
        raise ChildProcessError(ran.stderr)
    return int(found[1]) // count


def child(*arguments: str) -> Any:  # Any: JSON
    ran = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────

Found = dict[int, dict[str, list[Block]]]


def new_table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def peers_table(found: Found) -> Table:
    titles = [f"{length:,}" for length in found]
    table = new_table("One step: CPU time, and how many times contextc's", "messages", *titles, "sent", "cut by")
    table.caption = "Medians of the rounds. Sent: messages of the last request at the greatest length."
    kinds = {each.name: each.cuts for each in (LangChain, LiteLLM, PydanticAI, OpenAIAgents, Strands)}
    for name in dict.fromkeys(name for blocks in found.values() for name in blocks):
        cells: list[str] = []
        for blocks in found.values():
            if (own := blocks.get(name)) is None:
                cells.append("-")
                continue
            taken = duration(median(block.cost.cpu for block in own))
            cells.append(taken if name in (OURS, MEMORY) else f"{taken} ({times(share(blocks, name))})")
        sent = next(blocks[name][-1].sent for blocks in reversed(found.values()) if name in blocks)
        table.add_row(name, *cells, f"{sent:,}", kinds.get(name, "tokens"), end_section=name == MEMORY)
    return table


def share(blocks: dict[str, list[Block]], name: str) -> float:
    own, ours = ([block.cost for block in blocks[each]] for each in (name, OURS))
    return ratio(cpu(own), cpu(ours)).median


def parts_table(found: Found) -> Table:
    table = new_table("contextc, parts of a step (CPU)", "messages", *PARTS, "mean", "median", "steps", "epochs")
    table.caption = "Means over all steps of the median block; the median step begins no epoch."
    for length, blocks in found.items():
        for name in (OURS, MEMORY):
            parts = [duration(median(block.parts[part] for block in blocks[name])) for part in PARTS]
            mean = duration(median(block.cost.cpu for block in blocks[name]))
            middle = duration(median(block.typical for block in blocks[name]))
            counts = (sum(block.steps for block in blocks[name]), sum(block.epochs for block in blocks[name]))
            label = f"{length:,}" + (", in memory" if name == MEMORY else "")
            table.add_row(label, *parts, mean, middle, *(f"{count:,}" for count in counts))
    return table


def cold_table(found: dict[int, Cold]) -> Table:
    table = new_table(
        "contextc, a cold start on an open store",
        *("messages", "CPU", "rows read", "bytes read", "memory", "resident", "new channel"),
    )
    table.caption = (
        "Memory: what the objects take that stay (tracemalloc); resident: by how much the process grew.\n"
        "New channel: the CPU of the first request of another model."
    )
    for length, each in found.items():
        sizes = [f"{size / 1e6:.1f} MB" for size in (each.read, each.traced, each.resident)]
        table.add_row(f"{length:,}", duration(each.cpu), f"{each.rows:,}", *sizes, duration(each.first))
    return table


def goals(found: Found, colds: dict[int, Cold]) -> Iterator[Goal]:
    lengths = [length for length in GOAL_LENGTHS if length in found]
    for length in lengths:
        taken = median(block.cost.cpu for block in found[length][OURS])
        text = f"{length:,} messages: a step, synced, with its share of epochs, under {duration(STEP_GOAL)}"
        yield Goal(text, taken < STEP_GOAL, duration(taken))
    if len(lengths) > 1:
        few, many = (median(block.cost.cpu for block in found[length][OURS]) for length in lengths)
        yield Goal("a step costs the same at every length", many < few * SAME, f"{times(many / few)} times")
    by_tokens = {LangChain.name, LITELLM, PydanticAI.name}
    for length, blocks in found.items():
        for text, least, names in (
            ("every peer", FASTER, set(blocks) - {OURS, MEMORY}),
            ("every peer that cuts by tokens", FASTER_BY_TOKENS, by_tokens & set(blocks)),
        ):
            if names and length in GOAL_LENGTHS:
                nearest = min(names, key=lambda name: share(blocks, name))
                figure = share(blocks, nearest)
                text = f"{length:,} messages: {least:.0f} times as fast as {text}"
                yield Goal(text, figure >= least, f"{times(figure)} ({nearest})")
    if colds:
        longest = max(colds)
        text = f"{longest:,} messages: a cold start under {duration(COLD_GOAL)}"
        yield Goal(text, colds[longest].cpu < COLD_GOAL, duration(colds[longest].cpu))
    if len(colds) > 1:
        few, many = colds[min(colds)].traced, colds[max(colds)].traced
        yield Goal("memory does not follow the length", many < few * SAME, f"{times(many / few)} times")


def save(path: Path, found: Found, colds: dict[int, Cold], counted: dict[int, int], reached: Sequence[Goal]) -> None:
    blocks = {
        length: {name: [block._asdict() for block in each] for name, each in names.items()}
        for length, names in found.items()
    }
    starts = {length: each._asdict() for length, each in colds.items()}
    content = {"blocks": blocks, "cold": starts, "instructions": counted, "goals": [goal._asdict() for goal in reached]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="One step of an agent, by contextc and by its peers.")
    parser.add_argument("--quick", action="store_true", help="up to 10k messages only, fewer rounds")
    parser.add_argument("--instructions", action="store_true", help="count instructions too (needs valgrind)")
    parser.add_argument("--no-install", action="store_true", help="make no environment for a peer that needs its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cold", help=argparse.SUPPRESS)
    parser.add_argument("--steps", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.cold:
        print(json.dumps(cold(options.cold)))
    elif options.steps:
        take_steps(options.steps[0], int(options.steps[1]))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    lengths, rounds = ((100, 1_000, 10_000), 3) if options.quick else ((100, 1_000, 10_000, 100_000), 3)
    console = Console(width=WIDTH)
    python = interpreter("litellm", install=not options.no_install)
    names = ("contextc", "langchain-core", "pydantic-ai-slim", "openai-agents", "strands-agents")
    versions = {name: version(name) for name in names} | {LITELLM: python and version(LITELLM, python)}
    shown = ", ".join(f"{name} {found or 'not installed'}" for name, found in versions.items())
    console.print(f"Python {platform.python_version()}, {shown}", highlight=False, soft_wrap=True)
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=WORKPLACE))
    try:
        found = {length: measure_length(folder, length, rounds, python) for length in lengths}
        full = [length for length in lengths if length >= FULL_AT]
        colds = {length: Cold(*child("--cold", f"sqlite:///{folder / f'ours-{length}.db'}")) for length in full}
        for table in (peers_table(found), parts_table(found), cold_table(colds)):
            console.print(table)
        reached = list(goals(found, colds))
        show_goals(console, reached)
        counted: dict[int, int] = {}
        for length in full if options.instructions else ():
            cycle, path = round(median(block.steps for block in found[length][OURS])), folder / f"ours-{length}.db"
            counted[length] = instructions(path, cycle)
            console.print(
                f"  {length:,} messages: {counted[length]:,} instructions a step (callgrind)", highlight=False
            )
    finally:
        rmtree(folder, ignore_errors=True)
    if options.json:
        save(options.json, found, colds, counted, reached)


if __name__ == "__main__":
    main()

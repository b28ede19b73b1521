"""Wall time, CPU time and written bytes of a piece of work, and how two series of measurements compare.

Everything here is made for a machine that does other work at the same time. What is compared is measured in turns, so
that a slow moment hits all of it, and a ratio is the median over the rounds of one subject's figure divided by the
other's figure of the same round.
"""

import gc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, TypeAlias, TypeVar

from rich.console import Console

Item = TypeVar("Item")
IO_COUNTERS = Path("/proc/self/io")


class Cost(NamedTuple):
    """Seconds on the clock, and seconds in which this process (all its threads) kept a processor busy."""

    wall: float
    cpu: float


Spot: TypeAlias = tuple[str, int]
"""A subject's name, and the length of its history."""
Costs: TypeAlias = dict[Spot, list[Cost]]


class Written(NamedTuple):
    """Bytes handed to the system in writes, and bytes of pages it then had to bring to a disk."""

    handed: int
    paged: int


class Ratio(NamedTuple):
    """One series over another: the median of the rounds, and the sums, which also hold what happens only rarely."""

    median: float
    total: float


class Goal(NamedTuple):
    """What was aimed at, and what was found."""

    text: str
    met: bool
    figure: str


def timed(work: Callable[[], object], *, per: int = 1) -> Cost:
    """What work costs, divided by `per`. Its result is freed after the clock has stopped."""
    gc.collect()
    wall, cpu = perf_counter(), process_time()
    result = work()
    cost = Cost((perf_counter() - wall) / per, (process_time() - cpu) / per)
    del result
    return cost


def written() -> Written | None:
    """What this process has written so far; None where the system does not count it."""
    if not IO_COUNTERS.exists():
        return None
    counters = dict(line.split(": ") for line in IO_COUNTERS.read_text().splitlines())
    return Written(int(counters["wchar"]), int(counters["write_bytes"]))


def typical(costs: Sequence[Cost]) -> Cost:
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> Ratio:
    """Compare the rounds that both took part in."""
    pairs = list(zip(ours, theirs, strict=False))
    return Ratio(
        median(one / other for one, other in pairs), sum(one for one, _ in pairs) / sum(two for _, two in pairs)
    )


def wall(costs: Iterable[Cost]) -> list[float]:
    return [cost.wall for cost in costs]


def cpu(costs: Iterable[Cost]) -> list[float]:
    return [cost.cpu for cost in costs]


def in_turn(items: Sequence[Item], turn: int) -> list[Item]:
    """The same items, each round beginning with another: who comes first after a pause is at a disadvantage."""
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def show_goals(console: Console, goals: Iterable[Goal]) -> None:
    for goal in goals:
        mark = "[green]met    [/green]" if goal.met else "[red]not met[/red]"
        console.print(f"  {mark}  {goal.text}: {goal.figure}", highlight=False, soft_wrap=True)

"""The tables of `store.py` (one question each, a row for each subject at each length) and of `remember.py`.

A ratio above 1 means more than the one it is compared with. A peer that is not installed keeps its row.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from rich.table import Table

from measure import Cost, Costs, Spot, Written, cpu, ratio, typical, wall
from subjects import INDEXED, NAMES, RAW

Lengths: TypeAlias = tuple[int, ...]


def append_table(costs: Costs, lengths: Lengths) -> Table:
    table = new_table(
        "Append of one message", "wall", "CPU", "wall / raw", "CPU / raw", "wall / indexed", "CPU / indexed"
    )
    table.caption = "Ratios: median of the rounds (ratio of the sums)."
    for length in lengths:
        for name in NAMES:
            own = costs.get((name, length))
            if own is None:
                table.add_row(f"{length:,}", name, "not installed")
                continue
            raw, indexed, middle = costs[RAW, length], costs[INDEXED, length], typical(own)
            both = (compared(own, other, pick) for other in (raw, indexed) for pick in (wall, cpu))
            table.add_row(f"{length:,}", name, duration(middle.wall), duration(middle.cpu), *both)
        table.add_section()
    return table


def bytes_table(found: dict[Spot, Written], lengths: Lengths) -> Table:
    table = new_table("Bytes written for one append", "written", "to disk", "written / raw", f"/ own at {lengths[0]:,}")
    for length in lengths:
        for name in NAMES:
            own = found.get((name, length))
            if own is None:
                table.add_row(f"{length:,}", name, "not counted")
                continue
            raw, first = found[RAW, length], found[name, lengths[0]]
            shares = (times(own.handed / raw.handed), times(own.handed / first.handed))
            table.add_row(f"{length:,}", name, f"{own.handed:,}", f"{own.paged:,}", *shares)
        table.add_section()
    return table


def load_table(title: str, costs: Costs, lengths: Lengths) -> Table:
    table = new_table(title, "wall", "CPU", "wall / raw", "wall / indexed", f"wall / own at {lengths[0]:,}")
    for length in lengths:
        for name in NAMES:
            own = costs.get((name, length))
            if own is None:
                table.add_row(f"{length:,}", name, "not installed")
                continue
            others = (costs[RAW, length], costs[INDEXED, length], costs[name, lengths[0]])
            middle = typical(own)
            shares = (times(ratio(wall(own), wall(other)).median) for other in others)
            table.add_row(f"{length:,}", name, duration(middle.wall), duration(middle.cpu), *shares)
        table.add_section()
    return table


def new_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("messages", justify="right")
    table.add_column("store", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def compared(own: Sequence[Cost], other: Sequence[Cost], pick: Callable[[Sequence[Cost]], list[float]]) -> str:
    found = ratio(pick(own), pick(other))
    return f"{times(found.median)} ({times(found.total)})"


def times(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.0f} ms"


class Recalled(Protocol):
    """A row of `remember.py`. Shares are of rules, findings and results."""

    @property
    def subject(self) -> str: ...
    @property
    def summaries(self) -> str | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def last(self) -> tuple[float, ...]: ...
    @property
    def second_half(self) -> tuple[float, ...]: ...
    @property
    def reachable(self) -> tuple[float, ...]: ...
    @property
    def answer(self) -> int: ...
    @property
    def input(self) -> int: ...
    @property
    def kept(self) -> float: ...
    @property
    def kept_most(self) -> float: ...
    @property
    def cached(self) -> float: ...
    @property
    def compactions(self) -> int: ...
    @property
    def compactions_cached(self) -> float: ...
    @property
    def dollars(self) -> float: ...


def recall_table(title: str, rows: Sequence[Recalled]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.caption = "Shares of rules/findings/results in %."
    for column in ("subject", "summary"):
        table.add_column(column, no_wrap=True)
    for column in ("last", "second half", "reachable", "answer", "input", "kept", "cached"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("compactions", "cached", "bill", "refused", "steps"):
        table.add_column(column, justify="right")
    for row in rows:
        if row.reason:
            table.add_row(row.subject, row.summaries or "-", row.reason)
            continue
        table.add_row(
            row.subject,
            row.summaries or "-",
            *(
                "/".join([f"{share:.0%}"[:-1] for share in shares])
                for shares in (row.last, row.second_half, row.reachable)
            ),
            f"{row.answer:,}" if row.answer else "-",
            f"{row.input:,}",
            f"{row.kept:.1%} ({row.kept_most:.0%})",
            f"{row.cached:.1%}",
            f"{row.compactions:,}",
            f"{row.compactions_cached:.0%}" if row.compactions else "-",
            f"${row.dollars:,.2f}",
            f"{row.refused:,}",
            f"{row.steps:,}",
        )
    return table

"""The account of a request as a person reads it: figures, a bar of the budget, a line for each message.

What `compile` and `explain` share. The bar uses another sign for each kind, so that it reads without colours too.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from contextc.cli.terminal import out, plain
from contextc.compiler import Cost
from contextc.draft import Budget
from contextc.errors import ContextOverflow
from contextc.manifest import WIDTH, Manifest, Record

BAR, MOST_SHOWN = 72, 200
FIGURES = ("needed", "available", "window", "system", "tools", "reserve", "margin", "pinned")


def show(manifest: Manifest) -> None:
    record, channel = manifest.record, manifest.channel
    out.print(f"[bold]{plain(channel.conversation)}[/]: request {record.request} for {plain(str(channel))}")
    begins = f" [yellow](a new epoch: {plain(record.why)})[/]" if record.why else ""
    session = f", session {plain(record.session)}" if record.session else ""
    out.print(f"mode {record.mode}, epoch {record.epoch}{begins}{session}", soft_wrap=True)
    _show_budget(manifest.budget)
    out.print(f"shared with the request before: {record.shared:,} tokens, {record.shared_bytes:,} bytes")
    for remark in record.remarks:
        out.print(f"[yellow]! {plain(remark)}[/]", soft_wrap=True)
    out.print()
    out.print(_lines(manifest))


def _lines(manifest: Manifest) -> Table:
    table = Table("", box=None, header_style="bold")
    table.add_column("seq", justify="right")
    table.add_column("role")
    table.add_column("tokens", justify="right")
    table.add_column("what", no_wrap=True, overflow="ellipsis")
    table.add_column("why", overflow="fold")
    for each in manifest.fragments:
        if each.lifecycle == "static":
            what = f"static fragment {plain(each.id)}"
            _add(table, each.shown, "", "system", each.tokens, what, "" if each.shown else "the session has it")
    lines = manifest.lines
    for index, line in enumerate(lines):
        if len(lines) > MOST_SHOWN and index == MOST_SHOWN // 2:
            table.add_row("", "", "", "", f"… {len(lines) - MOST_SHOWN:,} more (--json prints all)", "")
        if MOST_SHOWN // 2 <= index < len(lines) - MOST_SHOWN // 2 and len(lines) > MOST_SHOWN:
            continue
        words = _short(line.text) if line.kind == "message" else f"{line.kind}: {_short(line.text)}"
        _add(table, line.shown, str(line.seq or ""), line.role, line.tokens, plain(words), plain(line.why))
    return table


def _add(table: Table, shown: bool, seq: str, role: str, tokens: int, what: str, why: str) -> None:
    mark = "[green]+[/]" if shown else "[red]-[/]"
    style = "" if shown else "dim"
    table.add_row(mark, seq, role, f"{tokens:,}" if tokens else "", what, why, style=style)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _show_budget(budget: Budget) -> None:
    how = "measured" if budget.measured else "exact" if budget.exact else "estimated"
    out.print(
        f"input {budget.input:,} tokens ({how}); messages take {budget.share:.0%} of {budget.available:,} available"
    )
    room = budget.limit or budget.window
    kinds = [
        ("system", "█", "magenta", budget.system),
        ("tools", "▓", "blue", budget.tools),
        ("messages", "▒", "green", budget.used),
        ("reserve", "░", "yellow", budget.reserve),
        ("margin", "-", "dim", budget.margin),
    ]
    free = max(0, room - sum(tokens for *_, tokens in kinds))
    kinds.append(("free", "·", "dim", free))
    widths = _widths([tokens for *_, tokens in kinds], BAR)
    cells = [f"[{style}]{sign * width}[/]" for (_, sign, style, _), width in zip(kinds, widths, strict=True)]
    out.print("".join(cells) + f" {room:,}", soft_wrap=True)
    legend = [f"[{style}]{sign}[/] {name} {tokens:,}" for name, sign, style, tokens in kinds if tokens]
    out.print("  ".join(legend), soft_wrap=True)


def _widths(sizes: Sequence[int], width: int) -> list[int]:
    """The cells of each: at least one where there is anything at all, and all together the width."""
    total = sum(sizes) or 1
    cells = [max(1, size * width // total) if size else 0 for size in sizes]
    largest = cells.index(max(cells))
    cells[largest] += width - sum(cells)
    return cells


def show_cost(cost: Cost) -> None:
    dollars = f", about ${cost.dollars:,.4f} to write them again" if cost.dollars else ""
    out.print(
        f"\nwhat it costs: {cost.cached_tokens_lost:,} tokens of the cached prefix are lost{dollars}, "
        f"{cost.cached_tokens_kept:,} are kept; signed reasoning left out of {cost.signed_reasoning_lost:,} messages",
        soft_wrap=True,
    )


def show_overflow(error: ContextOverflow, where: Console) -> None:
    where.print(f"[bold red]does not fit:[/] {plain(str(error))}", soft_wrap=True)
    table = Table("tokens", box=None, header_style="bold")
    table.add_column("", justify="right")
    for name, value in overflow_figures(error).items():
        table.add_row(name, f"{value:,}")
    where.print(table)


def overflow_figures(error: ContextOverflow) -> dict[str, int]:
    return {name: getattr(error, name) for name in FIGURES}


def show_requests(records: Sequence[tuple[Record, float | None]]) -> None:
    """Requests, one a line; with what each cost, where that is known."""
    table = Table(box=None, header_style="bold")
    for name in ("request", "mode", "epoch"):
        table.add_column(name, justify="left" if name == "mode" else "right")
    table.add_column("why a new one", overflow="fold")
    for name in ("input", "shared", "output", "cost"):
        table.add_column(name, justify="right")
    for record, cost in records:
        usage = record.usage
        table.add_row(
            str(record.request),
            record.mode,
            str(record.epoch),
            plain(record.why),
            f"{usage.input if usage and usage.input else record.budget.input:,}",
            f"{record.shared:,}",
            f"{usage.output:,}" if usage else "",
            f"${cost:,.4f}" if cost is not None else "",
        )
    out.print(table)

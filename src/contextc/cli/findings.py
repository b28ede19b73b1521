"""`contextc findings`: why the cache missed, what fills the window, what failed, and what it cost."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table

from contextc.analysis import (
    CauseSummary,
    ConversationCosts,
    Finding,
    StoreFindings,
    all_codes,
    cost_by_cause,
    store_findings,
)
from contextc.analysis.finding import shorten
from contextc.analysis.findings_by_cause import is_loss, sort_by_cost
from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, out, pluralize, print_json, progress_bar
from contextc.cli.import_ import import_named_files
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.cli.sarif import Level, SarifOption, SarifResult, SarifRule, conversation_uri, make_sarif
from contextc.errors import InvalidSetting
from contextc.store import Store, open_store

MAX_ROWS = 30
CHANGE_WIDTH = 100
OVERLAP = "Costs of different findings can overlap."
ERRORS = ("FAI001", "FAI004")
"""Codes that are errors in SARIF. Others are warnings if they cost something."""


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONVERSATION | FILE]...",
            help="Conversations of the store; or files that `contextc import` reads, such as a request log or a HAR"
            " recording (default: the whole store, by cause).",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        bool, typer.Option("--costs", help="Print what was spent for: system prompt, each tool, history, answers …")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="DOLLARS",
            min=0.0,
            help="Exit code 1 if a finding (without arguments: a cause) costs more.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The number of findings to print.")] = MAX_ROWS,
    format: FormatOption = None,
    store: StoreOption = None,
    json: JSONOption = False,
    sarif: SarifOption = False,
) -> None:
    """Show what a conversation wastes or fails at, the most expensive first, and how to fix it."""
    if json and sarif:
        raise InvalidSetting("--json and --sarif cannot be used together", fix="Pass one of them.")
    found: list[Finding] = []
    with _open_input(names or [], format, store) as (handle, chosen):
        with progress_bar("analysing") as report:
            summary = store_findings(handle, chosen, progress=report, on_findings=found.extend)
        found = sort_by_cost(found)
        spent = _costs(handle, chosen, summary) if costs else []
    for name in summary.unreadable:
        err.print(escape_markup(f"not analysed: {name} cannot be read. See contextc doctor."), soft_wrap=True)
    if sarif:
        print_json(_sarif(found))
    elif json:
        _print_json(found, summary, spent, by_cause=chosen is None)
    elif chosen is None:
        _print_causes(summary)
    else:
        _print_findings(found, limit, several=len(chosen) > 1)
    if not json and not sarif:
        for each in spent:
            print_costs(each)
    prices = [each.cost or 0.0 for each in (summary.causes if chosen is None else found)]
    if threshold is not None and any([each > threshold for each in prices]):
        raise typer.Exit(1)


@contextmanager
def _open_input(
    names: Sequence[str], format: str | None, store: str | None
) -> Generator[tuple[Store, list[str] | None]]:
    """Open the store, or import files into memory. Return it with the names of conversations; None for all."""
    files = [each for each in names if each == "-" or os.path.isfile(each)]
    if not files:
        if format is not None:
            raise InvalidSetting("--format applies to files", fix="Pass a file, or remove it.")
        with open_configured_store(store) as handle:
            yield handle, list(dict.fromkeys(names)) or None
        return
    if len(files) < len(names):
        other = next(each for each in names if each not in files)
        raise InvalidSetting("Files and conversations cannot be mixed", got=other, fix="Pass one kind only.")
    with open_store("memory:") as handle:
        with progress_bar("importing") as report:
            notes = import_named_files(handle, files, format, report)
        for note in notes:
            err.print(escape_markup(note), soft_wrap=True)
        yield handle, [each.name for each in handle.conversations()]


def _costs(store: Store, chosen: Sequence[str] | None, summary: StoreFindings) -> list[ConversationCosts]:
    names = chosen if chosen is not None else [each.name for each in store.conversations()]
    return [cost_by_cause(store, name) for name in names if name not in summary.unreadable]


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_cost(cost: float | None) -> str:
    return f"${cost:,.4f}" if cost is not None else ""


def _print_findings(found: Sequence[Finding], limit: int, *, several: bool) -> None:
    shown = [each for each in found if is_loss(each)]
    if not shown:
        out.print("no findings")
        return
    table = Table(box=None, header_style="bold", show_edge=False)
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("code", no_wrap=True)
    table.add_column("request", justify="right", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for each in shown[:limit]:
        table.add_row(
            show_cost(each.cost),
            f"{each.tokens:,}" if each.tokens else "",
            each.code,
            str(each.request or ""),
            _describe(each, several=several),
        )
    out.print(table)
    if len(shown) > limit:
        out.print(f"… and {len(shown) - limit:,} more (--limit, or --json for all)")
    conversations = f" in {len({each.conversation for each in shown}):,} conversations" if several else ""
    out.print(f"{pluralize(len(shown), 'finding')}{conversations}. {OVERLAP}", soft_wrap=True)


def _describe(finding: Finding, *, several: bool) -> str:
    where = finding.evidence[0] if finding.evidence else None
    lines = [escape_markup(finding.title)]
    if several:
        lines.append(f"[dim]in {escape_markup(finding.conversation)}[/]")
    if where is not None and (where.path or where.before or where.after):
        change = " → ".join([shorten(each, CHANGE_WIDTH // 2) for each in (where.before, where.after) if each])
        separator = ": " if where.path and change else ""
        lines.append(f"[dim]{escape_markup(f'{where.path}{separator}{change}')}[/]")
    if finding.also:
        lines.append(f"[dim]also: {escape_markup(', '.join(finding.also))}[/]")
    return "\n".join([*lines, f"[green]fix:[/] {escape_markup(finding.fix)}"])


def _print_causes(summary: StoreFindings) -> None:
    if not summary.causes:
        out.print(f"no findings in {pluralize(summary.conversations, 'conversation')}")
        return
    table = Table(box=None, header_style="bold", show_edge=False)
    for heading in ("cost", "tokens", "findings", "in"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("code", no_wrap=True)
    table.add_column("cause", overflow="fold")
    for each in summary.causes:
        table.add_row(
            show_cost(each.cost),
            f"{each.tokens:,}" if each.tokens else "",
            f"{each.count:,}",
            f"{each.conversations:,}",
            each.code,
            _describe_cause(each),
        )
    out.print(table)
    out.print(
        f"{pluralize(sum([each.count for each in summary.causes]), 'finding')} in "
        f"{pluralize(summary.conversations, 'conversation')}. {OVERLAP}",
        soft_wrap=True,
    )


def _describe_cause(cause: CauseSummary) -> str:
    example = cause.examples[0]
    lines = [
        escape_markup(cause.title),
        f"[dim]most: {show_cost(example.cost) or 'unknown cost'} in {escape_markup(example.conversation)}, request "
        f"{example.request}[/]",
        f"[green]fix:[/] {escape_markup(cause.fix)}",
    ]
    return "\n".join(lines)


def print_costs(costs: ConversationCosts) -> None:
    """Print what was spent by cause."""
    out.print(
        f"\n[bold]{escape_markup(costs.conversation)}[/]: {show_cost(costs.cost) or 'unknown cost'}", soft_wrap=True
    )
    table = Table(box=None, header_style="bold", show_edge=False)
    for heading in ("cost", "share", "tokens", "cached"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("spent for", overflow="fold")
    for line in costs.lines:
        table.add_row(
            show_cost(line.cost),
            f"{line.cost / costs.cost:.0%}" if line.cost is not None and costs.cost else "",
            f"{round(line.tokens):,}",
            f"{line.read / line.tokens:.0%}" if line.read else "",
            escape_markup(line.label),
        )
    out.print(table)
    if costs.unpriced:
        out.print(f"not included: {pluralize(costs.unpriced, 'request')} of unknown cost")
    if costs.rewrite_factor is not None and costs.cache_share is not None:
        out.print(
            f"cache: {costs.cache_share:.0%} of the input read · "
            f"rewrite factor {costs.rewrite_factor:.1f} (1.0 is ideal)"
        )


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _print_json(
    found: Sequence[Finding], summary: StoreFindings, spent: Sequence[ConversationCosts], *, by_cause: bool
) -> None:
    more = {"costs": list(spent)} if spent else {}
    if by_cause:
        print_json({"causes": summary.causes, "unreadable": summary.unreadable, **more})
    else:
        print_json({"findings": list(found), "unreadable": summary.unreadable, **more})


def _sarif(found: Sequence[Finding]) -> object:
    rules = [SarifRule(each.code, each.title, each.description, each.fix) for each in all_codes()]
    return make_sarif(rules, [_sarif_result(each) for each in found if is_loss(each)])


def _sarif_result(finding: Finding) -> SarifResult:
    where = finding.evidence[0] if finding.evidence else None
    path = f"requests[{finding.request}]" + (f".{where.path}" if where is not None and where.path else "")
    level: Level = "error" if finding.code in ERRORS else "warning" if finding.cost else "note"
    return SarifResult(
        finding.code,
        level,
        f"{finding.title}. {finding.fix}",
        conversation_uri(finding.conversation),
        path if finding.request else "",
        {
            "cause": finding.cause,
            "conversation": finding.conversation,
            "channel": finding.channel,
            "request": finding.request,
            "tokens": finding.tokens,
            "cost": finding.cost,
            "confidence": finding.confidence,
        },
    )

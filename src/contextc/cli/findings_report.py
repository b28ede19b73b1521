"""Findings as tables, JSON and SARIF, for `contextc findings`."""

import os
from collections.abc import Callable, Sequence

from rich.table import Table

from contextc._json import JSONObject
from contextc.analysis import (
    ConversationCacheReads,
    ConversationCosts,
    Evidence,
    Finding,
    StoreFindings,
    WhatIf,
    all_codes,
)
from contextc.analysis.conversation_findings import group_repeated, has_lower_bound, is_loss, sum_costs
from contextc.analysis.cost_by_content import add_costs
from contextc.analysis.cost_replay import add_replays
from contextc.analysis.finding import shorten
from contextc.cli.console import escape_markup, format_dollars, out, pluralize
from contextc.linting.sarif import Level, SarifResult, SarifRule, conversation_uri, make_sarif

CHANGE_WIDTH = 100
MAX_NUMBERS = 8
OVERLAP = "Costs of different causes can overlap, so they are not added up."
ERRORS = ("FAI001", "FAI004")
"""Codes that are errors in SARIF. Others are warnings if they cost something."""


def show_cost(cost: float | None, *, is_lower_bound: bool = False) -> str:
    return format_dollars(cost, is_lower_bound=is_lower_bound) if cost is not None else ""


def _describe_cost(found: Finding | ConversationCosts) -> str:
    return show_cost(found.cost, is_lower_bound=found.cost_is_lower_bound) or "unknown cost"


def print_findings(
    found: Sequence[Finding], limit: int, *, several: bool, place_of: Callable[[Finding], str] = lambda _: ""
) -> None:
    """Print findings, without those that are no loss. Those of one cause and place in a conversation are one row."""
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
    rows = group_repeated(shown)
    for some in rows[:limit]:
        tokens = sum([each.tokens for each in some])
        table.add_row(
            show_cost(sum_costs(some), is_lower_bound=has_lower_bound(some)),
            f"{tokens:,}" if tokens else "",
            some[0].code,
            some[0].request_label,
            _describe(some, several=several, place=place_of(some[0])),
        )
    out.print(table)
    if len(rows) > limit:
        out.print(f"… and {pluralize(sum(map(len, rows[limit:])), 'more finding')} (--limit, or --json for all)")
    names = {each.conversation for each in shown}
    conversations = f" in {pluralize(len(names), 'conversation')}" if several else ""
    causes = len({each.code for each in shown})
    out.print(
        f"{pluralize(len(shown), 'finding')} with {pluralize(causes, 'cause')}{conversations}. {OVERLAP}",
        soft_wrap=True,
    )


def _describe(some: Sequence[Finding], *, several: bool, place: str) -> str:
    finding = some[0]
    where = finding.evidence[0] if finding.evidence else None
    lines = [escape_markup(finding.title)]
    if len(some) > 1:
        labels = [each.request_label for each in sorted(some, key=lambda each: each.request)]
        listed = ", ".join(labels[:MAX_NUMBERS]) + (" …" if len(labels) > MAX_NUMBERS else "")
        lines.append(f"[dim]{len(some):,} times: requests {listed}[/]")
    if several or place:
        names = [f"in {finding.conversation}" if several else "", os.path.basename(place)]
        lines.append(f"[dim]{escape_markup(' · '.join([each for each in names if each]))}[/]")
    lines += _describe_change(where)
    if finding.also:
        lines.append(f"[dim]also: {escape_markup(', '.join(finding.also))}[/]")
    if finding.vendor:
        lines.append(f"[dim]{escape_markup(_describe_vendor(finding))}[/]")
    return "\n".join([*lines, f"[green]fix:[/] {escape_markup(finding.fix)}"])


def _describe_change(where: Evidence | None) -> list[str]:
    if where is None or not (where.path or where.before or where.after):
        return []
    words = [shorten(each, CHANGE_WIDTH // 2) for each in where.words]
    change = (" → " if where.is_change else "; ").join(words)
    separator = ": " if where.path and change else ""
    return [f"[dim]{escape_markup(f'{where.path}{separator}{change}')}[/]"]


def _describe_vendor(finding: Finding) -> str:
    word = {True: "the same cause", False: "another cause", None: "no cause"}[finding.vendor_agrees]
    return f"the provider says: {finding.vendor} ({word})"


def print_causes(summary: StoreFindings, limit: int) -> None:
    """Print the causes of a store with their most expensive finding."""
    if not summary.causes:
        out.print(f"no findings in {pluralize(summary.conversations, 'conversation')}")
        return
    table = Table(box=None, header_style="bold", show_edge=False)
    for heading in ("cost", "tokens", "findings", "in"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("code", no_wrap=True)
    table.add_column("cause", overflow="fold")
    for each in summary.causes[:limit]:
        example = each.examples[0]
        place = next(iter(example.evidence), None)
        lines = [
            escape_markup(each.title),
            *([f"[dim]{escape_markup(example.title)}[/]", *_describe_change(place)] if example.sessions else []),
            f"[dim]most: {_describe_cost(example)} in {escape_markup(example.conversation)}, request "
            f"{example.request_label}[/]",
            f"[green]fix:[/] {escape_markup(example.fix if each.count == 1 else each.fix)}",
        ]
        table.add_row(
            show_cost(each.cost, is_lower_bound=each.cost_is_lower_bound),
            f"{each.tokens:,}" if each.tokens else "",
            f"{each.count:,}",
            f"{each.conversations:,}",
            each.code,
            "\n".join(lines),
        )
    out.print(table)
    if len(summary.causes) > limit:
        out.print(f"… and {pluralize(len(summary.causes) - limit, 'more cause')} (--limit, or --json for all)")
    out.print(
        f"{pluralize(sum([each.count for each in summary.causes]), 'finding')} in "
        f"{pluralize(summary.conversations, 'conversation')}. {OVERLAP}",
        soft_wrap=True,
    )


def print_all_costs(found: Sequence[ConversationCosts]) -> None:
    """Print what was spent in each conversation, and in all. Conversations without costs are left out of several."""
    shown = [each for each in found if each.lines] if len(found) > 1 else found
    for each in shown:
        print_costs(each)
    if len(found) > 1:
        print_costs(add_costs(found, f"all {pluralize(len(found), 'conversation')}"))


def print_all_replays(found: Sequence[WhatIf]) -> None:
    """Print what each conversation would have cost in other ways, and all together. Conversations without a replay are
    left out of several.
    """
    shown = [each for each in found if each.replays] if len(found) > 1 else found
    for each in shown:
        print_what_if(each)
    if len(found) > 1:
        print_what_if(add_replays(found, f"all {pluralize(len(found), 'conversation')}"))


def print_cache_reads(found: Sequence[ConversationCacheReads], limit: int) -> None:
    """Print what each request should have read from the cache, and what was reported; the last `limit` requests."""
    for each in found:
        if not each.requests and len(found) > 1:
            continue
        out.print(f"\n[bold]{escape_markup(each.conversation)}[/]: cache reads in tokens", soft_wrap=True)
        table = Table(box=None, header_style="bold", show_edge=False)
        for heading in ("request", "input", "possible", "expected", "reported"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("cause", overflow="fold")
        for read in each.requests[-limit:]:
            reported = "unknown" if read.reported is None else f"{read.reported:,}"
            table.add_row(
                f"{read.request}", f"{read.input:,}", f"{read.possible:,}", f"{read.expected:,}", reported, read.cause
            )
        out.print(table)
        if len(each.requests) > limit:
            out.print(f"The last {limit:,} of {pluralize(len(each.requests), 'request')}. --limit sets the number.")


def print_costs(costs: ConversationCosts) -> None:
    """Print what was spent by cause."""
    out.print(f"\n[bold]{escape_markup(costs.conversation)}[/]: {_describe_cost(costs)}", soft_wrap=True)
    if not costs.lines:
        return
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


def print_what_if(found: WhatIf) -> None:
    """Print what the requests of a conversation would have cost in other ways."""
    name = escape_markup(found.conversation)
    if found.paid is None or found.predicted is None:
        out.print(f"\n[bold]{name}[/]: no request with a known cost to replay", soft_wrap=True)
        return
    paid, predicted = (
        show_cost(each, is_lower_bound=found.cost_is_lower_bound) for each in (found.paid, found.predicted)
    )
    out.print(f"\n[bold]{name}[/]: {paid} paid; the cache model predicts {predicted}", soft_wrap=True)
    if not found.is_reliable:
        out.print(
            "[yellow]The model does not explain what was paid, so the figures are not reliable.[/]", soft_wrap=True
        )
    for skipped, reason in found.skipped.items():
        out.print(f"[dim]not replayed: {skipped} ({escape_markup(reason)})[/]", soft_wrap=True)
    if not found.replays:
        out.print("none of the known changes applies")
        return
    table = Table(box=None, header_style="bold", show_edge=False)
    for heading in ("saved", "share", "cost", "requests"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("change", overflow="fold")
    for each in found.replays:
        sign = "-" if each.saved < 0 else ""
        table.add_row(
            f"{sign}{show_cost(abs(each.saved), is_lower_bound=found.cost_is_lower_bound and not sign)}",
            f"{each.saved / found.predicted:.0%}" if found.predicted else "",
            show_cost(each.cost, is_lower_bound=found.cost_is_lower_bound),
            f"{each.requests:,}",
            escape_markup(each.title),
        )
    out.print(table)


# ── SARIF ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def findings_sarif(found: Sequence[Finding]) -> JSONObject:
    """Return findings as a SARIF log, without those that are no loss."""
    rules = [SarifRule(each.code, each.title, each.description, each.fix) for each in all_codes()]
    return make_sarif(rules, [_sarif_result(each) for each in found if is_loss(each)])


def _sarif_result(finding: Finding) -> SarifResult:
    where = finding.evidence[0] if finding.evidence else None
    number = where.would_be or where.request if where is not None else 0
    path = f"requests[{number}]" + (f".{where.path}" if where is not None and where.path else "")
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
            **({"costIsLowerBound": True} if finding.cost_is_lower_bound else {}),
            "confidence": finding.confidence,
            **({"vendor": finding.vendor, "vendorAgrees": finding.vendor_agrees} if finding.vendor else {}),
        },
    )

"""`contextc findings`: why the cache missed, what fills the window, what failed, and what it cost."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, print_json, progress_bar
from contextc.cli.findings_input import open_input
from contextc.cli.open_store import StoreOption
from contextc.cli.sarif import SarifOption
from contextc.errors import InvalidSetting

if TYPE_CHECKING:
    from contextc.analysis import Finding

MAX_ROWS = 30


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
    cache: Annotated[
        bool, typer.Option("--cache", help="Print what each request should have read from the cache, and what it read.")
    ] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Print what the requests would have cost in other ways, by a replay.")
    ] = False,
    compact_at: Annotated[
        int | None,
        typer.Option("--compact-at", metavar="TOKENS", min=1_000, help="With --what-if: when to compact."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="DOLLARS",
            min=0.0,
            help="Exit code 1 if all findings of one cause in a conversation (without arguments: in the store) cost"
            " more.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The number of rows to print.")] = MAX_ROWS,
    format: FormatOption = None,
    store: StoreOption = None,
    json: JSONOption = False,
    sarif: SarifOption = False,
) -> None:
    """Show what a conversation wastes or fails at, the most expensive first, and how to fix it."""
    if json and sarif:
        raise InvalidSetting("--json and --sarif cannot be used together", fix="Pass one of them.")
    if compact_at is not None and not what_if:
        raise InvalidSetting("--compact-at needs --what-if", fix="Add --what-if.")
    from contextc import analysis  # it takes time to import
    from contextc.analysis import cache_reads, conversation_costs, store_findings
    from contextc.analysis.conversation_findings import largest_cost
    from contextc.analysis.finding import sort_by_cost
    from contextc.cli.findings_report import (
        findings_sarif,
        print_all_costs,
        print_all_replays,
        print_cache_reads,
        print_causes,
        print_findings,
    )

    collected: list[Finding] = []
    with open_input(names or [], format, store) as given:
        handle, chosen = given.store, given.conversations
        with progress_bar("analysing") as report:
            summary = store_findings(handle, chosen, progress=report, on_findings=collected.extend)
        listed = chosen if chosen is not None else [each.name for each in handle.conversations()]
        readable = [each for each in listed if each not in summary.unreadable] if costs or cache or what_if else []
        spent = [conversation_costs(handle, each) for each in readable] if costs else []
        reads = [cache_reads(handle, each) for each in readable] if cache else []
        replays = [analysis.what_if(handle, each, compact_at=compact_at) for each in readable] if what_if else []
    found = sort_by_cost([given.rename(each) for each in collected])
    spent, replays = [given.rename(each) for each in spent], [given.rename(each) for each in replays]
    reads = [given.rename(each) for each in reads]
    for name in summary.unreadable:
        err.print(escape_markup(f"not analysed: {name} cannot be read. See contextc doctor."), soft_wrap=True)
    if not summary.requests and not summary.unreadable:
        err.print("No recorded request to analyse: conversations and files without requests have no findings.")
    if sarif:
        print_json(findings_sarif(found))
    elif json:
        main = (
            {"causes": summary.causes}
            if chosen is None
            else {"findings": [_finding_json(each, given.place_of(each)) for each in found]}
        )
        more = {
            **({"costs": spent} if costs else {}),
            **({"cache": reads} if cache else {}),
            **({"what_if": replays} if what_if else {}),
        }
        print_json({**main, "unreadable": summary.unreadable, **more})
    else:
        if chosen is None:
            print_causes(summary, limit)
        else:
            print_findings(found, limit, several=len(chosen) > 1, place_of=given.place_of)
        print_all_costs(spent)
        print_cache_reads(reads, limit)
        print_all_replays(replays)
    largest = max([each.cost or 0.0 for each in summary.causes], default=0.0) if chosen is None else largest_cost(found)
    if threshold is not None and largest > threshold:
        raise typer.Exit(1)


def _finding_json(finding: "Finding", place: str) -> object:
    """Return a finding with its place in a file, such as "log.jsonl, line 2", if it is known."""
    return {**msgspec.to_builtins(finding), "place": place} if place else finding

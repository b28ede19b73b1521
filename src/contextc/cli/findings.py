"""`contextc findings`: why the cache missed, what fills the window, what failed, and what it cost."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, print_json, progress_bar
from contextc.cli.import_ import import_named_files
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.cli.sarif import SarifOption
from contextc.errors import InvalidSetting
from contextc.store import Store, open_store

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
    if compact_at is not None and not what_if:
        raise InvalidSetting("--compact-at needs --what-if", fix="Add --what-if.")
    from contextc import analysis  # it takes time to import
    from contextc.analysis import Finding, conversation_costs, store_findings
    from contextc.analysis.findings_by_cause import sort_by_cost
    from contextc.cli.findings_report import findings_sarif, print_causes, print_costs, print_findings, print_what_if

    collected: list[Finding] = []
    with _open_input(names or [], format, store) as (handle, chosen):
        with progress_bar("analysing") as report:
            summary = store_findings(handle, chosen, progress=report, on_findings=collected.extend)
        listed = chosen if chosen is not None else [each.name for each in handle.conversations()]
        readable = [each for each in listed if each not in summary.unreadable] if costs or what_if else []
        spent = [conversation_costs(handle, each) for each in readable] if costs else []
        replays = [analysis.what_if(handle, each, compact_at=compact_at) for each in readable] if what_if else []
    found = sort_by_cost(collected)
    for name in summary.unreadable:
        err.print(escape_markup(f"not analysed: {name} cannot be read. See contextc doctor."), soft_wrap=True)
    if not summary.requests and not summary.unreadable:
        err.print("No recorded request to analyse: conversations and files without requests have no findings.")
    if sarif:
        print_json(findings_sarif(found))
    elif json:
        main = {"causes": summary.causes} if chosen is None else {"findings": found}
        more = {**({"costs": spent} if costs else {}), **({"what_if": replays} if what_if else {})}
        print_json({**main, "unreadable": summary.unreadable, **more})
    else:
        if chosen is None:
            print_causes(summary)
        else:
            print_findings(found, limit, several=len(chosen) > 1)
        for each in spent:
            print_costs(each)
        for each in replays:
            print_what_if(each)
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

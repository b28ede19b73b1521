"""`contextc lint`: check a request against the rules of its provider."""

from typing import Annotated

import typer
from rich.table import Table

from contextc.cli.files import read, requests_in
from contextc.cli.terminal import FormatOption, JSONOption, count, err, out, plain, print_json
from contextc.transfer.opening import recorded
from contextc.wire import Violation, lint

MOST_SHOWN = 200
FileArgument = Annotated[
    str,
    typer.Argument(
        help="JSON or JSON Lines: requests, messages, or a session of Claude Code or Codex; a HAR recording; - for "
        "standard input."
    ),
]


def run(
    file: FileArgument,
    format: FormatOption = None,
    json: JSONOption = False,
) -> None:
    """Report every provider rule that a request violates. Exit code 1 if there is one."""
    data = read(file)
    if (calls := recorded(data, format)) is not None:
        several = True
        found = [(f"{where}, {known}", lint(body, format=known)) for where, body, known in calls]
        err.print(f"HAR recording: {count(len(calls), 'model request')}", soft_wrap=True)
    else:
        requests, known = requests_in(file, format, data=data)
        several = requests.shape == "lines"
        found = [(requests.label(index), lint(body, format=known)) for index, body in enumerate(requests.bodies)]
    if json:
        print_json(
            [{"where": where, "violations": violations} for where, violations in found] if several else found[0][1]
        )
    else:
        total = sum(len(violations) for _, violations in found)
        for where, violations in found:
            if violations:
                _show(where, violations)
        out.print(count(total, "violation") if total else "no violations")
    if any(violations for _, violations in found):
        raise typer.Exit(1)


def _show(where: str, violations: list[Violation]) -> None:
    table = Table(title=where or None, box=None)
    table.add_column("code", no_wrap=True)
    for heading in ("where", "problem, and error of the provider"):
        table.add_column(heading, overflow="fold")  # a cut text cannot be searched for
    for each in violations[:MOST_SHOWN]:
        error = f"\n[dim]{plain(each.error)}[/]" if each.error else ""
        table.add_row(each.code, plain(each.path), plain(each.message) + error)
    out.print(table)
    if len(violations) > MOST_SHOWN:
        out.print(f"… and {len(violations) - MOST_SHOWN:,} more (--json prints all)")

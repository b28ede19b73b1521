"""`contextc lint`: check a request against the rules of its provider."""

from typing import Annotated

import typer
from rich.table import Table

from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, out, pluralize, print_json
from contextc.cli.file_io import load_requests, read_input
from contextc.interchange.open_any import recorded_requests
from contextc.linting import Violation, lint

MAX_VIOLATIONS = 200
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
    data = read_input(file)
    if (calls := recorded_requests(data, format)) is not None:
        several = True
        found = [(f"{where}, {known}", lint(body, format=known)) for where, body, known in calls]
        err.print(f"HAR recording: {pluralize(len(calls), 'model request')}", soft_wrap=True)
    else:
        requests, known = load_requests(file, format, data=data)
        several = requests.layout == "lines"
        found = [
            (requests.position_label(index), lint(body, format=known)) for index, body in enumerate(requests.bodies)
        ]
    if json:
        print_json(
            [{"where": where, "violations": violations} for where, violations in found] if several else found[0][1]
        )
    else:
        total = sum(len(violations) for _, violations in found)
        for where, violations in found:
            if violations:
                _show(where, violations)
        out.print(pluralize(total, "violation") if total else "no violations")
    if any(violations for _, violations in found):
        raise typer.Exit(1)


def _show(where: str, violations: list[Violation]) -> None:
    table = Table(title=where or None, box=None)
    table.add_column("code", no_wrap=True)
    for heading in ("where", "problem, and error of the provider"):
        table.add_column(heading, overflow="fold")  # a cut text cannot be searched for
    for each in violations[:MAX_VIOLATIONS]:
        error = f"\n[dim]{escape_markup(each.error)}[/]" if each.error else ""
        table.add_row(each.code, escape_markup(each.path), escape_markup(each.message) + error)
    out.print(table)
    if len(violations) > MAX_VIOLATIONS:
        out.print(f"… and {len(violations) - MAX_VIOLATIONS:,} more (--json prints all)")

"""`contextc fix`: repair a request, so that its provider accepts it."""

from typing import Annotated

import typer

from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, print_json
from contextc.cli.file_io import load_requests, write_output
from contextc.cli.lint import FileArgument
from contextc.linting import fix, lint
from contextc.linting.request_reading import write_requests

OutputOption = Annotated[str, typer.Option("--output", "-o", help="A file, or - for standard output.")]


def run(file: FileArgument, format: FormatOption = None, output: OutputOption = "-", json: JSONOption = False) -> None:
    """Repair violations of provider rules, and report the repairs. Exit code 1 if violations remain."""
    requests, known = load_requests(file, format)
    fixed = [fix(body, format=known) for body in requests.bodies]
    left = [violation for body, _ in fixed for violation in lint(body, format=known)]
    if json:
        print_json([{"body": body, "repairs": repairs} for body, repairs in fixed])
    else:
        for index, (_, repairs) in enumerate(fixed):
            for repair in repairs:
                place = " ".join(filter(None, [requests.position_label(index), repair.path or "request"]))
                text = f"{place}: {repair.message} Repair: {repair.repair}"
                err.print(f"[bold]{repair.code}[/] {escape_markup(text)}", soft_wrap=True)
        for violation in left:
            err.print(f"[bold red]{violation.code}[/] remains: {escape_markup(violation.message)}", soft_wrap=True)
        write_output(output, write_requests([body for body, _ in fixed], requests.layout))
    if left:
        raise typer.Exit(1)

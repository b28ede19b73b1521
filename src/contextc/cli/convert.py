"""`contextc convert`: convert a request to another format."""

from typing import Annotated

import typer

from contextc.cli.console import JSONOption, err, escape_markup, print_json
from contextc.cli.file_io import load_requests, write_output
from contextc.cli.fix import OutputOption
from contextc.cli.lint import FileArgument
from contextc.linting import convert
from contextc.linting.request_reading import layout_for, write_requests


def run(
    file: FileArgument,
    target: Annotated[str, typer.Option("--to", "-t", help="The target format.")],
    source: Annotated[
        str | None,
        typer.Option("--from", "-s", help="The source format: openai_chat, anthropic, … (default: recognised)."),
    ] = None,
    output: OutputOption = "-",
    json: JSONOption = False,
) -> None:
    """Convert a request to the format of another provider, and report what was lost."""
    requests, known = load_requests(file, source, "--from")
    made = [convert(body, source=known, target=target) for body in requests.bodies]
    if json:
        print_json([{"body": each, "warnings": each.warnings} for each in made])
        return
    for index, each in enumerate(made):
        for warning in each.warnings:
            err.print(escape_markup(" ".join(filter(None, [requests.position_label(index), warning]))), soft_wrap=True)
    write_output(output, write_requests(made, layout_for(requests.layout, target)))

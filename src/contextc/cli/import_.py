"""`contextc import`: read a conversation from JSON Lines, or from a provider's request."""

from pathlib import Path
from typing import Annotated

import typer

from contextc.cli.files import read
from contextc.cli.terminal import JSONOption, StoreOption, count, err, opened, out, plain, print_json, progress
from contextc.transfer import import_lines, import_requests
from contextc.wire.files import read_requests

FormatOption = Annotated[
    str | None, typer.Option("--format", "-f", help="A provider's format: openai_chat, anthropic, … (default: our own)")
]


def run(
    file: Annotated[str, typer.Argument(help="What `contextc export` wrote, or requests; - for standard input.")],
    name: Annotated[str | None, typer.Option("--as", help="Another name for the conversation.")] = None,
    format: FormatOption = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Read a conversation from JSON Lines, or from a provider's request: all of it, or nothing."""
    data = read(file)
    with opened(store, new=True) as handle, progress("importing") as report:
        if format is None:
            found = [import_lines(handle, data.splitlines(), name, report)]
            warnings: list[str] = []
        else:
            bodies = read_requests(data).named(name or Path(file).stem)
            taken = import_requests(handle, bodies, format=format, progress=report)
            found = [each.conversation for each in taken]
            warnings = [warning for each in taken for warning in each.warnings]
    for warning in dict.fromkeys(warnings):
        err.print(plain(warning), soft_wrap=True)
    if json:
        print_json(found[0] if len(found) == 1 else found)
        return
    for each in found:
        out.print(f"imported [bold]{plain(each.name)}[/]: {count(each.length, 'message')}, tip {each.tip[:12]}")

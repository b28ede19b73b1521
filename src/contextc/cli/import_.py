"""`contextc import`: read a conversation from JSON Lines."""

import sys
from typing import Annotated

import typer

from contextc.cli.terminal import JSONOption, StoreOption, count, opened, out, plain, print_json, progress
from contextc.errors import InvalidSetting
from contextc.transfer import import_lines


def run(
    file: Annotated[str, typer.Argument(help="A file that `contextc export` wrote, or - for standard input.")],
    name: Annotated[str | None, typer.Option("--as", help="Another name for the conversation.")] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Read a conversation from JSON Lines: all of it, or nothing."""
    lines = _read(file)
    with opened(store, new=True) as handle, progress("importing") as report:
        found = import_lines(handle, lines, name, report)
    if json:
        print_json(found)
    else:
        out.print(f"imported [bold]{plain(found.name)}[/]: {count(found.length, 'message')}, tip {found.tip[:12]}")


def _read(file: str) -> list[bytes]:
    if file == "-":
        return sys.stdin.buffer.read().splitlines()
    try:
        with open(file, "rb") as source:
            return source.read().splitlines()
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror}.") from error

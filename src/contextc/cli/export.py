"""`contextc export`: write a conversation as JSON Lines."""

import os
import sys
from typing import Annotated, BinaryIO

import typer

from contextc.cli.terminal import StoreOption, err, opened, plain, progress
from contextc.errors import InvalidSetting
from contextc.store import Store
from contextc.transfer import export_lines


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A file, or - for standard output.")] = "-",
    store: StoreOption = None,
) -> None:
    """Write a conversation with all its branches and media as JSON Lines. Nothing is lost on the way."""
    with opened(store) as handle:
        if output == "-":
            try:
                _write(handle, conversation, sys.stdout.buffer)
            except BrokenPipeError:  # the reader has seen enough, and that is no failure
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        partial = f"{output}.part"  # so that a file of that name is always a whole one
        try:
            with open(partial, "wb") as target:
                _write(handle, conversation, target)
            os.replace(partial, output)
        except OSError as error:
            raise InvalidSetting(f"{output} cannot be written: {error.strerror}.") from error
        finally:
            if os.path.exists(partial):
                os.remove(partial)
    err.print(f"wrote [bold]{plain(output)}[/]")


def _write(store: Store, conversation: str, target: BinaryIO) -> None:
    with progress("exporting") as report:
        for line in export_lines(store, conversation, report):
            target.write(line + b"\n")
        target.flush()

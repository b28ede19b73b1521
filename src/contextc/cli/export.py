"""`contextc export`: write a conversation as JSON Lines, as a provider request, or its requests as HAR or LHAR."""

import os
import sys
from difflib import get_close_matches
from typing import Annotated, BinaryIO

import typer

from contextc.cli.console import err, escape_markup, progress_bar
from contextc.cli.file_io import open_private, write_output
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.errors import InvalidSetting
from contextc.formats import formatter
from contextc.interchange import export_archive, export_lines, export_request
from contextc.linting.request_files import write_requests
from contextc.store import Store

ARCHIVE_FORMATS = ("har", "lhar")


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A file, or - for standard output.")] = "-",
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="Write a request of this format: openai_chat, anthropic, …; or all requests of the conversation: har,"
            " lhar (default: JSON Lines).",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a conversation with all branches and media as JSON Lines, or its messages as a provider request.

    With --format har or lhar, write the requests that were sent in it, with replies, times and usage.
    """
    if format is not None and format not in ARCHIVE_FORMATS:
        _check_format(format)
    with open_configured_store(store) as handle:
        if format == "har" or format == "lhar":
            archive = export_archive(handle, conversation, format)
            write_output(output, archive.data)
            for warning in archive.warnings:
                err.print(escape_markup(warning), soft_wrap=True)
        elif format is not None:
            body, warnings = export_request(handle, conversation, format=format)
            write_output(output, write_requests([body], "whole"))
            for warning in warnings:
                err.print(escape_markup(warning), soft_wrap=True)
        elif output == "-":
            try:
                _write(handle, conversation, sys.stdout.buffer)
            except BrokenPipeError:  # the reader closed the pipe, which is not an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        else:
            _write_file(handle, conversation, output)
    if output != "-":
        err.print(f"wrote [bold]{escape_markup(output)}[/]")


def _check_format(format: str) -> None:
    """Raise InvalidSetting if there is no such format. The error lists the formats of archives too."""
    try:
        formatter(format)
    except InvalidSetting as error:
        if error.case != "format":
            raise
        close = get_close_matches(format.lower(), ARCHIVE_FORMATS, n=1)
        meant = f"Did you mean {close[0]}? " if close and error.fix.startswith("Known formats") else ""
        fix = f"{meant}{error.fix} For all requests of the conversation: {', '.join(ARCHIVE_FORMATS)}."
        raise InvalidSetting(error.problem, fix=fix, case=error.case, detail=error.detail) from None


def _write_file(store: Store, conversation: str, output: str) -> None:
    partial = f"{output}.part"  # so that the target file is always complete
    try:
        with open(partial, "wb", opener=open_private) as target:
            _write(store, conversation, target)
        os.replace(partial, output)
    except OSError as error:
        raise InvalidSetting(f"{output} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _write(store: Store, conversation: str, target: BinaryIO) -> None:
    with progress_bar("exporting") as report:
        for line in export_lines(store, conversation, report):
            target.write(line + b"\n")
        target.flush()

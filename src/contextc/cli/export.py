"""`contextc export`: write a conversation as JSON Lines, as a provider request, or its requests as HAR, LHAR, HTML."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, BinaryIO

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import (
    err,
    escape_at_terminal,
    escape_markup,
    format_fix,
    progress_bar,
)
from contextc.cli.explain import find_channels
from contextc.cli.inputs import (
    RequestOption,
    StoreOption,
    open_configured_store,
    open_private,
    parse_request,
    write_output,
)
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats import formatter
from contextc.inspection.raw_reply import find_raw_reply
from contextc.interchange import export_archive, export_lines, export_request
from contextc.linting.request_reading import write_requests
from contextc.sharing import build_shared_file
from contextc.store import Store
from contextc.store.ledger_schema import channel_id

ARCHIVE_FORMATS = ("har", "lhar")
REQUEST_FORMATS = (*ARCHIVE_FORMATS, "html")


def run(
    conversation: Annotated[str, Argument(help="The conversation's name.")],
    output: Annotated[str, Option("--output", "-o", help="A file, or - for standard output.")] = "-",
    format: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            help="Write a request of this format: openai_chat, anthropic, …; or all requests of the conversation: har,"
            " lhar, html (default: JSON Lines).",
        ),
    ] = None,
    request: RequestOption = None,
    raw: Annotated[bool, Option("--raw", help="Write the response to the --request as its bytes arrived.")] = False,
    redact: Annotated[
        list[str] | None,
        Option(
            "--redact",
            help="html: remove texts, results, files (their names), keys, tokens, mail, or the matches of a regular"
            " expression. Repeat it for several.",
        ),
    ] = None,
    tags: Annotated[
        bool, Option("--tags", negative="--no-tags", help="html: include the tags, or leave them out.")
    ] = True,
    notes: Annotated[
        bool,
        Option(
            "--notes", negative="--no-notes", help="html: include the notes. They are private, and left out by default."
        ),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write a conversation with all branches and media as JSON Lines, or its messages as a provider request.

    With --format har or lhar, write the requests that were sent in it, with replies, times and usage. With --format
    html, write one file that shows them, or one --request, in any browser, without a server and without network access.
    With --request and --raw, write the response to a request of another program as its bytes arrived.
    """
    if format is not None and format not in REQUEST_FORMATS:
        # The error for an unknown format lists the formats of archives, too.
        try:
            formatter(format)
        except InvalidSetting as error:
            if error.case != "format":
                raise
            raise InvalidSetting(error.problem, fix=format_fix(format, REQUEST_FORMATS)) from None
    if raw and (request is None or format is not None or redact):
        raise InvalidSetting("--raw needs --request, and no --format", fix="Write --request N --raw.")
    html_only = {
        "--request": request is not None and not raw,
        "--redact": redact,
        "--no-tags": not tags,
        "--notes": notes,
    }
    given = next((option for option, is_given in html_only.items() if is_given), "")
    if format != "html" and given:
        problem = f"{given} needs --format html"
        raise InvalidSetting(problem, fix="Add --format html, or leave the option out.")
    content = ""
    with open_configured_store(store) as handle:
        if format == "har" or format == "lhar":
            archive = export_archive(handle, conversation, format)
            write_output(output, archive.data)
            for warning in archive.warnings:
                err.print(escape_markup(warning), soft_wrap=True)
        elif raw:
            write_output(output, _load_raw(handle, conversation, *parse_request(request)))
        elif format == "html":
            channel, number = parse_request(request)
            data = build_shared_file(
                handle,
                conversation,
                request=number,
                channel=channel,
                redact=redact or (),
                tags=tags,
                notes=notes,
            )
            write_output(output, data)
            content = _describe_html(handle, conversation, redact or (), tags=tags, notes=notes)
        elif format is not None:
            body, warnings = export_request(handle, conversation, format=format)
            write_output(output, write_requests([body], "whole"))
            for warning in warnings:
                err.print(escape_markup(warning), soft_wrap=True)
        elif output == "-":
            try:
                _write(handle, conversation, sys.stdout.buffer, escape_at_terminal)
            except BrokenPipeError:  # the reader closed the pipe, which is not an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        else:
            _write_file(handle, conversation, output)
    if output != "-":
        err.print(f"wrote [bold]{escape_markup(output)}[/]")
    if content:
        err.print(content, soft_wrap=True)


def _describe_html(store: Store, conversation: str, redact: Sequence[str], *, tags: bool, notes: bool) -> str:
    """Return a text about what a shared file contains, and which tags and notes are left out of it."""
    kept = [each for each in ("texts", "results") if each not in redact]
    wanted = {"tags": tags and "texts" in kept, "notes": notes and "texts" in kept}
    written = [
        name for name, found in (("tags", store.tags(conversation)), ("notes", store.notes(conversation))) if found
    ]
    contained = ["requests", *kept, "findings", "costs", *[each for each in written if wanted[each]]]
    left = [each for each in written if not wanted[each]]
    way = "; --notes includes the notes" if "notes" in left and "texts" in kept else ""
    return f"It contains {', '.join(contained)}." + (f" Left out: {', '.join(left)}{way}." if left else "")


def _load_raw(store: Store, conversation: str, named: str, number: int | None) -> bytes:
    """Return the bytes of the response to a request."""
    found = find_channels(store, conversation, None, None, None, named)
    kept = [raw for each in found if (raw := find_raw_reply(store, each.channel, number or 0)) is not None]
    if len(kept) > 1:
        channels = ", ".join([channel_id(each.channel) for each in found])
        raise InvalidSetting(f"request {number} is in several channels: {channels}", fix="Write --request CHANNEL/N.")
    if not kept:
        raise InvalidInput(
            f"the response to request {number} is not kept",
            fix="Only responses that were recorded from other programs are kept as bytes.",
        )
    if kept[0].size > len(kept[0].data):
        err.print(f"the first {len(kept[0].data):,} of {kept[0].size:,} bytes are kept", soft_wrap=True)
    return kept[0].data


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


def _write(
    store: Store, conversation: str, target: BinaryIO, change: Callable[[bytes], bytes] = lambda line: line
) -> None:
    with progress_bar("exporting") as report:
        for line in export_lines(store, conversation, report):
            target.write(change(line) + b"\n")
        target.flush()

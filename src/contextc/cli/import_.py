"""`contextc import`: import conversations from an export, from requests, or from files of other programs."""

import os
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

from rich.cells import cell_len
from rich.table import Table

from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import JSONOption, err, escape_markup, out, pluralize, print_json, progress_bar
from contextc.cli.inputs import StoreOption, open_configured_store, read_input
from contextc.errors import InvalidSetting
from contextc.interchange import ImportedConversation, ImportSummary, list_sessions
from contextc.interchange.contextc_jsonl import Progress
from contextc.interchange.file_import import DEFAULT_LIMIT, find_session_file, import_any
from contextc.interchange.found_conversation import short_id
from contextc.interchange.input_files import InputFile
from contextc.interchange.log_import import OnRequest
from contextc.interchange.sources import session_source_names, source_names
from contextc.store import Conversation, Store

MAX_ROWS, MIN_TITLE_WIDTH, MIN_NAME_WIDTH = 20, 8, 16
CELL_PADDING = 2  # spaces of rich around a cell
COLUMNS = ("messages", "new", "requests", "calls", "branches", "tokens")
REQUESTS_COLUMN = 3
DEFAULT_FIGURES = ("", "", "", "0", "0", "1", "")
FormatOption = Annotated[
    str | None,
    Option("--format", "-f", help="The format of requests: openai_chat, anthropic, … (default: recognised)."),
]


def run(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="FILE...",
            help="A file of `contextc export`, requests of a provider, or a file of another program, which is"
            " recognised by its content; - for standard input. With --from claude-code or codex: the id of a session,"
            " or a prefix of it.",
        ),
    ] = None,
    name: Annotated[str | None, Option("--as", help="Another name for the conversation.")] = None,
    format: FormatOption = None,
    source: Annotated[
        str | None,
        Option(
            "--from",
            help=f"The program of the file: {', '.join(source_names())}. With claude-code or codex and no file: list"
            " the sessions.",
        ),
    ] = None,
    last: Annotated[bool, Option("--last", help="With --from: import the newest session.")] = False,
    directory: Annotated[
        str,
        Option("--directory", help="With --from: the working directory of the program (default: the current one)."),
    ] = ".",
    everywhere: Annotated[bool, Option("--all", help="With --from: sessions of all directories.")] = False,
    limit: Annotated[
        int, Option("--limit", min=1, help="With --from: the number of sessions to list.")
    ] = DEFAULT_LIMIT,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Import conversations from an export, from provider requests, or from files of other programs.

    All conversations of a file are imported. Messages that exist already are not imported again.
    """
    where, given = None if everywhere else directory, files or []
    if source is not None and not given and not last:
        _print_sessions(source, where, limit, json)
        return
    if source is None and (not given or last or everywhere or directory != "."):
        raise InvalidSetting("Nothing to import is named", fix="Pass a file, or --from claude-code, or --from codex.")
    if source is not None and given and last:
        raise InvalidSetting("A session and --last cannot be used together", fix="Pass one of the two.")
    with open_configured_store(store, create=True) as handle, progress_bar("importing") as report:
        taken = import_any(
            handle,
            _find_files(given, source, where, report),
            source_name=source,
            into=name,
            format=format,
            progress=report,
        )
    if isinstance(taken, ImportSummary):
        _print_outcome(taken, json)
    else:
        _print_conversations(*taken, json)


def _find_files(names: list[str], source: str | None, directory: str | None, report: Progress) -> list[InputFile]:
    """Return the named files. A name may be the id of a session."""
    if not names:
        return [InputFile(find_session_file(source or "", directory=directory), progress=report)]
    by_id = source is not None and source.replace("_", "-") in session_source_names()
    return [
        InputFile(data=read_input("-"))
        if each == "-"
        else InputFile(find_session_file(source or "", each), progress=report)
        if by_id and not os.path.exists(each)
        else InputFile(Path(each), progress=report)
        for each in names
    ]


def import_named_files(
    store: Store, names: list[str], format: str | None, report: Progress, on_request: OnRequest | None = None
) -> list[str]:
    """Import files for a command that analyses them. Return what was left out, and what could not be imported."""
    files = _find_files(names, None, None, report)
    taken = import_any(store, files, format=format, progress=report, on_request=on_request)
    if isinstance(taken, ImportSummary):
        refused = [f"not imported: {each.name}: {each.error}" for each in taken.conversations if each.error is not None]
        stopped = [f"The import stopped: {taken.stopped}"] if taken.stopped is not None else []
        return [*[f"left out: {note}" for note in taken.left_out], *refused, *stopped]
    return list(dict.fromkeys(taken[1]))


def _print_conversations(found: list[Conversation], notes: list[str], json: bool) -> None:
    for line in dict.fromkeys(notes):
        err.print(escape_markup(line), soft_wrap=True)
    if json:
        print_json(found[0] if len(found) == 1 else found)
        return
    for each in found:
        out.print(
            f"imported [bold]{escape_markup(each.name)}[/]: {pluralize(each.length, 'message')}, tip {each.tip[:12]}"
        )


def _print_outcome(summary: ImportSummary, json: bool) -> None:
    """Print the summary: the table on standard output, omitted content on standard error."""
    for note in summary.left_out:
        err.print(escape_markup(f"left out: {note}"), soft_wrap=True)
    for each in summary.conversations:
        if each.error is not None:
            err.print(escape_markup(f"not imported: {each.name}: {each.error}"), soft_wrap=True)
    if (new := summary.total("new")) < (known := summary.total("messages")) and known:
        err.print(f"{pluralize(new, 'message')} new, the others already exist")
    if json:
        print_json(summary)
    else:
        taken = [each for each in summary.conversations if each.error is None]
        if len(taken) == 1:
            (one,) = taken
            current = f", {one.length:,} of them on the current branch" if one.length != one.messages else ""
            details = f"{pluralize(one.messages, 'message')}{current}, tip {one.tip[:12]}"
            out.print(f"imported [bold]{escape_markup(one.name)}[/]: {details}", soft_wrap=True)
        else:
            out.print(f"imported {pluralize(len(taken), 'conversation')} from {summary.source}")
        _print_table(taken, summary)
        problems = len(summary.left_out) + summary.refused
        left = f"{pluralize(problems, 'item')} left out: see above" if problems else "nothing was left out"
        out.print(f"{summary.source}, {summary.seconds:.1f} s, {left}")
    if summary.stopped is not None:
        stored = pluralize(len(summary.conversations) - summary.refused, "conversation")
        err.print(escape_markup(f"The import stopped: {summary.stopped}"), soft_wrap=True)
        err.print(f"Stored before that: {stored}. Import the file again to continue.")
    if summary.refused or summary.stopped is not None:
        raise Exit(1)


def _print_table(taken: list[ImportedConversation], summary: ImportSummary) -> None:
    """Print one row per conversation. If titles do not fit, columns with default values are dropped first; then the
    titles are printed below.
    """
    rows: list[tuple[str, ...]] = [(escape_markup(each.name), *_figures(each)) for each in taken[:MAX_ROWS]]
    if len(taken) > MAX_ROWS:
        rows.append((f"… {len(taken) - MAX_ROWS:,} more", *[""] * len(COLUMNS)))
    if len(taken) > 1:
        rows.append(("total", *_figures(summary.totals())))
    has_requests = any(each.requests for each in taken)
    columns = [column for column in range(len(COLUMNS) + 1) if column != REQUESTS_COLUMN or has_requests]
    heads = ("conversation", *COLUMNS)
    for column in [each for each in (len(COLUMNS), *range(3, len(COLUMNS))) if each in columns]:
        if _title_width(heads, rows, columns) < MIN_TITLE_WIDTH and {row[column] for row in rows} <= {
            "",
            DEFAULT_FIGURES[column],
        }:
            columns.remove(column)
    room = _title_width(heads, rows, columns)
    is_beside = room >= MIN_TITLE_WIDTH
    widths = {column: max(cell_len(each[column]) for each in (heads, *rows)) for column in columns}
    if not is_beside:  # a long name wraps, a figure never
        widths[0] = max(min(widths[0], MIN_NAME_WIDTH), widths[0] + room)
    titles = room if is_beside else -CELL_PADDING
    table = Table(
        box=None, header_style="bold", width=sum(widths.values()) + CELL_PADDING * (len(columns) + 1) + titles
    )
    for column in columns:
        table.add_column(
            heads[column],
            justify="right" if column else "left",
            width=widths[column],
            no_wrap=column > 0,
            overflow="fold",
        )
    if is_beside:
        table.add_column("title", width=room, no_wrap=True)
    for row, each in zip_longest(rows, taken[:MAX_ROWS]):
        title = each.title if each is not None else ""
        shown = [row[column] for column in columns]
        table.add_row(*shown, *([escape_markup(_cut(title, room))] if is_beside else []))
        if title and not is_beside:
            table.add_row(f"  {escape_markup(_cut(title, max(MIN_TITLE_WIDTH, len(row[0]) - 2)))}")
    out.print(table, crop=False)


def _title_width(heads: tuple[str, ...], rows: list[tuple[str, ...]], columns: list[int]) -> int:
    """Return the width that is left for a title."""
    return (
        out.width
        - CELL_PADDING
        - sum(max(cell_len(each[column]) for each in (heads, *rows)) + CELL_PADDING for column in columns)
    )


def _cut(title: str, room: int) -> str:
    return title if len(title) <= room else f"{title[: room - 1]}…"


def _figures(each: ImportedConversation) -> tuple[str, ...]:
    messages = f"{each.messages:,}" if each.length == each.messages else f"{each.length:,} of {each.messages:,}"
    known = each.input_tokens is not None or each.output_tokens is not None
    tokens = f"{each.input_tokens or 0:,} / {each.output_tokens or 0:,}" if known else ""
    return (messages, *[f"{figure:,}" for figure in (each.new, each.requests, each.tool_calls, each.branches)], tokens)


def _print_sessions(source: str, directory: str | None, limit: int, json: bool) -> None:
    listed, more = list_sessions(source, directory=directory, limit=limit)
    if json:
        print_json(listed)
        return
    where = "on this machine" if directory is None else f"in {Path(directory).absolute()}"
    if not listed:
        err.print(escape_markup(f"No session of {source} found {where}. Search elsewhere with --directory or --all."))
        return
    out.print(f"[bold]{'session':13}  {'when':16}  messages  title[/]", soft_wrap=True)
    for each in listed:
        when = datetime.fromtimestamp(each.time / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        title = each.title if len(each.title) <= (room := max(20, out.width - 43)) else f"{each.title[: room - 1]}…"
        out.print(
            f"{escape_markup(short_id(each.id)):13}  {when}  {each.messages:8,}  {escape_markup(title)}", soft_wrap=True
        )
        if directory is None:
            out.print(f"{'':13}  {escape_markup(each.directory)}", soft_wrap=True)
    if more:
        err.print(f"and {more:,} older (--limit)")

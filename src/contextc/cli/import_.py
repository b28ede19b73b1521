"""`contextc import`: read a conversation from JSON Lines, a provider's request, or a session of another program."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from contextc.cli.files import read
from contextc.cli.terminal import JSONOption, StoreOption, count, err, opened, out, plain, print_json, progress
from contextc.errors import InvalidSetting
from contextc.store import Conversation, Store
from contextc.transfer import (
    ImportedSession,
    import_lines,
    import_requests,
    import_session,
    import_transcript,
    list_sessions,
)
from contextc.transfer.lines import Progress
from contextc.transfer.sessions import SHOWN, short, transcript_source
from contextc.wire.files import read_requests

FormatOption = Annotated[
    str | None, typer.Option("--format", "-f", help="A provider's format: openai_chat, anthropic, … (default: our own)")
]


def run(
    file: Annotated[
        str | None,
        typer.Argument(
            help="What `contextc export` wrote, requests, or a transcript of Claude Code or Codex; - for standard"
            " input. With --from: the id of a session, or its beginning."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="Another name for the conversation.")] = None,
    format: FormatOption = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Sessions of another program: claude-code, codex. Without an id: a list."),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="With --from: the newest session.")] = False,
    directory: Annotated[
        str, typer.Option("--directory", help="With --from: where the program ran (default: here).")
    ] = ".",
    everywhere: Annotated[bool, typer.Option("--all", help="With --from: wherever the program ran.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="With --from: how many to list.")] = SHOWN,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Read a conversation from JSON Lines, from a provider's request, or from a session of Claude Code or Codex."""
    where = None if everywhere else directory
    if source is not None and file is None and not last:
        _list(source, where, limit, json)
        return
    if source is None and (file is None or last or everywhere or directory != "."):
        raise InvalidSetting("Say what to import: a file, or --from claude-code, or --from codex.")
    if source is not None and file is not None and last:
        raise InvalidSetting("Give the id of a session, or --last, not both.")
    with opened(store, new=True) as handle, progress("importing") as report:
        if source is not None:
            found, said = _told(import_session(handle, source, file, directory=where, into=name))
        else:
            found, said = _from_file(handle, file or "-", name, format, report)
    for line in dict.fromkeys(said):
        err.print(plain(line), soft_wrap=True)
    if json:
        print_json(found[0] if len(found) == 1 else found)
        return
    for each in found:
        out.print(f"imported [bold]{plain(each.name)}[/]: {count(each.length, 'message')}, tip {each.tip[:12]}")


def _from_file(
    store: Store, file: str, name: str | None, format: str | None, report: Progress
) -> tuple[list[Conversation], list[str]]:
    data = read(file)
    kind = transcript_source(data)
    if kind is not None and format in (None, kind.replace("-", "_")):
        path = None if file == "-" else Path(file)
        return _told(import_transcript(store, data, path=path, name=kind, into=name))
    if format is None:
        return [import_lines(store, data.splitlines(), name, report)], []
    bodies = read_requests(data, format).named(name or Path(file).stem)
    taken = import_requests(store, bodies, format=format, progress=report)
    return [each.conversation for each in taken], [warning for each in taken for warning in each.warnings]


def _told(taken: ImportedSession) -> tuple[list[Conversation], list[str]]:
    """The conversation, and what is to be said of it where not everything is new."""
    said = list(taken.warnings)
    if taken.added < taken.conversation.length:
        said.append(f"{count(taken.added, 'message')} new, the others were there")
    return [taken.conversation], said


def _list(source: str, directory: str | None, limit: int, json: bool) -> None:
    listed, more = list_sessions(source, directory=directory, limit=limit)
    if json:
        print_json(listed)
        return
    where = "on this machine" if directory is None else f"in {Path(directory).absolute()}"
    if not listed:
        err.print(plain(f"There is no session of {source} {where}. Look elsewhere with --directory or --all."))
        return
    out.print(f"[bold]{'session':13}  {'when':16}  messages  title[/]", soft_wrap=True)
    for each in listed:
        when = datetime.fromtimestamp(each.time / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        title = each.title if len(each.title) <= (room := max(20, out.width - 43)) else f"{each.title[: room - 1]}…"
        out.print(f"{plain(short(each.id)):13}  {when}  {each.messages:8,}  {plain(title)}", soft_wrap=True)
        if directory is None:
            out.print(f"{'':13}  {plain(each.directory)}", soft_wrap=True)
    if more:
        err.print(f"and {more:,} older: --limit")

"""Functions that the commands share: consoles, opening the store, progress, confirmation, text blocks."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from contextc.config import Settings, make_private_folder, read_settings
from contextc.errors import InvalidSetting
from contextc.store import Store, open_store
from contextc.store.restore_backup import remove_empty_store

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

StoreOption = Annotated[
    str | None, typer.Option("--store", help="sqlite:///chat.db, postgresql://… (default: configured).")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", "-f", help="The format: openai_chat, anthropic, gemini, … (default: recognised)."),
]
JSONOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed with --json, and without a terminal.")]


@contextmanager
def open_configured_store(store: str | None, *, create: bool = False) -> Generator[Store]:
    """Open the configured store. Only with `create`, a missing file is created, and expired content is redacted.

    So commands that read change nothing. If the command fails, a file that was created and is empty is removed.
    """
    settings = read_settings(store)
    age, missing = settings.parse_retention(), missing_store_file(settings)
    if missing and not create:
        raise InvalidSetting(
            f"{settings.store.value}: store not found", fix="Create one with `contextc import` or `contextc chat`."
        )
    if missing and settings.store.source == "default":
        make_private_folder(os.path.dirname(missing))
    try:
        with open_store(settings.store.value) as handle:
            if create and age is not None and (redacted := handle.expire(age)):
                err.print(
                    f"redacted {pluralize(redacted, 'message')} older than {escape_markup(settings.retention.value)}"
                )
            if create:
                _limit_observed(handle, settings)
            yield handle
    except BaseException:
        if missing:
            remove_empty_store(missing)
        raise


def _limit_observed(store: Store, settings: Settings) -> None:
    """Delete observed conversations beyond their own retention and size limit, and report it."""
    age, size = settings.parse_observed_age(), settings.parse_observed_size()
    if age is None and size is None:
        return
    from contextc.observation import limit_observed  # most stores have no limit, and it takes time to import

    with progress_bar("deleting observed traffic") as report:
        deleted = limit_observed(store, age=age, max_bytes=size, progress=report)
    if deleted.conversations:
        limits = [f"{age.days} days"] if age is not None else []
        limits += [f"{size:,} bytes"] if size is not None else []
        err.print(
            f"deleted {pluralize(deleted.conversations, 'observed conversation')} ({deleted.size:,} bytes), "
            f"beyond the limit of {' and '.join(limits)}"
        )


def missing_store_file(settings: Settings) -> str | None:
    """Return the path of a SQLite store if its file is missing."""
    scheme, _, path = settings.store.value.partition(":///")
    path = os.path.expanduser(path.partition("?")[0])
    return path if scheme == "sqlite" and path and not os.path.exists(path) else None


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if it is a terminal."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def confirm(action: str, yes: bool, *, detail: str = "", json: bool = False) -> bool:
    """Ask for confirmation of an action that cannot be undone, unless `yes` is given.

    Only the question contains `detail`, which may be a secret. An error may be logged.
    """
    if yes:
        return True
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidSetting(f"{action}: no terminal to confirm it at", fix="Add --yes.")
    if typer.confirm(f"{replace_control_characters(f'{action} {detail}'.strip())}?"):
        return True
    out.print("nothing was changed")
    return False


def warn_pending_erasure(erasures: int) -> None:
    """Warn that removed content is still in the files of a store."""
    if erasures:
        err.print(
            "pending: the content is still in the store's files, because another connection reads them. It is "
            "removed when the store is next opened after that.",
            soft_wrap=True,
        )


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def escape_markup(text: str) -> str:
    """Return a text for printing with rich, without markup and control characters."""
    return escape(replace_control_characters(text))


def replace_control_characters(text: str) -> str:
    """Return a text for a terminal, with control characters replaced."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


INDENT = 4


def print_block(heading: str, *below: str) -> None:
    """Print markup: the heading on one line, the rest indented, at any width.

    The heading is never cut, so names in it can be copied. In contrast to a table, no column is too narrow.
    """
    out.print(heading, soft_wrap=True)
    for each in below:
        for line in Text.from_markup(each).wrap(out, max(20, out.width - INDENT)):
            line.rstrip()
            out.print(Text(" " * INDENT) + line, soft_wrap=True)

"""What the commands share: where they print, the store they open, how they show progress."""

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

from contextc.config import Settings, read_settings
from contextc.store import Store, open_store

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

StoreOption = Annotated[
    str | None, typer.Option("--store", help="sqlite:///chat.db, postgresql://… (default: what is configured)")
]
JSONOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@contextmanager
def opened(store: str | None) -> Generator[Store]:
    """The configured store; the folder of the default one is made if it is not there yet."""
    settings = read_settings(store)
    make_default_folder(settings)
    with open_store(settings.store.value, retention=settings.retention_age()) as handle:
        yield handle


def make_default_folder(settings: Settings) -> None:
    if settings.store.source == "default":
        os.makedirs(os.path.dirname(settings.store.value.removeprefix("sqlite:///")), exist_ok=True)


@contextmanager
def progress(title: str) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error, where a person is looking; nothing elsewhere."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def plain(text: str) -> str:
    """What is in a store is data: nothing in it may style, or steer, a terminal."""
    return escape(
        "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)
    )


def print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

"""`contextc backup` and `contextc restore`: copy the whole store to one file, and restore it."""

import os
from typing import Annotated

import typer

from contextc.cli.terminal import StoreOption, YesOption, agreed, count, opened, out, plain
from contextc.config import masked, read_settings
from contextc.store.backup import check_copy, restore


def run(
    file: Annotated[str, typer.Argument(help="The file to write. It must not exist yet.")],
    store: StoreOption = None,
) -> None:
    """Copy a SQLite store to one file, also while it is in use. For PostgreSQL, use pg_dump."""
    with opened(store) as handle:
        handle.backup(file)
        found = len(handle.conversations())
    out.print(f"wrote [bold]{plain(file)}[/]: {count(found, 'conversation')}, {os.path.getsize(file):,} bytes")


def run_restore(
    file: Annotated[str, typer.Argument(help="A file that `contextc backup` wrote.")],
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Replace a SQLite store by a backup. The replaced store is kept beside it, under another name."""
    check_copy(file)
    address = read_settings(store).store.value
    if not agreed(f"Replace {masked(address)} with {file}", yes):
        return
    aside = restore(file, address)
    out.print(f"restored [bold]{plain(address)}[/] from {plain(file)}", soft_wrap=True)
    if aside is not None:
        out.print(f"the replaced store is kept as {plain(aside)}", soft_wrap=True)

"""`contextc backup` and `contextc restore`: copy the whole store to one file, and restore it."""

import os
from typing import Annotated

import typer

from contextc.cli.console import YesOption, confirm, escape_markup, out, pluralize
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.config import mask_secrets, read_settings
from contextc.store.restore_backup import check_backup_file, restore


def run(
    file: Annotated[str, typer.Argument(help="The file to write. It must not exist yet.")],
    store: StoreOption = None,
) -> None:
    """Copy a SQLite store to one file, also while it is in use. For PostgreSQL, use pg_dump."""
    with open_configured_store(store) as handle:
        handle.backup(file)
        found = len(handle.conversations())
    out.print(
        f"wrote [bold]{escape_markup(file)}[/]: {pluralize(found, 'conversation')}, {os.path.getsize(file):,} bytes"
    )


def run_restore(
    file: Annotated[str, typer.Argument(help="A file that `contextc backup` wrote.")],
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Replace a SQLite store by a backup. The replaced store is kept beside it, under another name."""
    check_backup_file(file)
    address = read_settings(store).store.value
    if not confirm(f"Replace {mask_secrets(address)} with {file}", yes):
        return
    aside = restore(file, address)
    out.print(f"restored [bold]{escape_markup(address)}[/] from {escape_markup(file)}", soft_wrap=True)
    if aside is not None:
        out.print(f"the replaced store is kept as {escape_markup(aside)}", soft_wrap=True)

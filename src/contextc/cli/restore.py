"""`contextc restore`: replace the store by a file that `contextc backup` wrote."""

from typing import Annotated

import typer

from contextc.cli.console import YesOption, confirm, escape_markup, out
from contextc.cli.open_store import StoreOption
from contextc.config import mask_secrets, read_settings
from contextc.store.sqlite import check_backup_file, restore


def run(
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

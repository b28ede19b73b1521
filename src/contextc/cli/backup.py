"""`contextc backup`: copy the whole store to one file."""

import os
from typing import Annotated

import typer

from contextc.cli.console import escape_markup, out, pluralize
from contextc.cli.open_store import StoreOption, open_configured_store


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

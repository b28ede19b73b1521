"""`contextc list`: list the conversations of a store."""

from datetime import UTC, datetime

from rich.cells import cell_len

from contextc.cli.console import (
    JSONOption,
    StoreOption,
    open_configured_store,
    out,
    print_json,
    replace_control_characters,
)
from contextc.store.branches import count_branches

COLUMNS = ("conversation", "messages", "branches", "created")


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """List the conversations of a store."""
    with open_configured_store(store) as handle:
        found = handle.conversations()
        counts = handle.read(count_branches)
    if json:
        print_json(found)
        return
    rows = [
        (
            replace_control_characters(each.name),
            f"{each.length:,}",
            str(counts.get(each.name, 0)),
            datetime.fromtimestamp(each.created / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
        )
        for each in found
    ]
    widths = [max(map(cell_len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    out.print(f"[bold]{_line(COLUMNS, widths)}[/]", soft_wrap=True)
    out.file.writelines([f"{_line(row, widths)}\n" for row in rows])  # a rich table takes a millisecond per row


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return f" {'  '.join(padded)} "

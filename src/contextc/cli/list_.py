"""`contextc list`: list the conversations of a store."""

from datetime import UTC, datetime

from rich.cells import cell_len

from contextc.cli.terminal import JSONOption, StoreOption, opened, out, print_json, printable
from contextc.store.branches import branch_counts

COLUMNS = ("conversation", "messages", "branches", "created")


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """List the conversations of a store."""
    with opened(store) as handle:
        found = handle.conversations()
        counts = handle.read(branch_counts)
    if json:
        print_json(found)
        return
    rows = [
        (
            printable(each.name),
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

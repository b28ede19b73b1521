"""`contextc list`: what is in a store."""

from datetime import UTC, datetime

from rich.table import Table

from contextc.cli.terminal import JSONOption, StoreOption, opened, out, plain, print_json
from contextc.store.branches import branch_counts


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """Show the conversations of a store."""
    with opened(store) as handle:
        found = handle.conversations()
        counts = handle.read(branch_counts)
    if json:
        print_json(found)
        return
    table = Table("conversation", "messages", "branches", "begun", box=None, header_style="bold")
    for each in found:
        begun = datetime.fromtimestamp(each.created / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        table.add_row(plain(each.name), f"{each.length:,}", str(counts.get(each.name, 0)), begun)
    out.print(table)

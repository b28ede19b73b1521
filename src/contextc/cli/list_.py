"""`contextc list`: list the conversations of a store."""

from datetime import UTC, datetime

import msgspec
from rich.cells import cell_len

from contextc.cli.console import JSONOption, out, print_json, replace_control_characters
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.store.branches import count_branches
from contextc.store.conversation_list import load_start_times
from contextc.store.observed_conversation_sources import ObservedSource, load_all_sources

COLUMNS = ("conversation", "messages", "branches", "started")
"""`started` is the time of the first message, also if it was imported later."""
CLIENT = "client"
"""The column of the client that made the requests, shown if there are observed conversations."""


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """List the conversations of a store."""
    with open_configured_store(store) as handle:
        found = handle.conversations()
        counts = handle.read(count_branches)
        sources = handle.read(load_all_sources)
        started = handle.read(load_start_times) if not json else {}
    if json:
        plain = msgspec.to_builtins(found)
        print_json([each | _source(sources.get(each["name"])) for each in plain])
        return
    rows = [
        (
            replace_control_characters(each.name),
            f"{each.length:,}",
            str(counts.get(each.name, 0)),
            datetime.fromtimestamp(started.get(each.name, each.created) / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            *([replace_control_characters(_label(sources.get(each.name)))] if sources else []),
        )
        for each in found
    ]
    columns = (*COLUMNS, CLIENT) if sources else COLUMNS
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    out.print(f"[bold]{_line(columns, widths)}[/]", soft_wrap=True)
    out.file.writelines([f"{_line(row, widths)}\n" for row in rows])  # a rich table takes a millisecond per row


def _label(source: ObservedSource | None) -> str:
    return source.label if source is not None else ""


def _source(source: ObservedSource | None) -> dict[str, object]:
    """Return the additional fields of an observed conversation."""
    return {"observed": msgspec.to_builtins(source)} if source is not None else {}


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return f" {'  '.join(padded)} "

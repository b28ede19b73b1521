"""`contextc list`: list the conversations of a store."""

from datetime import UTC, datetime

import msgspec
from rich.cells import cell_len, set_cell_size

from contextc.cli.console import JSONOption, out, print_json, replace_control_characters
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.store.branches import count_branches
from contextc.store.conversation_list import (
    MAX_PAGE_SIZE,
    ObservedSource,
    list_names,
    load_all_sources,
    load_start_times,
)

COLUMNS = ("conversation", "messages", "branches", "started")
"""`started` is the time of the first message, also if it was imported later."""
CLIENT = "client"
"""The column of the client that made the requests, shown if there are observed conversations."""
TITLE = "title"
MIN_TITLE_WIDTH = 30
"""The width that titles have also where the other columns take the whole line."""


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """List the conversations of a store, most recently active first. With --json, they are sorted by name."""
    with open_configured_store(store) as handle:
        found = handle.conversations()
        counts = handle.read(count_branches)
        sources = handle.read(load_all_sources)
        if json:
            plain = msgspec.to_builtins(found)
            print_json([each | _source(sources.get(each["name"])) for each in plain])
            return
        started = handle.read(load_start_times)
        order = {name: place for place, name in enumerate(handle.read(list_names))}
        titles = {each.name: each.title for each in handle.overviews(limit=MAX_PAGE_SIZE).found}  # more take seconds
    rows = [
        (
            replace_control_characters(each.name),
            f"{each.length:,}",
            str(counts.get(each.name, 0)),
            datetime.fromtimestamp(started.get(each.name, each.created) / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            *([replace_control_characters(_label(sources.get(each.name)))] if sources else []),
            replace_control_characters(titles.get(each.name, "")),
        )
        for each in sorted(found, key=lambda each: order.get(each.name, len(order)))
    ]
    columns = (*COLUMNS, *([CLIENT] if sources else []), TITLE)
    taken = sum(
        [max(map(cell_len, column)) + 2 for column in zip(columns[:-1], *[row[:-1] for row in rows], strict=True)]
    )
    room = max(MIN_TITLE_WIDTH, out.width - taken - 2)
    rows = [(*row[:-1], _cut(row[-1], room)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    out.print(f"[bold]{_line(columns, widths)}[/]", soft_wrap=True)
    out.file.writelines([f"{_line(row, widths)}\n" for row in rows])  # a rich table takes a millisecond per row


def _label(source: ObservedSource | None) -> str:
    return source.label if source is not None else ""


def _source(source: ObservedSource | None) -> dict[str, object]:
    """Return the additional fields of an observed conversation."""
    return {"observed": msgspec.to_builtins(source)} if source is not None else {}


def _cut(title: str, room: int) -> str:
    return title if cell_len(title) <= room else f"{set_cell_size(title, room - 1)}…"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return f" {'  '.join(padded)} "

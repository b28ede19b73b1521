"""Export of a conversation as JSON Lines."""

from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from urllib.parse import quote

from contextc._worker_threads import run_blocking
from contextc.interchange import export_lines
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EventStream, endpoint

TAG = "branches"
"""This endpoint was declared with those of branches. Clients are generated from the tag, so it stays."""
LINES_PER_CHUNK = 200
"""Lines of an export that are read at once."""


@endpoint("GET", "/conversations/{name}/export", media_type="application/x-ndjson")
async def export(app: AppState, name: str) -> EventStream:
    """Export a conversation with its branches and media as JSON Lines, which `contextc import` reads."""
    lines = export_lines(app.store, name)
    first = await run_blocking(_read_lines, lines)  # errors are raised before the response starts
    saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl"
    return EventStream(_stream_lines(first, lines), "application/x-ndjson", {"Content-Disposition": saved})


def _read_lines(lines: Iterator[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in islice(lines, LINES_PER_CHUNK)])


async def _stream_lines(first: bytes, lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    some = first
    while some:
        yield some
        some = await run_blocking(_read_lines, lines)

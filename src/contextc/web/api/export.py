"""Export of a conversation as JSON Lines, or of its requests as one HTML file."""

import re
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from contextc._worker_threads import REQUEST_SLOTS, run_blocking
from contextc.errors import InvalidInput
from contextc.interchange import export_lines
from contextc.sharing import SHARE_REDACTIONS, build_shared_file
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EventStream, endpoint

TAG = "branches"
"""This endpoint was declared with those of branches. Clients are generated from the tag, so it stays."""
LINES_PER_CHUNK = 200
"""Lines of an export that are read at once."""
MAX_PATTERN = 500


class ExportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """With `format=html`, the export is one HTML file of the requests, which needs no server.

    It has all requests, or one: `request` is its number, and `channel` the id of its channel. `redact` lists what is
    removed, separated by commas: texts, results, files, keys, tokens, mail. `pattern` is a regular expression whose
    matches are removed.
    """

    format: Literal["", "jsonl", "html"] = ""
    channel: str = ""
    request: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    redact: str = ""
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN)] = ""


@endpoint("GET", "/conversations/{name}/export", media_type="application/x-ndjson")
async def export(app: AppState, name: str, query: ExportQuery) -> EventStream:
    """Export a conversation with its branches and media as JSON Lines, which `contextc import` reads; or as HTML."""
    if query.format == "html":
        data = await run_blocking(_build_file, app, name, query, slots=REQUEST_SLOTS)
        number = f"-{query.request}" if query.request else ""
        saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}{number}.html"
        return EventStream(_stream_file(data), "text/html; charset=utf-8", {"Content-Disposition": saved})
    lines = export_lines(app.store, name)
    first = await run_blocking(_read_lines, lines)  # errors are raised before the response starts
    saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl"
    return EventStream(_stream_lines(first, lines), "application/x-ndjson", {"Content-Disposition": saved})


def _build_file(app: AppState, name: str, query: ExportQuery) -> bytes:
    redact: list[str | re.Pattern[str]] = [each for each in query.redact.split(",") if each]
    unknown = [each for each in redact if each not in SHARE_REDACTIONS]
    if unknown:
        fix = f"Use {', '.join(SHARE_REDACTIONS)}; pass a regular expression as `pattern`."
        raise InvalidInput("redact: unknown name", got=unknown[0], fix=fix)
    if query.pattern:
        redact.append(_compile(query.pattern))
    return build_shared_file(app.store, name, request=query.request or None, channel=query.channel, redact=redact)


async def _stream_file(data: bytes) -> AsyncGenerator[bytes]:
    yield data


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"pattern: invalid regular expression ({error})", got=pattern) from None


def _read_lines(lines: Iterator[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in islice(lines, LINES_PER_CHUNK)])


async def _stream_lines(first: bytes, lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    some = first
    while some:
        yield some
        some = await run_blocking(_read_lines, lines)

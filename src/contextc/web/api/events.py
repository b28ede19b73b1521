"""Event streams: of a conversation, in several vocabularies, and of the changes of the whole store."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest
from contextc.proxy.proxy_status import ProxyStatus, read_statuses
from contextc.store.message_log import SEQ_MASK
from contextc.web.api.agui import AGUIEncoder
from contextc.web.api.vercel import VercelEncoder
from contextc.web.app_state import AppState
from contextc.web.router import EventStream, endpoint
from contextc.web.sse import (
    HEARTBEAT,
    HEARTBEAT_SECONDS,
    FrameEncoder,
    encode_native,
    frame,
    start_number,
    stream_conversation,
)


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events after number `after`, as AG-UI events, contextc events, or Vercel AI SDK UI message chunks."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MASK)] = 0
    vocabulary: Literal["agui", "contextc", "vercel"] = "agui"


@endpoint("GET", "/conversations/{name}/events", media_type="text/event-stream", tag="events")
async def events(app: AppState, name: str, query: EventsQuery, request: Request) -> EventStream:
    """Stream events as server-sent events: the stored ones after number `after`, then new ones.

    The stream ends when the client disconnects, the conversation is deleted, or the server stops. The `id` of an event
    is its number: a client that reconnects with `Last-Event-ID` continues after it.
    """
    await run_blocking(app.store.conversation, name)  # raises if it does not exist
    return EventStream(
        stream_conversation(app, name, start_number(request, query.after), _frame_encoder(name, query.vocabulary))
    )


def _frame_encoder(name: str, vocabulary: str) -> FrameEncoder:
    match vocabulary:
        case "contextc":
            return encode_native
        case "vercel":
            return VercelEncoder().frames
        case _:
            return AGUIEncoder(name).frames


# ── changes of the store, and the proxies that record to it ───────────────────────────────────────────────────────────


MAX_DIGITS = 18


class ProxyList(Struct, frozen=True, kw_only=True):
    """Running proxies that record to this store, oldest first."""

    proxies: list[ProxyStatus]


@endpoint("GET", "/proxies", tag="changes")
def proxies(app: AppState) -> ProxyList:
    """Return the proxies of this machine's user that record to this store, with their gaps."""
    address = app.store.address
    return ProxyList(proxies=[] if address.startswith("memory:") else read_statuses(address))


@endpoint("GET", "/changes", media_type="text/event-stream", tag="changes")
async def changes(app: AppState, request: Request) -> EventStream:
    """Stream changes of the store as server-sent events, whichever process makes them.

    `conversations` has new and changed entries of the list, and names of deleted ones. `proxies` has the status of all
    running proxies. `reset` is first, unless `Last-Event-ID` names an event after which nothing is missing: load the
    list again. `ended` is the last event of a server that ends with a watched program. Changes are noticed in the
    hundred conversations that were active last.
    """
    return EventStream(_stream_changes(app, _last_change(request)))


async def _stream_changes(app: AppState, after: int | None) -> AsyncGenerator[bytes]:
    source = app.changes.read(after, HEARTBEAT_SECONDS)
    async with aclosing(source):
        if app.stopping.is_set():
            return
        async for entries in source:
            if app.stopping.is_set():
                return
            yield b"".join([frame(each.data, id=each.number, event=each.event) for each in entries]) or HEARTBEAT


def _last_change(request: Request) -> int | None:
    header = request.headers.get("last-event-id", "").strip()
    if not header:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= MAX_DIGITS):
        raise InvalidRequest("Last-Event-ID must be the number of an event", got=header[:100])
    return int(header)

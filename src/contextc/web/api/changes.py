"""The change feed of the whole store, and the proxies that record to it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct
from starlette.requests import Request

from contextc.errors import InvalidRequest
from contextc.proxy.proxy_status import ProxyStatus, read_statuses
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EventStream, endpoint
from contextc.web.streams.sse import HEARTBEAT, HEARTBEAT_SECONDS, frame

TAG = "changes"
MAX_DIGITS = 18


class ProxyList(Struct, frozen=True, kw_only=True):
    """Running proxies that record to this store, oldest first."""

    proxies: list[ProxyStatus]


@endpoint("GET", "/proxies")
def proxies(app: AppState) -> ProxyList:
    """Return the proxies of this machine's user that record to this store, with their gaps."""
    address = app.store.address
    return ProxyList(proxies=[] if address.startswith("memory:") else read_statuses(address))


@endpoint("GET", "/changes", media_type="text/event-stream")
async def changes(app: AppState, request: Request) -> EventStream:
    """Stream changes of the store as server-sent events, whichever process makes them.

    `conversations` has new and changed entries of the list, and names of deleted ones. `proxies` has the status of all
    running proxies. `reset` is first, unless `Last-Event-ID` names an event after which nothing is missing: load the
    list again. `ended` is the last event of a server that ends with a watched program. Changes are noticed in the
    hundred conversations that were active last.
    """
    return EventStream(_stream(app, _last_event(request)))


async def _stream(app: AppState, after: int | None) -> AsyncGenerator[bytes]:
    source = app.changes.read(after, HEARTBEAT_SECONDS)
    async with aclosing(source):
        if app.stopping.is_set():
            return
        async for entries in source:
            if app.stopping.is_set():
                return
            yield b"".join([frame(each.data, id=each.number, event=each.event) for each in entries]) or HEARTBEAT


def _last_event(request: Request) -> int | None:
    header = request.headers.get("last-event-id", "").strip()
    if not header:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= MAX_DIGITS):
        raise InvalidRequest("Last-Event-ID must be the number of an event", got=header[:100])
    return int(header)

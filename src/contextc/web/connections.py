"""Limits on connections, so that clients which send nothing, or read nothing, cannot keep others out.

A connection is pending until its request was authenticated, and again when the answer was sent. Pending connections are
few and short-lived: the oldest are closed when there are too many, and each is closed after some seconds. A burst of
clients may be many for a moment, as long as there is room: a request that has arrived is not cut off before it was
read. A client with the token is never pending for longer than its request head takes. Those that were let in may stay,
like streams of events; their number is limited by the files that the process may open.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from contextc.web.address import ADMIT

PENDING_SECONDS = 30.0
"""How long a connection may stay pending: sending a request head, or taking in a file of the page."""
MOST_PENDING = 256
BURST_SECONDS = 2.0
"""How long more connections than that may be pending."""
MOST = 10_000
SPARE_FILES = 128
"""Files that are kept for the store, for providers and for tools."""


class Connections:
    """The connections of one server: those that are pending, oldest first, and those with a request that was let in."""

    def __init__(self, most: int | None = None, most_pending: int | None = None) -> None:
        most = most_connections() if most is None else most
        self.most_pending = min(MOST_PENDING, most // 2) if most_pending is None else most_pending
        self.most, self.most_admitted = most, most - self.most_pending
        self._pending: OrderedDict[Connection, float] = OrderedDict()
        self._admitted: set[Connection] = set()

    def add(self, connection: "Connection", now: float) -> None:
        """Take note of a pending connection. The oldest is closed where there is no room for another."""
        self._admitted.discard(connection)
        self._pending[connection] = now
        self._pending.move_to_end(connection)
        if len(self._pending) + len(self._admitted) > self.most:
            self.close_oldest()

    def admit(self, connection: "Connection") -> bool:
        """Let the request of a connection in; False where as many as possible were."""
        if len(self._admitted) >= self.most_admitted and connection not in self._admitted:
            return False
        self._pending.pop(connection, None)
        self._admitted.add(connection)
        return True

    def is_admitted(self, connection: "Connection") -> bool:
        return connection in self._admitted

    def discard(self, connection: "Connection") -> None:
        self._admitted.discard(connection)
        self._pending.pop(connection, None)

    def close_oldest(self) -> None:
        self._pending.popitem(last=False)[0].transport.abort()

    def close_late(self, now: float) -> None:
        """Close the connections that have been pending for too long, sooner where they are many."""
        while self._pending:
            waited = now - next(iter(self._pending.values()))
            if waited < (BURST_SECONDS if len(self._pending) > self.most_pending else PENDING_SECONDS):
                break
            self.close_oldest()

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # as uvicorn has it
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "Connection":
        """Make the protocol of a new connection; what uvicorn calls."""
        return Connection(self, config, server_state, app_state, _loop)


class Connection(H11Protocol):
    """HTTP/1.1 on one connection that counts as pending between its authenticated requests."""

    def __init__(
        self,
        all_of_them: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, ADMIT: lambda: all_of_them.admit(self)}, loop)
        self._all = all_of_them

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._all.add(self, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._all.is_admitted(self) and self.cycle.response_complete:
            self._all.add(self, self.loop.time())
        super().data_received(data)

    def on_response_complete(self) -> None:
        # A client that has not taken in its answer keeps its time: none with the token, else what is left of it.
        if not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._all.add(self, self.loop.time())
        super().on_response_complete()


def most_connections() -> int:
    """How many connections leave enough files for everything else. Raises the process's own limit first."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows, which has no such limit
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # macOS has a limit of its own below
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST
    return max(1, min(MOST, soft - max(SPARE_FILES, soft // 4)))

"""Limits on connections, so that clients that send or read nothing cannot block others.

A connection is pending until its request is authenticated, and again after the response was sent. Pending connections
are few and short-lived: the oldest are closed if there are too many, and each is closed after some seconds. A short
burst may exceed the limit, so that requests that have arrived are read. Admitted connections, such as event streams,
may stay open. Their number is limited by the open files of the process.
"""

import asyncio
from collections import OrderedDict
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from contextc._http_access import max_connections
from contextc.web.url_parsing import ADMIT_KEY

PENDING_SECONDS = 30.0
"""Seconds that a connection may be pending: sending a request head, or receiving a static file."""
MAX_PENDING = 256
BURST_SECONDS = 2.0
"""Seconds that more connections than that may be pending."""


class ConnectionLimiter:
    """The connections of one server: pending ones, oldest first, and admitted ones."""

    def __init__(self, most: int | None = None, most_pending: int | None = None) -> None:
        most = max_connections() if most is None else most
        self.max_pending = min(MAX_PENDING, most // 2) if most_pending is None else most_pending
        self.max_connections, self.max_admitted = most, most - self.max_pending
        self._pending: OrderedDict[LimitedConnection, float] = OrderedDict()
        self._admitted: set[LimitedConnection] = set()

    def add(self, connection: "LimitedConnection", now: float) -> None:
        """Add a pending connection. Closes the oldest one if there are too many."""
        self._admitted.discard(connection)
        self._pending[connection] = now
        self._pending.move_to_end(connection)
        if len(self._pending) + len(self._admitted) > self.max_connections:
            self.close_oldest()

    def admit(self, connection: "LimitedConnection") -> bool:
        """Admit a connection; return False if the limit is reached."""
        if len(self._admitted) >= self.max_admitted and connection not in self._admitted:
            return False
        self._pending.pop(connection, None)
        self._admitted.add(connection)
        return True

    def is_admitted(self, connection: "LimitedConnection") -> bool:
        return connection in self._admitted

    def discard(self, connection: "LimitedConnection") -> None:
        self._admitted.discard(connection)
        self._pending.pop(connection, None)

    def close_oldest(self) -> None:
        self._pending.popitem(last=False)[0].transport.abort()

    def close_expired(self, now: float) -> None:
        """Close connections that are pending for too long; sooner if there are many."""
        while self._pending:
            waited = now - next(iter(self._pending.values()))
            if waited < (BURST_SECONDS if len(self._pending) > self.max_pending else PENDING_SECONDS):
                break
            self.close_oldest()

    def create_protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # uvicorn's type
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "LimitedConnection":
        """Return the protocol of a new connection. uvicorn calls this."""
        return LimitedConnection(self, config, server_state, app_state, _loop)


class LimitedConnection(H11Protocol):
    """HTTP/1.1 connection that is pending between its authenticated requests."""

    def __init__(
        self,
        all_of_them: ConnectionLimiter,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, ADMIT_KEY: lambda: all_of_them.admit(self)}, loop)
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
        # A client that has not read its whole response keeps its state and its remaining time.
        if not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._all.add(self, self.loop.time())
        super().on_response_complete()

"""The uvicorn server: it runs on an open socket and stops without waiting for event streams.

On a signal, streams end first (`AppState.stop_streams`). Requests get a few seconds to finish, or none if a second
signal arrives. Then running turns are stopped in order, so that their partial output is stored.
"""

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from contextc._http_access import max_connections
from contextc.errors import InvalidSetting
from contextc.web.app_state import AppState
from contextc.web.security import ADMIT_KEY, CHUNK_KEY

# ── limits on connections: clients that send or read nothing cannot block others ──────────────────────────────────────
# A connection is pending until its request is authenticated, and again after the response was sent. Pending
# connections are few and short-lived: the oldest are closed if there are too many, and each is closed after some
# seconds. A short burst may exceed the limit, so that requests that have arrived are read. Admitted connections, such
# as event streams, may stay open. Their number is limited by the open files of the process.


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
        state = {**app_state, ADMIT_KEY: lambda: all_of_them.admit(self), CHUNK_KEY: self.send_chunk}
        super().__init__(config, server_state, state, loop)
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

    async def send_chunk(self, data: bytes) -> bool:
        """Send a part of a response in chunked transfer encoding. Return False if this response is sent otherwise.

        The state of the protocol does not change between the head of a response and its end, so h11 is not asked.
        """
        cycle = self.cycle
        if not cycle.response_started or cycle.response_complete or cycle.scope["http_version"] != "1.1":
            return False
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if data and not cycle.disconnected and cycle is self.cycle:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def on_response_complete(self) -> None:
        # A client that has not read its whole response keeps its state and its remaining time.
        if not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._all.add(self, self.loop.time())
        super().on_response_complete()


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


SHUTDOWN_SECONDS = 3
TICKS_PER_CHECK = 10
"""Ticks of uvicorn, each 0.1 s, between two checks of pending connections."""
MAX_HEAD_BYTES = 64 << 10
BACKLOG = 2048
MAX_PORT = 65_535
SIGNAL_EXIT_CODE = 128
"""Exit code of a process that a signal ended, less the number of the signal."""


class Server(uvicorn.Server):
    """uvicorn server that ends normally on a stop signal.

    `exit_code` is 0, or 128 and the number of the signal if a second one ended the wait for requests.
    """

    exit_code = 0

    def __init__(
        self, config: uvicorn.Config, app_state: AppState, connections: ConnectionLimiter, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.app_state, self._ready = app_state, ready
        self.connections = connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit, self.exit_code = True, SIGNAL_EXIT_CODE + sig
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_CHECK == 0:
            self.connections.close_expired(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app_state.stop_streams()
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn would cancel the application, too
            for task in self.server_state.tasks:
                task.cancel()
            await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
            await self.lifespan.shutdown()


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Return False for the traceback of a request that was cancelled because the server stops."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def create_server(app: Starlette, ready: Callable[[], None] = lambda: None) -> Server:
    """Return a server for an application. `run([listen(…)])` runs it until a stop signal.

    `ready` is called when it accepts requests and signals.
    """
    connections = ConnectionLimiter()
    config = uvicorn.Config(
        app,
        http=connections.create_protocol,  # pyright: ignore[reportArgumentType]  # any factory of protocols works
        ws="none",
        log_level="warning",
        access_log=False,  # URLs contain names of conversations
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    return Server(config, app.state.app_state, connections, ready)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 selects any free port."""
    if not 0 <= port <= MAX_PORT:
        raise InvalidSetting(f"port must be 0 to {MAX_PORT}", got=port, fix="Use 0 for any free port.")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=kind, backlog=BACKLOG)
    except socket.gaierror as error:
        problem = f"host: address not found on this machine ({error.strerror})"
        raise InvalidSetting(problem, got=host, fix="Use 127.0.0.1 for this machine only.") from error
    except OSError as error:
        problem = f"cannot listen on {host}:{port}: {error.strerror}. Another server may use this port"
        raise InvalidSetting(problem, fix="Use another port; 0 selects any free port.") from error

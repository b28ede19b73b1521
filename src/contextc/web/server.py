"""The uvicorn server: it runs on an open socket and stops without waiting for event streams.

On a signal, streams end first (`AppState.stop_streams`). Requests get a few seconds to finish, or none if a second
signal arrives. Then running turns are stopped in order, so that their partial output is stored.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from contextc.errors import InvalidSetting
from contextc.web.app_state import AppState
from contextc.web.connection_limits import ConnectionLimiter

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

"""The application behind uvicorn: on a socket that is open already, and stopped without waiting for those who listen.

A signal ends it: streams are told first (`desk.ending`), requests get a few seconds to end, then running turns are
brought to theirs, so that what was said stays.
"""

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from contextc.errors import InvalidSetting
from contextc.web.connections import Connections
from contextc.web.desk import Desk

PATIENCE = 3
TICKS = 10
"""Ticks of uvicorn, each 0.1 s, between two looks at pending connections."""
LARGEST_HEAD = 64 << 10
BACKLOG = 2048
MOST = 65_535


class Server(uvicorn.Server):
    """Ends as wanted, not as killed: a signal that asks it to stop is answered with exit code 0."""

    def __init__(self, config: uvicorn.Config, desk: Desk, connections: Connections, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.desk, self._ready = desk, ready
        self.connections = connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # asked twice, it does not wait for anybody
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self.connections.close_late(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.desk.end()
        await super().shutdown(sockets)


def server(app: Starlette, ready: Callable[[], None] = lambda: None) -> Server:
    """A server for an application; `run([listen(…)])` runs it until it is told to stop. `ready` is called when it can
    be asked, and stopped.
    """
    connections = Connections()
    config = uvicorn.Config(
        app,
        http=connections.protocol,  # pyright: ignore[reportArgumentType]  # whatever makes a protocol will do
        ws="none",
        log_level="warning",
        access_log=False,  # a log of addresses would hold what is in them
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=PATIENCE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    return Server(config, app.state.desk, connections, ready)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address. Port 0 is any that is free."""
    if not 0 <= port <= MOST:
        raise InvalidSetting(f"--port {port}: ports are 0 to {MOST}; 0 takes any that is free.")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=kind, backlog=BACKLOG)
    except socket.gaierror as error:
        raise InvalidSetting(f"--host {host}: there is no such address on this machine: {error.strerror}.") from error
    except OSError as error:
        raise InvalidSetting(
            f"Nobody can listen on {host}:{port}: {error.strerror}. Another server may be there already. "
            "Give another port: --port 0 takes any that is free."
        ) from error

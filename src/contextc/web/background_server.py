"""The web UI in a process of its own, beside a command that does something else. It ends with that command.

The first line on its standard input is its configuration. It inherits a socket that listens on loopback, so that
clients can connect while it starts. It writes a line when it accepts requests, and ends when its standard input does.
"""

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec
from msgspec import Struct

from contextc._garbage_collection import collect_garbage_rarely
from contextc.store import open_store
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.server import Server, create_server

PASS_SECONDS = 0.3
"""Streams pass the last changes on in this time. The server ends them when it stops."""


class BackgroundSettings(Struct, frozen=True, kw_only=True):
    """The address of the store, the token that clients must send, and the working directory of tools.

    The socket is the number of an inherited one, or on Windows the bytes that share it.
    """

    store: str
    token: str
    root: str
    number: int = -1
    shared: bytes = b""


def main() -> None:
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=BackgroundSettings)
    options = ServerOptions(root=Path(settings.root), token=settings.token)
    with _listening(settings) as listening, open_store(settings.store) as store:

        def announce() -> None:
            Thread(target=_stop_with_input, args=(server, asyncio.get_running_loop()), daemon=True).start()
            os.write(sys.stdout.fileno(), b"\n")

        server = create_server(create_application(store, options), announce)
        collect_garbage_rarely()
        server.run([listening])


def _listening(settings: BackgroundSettings) -> socket.socket:
    if sys.platform == "win32":
        return socket.fromshare(settings.shared)
    return socket.socket(fileno=settings.number)


def _stop_with_input(server: Server, loop: asyncio.AbstractEventLoop) -> None:
    while sys.stdin.buffer.readline():
        pass
    with suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(lambda: stopping.append(loop.create_task(_stop(server))))


async def _stop(server: Server) -> None:
    """Send the last changes and the end to open pages, then stop."""
    await server.app_state.changes.end()
    await asyncio.sleep(PASS_SECONDS)
    server.should_exit = True


stopping: list[asyncio.Task[None]] = []
"""The task that stops the server. An event loop holds no reference to its tasks."""


if __name__ == "__main__":
    main()

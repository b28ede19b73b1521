"""The web UI in a process of its own, beside a command that does something else. It ends with that command.

The first line on its standard input is its configuration. It listens on loopback, and writes its port to standard
output when it accepts requests. It ends when its standard input does.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec
from msgspec import Struct

from contextc.store import open_store
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.server import Server, create_server, listen

PASS_SECONDS = 0.3
"""Streams pass the last changes on in this time. The server ends them when it stops."""


class BackgroundSettings(Struct, frozen=True, kw_only=True):
    """The address of the store, the token that clients must send, and the working directory of tools."""

    store: str
    token: str
    root: str


class BackgroundReady(Struct, frozen=True, kw_only=True):
    """The line that reports a running server."""

    port: int


def main() -> None:
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=BackgroundSettings)
    options = ServerOptions(root=Path(settings.root), token=settings.token)
    with listen("127.0.0.1", 0) as listening, open_store(settings.store) as store:

        def announce() -> None:
            Thread(target=_stop_with_input, args=(server, asyncio.get_running_loop()), daemon=True).start()
            sys.stdout.buffer.write(msgspec.json.encode(BackgroundReady(port=listening.getsockname()[1])) + b"\n")
            sys.stdout.buffer.flush()

        server = create_server(create_application(store, options), announce)
        server.run([listening])


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

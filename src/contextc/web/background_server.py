"""The web UI in a process of its own, beside a command that does something else. It ends with that command.

The first line on its standard input is its configuration. It listens on loopback, and writes its port to standard
output when it accepts requests. It ends when its standard input does.
"""

import sys
from pathlib import Path
from threading import Thread

import msgspec
from msgspec import Struct

from contextc.store import open_store
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.server import Server, create_server, listen


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
            sys.stdout.buffer.write(msgspec.json.encode(BackgroundReady(port=listening.getsockname()[1])) + b"\n")
            sys.stdout.buffer.flush()

        server = create_server(create_application(store, options), announce)
        Thread(target=_stop_with_input, args=(server,), name="contextc-input", daemon=True).start()
        server.run([listening])


def _stop_with_input(server: Server) -> None:
    while sys.stdin.buffer.readline():
        pass
    server.should_exit = True


if __name__ == "__main__":
    main()

"""A real server for the browser tests: in a thread, or in a separate process that can be killed."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket

from starlette.applications import Starlette

import contextc as cc
from contextc.errors import InvalidSetting
from contextc.web import server
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.server import listen
from tests.forked_commands import CommandProcess, read_link
from tests.web.fast_polling import poll_fast

PATIENCE = 180.0
poll_fast()
ADDRESS = re.compile(r"http://[^/\s]+/")


@contextmanager
def served(store: cc.Store, options: ServerOptions) -> Generator[str]:
    """The address of a server, which runs as long as the block lasts."""
    with started(create_application(store, options)) as url:
        yield url


def _listening() -> socket:
    """A socket at a port of the tests before, so that a browser knows the files of the page already."""
    for port in _ports:
        with suppress(InvalidSetting):  # another server has it
            return listen("127.0.0.1", port)
    found = listen("127.0.0.1", 0)
    _ports.append(found.getsockname()[1])
    return found


_ports: list[int] = []


@contextmanager
def started(app: Starlette) -> Generator[str]:
    listening = _listening()
    port, running = listening.getsockname()[1], server.create_server(app)
    thread = threading.Thread(target=running.run, args=([listening],), name="server")
    thread.start()
    try:
        end = time.monotonic() + PATIENCE
        while not running.started and thread.is_alive() and time.monotonic() < end:
            time.sleep(0.001)
        assert running.started, "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"


class Process:
    """`contextc serve` as a process. A restarted server has the same `url`.

    `login` is the part of the printed link after it; each start creates a token unless one is given.
    """

    def __init__(self, folder: Path, *arguments: str, token: str = "") -> None:
        self._folder, self._arguments, self._port, self._token = folder, arguments, 0, token
        self._process: CommandProcess | None = None
        self.url = self.login = ""

    def start(self) -> None:
        address = ["--store", f"sqlite:///{self._folder}/served.db", "--root", str(self._folder)]
        self._process = CommandProcess(
            *["serve", "--no-open", "--port", str(self._port), *address, *self._arguments],
            stdout=subprocess.PIPE,
            cwd=self._folder,
            env={**os.environ, "CONTEXTC_TOKEN": self._token, "TMPDIR": str(self._folder)},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = ADDRESS.search(line)
        assert found is not None, f"it did not start: {line!r}"
        self.url = found[0].rstrip("/")
        self._port = int(self.url.rpartition(":")[2])
        link = read_link(self._process.stdout.readline())
        assert f"{self.url}/?token=" in link, f"it printed no link: {link!r}"
        self.login = "?token=" + link.partition("?token=")[2]

    def kill(self) -> None:
        """As a machine does that runs out of memory: silently."""
        self.end(signal.SIGKILL)

    def end(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

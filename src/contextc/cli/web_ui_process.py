"""The web UI in the background of another command: a process that ends with the command."""

import os
import secrets
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread
from types import TracebackType

import msgspec

START_SECONDS = 30.0
"""On a busy machine it takes several seconds. If the process ends, the wait ends, too."""
STOP_SECONDS = 20.0
PACKAGES = ("starlette", "uvicorn")
INSTALL_WEB = "pip install 'contextc[web]', or '.[web]' in a clone"


def is_web_installed() -> bool:
    return all([find_spec(name) is not None for name in PACKAGES])


class WebUIProcess:
    """A web UI on loopback with a token of its own. It starts at once; `wait_for_address` waits until it is ready."""

    def __init__(self, store: str) -> None:
        self.token = secrets.token_urlsafe(32)  # other users of this machine can reach the port
        self._process = subprocess.Popen(
            [sys.executable, "-m", "contextc.web.background_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals of the terminal are for the program that runs in it
        )
        settings = {"store": store, "token": self.token, "root": os.getcwd()}
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self._process.stdin.flush()

    def wait_for_address(self, seconds: float = START_SECONDS) -> str:
        """Return the address of the web UI, without its token; "" if it does not start."""
        assert self._process.stdout is not None
        lines: list[bytes] = []
        reading = Thread(target=lambda: lines.append(self._read_line()), daemon=True)
        reading.start()
        reading.join(seconds)
        return f"http://127.0.0.1:{msgspec.json.decode(lines[0])['port']}/" if lines and lines[0] else ""

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> "WebUIProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process. Its event streams end first."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

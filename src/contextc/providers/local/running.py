"""The server of the local model, seen from those who use it: find it, start it, stop it.

A folder holds what is known about the server of one model: `server.json` (port and key; only this user can read it),
`alive.lock` (held by the server for as long as it lives), `start.lock` (held by whoever looks or starts, so that two
who start at once start one), and its log. Nothing is believed because it is written: without a held `alive.lock` the
rest is left over, and is written anew. A server is stopped by taking `server.json` away; no process is ever killed but
the one that was started here and does not come up.
"""

import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from contextc._json import blob_name
from contextc.config import data_folder, make_private_folder
from contextc.errors import ProviderFailed
from contextc.providers.local.locks import held, is_held

PACKAGE_ROOT = Path(__file__).parents[3]
START_SECONDS = 120.0
STOP_SECONDS = 10.0
PAUSE = 0.02
LOG_LINES = 8
STARTING = "starting the local model …"
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")

_started: list[subprocess.Popen[bytes]] = []
"""Those that this process has started: kept, so that the system forgets them once they have ended."""


class Server(Struct, frozen=True, kw_only=True):
    """A server that runs: on loopback, for whoever has its key."""

    pid: int
    port: int
    key: str
    model: str
    window: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __repr__(self) -> str:
        return f"Server(pid={self.pid}, url={self.url!r}, model={self.model!r}, window={self.window})"


class Place(Struct, frozen=True):
    """The folder of one server."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "server.json"

    @property
    def alive(self) -> Path:
        return self.folder / "alive.lock"

    @property
    def starting(self) -> Path:
        return self.folder / "start.lock"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def read(self) -> Server | None:
        """What is written, whether it is true or not."""
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=Server)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, server: Server) -> None:
        """In one piece, and never readable to others."""
        draft = self.folder / f"server.{server.pid}.tmp"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(server))
        draft.replace(self.state)

    def running(self) -> Server | None:
        """The server, if it runs. To be asked while holding `starting`."""
        return self.read() if is_held(self.alive) else None


def place_for(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> Place:
    """Where the server of this model is kept. Homes may be shared between machines, servers are not."""
    name = blob_name(f"{socket.gethostname()}\n{model}\n{window}".encode())[-16:]
    folder = Path(data_folder(environment)) / "local" / name
    make_private_folder(str(folder))
    return Place(folder)


def ensure_server(
    model: Path,
    window: int,
    *,
    idle: float,
    progress: Callable[[str], None] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Server:
    """The server of this model, started if there is none. It stays for `idle` seconds from now, at least."""
    place = place_for(model, window, environment=environment)
    with held(place.starting, 2 * START_SECONDS):
        if (found := place.running()) is not None:
            os.utime(place.state)  # the server sees that it is wanted
            return found
        if progress is not None:
            progress(STARTING)
        return _start(place, model, window, idle, environment)


def running_server(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> Server | None:
    """The server of this model, if it runs."""
    place = place_for(model, window, environment=environment)
    with held(place.starting, 2 * START_SECONDS):
        return place.running()


def stop_server(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Ask the server of this model to stop, and wait for it. Whether none runs any more."""
    place = place_for(model, window, environment=environment)
    with held(place.starting, 2 * START_SECONDS):
        place.state.unlink(missing_ok=True)
        end = time.monotonic() + STOP_SECONDS
        while is_held(place.alive) and time.monotonic() < end:
            time.sleep(PAUSE)
        return not is_held(place.alive)


def _start(place: Place, model: Path, window: int, idle: float, environment: Mapping[str, str]) -> Server:
    place.state.unlink(missing_ok=True)
    _started[:] = [each for each in _started if each.poll() is None]
    command = [sys.executable, "-P", "-m", "contextc.providers.local.serve", place.folder, model, window, idle]
    with os.fdopen(os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.folder,
            env=_environment(environment),
            start_new_session=True,  # Ctrl-C in the terminal, or its end, is none of its business
            creationflags=_creation(),
        )
    _started.append(process)
    end = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if (found := place.read()) is not None:
            return found
        if time.monotonic() > end:
            process.kill()
            process.wait()
            raise _failed(place, f"it was not ready after {START_SECONDS:g} seconds", retry=True)
        time.sleep(PAUSE)
    raise _failed(place, f"it ended with {process.returncode}", retry=process.returncode < 0)


@atexit.register
def _leave() -> None:
    """A server outlives who started it, on purpose: Python is not to warn of that."""
    for process in _started:
        process.returncode = process.poll() or 0


def _failed(place: Place, what: str, *, retry: bool) -> ProviderFailed:
    lines = place.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
    said = "\n".join([f"the local model's server did not start: {what}. Its log ends:", *(lines or ["(nothing)"])])
    return ProviderFailed("local", "transient" if retry else "abort", said, way_out=f"The whole log: {place.log}")


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The server may live longer than whoever starts it, and has no use for anybody's keys."""
    kept = {name: value for name, value in environment.items() if not any(word in name for word in SECRET_WORDS)}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE_ROOT), kept.get("PYTHONPATH", "")]))}


def _creation() -> int:
    return subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0

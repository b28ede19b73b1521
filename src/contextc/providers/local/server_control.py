"""Control of the local model's server from client processes: find it, start it, stop it.

One folder per model holds the state of its server:
- `server.json`: port and key, readable only by this user
- `alive.lock`: held by the server while it runs
- `start.lock`: held by a client that looks up or starts the server, so that two clients start only one
- `server.log`: its log

If `alive.lock` is not held, the other files are stale and get replaced. A server is stopped by deleting `server.json`.
The only process that is ever killed is one that was started here and does not become ready.
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

from contextc._file_lock import hold_lock, is_locked
from contextc._json import hash_blob
from contextc.config import find_data_folder, make_private_folder
from contextc.errors import ProviderFailed

PACKAGE_ROOT = Path(__file__).parents[3]
START_SECONDS = 120.0
STOP_SECONDS = 10.0
PAUSE = 0.02
LOG_LINES = 8
STARTING = "starting the local model …"
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")

_started: list[subprocess.Popen[bytes]] = []
"""Servers that this process started: polled later, so that no zombie processes remain."""


class LocalServer(Struct, frozen=True, kw_only=True):
    """A running server. It listens on loopback and requires its key."""

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


class ServerFolder(Struct, frozen=True):
    """Folder with the state files of one server."""

    folder: Path

    @property
    def state_file(self) -> Path:
        return self.folder / "server.json"

    @property
    def alive_lock(self) -> Path:
        return self.folder / "alive.lock"

    @property
    def start_lock(self) -> Path:
        return self.folder / "start.lock"

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    def read_state(self) -> LocalServer | None:
        """Return the content of `server.json`, which may be stale. None if it cannot be read."""
        try:
            return msgspec.json.decode(self.state_file.read_bytes(), type=LocalServer)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write_state(self, server: LocalServer) -> None:
        """Write `server.json` atomically, readable only by this user."""
        draft = self.folder / f"server.{server.pid}.tmp"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(server))
        draft.replace(self.state_file)

    def find_running(self) -> LocalServer | None:
        """Return the server if it is running. The caller must hold `start_lock`."""
        return self.read_state() if is_locked(self.alive_lock) else None


def server_folder(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> ServerFolder:
    """Return the folder of this model's server. It includes the host name, as home folders may be shared."""
    name = hash_blob(f"{socket.gethostname()}\n{model}\n{window}".encode())[-16:]
    folder = Path(find_data_folder(environment)) / "local" / name
    make_private_folder(str(folder))
    return ServerFolder(folder)


def ensure_server(
    model: Path,
    window: int,
    *,
    idle: float,
    progress: Callable[[str], None] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> LocalServer:
    """Return the server of this model. Start it if none is running. It stays for at least `idle` seconds."""
    place = server_folder(model, window, environment=environment)
    with hold_lock(place.start_lock, 2 * START_SECONDS):
        if (found := place.find_running()) is not None:
            os.utime(place.state_file)  # tells the server that it is in use
            return found
        if progress is not None:
            progress(STARTING)
        return _start(place, model, window, idle, environment)


def running_server(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> LocalServer | None:
    """Return the server of this model if it is running."""
    place = server_folder(model, window, environment=environment)
    with hold_lock(place.start_lock, 2 * START_SECONDS):
        return place.find_running()


def stop_server(model: Path, window: int, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Stop the server of this model and wait for its end. Return True if none is running."""
    place = server_folder(model, window, environment=environment)
    with hold_lock(place.start_lock, 2 * START_SECONDS):
        place.state_file.unlink(missing_ok=True)
        end = time.monotonic() + STOP_SECONDS
        while is_locked(place.alive_lock) and time.monotonic() < end:
            time.sleep(PAUSE)
        return not is_locked(place.alive_lock)


def _start(place: ServerFolder, model: Path, window: int, idle: float, environment: Mapping[str, str]) -> LocalServer:
    place.state_file.unlink(missing_ok=True)
    _started[:] = [each for each in _started if each.poll() is None]
    command = [sys.executable, "-P", "-m", "contextc.providers.local.server_main", place.folder, model, window, idle]
    with os.fdopen(os.open(place.log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.folder,
            env=_environment(environment),
            start_new_session=True,  # unaffected by Ctrl-C and the end of the terminal
            creationflags=_creation(),
        )
    _started.append(process)
    end = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if (found := place.read_state()) is not None:
            return found
        if time.monotonic() > end:
            process.kill()
            process.wait()
            raise _start_failure(place, f"not ready after {START_SECONDS:g} s", retry=True)
        time.sleep(PAUSE)
    raise _start_failure(place, f"it exited with status {process.returncode}", retry=process.returncode < 0)


@atexit.register
def _silence_exit_warning() -> None:
    """Prevent Python's warning about running child processes: servers outlive this process on purpose."""
    for process in _started:
        process.returncode = process.poll() or 0


def _start_failure(place: ServerFolder, what: str, *, retry: bool) -> ProviderFailed:
    lines = place.log_file.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
    message = "\n".join([f"the local model's server did not start: {what}. End of its log:", *(lines or ["(empty)"])])
    return ProviderFailed(
        "local", "transient" if retry else "abort", message, way_out=f"See the complete log: {place.log_file}"
    )


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets, because the server outlives this process and needs none."""
    kept = {name: value for name, value in environment.items() if not any(marker in name for marker in SECRET_WORDS)}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE_ROOT), kept.get("PYTHONPATH", "")]))}


def _creation() -> int:
    return subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0

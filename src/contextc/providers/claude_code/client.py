"""Client for Claude Code: select or start the program for a call, and end idle programs.

A program can serve a call if it is at the call's cursor, in its directory, and has the same options. Otherwise it is
ended, and another is started from the session. Transcripts are kept in the given `store`, else in memory. Each session
runs one call at a time. An idle program is ended after a while. If there are too many, the longest idle one ends.
"""

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from contextc._credential_mask import mask_secrets
from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject
from contextc._worker_threads import run_in_thread
from contextc.errors import ContextcError, FailureKind, InvalidSetting, ProviderFailed
from contextc.formats.streams import make_note_event
from contextc.providers.anthropic import TABLE as ANTHROPIC
from contextc.providers.availability import with_login_fix
from contextc.providers.claude_code.call_options import ClaudeCallbacks, ClaudeCallOptions, parse_call_options
from contextc.providers.claude_code.sessions import ClaudeSessions, SessionStart, WriteOnlySessionStore, prepare_session
from contextc.providers.client import Endpoint, ProviderCall, check_env
from contextc.providers.error_mapping import ErrorTable, map_error
from contextc.providers.registry import Provider
from contextc.store import Store

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient, SessionStore


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Errors of Claude Code, mapped to `ProviderFailed`.
#
# A failure is reported by the last line of a turn (`is_error`, whatever the `subtype`), or by the end of the program.
# That line contains the API's error with its status. All other messages are the CLI's own.


MAX_MESSAGE_LENGTH = 600
SETTINGS_FIX = "Check the settings of the request."
LIMITS: dict[str, tuple[FailureKind, str]] = {
    "error_max_turns": ("abort", "The limit `max_turns` was reached: raise it, or send a smaller task."),
    "error_max_budget_usd": ("quota", "The budget `max_budget_usd` is used up: raise it."),
    "max_output_tokens": ("abort", "A reply was truncated four times: allow longer replies, cc.provider(…, output=…)."),
}
TABLE = ErrorTable(
    codes=ANTHROPIC.codes,
    patterns=(
        (r"No conversation found with session ID|not a valid session|Session ID .{0,200} is already in use", "session"),
        (r"Invalid API key|Not logged in|run /login|OAuth token|authentication_failed", "auth"),
        (r"usage limit reached|hit your .{0,200}limit", "quota"),
        *ANTHROPIC.patterns,
    ),
    types=ANTHROPIC.types,
)


def result_failure(provider: str, line: JSONObject, secrets: Iterable[str] = ()) -> ProviderFailed:
    """Return the failure for the last line of a turn."""
    subtype, errors = str(line.get("subtype") or ""), cast(list[JSON], line.get("errors") or [])
    message = "; ".join(map(str, errors)) if errors else str(line.get("result") or "")
    error = str(line.get("api_error_type") or line.get("api_error") or ("" if message else subtype))
    for limit in (subtype, error):
        if limit in LIMITS:
            kind, way_out = LIMITS[limit]
            return ProviderFailed(provider, kind, mask_secrets(message or limit, secrets), code=limit, way_out=way_out)
    status: JSON = line.get("api_error_status")
    body = {"error": {"type": error, "message": message}}
    return map_error(provider, TABLE, body, status=status if isinstance(status, int) else None, secrets=secrets)


def event_failure(provider: str, event: JSONObject) -> ProviderFailed:
    """Return the failure for a line that reports one: the last line of a turn, or an error of the API."""
    return result_failure(provider, event) if event.get("type") == "result" else map_error(provider, TABLE, event)


def exception_failure(
    provider: str, error: BaseException, stderr_lines: Collection[str], secrets: Iterable[str] = ()
) -> ContextcError:
    """Return the failure for an exception of the SDK.

    `stderr_lines` are the lines of the program's standard error. Such lines with exit status 1 mean invalid options.
    """
    import claude_agent_sdk as sdk

    if isinstance(error, ContextcError):
        return error
    if isinstance(error, sdk.ResultError):
        return result_failure(provider, error.data, secrets)
    message = mask_secrets(" ".join([str(error).partition("\n")[0], *stderr_lines]).strip(), secrets)[
        :MAX_MESSAGE_LENGTH
    ]
    if isinstance(error, sdk.CLINotFoundError):
        return InvalidSetting(
            f"{message} Install contextc[claude-code], which contains the program, or pass its path: cli_path=…."
        )
    if isinstance(error, sdk.ProcessError):
        found = map_error(provider, TABLE, f"the program ended: {message}")
        is_refused = found.kind == "transient" and error.exit_code == 1 and stderr_lines
        return ProviderFailed(provider, "invalid", found.said, way_out=SETTINGS_FIX) if is_refused else found
    if isinstance(error, sdk.CLIConnectionError) and ("Working directory" in message or "Failed to start" in message):
        return ProviderFailed(
            provider, "invalid", message, way_out="Check the directory, and that the program is executable."
        )
    return map_error(provider, TABLE, message or type(error).__name__)


# ── one program ───────────────────────────────────────────────────────────────────────────────────────────────────────
# One running Claude Code process, for any number of turns of one session.
#
# The SDK requires that a client is used by one task only. So each process has its own task, which takes prompts and
# returns the CLI's lines unchanged. If the caller leaves during a turn, the process is interrupted, and killed if it
# does not stop within two seconds. It also ends with the event loop.


GRACE_SECONDS = 1.5
STDERR_LINES = 8
NULL_HANDLER = logging.NullHandler()
"""Handler that keeps the SDK's log messages off the terminal. Handlers of the application still get them."""
LineQueue: TypeAlias = asyncio.Queue[JSONObject | Exception]


class ClaudeProcess:
    """A process that serves a session. It is in `running` while it runs.

    `cursors` are the UUIDs of the last turn's lines. Each of them is accepted as the cursor of the next call.
    """

    def __init__(self, provider: str, session: str, options: ClaudeCallOptions, running: "set[ClaudeProcess]") -> None:
        self.provider, self.session, self.call_options, self.running = provider, session, options, running
        self.secrets = tuple(filter(None, [options.env.get("ANTHROPIC_API_KEY")]))
        self.callbacks = ClaudeCallbacks()
        self.cursors: set[str] = set()
        self.is_over = self._is_busy = False
        self.pid = self._turns = 0
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._prompts: asyncio.Queue[tuple[JSONObject, LineQueue]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def start(self, **options: object) -> None:
        """Start the process. `options` name the session to start or resume."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(options, started), name=f"claude {self.session}")
        self.running.add(self)
        try:
            await started
        except BaseException:
            await self.end()
            raise

    async def run_turn(self, prompt: JSONObject, timeout: float | None) -> AsyncGenerator[JSONObject, None]:
        """Yield the lines of one turn. The last is its result. `timeout` applies while no tool runs."""
        outbox: LineQueue = asyncio.Queue()
        self._stay()
        self._prompts.put_nowait((prompt, outbox))
        self.cursors, at_work = set(), set[str]()
        while True:
            async with asyncio.timeout(None if at_work else timeout):
                line = await outbox.get()
            if isinstance(line, Exception):
                raise line
            if line.get("type") in ("user", "assistant") and not line.get("parent_tool_use_id"):
                self.cursors.add(line.get("uuid", ""))
                # `at_work` holds the calls of running tools.
                content: JSON = line["message"].get("content")
                for block in cast(list[JSONObject], content) if isinstance(content, list) else ():
                    if block.get("type") == "tool_use":
                        at_work.add(block["id"])
                    elif block.get("type") == "tool_result":
                        at_work.discard(block["tool_use_id"])
            is_last = line.get("type") == "result"
            if is_last and line.get("result_index", self._turns) != self._turns:
                raise ProviderFailed(self.provider, "transient", "Claude Code started a turn that was not requested")
            yield line
            if is_last:
                self._turns += 1
                return

    def end_after(self, seconds: float) -> None:
        """End the process after `seconds`, unless another turn starts before."""
        self._stay()
        self._idle = asyncio.get_running_loop().call_later(seconds, self._leave)

    async def end(self) -> None:
        """End the process and wait until it is gone."""
        self._leave()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _leave(self) -> None:
        self._stay()
        if self._task is not None and not self.is_over:
            self._task.cancel()
        self.is_over = True

    async def _run(self, options: JSONObject, started: asyncio.Future[None]) -> None:
        from claude_agent_sdk import CanUseToolShadowedWarning, ClaudeSDKClient

        warnings.filterwarnings(
            "ignore", category=CanUseToolShadowedWarning
        )  # our allowed tools need no approval, on purpose
        logging.getLogger("claude_agent_sdk").addHandler(NULL_HANDLER)
        outbox: LineQueue | None = None
        client = ClaudeSDKClient(
            self.call_options.to_sdk_options(self.callbacks, stderr=self._stderr_lines.append, **options)
        )
        try:
            await client.connect()
            self.pid = _process_of(client).pid
            started.set_result(None)
            while True:
                prompt, outbox = await self._prompts.get()
                self._is_busy = True
                await self._ask(client, prompt, outbox)
                self._is_busy = False
        except asyncio.CancelledError:
            _report_error(started, outbox, ProviderFailed(self.provider, "abort", "the program was ended"))
        except Exception as error:
            _report_error(started, outbox, exception_failure(self.provider, error, self._stderr_lines, self.secrets))
        finally:
            self.is_over = True  # from here on this task is not cancelled again
            try:
                await self._end(client)
            finally:
                self.running.discard(self)

    async def _ask(self, client: "ClaudeSDKClient", prompt: JSONObject, outbox: LineQueue) -> None:
        async def one() -> AsyncGenerator[dict[str, Any], None]:
            yield {"type": "user", "message": prompt, "parent_tool_use_id": None}

        await client.query(one())
        async for line in _reply_lines(client):
            outbox.put_nowait(line)
            if line.get("type") == "result":
                return
        raise EOFError("the program ended during a turn")

    async def _end(self, client: "ClaudeSDKClient") -> None:
        """Interrupt a running turn, then end the process: it exits when its input is closed, or is killed."""
        process = _process_of(client)
        killing = asyncio.get_running_loop().call_later(GRACE_SECONDS, _kill, process)
        try:
            if self._is_busy:
                with suppress(Exception, asyncio.CancelledError):
                    async with asyncio.timeout(GRACE_SECONDS / 2):
                        await client.interrupt()
            await _disconnect(client)
        finally:
            killing.cancel()
            _kill(process)


async def _disconnect(client: "ClaudeSDKClient") -> None:
    """Disconnect the SDK's client. A loop that ends cancels every task once, also this one.

    Then the disconnect is repeated, or streams and pipes would stay open.
    """
    for _ in range(2):
        with suppress(asyncio.CancelledError):
            with suppress(Exception):
                await client.disconnect()
            return


def _report_error(started: asyncio.Future[None], outbox: LineQueue | None, error: Exception) -> None:
    if not started.done():
        started.set_exception(error)
    elif outbox is not None:
        outbox.put_nowait(error)


def _reply_lines(client: Any) -> AsyncGenerator[JSONObject, None]:
    """Return the CLI's lines unchanged, through a private name of the SDK. Its classes drop unknown fields."""
    return client._query.receive_messages()


def _process_of(client: Any) -> Any:
    """Return the process, through private names. The SDK itself would wait ten seconds before killing it."""
    return getattr(client._transport, "_process", None)


def _kill(process: Any) -> None:
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


# ── client ────────────────────────────────────────────────────────────────────────────────────────────────────────────


IDLE_SECONDS = 300.0
MAX_PROGRAMS = 4
RETRIES = 2
"""API retries of the CLI, whose own default takes minutes. They are needed, because the caller can only repeat a whole
turn, and a transient error may occur after many steps."""


class ClaudeCodeEndpoint(Endpoint):
    """Client for Claude Code.

    `store`, `env` and `timeout` are options of every CLI agent. `prompt="replace"` replaces Claude Code's system prompt
    by ours. `retries` limits the CLI's API retries. At most `programs` idle programs are kept, each for `idle` seconds.
    `cli_path` is the path of another program than the SDK's.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        store: object = None,
        env: object = None,
        timeout: object = None,
        prompt: object = "append",
        retries: object = RETRIES,
        programs: object = MAX_PROGRAMS,
        idle: object = IDLE_SECONDS,
        cli_path: object = None,
    ) -> None:
        self.provider, self.store, self.prompt, self.cli_path = provider, cast(Store | None, store), prompt, cli_path
        self.env = check_env(env)
        self.timeout = None if timeout is None else _number("timeout", timeout)
        self.idle, self.retries = _number("idle", idle), int(_number("retries", retries))
        self.programs = int(_number("programs", programs))
        self._in_memory: SessionStore | None = None
        self._begin(None)

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._begin(loop)  # programs end with the loop that started them
        if self._in_memory is None:
            self._in_memory = await run_in_thread(_load_sdk)
        asked = parse_call_options(call, prompt=cast(str, self.prompt), retries=self.retries, env=self.env)
        session = call.session or str(uuid4())
        lock = self._locks.setdefault(session, asyncio.Lock())
        async with lock, aclosing(self._answer(call, asked, session)) as lines:
            async for line in lines:
                yield line

    async def close(self) -> None:
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*(live.end() for live in list(self.running)))
        self._begin(None)

    async def _answer(
        self, call: ProviderCall, asked: ClaudeCallOptions, session: str
    ) -> AsyncGenerator[JSONObject, None]:
        live = self._live.pop(session, None)
        if live is not None and not _serves(live, call, asked):
            await live.end()
            live = None
        if live is None:
            start = await prepare_session(call, asked, session, self._sessions(call))
            for text in start.notes:
                yield make_note_event(text)
            for line in start.lines:
                yield line
            if start.lines:
                return
            live = await self._started(call, asked, start)
        async with aclosing(self._asked(live, call, asked)) as lines:
            async for line in lines:
                yield line

    async def _asked(
        self, live: ClaudeProcess, call: ProviderCall, asked: ClaudeCallOptions
    ) -> AsyncGenerator[JSONObject, None]:
        """Run one turn. If it fails, the program is ended, because its session may contain the failed prompt."""
        is_whole, live.callbacks.host = False, call.host
        timeout = self.timeout if call.timeout is None else call.timeout
        try:
            async with aclosing(live.run_turn(asked.prompt, timeout)) as lines:
                async for line in lines:
                    yield _line_or_note(line)
                    if line.get("type") == "result" and line.get("is_error"):
                        raise with_login_fix(result_failure(call.provider.name, line, live.secrets), call.provider)
            is_whole = True
        except TimeoutError:
            raise ProviderFailed(call.provider.name, "transient", f"no data received for {timeout:g} s") from None
        finally:
            live.callbacks.host = None
            if is_whole and not live.is_over:
                self._keep(live)
            else:
                await live.end()

    async def _started(self, call: ProviderCall, asked: ClaudeCallOptions, start: SessionStart) -> ClaudeProcess:
        live = ClaudeProcess(call.provider.name, start.session, asked, self.running)
        store = WriteOnlySessionStore(self._sessions(call)) if start.is_local else self._sessions(call)
        await live.start(**start.options, session_store=store, cli_path=self.cli_path)
        return live

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._live: dict[str, ClaudeProcess] = {}
        self.running: set[ClaudeProcess] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _keep(self, live: ClaudeProcess) -> None:
        """Keep a program for the next call, and end the longest idle ones if there are too many."""
        self._live[live.session] = live
        live.end_after(self.idle)
        for session in list(self._live)[: max(len(self._live) - self.programs, 0)]:
            self._live.pop(session).end_after(0)

    def _sessions(self, call: ProviderCall) -> "SessionStore":
        """Return the store of transcripts. Those without a conversation stay in memory, so that none are left over."""
        if self.store is not None and call.conversation:
            return cast("SessionStore", ClaudeSessions(self.store, call.conversation))
        assert self._in_memory is not None
        return self._in_memory


def _serves(live: ClaudeProcess, call: ProviderCall, asked: ClaudeCallOptions) -> bool:
    has_cursor = not call.cursor or call.cursor in live.cursors
    return (
        has_cursor
        and not call.revert
        and not asked.history
        and not live.is_over
        and live.call_options.process_key == asked.process_key
    )


def _line_or_note(line: JSONObject) -> JSONObject:
    """Return the CLI's line, or a note for the manifest in place of a line about retries or transcripts."""
    match line.get("subtype") if line.get("type") == "system" else "":
        case "api_retry":
            known = [line.get(name) for name in ("error_status", "error")]
            why = " ".join(str(each) for each in known if each and each != "unknown")
            return make_note_event(f"Claude Code retried its API request ({why or 'connection lost'}).")
        case "mirror_error":
            return make_note_event(f"The transcript of the session could not be written: {line.get('error')}")
        case _:
            return line


def _load_sdk() -> "SessionStore":
    """Import the SDK, which is slow, and return an in-memory store of sessions."""
    with importing("claude-agent-sdk", extra="claude-code"):
        from claude_agent_sdk import InMemorySessionStore
    return InMemorySessionStore()


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InvalidSetting(f"{name}: must be a number of 0 or more", got=value)
    return value

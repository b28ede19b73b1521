"""One running Claude Code process, for any number of turns of one session.

The SDK requires that a client is used by one task only. So each process has its own task, which takes prompts and
returns the CLI's lines unchanged. If the caller leaves during a turn, the process is interrupted, and killed if it does
not stop within two seconds. It also ends with the event loop.
"""

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from contextc._json import JSON, JSONObject
from contextc.errors import ProviderFailed
from contextc.providers.claude_code.call_options import ClaudeCallOptions
from contextc.providers.claude_code.callbacks import ClaudeCallbacks
from contextc.providers.claude_code.errors import exception_failure

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient

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
                _follow(line, at_work)
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
            self.pid = _process(client).pid
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
        async for line in _lines(client):
            outbox.put_nowait(line)
            if line.get("type") == "result":
                return
        raise EOFError("the program ended during a turn")

    async def _end(self, client: "ClaudeSDKClient") -> None:
        """Interrupt a running turn, then end the process: it exits when its input is closed, or is killed."""
        process = _process(client)
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


def _follow(line: JSONObject, at_work: set[str]) -> None:
    """Update the set of running tools from a line."""
    content: JSON = line["message"].get("content")
    for block in cast(list[JSONObject], content) if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            at_work.add(block["id"])
        elif block.get("type") == "tool_result":
            at_work.discard(block["tool_use_id"])


def _report_error(started: asyncio.Future[None], outbox: LineQueue | None, error: Exception) -> None:
    if not started.done():
        started.set_exception(error)
    elif outbox is not None:
        outbox.put_nowait(error)


def _lines(client: Any) -> AsyncGenerator[JSONObject, None]:
    """Return the CLI's lines unchanged, through a private name of the SDK. Its classes drop unknown fields."""
    return client._query.receive_messages()


def _process(client: Any) -> Any:
    """Return the process, through private names. The SDK itself would wait ten seconds before killing it."""
    return getattr(client._transport, "_process", None)


def _kill(process: Any) -> None:
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()

"""One running CLI, for any number of turns of one session.

The SDK wants all that is done with a client to be done in one task, so a program has a task of its own: it is handed
prompts, and hands back the CLI's lines as they came. Whoever loses interest in the middle of a turn ends the program:
it is asked to stop, and killed where it does not within a second or two. It also ends with the event loop.
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
from contextc.providers.claude_code.failing import failed
from contextc.providers.claude_code.serving import Serving
from contextc.providers.claude_code.wish import Wish

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient

GRACE_SECONDS = 1.5
HEARD_LINES = 8
SILENT = logging.NullHandler()
"""The SDK's complaints reach whoever listens to its logger, and not the terminal."""
Outbox: TypeAlias = asyncio.Queue[JSONObject | Exception]


class Live:
    """A program that runs for a session, and is in `running` meanwhile.

    `stands` are the names of its last turn's lines; it stands at the last of them.
    """

    def __init__(self, provider: str, session: str, wish: Wish, running: "set[Live]") -> None:
        self.provider, self.session, self.wish, self.running = provider, session, wish, running
        self.secrets = tuple(filter(None, [wish.env.get("ANTHROPIC_API_KEY")]))
        self.serving = Serving()
        self.stands: set[str] = set()
        self.is_over = self._is_busy = False
        self.pid = self._turns = 0
        self._heard: deque[str] = deque(maxlen=HEARD_LINES)
        self._prompts: asyncio.Queue[tuple[JSONObject, Outbox]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def start(self, **options: object) -> None:
        """Start the program. `options` say which session it begins or resumes."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(options, started), name=f"claude {self.session}")
        self.running.add(self)
        try:
            await started
        except BaseException:
            await self.end()
            raise

    async def turn(self, prompt: JSONObject, timeout: float | None) -> AsyncGenerator[JSONObject, None]:
        """The lines of one turn; the last one is its result. `timeout` is between two lines, where no tool runs."""
        outbox: Outbox = asyncio.Queue()
        self._stay()
        self._prompts.put_nowait((prompt, outbox))
        self.stands, at_work = set(), set[str]()
        while True:
            async with asyncio.timeout(None if at_work else timeout):
                line = await outbox.get()
            if isinstance(line, Exception):
                raise line
            if line.get("type") in ("user", "assistant") and not line.get("parent_tool_use_id"):
                self.stands.add(line.get("uuid", ""))
                _follow(line, at_work)
            is_last = line.get("type") == "result"
            if is_last and line.get("result_index", self._turns) != self._turns:
                raise ProviderFailed(self.provider, "transient", "the program took up work that nobody gave it")
            yield line
            if is_last:
                self._turns += 1
                return

    def rest(self, seconds: float) -> None:
        """Wait for another turn; end where none comes."""
        self._stay()
        self._idle = asyncio.get_running_loop().call_later(seconds, self._leave)

    async def end(self) -> None:
        """End the program, and come back when it is gone."""
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

        warnings.filterwarnings("ignore", category=CanUseToolShadowedWarning)  # that nobody is asked is what was meant
        logging.getLogger("claude_agent_sdk").addHandler(SILENT)
        outbox: Outbox | None = None
        client = ClaudeSDKClient(self.wish.settled(self.serving, stderr=self._heard.append, **options))
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
            _tell(started, outbox, ProviderFailed(self.provider, "abort", "the program was ended"))
        except Exception as error:
            _tell(started, outbox, failed(self.provider, error, self._heard, self.secrets))
        finally:
            self.is_over = True  # from here on nobody cancels this task any more
            try:
                await self._end(client)
            finally:
                self.running.discard(self)

    async def _ask(self, client: "ClaudeSDKClient", prompt: JSONObject, outbox: Outbox) -> None:
        async def one() -> AsyncGenerator[dict[str, Any], None]:
            yield {"type": "user", "message": prompt, "parent_tool_use_id": None}

        await client.query(one())
        async for line in _lines(client):
            outbox.put_nowait(line)
            if line.get("type") == "result":
                return
        raise EOFError("the program ended in the middle of a turn")

    async def _end(self, client: "ClaudeSDKClient") -> None:
        """Stop a turn that is under way, then the program: it leaves when its input is closed, or is killed."""
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
    """Close all that the SDK has open. A loop that ends cancels every task once, also one that is just doing this: then
    it is done again from the beginning, or streams and pipes would be left open."""
    for _ in range(2):
        with suppress(asyncio.CancelledError):
            with suppress(Exception):
                await client.disconnect()
            return


def _follow(line: JSONObject, at_work: set[str]) -> None:
    """Which tools are at work after this line."""
    content: JSON = line["message"].get("content")
    for block in cast(list[JSONObject], content) if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            at_work.add(block["id"])
        elif block.get("type") == "tool_result":
            at_work.discard(block["tool_use_id"])


def _tell(started: asyncio.Future[None], outbox: Outbox | None, error: Exception) -> None:
    if not started.done():
        started.set_exception(error)
    elif outbox is not None:
        outbox.put_nowait(error)


def _lines(client: Any) -> AsyncGenerator[JSONObject, None]:
    """The CLI's lines as they came. The SDK's own classes leave out what they do not know, so the lines are taken where
    the SDK takes them: by a private name."""
    return client._query.receive_messages()


def _process(client: Any) -> Any:
    """The process, by private names: the SDK itself would wait for ten seconds before it kills one."""
    return getattr(client._transport, "_process", None)


def _kill(process: Any) -> None:
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()

"""Client for Claude Code: select or start the program for a call, and end idle programs.

A program can serve a call if it is at the call's cursor, in its directory, and has the same options. Otherwise it is
ended, and another is started from the session. Transcripts are kept in the given `store`, else in memory. Each session
runs one call at a time. An idle program is ended after a while. If there are too many, the longest idle one ends.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from contextc._installed_packages import importing
from contextc._json import JSONObject
from contextc._worker_threads import run_in_thread
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.formats.stream import note_event
from contextc.providers.claude_code.call_options import ClaudeCallOptions, parse_call_options
from contextc.providers.claude_code.errors import result_failure
from contextc.providers.claude_code.process import ClaudeProcess
from contextc.providers.claude_code.session_setup import SessionStart, prepare_session
from contextc.providers.claude_code.transcript_splitting import WriteOnlySessionStore
from contextc.providers.cli_agent_discovery import with_login_fix
from contextc.providers.client import Endpoint, ProviderCall, check_env
from contextc.providers.registry import Provider
from contextc.store import Store

if TYPE_CHECKING:
    from claude_agent_sdk import SessionStore

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
                yield note_event(text)
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
            from contextc.providers.claude_code.session_store import ClaudeSessions

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
            return note_event(f"Claude Code retried its API request ({why or 'connection lost'}).")
        case "mirror_error":
            return note_event(f"The transcript of the session could not be written: {line.get('error')}")
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

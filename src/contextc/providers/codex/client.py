"""Client for Codex: one program for all calls of an endpoint, and one call per thread at a time.

The program is started by the first call. It is restarted if it died or the environment changed. It ends after an idle
time, when the endpoint is closed, or with its event loop.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import cast

from contextc._credential_mask import mask_secrets
from contextc._json import JSONObject
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.formats.streams import make_note_event
from contextc.providers.availability import with_login_fix
from contextc.providers.client import Endpoint, ProviderCall, check_env
from contextc.providers.codex.app_server import (
    AppServer,
    LaunchConfig,
    ProgramEnded,
    RequestRejected,
    exit_failure,
    request_failure,
)
from contextc.providers.codex.call_options import CodexCallOptions, parse_call_options
from contextc.providers.codex.threads import ThreadManager
from contextc.providers.codex.turns import CodexTurn, recorded_events
from contextc.providers.registry import Provider

THREAD_SECONDS, PROGRAM_SECONDS = 10.0, 300.0
RETRIES, USER_CONFIG_RETRIES = 2, 10
"""Maximum retries of Codex: with a URL or key of the provider, and with the user's own configuration."""


class RunningProgram:
    """A running program with its launch options and threads."""

    def __init__(self, launch: LaunchConfig, server: AppServer, threads: ThreadManager) -> None:
        self.launch, self.server, self.threads = launch, server, threads
        self.idle_timer: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        self.threads.clear()
        await self.server.close()


class CodexEndpoint(Endpoint):
    """Client for Codex.

    `idle` is the number of seconds for which a thread stays loaded after a turn. `program` is the path of another
    `codex` than the package's. `retries` limits its API retries if a URL or a key is given; otherwise its own
    configuration applies.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        timeout: float | None = None,
        env: object = None,
        store: object = None,  # unused: Codex stores its threads itself
        program: str = "",
        idle: float = THREAD_SECONDS,
        retries: int = RETRIES,
    ) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(cast(object, timeout), int | float)):
            raise InvalidSetting("timeout: must be a number of seconds", got=timeout)
        if isinstance(retries, bool) or not isinstance(cast(object, retries), int) or retries < 0:
            raise InvalidSetting("retries: must be an integer of 0 or more", got=retries)
        if provider.url and not provider.url.startswith(("http://", "https://")):
            raise InvalidSetting("url: must start with http:// or https://", got=mask_secrets(provider.url))
        self.provider, self.timeout, self.program, self.idle = provider, timeout, program, idle
        self.env = check_env(env)
        self.retries = retries
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: AsyncGenerator[None, None] | None = None
        self._running: RunningProgram | None = None
        self._older: list[RunningProgram] = []
        self._starting, self._locks, self._wanted = asyncio.Lock(), dict[str, asyncio.Lock](), Counter[str]()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """Process id of the program, or None if it is not running."""
        running = self._running
        return running.server.process.pid if running is not None and running.server.is_alive else None

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        await self._on_this_loop()
        wanted = parse_call_options(call)
        async with self._alone(wanted.session):
            running = await self._started()
            try:
                async with aclosing(self._called(running, call, wanted)) as events:
                    async for event in events:
                        yield event
            except RequestRejected as refused:
                raise request_failure(self.provider.name, str(refused), self._secrets()) from None
            except ProgramEnded as ended:
                raise exit_failure(self.provider.name, ended, self._secrets()) from None
            except ProviderFailed as failed:
                raise with_login_fix(failed, self.provider) from None
            except TimeoutError:
                raise ProviderFailed(self.provider.name, "transient", "the program does not respond") from None
            finally:
                running.server.active_calls -= 1
                self._rest(running)

    async def close(self) -> None:
        found, self._open = self._open, None
        if found is not None and self._loop is asyncio.get_running_loop():
            await found.aclose()
        self._loop = None

    async def _called(
        self, running: RunningProgram, call: ProviderCall, wanted: CodexCallOptions
    ) -> AsyncGenerator[JSONObject, None]:
        threads = running.threads
        opened = await threads.open(wanted)
        try:
            for each in opened.notes:
                yield make_note_event(each)
            if opened.recorded_turn is not None:
                for event in recorded_events(opened):
                    yield event
                return
            threads.mark_sending(opened.id)
            turn = CodexTurn(
                running.server,
                call,
                opened.id,
                path=threads.loaded[opened.id].path,
                max_retries=self.retries if self.provider.url or self.provider.key else USER_CONFIG_RETRIES,
                timeout=call.timeout if call.timeout is not None else self.timeout,
                secrets=self._secrets(),
            )
            async with aclosing(turn.run(wanted)) as events:
                async for event in events:
                    if event.get("method") == "turn/completed" and event["params"]["turn"]["status"] == "completed":
                        threads.mark_complete(opened.id, turn.id)
                    yield event
        finally:
            await asyncio.shield(threads.schedule_unload(opened.id))

    async def _started(self) -> RunningProgram:
        """Return the running program and count one more user. Start it if needed."""
        async with self._starting:
            launch = LaunchConfig.for_provider(self.provider, self.env, self.program, self.retries)
            running = self._running
            if running is None or not running.server.is_alive or running.launch != launch:
                if running is not None:
                    # Replaced: it is closed after its running calls have ended.
                    if running.server.active_calls:
                        self._older.append(running)
                    else:
                        self._close_soon(running)
                running = self._running = await self._start(launch)
            if running.idle_timer is not None:
                running.idle_timer.cancel()
                running.idle_timer = None
            running.server.active_calls += 1
            return running

    async def _start(self, launch: LaunchConfig) -> RunningProgram:
        try:
            server = await AppServer.start(launch.command, launch.environment)
            await self._check_login(server)
        except ProgramEnded as ended:
            raise exit_failure(self.provider.name, ended, self._secrets(), at_once=True) from None
        except TimeoutError:
            raise ProviderFailed(self.provider.name, "transient", "the program did not start in time") from None
        except OSError as error:
            raise InvalidSetting(f"{launch.command[0]}: the program does not start: {error}") from None
        except RequestRejected as refused:
            raise request_failure(self.provider.name, str(refused), self._secrets()) from None
        return RunningProgram(launch, server, ThreadManager(self.provider.name, server, self.idle))

    async def _check_login(self, server: AppServer) -> None:
        """Raise a failure if the user is not logged in. Codex itself would first retry its API for a long time."""
        try:
            found = await server.request("account/read", {})
            if found.get("account") is None and found.get("requiresOpenaiAuth"):
                raise with_login_fix(ProviderFailed(self.provider.name, "auth", "not logged in"), self.provider)
        except RequestRejected:
            return  # the turn will report it
        except BaseException:
            await server.close()
            raise

    def _rest(self, running: RunningProgram) -> None:
        if running.server.active_calls:
            return
        if running in self._older:
            self._older.remove(running)
            self._close_soon(running)
        elif running is self._running and self._loop is not None:
            seconds = max(PROGRAM_SECONDS, self.idle)
            running.idle_timer = self._loop.call_later(seconds, self._close_soon, running)

    def _close_soon(self, running: RunningProgram) -> None:
        if running is self._running:
            self._running = None
        task = asyncio.get_running_loop().create_task(running.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @asynccontextmanager
    async def _alone(self, session: str) -> AsyncGenerator[None, None]:
        """Hold the lock of a thread. A new thread needs none."""
        if not session:
            yield
            return
        self._wanted[session] += 1
        try:
            async with self._locks.setdefault(session, asyncio.Lock()):
                yield
        finally:
            self._wanted[session] -= 1
            if not self._wanted[session]:
                del self._wanted[session], self._locks[session]

    async def _on_this_loop(self) -> None:
        """Drop the program if the event loop has changed, because it belongs to one loop."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._open = loop, self._until_the_loop_ends()
            self._running, self._starting = None, asyncio.Lock()
            self._older, self._locks, self._wanted = [], {}, Counter[str]()
            await anext(self._open)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """Close all programs when the loop ends: a loop closes its async generators at shutdown."""
        try:
            yield
        finally:
            running, self._running = self._running, None
            for each in [*self._older, *filter(None, [running])]:
                await each.close()
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _secrets(self) -> tuple[str, ...]:
        environment = self._running.launch.environment if self._running is not None else self.env
        return tuple(filter(None, [environment.get(self.provider.key, "").strip()])) if self.provider.key else ()

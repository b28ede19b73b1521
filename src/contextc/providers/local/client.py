"""Client for the local model: start its server if needed, then send the request over HTTP.

Three formats are supported: OpenAI's Chat Completions, OpenAI's Responses, and Anthropic's Messages. Each call checks
that the server is still running, which takes less than a millisecond.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc._worker_threads import run_in_thread
from contextc.config import Settings, read_settings
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.anthropic import AnthropicEndpoint
from contextc.providers.client import Endpoint, ProviderCall
from contextc.providers.http_client import HTTPEndpoint
from contextc.providers.local.model_path import check_installed, find_model_file
from contextc.providers.local.server_control import LocalServer, ensure_server
from contextc.providers.openai import OpenAIEndpoint
from contextc.providers.registry import Provider

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

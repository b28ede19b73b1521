"""The vendor's share: as many calls through Anthropic's SDK alone, given bytes of the size that contextc sends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from converters import Said
from trimmers import Ours
from turns.script import DONE, Asked, anthropic_streams, streaming


class Subject:
    stores = "nothing"

    def __init__(self, folder: Path) -> None:
        from anthropic import AsyncAnthropic, AsyncStream

        self.transport = streaming()
        http_client = httpx2.AsyncClient(transport=self.transport)
        self._client = AsyncAnthropic(api_key="none", max_retries=0, http_client=http_client)
        self._stream_class: Any = AsyncStream[object]
        self._runner = asyncio.Runner()
        self._body, self._count = b"", 0

    def fill(self, history: Sequence[Said]) -> None:
        ours = Ours("memory:")
        ours.fill(history)
        self._body = ours.compiled().body
        ours.close()

    def prepare(self, script: Sequence[Asked]) -> None:
        self.transport.expect(anthropic_streams(script))
        self._count = len(script) + 1

    def turn(self) -> str:
        return DONE if self._runner.run(self._called(self._count)).endswith(b"\n\n") else ""

    async def _called(self, count: int) -> bytes:
        reply = b""
        for _ in range(count):
            stream = await self._client.post(
                "/v1/messages", content=self._body, cast_to=object, stream=True, stream_cls=self._stream_class
            )
            reply = b"".join([piece async for piece in stream.response.aiter_bytes()])
            await stream.response.aclose()
        return reply

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

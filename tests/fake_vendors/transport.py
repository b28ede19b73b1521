"""In-process transport to the fake vendors, for the HTTP client that the SDKs use.

It performs the same responses without a network. Connection faults become the exceptions that the client's own
transport would raise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2

from contextc._json import JSONObject
from tests.fake_vendors.request_handler import RequestHandler
from tests.fake_vendors.responses import Drop, FakeResponse, Pause, RequestRecord, Silence
from tests.fake_vendors.server import head_of


class Transport(httpx2.AsyncBaseTransport):
    """`httpx2.AsyncClient(transport=standin.transport())`"""

    def __init__(self, desk: RequestHandler, refuses: Callable[[], bool]) -> None:
        self.desk, self.refuses = desk, refuses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.refuses():
            raise httpx2.ConnectError("All connection attempts failed", request=request)
        target = request.url.raw_path.decode()
        answer, record = self.desk.answer(head_of(request.method, target, request.headers.raw), await request.aread())
        steps = Steps(answer, record, request)
        if not answer.status:
            async for _ in steps:
                pass
        return httpx2.Response(answer.status, headers=list(answer.announced), stream=steps)


class Steps(httpx2.AsyncByteStream):
    """Stream of a response body."""

    def __init__(self, answer: FakeResponse, record: RequestRecord, request: httpx2.Request) -> None:
        self.answer, self.record, self.request = answer, record, request

    async def aclose(self) -> None:
        self.record.over()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number, step in enumerate(self.answer.steps, 1):
            if number == len(self.answer.steps):
                self.record.sent()  # a client may stop reading at the last event
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Silence):
                await self.silence()
            else:
                raise self.dropped(step)

    async def silence(self) -> None:
        """Wait until the client's timeout, or forever if it has none."""
        patience = cast(JSONObject, self.request.extensions.get("timeout") or {}).get("read")
        await asyncio.sleep(1e9 if patience is None else patience)
        raise httpx2.ReadTimeout("", request=self.request)

    def dropped(self, drop: Drop) -> Exception:
        if drop.reset:
            return httpx2.ReadError("", request=self.request)
        if not self.answer.status:
            return httpx2.RemoteProtocolError("Server disconnected without sending a response.", request=self.request)
        text = "peer closed connection without sending complete message body (incomplete chunked read)"
        return httpx2.RemoteProtocolError(text, request=self.request)

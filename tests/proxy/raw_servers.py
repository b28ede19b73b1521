"""A raw HTTP upstream, a raw client, and a relay, all on the running event loop."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextc.proxy.access_checks import AccessRules
from contextc.proxy.http1_framing import HEAD_END, parse_head, request_body
from contextc.proxy.relay import Relay, Timeouts
from contextc.proxy.spool import GapLog, Spool, SpooledExchange, SpoolLimits, SpoolReader
from contextc.proxy.upstreams import parse_upstream

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[["RawConnection", bytes], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMIT = 1 << 20


class RawConnection:
    """One connection of the upstream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read_request(self) -> bytes:
        """Return the raw bytes of one request; b"" at the end."""
        try:
            head = await self.reader.readuntil(HEAD_END)
        except asyncio.IncompleteReadError:
            return b""
        raw = [head]
        body = request_body(parse_head(head.removesuffix(HEAD_END)))
        while not body.is_done:
            data = await self.reader.read(65_536)
            if not data:
                return b""
            assert body.feed(data) == len(data), "one request at a time"
            raw.append(data)
        return b"".join(raw)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


async def answer_ok(connection: RawConnection, request: bytes) -> None:
    await connection.send(OK)


class RawUpstream:
    """An upstream that keeps the bytes it received. `handler` answers one request, `whole` serves a connection."""

    def __init__(
        self,
        handler: Handler = answer_ok,
        *,
        whole: Callable[[RawConnection], Awaitable[None]] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.context = context
        self.handler, self.whole, self.requests, self.connections = handler, whole, list[bytes](), 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> "RawUpstream":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next iteration

    @property
    def url(self) -> str:
        return f"http{'s' if self.context else ''}://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = RawConnection(reader, writer)
        try:
            if self.whole is not None:
                await self.whole(connection)
                return
            while request := await connection.read_request():
                self.requests.append(request)
                await self.handler(connection, request)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


class RelayFixture:
    """A relay to one upstream, named `up`, with a spool."""

    def __init__(self, relay: Relay, port: int, spool: Spool, gaps: GapLog) -> None:
        self.relay, self.port, self.spool, self.gaps = relay, port, spool, gaps

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)

    async def send(self, raw: bytes) -> bytes:
        """Send one request on a connection of its own, and return all bytes until the end."""
        reader, writer = await self.connect()
        writer.write(raw)
        try:
            return await reader.read()
        finally:
            writer.close()

    def recorded(self) -> list[SpooledExchange]:
        """Close the spool, and return its exchanges."""
        self.spool.close()
        reader = SpoolReader(self.spool.folder)
        return [*reader.read(), *reader.read_unfinished()]


@asynccontextmanager
async def running_relay(
    upstream: str,
    folder: Path,
    *,
    access: AccessRules | None = None,
    timeouts: Timeouts | None = None,
    limits: SpoolLimits | None = None,
) -> AsyncGenerator[RelayFixture]:
    gaps = GapLog()
    spool = Spool(folder / "run", gaps, limits=limits)
    relay = Relay({"up": parse_upstream("up", upstream)}, spool, access=access, timeouts=timeouts)
    listening = socket.create_server(("127.0.0.1", 0))
    await relay.start(listening)
    try:
        yield RelayFixture(relay, listening.getsockname()[1], spool, gaps)
    finally:
        await relay.stop()
        spool.close()


def post(path: str = "/up/v1/messages", body: bytes = b"{}", *headers: str, close: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, *(["Connection: close"] if close else []), "", ""]).encode() + body

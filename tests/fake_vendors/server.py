"""HTTP/1.1 server of the fake vendors, on loopback.

It performs the steps of a response: it pauses, and resets a connection with a TCP reset packet. A client that
disconnects ends its response at once.
"""

import asyncio
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from urllib.parse import parse_qsl, urlsplit

import h11

from tests.fake_vendors.request_handler import RequestHandler
from tests.fake_vendors.responses import Drop, FakeResponse, Pause, RequestHead, RequestRecord, Silence, Step

CHUNK = 1 << 16
LINGER_NOT = struct.pack("ii", 1, 0)
"""Socket option that makes `close` send a TCP reset."""


class Gone(Exception):
    """The client disconnected, or the connection must be dropped."""


class Server:
    """Server on one port. It can stop and start again on the same port."""

    def __init__(self, desk: RequestHandler) -> None:
        self.desk = desk
        self.port = 0
        self.numbers = count(1)
        self.lines: set[asyncio.Task[None]] = set()
        self.listener: asyncio.Server | None = None

    async def start(self) -> None:
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", self.port, limit=CHUNK)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and close the open connections."""
        if self.listener:
            self.listener.close()
        for line in self.lines:
            line.cancel()
        await asyncio.gather(*self.lines, return_exceptions=True)
        self.listener = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.lines.add(task)
        try:
            with suppress(Gone, ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                await Line(self.desk, next(self.numbers), reader, writer).run()
        finally:
            self.lines.discard(task)
            writer.close()


class Line:
    """One connection, for any number of sequential requests."""

    def __init__(
        self, desk: RequestHandler, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.desk, self.number, self.reader, self.writer = desk, number, reader, writer
        self.state = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        while True:
            head, body = await self.request()
            answer, record = self.desk.answer(head, body, self.number)
            try:
                await self.send(answer, record)
            finally:
                record.over()
            if self.state.our_state is h11.MUST_CLOSE:
                return
            self.state.start_next_cycle()

    async def request(self) -> tuple[RequestHead, bytes]:
        head = None
        body: list[bytes] = []
        while True:
            event = self.state.next_event()
            if event is h11.NEED_DATA:
                self.state.receive_data(await self.reader.read(CHUNK))
            elif isinstance(event, h11.Request):
                head = head_of(event.method.decode(), event.target.decode(), event.headers)
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return head, b"".join(body)
            else:
                raise Gone

    async def send(self, answer: FakeResponse, record: RequestRecord) -> None:
        if answer.status:
            headers = [(name.encode(), value.encode()) for name, value in answer.announced]
            if answer.streamed:
                headers.append((b"transfer-encoding", b"chunked"))
            await self.write(h11.Response(status_code=answer.status, headers=headers))
        for number, step in enumerate(answer.steps, 1):
            if number == len(answer.steps):
                record.sent()  # before the last bytes: the client may read the record at once
            await self.act(step)
        await self.write(h11.EndOfMessage())

    async def act(self, step: Step) -> None:
        if isinstance(step, bytes):
            await self.write(h11.Data(data=step))
        elif isinstance(step, Pause):
            await self.wait(step.seconds)
        elif isinstance(step, Silence):
            await self.wait(None)
        else:
            self.drop(step)

    async def write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self.writer.write(self.state.send(event) or b"")
        await self.writer.drain()

    async def wait(self, seconds: float | None) -> None:
        """Wait. Raise `Gone` if the client disconnects."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if not await self.reader.read(1):
                    raise Gone

    def drop(self, drop: Drop) -> None:
        if drop.reset:
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            self.writer.transport.abort()
        raise Gone


def head_of(method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    parts = urlsplit(target)
    return RequestHead(
        method,
        parts.path,
        dict(parse_qsl(parts.query)),
        {name.decode().lower(): value.decode("latin-1") for name, value in headers},
    )

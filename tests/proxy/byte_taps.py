"""Two taps on the wire: between a client and the proxy, and between the proxy and its upstream.

They keep all messages, so that both ends can be compared. The tap at the upstream sends each event of a stream only
after the previous one has arrived at the client's end: a proxy that holds anything back is found without a clock.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import NamedTuple, TypeAlias

from contextc.proxy.http1_framing import HEAD_END, Body, parse_head, request_body, response_body

EXCEPTIONS = (b"host", b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade")
"""Header fields of one connection, which differ between the two ends."""
OWN_PREFIX = b"x-contextc-"
HELD_SECONDS = 60.0
EVENT_STREAMS = (b"text/event-stream", b"application/vnd.amazon.eventstream")
READ_SIZE = 65_536
BINARY_SIZE = 100
LAST_CHUNK = b"0\r\n\r\n"
"""Nothing waits for this: a client that has got the last event may leave before it comes."""


class WireMessage(NamedTuple):
    """A message without what documented exceptions allow to differ: start line, header lines and raw body."""

    start: bytes
    fields: tuple[bytes, ...]
    body: bytes


class MessageReader:
    """Reads the messages of one direction of a connection. Header fields in `exceptions` are left out."""

    def __init__(self, is_response: bool, exceptions: Sequence[bytes] = EXCEPTIONS) -> None:
        self._exceptions = exceptions
        self.is_response, self.messages, self.starts = is_response, list[WireMessage](), list[tuple[float, bytes]]()
        self.is_event_stream = self.is_closed = False
        self._head, self._raw = b"", bytearray()
        self._body: Body | None = None
        self._fields: tuple[bytes, tuple[bytes, ...]] = (b"", ())

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of bodies in these bytes, as they are on the wire."""
        pieces: list[bytes] = []
        while data:
            if self._body is None:
                self._head += data
                head, found, data = self._head.partition(HEAD_END)
                if not found:
                    break
                self._head = b""
                self._begin(head)
            else:
                used = self._body.feed(data)
                pieces.append(data[:used])
                self._raw += data[:used]
                data = data[used:]
            self._finish()
        return pieces

    def end(self) -> None:
        """Finish a body that ends with its connection."""
        if self._body is not None and self._body.ends_with_connection:
            self._keep()

    def _begin(self, raw: bytes) -> None:
        head = parse_head(raw)
        self.starts.append((time.monotonic(), head.start))
        kept = [
            each for each in head.fields if each.name not in self._exceptions and not each.name.startswith(OWN_PREFIX)
        ]
        self._fields = (head.start, tuple([each.line for each in kept]))
        status = int(head.start.split()[1]) if self.is_response else 0
        self.is_event_stream = head.value(b"content-type").partition(b";")[0] in EVENT_STREAMS
        self._body = response_body(head, status, b"POST") if self.is_response else request_body(head)
        if 100 <= status < 200:
            self._body = None

    def _finish(self) -> None:
        if self._body is not None and self._body.is_done:
            self._keep()

    def _keep(self) -> None:
        self.messages.append(WireMessage(*self._fields, bytes(self._raw)))
        self._body, self._raw = None, bytearray()


Pair: TypeAlias = tuple[MessageReader, MessageReader]
"""The requests and the responses of one connection."""


class Tap:
    """A listening port that forwards to another one, and keeps the messages of all connections."""

    def __init__(self, name: str) -> None:
        self.name, self.target, self.port = name, 0, 0
        self.readers: list[Pair] = []

    @property
    def requests(self) -> list[WireMessage]:
        return [each for reader, _ in self.readers for each in reader.messages]

    @property
    def starts(self) -> list[tuple[float, bytes]]:
        """The start lines of both directions in their order, with their times."""
        return sorted([each for pair in self.readers for reader in pair for each in reader.starts])

    @property
    def responses(self) -> list[WireMessage]:
        return [each for _, reader in self.readers for each in reader.messages]


class ByteTaps:
    """`client_port` is for clients, and leads to `proxy_port`; `upstream_port` is for the proxy."""

    def __init__(self) -> None:
        self.client_side, self.upstream_side = Tap("client"), Tap("upstream")
        self.held_back: list[bytes] = []
        self.awaited = 0
        self.servers: list[asyncio.Server] = []
        self._arrived = b""
        self._sent: Counter[bytes] = Counter()
        self._change = asyncio.Event()

    async def serve(self, tap: Tap) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", tap.target)
            pair = (MessageReader(False), MessageReader(True))
            tap.readers.append(pair)
            await asyncio.gather(
                self._copy(reader, there[1], tap, pair, pair[0]),
                self._copy(there[0], writer, tap, pair, pair[1]),
                return_exceptions=True,
            )

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.servers.append(server)
        tap.port = server.sockets[0].getsockname()[1]

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tap: Tap, pair: Pair, messages: MessageReader
    ) -> None:
        is_reply = messages.is_response
        try:
            while data := await reader.read(READ_SIZE):
                if is_reply and tap is self.client_side:
                    self._arrived += data
                    self._wake()
                for part in self._parts(data) if is_reply and tap is self.upstream_side else [data]:
                    pieces = messages.feed(part)
                    writer.write(part)
                    await writer.drain()
                    if is_reply and tap is self.upstream_side and messages.is_event_stream:
                        for piece in pieces:
                            if piece not in (b"", LAST_CHUNK):
                                await self._wait_for(piece, messages)
            messages.end()
        finally:
            for each in pair:
                each.is_closed = True
            self._wake()
            writer.close()

    def _parts(self, data: bytes) -> list[bytes]:
        """Split at the ends of events and of heads, and binary streams anywhere."""
        if b"\0" in data:
            return [data[at : at + BINARY_SIZE] for at in range(0, len(data), BINARY_SIZE)]
        marked = data.replace(b"\n\r\n", b"\n\r\n\0").replace(b"\n\n", b"\n\n\0")
        return [each for each in marked.split(b"\0") if each]

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _wait_for(self, piece: bytes, messages: MessageReader) -> None:
        """Wait until the piece has arrived at the client's end as often as it was sent, or until the client is gone."""
        self._sent[piece] += 1
        self.awaited += 1
        try:
            async with asyncio.timeout(HELD_SECONDS):
                while self._arrived.count(piece) < self._sent[piece] and not messages.is_closed:
                    await self._change.wait()
        except TimeoutError:
            self.held_back.append(piece)


@contextmanager
def running_taps() -> Generator[ByteTaps]:
    """Run both taps on a thread. Their targets are set by the caller before the first connection."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="byte-taps", daemon=True)
    thread.start()

    async def start() -> ByteTaps:
        taps = ByteTaps()
        await taps.serve(taps.client_side)
        await taps.serve(taps.upstream_side)
        return taps

    async def stop() -> None:
        for server in taps.servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next iteration

    taps = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield taps
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

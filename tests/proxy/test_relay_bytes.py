"""Bytes through the relay: both ends see what they would see without it (Guarantee 16.10)."""

import asyncio
import random
import re
from pathlib import Path

import pytest

from contextc.observation.exchange_redaction import find_credentials
from contextc.proxy.http1_framing import HEAD_END, decode_chunks
from contextc.proxy.spool import SpoolLimits
from tests.conftest import often
from tests.proxy.raw_servers import OK, RawConnection, RawUpstream, post, running_relay

HOP_BY_HOP = re.compile(rb"(connection|keep-alive|te|proxy-connection|x-contextc-\S+|x-own): ", re.I)


class Case:
    """A random request and its response, as raw bytes."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.draw, self.number = draw, seed
        self.method = draw.choice([b"POST", b"POST", b"POST", b"GET", b"PUT", b"DELETE", b"OPTIONS", b"HEAD", b"PATCH"])
        self.path = draw.choice([b"/v1/messages", b"/v1/chat/completions", b"/v1/models", b"/a%2Fb//c/../%7e", b"/"])
        self.query = draw.choice([b"", b"", b"?beta=true", b"?key=AIza%20x&a=b%2Bc&&", b"?"])
        self.body, framing = self._body()
        lines = [*self._lines(), *framing, b"X-Case: %d" % seed]
        draw.shuffle(lines)
        place = draw.randrange(len(lines) + 1)
        self.lines = [*lines[:place], b"Host: LocalHost:1", *lines[place:]]
        self.status, self.reason = draw.choice(
            [(200, b"OK"), (200, b""), (404, b"Not  Here"), (529, b"Busy"), (204, b"No")]
        )
        self.reply, framing = self._body() if self.status != 204 else (b"", [])
        self.ends_with_connection = not framing and self.status != 204 and self.method != b"HEAD"
        if self.method == b"HEAD":
            self.reply = b""
        self.answer_lines = [*self._lines(), *framing]
        draw.shuffle(self.answer_lines)

    def _lines(self) -> list[bytes]:
        values = [b"text/event-stream", b"a, b;q=0.5", b'"quoted \\" text"', b"", b"\xe4\xff latin", b"x" * 3000]
        names = [b"Accept", b"x-Stainless-Lang", b"ANTHROPIC-BETA", b"set-cookie", b"Authorization", b"content-type"]
        extra = [b"Connection: keep-alive, X-Own", b"X-Own: 1", b"Keep-Alive: timeout=5", b"TE: trailers",
                 b"x-contextc-conversation: c"]  # fmt: skip
        some = [self.draw.choice(names) + b": " + self.draw.choice(values) for _ in range(self.draw.randrange(12))]
        return some + (extra if self.draw.random() < 0.3 else [])

    def _body(self) -> tuple[bytes, list[bytes]]:
        """Return a body as it is sent, and its framing; no framing for an empty one."""
        draw = self.draw
        size = 300_000 if draw.random() < 0.03 else draw.choice([0, 0, 1, 100, 2_000, 5_000, 30_000])
        content = draw.randbytes(size)
        if not size:
            return b"", draw.choice([[], [b"Content-Length: 0"]])
        if draw.random() < 0.5:
            return content, [draw.choice([b"Content-Length: %d", b"content-length:%d "]) % size]
        raw, at = b"", 0
        while at < size:
            piece = content[at : at + draw.choice([1, 17, 900, 65_536])]
            at += len(piece)
            written = draw.choice([b"%x", b"%X", b"00%x"]) % len(piece)
            raw += written + draw.choice([b"", b"", b";name=value"]) + b"\r\n" + piece + b"\r\n"
            if len(raw) > 400_000:
                break
        return raw + b"0\r\n" + draw.choice([b"", b"X-Trailer: 1\r\n"]) + b"\r\n", [
            draw.choice([b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked"])
        ]

    @property
    def request(self) -> bytes:
        start = self.method + b" /up" + self.path + self.query + b" HTTP/1.1"
        return b"\r\n".join([start, *self.lines]) + HEAD_END + self.body

    @property
    def forwarded(self) -> bytes:
        """The request as the upstream must receive it, but for Host."""
        start = self.method + b" " + self.path + self.query + b" HTTP/1.1"
        return b"\r\n".join([start, *_kept(self.lines)]) + HEAD_END + self.body

    @property
    def response(self) -> bytes:
        start = b"HTTP/1.1 %d %s" % (self.status, self.reason)
        return b"\r\n".join([start, *self.answer_lines]) + HEAD_END + self.reply

    @property
    def expected(self) -> bytes:
        start = b"HTTP/1.1 %d %s" % (self.status, self.reason)
        closing = [b"Connection: close"] if self.ends_with_connection else []
        lines = [line for line in self.answer_lines if not HOP_BY_HOP.match(line) or line.startswith(b"x-contextc")]
        return b"\r\n".join([start, *lines, *closing]) + HEAD_END + self.reply

    @property
    def recorded_reply(self) -> bytes:
        """An error may quote a key that is cut by the framing, so it is recorded without it."""
        fields = [(name.decode(), value.strip().decode("latin-1")) for name, _, value in self._fields(self.lines)]
        has_key = find_credentials(fields, self.query[1:].decode())
        is_chunked = any(b"chunked" in value.lower() for _, _, value in self._fields(self.answer_lines))
        return decode_chunks(self.reply) if has_key and self.status >= 400 and is_chunked else self.reply

    @staticmethod
    def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        return [line.partition(b":") for line in lines]


def _kept(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not HOP_BY_HOP.match(line)]


def pieces(draw: random.Random, raw: bytes) -> list[bytes]:
    """Split bytes at random places, also inside of heads and chunk sizes."""
    places = sorted({draw.randrange(len(raw) + 1) for _ in range(draw.choice([0, 1, 3, 8]))})
    return [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True) if a < b]


async def test_random_requests_and_responses_are_equal_at_both_ends(tmp_path: Path) -> None:
    """Some hundred mixed requests on a few connections at once; thousands in `make prove`."""
    count, clients = often(120, 10_000), 6

    async def answer(connection: RawConnection, request: bytes) -> None:
        found = re.search(rb"X-Case: (\d+)", request)
        assert found is not None
        case = Case(int(found[1]))
        for piece in pieces(case.draw, case.response):
            await connection.send(piece)
            await asyncio.sleep(0)
        if case.ends_with_connection:
            connection.writer.close()

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:

        async def client(first: int) -> None:
            reader, writer = await relay.connect()
            for number in range(first, count, clients):
                case = Case(number)
                for piece in pieces(case.draw, case.request):
                    writer.write(piece)
                    await asyncio.sleep(0)
                got = await reader.readexactly(len(case.expected))
                assert got == case.expected, number
                if case.ends_with_connection:
                    assert await reader.read() == b""
                    writer.close()
                    reader, writer = await relay.connect()
            writer.close()

        await asyncio.gather(*map(client, range(clients)))
        sent = {_case_number(raw): raw for raw in upstream.requests}
        host = f"Host: 127.0.0.1:{upstream.port}".encode()
        for number in range(count):
            case = Case(number)
            assert sent[number] == case.forwarded.replace(b"Host: LocalHost:1", host), number
        assert len(upstream.requests) == count
        recorded = relay.recorded()
    cases = [Case(number) for number in range(count)]
    posts = [each for each in cases if each.method == b"POST" and each.path.endswith((b"messages", b"completions"))]
    assert sorted([b"".join(each.request) for each in recorded]) == sorted([each.body for each in posts])
    assert sorted([b"".join(each.reply) for each in recorded]) == sorted([each.recorded_reply for each in posts])
    assert not relay.gaps.counts


def _case_number(raw: bytes) -> int:
    found = re.search(rb"X-Case: (\d+)", raw)
    assert found is not None
    return int(found[1])


async def test_connections_are_kept_and_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async def answer(connection: RawConnection, request: bytes) -> None:
        number = request.rpartition(b"\r\n\r\n")[2]
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(number) + number)

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(b"".join([post(body=b"%d" % number, close=False) for number in range(20)]))
        for number in range(20):
            head = await reader.readuntil(HEAD_END)
            assert await reader.readexactly(1 if number < 10 else 2) == b"%d" % number, head
        writer.close()
        assert upstream.connections == 1


async def test_chunks_are_passed_on_as_they_arrive(tmp_path: Path) -> None:
    """Each event of a stream reaches the client before the upstream writes the next one."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            assert (
                b"HTTP/1.1 200" in await seen.get()
                if not number
                else await seen.get() == b"9\r\ndata: %d\n\n\r\n" % (number - 1)
            )
            await connection.send(b"9\r\ndata: %d\n\n\r\n" % number)
        await seen.get()
        await connection.send(b"0\r\n\r\n")

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(close=False))
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            data = await asyncio.wait_for(reader.read(65_536), 60)
            got += data
            seen.put_nowait(data)
        writer.close()
        (recorded,) = relay.recorded()
    assert decode_chunks(b"".join(recorded.reply)) == b"".join([b"data: %d\n\n" % number for number in range(5)])


async def test_the_request_is_passed_on_as_it_arrives(tmp_path: Path) -> None:
    """The upstream sees a part of the body before the client sends the rest."""
    arrived = asyncio.Event()

    async def serve(connection: RawConnection) -> None:
        await connection.reader.readuntil(b"first")
        arrived.set()
        await connection.reader.readuntil(b"last!")
        await connection.send(OK)

    async with RawUpstream(whole=serve) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(b"POST /up/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nfirst")
        await asyncio.wait_for(arrived.wait(), 60)
        writer.write(b"last!")
        assert await reader.readexactly(len(OK)) == OK
        writer.close()


async def test_expect_continue_is_answered_by_the_upstream(tmp_path: Path) -> None:
    async def serve(connection: RawConnection) -> None:
        assert b"Expect: 100-continue" in await connection.reader.readuntil(HEAD_END)
        await connection.send(b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n")
        await connection.reader.readexactly(2)
        await connection.send(OK)

    async with RawUpstream(whole=serve) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(body=b"{}").removesuffix(b"{}").replace(b"Connection: close", b"Expect: 100-continue"))
        assert await reader.readuntil(HEAD_END) == b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
        writer.write(b"{}")
        assert await reader.readexactly(len(OK)) == OK
        writer.close()


@pytest.mark.parametrize("size", [8 << 20, pytest.param(96 << 20, marks=pytest.mark.thorough)])
async def test_large_bodies_stream_in_both_directions(tmp_path: Path, size: int) -> None:
    """Bodies larger than all buffers pass, and are recorded."""
    body = bytes(range(256)) * (size // 256)

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + request[-size:])

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        got = await relay.send(post(body=body))
        assert got.partition(HEAD_END)[2] == body
        (recorded,) = relay.recorded()
    assert b"".join(recorded.request) == b"".join(recorded.reply) == body


async def test_a_slow_client_slows_the_upstream_down(tmp_path: Path) -> None:
    """The relay does not buffer a whole response: the upstream cannot write it before the client reads."""
    size, finished = 64 << 20, asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 20):
            await connection.send(bytes(1 << 20))
        finished.set()

    async with (
        RawUpstream(answer) as upstream,
        running_relay(upstream.url, tmp_path, limits=SpoolLimits(exchange=1 << 20)) as relay,
    ):
        reader, writer = await relay.connect()
        writer.write(post("/up/v1/models"))
        await reader.readuntil(HEAD_END)
        while not any(client.is_write_paused for client in relay.relay.clients):
            await asyncio.sleep(0)
        assert not finished.is_set()
        left = size
        while left:
            left -= len(await reader.read(1 << 20))
        await finished.wait()
        writer.close()

"""Cancelled requests, broken responses, errors and time limits (Guarantees 16.10 and 16.11)."""

import asyncio
import contextlib
import json
import socket
import struct
from pathlib import Path

import pytest

from contextc.proxy import relay as relay_module
from contextc.proxy.http1_framing import HEAD_END
from contextc.proxy.relay import Timeouts
from tests.movable_clock import HOUR, Advance, run_with_clock
from tests.proxy.raw_servers import OK, RawConnection, RawUpstream, post, running_relay

RESET = struct.pack("ii", 1, 0)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def reset(connection: RawConnection) -> None:
    connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.writer.transport.abort()


def error_of(raw: bytes) -> tuple[int, str, str]:
    """Return status, type and message of an error of the proxy."""
    head, _, body = raw.partition(HEAD_END)
    assert b"\r\nX-Contextc: proxy" in head
    error = json.loads(body)["error"]
    return int(head.split(b" ", 2)[1]), error["type"], error["message"]


@pytest.mark.parametrize("sent", [b"", CHUNKED, CHUNKED + b"5\r\nhello\r\n"], ids=["silent", "head", "chunk"])
async def test_a_client_that_disconnects_cancels_the_request_upstream(tmp_path: Path, sent: bytes) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(sent)
        asked.set()
        with contextlib.suppress(ConnectionError):
            assert await connection.reader.read(1) == b""
        cancelled.set()

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(close=False))
        await asked.wait()
        if sent:
            await reader.readuntil(HEAD_END)
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 60)
        (recorded,) = relay.recorded()
    assert recorded.outcome == "cancelled"
    assert recorded.is_sent


async def test_a_client_that_disconnects_within_its_request_cancels_it(tmp_path: Path) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def serve(connection: RawConnection) -> None:
        await connection.reader.readuntil(b"part")
        asked.set()
        with contextlib.suppress(ConnectionError):
            assert await connection.reader.read(1) == b""
        cancelled.set()

    async with RawUpstream(whole=serve) as upstream, running_relay(upstream.url, tmp_path) as relay:
        _, writer = await relay.connect()
        writer.write(post(body=b"part" + bytes(10), close=False)[:-10])
        await asked.wait()
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 60)
        (recorded,) = relay.recorded()
    assert not recorded.is_sent


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    "begun",
    [CHUNKED + b"5\r\nhello\r\n", CHUNKED, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"],
    ids=["chunks", "head", "length"],
)
async def test_a_response_that_breaks_off_breaks_off_for_the_client(
    tmp_path: Path, begun: bytes, is_reset: bool
) -> None:
    """The connection is closed within the body: no last chunk, and fewer bytes than announced."""
    seen = asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(begun)
        await seen.wait()
        reset(connection) if is_reset else connection.writer.close()

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(close=False))
        got = await reader.readexactly(len(begun))
        seen.set()
        assert got + await reader.read() == begun
        writer.close()
        (recorded,) = relay.recorded()
    assert recorded.outcome == "broken"


async def test_a_reset_of_a_response_without_length_is_a_reset_for_the_client(tmp_path: Path) -> None:
    """A clean end would look like the end of the response."""
    seen = asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await seen.wait()
        reset(connection)

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(close=False))
        await reader.readuntil(b"hello")
        seen.set()
        with pytest.raises(ConnectionError):
            await reader.read()
        writer.close()


async def test_an_upstream_that_cannot_be_reached_is_an_error_in_plain_english(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    async with running_relay(f"http://127.0.0.1:{port}", tmp_path) as relay:
        status, kind, message = error_of(await relay.send(post(body=b"{}" * 9_000)))
        assert (status, kind) == (502, "upstream_unreachable")
        assert f"http://127.0.0.1:{port} cannot be reached" in message
        (recorded,) = relay.recorded()
    assert recorded.response is not None
    assert recorded.response.status == 502
    assert recorded.response.error == message


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nbad line\r\n\r\n"])  # fmt: skip
async def test_an_invalid_response_is_an_error(tmp_path: Path, raw: bytes) -> None:
    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(raw)
        connection.writer.close()

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        status, kind, _ = error_of(await relay.send(post()))
        assert (status, kind) == (502, "upstream_failed")


async def test_an_error_before_the_request_is_complete_reaches_the_client(tmp_path: Path) -> None:
    """An upstream may answer before it has read the body, and close."""
    refused = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"

    async def serve(connection: RawConnection) -> None:
        await connection.reader.readuntil(HEAD_END)
        await connection.send(refused)

    async with RawUpstream(whole=serve) as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(post(body=bytes(100_000), close=False)[:-50_000])
        got = await reader.readuntil(b"big")
        assert got.startswith(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n")
        writer.write(bytes(50_000))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("begun", [b"", CHUNKED + b"1\r\na\r\n"])
def test_a_silent_upstream_ends_after_the_time_limit(
    tmp_path: Path, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "SWEEP_SECONDS", 0.01)
    asked = asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(begun)
        asked.set()
        await connection.reader.read(1)

    async def main(advance: Advance) -> None:
        timeouts = Timeouts(silence=HOUR)
        async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path, timeouts=timeouts) as relay:
            reader, writer = await relay.connect()
            writer.write(post(close=False))
            if begun:
                await reader.readuntil(b"1\r\na\r\n")
                advance(2 * HOUR)
                with pytest.raises(ConnectionError):
                    await reader.read()
            else:
                await asyncio.wait_for(asked.wait(), 60)
                advance(2 * HOUR)
                assert error_of(await reader.read())[:2] == (504, "upstream_timeout")
            writer.close()

    run_with_clock(main)


async def test_redirects_are_passed_on_and_not_followed(tmp_path: Path) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"

    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(moved)

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        got = await relay.send(post())
        assert got == moved.replace(HEAD_END, b"\r\nConnection: close\r\n\r\n")
        assert len(upstream.requests) == 1


async def test_a_connection_that_the_upstream_closed_is_not_used_again(tmp_path: Path) -> None:
    async def answer(connection: RawConnection, request: bytes) -> None:
        await connection.send(OK)
        connection.writer.close()

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        for _ in range(5):
            assert (await relay.send(post())).endswith(b"ok")
            while any(not each.is_lost for each in relay.relay.pool.idle_connections):
                await asyncio.sleep(0)
        assert upstream.connections == 5


@pytest.mark.parametrize(
    ("begun", "size", "connections", "answered"),
    [
        (b"", 2, 2, True),
        (b"", 3 << 20, 2, True),
        (b"", 9 << 20, 2, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n", 2, 1, False),
        (b"HTTP/1.1 2", 2, 1, False),
    ],
    ids=["short", "long", "too long to keep", "interim", "begun"],
)
def test_a_kept_connection_that_closes_as_a_request_leaves_is_replaced(
    tmp_path: Path, begun: bytes, size: int, connections: int, answered: bool
) -> None:
    """The client would have had an answer. What the upstream has begun to answer is not sent twice."""
    body = b"x" * size

    async def serve(connection: RawConnection) -> None:
        assert await connection.read_request()
        await connection.send(OK)
        if upstream.connections == 1:
            await connection.reader.readuntil(HEAD_END)
            if begun:
                await connection.send(begun)
            connection.writer.transport.abort()
        else:
            upstream.requests.append(await connection.read_request())

    async def main() -> None:
        async with running_relay(upstream.url, tmp_path) as relay:
            assert (await relay.send(post())).endswith(b"ok")
            reply = await relay.send(post(body=body))
            assert reply.endswith(b"ok") == answered
            assert upstream.connections == connections
            one, two = relay.recorded()
            assert b"".join(two.request) == body
            assert two.outcome == ("complete" if answered else "failed")
            assert one.outcome == "complete"

    async def run() -> None:
        async with upstream:
            await main()

    upstream = RawUpstream(whole=serve)
    asyncio.run(run())


def test_a_new_connection_that_closes_is_not_replaced(tmp_path: Path) -> None:
    """A request is sent again once at most, and only where the connection may have been closed before."""

    async def serve(connection: RawConnection) -> None:
        if await connection.read_request() and upstream.connections == 1:
            await connection.send(OK)
            await connection.reader.readuntil(HEAD_END)

    async def run() -> None:
        async with upstream, running_relay(upstream.url, tmp_path) as relay:
            assert (await relay.send(post())).endswith(b"ok")
            assert b" 502 Bad Gateway" in await relay.send(post())
            assert upstream.connections == 2

    upstream = RawUpstream(whole=serve)
    asyncio.run(run())


async def test_a_request_that_does_not_go_on_ends(tmp_path: Path) -> None:
    """Its connections would be open for good. The time does not run while the upstream takes nothing."""
    begun = b"POST /up/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx"

    async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        writer.write(begun)
        while not upstream.connections:
            await asyncio.sleep(0)
        (client,) = relay.relay.clients
        now = asyncio.get_running_loop().time()
        client.transport.pause_reading()
        client.check_time(now + 100)
        client.transport.resume_reading()
        client.check_time(now + 129)
        assert client.exchange is not None
        client.check_time(now + 131)
        assert client.exchange is None
        assert error_of(await reader.read())[:2] == (408, "request_timeout")
        writer.close()


async def test_connections_are_limited(tmp_path: Path) -> None:
    """One without a request makes room. If all have one, another is refused."""
    release = asyncio.Event()

    async def answer(connection: RawConnection, request: bytes) -> None:
        await release.wait()
        await connection.send(OK)

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        relay.relay.max_clients = 2
        silent, writer = await relay.connect()
        while not relay.relay.clients:
            await asyncio.sleep(0)
        calls = [asyncio.create_task(relay.send(post())) for _ in range(2)]
        with contextlib.suppress(ConnectionError):
            assert await silent.read() == b""
        writer.close()
        while len(upstream.requests) < 2:
            await asyncio.sleep(0)
        assert error_of(await relay.send(b""))[:2] == (503, "too_many_connections")
        release.set()
        assert all([each.endswith(b"ok") for each in await asyncio.gather(*calls)])


async def test_a_connection_without_a_request_ends(tmp_path: Path) -> None:
    async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path) as relay:
        reader, writer = await relay.connect()
        while not relay.relay.clients:
            await asyncio.sleep(0)
        (client,) = relay.relay.clients
        client.check_time(asyncio.get_running_loop().time() + 31)
        assert await reader.read() == b""
        writer.close()

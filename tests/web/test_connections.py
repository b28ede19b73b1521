"""Connections that send nothing, or half a request, do not block other clients."""

import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import pytest

import contextc as cc
from contextc._http_access import SPARE_FILES, max_connections
from contextc.web import security
from contextc.web import server as connections
from contextc.web import server as serving
from contextc.web.app_state import ServerOptions
from contextc.web.server import ConnectionLimiter, LimitedConnection
from tests.web.conftest import Served
from tests.web.sse_reader import listening, until

PATIENCE = 120.0
TOKEN = "a-token-that-nobody-guesses"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
MOST, MOST_PENDING = 12, 6
HALF = b"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, model="replay:none.jsonl", token=TOKEN)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has room for few."""
    monkeypatch.setattr(serving, "ConnectionLimiter", partial(ConnectionLimiter, MOST, MOST_PENDING))


@contextmanager
def connected(server: Served, *sent: bytes) -> Generator[list[socket.socket]]:
    """A connection for each piece, on which that piece was sent and nothing else."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    with ExitStack() as closing:
        made: list[socket.socket] = []
        for piece in sent:
            made.append(closing.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE)))
            made[-1].sendall(piece)
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end closed it. Waits for that, or for an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_open_connections_do_not_block_authorized_clients(server: Served) -> None:
    """The oldest of them give way, and a stream that was let in stays."""
    with cc.open_store(server.address) as store:
        store.enqueue("demo", cc.user("first"))
    where = f"{server.url}/api/conversations/demo/events?vocabulary=contextc"
    with listening(where, headers=KNOWN) as stream:
        until(stream, lambda frame: frame.event == "queued-input")
        with connected(server, *[HALF] * 5 * MOST) as half:
            assert all(is_closed(each) for each in half[: 5 * MOST - MOST_PENDING])
            with httpx.Client(base_url=server.url, headers=KNOWN, timeout=PATIENCE) as asking:
                for _ in range(3):
                    assert asking.get("/api/info").status_code == 200
            asked = httpx.post(f"{server.url}/api/conversations/demo/steer", json={"text": "second"}, headers=KNOWN)
            assert asked.status_code == 200
            assert until(stream, lambda frame: frame.event == "queued-input")[-1].json["text"] == "second"


def test_a_burst_of_clients_with_the_token_is_let_in() -> None:
    """More connections than may be pending for long arrive at once: none of them is cut off before it was read."""
    connections = ConnectionLimiter(MOST, MOST_PENDING)
    arrived = [FakeConnection() for _ in range(MOST)]
    for each in arrived:
        connections.add(cast(LimitedConnection, each), now=100.0)
    connections.close_expired(now=101.0)
    assert not any(each.closed for each in arrived)
    assert [connections.admit(cast(LimitedConnection, each)) for each in arrived] == [True] * 6 + [False] * 6
    connections.close_expired(now=102.5)
    assert not any(each.closed for each in arrived)
    more = [FakeConnection() for _ in range(MOST_PENDING)]
    for each in more:
        connections.add(cast(LimitedConnection, each), now=103.0)
    assert [each.closed for each in arrived] == [False] * 6 + [True] * 6


class FakeConnection:
    """The transport of a connection, of which only the end counts."""

    def __init__(self) -> None:
        self.transport, self.closed = self, False

    def abort(self) -> None:
        self.closed = True


@pytest.mark.parametrize("sent", [b"", b"GET", HALF, b"POST /api/conversations HTTP/1.1\r\nContent-Length: 9\r\n"])
def test_a_request_head_that_does_not_come_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "PENDING_SECONDS", 0.1)
    with connected(server, sent) as (half,):
        assert is_closed(half)


def test_streams_that_were_let_in_leave_the_rest_of_the_room_to_others(server: Served) -> None:
    """When every connection is in use, the next client gets an error, and no stream is cut off."""
    with cc.open_store(server.address) as store:
        store.enqueue("demo", cc.user("first"))
    where = f"{server.url}/api/conversations/demo/events?vocabulary=contextc"
    with ExitStack() as streams:
        opened = [streams.enter_context(listening(where, headers=KNOWN)) for _ in range(MOST - MOST_PENDING)]
        for stream in opened:
            until(stream, lambda frame: frame.event == "queued-input")
        refused = httpx.get(f"{server.url}/api/info", headers=KNOWN, timeout=PATIENCE)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "Overloaded")
        assert server.desk.deletions.count == MOST - MOST_PENDING


def test_a_body_that_does_not_come_is_not_waited_for(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_TIMEOUT", 0.1)
    head = f"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    begun = f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode()
    with connected(server, begun) as (slow,):
        answer = b"".join(iter(partial(slow.recv, 1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"TooSlow" in answer


def test_files_are_kept_for_the_store_and_for_providers() -> None:
    """A process that has used up its files on connections can no longer open its store."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max_connections()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == before[0] or soft <= hard
    assert 0 < most <= soft - SPARE_FILES

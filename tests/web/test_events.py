"""The event stream: in order, from any number, for any number of watchers, until the conversation is deleted."""

import re
import socket
import threading
from pathlib import Path

import httpx
import pytest

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import says
from tests.web.conftest import Served
from tests.web.sse_reader import Frame, listening, read_events, until

ANSWERS = 6


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    model = recorded(tmp_path / "answers.jsonl", *[says(*[f"{n} " for n in range(20)])] * ANSWERS)
    return ServerOptions(root=tmp_path, model=f"{model}?seconds=0.01")


def turn(server: Served, name: str = "demo", **more: object) -> int:
    answer = httpx.post(f"{server.url}/api/conversations/{name}/turns", json={"input": "Count", **more})
    assert answer.status_code == 202, answer.text
    return answer.json()["after"]


def address(server: Served, name: str = "demo", **query: object) -> str:
    return str(httpx.URL(f"{server.url}/api/conversations/{name}/events", params={**query}))


def is_end(frame: Frame) -> bool:
    return '"RUN_FINISHED"' in frame.data or frame.event == "turn-finish"


def test_two_watchers_receive_the_same(server: Served) -> None:
    """Guarantee 12.1: events replay from any number, and equal those published live."""
    turn(server)
    live = read_events(server.url, "demo")
    assert read_events(server.url, "demo") == live
    for start in (1, len(live) // 2, len(live) - 1):
        assert read_events(server.url, "demo", after=start) == live[start:]


def test_a_reader_that_reconnects_continues_where_it_was(server: Served) -> None:
    """Guarantee 12.1: none is lost and none is sent twice; the header takes precedence over the URL."""
    turn(server)
    with listening(address(server, vocabulary="contextc")) as stream:
        first = until(stream, lambda frame: frame.id == "3")
    with listening(address(server, vocabulary="contextc"), headers={"Last-Event-ID": "3"}) as stream:
        rest = until(stream, is_end)
    numbers = [int(frame.id or 0) for frame in [*first, *rest]]
    assert numbers == [*range(1, len(numbers) + 1)]
    refused = httpx.get(address(server), headers={"Last-Event-ID": "three"})
    assert refused.status_code == 400


def test_agui_is_what_a_page_gets_unless_it_asks_otherwise(server: Served) -> None:
    """Guarantee 12.2: and every event says where a reader is."""
    turn(server)
    with listening(address(server)) as stream:
        frames = until(stream, is_end)
    kinds = [frame.json["type"] for frame in frames]
    assert kinds[0] == "RUN_STARTED"
    assert "TEXT_MESSAGE_CONTENT" in kinds
    numbers = [int(frame.id) for frame in frames if frame.id is not None]
    assert numbers == [*range(1, len(numbers) + 1)]
    with listening(address(server, vocabulary="vercel")) as stream:
        chunks = until(stream, lambda frame: frame.json["type"] == "finish")
    assert chunks[0].json == {"type": "start", "messageId": "turn-1"}


def test_several_watchers_get_everything_however_slow_one_of_them_is(server: Served) -> None:
    """Guarantee 12.1: a slow reader delays no other, and loses nothing."""
    with cc.open_store(server.address) as store:
        store.append("demo", cc.user("Hello"))
    with listening(address(server, vocabulary="contextc")) as slow:
        found: list[list[Frame]] = []

        def watch() -> None:
            with listening(address(server, vocabulary="contextc")) as stream:
                found.append(until(stream, is_end))

        threads = [threading.Thread(target=watch) for _ in range(3)]
        for thread in threads:
            thread.start()
        turn(server)
        for thread in threads:
            thread.join()
        late = until(slow, is_end)
    assert found == [late] * 3


def test_a_stream_ends_when_its_conversation_is_deleted(server: Served) -> None:
    turn(server)
    with listening(address(server, vocabulary="contextc")) as stream:
        until(stream, is_end)
        while httpx.delete(f"{server.url}/api/conversations/demo").status_code == 409:
            pass  # its turn is being brought to its end
        assert list(stream) == []
    assert httpx.get(address(server)).status_code == 404


def test_a_stream_ends_when_another_process_replaces_its_conversation(server: Served) -> None:
    """Its reader must not be shown the events of another conversation that has the same name."""
    with cc.open_store(server.address) as store:
        store.enqueue("demo", cc.user("first"))
        with listening(address(server, vocabulary="contextc")) as stream:
            until(stream, lambda frame: frame.event == "queued-input")
            store.delete("demo")
            for text in ("other", "and more"):
                store.enqueue("demo", cc.user(text))
            assert [frame.json["text"] for frame in stream] == []


def test_a_stream_ends_when_the_server_does(server: Served) -> None:
    """A reader that never leaves does not keep the server from ending."""
    turn(server)
    with listening(address(server, vocabulary="contextc")) as stream:
        until(stream, is_end)
        server.end()
        assert list(stream) == []


def test_what_another_process_reports_is_found(server: Served) -> None:
    """Guarantee 12.1: for any writer and any watcher."""
    with cc.open_store(server.address) as store:
        store.append("demo", cc.user("Hello"))
        with listening(address(server, vocabulary="contextc")) as stream:
            store.enqueue("demo", cc.user("Waits."))
            (waits,) = until(stream, lambda frame: frame.event == "queued-input")
    assert waits.json["text"] == "Waits."


def test_a_closed_stream_stops_watching(server: Served) -> None:
    """Memory is bounded: nothing is kept for a reader that has gone."""
    turn(server)
    for _ in range(5):
        with listening(address(server)) as stream:
            next(stream)
    read_events(server.url, "demo")
    for _ in range(3_000):
        if not server.desk.deletions.count:
            break
        threading.Event().wait(0.02)
    assert server.desk.deletions.count == 0


def test_a_head_request_for_a_stream_returns_headers_only(server: Served) -> None:
    """The connection is free for the next request, and no watcher remains."""
    turn(server)
    with httpx.Client(base_url=server.url, timeout=120) as asking:
        head = asking.head("/api/conversations/demo/events")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")
        assert asking.get("/api/info").status_code == 200
    assert server.desk.deletions.count == 0


@pytest.mark.parametrize("number", [1 << 32, 1 << 63, 10**30, int("9" * 400)])
def test_a_number_that_no_event_has_is_refused(server: Served, number: int) -> None:
    turn(server)
    url = f"{server.url}/api/conversations/demo/events"
    asked = httpx.get(url, params={"after": str(number)}), httpx.get(url, headers={"Last-Event-ID": str(number)})
    for answer in asked:
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_stream_has_the_form_that_the_version_of_its_request_allows(server: Served, version: str) -> None:
    """Chunks for HTTP/1.1; a client of HTTP/1.0 gets the events as they are."""
    turn(server)
    read_events(server.url, "demo")
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=60) as connection:
        path = "/api/conversations/demo/events?vocabulary=contextc"
        connection.sendall(f"GET {path} HTTP/{version}\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = b""
        while not re.search(rb"event: turn-finish\n.*\n.*\n\n", answer):
            answer += connection.recv(65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    is_chunked = b"transfer-encoding: chunked" in head.lower()
    assert is_chunked == (version == "1.1")
    assert bool(re.match(rb"[0-9a-f]+\r\n", body)) == is_chunked
    if is_chunked:
        size, _, rest = body.partition(b"\r\n")
        assert rest[int(size, 16) : int(size, 16) + 2] == b"\r\n"

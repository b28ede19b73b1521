"""Clients of httpx and httpx2 are recorded, and their requests are not changed."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import pytest

import contextc as cc
from contextc.inspection.request_timeline import load_timeline
from contextc.observation.content_decoding import MAX_DECODED_BYTES
from tests.observation.test_observe import answer, chat, texts

URL = "https://api.openai.com/v1/chat/completions"
LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


@pytest.fixture
def memory() -> Iterator[cc.Store]:
    with cc.open_store("memory:") as store:
        yield store


def only(store: cc.Store) -> str:
    (found,) = store.conversations()
    return found.name


@LIBRARIES
def test_sync(memory: cc.Store, library: Any) -> None:
    seen: list[Any] = []

    def handle(request: Any) -> Any:
        seen.append(request)
        return library.Response(
            200, headers={"content-encoding": "gzip"}, content=gzip.compress(json.dumps(answer("b")).encode())
        )

    with cc.tap(memory, library.Client(transport=library.MockTransport(handle))) as client:
        assert client.post(URL, json=chat("a")).json() == answer("b")
        assert client.get("https://api.openai.com/v1/models").status_code == 200
    plain = library.Client(transport=library.MockTransport(handle))
    plain.post(URL, json=chat("a"))
    assert (seen[0].content, seen[0].headers.raw) == (seen[2].content, seen[2].headers.raw)
    assert texts(memory, only(memory)) == ["a", "b"]


def test_an_agent_that_edits_its_history_stays_one_conversation(memory: cc.Store) -> None:
    replies = iter(["The door is red.", "The window is blue."])
    client = cc.tap(
        memory, httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=answer(next(replies)))))
    )
    client.post(URL, json=chat("Look."))
    client.post(URL, json=chat("Look.", "Red.", "And the window?"))
    assert texts(memory, only(memory)) == ["Look.", "Red.", "And the window?", "The window is blue."]


def test_a_response_that_cannot_be_decoded_is_recorded_with_the_reason(memory: cc.Store) -> None:
    """It is decoded for the record apart from the client, in pieces and up to a limit."""

    def handle(request: Any) -> Any:
        packed = [gzip.compress(bytes(MAX_DECODED_BYTES + 1), 1)]
        return httpx.Response(200, headers={"content-encoding": "gzip"}, content=iter(packed))

    client = cc.tap(memory, httpx.Client(transport=httpx.MockTransport(handle)))
    with client.stream("POST", URL, json=chat("a")) as response:
        assert sum(map(len, response.iter_raw())) > 0
    (entry,) = load_timeline(memory, only(memory))
    assert entry.record.observed is not None
    assert "larger than 128 MB" in entry.record.observed.error


def test_a_key_in_the_query_that_a_reply_quotes_is_not_stored(memory: cc.Store) -> None:
    def handle(request: Any) -> Any:
        return httpx.Response(400, json={"error": {"message": f"Bad request to {request.url}"}})

    client = cc.tap(memory, httpx.Client(transport=httpx.MockTransport(handle)))
    assert client.post(f"{URL}?key=query-0123456789", json=chat("a")).status_code == 400
    (entry,) = load_timeline(memory, only(memory))
    assert entry.record.observed is not None
    assert entry.record.observed.error.endswith("?key=****************")


@LIBRARIES
def test_async(memory: cc.Store, library: Any) -> None:
    async def run() -> None:
        def handle(request: Any) -> Any:
            return library.Response(200, json=answer("b"))

        transport = library.MockTransport(handle)
        async with cc.tap(memory, library.AsyncClient(transport=transport)) as client:
            await client.post(URL, json=chat("a"))

    asyncio.run(run())
    assert texts(memory, only(memory)) == ["a", "b"]


@LIBRARIES
def test_an_error_and_a_lost_connection(memory: cc.Store, library: Any) -> None:
    def handle(request: Any) -> Any:
        if b"lost" in request.content:
            raise library.ConnectError("refused")
        return library.Response(429, json={"error": {"message": "slow down"}})

    client = cc.tap(memory, library.Client(transport=library.MockTransport(handle)), conversation="mine")
    assert client.post(URL, json=chat("a")).status_code == 429
    with pytest.raises(library.ConnectError):
        client.post(URL, json=chat("a", "b", "lost"))
    assert texts(memory, "mine") == ["a", "b", "lost"]


@LIBRARIES
def test_an_async_stream_is_recorded_when_it_is_closed(memory: cc.Store, library: Any) -> None:
    """The chunks are passed on as they are; other requests, and streamed bodies, are not recorded."""
    raw = json.dumps(answer("b")).encode()

    class Chunks(library.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for index in range(0, len(raw), 50):
                yield raw[index : index + 50]

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(chat("unseen")).encode()

    def handle(request: Any) -> Any:
        return library.Response(200, stream=Chunks())

    async def run() -> None:
        client = cc.tap(
            memory,
            library.AsyncClient(transport=library.MockTransport(handle)),
        )
        async with client.stream("POST", URL, json=chat("a")) as response:
            assert memory.conversations() == []
            assert [each async for each in response.aiter_raw()] == [raw[at : at + 50] for at in range(0, len(raw), 50)]
        assert texts(memory, only(memory)) == ["a", "b"]
        assert (await client.get("https://api.openai.com/v1/models")).content == raw
        assert (await client.post(URL, content=body())).content == raw
        await client.aclose()

    asyncio.run(run())
    assert texts(memory, only(memory)) == ["a", "b"]


@LIBRARIES
def test_a_lost_connection_of_an_async_client(memory: cc.Store, library: Any) -> None:
    async def run() -> None:
        def handle(request: Any) -> Any:
            raise library.ConnectError("refused")

        client = cc.tap(memory, library.AsyncClient(transport=library.MockTransport(handle)))
        with pytest.raises(library.ConnectError):
            await client.post(URL, json=chat("a"))

    asyncio.run(run())
    assert texts(memory, only(memory)) == ["a"]


def test_a_reply_that_is_too_long_is_passed_on_and_not_recorded(
    memory: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Chunks(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from [b"x" * 30] * 3

    monkeypatch.setattr("contextc.observation.httpx_tap.MAX_BYTES", 50)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Chunks()))
    client = cc.tap(memory, httpx.Client(transport=transport))
    assert client.post(URL, json=chat("a")).content == b"x" * 90
    assert texts(memory, only(memory)) == ["a"]


def test_a_failing_store_does_not_fail_the_request(memory: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer("b")))
    client = cc.tap(memory, httpx.Client(transport=transport))
    memory.close()
    assert client.post(URL, json=chat("a")).json() == answer("b")
    assert "could not be recorded" in caplog.text


def test_another_object_is_refused(memory: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="client: expected a Client or AsyncClient of httpx or httpx2"):
        cc.tap(memory, object())

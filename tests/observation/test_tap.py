"""Clients of httpx and httpx2 are recorded, and their requests are not changed."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import pytest

import contextc as cc
from tests.fake_vendors import FakeVendors
from tests.fake_vendors.sample_requests import FULL
from tests.fake_vendors.sdks import client_of
from tests.fake_vendors.vendor import KEY
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


def test_a_failing_store_does_not_fail_the_request(memory: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer("b")))
    client = cc.tap(memory, httpx.Client(transport=transport))
    memory.close()
    assert client.post(URL, json=chat("a")).json() == answer("b")
    assert "could not be recorded" in caplog.text


def test_another_object_is_refused(memory: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="client: expected a Client or AsyncClient of httpx or httpx2"):
        cc.tap(memory, object())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_real_sdk(memory: cc.Store, streamed: bool) -> None:
    import anthropic

    sdk = client_of("anthropic")
    body = sdk.body([cc.user("What is 2 + 3?")])
    with FakeVendors(lambda ask: FULL) as vendors:
        http_client = cc.tap(memory, httpx2.Client())
        with anthropic.Anthropic(
            base_url=vendors.url("anthropic"), api_key=KEY, max_retries=0, http_client=http_client
        ) as client:
            if streamed:
                with client.messages.create(**body, stream=True) as stream:  # pyright: ignore[reportArgumentType]
                    assert list(stream)
            else:
                create: Any = client.messages.create  # typed by overloads that a dict of any fields does not match
                answered = create(**body)
                assert answered.content
    name = only(memory)
    assert texts(memory, name)[0] == "What is 2 + 3?"
    assert memory.load(name)[-1].role == "assistant"
    assert memory.load(name)[-1].usage is not None

"""The change feed: changes of any process reach every page, once, and an idle feed costs next to nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.errors import StoreUnavailable
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import load_upstreams
from contextc.store.transaction_engine import Transaction
from contextc.web import change_feed
from contextc.web.change_feed import ChangeFeed, FeedEntry
from tests.observation.test_observe import answer, chat
from tests.web.conftest import Served
from tests.web.sse_reader import Frame, listening, until


@pytest.fixture(autouse=True)
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "POLL_SECONDS", 0.01)


def observe(store: cc.Store, *texts: str, reply: str = "b", name: str = "x") -> None:
    cc.observe(store, request=chat(*texts), reply=answer(reply, input=20), format="openai_chat", conversation=name)


def names(frame: Frame) -> list[Any]:
    return [each["name"] for each in frame.json["conversations"]] if frame.event == "conversations" else []


def has(name: str) -> Callable[[Frame], bool]:
    return lambda frame: name in names(frame)


def test_changes_of_another_process_reach_every_page(server: Served) -> None:
    """Guarantee 12.1: with the entry of the list, so that no page has to ask; a page that returns continues."""
    url = f"{server.url}/api/changes"
    with cc.open_store(server.address) as other, listening(url) as first, listening(url) as second:
        for stream in (first, second):
            assert [next(stream).event for _ in range(2)] == ["reset", "proxies"]
        observe(other, "a")
        found = [until(stream, has("x"))[-1] for stream in (first, second)]
        assert found[0] == found[1]
        entry = found[0].json["conversations"][0]
        listed = httpx.get(f"{server.url}/api/conversations").json()["conversations"]
        assert listed == [entry]
        observe(other, "a", "b", "c")  # a request that was not answered before, of a conversation that is known
        assert until(first, has("x"))[-1].json["conversations"][0]["length"] == 4
        last = found[0].id
        assert last is not None
        with listening(url, headers={"Last-Event-ID": last}) as third:
            assert next(third).json["conversations"][0]["length"] == 4
        other.delete("x")
        assert until(second, lambda frame: "x" in frame.json["removed"])
    with listening(url, headers={"Last-Event-ID": "1"}) as stream:
        assert next(stream).event == "reset"
    assert httpx.get(url, headers={"Last-Event-ID": "last"}).status_code == 400


def test_turns_of_other_processes_are_shown_as_running(server: Served) -> None:
    with cc.open_store(server.address) as other, listening(f"{server.url}/api/changes") as stream:
        next(stream)
        with other.lease("x", "agent"):
            assert until(stream, has("x"))[-1].json["conversations"][0]["running"] is True
        assert until(stream, has("x"))[-1].json["conversations"][0]["running"] is False


def test_a_stream_ends_with_the_server(server: Served) -> None:
    with listening(f"{server.url}/api/changes") as stream:
        next(stream)
        server.end()
        list(stream)


class CountingStore:
    """A store that counts reads and queries."""

    def __init__(self, store: cc.Store) -> None:
        self._store, self.address = store, store.address
        self.queries: list[str] = []
        self.reads = 0
        self.error: Exception | None = None

    def read(self, work: Callable[[Transaction], Any]) -> Any:
        def count(tx: Transaction) -> Any:
            return work(CountingTransaction(tx, self.queries))  # pyright: ignore[reportArgumentType]

        self.reads += 1
        if self.error is not None:
            raise self.error
        return self._store.read(count)


class CountingTransaction:
    def __init__(self, tx: Transaction, queries: list[str]) -> None:
        self._tx, self._queries, self.dialect = tx, queries, tx.dialect

    def rows(self, sql: str, *values: object) -> list[Any]:
        self._queries.append(sql)
        return self._tx.rows(sql, *values)


async def test_an_idle_feed_makes_one_query_for_all_pages(store: cc.Store) -> None:
    """However many pages are open and conversations exist; and none without a page."""
    for number in range(150):
        store.append(f"c{number}", cc.user("hi"))
    counting = CountingStore(store)

    feed = ChangeFeed(counting)  # pyright: ignore[reportArgumentType]
    readers = [feed.read(None, 0.2) for _ in range(20)]
    await asyncio.gather(*[anext(each) for each in readers])
    for _ in range(2):  # the second is a heartbeat
        assert {len(each) for each in await asyncio.gather(*[anext(reader) for reader in readers])} == {0}
    assert counting.reads > 2
    assert len(counting.queries) == counting.reads, "one query each"
    for reader in readers:
        await reader.aclose()
    assert feed.polling is not None
    await feed.polling  # it ends


async def test_a_page_that_missed_too_much_loads_again(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "MAX_ENTRIES", 3)

    feed = ChangeFeed(store)
    reader = feed.read(None, 5)
    (start, _) = await anext(reader)
    await anext(reader)
    found: list[FeedEntry] = []
    for number in range(5):
        store.append(f"c{number}", cc.user("hi"))
        found += await anext(reader)
    await reader.aclose()
    assert [each.number for each in found] == [*range(start.number + 1, start.number + 6)]
    assert [(await anext(feed.read(each.number, 5)))[0].event for each in (start, found[0])] == ["reset"] * 2
    for each in found[1:4]:
        assert await anext(feed.read(each.number, 5)) == [entry for entry in found if entry.number > each.number]
    assert await anext(feed.read(found[-1].number, 5)) == []
    feed.stop()


async def test_a_store_that_comes_back_is_loaded_again(store: cc.Store) -> None:
    """Readers that came while it was unavailable have nothing to compare with."""
    failing = CountingStore(store)
    failing.error = StoreUnavailable("The store is unavailable")

    feed = ChangeFeed(failing)  # pyright: ignore[reportArgumentType]
    reader = feed.read(None, 5)
    assert [each.event for each in await anext(reader)] == ["reset", "proxies"]
    failing.error = None
    while not (found := await anext(reader)):
        pass
    assert [each.event for each in found] == ["reset"]
    store.append("x", cc.user("hi"))
    assert [each.event for each in await anext(reader)] == ["conversations"]
    await reader.aclose()


async def test_a_reader_that_is_too_slow_loads_again(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "MAX_ENTRIES", 2)

    feed = ChangeFeed(store)
    slow, fast = feed.read(None, 5), feed.read(None, 5)
    for reader in (slow, fast):
        await anext(reader)
    for number in range(4):
        store.append(f"c{number}", cc.user("hi"))
        await anext(fast)
    assert [each.event for each in await anext(slow)] == ["reset", "proxies"]
    feed.stop()


def test_proxies_are_listed_while_they_run(server: Served, client: TestClient) -> None:
    assert client.get("/api/proxies").json() == {"proxies": []}  # of a store in memory
    proxy = ProxyServer(server.address, load_upstreams(()))
    with listening(f"{server.url}/api/changes") as stream:
        assert [next(stream).json.get("proxies") for _ in range(2)] == [None, []]
        with listen("127.0.0.1", 0) as socket, proxy.running(socket) as address:
            found = until(stream, lambda frame: bool(frame.json["proxies"]))[-1].json["proxies"][0]
            assert found["address"] == address
            assert httpx.get(f"{server.url}/api/proxies").json() == {"proxies": [found]}
            proxy.gaps.add(1, "the spool was full")
            until(stream, lambda frame: frame.json["proxies"][0]["gaps"] == {"the spool was full": 1})
        proxy.close()
        until(stream, lambda frame: frame.json["proxies"] == [])

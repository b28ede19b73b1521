"""The vendors' SDKs with nothing changed but the address: same bytes upstream, same results (Guarantee 16.10)."""

from collections.abc import Generator
from pathlib import Path

import pytest

import contextc as cc
from contextc.compiler import ledger
from contextc.compiler.past_requests import load_channel_formatter, rebuild
from contextc.messages import user
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import parse_upstream
from tests.fake_vendors import FakeVendors, Reply, RequestRecord
from tests.fake_vendors.sdks import LOOK, SDKClient, clients
from tests.fake_vendors.vendor import vendor

SECONDS = 120.0
SIGNED = ("bedrock",)
"""Their signatures cover the Host header, which a proxy replaces."""
CONNECTION_HEADERS = ("host", "connection")
QUICK = ("anthropic", "openai_chat", "openai_responses", "ollama")
CLIENTS = [
    pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.thorough)
    for each in clients()
    if each.name not in SIGNED
]


class Setting:
    """The fake vendors, directly and through a proxy."""

    def __init__(self, fake: FakeVendors, proxy: ProxyServer, url: str, store: str) -> None:
        self.fake, self.proxy, self.url, self.store = fake, proxy, url, store

    def through_proxy(self, name: str) -> str:
        return f"{self.url}/fake{vendor(name).root}"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Generator[Setting]:
    folder: Path = tmp_path_factory.mktemp("sdks")
    with FakeVendors(lambda ask: Reply(f"Answer to {ask.request.messages[-1].text}")) as fake:
        store = f"sqlite:///{folder}/store.db"
        proxy = ProxyServer(store, {"fake": parse_upstream("fake", fake.url())}, folder=folder / "spool")
        with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
            yield Setting(fake, proxy, url, store)
        assert proxy.close()


def stored_bodies(store: cc.Store, conversation: str) -> list[bytes]:
    """Return the bodies of all requests of a conversation, rebuilt from the store."""
    channels = store.read(lambda tx: ledger.load_channels(tx, conversation))
    return [
        rebuild(store, channel, load_channel_formatter(store, channel), number)
        for _, channel, state, _ in channels
        for number in range(1, state.requests + 1)
    ]


def compared(record: RequestRecord) -> tuple[str, str, bytes, dict[str, str]]:
    kept = {name: value for name, value in record.headers.items() if name not in CONNECTION_HEADERS}
    return record.method, record.path, record.raw, kept


@pytest.mark.parametrize("client", CLIENTS)
def test_an_sdk_sends_and_gets_the_same_through_the_proxy(setting: Setting, client: SDKClient) -> None:
    """A whole reply, a stream and an error: equal requests, equal results, and the exact body in the store."""
    fake, before = setting.fake, dict(setting.proxy.summary.conversations)
    seen = setting.proxy.recorder.recorded
    body = client.body([user(f"Hello {client.name}")], tools=[LOOK])
    results = list[tuple[str, int]]()
    errors = list[str]()
    for url in (fake.url(client.name), setting.through_proxy(client.name)):
        results.append((type(client.whole(url, body)).__name__, len(client.events(url, body))))
        if client.unknown_key is not None:
            with pytest.raises(Exception) as raised:  # noqa: PT011  # each SDK has its own
                client.whole(url, body, key="sk-wrong-0000")
            errors.append(f"{type(raised.value).__name__}: {raised.value}")
    requests = [compared(each) for each in fake.records[-4 if client.unknown_key is None else -6 :]]
    assert requests[: len(requests) // 2] == requests[len(requests) // 2 :]
    assert results[0] == results[1]
    assert errors[:1] == errors[1:]
    assert setting.proxy.recorder.wait_for(seen + len(requests) // 2, SECONDS)
    names = [
        name for name, count in setting.proxy.summary.conversations.items() for _ in range(count - before.get(name, 0))
    ]
    with cc.open_store(setting.store) as store:
        stored = sorted([raw for name in dict.fromkeys(names) for raw in stored_bodies(store, name)])
    assert stored == sorted([raw for *_, raw, _ in requests[len(requests) // 2 :]])
    assert not setting.proxy.gaps.count

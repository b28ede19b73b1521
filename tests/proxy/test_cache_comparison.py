"""The same long session directly and through the proxy: the provider's prompt cache is hit as often, and the usage is
the same (Guarantee 16.10).

The fake vendors simulate a prompt cache over the bytes that arrive. A proxy that encodes requests again, reorders or
adds fields would break it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from contextc._json import encode
from contextc.messages import Message, assistant, user
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import parse_upstream
from contextc.tools.definitions import Tool
from tests.fake_vendors import FakeVendors, Reply
from tests.fake_vendors.replies import Tokens
from tests.fake_vendors.sdks import LOOK, SDKClient, client_of
from tests.fake_vendors.vendor import KEY, vendor

SECONDS = 120.0
REQUESTS, CHANGED = 32, 20
"""The number of requests, and the first one with other tools."""
HEADERS = {
    "x-api-key": KEY, "authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01",
    "content-type": "application/json",
}  # fmt: skip
PATHS = {"anthropic": "/v1/messages", "openai_responses": "/responses", "openai_chat": "/chat/completions"}
PROMPT = "Answer briefly, and mention the file that you looked at. " * 250
"""It is longer than the shortest prefix that providers cache."""
OTHER_TOOL = Tool(name="wait", description="Wait.", parameters={"type": "object", "properties": {}})


def answer_of(number: int) -> str:
    return f"Answer {number}. It is in file {number * 7 % 13}."


def bodies(client: SDKClient) -> list[bytes]:
    """Return a session that grows by a turn each, with a change of tools that breaks the prefix, and a retry.

    Tools come first and messages last, as providers cache them. Every third request is streamed.
    """
    messages: list[Message] = []
    found: list[bytes] = []
    for number in range(REQUESTS):
        messages.append(user(f"Question {number}"))
        body = client.body(messages, prompt=PROMPT, tools=[LOOK] if number < CHANGED else [LOOK, OTHER_TOOL])
        if client.format == "anthropic":
            body["system"] = [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}]
        last = "input" if "input" in body else "messages"
        rest = {name: value for name, value in body.items() if name not in ("tools", last)}
        ends = {last: body[last], "stream": number % 3 == 0}
        found.append(encode({"tools": body["tools"], **rest, **ends}))
        messages.append(assistant(answer_of(number)))
    return [*found, found[-1]]


def answers() -> FakeVendors:
    return FakeVendors(lambda ask: Reply(answer_of(len(ask.request.messages) // 2)))


@contextmanager
def through_proxy(tmp_path: Path, fake: FakeVendors) -> Generator[tuple[ProxyServer, str]]:
    upstreams = {"fake": parse_upstream("fake", fake.url())}
    proxy = ProxyServer(f"sqlite:///{tmp_path}/store.db", upstreams, folder=tmp_path / "spool")
    try:
        with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
            yield proxy, url
    finally:
        proxy.close(0)


def run(client: SDKClient, url: str, fake: FakeVendors) -> tuple[list[bytes], list[Tokens]]:
    """Send the session. Return the replies, and the usage that was reported."""
    with httpx2.Client(headers=HEADERS, timeout=SECONDS) as http:
        replies = [http.post(f"{url}{PATHS[client.name]}", content=body).content for body in bodies(client)]
    assert not fake.refused
    return replies, [each.tokens for each in fake.records if each.tokens is not None]


@pytest.mark.parametrize(
    "name",
    ["anthropic", *[pytest.param(name, marks=pytest.mark.thorough) for name in ("openai_responses", "openai_chat")]],
)
def test_the_proxy_causes_no_cache_miss(tmp_path: Path, name: str) -> None:
    client = client_of(name)
    with answers() as direct:
        expected, usage = run(client, direct.url(name), direct)
    with answers() as fake, through_proxy(tmp_path, fake) as (proxy, url):
        replies, proxied = run(client, f"{url}/fake{vendor(name).root}", fake)
        assert proxy.recorder.wait_for(len(proxied), SECONDS)
        assert proxy.close()
    assert [each.raw for each in fake.records] == [each.raw for each in direct.records]
    assert replies == expected
    assert proxied == usage
    misses = [number for number, each in enumerate(usage) if not each.read]
    assert (len(usage), misses) == (REQUESTS + 1, [0, CHANGED])
    summary = proxy.summary
    assert summary.without_usage == 0 or name == "openai_chat"  # streams without `include_usage`
    if not summary.without_usage:
        assert summary.input == sum([each.input for each in usage])
        assert summary.output == sum([each.output for each in usage])
        assert summary.cache_read == sum([each.read for each in usage])
        assert summary.cache_write == sum([each.written for each in usage])

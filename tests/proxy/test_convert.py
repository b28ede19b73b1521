"""`--convert`: another provider behind the same client (Guarantee 16.17)."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest

import contextc as cc
from contextc.proxy.access_checks import AccessRules
from contextc.proxy.acting_exchange import ActingOptions
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import parse_upstream
from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.fake_vendors.replies import ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest

TOKEN = "a-token-of-the-proxy"
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5.4",
    "openai-chat": "gpt-4.1",
    "gemini": "gemini-3-pro-preview",
}
FORMATS = {"anthropic": "anthropic", "openai": "openai_responses", "openai-chat": "openai_chat", "gemini": "gemini"}


def script(ask: AcceptedRequest) -> Reply:
    """Call two tools, then answer with their results."""
    last = ask.request.messages[-1]
    if last.tool_results:
        return Reply("It is " + " and ".join([str(each.text) for each in last.tool_results]))
    return Reply("I look.", [ScriptedCall("look", {"at": "a"}), ScriptedCall("look", {"at": "b"})], reasoning="Hm.")


@contextmanager
def converting(tmp_path: Path, fake: FakeVendors, name: str) -> Generator[tuple[ProxyServer, str]]:
    provider = cc.provider(f"{name}:{MODELS[name]}", url=fake.url(FORMATS[name]), key="STANDIN_KEY")
    proxy = ProxyServer(
        f"sqlite:///{tmp_path}/store.db",
        {each: parse_upstream(each, "http://127.0.0.1:9") for each in ("anthropic", "openai", "gemini")},
        folder=tmp_path / "spool",
        access=AccessRules(token=TOKEN),
        acting=ActingOptions(lints=True, converts_to=provider),
    )
    try:
        with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
            yield proxy, f"{url}/t/{TOKEN}"
    finally:
        proxy.close(0)

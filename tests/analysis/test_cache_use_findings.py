"""Lifetimes and keys of the cache: figures beside the replay, lower bounds, and providers whose facts differ.

More cases are in tests/data/findings.toml.
"""

from typing import Any

import pytest

import contextc as cc
from contextc.analysis import Finding, what_if
from tests.analysis.cached_client import MINUTE, ChatClient, Client


def find(client: Client, code: str) -> list[Finding]:
    return [each for each in cc.findings(client.store, "c") if each.code == code]


class UnknownRegion(Client):
    """A client whose provider bills a region with an unknown factor."""

    def answer(self, total: int, read: int, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        reply, said = super().answer(total, read, number)
        return {**reply, "usage": {**reply["usage"], "inference_geo": "mars"}}, said


def pause_often(client: Client) -> Client:
    client.work(2)
    for _ in range(4):
        client.time += 10 * MINUTE
        client.send(0).send()
    return client


def test_the_finding_says_what_the_replay_says() -> None:
    """A finding and `--what-if` must not contradict each other."""
    client = pause_often(Client())
    (found,) = find(client, "USE001")
    replays = {each.name: each.saved for each in what_if(client.store, "c").replays}
    assert found.cost == pytest.approx(replays["long_lifetime"])
    assert "short_lifetime" not in replays, "it is what was sent"
    assert not found.cost_is_lower_bound
    assert "at least" not in found.title


def test_an_unknown_factor_makes_both_costs_lower_bounds() -> None:
    """A factor of a region may be missing from what was paid, and from what would have been."""
    (found,) = find(pause_often(UnknownRegion()), "USE001")
    assert found.cost_is_lower_bound
    assert found.title.count("at least $") == 2


def test_a_price_without_one_hour_writes_is_not_guessed() -> None:
    """OpenAI has longer times, too, at prices that are mostly unknown."""
    client = ChatClient(model="gpt-5.2")
    client.send(0)
    for _ in range(4):
        client.time += 10 * MINUTE
        client.send(0).send()
    assert find(client, "USE001") == []


class OtherChatClient(ChatClient):
    """A client of another provider with the same format."""

    def __init__(self, provider: str, model: str, **settings: Any) -> None:
        super().__init__(model=model, **settings)
        self.provider = provider


@pytest.mark.parametrize(
    ("provider", "model", "settings", "says"),
    [
        ("xai", "grok-4.7", {}, "6 requests without a known cache key read"),
        ("xai", "grok-4.7", {"prompt_cache_key": "c"}, ""),
        ("openrouter", "openai/gpt-5.6-sol", {}, ""),  # it need not pass a key on
        ("deepseek", "deepseek-v4-pro", {}, ""),
    ],
)
def test_which_providers_find_their_cache_by_a_key_is_data(
    provider: str, model: str, settings: dict[str, Any], says: str
) -> None:
    client = OtherChatClient(provider, model, **settings)
    client.send(0).send(128)  # the provider reports reads
    for _ in range(5):
        client.send(0)
    found = find(client, "USE002")
    assert [each.title.startswith(says) for each in found] == ([True] if says else [])
    if says:
        assert "`x-grok-conv-id`" in found[0].fix
        assert found[0].confidence < 0.5, "headers are not stored"


def test_own_requests_have_the_header_of_xai() -> None:
    """It is sent with each request, and stored nowhere."""
    store, text = cc.open_store("memory:"), "Be exact. " * 2_000
    compiler = cc.MessageCompiler(store, cc.provider("xai:grok-4.7"))
    for number in range(8):
        store.append("c", cc.user(f"Question {number}."))
        compiled = compiler.compile("c", system_prompt=text)
        with compiler.attempt(compiled) as attempt:
            usage = cc.Usage(input=compiled.budget.input, output=5, cache_read=64 if number else 0)
            attempt.commit(cc.assistant("Done.", usage=usage))
    assert [each.code for each in cc.findings(store, "c") if each.code == "USE002"] == []


def test_own_requests_get_their_lifetime_from_an_option() -> None:
    """The breakpoints of own requests are not written by hand."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5", cache="1h")
    for number in range(8):
        store.append("c", cc.user(f"Question {number}. {'All of it. ' * 400}"))
        compiled = compiler.compile("c")
        with compiler.attempt(compiled) as attempt:
            new = compiled.budget.input - compiled.record.shared
            usage = cc.Usage(
                input=compiled.budget.input,
                output=5,
                cache_read=compiled.record.shared,
                cache_write=new,
                cache_write_long=new,
            )
            attempt.commit(cc.assistant("Done.", usage=usage))
    (found,) = [each for each in cc.findings(store, "c") if each.code == "USE001"]
    assert found.fix == 'Pass `cache="5m"` to the agent or the compiler.'

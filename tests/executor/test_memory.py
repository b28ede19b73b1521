"""What stays in memory of conversations that have ended: a bounded number of entries."""

import asyncio
from typing import Any

import pytest

import contextc as cc
from contextc.compiler.ledger import RecentChannels
from contextc.executor import summaries
from contextc.executor.summaries import BackgroundSummaries
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import VerifiedRanges
from contextc.testing import FakeModel
from tests.growing_containers import BOUNDED, count_entries, grown_containers

ROUND = 25
"""Conversations between two looks at all containers."""


async def test_only_bounded_containers_grow_with_the_number_of_conversations(store: cc.Store) -> None:
    """A process that serves conversation after conversation for months has what a process of an hour has."""

    def look(query: str) -> str:
        return f"nothing about {query}"

    def answer(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "Nothing."
        return cc.tool_call(f"call-{request.messages[0].text}", "look", {"query": "it"})

    model = FakeModel(answer)
    executor = cc.AgentExecutor(store, model, tools=[cc.tool(look)])

    async def converse(first: int) -> None:
        for number in range(first, first + ROUND):
            for text in (f"{number}", "Again."):
                turn = executor.start(f"conversation-{number}", text)
                assert (await turn.wait()).text == "Nothing."
            store.load(f"conversation-{number}")
        model.requests.clear()

    await converse(0)
    before = count_entries()
    await converse(ROUND)
    grown = grown_containers(before, ROUND)
    assert {"ChannelCache._kept", "VerifiedRanges._known"} <= grown, "what is known to grow must be found"
    assert grown <= BOUNDED
    await executor.close()


class _Entry:
    memory_bytes = 10


def test_the_cache_of_channels_has_at_most_so_many_entries_and_bytes() -> None:
    """A limit of bytes alone would let small conversations accumulate for hours."""

    def fill(cache: RecentChannels[_Entry]) -> list[bool]:
        channels = [Channel(f"c{number}", "agent", "provider", "model") for number in range(6)]
        for channel in channels:
            cache.put(channel, _Entry())
        return [cache.get_last(channel) is not None for channel in channels]

    assert fill(RecentChannels(channels=2)) == [False] * 4 + [True] * 2
    assert fill(RecentChannels(limit=35)) == [False] * 3 + [True] * 3


def test_the_ranges_of_branches_that_were_added_last_are_known() -> None:
    ranges = VerifiedRanges(most=2)
    for branch in (1, 2, 3):
        ranges.add(branch, 1, 5)
    assert [ranges.first_unverified(branch, 1, 9) for branch in (1, 2, 3)] == [1, 6, 6]


async def test_checks_for_summaries_are_remembered_for_a_bounded_number_of_conversations(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation whose window is nearly full is often left as it is, and never trimmed."""
    monkeypatch.setattr(summaries, "MAX_REMEMBERED", 3)
    executor = cc.AgentExecutor(store, FakeModel("Hello."))
    background, checked = BackgroundSummaries(), list[str]()

    def check(name: str) -> None:
        def steps() -> Any:
            checked.append(name)
            return
            yield

        async def summarize(_: object) -> Any:
            raise AssertionError("nothing is to be summarized")

        background.start(executor.config, name, 0.9, steps, summarize)

    for number in range(5):
        store.append(f"c{number}", cc.user("Hello."))
        check(f"c{number}")
        await background.wait(f"c{number}")
    for number in (4, 3, 2, 0):
        check(f"c{number}")
        await background.wait(f"c{number}")
    assert checked == ["c0", "c1", "c2", "c3", "c4", "c0"]
    await asyncio.sleep(0)

"""Unanswered requests are listed, although the ledger does not contain them."""

import asyncio

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.errors import ProviderFailed
from contextc.events import TextDelta
from tests.executor.scripted_provider import SONNET, Scripted, fails, run_turn, says
from tests.web.sample_conversations import Asking, Life


async def stopped(executor: cc.AgentExecutor, text: str) -> None:
    """A turn that a person stops once the answer has begun."""
    turn = executor.start("demo", text)
    async for event in turn.events():
        if isinstance(event, TextDelta):
            turn.cancel()
    await turn.wait()


def test_a_request_that_was_stopped_or_failed_is_on_the_timeline(client: TestClient, store: cc.Store) -> None:
    """Guarantees 9.7, 13.1: with when, why, what was used, and where what came of it is; the ledger does not move."""
    failed = fails("invalid", "no such model")
    slow = says("one two three four five six", pause=0.05, input=120)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(slow, failed, says("At last.")), triggers=())
    asyncio.run(stopped(executor, "count"))
    with pytest.raises(ProviderFailed):
        run_turn(executor, "and now?")
    answer = client.get("/api/conversations/demo/timeline").json()
    assert answer["requests"] == []

    first, second = answer["unanswered"]
    assert (first["turn"], first["step"], first["request"]) == (1, 1, 1)
    assert first["model"] == SONNET
    assert first["why"] == "It was stopped."
    assert first["channel"] == answer["channels"][0]["id"]
    assert first["usage"]["input"] == 120
    assert [each.status for each in store.load("demo") if each.seq == first["seq"]] == ["cancelled"]
    assert first["time"] == store.steps("demo")[0].started
    assert (second["turn"], second["request"], second["seq"], second["usage"]) == (2, 1, None, None)
    assert "no such model" in second["why"]
    assert not second["why"].startswith("ProviderFailed")
    assert answer["totals"]["unanswered"] == 2

    run_turn(executor, "once more")
    answer = client.get("/api/conversations/demo/timeline").json()
    assert [each["request"] for each in answer["requests"]] == [1]
    assert len(answer["unanswered"]) == answer["totals"]["unanswered"] == 2
    assert (answer["totals"]["requests"], answer["totals"]["failed"]) == (3, 2), "all requests, also the failed ones"


def test_one_that_was_made_manually_is_reported_as_far_as_its_channel_is_recorded(
    client: TestClient, store: cc.Store
) -> None:
    """Guarantee 9.7: no step was recorded, but that it was sent, and why it failed, is known."""
    life = Life(store)
    life.turn("hi")
    store.append("demo", cc.user("more"))
    compiled = life.compile()
    life.compiler.begin(compiled)
    ask = Asking(client, life)
    (only,) = ask("timeline")["unanswered"]
    assert (only["request"], only["time"], only["turn"], only["step"], only["seq"]) == (2, None, None, None, None)
    assert "in progress" in only["why"]
    life.compiler.abort(compiled, "the line is dead")
    (only,) = ask("timeline", channel=life.channel)["unanswered"]
    assert only["why"] == "the line is dead"
    life.answer()
    assert ask("timeline")["unanswered"] == []


def test_what_still_runs_is_not_reported_as_lost(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: a reply that is coming in is neither answered nor given up."""
    slow = says("one two three four five six", pause=0.05)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(slow), triggers=())

    async def looks() -> list[object]:
        turn = executor.start("demo", "count")
        seen: list[object] = []
        async for event in turn.events():
            if isinstance(event, TextDelta) and not seen:
                answer = await asyncio.to_thread(client.get, "/api/conversations/demo/timeline")
                seen.append(answer.json()["unanswered"])
                turn.cancel()
        await turn.wait()
        return seen

    assert asyncio.run(looks()) == [[]]
    assert len(client.get("/api/conversations/demo/timeline").json()["unanswered"]) == 1

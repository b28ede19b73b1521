"""The usage of many conversations: the sums of the inspector, for every kind of store and request."""

import pytest

import contextc as cc
from contextc.errors import ProviderFailed
from contextc.inspection.request_timeline import load_timeline, load_totals
from contextc.inspection.usage_by_conversation import QUARTER, UsagePortion, load_conversation_states, load_usage
from contextc.store.transaction_engine import Transaction
from tests.executor.scripted_provider import SONNET, Scripted, fails, run_turn, says
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import Life


def usage_of(store: cc.Store) -> dict[str, tuple[UsagePortion, ...]]:
    states = store.read(load_conversation_states)
    found = store.read(lambda tx: load_usage(tx, states))
    return {each.name: found[each.number] for each in states}


def keys(store: cc.Store) -> dict[str, tuple[int, ...]]:
    return {each.name: each.key for each in store.read(load_conversation_states)}


def filled(store: cc.Store) -> None:
    life = Life(store, name="compiled")
    life.turn("hi", usage=cc.Usage(input=900, output=20, cache_write=300))
    life.turn("more", usage=cc.Usage(input=1_000, output=20, cache_read=900))
    failed = fails("invalid", "no such model")
    executor = cc.AgentExecutor(
        store, SONNET, endpoint=Scripted(says("one", input=120), failed, says("two")), triggers=()
    )
    run_turn(executor, "a", conversation="executed")
    with pytest.raises(ProviderFailed):
        run_turn(executor, "b", conversation="executed")
    run_turn(executor, "c", conversation="executed")
    cc.observe(store, request=claude("a"), reply=claude_answer("b"), format="anthropic", conversation="observed")
    cc.observe(
        store, request=claude("a", "b", "c"), reply={"error": {"message": "no"}}, status=529, format="anthropic",
        conversation="observed",
    )  # fmt: skip
    store.append("silent", cc.user("hi"))


def test_the_sums_are_those_of_the_inspector(store: cc.Store) -> None:
    filled(store)
    found = usage_of(store)
    assert found["silent"] == ()
    for name in ("compiled", "executed", "observed"):
        totals = load_totals(store, name)
        for figure in ("requests", "failed", "input", "estimated", "output", "cache_read"):
            assert sum(getattr(each, figure) for each in found[name]) == getattr(totals, figure), figure
        assert totals.input > 0
        assert sum(each.cost for each in found[name]) == pytest.approx(totals.cost or 0.0)
        times = [each.record.time - each.record.time % QUARTER for each in load_timeline(store, name)]
        assert {each.time for each in found[name]} >= set(times)
    assert [sum(each.failed for each in found[name]) for name in ("compiled", "executed", "observed")] == [0, 1, 1]
    assert [sum(each.requests for each in found[name]) for name in ("compiled", "executed", "observed")] == [2, 3, 2]


def test_a_request_that_no_executor_made_counts_until_it_is_answered(store: cc.Store) -> None:
    """Its channel is all that knows it. It is a request without an answer, as on the timeline."""
    life = Life(store, name="open")
    life.turn("hi")
    store.append("open", cc.user("more"))
    before = keys(store)["open"]
    compiled = life.compile()
    life.compiler.begin(compiled)
    assert keys(store)["open"] != before
    assert [sum(each.requests for each in usage_of(store)["open"]), load_totals(store, "open").requests] == [2, 2]
    assert [sum(each.failed for each in usage_of(store)["open"]), load_totals(store, "open").failed] == [1, 1]
    life.compiler.commit(compiled, cc.assistant("done"))
    assert [sum(each.failed for each in usage_of(store)["open"]), load_totals(store, "open").failed] == [0, 0]


def test_a_key_changes_with_the_requests_of_a_conversation_only(store: cc.Store) -> None:
    filled(store)
    before = keys(store)
    store.append("silent", cc.user("still no request"))
    store.append("compiled", cc.user("not sent yet"))
    assert keys(store) == before
    Life(store, name="compiled").answer(usage=cc.Usage(input=5, output=5))
    cc.observe(
        store, request=claude("a", "b", "d"), reply=claude_answer("e"), format="anthropic", conversation="observed"
    )
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(fails("invalid", "no")), triggers=())
    with pytest.raises(ProviderFailed):
        run_turn(executor, "d", conversation="executed")
    after = keys(store)
    assert {name for name in after if after[name] != before[name]} == {"compiled", "observed", "executed"}


def test_unreadable_rows_are_skipped(store: cc.Store) -> None:
    filled(store)

    def damage(tx: Transaction) -> None:
        tx.run("UPDATE main.manifest SET body = ? WHERE place = (SELECT max(place) FROM main.manifest)", b"\x01damaged")
        tx.run("UPDATE main.step SET body = ? WHERE place = (SELECT max(place) FROM main.step)", b"{")

    store.write(damage)
    found = usage_of(store)
    assert sum(each.requests for each in found["observed"]) == 1
    assert sum(each.input for each in found["compiled"]) == 1_900

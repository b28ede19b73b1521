"""Findings of many conversations, grouped by cause."""

from collections import Counter

import pytest

import contextc as cc
from contextc.analysis import Finding, group_by_cause, store_findings
from contextc.analysis.conversation_loader import StoredConversation
from contextc.analysis.finding import sort_by_cost
from contextc.errors import StoreCorrupt, UnknownConversation
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.traces import load
from tests.analysis.traces.measure import record
from tests.conftest import some


def make(code: str, cost: float | None, conversation: str = "a", tokens: int = 1) -> Finding:
    cause = {"CAC001": "first_request", "CAC006": "system_changed", "WIN002": "large_result"}[code]
    return Finding(code=code, cause=cause, title=code, conversation=conversation, tokens=tokens, cost=cost)


def test_the_most_expensive_cause_is_first() -> None:
    found = [
        make("CAC006", 0.2),
        make("WIN002", 0.3),
        make("CAC006", 0.2, "b"),
        make("CAC001", 0.0),
        make("CAC006", None),
    ]
    one, two = group_by_cause(found)
    assert (one.code, one.count, one.conversations, one.tokens, one.cost) == ("CAC006", 3, 2, 3, 0.4)
    assert (two.code, two.count) == ("WIN002", 1)
    assert [each.cost for each in one.examples] == [0.2, 0.2, None]
    assert [each.cost for each in sort_by_cost(found)] == [0.2, 0.2, None, 0.3, 0.0], "of the same cause first"


def test_unknown_costs_have_no_sum() -> None:
    (one,) = group_by_cause([make("CAC006", None)])
    assert one.cost is None


def test_a_store_is_analysed_and_not_changed() -> None:
    """Guarantee 17.1: own and observed conversations alike."""
    run = ObservedRun(tools=[define_tool("read")])
    run.ask("Read.")
    run.call("read", words(8_000), path="a.log")
    for _ in range(3):
        run.send()
        run.ask("And?")
    store = run.store
    store.append("own", cc.user("Hello."))
    store.append("own", cc.Message(role="tool", parts=(cc.ToolResult(call_id="lost", name="read", content="x"),)))
    compiler = cc.MessageCompiler(store, model="anthropic:claude-sonnet-4-5")
    compiler.commit(compiler.compile("own"), cc.assistant("Done."))
    before = _count_rows(store)
    found = store_findings(store)
    assert (found.conversations, found.requests) == (2, 5)
    assert [each.code for each in found.causes] == ["WIN002", "FAI005"]
    assert [each.examples[0].conversation for each in found.causes] == ["run", "own"]
    assert _count_rows(store) == before


def _count_rows(store: cc.Store) -> list[int]:
    tables = ("message", "manifest", "shown", "head", "channel", "conversation", "event", "token_count")
    return [store.read(lambda tx, name=each: tx.rows(f"SELECT count(*) FROM main.{name}"))[0][0] for each in tables]


def test_unreadable_conversations_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = cc.open_store("memory:")
    store.append("one", cc.user("hi"))
    store.append("two", cc.user("hi"))

    def find_all(view: StoredConversation) -> list[Finding]:
        if view.name == "one":
            raise StoreCorrupt("broken")
        return [make("CAC006", 0.1, view.name)]

    monkeypatch.setattr("contextc.analysis.conversation_findings.find_all", find_all)
    seen: list[Finding] = []
    found = store_findings(store, on_findings=seen.extend)
    assert found.unreadable == ("one",)
    assert [each.conversation for each in seen] == ["two"]
    monkeypatch.undo()
    with pytest.raises(UnknownConversation):
        store_findings(store, ["nope"])


def test_a_request_has_at_most_one_cache_miss() -> None:
    """Guarantee 17.3."""
    for trace in some(load("tune")[::6], 10):
        store = cc.open_store("memory:")
        for name in dict.fromkeys([each.conversation for each in record(store, trace)]):
            found = [each for each in cc.findings(store, name) if each.code.startswith("CAC")]
            assert max(Counter([(each.channel, each.request) for each in found]).values(), default=0) <= 1, trace.name
            assert not any([each.cost for each in found if each.cause == "first_request"]), trace.name


def test_findings_are_sorted_by_cost_and_unknown_costs_are_last() -> None:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)])
    run.ask("Look.")
    run.fail(529, "Overloaded")
    for number in range(5):
        run.call("read", f"line {number}", path=f"{number}.txt")
    found = cc.findings(run.store, run.conversation)
    costs = [each.cost for each in found]
    known = [each for each in costs if each is not None]
    assert known == sorted(known, reverse=True)
    assert costs[len(known) :] == [None] * (len(costs) - len(known)) != []

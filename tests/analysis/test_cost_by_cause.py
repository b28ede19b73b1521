"""What requests cost by cause."""

import pytest

import contextc as cc
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.cost_by_content import ConversationCosts, compute_costs, conversation_costs
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.traces import load
from tests.analysis.traces.measure import record
from tests.conftest import some

READ, WRITE, OUTPUT = 0.30, 3.75, 15.0


def run_with_tools() -> ObservedRun:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 2_000)], system=words(500, "s"))
    run.ask("Look.")
    run.call("read", words(3_000), path="a")
    run.call("draw", "done")
    run.send()
    return run


def by_label(costs: ConversationCosts) -> dict[str, float]:
    return {each.label: each.cost or 0.0 for each in costs.lines}


def test_each_cause_has_its_tokens_at_the_prices_that_were_paid() -> None:
    run = run_with_tools()
    costs = conversation_costs(run.store, run.conversation)
    lines = {each.label: each for each in costs.lines}
    assert {
        "system prompt", "tool definition: read", "tool definition: draw", "tool results: read", "tool results: draw",
        "history", "answers",
    } == {*lines}  # fmt: skip
    draw = lines["tool definition: draw"]
    assert draw.written == pytest.approx(draw.tokens / 3, rel=0.06)  # written once, read twice
    assert draw.read == pytest.approx(draw.tokens * 2 / 3, rel=0.06)
    assert draw.cost == pytest.approx((draw.written * WRITE + draw.read * READ) / 1e6, rel=0.01)
    assert lines["answers"].cost == pytest.approx(3 * 50 * OUTPUT / 1e6)
    assert costs.lines[0].cost == max([each.cost or 0.0 for each in costs.lines])
    assert costs.rewrite_factor == pytest.approx(1.0, abs=0.02)


def test_the_costs_add_up_to_the_cost_of_each_request() -> None:
    """Guarantee 17.4."""
    run = run_with_tools()
    _check_sums(run.store, run.conversation)


def test_costs_of_traces_add_up_for_all_providers() -> None:
    for trace in some(load("tune"), 5):
        store = cc.open_store("memory:")
        for name in dict.fromkeys([each.conversation for each in record(store, trace)]):
            _check_sums(store, name)


def _check_sums(store: cc.Store, conversation: str) -> None:
    view = load_conversation_view(store, conversation)
    costs = compute_costs(view)
    assert len(costs.requests) == len(view.requests)
    for request, found in zip(view.requests, costs.requests, strict=True):
        assert found.cost == pytest.approx(request.cost)
        usage = request.usage
        if usage is not None:
            assert sum([each.tokens for each in found.lines]) == pytest.approx(usage.input + usage.output)
            assert sum([each.read for each in found.lines]) == pytest.approx(usage.cache_read)
            assert sum([each.written for each in found.lines]) == pytest.approx(usage.cache_write)
    known = [each.cost for each in costs.requests if each.cost is not None]
    if known:
        assert sum([each.cost or 0.0 for each in costs.lines]) == pytest.approx(sum(known))
        assert costs.cost == pytest.approx(sum(known))


def test_requests_without_usage_have_estimated_tokens_and_no_cost() -> None:
    run = ObservedRun()
    run.ask("Hello.")
    run.fail(529, "Overloaded")
    costs = conversation_costs(run.store, run.conversation)
    assert costs.cost is None
    assert costs.unpriced == 1
    assert costs.lines == ()
    assert not costs.requests[0].is_reported
    assert sum([each.tokens for each in costs.requests[0].lines]) > 0


def test_a_conversation_that_is_written_again_has_a_rewrite_factor() -> None:
    run = ObservedRun()
    for number in range(4):
        run.cached = 0
        run.ask(f"{number}: {words(500)}")
        run.send()
    costs = conversation_costs(run.store, run.conversation)
    assert costs.rewrite_factor == pytest.approx(2.5, abs=0.2)

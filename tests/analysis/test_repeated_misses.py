"""Misses that repeat: requests that return to an earlier prefix, and losses that are small each time."""

import pytest

from contextc.analysis.conversation_findings import list_losses
from contextc.analysis.finding import RequestLoss
from tests.analysis.observed_run import ObservedRun, define_tool, find_by_request, words


def test_a_return_to_an_earlier_order_of_tools_is_a_miss() -> None:
    """Two workers with an order of tools each: what the other one added is not in the cache of this order."""
    run = ObservedRun(tools=[define_tool("read", 900), define_tool("draw", 900)], system=words(3_000, "s"))
    run.ask("Go.")
    sizes: dict[bool, int] = {}
    for number in range(6):
        run.tools = run.tools[::-1]
        run.cached = sizes.get(number % 2 == 0, 0)
        run.call("read", words(3_000, f"r{number}x"), path="a.txt")
        sizes[number % 2 == 0] = run.cached
    found = [each for each in find_by_request(run.store, run.conversation) if each.code.startswith("CAC")]
    assert [each.cause for each in found] == ["first_request", *["tools_reordered"] * 5]
    assert all(2_000 < each.tokens < 5_000 for each in found[2:])


def test_a_return_to_an_earlier_model_is_a_miss_if_much_was_added() -> None:
    for size, is_miss in ((4_000, True), (150, False)):
        run = ObservedRun(system=words(6_000, "s"))
        run.ask("Go.")
        models, sizes = ("claude-sonnet-4-5", "claude-opus-4-8"), dict[str, int]()
        for number in range(5):
            run.model = models[number % 2]
            run.cached = sizes.get(run.model, 0)
            run.call("read", words(size, f"r{number}x"), path="a.txt")
            sizes[run.model] = run.cached
        found = [each for each in find_by_request(run.store, run.conversation) if each.cause == "model_changed"]
        assert len(found) == (4 if is_miss else 1)


def test_small_losses_are_a_finding_once_they_add_up() -> None:
    """The orders of tools take turns, and each is in the cache: only what was added in between is lost."""
    for turns, is_found in ((3, False), (14, True)):
        run = ObservedRun(tools=[define_tool("read", 900), define_tool("draw", 900)], system=words(12_000, "s"))
        run.ask("Go.")
        sizes: dict[bool, int] = {}
        for number in range(turns):
            run.tools = run.tools[::-1]
            run.cached = sizes.get(number % 2 == 0, 0)
            run.call("read", words(240, f"r{number}x"), path="a.txt")
            sizes[number % 2 == 0] = run.cached
        found = [each for each in find_by_request(run.store, run.conversation) if each.code.startswith("CAC")]
        assert [each.cause for each in found[:2]] == ["first_request", "tools_reordered"]
        assert len(found) == 2 + is_found
        if is_found:
            small = found[-1]
            assert small.cause == "tools_reordered"
            assert small.title.endswith("in 12 requests with a small loss each")
            assert 12 * 150 < small.tokens < 12 * 600
            assert small.cost is not None
            assert small.cost > 0
            assert len({each.request for each in small.evidence}) == len(small.evidence) == 5
            assert [each.request for each in small.losses] == list(range(3, 15))
            assert sum([each.tokens for each in small.losses]) == small.tokens
            assert sum([each.cost or 0.0 for each in small.losses]) == pytest.approx(small.cost)
            assert list_losses(found[1:]) == [
                RequestLoss(channel=small.channel, request=2, tokens=found[1].tokens, cost=found[1].cost),
                *small.losses,
            ]


def test_losses_without_a_difference_are_not_added_up() -> None:
    """A provider that reads a little less than it could each time: the step in which it caches, or our own estimate."""
    run = ObservedRun(tools=[define_tool("read", 900)], system=words(12_000, "s"))
    run.ask("Go.")
    for number in range(20):
        run.cached = max(0, run.cached - 300)
        run.call("read", words(240, f"r{number}x"), path="a.txt")
    found = [each.cause for each in find_by_request(run.store, run.conversation) if each.code.startswith("CAC")]
    assert found == ["first_request"]

"""What recorded requests would have cost in other ways."""

import pytest

import contextc as cc
from contextc.analysis import WhatIf, what_if
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.traces import load
from tests.analysis.traces.measure import record
from tests.conftest import some

READ, WRITE = 0.30, 3.75


def saved(found: WhatIf) -> dict[str, float]:
    return {each.name: each.saved for each in found.replays}


def test_tools_that_are_never_called_could_be_left_out() -> None:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 4_000)], system=words(2_500, "s"))
    run.ask("Look.")
    for number in range(6):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send()
    found = what_if(run.store, run.conversation)
    assert found.is_reliable
    assert found.paid == pytest.approx(found.predicted, rel=0.05)
    (unused,) = [each for each in cc.findings(run.store, run.conversation) if each.code == "WIN001"]
    assert unused.cost is not None
    assert saved(found)["drop_tools"] == pytest.approx(unused.cost, rel=0.05)


def test_a_constant_system_prompt_saves_what_its_changes_cost() -> None:
    run = ObservedRun(system=words(6_000, "s"))
    for minute in range(6):
        run.system = f"It is 12:0{minute}. {words(6_000, 's')}"
        run.cached = 0  # nothing could be read
        run.ask(f"Question {minute}.")
        run.send()
    found = what_if(run.store, run.conversation)
    assert found.is_reliable
    missed = sum([each.cost or 0.0 for each in cc.findings(run.store, run.conversation) if each.code == "CAC006"])
    assert missed > 0
    assert saved(found)["constant_system"] == pytest.approx(missed, rel=0.05)
    assert found.replays[0].name == "constant_system"


def test_a_cache_can_be_kept_warm_if_the_pause_is_not_too_long() -> None:
    for minutes, is_worth in ((20, True), (120, False)):
        run = ObservedRun(system=words(6_000, "s"))
        for number in range(3):
            run.ask(f"Question {number}.")
            run.send()
            run.time += minutes * 60_000
            run.cached = 0  # it has expired
        found = saved(what_if(run.store, run.conversation))
        assert ("keep_warm" in found) is is_worth
        assert found.get("keep_warm", 1.0) > 0


def test_sorted_tools_save_what_other_orders_cost() -> None:
    run = ObservedRun(tools=[define_tool("read", 900), define_tool("draw", 900)], system=words(5_000, "s"))
    run.ask("Go.")
    run.call("read", words(300, "r"), path="a.txt")
    run.call("read", words(300, "t"), path="b.txt")
    assert "sort_tools" not in saved(what_if(run.store, run.conversation))
    run.tools = run.tools[::-1]
    run.cached = 0  # nothing could be read
    run.call("read", words(300, "u"), path="c.txt")
    run.send()
    found = what_if(run.store, run.conversation)
    assert found.is_reliable
    (miss,) = [each for each in cc.findings(run.store, run.conversation) if each.cause == "tools_reordered"]
    assert saved(found)["sort_tools"] == pytest.approx(miss.cost, rel=0.05)
    assert next(each.requests for each in found.replays if each.name == "sort_tools") == 2


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("breakpoint_missing-never-anthropic", "breakpoint_missing"),
        ("breakpoint_missing-only-system-bedrock", "breakpoint_missing"),
        ("breakpoint_missing-explicit-responses", "breakpoint_missing"),
        ("lookback_exceeded-attachments-anthropic", "lookback_exceeded"),
        ("lookback_exceeded-turns-bedrock", "lookback_exceeded"),
    ],
)
def test_breakpoints_save_what_missing_ones_cost(name: str, cause: str) -> None:
    trace = next(each for each in load("tune") if each.name == f"tune-{name}")
    store = cc.open_store("memory:")
    conversation = record(store, trace)[0].conversation
    found = what_if(store, conversation)
    missed = sum([each.cost or 0.0 for each in cc.findings(store, conversation) if each.cause == cause])
    assert missed > 0
    saving = saved(found)["breakpoints"]
    assert 0.75 * missed < saving < 1.05 * missed  # more is written than before


def test_breakpoints_are_left_alone_where_they_are_right() -> None:
    for name in ("tune-clean-loop-anthropic", "tune-message_changed-arguments-bedrock", "tune-clean-loop-chat"):
        store = cc.open_store("memory:")
        conversation = record(store, next(each for each in load("tune") if each.name == name))[0].conversation
        assert not {"breakpoints", "sort_tools"} & saved(what_if(store, conversation)).keys()


def test_compaction_costs_in_short_runs_and_saves_in_long_ones() -> None:
    for steps, is_cheaper in ((6, False), (120, True)):
        run = ObservedRun(tools=[define_tool("read")])
        run.ask("Go.")
        for number in range(steps):
            run.call("read", words(1_500, f"r{number}x"), path=f"{number}.txt")
        run.send()
        found = what_if(run.store, run.conversation, compact_at=5_000 if steps == 6 else 30_000)
        assert found.is_reliable
        assert (saved(found)["compact"] > 0) is is_cheaper


def test_no_compaction_where_little_but_system_prompt_and_tools_could_be_kept() -> None:
    run = ObservedRun(tools=[define_tool("read", 6_000)])
    run.ask("Go.")
    for number in range(8):
        run.call("read", words(400, f"r{number}x"), path=f"{number}.txt")
    found = what_if(run.store, run.conversation)
    assert "compact" not in saved(found)
    assert found.skipped["compact"].startswith("system prompt, tools and a summary have ")
    asked = what_if(run.store, run.conversation, compact_at=8_000)
    assert "compact" not in saved(asked)
    assert asked.skipped["compact"].endswith("more than half of 8,000")
    for number in range(30):
        run.call("read", words(1_000, f"s{number}x"), path=f"s{number}.txt")
    found = what_if(run.store, run.conversation)
    assert found.skipped == {}
    assert "compact" in saved(found)


def test_conversations_without_prices_have_nothing_to_replay() -> None:
    run = ObservedRun()
    run.ask("Hello.")
    run.fail(529, "Overloaded")
    found = what_if(run.store, run.conversation)
    assert (found.paid, found.predicted, found.replays, found.error) == (None, None, (), None)
    assert not found.is_reliable


def test_predictions_are_near_what_simulated_providers_charge() -> None:
    errors: list[float] = []
    for trace in some(load("tune"), 10):
        store = cc.open_store("memory:")
        for name in dict.fromkeys([each.conversation for each in record(store, trace)]):
            error = what_if(store, name).error
            errors += [error] if error is not None else []
    errors.sort()
    assert errors[len(errors) // 2] < 0.05
    assert errors[len(errors) * 3 // 4] < 0.15

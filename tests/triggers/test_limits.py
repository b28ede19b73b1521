"""Triggers for near limits, truncated replies, and the count of calls."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.triggers import TriggerContext, limit_triggers
from tests.triggers.run_triggers import Play


def texts_at(*moments: TriggerContext) -> list[str]:
    play = Play(limit_triggers())
    return [" ".join(message.text for message in play.at(moment)) for moment in moments]


def leads(*moments: TriggerContext) -> list[str]:
    return [text.partition(":")[0] for text in texts_at(*moments)]


def steps(*made: int, limit: int | None = 250, turn: int = 1) -> list[TriggerContext]:
    return [TriggerContext(turn=turn, step=each + 1, steps=each, step_limit=limit) for each in made]


def test_the_step_limit_is_reported_at_80_per_cent_once_a_turn() -> None:
    """Guarantees 11.5, 11.2: the default of 250 steps is reported after 200."""
    moments = [*steps(0, 199, 200, 201, 249), *steps(0, 199, 200, turn=2)]
    assert leads(*moments) == ["", "", "Step limit", "", "", "", "", "Step limit"]


def test_a_small_limit_is_reported_before_the_last_step_but_not_before_the_first() -> None:
    assert leads(*steps(0, 1, 2, limit=3)) == ["", "", "Step limit"]
    assert leads(*steps(0, limit=1)) == [""]


def test_no_limit_is_never_near() -> None:
    assert leads(*steps(0, 249, 100_000, limit=None)) == ["", "", ""]


@pytest.mark.parametrize(
    ("below", "near", "text"),
    [
        (
            {"steps": 199, "step_limit": 250},
            {"steps": 200},
            "Step limit: 200 of at most 250 steps are made in this turn.",
        ),
        (
            {"tool_calls": 79, "tool_call_limit": 100},
            {"tool_calls": 83},
            "Tool call limit: 83 of at most 100 tool calls are made in this turn.",
        ),
        (
            {"cost": 0.0039, "cost_limit": 0.005},
            {"cost": 0.004},
            "Cost limit: 0.004 of at most 0.005 dollars are spent in this turn.",
        ),
        (
            {"seconds": 79.9, "seconds_limit": 100.0},
            {"seconds": 80.4},
            "Time limit: 80 of at most 100 seconds have passed in this turn.",
        ),
    ],
)
def test_each_limit_has_its_own_texts(below: JSONObject, near: JSONObject, text: str) -> None:
    """Guarantee 11.5: step and tool-call count, cost; 11.2: time as well."""
    way_out = " At the limit the turn ends: do what matters most, and give an answer before that."
    assert texts_at(TriggerContext(step=2, **below), TriggerContext(step=3, **{**below, **near})) == [
        "",
        text + way_out,
    ]


def test_an_unknown_cost_is_not_near_its_limit() -> None:
    assert leads(TriggerContext(cost=None, cost_limit=1.0), TriggerContext(step=2, cost=5.0)) == ["", ""]


def test_a_reply_cut_at_the_output_limit_is_reported_each_time() -> None:
    """Guarantee 11.5: truncated output."""
    finishes = ["tool_calls", "length", "tool_calls", "length", None]
    moments = [TriggerContext(step=step, finish=finish) for step, finish in enumerate(finishes, 2)]
    assert leads(*moments) == ["", "Output cut", "", "Output cut", ""]
    assert "in smaller pieces" in texts_at(moments[1])[0]


def test_every_ten_calls_are_a_user_notice_only() -> None:
    """Guarantee 11.7: calls that run together may skip the ten itself."""
    play = Play(limit_triggers())
    texts: list[int] = []
    for calls in (1, 9, 10, 11, 19, 23, 24, 30):
        for message in play.at(TriggerContext(when="mid_step", tool_calls=calls, step=2, share=0.456)):
            assert message.kind == "hint"
            texts.append(calls)
    assert texts == [10, 23, 30]
    assert play.at(TriggerContext(when="before_step", tool_calls=40)) == []


def test_the_count_of_calls_starts_over_with_each_turn() -> None:
    play = Play(limit_triggers())
    moments = [TriggerContext(when="mid_step", turn=turn, tool_calls=12, share=0.456) for turn in (1, 2)]
    texts = [[message.text for message in play.at(moment)] for moment in moments]
    assert texts == [["Tool calls: 12 so far in this turn, step 1, context at 45 %."]] * 2


def test_the_defaults_are_all_families_but_resources() -> None:
    """Guarantee 11.5: memory and CPU are off by default."""
    assert [trigger.name for trigger in cc.default_triggers()] == [
        "todos_at_start",
        "todos_after_compaction",
        "context_80",
        "context_90",
        "no_progress",
        "repeated_error",
        "step_limit",
        "tool_call_limit",
        "cost_limit",
        "time_limit",
        "output_cut",
        "call_count",
    ]


def test_an_ordinary_step_is_silent_and_writes_nothing() -> None:
    """Guarantee 3.3: what a step writes does not grow; most steps have nothing to remember."""
    play = Play(cc.default_triggers())
    for step in range(1, 20):
        assert play.at(TriggerContext(step=step, steps=step - 1, share=0.4, step_limit=250, finish="tool_calls")) == []
    assert play.states == {}

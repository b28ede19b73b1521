"""Triggers that are plain functions."""

import re
from pathlib import Path
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidInput
from contextc.triggers import TriggerContext, TriggerMessage, evaluate_triggers
from tests.triggers.run_triggers import Play


def test_the_reference_names_every_field_of_a_moment() -> None:
    page = (Path(__file__).parents[2] / "docs" / "triggers.md").read_text()
    table = page.partition("### The trigger context")[2].partition("### ")[0]
    named = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert named == {*TriggerContext.__struct_fields__}


def test_a_trigger_in_five_lines() -> None:
    """User-defined ones in five lines."""

    @cc.trigger("friday", once=True)
    def friday(moment: TriggerContext) -> str | None:
        if int(moment.now // 86_400) % 7 == 1:  # 1970 began on a Thursday
            return "Friday: do not deploy today."
        return None

    play = Play([friday])
    days = [play.lead(TriggerContext(turn=day, now=day * 86_400.0)) for day in range(10)]
    assert days == [[], ["Friday"], [], [], [], [], [], [], [], []]


def test_a_function_may_return_a_trigger_message() -> None:
    @cc.trigger("careful", level=3, priority=7, group="g", at="session_start")
    def careful(moment: TriggerContext) -> TriggerMessage:
        return TriggerMessage(text="Careful.", stop="careful", title="Care")

    ((trigger, message),) = evaluate_triggers([careful], TriggerContext(when="session_start"), {}).messages
    assert (trigger.priority, trigger.group, trigger.at) == (7, "g", ("session_start",))
    assert message == TriggerMessage(text="Careful.", level=3, stop="careful", title="Care")


def test_a_function_with_a_second_parameter_has_state() -> None:
    """Guarantee 11.4: state."""

    @cc.trigger("third")
    def third(moment: TriggerContext, state: JSONObject) -> tuple[str | None, JSONObject]:
        count = state.get("count", 0) + 1
        return "Third." if count == 3 else None, {"count": count}

    play = Play([third])
    assert [play.lead(TriggerContext(step=step)) for step in (1, 2, 3, 4)] == [[], [], ["Third."], []]


def test_a_default_is_not_a_second_parameter() -> None:
    @cc.trigger("loud")
    def loud(moment: TriggerContext, mark: str = "!") -> str:
        return "Hear" + mark

    assert Play([loud]).lead(TriggerContext()) == ["Hear!"]


def test_blank_texts_are_nothing() -> None:
    @cc.trigger("blank")
    def blank(moment: TriggerContext) -> str:
        return " \n"

    assert evaluate_triggers([blank], TriggerContext(), {}).messages == ()


def test_an_async_function_is_refused_where_it_is_defined() -> None:
    """Guarantee 15.1: not when it is first asked, in the middle of a turn."""

    async def later(moment: TriggerContext) -> str:
        return "too late"

    async def remembering(moment: TriggerContext, state: JSONObject) -> tuple[str, JSONObject]:
        return "too late", state

    for function in (later, remembering):
        with pytest.raises(cc.errors.InvalidInput, match="'late' must be a synchronous function"):
            cc.trigger("late")(function)  # pyright: ignore[reportArgumentType]
    play = Play(
        [
            cc.trigger("later")(lambda moment: later(moment)),  # pyright: ignore[reportArgumentType]
            cc.trigger("remembering")(lambda moment, state: remembering(moment, state)),  # pyright: ignore[reportArgumentType]
        ]
    )
    assert play.at(TriggerContext()) == []
    assert play.failures[0] == (
        "later",
        "a trigger must be a synchronous function, got an async one. Define it with `def`.",
    )
    assert play.failures[1][1].endswith("got coroutine.")


def test_another_value_fails_with_the_reason() -> None:
    @cc.trigger("seven")
    def seven(moment: TriggerContext) -> str:
        return cast(str, 7)

    play = Play([seven])
    play.at(TriggerContext())
    assert play.failures == [("seven", "a trigger must return a string, a TriggerMessage or None, got int.")]


def test_what_cannot_be_a_trigger_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidInput, match="name must be a string, got builtin_function_or_method"):
        cc.trigger(cast(str, len))
    with pytest.raises(InvalidInput, match="must take 1 or 2 arguments, got 0"):
        cc.trigger("x")(lambda: None)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidInput, match="at must be one of"):
        cc.trigger("x", at="now")(lambda moment: None)  # pyright: ignore[reportArgumentType]


def test_the_function_can_still_be_called() -> None:
    @cc.trigger("x")
    def hello(moment: TriggerContext) -> str:
        return f"Step {moment.step}."

    assert hello(TriggerContext(step=4)) == "Step 4."

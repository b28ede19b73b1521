"""Evaluation of triggers: which fire, in which order, and how failures are handled."""

from typing import cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput
from contextc.triggers import Trigger, TriggerContext, TriggerMessage, check_triggers, evaluate_triggers
from tests.triggers.run_triggers import Play, filled

NOTHING: JSONObject = {}


class ConstantTrigger(Trigger, frozen=True, kw_only=True):
    """Says one thing, wherever it is asked."""

    say: object

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        return cast(TriggerMessage, self.say), state


class Returning(Trigger, frozen=True, kw_only=True):
    """Returns anything at all."""

    result: object

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        return cast(tuple[TriggerMessage | None, JSONObject], self.result)


class Raising(Trigger, frozen=True, kw_only=True):
    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        raise ZeroDivisionError("division by zero")


def constant_trigger(name: str, **more: JSON) -> ConstantTrigger:
    return ConstantTrigger(name=name, say=TriggerMessage(text=name), **more)


def names(*triggers: Trigger, moment: TriggerContext | None = None) -> list[str]:
    return [trigger.name for trigger, _ in evaluate_triggers(triggers, moment or TriggerContext(), {}).messages]


def test_all_that_fire_fire_by_priority_and_equals_as_given() -> None:
    """Guarantee 11.3: collected by priority; a lower one comes first."""
    assert names(
        constant_trigger("c"),
        constant_trigger("a", priority=1),
        constant_trigger("d"),
        constant_trigger("b", priority=2),
    ) == ["a", "b", "c", "d"]


def test_of_one_group_only_the_highest_level_fires() -> None:
    """Guarantee 11.3."""
    low, high = constant_trigger("low", group="g", level=1), constant_trigger("high", group="g", level=2)
    assert names(low, high, constant_trigger("other"), constant_trigger("alone", group="h")) == [
        "high",
        "other",
        "alone",
    ]
    assert names(high, low) == ["high"]


def test_a_level_of_the_message_counts_before_that_of_the_trigger() -> None:
    risen = ConstantTrigger(name="risen", group="g", level=1, say=TriggerMessage(text="x", level=9))
    assert names(risen, constant_trigger("high", group="g", level=2)) == ["risen"]


def test_of_equal_levels_of_one_group_the_first_fires() -> None:
    assert names(constant_trigger("b", group="g"), constant_trigger("a", group="g", priority=1)) == ["a"]


def test_a_trigger_that_ends_the_turn_is_not_suppressed_by_a_higher_level() -> None:
    ending = ConstantTrigger(name="ending", group="g", level=1, say=TriggerMessage(text="Enough.", stop="no_progress"))
    verdict = evaluate_triggers([constant_trigger("high", group="g", level=5), ending], TriggerContext(), {})
    assert [trigger.name for trigger, _ in verdict.messages] == ["ending"]
    assert verdict.stop == "no_progress"
    assert evaluate_triggers([constant_trigger("x")], TriggerContext(), {}).stop is None


def test_user_notices_do_not_suppress_messages_for_the_model() -> None:
    """Guarantee 11.7."""
    hint = constant_trigger("hint", group="g", level=5, kind="hint")
    assert names(hint, constant_trigger("system", group="g", level=1)) == ["hint", "system"]


def test_a_trigger_suppressed_by_its_group_counts_as_fired() -> None:
    """Guarantees 11.3, 11.4: what was left unsaid once is not said late."""
    play = Play(
        [
            constant_trigger("low", group="g", level=1, once=True),
            constant_trigger("high", group="g", level=2, once=True),
        ]
    )
    assert [play.lead(TriggerContext(step=step)) for step in (1, 2)] == [["high"], []]


def test_a_trigger_is_asked_only_at_its_moments() -> None:
    """Guarantee 11.3: session start, before every step, after compaction."""
    triggers = [
        constant_trigger("start", at=("session_start",)),
        constant_trigger("step"),
        constant_trigger("compacted", at="after_compaction"),
    ]
    assert names(*triggers, moment=TriggerContext(when="session_start")) == ["start"]
    assert names(*triggers, moment=TriggerContext(when="before_step")) == ["step"]
    assert names(*triggers, moment=TriggerContext(when="after_compaction")) == ["compacted"]


def test_a_user_notice_trigger_never_sends_to_a_model() -> None:
    """Guarantee 11.7: whatever kind its message claims."""
    ((_, message),) = evaluate_triggers(
        [constant_trigger("hint", kind="hint", at=("mid_step",))], TriggerContext(when="mid_step"), {}
    ).messages
    assert message.kind == "hint"
    with pytest.raises(InvalidInput, match="at='mid_step' requires kind='hint'"):
        constant_trigger("x", at=("mid_step",))


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (Raising(name="bad"), "It raised ZeroDivisionError: division by zero"),
        (Trigger(name="bad"), "It raised NotImplementedError: Trigger must implement `check`"),
        (
            Returning(name="bad", result="words"),
            "`check` must return a pair of a TriggerMessage (or None) and a state, got str.",
        ),
        (Returning(name="bad", result=("words", NOTHING)), "message must be a TriggerMessage or None, got str."),
        (
            Returning(name="bad", result=(None, [1])),
            "state must be a dict, got list. Return a JSON-compatible dict, {} for no state.",
        ),
        (Returning(name="bad", result=(None, {"at": {1}})), "state.at: a set is not JSON. Use dict, list, str, …"),
        (
            Returning(name="bad", result=(None, {"x": "y" * 20_000})),
            "state must have at most 16,384 bytes, got 20,008.",
        ),
        (
            Returning(name="bad", result=(TriggerMessage(text=" "), NOTHING)),
            "TriggerMessage: text must not be blank. Return None for no message.",
        ),
        (
            Returning(name="bad", result=(TriggerMessage(text=cast(str, 7)), NOTHING)),
            "TriggerMessage: text must not be blank.",
        ),
        (
            Returning(name="bad", result=(TriggerMessage(text="x", stop=""), NOTHING)),
            "TriggerMessage: stop must be a non-empty finish reason, got ''.",
        ),
        (
            Returning(name="bad", result=(TriggerMessage(text="x", level=cast(int, "9")), NOTHING)),
            "TriggerMessage: level must be an integer",
        ),
    ],
)
def test_a_failing_trigger_is_reported_and_stops_no_other(failing: Trigger, reason: str) -> None:
    """Guarantee 11.3."""
    verdict = evaluate_triggers([constant_trigger("before"), failing, constant_trigger("after")], TriggerContext(), {})
    assert [trigger.name for trigger, _ in verdict.messages] == ["before", "after"]
    ((name, result),) = verdict.failures
    assert name == "bad"
    assert result.startswith(reason.removesuffix("…"))


def test_the_same_failure_is_reported_once_until_the_trigger_works_again() -> None:
    """A trigger that cannot work must not fill the log at every step."""
    broken = [True, True, False, True]

    @cc.trigger("fragile")
    def fragile(moment: TriggerContext) -> str | None:
        return str(1 / 0) if broken[moment.step - 1] else None

    play = Play([fragile])
    reported: list[int] = []
    for step in (1, 2, 3, 4):
        play.at(TriggerContext(step=step))
        reported.append(len(play.failures))
    assert reported == [1, 1, 1, 2]


def test_a_failing_trigger_keeps_its_state() -> None:
    @cc.trigger("counter")
    def counter(moment: TriggerContext, state: JSONObject) -> tuple[str, JSONObject]:
        state["count"] = state.get("count", 0) + 1
        if moment.step == 2:
            raise ValueError("not now")
        return f"{state['count']}", state

    play = Play([counter])
    assert [play.lead(TriggerContext(step=step)) for step in (1, 2, 3)] == [["1"], [], ["2"]]


def test_only_states_that_changed_come_back() -> None:
    """Guarantee 11.4: what is stored with a message is what the message changed."""

    @cc.trigger("shares", at=("before_step",))
    def shares(moment: TriggerContext, state: JSONObject) -> tuple[None, JSONObject]:
        return None, {"share": moment.share} if moment.share else {}

    play = Play([shares, constant_trigger("once", once=True)])
    for step, share in enumerate([0.0, 0.5, 0.5, 0.0], 1):
        play.at(filled(step, share))
    assert [sorted(each) for each in play.written] == [["once"], ["shares"], [], ["shares"]]


def test_no_trigger_fires_twice_at_one_moment() -> None:
    """Guarantees 11.4, 3.6: a turn that is taken up again after a crash asks again, and the message is there
    already.
    """
    play = Play([constant_trigger("x")])
    moments = [
        TriggerContext(step=1),
        TriggerContext(step=1),
        TriggerContext(step=2),
        TriggerContext(turn=2),
        TriggerContext(turn=2, conversation="fork"),
    ]
    assert [play.lead(moment) for moment in moments] == [["x"], [], ["x"], ["x"], ["x"]]


def test_two_moments_of_one_step_are_two() -> None:
    """Guarantee 11.3: before the step, and after the compaction that it led to."""
    play = Play([constant_trigger("x", at=("before_step", "after_compaction"))])
    assert [play.lead(TriggerContext()), play.lead(TriggerContext(when="after_compaction"))] == [["x"], ["x"]]


def test_the_end_of_a_turn_is_reported_again_if_it_did_not_come_about() -> None:
    play = Play([ConstantTrigger(name="x", say=TriggerMessage(text="Enough.", stop="done"))])
    assert [len(play.at(TriggerContext())), len(play.at(TriggerContext()))] == [1, 1]


def test_a_cooldown_in_steps_continues_in_the_next_turn_and_counts_no_step_twice() -> None:
    """Guarantee 11.4: cooldown."""
    play = Play([constant_trigger("x", cooldown_steps=3)])
    places = [(1, 1), (1, 2), (1, 2), (2, 1), (2, 1), (3, 1), (3, 2)]
    texts = [bool(play.at(TriggerContext(turn=turn, step=step))) for turn, step in places]
    assert texts == [True, False, False, False, False, True, False]


def test_a_stored_state_that_makes_no_sense_is_taken_as_none() -> None:
    states: dict[str, JSONObject] = {"x": {"state": 7, "said": "yes", "heard": "no"}}
    assert len(evaluate_triggers([constant_trigger("x", once=True)], TriggerContext(), states).messages) == 1


def test_texts_that_no_encoding_can_carry_are_repaired() -> None:
    ((_, message),) = evaluate_triggers(
        [ConstantTrigger(name="x", say=TriggerMessage(text="half \ud83d"))], TriggerContext(), {}
    ).messages
    assert message.text == "half \N{REPLACEMENT CHARACTER}"


def test_two_triggers_of_one_name_are_refused() -> None:
    """Their states would be one."""
    with pytest.raises(InvalidInput, match="Two triggers are named 'x'"):
        check_triggers([constant_trigger("x"), constant_trigger("x")])
    with pytest.raises(InvalidInput, match="must contain only triggers, got function"):
        evaluate_triggers(cast(list[Trigger], [names]), TriggerContext(), {})


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"name": " "}, "name must have 1 to 128 printable characters"),
        ({"name": "x", "at": ("sometimes",)}, "at must be one of .*, got 'sometimes'"),
        ({"name": "x", "kind": "shout"}, "kind must be .*, got 'shout'"),
        ({"name": "x", "cooldown_steps": -1}, "cooldowns must be 0 or more, got -1"),
    ],
)
def test_a_trigger_that_cannot_be_is_refused_when_it_is_made(wrong: JSONObject, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        Trigger(**wrong)

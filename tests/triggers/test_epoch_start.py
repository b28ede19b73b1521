"""Trigger messages at the start of an epoch, which describe the new request."""

from collections.abc import Sequence

import pytest

from contextc._json import JSONObject
from contextc.errors import InvalidInput
from contextc.triggers import (
    ResourceUsage,
    Trigger,
    TriggerContext,
    TriggerMessagesInRequest,
    context_triggers,
    evaluate_triggers,
    memory_trigger,
    restate_warnings,
    trigger,
)
from tests.triggers.run_triggers import Play, filled

WARNED, OVER = False, True


def states_after(triggers: Sequence[Trigger], *moments: TriggerContext) -> dict[str, JSONObject]:
    play = Play(triggers)
    for moment in moments:
        play.at(moment)
    return play.states


def leads(
    triggers: Sequence[Trigger], moment: TriggerContext, states: dict[str, JSONObject], shown: TriggerMessagesInRequest
) -> list[str]:
    return [message.text.partition(":")[0] for _, message in restate_warnings(triggers, moment, states, shown).messages]


def memory(share: float, **more: object) -> TriggerContext:
    return filled(2, 0, resources=lambda: ResourceUsage(memory=share, cpu=0.0), **more)


def test_active_warnings_are_repeated_if_no_longer_shown() -> None:
    triggers = [memory_trigger()]
    states = states_after(triggers, memory(0.9))

    assert leads(triggers, memory(0.8), states, []) == ["Memory warning"]
    assert leads(triggers, memory(0.8), states, [("memory", WARNED)]) == []
    assert leads(triggers, memory(0.8), states, [("memory", OVER)]) == ["Memory warning"]
    assert leads(triggers, memory(0.7), states, []) == []
    assert leads(triggers, memory(0.9), {}, []) == []


def test_a_warning_that_does_not_hold_is_taken_back_where_it_is_shown() -> None:
    """The message that took it back may have been rewound away, or its level begun again."""
    triggers = [memory_trigger()]
    states = states_after(triggers, memory(0.9), memory(0.5, steps=3))

    assert leads(triggers, memory(0.5), states, [("memory", WARNED)]) == ["Memory recovered"]
    assert leads(triggers, memory(0.5), states, [("memory", WARNED), ("memory", OVER)]) == []
    assert leads(triggers, memory(0.5), states, []) == []


@pytest.mark.parametrize(
    ("share", "shown", "expected"),
    [
        (0.95, [], ["Context critical"]),
        (0.95, [("context_80", WARNED)], ["Context critical"]),
        (0.95, [("context_80", WARNED), ("context_90", WARNED)], []),
        (0.86, [("context_90", WARNED)], []),
        (0.84, [("context_90", WARNED)], ["Context warning"]),
        (0.84, [("context_90", WARNED), ("context_80", WARNED)], []),
        (0.7, [("context_90", WARNED)], ["Context recovered"]),
        (0.7, [], []),
    ],
)
def test_the_last_message_of_a_group_is_its_highest_level_that_holds(
    share: float, shown: TriggerMessagesInRequest, expected: list[str]
) -> None:
    """One message for a group of levels: the highest that holds, or that all of it is over."""
    triggers = context_triggers()
    states = states_after(triggers, filled(1, 0.95))
    moment = filled(2, share)
    verdict = evaluate_triggers(triggers, moment, states, shown)
    known = [*shown, *[(trigger.name, message.closes) for trigger, message in verdict.messages]]
    found = [message.text.partition(":")[0] for _, message in verdict.messages]

    assert found + leads(triggers, moment, states | verdict.states, known) == expected


def test_an_end_is_not_reported_where_its_warning_is_not_shown() -> None:
    triggers, states = [memory_trigger()], states_after([memory_trigger()], memory(0.9))

    assert evaluate_triggers(triggers, memory(0.5), states, []).messages == ()
    assert len(evaluate_triggers(triggers, memory(0.5), states, [("memory", WARNED)]).messages) == 1
    assert len(evaluate_triggers(triggers, memory(0.5), states).messages) == 1


def test_a_trigger_that_fails_to_repeat_stops_no_other() -> None:
    calls: list[int] = []

    @trigger("broken")
    def broken(moment: TriggerContext) -> str:
        calls.append(moment.step)
        return "Fine." if len(calls) == 1 else str(1 // 0)

    triggers = [broken, memory_trigger()]
    states = states_after(triggers, memory(0.9))

    verdict = restate_warnings(triggers, memory(0.9), states, [])
    assert [trigger.name for trigger, _ in verdict.messages] == ["memory"]
    assert verdict.failures == (("broken", "It raised ZeroDivisionError: integer division or modulo by zero"),)


def test_a_function_has_the_same_content_text_again_after_another_or_none() -> None:
    texts = iter(["A.", "A.", None, "A.", "B.", "A.", "A."])

    @trigger("plain")
    def plain(moment: TriggerContext) -> str | None:
        return next(texts)

    play = Play([plain])
    assert [play.lead(filled(step, 0)) for step in range(1, 8)] == [["A."], [], [], ["A."], ["B."], ["A."], []]


def test_a_function_that_fires_at_the_start_of_sessions_fires_at_each() -> None:
    @trigger("hello", at=("session_start", "after_compaction"))
    def hello(moment: TriggerContext) -> str:
        return "Hello."

    play = Play([hello])
    moments = [filled(1, 0, when=when, turn=turn) for turn in (1, 2) for when in ("session_start", "after_compaction")]
    assert [play.lead(moment) for moment in moments] == [["Hello."]] * 4


def test_a_function_with_a_cooldown_has_the_same_content_text_whenever_that_is_over() -> None:
    @trigger("often", cooldown_steps=2)
    def often(moment: TriggerContext) -> str:
        return "Often."

    play = Play([often])
    assert [len(play.at(filled(step, 0))) for step in range(1, 6)] == [1, 0, 1, 0, 1]


def test_a_scope_is_an_agent_or_a_channel() -> None:
    with pytest.raises(InvalidInput, match='scope must be "agent" or "channel"'):
        trigger("x", scope="model")(lambda moment: None)  # pyright: ignore[reportArgumentType]

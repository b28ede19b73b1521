"""A level fires once when it is entered, and again only after it was left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextc._json import decode, encode
from contextc.errors import InvalidInput
from contextc.triggers import ThresholdTrigger, TriggerContext, context_triggers, evaluate_triggers
from tests.triggers.run_triggers import Play, filled


def level(**more: object) -> ThresholdTrigger:
    given: dict[str, object] = {"exit_text": "Over.", **more}
    return ThresholdTrigger(
        name="level",
        value=lambda moment: moment.share,
        enter=0.8,
        exit=0.7,
        text="High.",
        **given,  # pyright: ignore[reportArgumentType]
    )


def texts(trigger: ThresholdTrigger, *shares: float) -> list[str]:
    play = Play([trigger])
    return [
        " ".join(message.text for message in play.at(filled(step, share, now=step * 10.0)))
        for step, share in enumerate(shares, 1)
    ]


def test_it_enters_at_the_mark_and_leaves_below_the_other() -> None:
    """Guarantee 11.4: enter and exit thresholds."""
    assert texts(level(), 0.79, 0.8, 0.7, 0.69, 0.79, 0.8) == ["", "High.", "", "Over.", "", "High."]


def test_a_value_that_swings_around_the_mark_fires_once() -> None:
    """Guarantee 11.4: hysteresis."""
    assert texts(level(), 0.8, 0.79, 0.81, 0.75, 0.9, 0.71) == ["High.", "", "", "", "", ""]


def test_without_an_exit_text_leaving_is_silent() -> None:
    assert texts(level(exit_text=""), 0.8, 0.1, 0.8) == ["High.", "", "High."]


def test_a_cooldown_in_steps_holds_back_the_next_entering() -> None:
    """Guarantee 11.4: cooldown. Fired at step 1, it may fire again at step 4."""
    swinging = [0.8, 0.1, 0.8, 0.1, 0.8]
    assert texts(level(exit_text="", cooldown_steps=3), *swinging) == ["High.", "", "", "", "High."]
    assert texts(level(exit_text="", cooldown_steps=2), *swinging) == ["High.", "", "High.", "", "High."]


def test_a_cooldown_in_seconds_holds_back_the_next_entering() -> None:
    """Guarantee 11.4: cooldown. Steps are ten seconds apart here."""
    swinging = [0.8, 0.1, 0.8, 0.1, 0.8]
    assert texts(level(exit_text="", cooldown_seconds=40), *swinging) == ["High.", "", "", "", "High."]


def test_a_clock_that_was_set_back_does_not_silence_for_longer() -> None:
    play = Play([level(exit_text="", cooldown_seconds=60)])
    assert play.lead(filled(1, 0.8, now=10_000.0)) == ["High."]
    play.at(filled(2, 0.1, now=10_001.0))
    assert play.lead(filled(3, 0.8, now=5_000.0)) == ["High."]


def test_the_end_is_reported_whatever_the_cooldown_but_only_of_what_was_reported() -> None:
    """A warned model is informed of the end; one that was not warned gets no message."""
    assert texts(level(cooldown_steps=4), 0.8, 0.1, 0.8, 0.1, 0.8) == ["High.", "Over.", "", "", "High."]


def test_the_end_is_reported_late_where_it_was_left_silently() -> None:
    """A reported warning that was never withdrawn is withdrawn, though the second entry was not reported."""
    values = iter([0.9, None, 0.9, 0.1, 0.9, 0.1])
    trigger = ThresholdTrigger(
        name="x", value=lambda _: next(values), enter=0.8, exit=0.7, text="High.", exit_text="Over.", once=True
    )
    play = Play([trigger])
    assert [play.lead(filled(step, 0)) for step in range(1, 7)] == [["High."], [], [], ["Over."], [], []]


def test_once_is_for_the_whole_conversation() -> None:
    """Guarantee 11.4: once."""
    assert texts(level(once=True), 0.8, 0.1, 0.8, 0.1) == ["High.", "Over.", "", ""]


def test_an_unknown_value_is_left_silently() -> None:
    values = iter([0.9, None, 0.9])
    trigger = ThresholdTrigger(
        name="x", value=lambda _: next(values), enter=0.8, exit=0.7, text="High.", exit_text="Over."
    )
    play = Play([trigger])
    assert [play.lead(filled(step, 0)) for step in (1, 2, 3)] == [["High."], [], ["High."]]


def test_leaving_above_entering_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"require exit <= enter, got exit=0\.6, enter=0\.5"):
        ThresholdTrigger(name="x", value=lambda _: 0, enter=0.5, exit=0.6, text="High.")


MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 120).map(lambda percent: percent / 100),
        st.sampled_from(["before_step", "before_step", "before_step", "after_compaction"]),
    ),
    max_size=40,
)
LEVELS = {"context_80": (0.8, 0.75), "context_90": (0.9, 0.85)}


def moments_of(course: list[tuple[float, str]]) -> list[TriggerContext]:
    return [filled(step, share, when=when) for step, (share, when) in enumerate(course, 1)]


@given(MOMENTS)
def test_levels_fire_once_between_exits_and_never_below_the_highest_that_is_active(
    course: list[tuple[float, str]],
) -> None:
    """Guarantees 11.3, 11.4, for any course of the context: a model of it in four lines is what the triggers do."""
    play, inside = Play(context_triggers()), dict.fromkeys(LEVELS, False)
    for moment in moments_of(course):
        entered: list[str] = []
        was_inside = inside["context_80"]
        for name, (enter, exit) in LEVELS.items():
            if moment.when == "after_compaction" or (inside[name] and moment.share < exit):
                inside[name] = False
            elif not inside[name] and moment.share >= enter:
                inside[name] = True
                entered.append(name)
        recovered = was_inside and moment.share < LEVELS["context_80"][1]
        expected = {"context_90": "Context critical", "context_80": "Context warning"}
        assert play.lead(moment) == (["Context recovered"] if recovered else [expected[n] for n in entered[-1:]])
        assert not entered or entered[-1] == max(name for name in LEVELS if inside[name])


@given(MOMENTS, st.integers(0, 40))
def test_continuing_from_stored_states_has_the_same_content(course: list[tuple[float, str]], stop: int) -> None:
    """Guarantee 11.4: the state survives a restart."""
    moments = moments_of(course)
    whole = Play(context_triggers())
    texts = [whole.at(moment) for moment in moments]

    before = Play(context_triggers())
    first = [before.at(moment) for moment in moments[:stop]]
    after = Play(context_triggers(), decode(encode(before.states)))
    assert first + [after.at(moment) for moment in moments[stop:]] == texts
    assert after.states == whole.states


@given(MOMENTS)
def test_asking_again_at_the_same_moment_changes_and_is_silent(course: list[tuple[float, str]]) -> None:
    """A turn that is taken up again after a crash asks once more about the step it was at."""
    play = Play(context_triggers())
    for moment in moments_of(course):
        play.at(moment)
        again = evaluate_triggers(play.triggers, moment, play.states)
        assert (again.messages, again.states) == ((), {})

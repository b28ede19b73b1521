"""Triggers for context usage."""

from contextc.triggers import TriggerContext, context_triggers
from tests.triggers.run_triggers import Play, filled


def leads(*shares: float) -> list[str]:
    play = Play(context_triggers())
    return [" ".join(play.lead(filled(step, share))) for step, share in enumerate(shares, 1)]


def test_it_warns_at_80_and_90_per_cent_of_what_is_available_once_each() -> None:
    """Guarantee 11.5: the warning comes in the middle of a turn, and is not repeated."""
    assert leads(0.5, 0.79, 0.8, 0.85, 0.9, 0.97, 1.2) == [
        "",
        "",
        "Context warning",
        "",
        "Context critical",
        "",
        "",
    ]


def test_crossing_both_levels_at_once_gives_the_higher_text_alone() -> None:
    """Guarantee 11.3: one large result takes the context from half to full."""
    assert leads(0.5, 0.95, 0.88, 0.86) == ["", "Context critical", "", ""]


def test_a_fall_into_the_lower_level_is_silent_and_a_new_rise_warns_again() -> None:
    """Guarantee 11.4."""
    assert leads(0.95, 0.84, 0.9, 0.89, 0.9) == ["Context critical", "", "Context critical", "", ""]


def test_it_reports_when_there_is_room_again() -> None:
    """Guarantee 11.5: recovered; and only after a warning."""
    assert leads(0.5, 0.3) == ["", ""]
    assert leads(0.95, 0.75, 0.74, 0.3) == ["Context critical", "", "Context recovered", ""]


def test_compaction_resets_the_levels_so_that_a_later_rise_warns_again() -> None:
    """Guarantee 11.4."""
    play = Play(context_triggers())
    assert play.lead(filled(1, 0.95)) == ["Context critical"]
    assert play.lead(filled(1, 0.4, when="after_compaction")) == ["Context recovered"]
    assert play.lead(filled(2, 0.81)) == ["Context warning"]
    assert play.lead(filled(3, 0.91)) == ["Context critical"]


def test_a_compaction_that_freed_little_is_not_a_recovery_but_resets_too() -> None:
    """Guarantee 11.4."""
    play = Play(context_triggers())
    play.at(filled(1, 0.95))
    assert play.lead(filled(1, 0.86, when="after_compaction")) == []
    assert play.lead(filled(2, 0.86)) == ["Context warning"]


def test_the_text_give_the_figures_and_what_to_do() -> None:
    """Guarantee 7.1: percentages are of what is available. Rounded down: 89.9 % does not read as 90."""
    play = Play(context_triggers())
    (warning,) = play.at(filled(1, 0.899, available=200_000, used=179_800))
    (critical,) = play.at(filled(2, 0.95))
    (recovered,) = play.at(filled(3, 0.29))
    assert warning.text == (
        "Context warning: 89 % of the available tokens are in use (179,800 of 200,000). Read and print only what is "
        "needed, and write down open points and findings (todos, files) before older content is shortened."
    )
    assert critical.text.startswith("Context critical: 95 % of the available tokens are in use (950 of 1,000). Older")
    assert recovered.text.startswith("Context recovered: 29 % of the available tokens are in use (290 of 1,000). Older")
    assert [message.title for message in (warning, critical, recovered)] == [
        "Context 80 %",
        "Context 90 %",
        "Context recovered",
    ]


def test_levels_can_be_others() -> None:
    play = Play(context_triggers(0.7, 0.5))
    assert [trigger.name for trigger in play.triggers] == ["context_50", "context_70"]
    assert [play.lead(filled(step, share)) for step, share in ((1, 0.5), (2, 0.7), (3, 0.1))] == [
        ["Context warning"],
        ["Context warning"],
        ["Context recovered"],
    ]


def test_a_lower_level_that_is_new_is_silent_while_a_higher_one_is_active() -> None:
    """Guarantee 11.3: a level that was added between two versions of a program adds nothing to what was said."""
    play = Play(context_triggers(0.9))
    play.at(filled(1, 0.95))
    play.triggers = context_triggers()
    assert play.lead(filled(2, 0.95)) == []


def test_a_session_start_is_silent_of_the_context() -> None:
    assert Play(context_triggers()).at(TriggerContext(when="session_start", share=0.95)) == []

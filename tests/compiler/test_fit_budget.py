"""The trimming pass alone: items with their tokens, and those that a new epoch keeps.

An item is written as "user 50", "user! 50" where it opens a turn, "dynamic 10" and so on; its place is its number in
the list, from one. Nothing is stored, encoded or counted here.
"""

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.compiler.draft import Budget, CompilerOptions, Draft, DraftEntry
from contextc.compiler.fit_budget import MESSAGE_LEFT_OUT_TEXT, fit_budget
from contextc.compiler.ledger import Summary
from contextc.messages import Role
from contextc.models.tokens import get_counter
from contextc.prompts import Prompt
from contextc.store.ledger_schema import ChannelState, FragmentCopy, Item

PROVIDER = cc.provider("openai-chat:gpt-4o")
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}


def item(written: str, place: int) -> Item:
    text, tokens = written.split()[:2]
    name = text.rstrip("!")
    if name == "dynamic":
        return Item(kind="dynamic", role="system", text="state", tokens=int(tokens))
    return Item(place=place, role=ROLES[name], tokens=int(tokens), opens=text.endswith("!"))


def draft(*lines: str, available: int, options: CompilerOptions | None = None, pins: tuple[int, ...] = ()) -> Draft:
    """Everything is new, and nothing was shown before."""
    items = [item(line, place) for place, line in enumerate(lines, 1)]
    return Draft(
        provider=PROVIDER,
        counter=get_counter("o200k_base"),
        options=options or CompilerOptions(),
        agent="assistant",
        audiences=frozenset(),
        prompt=Prompt(),
        rows=[],
        standing=ChannelState(),
        log=(),
        tail=tuple(DraftEntry(each, cc.Message(role=each.role)) for each in items),
        pins=frozenset(pins),
        budget=Budget(window=available),
    )


def written(each: Item) -> str:
    if each.kind != "message":
        return f"{each.kind} {each.tokens}"
    return f"{each.role}{'!' if each.opens else ''} {each.tokens}{' decayed' if each.decayed else ''}"


def after(before: Draft) -> list[str]:
    return [written(each) for each in fit_budget(before).kept or ()]


NOTICE = f"notice {get_counter('o200k_base').count_message(cc.user(MESSAGE_LEFT_OUT_TEXT))}"
TALK = ("user! 100", "assistant 100", "user! 100", "assistant 100", "user! 100", "assistant 100", "user! 50")


def test_what_fits_is_not_touched() -> None:
    """Guarantee 7.2: nothing happens before it has to."""
    fitted = fit_budget(draft(*TALK, available=650))
    assert (fitted.epoch, fitted.kept, fitted.budget.used) == ("", None, 650)


def test_one_token_too_many_begins_an_epoch_that_goes_down_to_the_low_mark() -> None:
    """Guarantee 7.4: 70 % of 649 is 454; one turn goes."""
    fitted = fit_budget(draft(*TALK, available=649, options=CompilerOptions(keep_words=0, keep_index=0)))
    assert fitted.epoch == "over budget"
    assert [written(each) for each in fitted.kept or ()] == [*TALK[2:]]
    assert fitted.budget.used == 450
    assert [(left.place, left.why) for left in fitted.left] == [(place, "its turn was cut away") for place in (1, 2)]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (CompilerOptions(strategy="oldest"), [*TALK[2:]]),
        (CompilerOptions(low=0.9), [*TALK[2:]]),
        (CompilerOptions(low=0.3), [*TALK[6:]]),
        (CompilerOptions(policy="sliding_window"), [*TALK[1:]]),
    ],
    ids=["oldest", "low mark 90 %", "low mark 30 %", "sliding_window"],
)
def test_how_far_a_cut_goes_is_a_setting(options: CompilerOptions, kept: list[str]) -> None:
    """Guarantee 7.4."""
    assert after(draft(*TALK, available=640, options=options)) == kept


def test_the_high_mark_is_a_setting() -> None:
    """Guarantee 7.4."""
    assert fit_budget(draft(*TALK, available=800, options=CompilerOptions(high=0.8))).epoch == "over budget"
    assert fit_budget(draft(*TALK, available=800, options=CompilerOptions(high=0.9))).epoch == ""


def test_old_results_decay_first() -> None:
    """Guarantee 7.2: the order that the pass documents."""
    before = draft(
        "user! 50",
        "assistant 40",
        "tool 700",
        "assistant 40",
        "tool 300",
        available=1_000,
        options=CompilerOptions(recent=0.25),
    )
    assert after(before) == ["user! 50", "assistant 40", "tool 48 decayed", "assistant 40", "tool 300"]


def test_small_results_are_not_worth_a_placeholder() -> None:
    """Guarantee 7.2: a line that says less than it takes is none."""
    before = draft("user! 50", *("assistant 10", "tool 90") * 10, "user! 50", available=1_000)
    assert not any("decayed" in line for line in after(before))


def test_inside_one_long_turn_the_oldest_steps_go_and_a_line_reports_it() -> None:
    """Guarantee 7.2: the cut falls between steps, and the turn's user message stays."""
    before = draft("user! 50", *("assistant 10", "tool 90") * 10, available=1_000, options=CompilerOptions(decay=False))
    kept = after(before)
    assert kept[0] == "user! 50"
    assert kept[1].startswith("notice")
    assert kept[2:] == ["assistant 10", "tool 90"] * ((len(kept) - 2) // 2)
    assert 4 <= len(kept) - 2 <= 14


def test_no_cut_falls_inside_a_group() -> None:
    """Guarantee 5.4: at every budget, a result has its call before it and a call its results behind it."""
    lines = ("user! 30", "assistant 20", "tool 60", "tool 60", "user! 30", *("assistant 20", "tool 60", "tool 60") * 4)
    for available in range(190, 740, 10):
        kept = [
            line.split()[0] for line in after(draft(*lines, available=available, options=CompilerOptions(decay=False)))
        ]
        groups = "".join({"assistant": "a", "tool": "t"}.get(text, "u") for text in kept)
        assert groups.replace("att", "").strip("u") == "", (available, kept)


def test_pinned_messages_stay_and_take_their_group_along() -> None:
    """Guarantees 7.3, 5.4: a pinned result without its call could not be shown, and a call without its result would
    lie.
    """
    lines = ("user! 100", "assistant 50", "tool 200", "user! 100", "assistant 100", "user! 50")
    kept = ["assistant 50", "tool 200", "user! 50"]
    for pinned in (2, 3):
        assert after(draft(*lines, available=500, pins=(pinned,), options=CompilerOptions(low=0.5))) == kept


def test_the_latest_dynamic_block_stays_and_the_others_go() -> None:
    """Guarantee 9.3."""
    lines = ("user! 100", "dynamic 10", "assistant 300", "user! 100", "dynamic 12", "assistant 50", "tool 20")
    assert after(draft(*lines, available=400)) == ["user! 100", "dynamic 12", "assistant 50", "tool 20"]


def test_a_summary_takes_the_place_of_what_it_sums_up() -> None:
    """Guarantee 7.2: before any turn is dropped."""
    before = replace(draft(*TALK, available=640), summary=Summary(anchor=4, text="…", tokens=40))
    fitted = fit_budget(before)
    assert [written(each) for each in fitted.kept or ()] == ["summary 40", "user! 100", "assistant 100", "user! 50"]
    assert [(left.place, left.why) for left in fitted.left] == [(place, "summed up") for place in (1, 2, 3, 4)]


LONG_TALK = (*("user! 100", "assistant 100") * 7, "user! 50")


@pytest.mark.parametrize(("keep", "beside"), [(20_000, 2), (200, 1), (199, 0), (0, 0)])
def test_the_latest_of_what_a_summary_covers_stays_while_there_is_room(keep: int, beside: int) -> None:
    """Guarantee 7.5: whole turns, at most `keep_summarized` tokens, down to the low mark."""
    before = draft(*LONG_TALK, available=1_440, options=CompilerOptions(keep_summarized=keep))
    fitted = fit_budget(replace(before, summary=Summary(anchor=10, text="…", tokens=40)))
    assert [written(each) for each in fitted.kept or ()] == ["summary 40", *LONG_TALK[2 * (5 - beside) :]]
    assert [(left.place, left.why) for left in fitted.left] == [(n, "summed up") for n in range(1, 11 - 2 * beside)]


def test_steps_that_a_summary_covers_leave_before_others() -> None:
    """Guarantee 7.5: inside one long turn, too. The next cut leaves out covered steps, and needs no other summary."""
    turn = ("user! 100", *("assistant 100", "tool 20") * 8)
    before = draft(*turn, available=1_000, options=CompilerOptions(keep_summarized=960))
    summary = Summary(anchor=15, text="…", tokens=40)
    fitted = fit_budget(replace(before, summary=summary))
    kept = fitted.kept or ()
    assert [each.place for each in kept if each.kind == "message"] == [1, *range(10, 18)]
    more = tuple(item(line, place) for place, line in enumerate(("assistant 200", "tool 190"), 18))
    tail = tuple(DraftEntry(each, cc.Message(role=each.role)) for each in (*kept, *more))
    again = fit_budget(replace(before, tail=tail, summary=summary))
    assert {left.why for left in again.left if left.place} == {"summed up"}
    assert next(each.kind for each in again.kept or ()) == "summary"


def test_a_summary_that_people_asked_for_replaces_all_that_it_covers() -> None:
    """Guarantee 7.12: the window is not full, and room is what they asked for."""
    before = draft(*LONG_TALK, available=10_000)
    fitted = fit_budget(replace(before, summary=Summary(anchor=10, text="…", tokens=40), compacted=True))
    assert [written(each) for each in fitted.kept or ()] == ["summary 40", *LONG_TALK[10:]]


def test_a_summary_that_is_not_smaller_is_not_used() -> None:
    """Guarantee 7.5."""
    before = replace(draft(*TALK, available=640), summary=Summary(anchor=2, text="…", tokens=200))
    assert not any(line.startswith("summary") for line in after(before))


def test_what_must_stay_and_does_not_fit_is_refused_with_every_figure() -> None:
    """Guarantee 7.3."""
    with pytest.raises(cc.errors.ContextOverflow) as caught:
        fit_budget(draft("user! 100", "assistant 100", "user! 500", available=400))
    assert (caught.value.needed, caught.value.available) == (500, 400)


def test_a_second_run_changes_nothing() -> None:
    """What fits, fits."""
    fitted = fit_budget(draft(*TALK, available=649))
    kept = fitted.kept or ()
    again = replace(
        fitted, epoch="", kept=None, left=(), tail=tuple(DraftEntry(each, cc.Message(role=each.role)) for each in kept)
    )
    assert fit_budget(again).kept is None


def test_a_session_that_shortens_itself_is_left_alone() -> None:
    """Guarantee 9.4: what a provider's session holds is not ours to cut."""
    own = replace(PROVIDER, session_resumption=True, compacts_itself=True)
    fitted = fit_budget(replace(draft(*TALK, available=300), provider=own, resume=True))
    assert (fitted.epoch, fitted.kept) == ("", None)


def asked(*lines: str, available: int, pins: tuple[int, ...] = ()) -> Draft:
    """The same, where the log says which of the messages are a person's."""
    before = draft(*lines, available=available, pins=pins)
    return replace(before, log=tuple((entry.item.place, entry.message) for entry in before.tail))


def test_a_message_that_cannot_fit_is_left_out_once_another_has_come() -> None:
    """Guarantee 7.3: it is not the new message any more; what was said before it stays."""
    with pytest.raises(cc.errors.ContextOverflow):
        fit_budget(asked("user! 100", "assistant 100", "user! 5000", available=1_000))
    fitted = fit_budget(asked("user! 100", "assistant 100", "user! 5000", "user 50", available=1_000))
    assert [written(each) for each in fitted.kept or ()] == ["user! 100", "assistant 100", NOTICE, "user! 50"]
    assert [(left.place, left.why) for left in fitted.left] == [(3, "too long to be shown")]


def test_of_messages_that_wait_for_one_answer_only_those_go_that_cannot_stay() -> None:
    """Guarantee 7.3: beside the latest one, and beside what is pinned."""
    assert after(asked("user! 100", "user 5000", "user 60", "user 50", available=1_000)) == [
        "user! 100",
        NOTICE,
        "user 60",
        "user 50",
    ]
    assert after(asked("user! 600", "user 100", "user 500", available=1_000)) == [NOTICE, "user! 100", "user 500"]
    with pytest.raises(cc.errors.ContextOverflow):
        fit_budget(asked("user! 5000", "user 50", available=1_000, pins=(1,)))


def test_what_steers_a_turn_and_cannot_fit_is_left_out_and_the_turn_stays() -> None:
    """Guarantees 7.2, 7.3: the step that waits for an answer, and what opened its turn, are there."""
    turn = ("user! 100", "assistant 40", "tool 60")
    assert after(asked(*turn, "user 5000", "user 50", available=1_000)) == [*turn, NOTICE, "user 50"]


def test_a_trigger_message_does_not_displace_another_message() -> None:
    """Guarantee 7.3: the new message is a person's."""
    with pytest.raises(cc.errors.ContextOverflow):
        fit_budget(asked("user! 5000", "system 50", available=1_000))


@pytest.mark.parametrize("measured", [0, 610], ids=["estimated", "measured"])
def test_what_the_provider_counts_beyond_our_messages_costs_no_more_of_them_than_it_must(measured: int) -> None:
    """No cut makes it smaller: a mark below it would be reached by leaving out everything but the last message."""
    before = draft(*["user! 25", "assistant 25"] * 10, "user! 50", available=1_000)
    fitted = fit_budget(replace(before, standing=ChannelState(overhead=600, input=measured)))
    assert [written(each) for each in fitted.kept or ()] == [*["user! 25", "assistant 25"] * 3, "user! 50"]
    assert fitted.budget.used == pytest.approx(800, abs=5)


def test_a_message_that_cannot_fit_beside_what_the_provider_counts_is_left_out() -> None:
    """By our own count alone it would stay, and no request could be made any more."""
    before = asked("user! 500", "user 50", available=1_000)
    assert fit_budget(before).left == ()
    assert after(replace(before, standing=ChannelState(overhead=600))) == [NOTICE, "user! 50"]


def test_after_a_cut_it_is_known_where_the_latest_copy_of_a_fragment_is() -> None:
    """It is sent again when it lies far back. By its place before the cut it would be missed for a long time."""
    before = draft(*["user! 50", "assistant 50"] * 9, "user! 50", available=1_000)
    copy = Item(kind="dynamic", role="system", text="state", tokens=60, fragment="state", hash="h")
    tail = (*before.tail[:-1], DraftEntry(copy, cc.Message(role="system")), before.tail[-1])
    shown = ChannelState(fragments={"state": FragmentCopy("h", 900)})
    fitted = fit_budget(replace(before, tail=tail, standing=shown, budget=Budget(window=930)))
    kept = list(fitted.kept or ())
    assert len(kept) < len(tail)
    place = sum(each.tokens for each in kept[: kept.index(copy)])
    assert fitted.standing.fragments == {"state": FragmentCopy("h", place)}
    assert place < 900

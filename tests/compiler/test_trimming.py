"""Trimming when tokens do not suffice: order, extent and stability."""

from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.fit_budget import STEPS_LEFT_OUT_TEXT
from contextc.messages import Message
from tests.compiler.recorded_replay import begins_with, blocks
from tests.compiler.sized_conversations import (
    LOOK,
    append_and_commit,
    compiler_for,
    filler_text,
    of_tokens,
    roles,
    step,
    texts,
)

# ── what goes, in which order ─────────────────────────────────────────────────────────────────────────────────────────


def test_old_results_decay_before_any_turn_is_dropped_and_can_be_fetched_back() -> None:
    """Guarantee 7.2: first in order. The line that stays says the id."""
    compiler = compiler_for(window=4_000)
    results = [filler_text(600, f"result {number}") for number in (1, 2, 3, 4)]
    compiler.store.append("c", cc.user("Question one."))
    for number, result in enumerate(results):
        step(compiler, number, result)
    append_and_commit(compiler, tools=[LOOK])
    while not (compiled := append_and_commit(compiler, cc.user(filler_text(100)), tools=[LOOK])).manifest.why:
        pass
    assert compiled.manifest.why == "over budget"
    decayed = [line.seq for line in compiled.manifest.lines if line.why == "result left out, can be fetched"]
    assert decayed == [3, 5, 7]  # oldest first, to four fifths of the mark
    assert all(line.shown for line in compiled.manifest.lines)
    assert results[0] not in texts(compiled)
    assert results[3] in texts(compiled)
    assert 'fetch_result with id \\"r3\\"' in texts(compiled)
    assert compiler.fetch("c", cc.tool_call("f", "fetch_result", {"id": "r3"})).startswith(results[0])


def test_recent_results_do_not_decay() -> None:
    """Guarantee 7.2: old results only. Within one turn the oldest go first."""
    compiler = compiler_for(window=4_000, options={"decay": True})
    compiler.store.append("c", cc.user("Go."))
    for number in range(1, 12):
        step(compiler, number, filler_text(450, f"result {number}"))
        compiled = compiler.compile("c", tools=[LOOK])
        shown = [line for line in compiled.manifest.lines if line.shown and line.role == "tool"]
        whole = [f"result {number} word" in line.text for number, line in enumerate(shown, number + 1 - len(shown))]
        assert whole == sorted(whole)
        assert whole[-2:] == [True] * len(whole[-2:])


def test_whole_turns_go_oldest_first_and_the_request_begins_with_the_user() -> None:
    """Guarantee 7.2; strands harness-sdk#2087."""
    compiler = compiler_for(window=3_000)
    for index in range(30):
        compiled = append_and_commit(
            compiler, cc.user(filler_text(100, f"question {index}.")), reply=filler_text(100, f"answer {index}.")
        )
        left = [line.seq for line in compiled.manifest.lines if not line.shown]
        shown = [line.seq for line in compiled.manifest.lines if line.shown and line.seq]
        assert roles(compiled)[0] == "user"
        assert not left or left == list(range(left[0], left[-1] + 1))
        assert not left or left[-1] == shown[0] - 1
        assert shown[0] % 2 == 1
        assert compiled.manifest.lines[-1 - len(left)].seq == 2 * index + 1


def test_inside_one_long_turn_its_oldest_steps_go_and_one_line_reports_it() -> None:
    """Guarantee 7.2; strands harness-sdk#2173: a history of tools only has no plain user turn to cut at."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    cuts = 0
    for number in range(1, 40):
        step(compiler, number, filler_text(200, f"result {number}"))
        compiled = compiler.compile("c", tools=[LOOK])
        cuts += compiled.manifest.why == "over budget"
        content: list[JSONObject] = compiled.params["messages"][0]["content"]
        assert content[0]["text"] == "Find the bug."
        assert texts(compiled).count(STEPS_LEFT_OUT_TEXT) == min(cuts, 1)
        assert f"result {number}" in texts(compiled)
        assert not cc.lint(compiled.params, format="anthropic")
    assert 5 < cuts < 10


def test_the_line_about_left_out_steps_outlives_an_epoch_of_another_cause() -> None:
    """Guarantee 7.2: they are still left out."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    for number in range(1, 14):
        step(compiler, number, filler_text(200, f"result {number}"))
    assert texts(compiler.compile("c", tools=[LOOK])).count(STEPS_LEFT_OUT_TEXT) == 1
    other = compiler.compile("c", tools=[LOOK], instructions="Be quick.")
    assert other.manifest.why == "system prompt changed"
    assert texts(other).count(STEPS_LEFT_OUT_TEXT) == 1


def test_the_latest_dynamic_block_stays_where_the_steps_around_it_go() -> None:
    """Guarantee 9.3: a new epoch keeps the latest; it is not said again as long as it does not change."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    cuts = 0
    for number in range(1, 25):
        todo = "Todo: read." if number < 4 else "Todo: write."
        fragments = [cc.PromptFragment("todos", todo, lifecycle="dynamic")]
        compiled = compiler.compile("c", tools=[LOOK], instructions=fragments)
        cuts += compiled.manifest.why == "over budget"
        assert texts(compiled).count(todo) == 1
        assert not cuts or "Todo: read." not in texts(compiled)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})]))
        compiler.store.append("c", cc.tool_result(f"call{number}", "look", filler_text(200)))
    assert cuts > 1


def test_decayed_results_are_counted_one_by_one_where_a_message_holds_several() -> None:
    """Guarantees 6.1, 7.2: a message that was imported may hold the results of all parallel calls."""
    compiler = compiler_for(window=8_000)
    names = [f"call{number}" for number in range(10)]
    results = tuple(cc.ToolResult(call_id=name, name="look", content=filler_text(300)) for name in names)
    calls = [cc.tool_call(name, "look", {}) for name in names]
    compiler.store.extend("c", [cc.user("Go."), cc.assistant(tool_calls=calls), Message(role="tool", parts=results)])
    compiler.store.extend("c", [cc.assistant("Done."), of_tokens(compiler, 3_500)])
    compiled = compiler.compile("c", tools=[LOOK])
    assert "result left out, can be fetched" in [line.why for line in compiled.manifest.lines]
    shown = compiler.provider.formatter.decode_request(compiled.params).messages
    assert compiled.budget.used >= sum(compiler.counter.count_message(message) for message in shown)


@pytest.mark.parametrize("tools", [(LOOK,), ()])
def test_an_oversized_result_is_shown_by_head_tail_and_id_from_the_first_time(tools: Sequence[cc.Tool]) -> None:
    """Guarantee 7.2: larger than 25 % of what is available. The tool that fetches is there from the first request."""
    compiler = compiler_for(window=4_000)
    compiler.store.append("c", cc.user("Look."))
    first = compiler.compile("c", tools=tools)
    added = ["look", "fetch_result", "search_history"] if tools else []
    assert [tool["name"] for tool in first.params.get("tools", ())] == added
    compiler.begin(first)
    compiler.commit(first, cc.assistant(tool_calls=[cc.tool_call("a", "look", {})]))
    result = "HEAD " + filler_text(2_500) + " TAIL"
    compiler.store.append("c", cc.tool_result("a", "look", result))
    second = compiler.compile("c", tools=tools)
    [shown] = [line for line in second.manifest.lines if line.role == "tool"]
    assert shown.why == "shortened"
    assert shown.tokens <= second.budget.available * 0.25
    assert "HEAD" in texts(second)
    assert "TAIL" in texts(second)
    assert ('fetch_result with id \\"r3\\"' in texts(second)) == bool(tools)
    compiler.begin(second)
    compiler.commit(second, cc.assistant("Seen."))
    compiler.store.append("c", cc.user("Go on."))
    assert begins_with(blocks(compiler.compile("c", tools=tools).params), blocks(second.params))


def test_the_rest_of_an_oversized_result_is_read_from_the_offset_that_is_named() -> None:
    """Guarantee 7.2: an id to fetch the rest with."""
    compiler = compiler_for(window=4_000)
    compiler.store.append("c", cc.user("Look."))
    result = "".join(f"line {number}\n" for number in range(2_000))
    step(compiler, 1, result)
    shown: str = compiler.compile("c", tools=[LOOK]).params["messages"][-1]["content"][0]["content"]
    head, _, rest = shown.partition("\n[… ")
    offset = int(rest.partition("offset ")[2].partition(" ")[0])
    assert result.startswith(head)
    assert len(head) == offset
    read = compiler.fetch("c", cc.tool_call("f", "fetch_result", {"id": "r3", "offset": offset, "length": 50}))
    assert read.startswith(result[offset : offset + 50])


@pytest.mark.parametrize(("sizes", "opening"), [((2_500,) * 5, 20), ((450,) * 6, 20), ((2_500,) * 3, 700)])
def test_the_results_of_one_step_are_shortened_where_together_they_do_not_fit(
    sizes: Sequence[int], opening: int
) -> None:
    """Guarantee 7.3: each is within the limit of one result. All of them are shown, and short ones are whole."""
    compiler = compiler_for(window=4_000)
    compiler.store.append("c", of_tokens(compiler, opening))
    first = compiler.compile("c", tools=[LOOK])
    calls = [cc.tool_call(f"call{number}", "look", {}) for number in range(len(sizes) + 1)]
    with compiler.attempt(first) as attempt:
        attempt.commit(cc.assistant(tool_calls=calls))
    for call, size in zip(calls, (*sizes, 20), strict=True):
        result = f"HEAD {call.id} {filler_text(size)} TAIL {call.id}."
        compiler.store.append("c", cc.tool_result(call.id, "look", result))
    second = compiler.compile("c", tools=[LOOK])
    assert second.budget.used <= second.budget.available
    assert begins_with(blocks(second.params), blocks(first.params))
    assert [line.why for line in second.manifest.lines if line.role == "tool"] == ["shortened"] * len(sizes) + [""]
    assert all(f"HEAD {call.id}" in texts(second) and f"TAIL {call.id}." in texts(second) for call in calls)
    assert texts(second).count("fetch_result with id") == len(sizes)
    with compiler.attempt(second) as attempt:
        attempt.commit(cc.assistant("Seen."))
    compiler.store.append("c", cc.user("Go on."))
    third = compiler.compile("c", tools=[LOOK])
    assert not third.manifest.why
    assert begins_with(blocks(third.params), blocks(second.params))


def test_the_reserve_shrinks_where_that_helps_but_not_below_4000() -> None:
    """Guarantee 7.2: and not at all where it was not above."""
    compiler = compiler_for(window=20_000, output=8_000)
    compiler.store.append("c", of_tokens(compiler, 13_000))
    compiled = compiler.compile("c")
    assert compiled.budget.used == pytest.approx(13_000, abs=5)
    assert compiled.budget.reserve == 4_000  # at once, so that the next steps fit too
    assert compiled.params["max_tokens"] == compiled.budget.reserve
    compiler.store.append("d", of_tokens(compiler, 16_000))
    with pytest.raises(cc.errors.ContextOverflow) as caught:
        compiler.compile("d")
    assert caught.value.reserve == 4_000
    smaller = compiler_for(window=20_000, output=3_000)
    smaller.store.append("c", of_tokens(smaller, 17_000))
    with pytest.raises(cc.errors.ContextOverflow) as caught:
        smaller.compile("c")
    assert caught.value.reserve == 3_000


# ── cuts that stay ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("high", "low"), [(1.0, 0.7), (0.8, 0.4)])
def test_a_chunked_cut_goes_down_to_the_low_mark_and_stays_there(high: float, low: float) -> None:
    """Guarantee 7.4: both marks are settings."""
    compiler = compiler_for(window=6_000, options={"high": high, "low": low})
    before: list[bytes] = []
    last, cuts = 0, 0
    for index in range(80):
        compiled = append_and_commit(compiler, cc.user(filler_text(100, f"question {index}.")), reply=filler_text(100))
        now = blocks(compiled.params)
        if compiled.manifest.why == "over budget":
            cuts += 1
            assert low - 0.06 < compiled.budget.share <= low
            assert index - last >= 6
            last = index
        elif index:
            assert begins_with(now, before)
        assert compiled.budget.share <= high
        before = now
    assert cuts >= 3


def test_oldest_drops_just_enough_whole_turns() -> None:
    """Guarantee 7.4: with one turn more it would not fit."""
    compiler = compiler_for(window=3_000, options={"strategy": "oldest"})
    seen = 0
    for index in range(30):
        compiled = append_and_commit(compiler, cc.user(filler_text(100, f"question {index}.")), reply=filler_text(100))
        left = [line.seq for line in compiled.manifest.lines if not line.shown]
        if compiled.manifest.why == "over budget":
            seen += 1
            last = sum(
                compiler.counter.count_message(message) for message in compiler.store.load("c")[left[-1] - 2 : left[-1]]
            )
            assert compiled.budget.used + last > compiled.budget.available
            assert roles(compiled)[0] == "user"
    assert seen > 5


def test_a_cut_is_recorded_and_not_computed_again() -> None:
    """Guarantee 7.4: not after a restart, nor when another calibration would cut elsewhere."""
    compiler = compiler_for(window=3_000)
    while not (
        compiled := append_and_commit(compiler, cc.user(filler_text(100, "more.")), reply=filler_text(100))
    ).manifest.why.startswith("over"):
        pass
    again = cc.MessageCompiler(compiler.store, compiler.provider, low=0.3, high=0.99)
    compiler.store.append("c", cc.user("Go on."))
    after = again.compile("c")
    assert after.manifest.why == ""
    assert begins_with(blocks(after.params), blocks(compiled.params))


def test_a_cleared_context_starts_over() -> None:
    """Guarantee 7.7: nothing before the edge is sent."""
    compiler = compiler_for()
    append_and_commit(compiler, cc.user("The secret is 4711."))
    compiler.store.reset("c")
    compiled = append_and_commit(compiler, cc.user("What was it?"))
    assert compiled.manifest.why == "cleared"
    assert "4711" not in texts(compiled)
    assert [message["role"] for message in compiled.params["messages"]] == ["user"]
    assert append_and_commit(compiler, cc.user("Are you sure?")).manifest.why == ""

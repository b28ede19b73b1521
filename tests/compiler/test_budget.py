"""Where the tokens go, and what goes when they do not suffice: every sentence on the budget, with figures."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.ledger.render import FETCH
from contextc.messages import Message
from contextc.passes.fit_budget import LEFT_OUT
from tests.compiler.replay import begins_with, blocks

LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
CLAUDE = "anthropic:claude-sonnet-4-5"


def compiler_for(window: int = 4_000, output: int = 500, *, options: JSONObject | None = None) -> cc.MessageCompiler:
    """A compiler on a store of its own, for a model with a small window."""
    provider = cc.provider(CLAUDE, window=window, output=output)
    return cc.MessageCompiler(cc.open_store("memory:"), provider, **(options or {}))


def words(count: int, name: str = "") -> str:
    """A text of about so many tokens."""
    return " ".join([name, *(f"word{index % 7}" for index in range(count // 2))]).strip()


def of_tokens(compiler: cc.MessageCompiler, tokens: int, make: Callable[[str], Message] = cc.user) -> Message:
    """A message that takes as many tokens as can be had without going over."""
    low, high = 1, 4 * tokens
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if compiler.counter.message(make("x " * middle)) <= tokens else (low, middle - 1)
    return make("x " * low)


def say(
    compiler: cc.MessageCompiler,
    *messages: Message,
    reply: str = "Yes.",
    budget: int | None = None,
    tools: Sequence[cc.Tool] = (),
) -> cc.Compiled:
    """Append messages, and have them answered."""
    compiler.store.extend("c", messages)
    compiled = compiler.compile("c", budget=budget, tools=tools)
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(reply))
    return compiled


def step(compiler: cc.MessageCompiler, number: int, result: str) -> None:
    """A model's call, committed as its reply, and the result of it."""
    compiled = compiler.compile("c", tools=[LOOK])
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})]))
    compiler.store.append("c", cc.tool_result(f"call{number}", "look", result))


def texts(compiled: cc.Compiled) -> str:
    return compiled.body.decode()


def roles(compiled: cc.Compiled) -> list[str]:
    return [message["role"] for message in compiled.params["messages"]]


# ── what is available ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_available_is_the_window_less_system_tools_reserve_and_margin() -> None:
    """SPEC 7.1"""
    compiler = compiler_for(window=10_000, output=2_000)
    compiler.store.append("c", cc.user("Hello."))
    budget = compiler.compile("c", system_prompt="You are brief.", tools=[LOOK]).budget
    assert budget.system == compiler.counter.system("You are brief.") + compiler.counter.overhead
    assert budget.tools == compiler.counter.tools(compiler.provider.formatter.encode_tools([LOOK, FETCH]))
    assert (budget.window, budget.reserve, budget.margin) == (10_000, 2_000, 256)
    assert budget.available == 10_000 - budget.system - budget.tools - 2_000 - 256


@pytest.mark.parametrize(
    ("window", "longest", "requested", "reserve"),
    [
        (200_000, 64_000, None, 8_000),  # requested output is by default the model's, at most 8k
        (200_000, 3_000, None, 3_000),
        (200_000, 64_000, 20_000, 20_000),
        (200_000, 64_000, 50_000, 32_000),  # never more than 32k
        (10_000, 9_500, 9_000, 5_000),  # nor than half the window
        (10_000, 9_500, 100, 100),
    ],
)
def test_the_reserve_is_the_requested_output_within_limits(
    window: int, longest: int, requested: int | None, reserve: int
) -> None:
    """SPEC 7.1: reserve = min(requested output, 32k, window/2)."""
    compiler = compiler_for(window, longest)
    compiler.store.append("c", cc.user("Hello."))
    compiled = compiler.compile("c", output=requested)
    assert compiled.budget.reserve == reserve
    assert compiled.params["max_tokens"] == (requested or reserve)  # while the window has room for it


@pytest.mark.parametrize(
    ("window", "margin"), [(1_000, 0), (1_024, 0), (1_025, 256), (25_600, 256), (30_000, 300), (200_000, 2_000)]
)
def test_the_margin_is_256_tokens_or_one_percent_and_none_in_tiny_windows(window: int, margin: int) -> None:
    """SPEC 7.1"""
    compiler = compiler_for(window)
    compiler.store.append("c", cc.user("Hello."))
    assert compiler.compile("c").budget.margin == margin


def test_a_callers_budget_caps_the_whole_input_and_reserves_nothing() -> None:
    """SPEC 7.1: system prompt and tools are within it."""
    compiler = compiler_for(window=100_000)
    for index in range(20):
        say(compiler, cc.user(words(150, f"question {index}")), budget=2_000)
    compiler.store.append("c", cc.user("And now?"))
    compiled = compiler.compile("c", system_prompt="You are brief.", tools=[LOOK], budget=2_000)
    budget = compiled.budget
    assert (budget.limit, budget.reserve, budget.margin) == (2_000, 0, 0)
    assert budget.available == 2_000 - budget.system - budget.tools
    assert budget.input <= 2_000
    assert budget.input == budget.system + budget.tools + budget.used


def test_percentages_are_of_what_is_available() -> None:
    """SPEC 7.1"""
    compiler = compiler_for(window=2_000, output=500)
    message = of_tokens(compiler, 600)
    compiler.store.append("c", message)
    budget = compiler.compile("c").budget
    assert budget.used == compiler.counter.message(message)
    assert budget.share == budget.used / budget.available
    assert "% " not in str(compiler.compile("c").manifest).splitlines()[0]
    assert f"({budget.share:.0%})" in str(compiler.compile("c").manifest)


# ── what goes, in which order ─────────────────────────────────────────────────────────────────────────────────────────


def test_old_results_decay_before_any_turn_is_dropped_and_can_be_fetched_back() -> None:
    """SPEC 7.2: first in order. The line that stays says the id."""
    compiler = compiler_for(window=4_000)
    results = [words(530, f"result {number}") for number in (1, 2, 3)]
    compiler.store.append("c", cc.user("Question one."))
    for number, result in enumerate(results):
        step(compiler, number, result)
    say(compiler, tools=[LOOK])
    while not (compiled := say(compiler, cc.user(words(100)), tools=[LOOK])).manifest.why:
        pass
    assert compiled.manifest.why == "over budget"
    decayed = [line.seq for line in compiled.manifest.lines if line.why == "result left out, can be fetched"]
    assert decayed == [3, 5]  # as many as it takes, oldest first
    assert all(line.shown for line in compiled.manifest.lines)
    assert results[0] not in texts(compiled)
    assert results[2] in texts(compiled)
    assert 'fetch_result with id \\"r3\\"' in texts(compiled)
    assert compiler.fetch("c", cc.tool_call("f", "fetch_result", {"id": "r3"})).startswith(results[0])


def test_recent_results_do_not_decay() -> None:
    """SPEC 7.2: old results only. Within one turn the oldest go first."""
    compiler = compiler_for(window=4_000, options={"decay": True})
    compiler.store.append("c", cc.user("Go."))
    for number in range(1, 12):
        step(compiler, number, words(450, f"result {number}"))
        compiled = compiler.compile("c", tools=[LOOK])
        shown = [line for line in compiled.manifest.lines if line.shown and line.role == "tool"]
        kinds = ["left out" in line.why for line in shown]
        assert kinds == sorted(kinds, reverse=True)
        assert not kinds[-1]


def test_whole_turns_go_oldest_first_and_the_request_begins_with_the_user() -> None:
    """SPEC 7.2; strands harness-sdk#2087."""
    compiler = compiler_for(window=3_000)
    for index in range(30):
        compiled = say(compiler, cc.user(words(100, f"question {index}.")), reply=words(100, f"answer {index}."))
        left = [line.seq for line in compiled.manifest.lines if not line.shown]
        shown = [line.seq for line in compiled.manifest.lines if line.shown]
        assert roles(compiled)[0] == "user"
        assert not left or left == list(range(left[0], left[-1] + 1))
        assert not left or left[-1] == shown[0] - 1
        assert shown[0] % 2 == 1
        assert compiled.manifest.lines[-1 - len(left)].seq == 2 * index + 1


def test_inside_one_long_turn_its_oldest_steps_go_and_one_line_says_so() -> None:
    """SPEC 7.2; strands harness-sdk#2173: a history of tools only has no plain user turn to cut at."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    cuts = 0
    for number in range(1, 40):
        step(compiler, number, words(200, f"result {number}"))
        compiled = compiler.compile("c", tools=[LOOK])
        cuts += compiled.manifest.why == "over budget"
        content: list[JSONObject] = compiled.params["messages"][0]["content"]
        assert content[0]["text"] == "Find the bug."
        assert texts(compiled).count(LEFT_OUT) == min(cuts, 1)
        assert f"result {number}" in texts(compiled)
        assert not cc.lint(compiled.params, format="anthropic")
    assert 5 < cuts < 10


def test_the_line_about_left_out_steps_outlives_an_epoch_of_another_cause() -> None:
    """SPEC 7.2: they are still left out."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    for number in range(1, 14):
        step(compiler, number, words(200, f"result {number}"))
    assert texts(compiler.compile("c", tools=[LOOK])).count(LEFT_OUT) == 1
    other = compiler.compile("c", tools=[LOOK], system_prompt="Be quick.")
    assert other.manifest.why == "system prompt changed"
    assert texts(other).count(LEFT_OUT) == 1


def test_the_latest_dynamic_block_stays_where_the_steps_around_it_go() -> None:
    """SPEC 9.3: a new epoch keeps the latest; it is not said again as long as it does not change."""
    compiler = compiler_for(window=4_000, options={"decay": False})
    compiler.store.append("c", cc.user("Find the bug."))
    cuts = 0
    for number in range(1, 25):
        todo = "Todo: read." if number < 4 else "Todo: write."
        fragments = [cc.PromptFragment("todos", todo, lifecycle="dynamic")]
        compiled = compiler.compile("c", tools=[LOOK], fragments=fragments)
        cuts += compiled.manifest.why == "over budget"
        assert texts(compiled).count(todo) == 1
        assert not cuts or "Todo: read." not in texts(compiled)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})]))
        compiler.store.append("c", cc.tool_result(f"call{number}", "look", words(200)))
    assert cuts > 1


def test_decayed_results_are_counted_one_by_one_where_a_message_holds_several() -> None:
    """SPEC 6.1, 7.2: a message that was imported may hold the results of all parallel calls."""
    compiler = compiler_for(window=8_000)
    names = [f"call{number}" for number in range(10)]
    results = tuple(cc.ToolResult(call_id=name, name="look", content=words(300)) for name in names)
    calls = [cc.tool_call(name, "look", {}) for name in names]
    compiler.store.extend("c", [cc.user("Go."), cc.assistant(tool_calls=calls), Message(role="tool", parts=results)])
    compiler.store.extend("c", [cc.assistant("Done."), of_tokens(compiler, 3_500)])
    compiled = compiler.compile("c", tools=[LOOK])
    assert "result left out, can be fetched" in [line.why for line in compiled.manifest.lines]
    shown = compiler.provider.formatter.decode_request(compiled.params).messages
    assert compiled.budget.used >= sum(compiler.counter.message(message) for message in shown)


@pytest.mark.parametrize("tools", [(LOOK,), ()])
def test_an_oversized_result_is_shown_by_head_tail_and_id_from_the_first_time(tools: Sequence[cc.Tool]) -> None:
    """SPEC 7.2: larger than 25 % of what is available. The tool that fetches is there from the first request."""
    compiler = compiler_for(window=4_000)
    compiler.store.append("c", cc.user("Look."))
    first = compiler.compile("c", tools=tools)
    assert [tool["name"] for tool in first.params.get("tools", ())] == (["look", "fetch_result"] if tools else [])
    compiler.begin(first)
    compiler.commit(first, cc.assistant(tool_calls=[cc.tool_call("a", "look", {})]))
    result = "HEAD " + words(2_500) + " TAIL"
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
    """SPEC 7.2: an id to fetch the rest with."""
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


def test_the_reserve_shrinks_where_that_helps_but_not_below_4000() -> None:
    """SPEC 7.2: and not at all where it was not above."""
    compiler = compiler_for(window=20_000, output=8_000)
    compiler.store.append("c", of_tokens(compiler, 13_000))
    compiled = compiler.compile("c")
    assert compiled.budget.used == pytest.approx(13_000, abs=5)
    assert compiled.budget.reserve == 4_000  # at once, so that the next steps fit too
    assert compiled.params["max_tokens"] == compiled.budget.reserve
    compiler.store.append("d", of_tokens(compiler, 16_000))
    with pytest.raises(cc.ContextOverflow) as caught:
        compiler.compile("d")
    assert caught.value.reserve == 4_000
    smaller = compiler_for(window=20_000, output=3_000)
    smaller.store.append("c", of_tokens(smaller, 17_000))
    with pytest.raises(cc.ContextOverflow) as caught:
        smaller.compile("c")
    assert caught.value.reserve == 3_000


# ── what never goes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_alone_does_not_fit_is_refused_with_every_figure_and_nothing_is_stored() -> None:
    """SPEC 7.3"""
    compiler = compiler_for(window=2_000, output=500)
    compiler.store.append("c", cc.user("Remember this: " + words(400)))
    compiler.store.pin("c", 1)
    compiler.store.append("c", of_tokens(compiler, 1_500))
    with pytest.raises(cc.ContextOverflow) as caught:
        compiler.compile("c", system_prompt="Be brief.", tools=[LOOK])
    error = caught.value
    pinned, newest = (compiler.counter.message(message) for message in compiler.store.load("c"))
    assert (error.window, error.reserve, error.margin) == (2_000, 500, 256)
    assert error.available == 2_000 - 500 - 256 - error.system - error.tools
    assert error.needed == pinned + newest
    assert error.pinned == pinned
    for figure in (error.needed, error.available, error.system, error.tools):
        assert f"{figure:,}" in str(error)
    assert cc.SessionManager(compiler.store).sessions("c") == []


def test_pinned_messages_are_never_dropped() -> None:
    """SPEC 7.3: a pinned call comes with its results."""
    compiler = compiler_for(window=3_000)
    compiler.store.append("c", cc.user("What is the key?"))
    step(compiler, 1, "The key is 4711. " + words(100))
    say(compiler)
    say(compiler, cc.user("Note the rule: no tabs."))
    compiler.store.pin("c", 2)
    compiler.store.pin("c", 5)
    dropped = 0
    for index in range(25):
        compiled = say(compiler, cc.user(words(100, f"question {index}.")), reply=words(100))
        dropped = max(dropped, sum(not line.shown for line in compiled.manifest.lines))
        assert "The key is 4711." in texts(compiled)
        assert "no tabs" in texts(compiled)
        assert not cc.lint(compiled.params, format="anthropic")
    assert dropped > 5


def test_the_latest_summary_is_never_dropped() -> None:
    """SPEC 7.3, 7.5: cuts that come after it leave it in its place."""
    compiler = compiler_for(window=3_000)
    for index in range(8):
        say(compiler, cc.user(words(120, f"question {index}.")), reply=words(120))
    made = compiler.compact("c", lambda messages, previous: "They asked about many things.")
    assert made is not None
    cuts = 0
    for index in range(8, 40):
        compiled = say(compiler, cc.user(words(120, f"question {index}.")), reply=words(120))
        cuts += compiled.manifest.why == "over budget"
        assert texts(compiled).count("They asked about many things.") == 1
    assert cuts > 2


def test_a_pinned_message_is_found_however_far_back_it_lies() -> None:
    """SPEC 7.3: also where a long history is shown for the first time, and most of it is not even read."""
    compiler = compiler_for(window=4_000)
    compiler.store.extend("c", [cc.user("Note the rule: no tabs."), cc.assistant("Yes.")])
    compiler.store.extend("c", [each for _ in range(900) for each in (cc.user(words(30)), cc.assistant("Yes."))])
    compiler.store.pin("c", 1)
    compiled = say(compiler, cc.user("And now?"))
    assert compiled.sight.unread > 1
    assert compiled.params["messages"][0]["content"][0]["text"] == "Note the rule: no tabs."
    assert "no tabs" in texts(say(compiler, cc.user("And now?")))


def test_what_opened_a_turn_is_found_however_long_the_turn_is() -> None:
    """SPEC 7.2: the turn's user message stays, also where its steps are shown for the first time."""
    compiler = compiler_for(window=4_000)
    compiler.store.extend("c", [cc.user("An older question."), cc.assistant("Done."), cc.user("Find the bug.")])
    for number in range(900):
        call = cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})])
        compiler.store.extend("c", [call, cc.tool_result(f"call{number}", "look", words(30))])
    compiled = compiler.compile("c", tools=[LOOK])
    assert compiled.sight.unread > 3
    assert [block["text"] for block in compiled.params["messages"][0]["content"]] == ["Find the bug.", LEFT_OUT]
    assert not cc.lint(compiled.params, format="anthropic")


# ── cuts that stay ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("high", "low"), [(1.0, 0.7), (0.8, 0.4)])
def test_a_chunked_cut_goes_down_to_the_low_mark_and_stays_there(high: float, low: float) -> None:
    """SPEC 7.4: both marks are settings."""
    compiler = compiler_for(window=6_000, options={"high": high, "low": low})
    before: list[bytes] = []
    last, cuts = 0, 0
    for index in range(80):
        compiled = say(compiler, cc.user(words(100, f"question {index}.")), reply=words(100))
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
    """SPEC 7.4, seed B: with one turn more it would not fit."""
    compiler = compiler_for(window=3_000, options={"strategy": "oldest"})
    seen = 0
    for index in range(30):
        compiled = say(compiler, cc.user(words(100, f"question {index}.")), reply=words(100))
        left = [line.seq for line in compiled.manifest.lines if not line.shown]
        if compiled.manifest.why == "over budget":
            seen += 1
            last = sum(
                compiler.counter.message(message) for message in compiler.store.load("c")[left[-1] - 2 : left[-1]]
            )
            assert compiled.budget.used + last > compiled.budget.available
            assert roles(compiled)[0] == "user"
    assert seen > 5


def test_a_cut_is_recorded_and_not_computed_again() -> None:
    """SPEC 7.4: not after a restart, nor when another calibration would cut elsewhere."""
    compiler = compiler_for(window=3_000)
    while not (compiled := say(compiler, cc.user(words(100, "more.")), reply=words(100))).manifest.why.startswith(
        "over"
    ):
        pass
    again = cc.MessageCompiler(compiler.store, compiler.provider, low=0.3, high=0.99)
    compiler.store.append("c", cc.user("Go on."))
    after = again.compile("c")
    assert after.manifest.why == ""
    assert begins_with(blocks(after.params), blocks(compiled.params))


def test_a_cleared_context_begins_anew() -> None:
    """SPEC 7.7: nothing before the edge is sent."""
    compiler = compiler_for()
    say(compiler, cc.user("The secret is 4711."))
    compiler.store.reset("c")
    compiled = say(compiler, cc.user("What was it?"))
    assert compiled.manifest.why == "cleared"
    assert "4711" not in texts(compiled)
    assert [message["role"] for message in compiled.params["messages"]] == ["user"]
    assert say(compiler, cc.user("Are you sure?")).manifest.why == ""


# ── the provider's own figures ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("share", "cut"), [(0.5, False), (0.97, True)])
def test_the_providers_own_figure_decides_when_a_cut_comes(share: float, cut: bool) -> None:
    """SPEC 6.2: next input = last real input + what came after."""
    compiler = compiler_for(window=4_000)
    for index in range(9):
        say(compiler, cc.user(words(130, f"question {index}.")), reply=words(60))
    compiler.store.append("c", cc.user("And this?"))
    compiled = compiler.compile("c")
    real = int(share * compiled.budget.available) + compiled.budget.system
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(words(60)), usage=cc.Usage(input=real, output=70))
    newest = cc.user(words(60, "more"))
    compiler.store.append("c", newest)
    after = compiler.compile("c")
    assert (after.manifest.why == "over budget") == cut
    if not cut:
        assert after.budget.measured
        expected = real - after.budget.system + 70 + compiler.counter.message(newest) * compiler.factor
        assert after.budget.used == pytest.approx(expected, abs=80)


def test_after_a_cut_the_old_figure_no_longer_counts() -> None:
    """SPEC 6.2: it was of what is not sent any more; the correction that was learned from it stays."""
    compiler = compiler_for(window=4_000)
    cuts: list[int] = []
    for index in range(60):
        compiler.store.append("c", cc.user(words(100, f"question {index}.")))
        compiled = compiler.compile("c")
        if compiled.manifest.why == "over budget":
            cuts.append(index)
        real = int(compiled.estimated * 1.3)  # this provider counts 30 % more than we do
        assert compiled.budget.used <= compiled.budget.available
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant(words(60)), usage=cc.Usage(input=real, output=80))
        assert real < 4_000 - 256
    assert len(cuts) >= 3
    assert all(later - earlier > 2 for earlier, later in pairwise(cuts))


# ── what a new epoch leaves out ───────────────────────────────────────────────────────────────────────────────────────


def picture(name: str) -> Message:
    return cc.user([name, cc.Media(data=name.encode() * 20, mime_type="image/png")])


def test_a_new_epoch_keeps_the_bytes_of_the_latest_media_only() -> None:
    """SPEC 2.6: of two by default; within an epoch nothing that was shown is taken back."""
    compiler = compiler_for(window=40_000)
    for name in ("one", "two", "three", "four"):
        compiled = say(compiler, picture(name))
    assert texts(compiled).count('"type":"image"') == 4
    compiled = compiler.compile("c", system_prompt="Another prompt.", again=True)
    assert compiled.manifest.why == "system prompt changed"
    assert texts(compiled).count('"type":"image"') == 2
    shown = [line for line in compiled.manifest.lines if line.role == "user"]
    assert [line.why for line in shown] == ["media described", "media described", "", ""]


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_how_many_media_a_new_epoch_keeps_is_a_setting(keep: int) -> None:
    """SPEC 2.6"""
    compiler = compiler_for(window=40_000, options={"keep_media": keep})
    for name in ("one", "two", "three", "four"):
        say(compiler, picture(name))
    compiled = compiler.compile("c", system_prompt="Another prompt.", again=True)
    assert texts(compiled).count('"type":"image"') == keep


def thought(text: str, name: str) -> Message:
    return cc.assistant(
        text, reasoning=cc.Reasoning(text=f"thinking {name}", signature=f"sig{name}", provider="anthropic")
    )


def thinking_compiler(binds: bool) -> cc.MessageCompiler:
    provider = cc.provider(CLAUDE, window=3_000, output=500, binds_reasoning=binds)
    return cc.MessageCompiler(cc.open_store("memory:"), provider)


@pytest.mark.parametrize("binds", [True, False])
def test_signed_reasoning_goes_with_a_cut_where_the_model_binds_it_to_its_prefix(binds: bool) -> None:
    """SPEC 9.3; pi#9391: after a cut the kept tail carries signatures bound to the old prefix."""
    compiler = thinking_compiler(binds)
    index = 0
    compiler.store.append("c", cc.user("The first question."))
    while (compiled := compiler.compile("c")).manifest.why != "over budget":
        compiler.begin(compiled)
        compiler.commit(compiled, thought(words(100), f"<{index}>"))
        index += 1
        compiler.store.append("c", cc.user(words(100, f"question {index}.")))
    replies = [message for message in compiled.params["messages"] if message["role"] == "assistant"]
    assert len(replies) > 2
    assert texts(compiled).count('"type":"thinking"') == (0 if binds else len(replies))
    assert compiled.record.signed_lost == (len(replies) if binds else 0)
    compiler.begin(compiled)
    compiler.commit(compiled, thought("New.", "<new>"))
    compiler.store.append("c", cc.user("And?"))
    after = compiler.compile("c")
    assert "sig<new>" in texts(after)  # said in this epoch, after what it is bound to
    assert not cc.lint(after.params, format="anthropic")


def test_signed_reasoning_before_a_rewind_point_stays() -> None:
    """SPEC 9.3, 3.5: everything before it is as it was."""
    compiler = thinking_compiler(True)
    for index in range(4):
        compiler.store.append("c", cc.user(f"Question {index}."))
        compiled = compiler.compile("c")
        compiler.begin(compiled)
        compiler.commit(compiled, thought(f"Answer {index}.", f"<{index}>"))
    compiler.store.rewind("c", 4)
    compiler.store.append("c", cc.user("Another question."))
    compiled = compiler.compile("c")
    assert compiled.manifest.why == "edited or branched away"
    assert "sig<0>" in texts(compiled)
    assert "sig<1>" in texts(compiled)
    assert "sig<2>" not in texts(compiled)
    assert begins_with(blocks(compiled.params), blocks(compiler.compile("c", dry_run=True, rewind=4).params))


def test_a_redacted_message_says_so_and_its_words_are_gone() -> None:
    """SPEC 2.8: the manifest of every later request says so."""
    compiler = compiler_for()
    say(compiler, cc.user("My number is 4711."))
    say(compiler, cc.user("And so on."))
    compiler.store.redact("c", 1)
    for _ in range(2):
        compiled = say(compiler, cc.user("What now?"))
        assert "4711" not in texts(compiled)
        assert any("[removed]" in line.text or line.why == "redacted" for line in compiled.manifest.lines)
    assert replace(compiler.store.load("c")[0], time=0).redacted

"""The token budget: available tokens, messages that are never trimmed, and which counts are used."""

from itertools import pairwise

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.fit_budget import STEPS_LEFT_OUT_TEXT
from contextc.compiler.history import HISTORY_TOOLS
from tests.compiler.sized_conversations import (
    CLAUDE,
    LOOK,
    append_and_commit,
    compiler_for,
    filler_text,
    of_tokens,
    step,
    texts,
)

# ── what is available ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_available_is_the_window_less_system_tools_reserve_and_margin() -> None:
    """Guarantee 7.1"""
    compiler = compiler_for(window=10_000, output=2_000)
    compiler.store.append("c", cc.user("Hello."))
    budget = compiler.compile("c", instructions="You are brief.", tools=[LOOK]).budget
    assert budget.system == compiler.counter.count_system("You are brief.") + compiler.counter.overhead
    sent = compiler.provider.formatter.encode_tools([LOOK, *HISTORY_TOOLS])
    assert budget.tools == compiler.counter.count_tools(sent)
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
    """Guarantee 7.1: reserve = min(requested output, 32k, window/2)."""
    compiler = compiler_for(window, longest)
    compiler.store.append("c", cc.user("Hello."))
    compiled = compiler.compile("c", max_output_tokens=requested)
    assert compiled.budget.reserve == reserve
    assert compiled.params["max_tokens"] == (requested or reserve)  # while the window has room for it


@pytest.mark.parametrize(
    ("window", "margin"), [(1_000, 0), (1_024, 0), (1_025, 256), (25_600, 256), (30_000, 300), (200_000, 2_000)]
)
def test_the_margin_is_256_tokens_or_one_percent_and_none_in_tiny_windows(window: int, margin: int) -> None:
    """Guarantee 7.1"""
    compiler = compiler_for(window)
    compiler.store.append("c", cc.user("Hello."))
    assert compiler.compile("c").budget.margin == margin


def test_a_callers_budget_caps_the_whole_input_and_reserves_nothing() -> None:
    """Guarantee 7.1: system prompt and tools are within it."""
    compiler = compiler_for(window=100_000)
    for index in range(20):
        append_and_commit(compiler, cc.user(filler_text(150, f"question {index}")), max_input_tokens=2_000)
    compiler.store.append("c", cc.user("And now?"))
    compiled = compiler.compile("c", instructions="You are brief.", tools=[LOOK], max_input_tokens=2_000)
    budget = compiled.budget
    assert (budget.limit, budget.reserve, budget.margin) == (2_000, 0, 0)
    assert budget.available == 2_000 - budget.system - budget.tools
    assert budget.input <= 2_000
    assert budget.input == budget.system + budget.tools + budget.used


def test_percentages_are_of_what_is_available() -> None:
    """Guarantee 7.1"""
    compiler = compiler_for(window=2_000, output=500)
    message = of_tokens(compiler, 600)
    compiler.store.append("c", message)
    budget = compiler.compile("c").budget
    assert budget.used == compiler.counter.count_message(message)
    assert budget.share == budget.used / budget.available
    assert "% " not in str(compiler.compile("c").manifest).splitlines()[0]
    assert f"({budget.share:.0%})" in str(compiler.compile("c").manifest)


# ── what never goes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_alone_does_not_fit_is_refused_with_every_figure_and_nothing_is_stored() -> None:
    """Guarantee 7.3"""
    compiler = compiler_for(window=2_000, output=500)
    compiler.store.append("c", cc.user("Remember this: " + filler_text(400)))
    compiler.store.pin("c", 1)
    compiler.store.append("c", of_tokens(compiler, 1_500))
    with pytest.raises(cc.errors.ContextOverflow) as caught:
        compiler.compile("c", instructions="Be brief.", tools=[LOOK])
    error = caught.value
    pinned, newest = (compiler.counter.count_message(message) for message in compiler.store.load("c"))
    assert (error.window, error.reserve, error.margin) == (2_000, 500, 256)
    assert error.available == 2_000 - 500 - 256 - error.system - error.tools
    assert error.needed == pinned + newest
    assert error.pinned == pinned
    for figure in (error.needed, error.available, error.system, error.tools):
        assert f"{figure:,}" in str(error)
    assert cc.SessionManager(compiler.store).sessions("c") == []


def test_pinned_messages_are_never_dropped() -> None:
    """Guarantee 7.3: a pinned call comes with its results."""
    compiler = compiler_for(window=3_000)
    compiler.store.append("c", cc.user("What is the key?"))
    step(compiler, 1, "The key is 4711. " + filler_text(100))
    append_and_commit(compiler)
    append_and_commit(compiler, cc.user("Note the rule: no tabs."))
    compiler.store.pin("c", 2)
    compiler.store.pin("c", 5)
    dropped = 0
    for index in range(25):
        compiled = append_and_commit(compiler, cc.user(filler_text(100, f"question {index}.")), reply=filler_text(100))
        dropped = max(dropped, sum(not line.shown for line in compiled.manifest.lines))
        assert "The key is 4711." in texts(compiled)
        assert "no tabs" in texts(compiled)
        assert not cc.lint(compiled.params, format="anthropic")
    assert dropped > 5


def test_the_latest_summary_is_never_dropped() -> None:
    """Guarantees 7.3, 7.5: cuts that come after it leave it in its place."""
    compiler = compiler_for(window=3_000)
    for index in range(8):
        append_and_commit(compiler, cc.user(filler_text(120, f"question {index}.")), reply=filler_text(120))
    made = compiler.compact("c", lambda messages, previous: "They asked about many things.")
    assert made is not None
    cuts = 0
    for index in range(8, 40):
        compiled = append_and_commit(compiler, cc.user(filler_text(120, f"question {index}.")), reply=filler_text(120))
        cuts += compiled.manifest.why == "over budget"
        assert texts(compiled).count("They asked about many things.") == 1
    assert cuts > 2


def test_a_pinned_message_is_found_however_far_back_it_lies() -> None:
    """Guarantee 7.3: also where a long history is shown for the first time, and most of it is not even read."""
    compiler = compiler_for(window=4_000)
    compiler.store.extend("c", [cc.user("Note the rule: no tabs."), cc.assistant("Yes.")])
    compiler.store.extend("c", [each for _ in range(900) for each in (cc.user(filler_text(30)), cc.assistant("Yes."))])
    compiler.store.pin("c", 1)
    compiled = append_and_commit(compiler, cc.user("And now?"))
    assert compiled.snapshot.unread_until > 1
    assert "Note the rule: no tabs." in [block["text"] for block in compiled.params["messages"][0]["content"]]
    assert "no tabs" in texts(append_and_commit(compiler, cc.user("And now?")))


def test_what_opened_a_turn_is_found_however_long_the_turn_is() -> None:
    """Guarantee 7.2: the turn's user message stays, also where its steps are shown for the first time."""
    compiler = compiler_for(window=4_000)
    compiler.store.extend("c", [cc.user("An older question."), cc.assistant("Done."), cc.user("Find the bug.")])
    for number in range(900):
        call = cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})])
        compiler.store.extend("c", [call, cc.tool_result(f"call{number}", "look", filler_text(30))])
    compiled = compiler.compile("c", tools=[LOOK])
    assert compiled.snapshot.unread_until > 3
    earlier, *shown = [block["text"] for block in compiled.params["messages"][0]["content"]]
    assert shown == ["Find the bug.", STEPS_LEFT_OUT_TEXT]
    assert "An older question." in earlier
    assert not cc.lint(compiled.params, format="anthropic")


# ── the provider's own figures ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("share", "cut"), [(0.5, False), (0.97, True)])
def test_the_providers_own_figure_decides_when_a_cut_comes(share: float, cut: bool) -> None:
    """Guarantee 6.2: next input = last real input + what came after."""
    compiler = compiler_for(window=4_000)
    for index in range(9):
        append_and_commit(compiler, cc.user(filler_text(130, f"question {index}.")), reply=filler_text(60))
    compiler.store.append("c", cc.user("And this?"))
    compiled = compiler.compile("c")
    real = int(share * compiled.budget.available) + compiled.budget.system
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(filler_text(60)), usage=cc.Usage(input=real, output=70))
    newest = cc.user(filler_text(60, "more"))
    compiler.store.append("c", newest)
    after = compiler.compile("c")
    assert (after.manifest.why == "over budget") == cut
    if not cut:
        assert after.budget.measured
        expected = real - after.budget.system + 70 + compiler.counter.count_message(newest) * compiler.factor
        assert after.budget.used == pytest.approx(expected, abs=80)


def test_after_a_cut_the_old_figure_no_longer_counts() -> None:
    """Guarantee 6.2: it was of what is not sent any more; the correction that was learned from it stays."""
    compiler = compiler_for(window=4_000)
    cuts: list[int] = []
    for index in range(60):
        compiler.store.append("c", cc.user(filler_text(100, f"question {index}.")))
        compiled = compiler.compile("c")
        if compiled.manifest.why == "over budget":
            cuts.append(index)
        real = int(compiled.estimated_input * 1.3)  # this provider counts 30 % more than we do
        assert compiled.budget.used <= compiled.budget.available
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant(filler_text(60)), usage=cc.Usage(input=real, output=80))
        assert real < 4_000 - 256
    assert len(cuts) >= 3
    assert all(later - earlier > 2 for earlier, later in pairwise(cuts))


def test_what_one_kind_of_request_teaches_is_not_applied_to_another() -> None:
    """Guarantee 6.2: an error in the count of tools says nothing about requests without tools, also after a restart."""
    compiler = compiler_for(window=40_000)
    tool = cc.Tool(name="look_up", description="Looks it up.", parameters={"type": "object", "properties": {}})
    compiler.store.append("with", cc.user(filler_text(400)))
    first = compiler.compile("with", tools=[tool])
    compiler.begin(first)
    compiler.commit(first, cc.assistant("ok"), usage=cc.Usage(input=first.estimated_input * 3 // 2, output=2))
    again = cc.MessageCompiler(compiler.store, compiler.provider)
    for each in (compiler, again):
        each.store.append("without", cc.user(filler_text(400)))
        assert each.compile("without").draft.factor == 1 == each.factor
        assert each.compile("with", tools=[tool]).draft.factor == pytest.approx(1.5, rel=0.01)
        reasoning = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
        assert each.compile("with", tools=[tool], settings=reasoning).draft.factor == 1


@pytest.mark.parametrize(("spec", "believed"), [("ollama:qwen3:8b", False), (CLAUDE, True)])
def test_a_count_that_may_omit_cached_tokens_is_not_used_below_our_own(spec: str, believed: bool) -> None:
    """Guarantee 6.2: some servers count only what they had to read again."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(spec, window=40_960))
    compiler.store.append("c", cc.user(filler_text(3_000)))
    first = compiler.compile("c")
    compiler.begin(first)
    compiler.commit(first, cc.assistant("ok"), usage=cc.Usage(input=first.estimated_input * 2 // 3, output=2))
    assert (compiler.factor < 1) is believed
    compiler.store.append("c", cc.user("next"))
    second = compiler.compile("c")
    assert second.budget.measured is believed
    assert (second.budget.input < first.budget.input) is believed


def test_a_count_above_our_own_is_used_for_every_provider() -> None:
    """Guarantee 6.2"""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider("ollama:qwen3:8b", window=40_960))
    compiler.store.append("c", cc.user(filler_text(3_000)))
    first = compiler.compile("c")
    real = first.estimated_input + 500
    compiler.begin(first)
    compiler.commit(first, cc.assistant("ok"), usage=cc.Usage(input=real, output=2))
    compiler.store.append("c", cc.user("next"))
    second = compiler.compile("c")
    assert second.budget.measured
    assert second.budget.input > real


# ── figures of providers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_figure_above_the_window_is_not_the_size_of_a_request() -> None:
    """A request that was answered did fit. Otherwise the conversation could never be continued."""
    compiler, overheads = compiler_for(window=10_000, output=2_000), list[tuple[int, int]]()
    for number in range(3):
        compiler.store.append("c", cc.user(f"Question {number}?"))
        compiled = compiler.compile("c")
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Yes."), usage=cc.Usage(input=5_000_000, output=2))
        overheads.append((compiled.budget.overhead, compiled.state.overhead))
    assert overheads == [(0, 0)] * 3


@pytest.mark.parametrize("count", ["12", -500, 1e30, 10**25, None, [1], float("nan")])
def test_a_reply_with_impossible_figures_is_stored_without_them(count: object) -> None:
    """It is paid for, and its text is what matters."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "openai-chat:gpt-6-sol")
    store.append("c", cc.user("Hello?"))
    compiled = compiler.compile("c")
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    with compiler.attempt(compiled) as attempt:
        (reply,) = attempt.commit({"choices": [choice], "usage": {"prompt_tokens": count, "completion_tokens": 3}})
    assert (reply.text, reply.usage) == ("Hi.", cc.Usage(output=3))


ANSWERS: dict[str, JSONObject] = {
    "anthropic:claude-opus-5-5": {"role": "assistant", "content": [{"type": "text", "text": "Hi."}], "usage": "many"},
    "openai:gpt-5.5": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}],
        "usage": "many",
    },
    "openai-chat:gpt-5.5": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": "many",
    },
    "google:gemini-3-pro": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}],
        "usageMetadata": "many",
    },
}


@pytest.mark.parametrize("model", ANSWERS)
def test_a_reply_whose_usage_is_no_object_is_stored_without_it(model: str) -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, model)
    store.append("c", cc.user("Hello?"))
    with compiler.attempt(compiler.compile("c")) as attempt:
        (reply,) = attempt.commit(ANSWERS[model])
    assert reply.text == "Hi."
    assert reply.usage is None or reply.usage == cc.Usage()

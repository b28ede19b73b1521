"""The policy `sliding_window` and the default policy, compared with one list of expectations.

Requests are in OpenAI's chat format, which is the one the document writes: `{role: 'system', content}` and so on.
"""

from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.draft import CompilerOptionArguments
from contextc.formats.message_preparation import ReasoningPolicy

BIG = cc.provider("openai-chat:gpt-4o")
SMALL = cc.provider("openai-chat:gpt-4o", window=300, output=100)
LITERAL: CompilerOptionArguments = {"policy": "sliding_window"}
BOTH = pytest.mark.parametrize("options", [LITERAL, {}], ids=["sliding_window", "ours"])
SentMessage = tuple[str, object]


def compiled(
    *log: cc.Message, provider: cc.Provider = BIG, prompt: str | None = None, options: CompilerOptionArguments = LITERAL
) -> cc.Compiled:
    store = cc.open_store("memory:")
    store.extend("demo", log)
    return cc.MessageCompiler(store, provider, **options).compile("demo", instructions=prompt)


def sent_messages(request: cc.Compiled) -> list[SentMessage]:
    messages: list[JSONObject] = request.params["messages"]
    return [(message["role"], message["content"]) for message in messages]


def long_talk(turns: int) -> list[cc.Message]:
    """So many turns of about 40 tokens, and a new message."""
    text = "word " * 12
    log = [
        message
        for number in range(turns)
        for message in (cc.user(f"question {number} {text}"), cc.assistant(f"answer {number} {text}"))
    ]
    return [*log, cc.user("the new message")]


# ── the acceptance list ───────────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_the_model_sees_prior_messages(options: CompilerOptionArguments) -> None:
    """Design B: multi-turn works."""
    log = (cc.user("My name is Ann."), cc.assistant("Hello Ann."), cc.user("What is my name?"))
    assert sent_messages(compiled(*log, options=options)) == [
        ("user", "My name is Ann."),
        ("assistant", "Hello Ann."),
        ("user", "What is my name?"),
    ]


@BOTH
def test_the_system_prompt_is_the_first_message(options: CompilerOptionArguments) -> None:
    """Design B: prepended when non-empty."""
    assert sent_messages(compiled(cc.user("hi"), prompt="Be brief.", options=options)) == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]


@BOTH
@pytest.mark.parametrize("prompt", ["", None, "  "], ids=["empty", "none", "blank"])
def test_an_empty_system_prompt_is_omitted(options: CompilerOptionArguments, prompt: str | None) -> None:
    """Design B; Guarantee 8.5."""
    assert sent_messages(compiled(cc.user("hi"), prompt=prompt, options=options)) == [("user", "hi")]


def test_truncation_drops_single_messages_from_the_front_until_the_rest_fits() -> None:
    """Design B, truncation strategy, to the letter: one less would not have been enough, one more not needed."""
    log = long_talk(8)
    request = compiled(*log, provider=SMALL, prompt="Be brief.")
    shown = sent_messages(request)
    assert shown[0] == ("system", "Be brief.")
    kept = len(shown) - 1
    assert [content for _, content in shown[1:]] == [message.text for message in log[-kept:]]
    assert 1 < kept < len(log)
    budget = request.budget
    assert budget.available == 300 - budget.system - 100  # contextLength - system - reserve; the new message is counted
    assert (budget.reserve, budget.margin) == (100, 0)
    first_dropped = cc.MessageCompiler(cc.open_store("memory:"), SMALL).counter.count_message(log[-kept - 1])
    assert budget.used <= budget.available < budget.used + first_dropped


def test_truncation_by_the_letter_may_begin_with_an_answer_and_ours_never_does() -> None:
    """Guarantee 7.2: drop single messages, or whole turns."""
    starts: set[str] = set()
    for window in range(260, 340, 5):
        provider = cc.provider("openai-chat:gpt-4o", window=window, output=100)
        starts.add(sent_messages(compiled(*long_talk(8), provider=provider))[0][0])
        for strategy in ("oldest", "chunked"):
            ours = compiled(*long_talk(8), provider=provider, options={"strategy": strategy})
            assert sent_messages(ours)[0][0] == "user"
    assert starts == {"user", "assistant"}


@BOTH
@pytest.mark.parametrize("window", [150, 200, 300, 500, 1_000])
def test_the_new_user_message_is_always_there(options: CompilerOptionArguments, window: int) -> None:
    """Design B: appended last, outside the truncation; Guarantee 7.3."""
    provider = cc.provider("openai-chat:gpt-4o", window=window, output=40)
    assert sent_messages(compiled(*long_talk(20), provider=provider, options=options))[-1] == (
        "user",
        "the new message",
    )


def test_the_new_user_message_stays_where_a_dynamic_block_follows_it() -> None:
    """Design B, with what it does not know of: the block is not the newest message."""
    store = cc.open_store("memory:")
    store.extend("demo", long_talk(8))
    block = cc.PromptFragment("state", "busy " * 150, "dynamic")
    request = cc.MessageCompiler(store, SMALL, policy="sliding_window").compile("demo", instructions=[block])
    assert [role for role, _ in sent_messages(request)][-2:] == ["user", "system"]
    assert sent_messages(request)[-2] == ("user", "the new message")


def test_a_new_message_that_does_not_fit_is_an_error_with_every_figure() -> None:
    """Guarantee 7.3: nothing is sent, rather than something without the question."""
    with pytest.raises(cc.errors.ContextOverflow) as caught:
        compiled(cc.user("word " * 500), provider=SMALL)
    assert caught.value.available < caught.value.needed


@BOTH
def test_failed_and_pending_messages_are_excluded(options: CompilerOptionArguments) -> None:
    """Design B: only `status === 'sent'`."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("one"))
    store.append("demo", cc.assistant("half an ans", status="error", error="overloaded"))
    store.append("demo", cc.user("two"))
    with store.lease("demo") as lease:
        stream = store.stream(lease)
        stream.write("still being written")
        stream.flush()
        request = cc.MessageCompiler(store, BIG, **options).compile("demo")
        stream.end(status="cancelled")
    assert sent_messages(request) == [("user", "one"), ("user", "two")]


def test_assistant_blocks_are_concatenated_in_order() -> None:
    """Design B: `content` and `reasoning_content` blocks, joined in order. Guarantee 2.4: inline."""
    blocks = [cc.Reasoning(text="Let me think. "), cc.Text("It is 4"), cc.Reasoning(text=" (surely)"), cc.Text(".")]
    log = (cc.user("2 + 2?"), cc.assistant(blocks), cc.user("Sure?"))
    assert sent_messages(compiled(*log))[1] == ("assistant", "Let me think. It is 4 (surely).")


@pytest.mark.parametrize(
    ("reasoning", "content"),
    [("native", "It is 4."), ("drop", "It is 4."), ("inline", "Let me think. It is 4.")],
)
def test_reasoning_is_a_policy_of_the_compiler(reasoning: ReasoningPolicy, content: str) -> None:
    """Guarantee 2.4: joined into the content only if the option is set."""
    log = (cc.user("2 + 2?"), cc.assistant("It is 4.", reasoning="Let me think. "), cc.user("Sure?"))
    assert sent_messages(compiled(*log, options={"reasoning": reasoning}))[1] == ("assistant", content)


def test_reasoning_that_is_joined_in_is_counted() -> None:
    """Guarantee 6.1: counting covers everything that is sent."""
    log = (cc.user("2 + 2?"), cc.assistant("It is 4.", reasoning="Let me think. " * 50), cc.user("Sure?"))
    assert compiled(*log).budget.used > compiled(*log, options={}).budget.used + 100


@pytest.mark.parametrize("provider", [BIG, cc.provider("anthropic:claude-sonnet-4-5")], ids=["chat", "anthropic"])
def test_a_reply_that_was_committed_is_joined_like_any_other(provider: cc.Provider) -> None:
    """Guarantees 2.4, 9.2: and stays as it was shown."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, provider, policy="sliding_window")
    store.append("demo", cc.user("2 + 2?"))
    thought = cc.Reasoning(text="Let me think. ", signature="signed", provider=provider.formatter.provider)
    compiler.commit(compiler.compile("demo"), cc.assistant("It is 4.", reasoning=thought))
    store.append("demo", cc.user("Sure?"))
    first = compiler.compile("demo")
    reply: JSONObject = first.params["messages"][1]
    assert reply["content"] in ("Let me think. It is 4.", [{"type": "text", "text": "Let me think. It is 4."}])
    compiler.commit(first, cc.assistant("Yes."))
    store.append("demo", cc.user("Good."))
    assert compiler.compile("demo").params["messages"][1] == reply


# ── the figures ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reserve_is_the_models_longest_output_by_the_letter_and_capped_by_default() -> None:
    """Guarantee 7.1."""
    long_winded = cc.provider("openai-chat:gpt-4o", window=100_000, output=60_000)
    literal, ours = (
        compiled(cc.user("hi"), provider=long_winded),
        compiled(cc.user("hi"), provider=long_winded, options={}),
    )
    assert (literal.budget.reserve, literal.budget.margin) == (60_000, 0)
    assert (ours.budget.reserve, ours.budget.margin) == (8_000, 1_000)


def test_the_default_policy_can_reserve_the_longest_output_too() -> None:
    """Guarantee 7.1: the option `reserve`. A reserve as large as the window shrinks before anything overflows."""
    for output, shown in ((60_000, 60_000), (100_000, 4_000)):
        provider = cc.provider("openai-chat:gpt-4o", window=100_000, output=output)
        request = compiled(*long_talk(2), provider=provider, options={"reserve": "full"})
        assert request.budget.reserve == shown
        assert sent_messages(request)[-1] == ("user", "the new message")
    tiny = cc.provider("openai-chat:gpt-4o", window=4_000, output=4_000)
    request = compiled(*long_talk(2), provider=tiny, options={"reserve": "full"})
    assert (sent_messages(request), request.budget.reserve) == ([("user", "the new message")], 2_000)


@pytest.mark.parametrize("output", [1, 3_000, 3_600, 3_900, 3_980, 3_990, 3_995, 3_999, 4_000])
@pytest.mark.parametrize("prompt", [None, "Be brief."], ids=["no prompt", "prompt"])
def test_the_history_is_what_fits_beside_prompt_new_message_and_the_longest_answer(
    output: int, prompt: str | None
) -> None:
    """Guarantee 7.1. If nothing fits, the system prompt and the new message are sent, and the answer gets the rest."""
    log = long_talk(40)
    provider = cc.provider("openai-chat:gpt-4o", window=4_000, output=output)
    request = compiled(*log, provider=provider, prompt=prompt)
    counter = cc.MessageCompiler(cc.open_store("memory:"), provider).counter
    *history, new = [counter.count_message(message) for message in log]
    available = 4_000 - request.budget.system - new - output
    while history and sum(history) > available:
        history.pop(0)
    expected = [*([prompt] if prompt else []), *(message.text for message in log[len(log) - 1 - len(history) :])]
    assert [content for _, content in sent_messages(request)] == expected
    assert request.budget.reserve == min(output, 4_000 - request.budget.system - new)


def test_a_reserve_that_had_to_shrink_is_computed_again_for_the_next_request() -> None:
    """Guarantee 7.1: one long message does not change what later requests keep."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, SMALL, policy="sliding_window")
    store.append("demo", cc.user("word " * 250))
    long = compiler.compile("demo")
    assert 0 < long.budget.reserve < 100
    compiler.commit(long, cc.assistant("yes"))
    store.append("demo", cc.user("short"))
    next_request = compiler.compile("demo")
    assert sent_messages(next_request) == [("assistant", "yes"), ("user", "short")]
    assert next_request.budget.reserve == 100


def test_a_reserve_that_shrank_under_another_policy_is_whole_again() -> None:
    """Guarantee 7.1: a conversation may be continued with another policy."""
    store = cc.open_store("memory:")
    provider = cc.provider("openai-chat:gpt-4o", window=16_000, output=10_000)
    store.append("demo", cc.user("word " * 9_000))
    first = cc.MessageCompiler(store, provider)
    long = first.compile("demo", max_output_tokens=8_000)
    assert long.budget.reserve == 4_000
    first.commit(long, cc.assistant("yes"))
    store.append("demo", cc.user("short"))
    request = cc.MessageCompiler(store, provider, policy="sliding_window").compile("demo")
    assert request.budget.reserve == 10_000
    assert sent_messages(request) == [("assistant", "yes"), ("user", "short")]


def test_calls_keep_their_results_and_the_question_stays_while_the_agent_works() -> None:
    """Guarantees 5.4, 7.3: the messages of a step are left out together, and the user's message is not."""
    log = [cc.user("old"), cc.assistant("old answer"), cc.user("the question")]
    for number in range(6):
        log.append(cc.assistant(tool_calls=[cc.tool_call(f"c{number}", "look", {"n": number})]))
        log.append(cc.tool_result(f"c{number}", "look", f"result {number} " + "word " * 20))
    for output in range(60, 300, 20):
        provider = cc.provider("openai-chat:gpt-4o", window=300, output=output)
        messages: list[JSONObject] = compiled(*log, provider=provider).params["messages"]
        kept = [message for message in messages if message["role"] != "user"]
        assert [message["content"] for message in messages if message["role"] == "user"][-1] == "the question"
        assert messages[-1]["tool_call_id"] == "c5"
        assert [message["role"] for message in kept][-2:] == ["assistant", "tool"]
        called = [call["id"] for message in kept for call in message.get("tool_calls", ())]
        assert called == [message["tool_call_id"] for message in kept if message["role"] == "tool"]


def test_the_policy_uses_no_summaries() -> None:
    """Guarantee 7.5: a summary that no request would contain is refused, and not made at a model's cost."""
    store = cc.open_store("memory:")
    store.extend("demo", long_talk(20))
    compiler = cc.MessageCompiler(store, SMALL, policy="sliding_window")
    with pytest.raises(cc.errors.InvalidSetting, match="sliding_window uses no summaries"):
        compiler.compact("demo", lambda messages, previous: "summary")


def test_ours_keeps_whole_turns_and_goes_down_to_the_low_mark() -> None:
    """Guarantees 7.2, 7.4, beside the document's rule."""
    ours = compiled(*long_talk(20), provider=SMALL, options={})
    oldest = compiled(*long_talk(20), provider=SMALL, options={"strategy": "oldest"})
    assert len(sent_messages(ours)) % 2 == 1
    assert len(sent_messages(oldest)) % 2 == 1
    assert ours.budget.used <= 0.7 * ours.budget.available < oldest.budget.used <= oldest.budget.available


def test_cuts_by_the_letter_are_announced_each_time() -> None:
    """Guarantees 13.1, 9.3: every request that drops a message has it in its manifest."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, SMALL, policy="sliding_window")
    reasons: list[str] = []
    shown: list[Sequence[SentMessage]] = []
    request: cc.Compiled | None = None
    for message in long_talk(6):
        if message.role == "assistant" and request is not None:
            compiler.commit(request, message)
            continue
        store.append("demo", message)
        request = compiler.compile("demo")
        reasons.append(request.manifest.why)
        shown.append(sent_messages(request))
    assert reasons[0] == "first request"
    for before, after, why in zip(shown, shown[1:], reasons[1:], strict=False):
        assert (why == "over budget") == (after[: len(before)] != before)
    assert "over budget" in reasons


def test_the_default_policy_has_a_name() -> None:
    with cc.open_store("memory:") as store:
        named, default = cc.MessageCompiler(store, SMALL, policy="default"), cc.MessageCompiler(store, SMALL)
    assert named.options == default.options

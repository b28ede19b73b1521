"""The truncation sweep: generated conversations with tools, cut at nine budgets.

Trimmers in use today leave a result without its call in up to 59 % of such requests, and begin with something else than
the user's words in up to 89 %. Here it may never happen, at any budget that holds what must stay.
"""

from collections import Counter
from random import Random

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.compiler.draft import TrimStrategy
from contextc.compiler.fit_budget import STEPS_LEFT_OUT_TEXT
from contextc.formats import formatter
from contextc.messages import Message
from tests.compiler.recorded_replay import begins_with, blocks, replay
from tests.conftest import often, some
from tests.formats.known import having, known

CONVERSATIONS = often(12, 120)
BUDGETS = (60, 100, 150, 220, 320, 450, 700, 1_000, 1_600)
KINDS = ("parallel", "interleaved", "tools only", "late")


def generated(seed: int) -> list[Message]:
    """Return a conversation with tools; every message has a unique text."""
    dice, kind = Random(seed), KINDS[seed % len(KINDS)]
    messages: list[Message] = []
    calls = 0

    def words(least: int, most: int) -> str:
        return f"<{len(messages)}> " + " ".join(
            dice.choices(("file", "line", "error", "done"), k=dice.randint(least, most))
        )

    def step(late: list[Message]) -> None:
        nonlocal calls
        wanted = dice.randint(2, 4) if kind == "parallel" else dice.randint(1, 2)
        asked = [cc.tool_call(f"c{calls + index}", "look", {"at": f"file {index}"}) for index in range(wanted)]
        calls += wanted
        messages.append(cc.assistant(words(2, 8) if kind == "interleaved" else None, tool_calls=asked))
        messages.extend(late)
        late.clear()
        for call in dice.sample(asked, len(asked)):
            result = cc.tool_result(call.id, "look", words(3, 60))
            if kind == "late" and dice.random() < 0.4:
                late.append(result)
            else:
                messages.append(result)
                if kind == "interleaved" and dice.random() < 0.3:
                    messages.append(cc.user(words(2, 10)))

    turns = 1 if kind == "tools only" else dice.randint(3, 7)
    for turn in range(turns):
        messages.append(cc.user(words(3, 30)))
        late: list[Message] = []
        for _ in range(dice.randint(6, 16) if kind == "tools only" else dice.randint(0, 3)):
            step(late)
        if late:
            messages.append(cc.user(words(2, 6)))
            messages.extend(late)
        if turn < turns - 1:
            messages.append(cc.assistant(words(3, 20)))
    return messages


def must_stay(messages: list[Message]) -> list[Message]:
    """What no cut may take: what opened the last turn, and its last step."""
    start, answered = 0, True
    for index, message in enumerate(messages):
        if message.role == "user" and answered:
            start, answered = index, False
        elif message.role == "assistant":
            answered = not message.tool_calls
    turn = messages[start:]
    replies = [index for index, message in enumerate(turn) if message.role == "assistant"]
    if not replies:
        return turn
    last = turn[replies[-1]]
    asked = {call.id for call in last.tool_calls}
    after = [each for each in turn[replies[-1] + 1 :] if each.role != "tool" or each.tool_results[0].call_id in asked]
    return [*turn[: replies[0]], last, *after]


def compiled_or_overflow(
    compiler: cc.MessageCompiler, conversation: str, budget: int
) -> cc.Compiled | cc.errors.ContextOverflow:
    try:
        return compiler.compile(conversation, max_input_tokens=budget)
    except cc.errors.ContextOverflow as error:
        return error


def is_paired(body: JSONObject, format: str) -> bool:
    """Whether every call in a request has its result, and every result its call."""
    found = [piece for turn in formatter(format).rules.parse(body).messages for piece in turn.parts]
    calls, results = (
        Counter(each.id or each.name for each in found if each.kind == kind) for kind in ("call", "result")
    )
    return calls == results


@pytest.mark.parametrize(
    ("format", "strategy"), some([(format, each) for format in having("MODEL") for each in ("chunked", "oldest")], 3)
)
def test_no_cut_leaves_an_orphan_begins_without_the_user_or_drops_the_current_message(
    format: str, strategy: TrimStrategy
) -> None:
    """Guarantees 5.4, 7.2, 7.3; litellm#10696, langchain#29637, langchain#38352, openai-agents-python#4322,
    strands harness-sdk#2173 and #2087. Each conversation at nine budgets.
    """
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(known(format).MODEL), strategy=strategy, oversized=1.0)
    count = compiler.counter.count_message
    notice = count(cc.user(STEPS_LEFT_OUT_TEXT))
    seen: Counter[str] = Counter()
    for seed in range(CONVERSATIONS):
        messages = generated(seed)
        store.extend(f"{seed}", messages)
        stays = must_stay(messages)
        needed = sum(count(message) for message in stays)
        for budget in BUDGETS:
            compiled = compiled_or_overflow(compiler, f"{seed}", budget)
            if isinstance(compiled, cc.errors.ContextOverflow):
                assert needed + notice > compiled.available, f"conversation {seed} fits into {budget}"
                seen["overflow"] += 1
                continue
            seen["request"] += 1
            is_whole = needed + notice <= compiled.budget.available
            assert seed % 3 or not cc.lint(compiled.params, format=format)
            assert is_paired(compiled.params, format)
            shown = [line for line in compiled.manifest.lines if line.shown]
            assert shown[0].role == "user"
            seen["cut"] += len(shown) < len(messages)
            body = encode(decode(compiled.body)).decode()
            for message in stays:
                text = message.text or "".join(result.text for result in message.tool_results)
                if message.role == "tool" and not is_whole:  # it may be shortened, and still begins as it was
                    text = text.partition(" ")[0]
                assert text in body, f"conversation {seed} at {budget} lost {text!r}"
    assert sum((seen["overflow"], seen["request"])) == CONVERSATIONS * len(BUDGETS)
    assert seen["cut"] > 1.6 * CONVERSATIONS, seen
    assert seen["overflow"] > 0.4 * CONVERSATIONS, seen


@pytest.mark.parametrize("format", some(having("MODEL"), 4))
def test_the_same_holds_while_a_conversation_grows_request_by_request(format: str) -> None:
    """Guarantees 5.3, 5.4, 9.2: results that come after their calls were shown with a made-up one, among them."""
    requests = epochs = 0
    for seed in range(1, CONVERSATIONS, 5):
        for budget in (600 + known(format).OVERHEAD, 900 + known(format).OVERHEAD):
            compiler = cc.MessageCompiler(cc.open_store("memory:"), cc.provider(known(format).MODEL))
            before: list[bytes] = []
            for compiled in replay(compiler, [*generated(seed), cc.assistant("Done.")], budget=budget):
                now = blocks(decode(compiled.body))
                assert compiled.manifest.why or begins_with(now, before)
                assert not cc.lint(compiled.params, format=format)
                assert is_paired(compiled.params, format)
                assert next(line for line in compiled.manifest.lines if line.shown).role == "user"
                requests, epochs = requests + 1, epochs + (compiled.manifest.why == "over budget")
                before = now
    assert requests > 2.5 * CONVERSATIONS
    assert epochs > 0.4 * CONVERSATIONS

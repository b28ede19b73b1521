"""Steps that skip the passes: they add results only, or messages of people to a request that was not sent.

Both ways give the same bytes, the same account and the same state. Each case is the life of one agent: replies with
calls, results in any order, and now and then something that the shortcut does not take. `shortcuts=False` runs all
passes.
"""

import random

import pytest
from msgspec.structs import asdict

import contextc as cc
from contextc.compiler import Compiled, step
from contextc.compiler.arguments import AgentArguments
from contextc.compiler.draft import Draft
from tests.compiler.recorded_replay import recorded, replay
from tests.conftest import often, some

LIVES, UNANSWERED_LIVES = often(8, 8_500), often(6, 1_500)
"""Random lives of agents: ten thousand in `make prove`."""
PARTS = often(2, 16)
STEPS = 9
MESSAGES = often(200, 2_000)
MODELS = (
    "anthropic:claude-opus-5-5",
    "anthropic:claude-sonnet-4-5",
    "openai:gpt-5.2",
    "openai-chat:gpt-4o",
    "gemini:gemini-2.5-pro",
    "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "mistral:mistral-large-latest",
    "ollama:qwen3",
)
TOOLS = [
    cc.Tool(name=name, description="Does it.", parameters={"type": "object"}) for name in ("read", "files.write", "ask")
]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
WORDS = ("all", "work", "no play", "{}", "\n", "naïve", "東京", "path/to/file.py", "🙂", "  ")


def words(chance: random.Random, most: int = 40) -> str:
    return "go " + " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def reply(chance: random.Random, number: int) -> cc.Message:
    calls = [
        cc.ToolCall(id=f"call_{number}_{each}", name=chance.choice(TOOLS).name, arguments={"at": words(chance, 3)})
        for each in range(chance.choice((0, 1, 1, 1, 2, 3)))
    ]
    return cc.assistant(words(chance) if chance.random() < 0.7 or not calls else None, tool_calls=calls)


def answer(chance: random.Random, store: cc.Store, said: cc.Message) -> None:
    """Append what follows a reply: results in any order, mostly all of them, and rarely something else."""
    results = [cc.tool_result(call.id, call.name, words(chance, 90)) for call in said.tool_calls]
    if chance.random() < 0.2:
        chance.shuffle(results)
    if results and chance.random() < 0.08:
        results.pop()
    for each in results:
        if chance.random() < 0.05:
            each = cc.tool_result(each.tool_results[0].call_id, each.tool_results[0].name, "no", is_error=True)
        store.append("demo", each)
    if not said.tool_calls or chance.random() < 0.08:
        store.append("demo", cc.user(words(chance), author=chance.choice(("ann", "ann", "bob"))))
    if chance.random() < 0.04:
        store.append("demo", cc.system(words(chance), audience=chance.choice((None, "assistant", "tester"))))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Draft]:
    """The drafts of the steps that took the shortcut."""
    extend, drafts = step._extend, list[Draft]()  # pyright: ignore[reportPrivateUsage]

    def watched(ask: step.CompileInput) -> Draft | None:
        if (draft := extend(ask)) is not None:
            drafts.append(draft)
        return draft

    monkeypatch.setattr(step, "_extend", watched)
    return drafts


def by_all_passes(compiler: cc.MessageCompiler, conversation: str, asked: AgentArguments) -> Compiled:
    compiler.shortcuts = False
    try:
        return compiler.compile(conversation, retry=True, **asked)
    finally:
        compiler.shortcuts = True


def request_facts(compiled: Compiled) -> tuple[object, ...]:
    return (
        compiled.body,
        compiled.manifest.as_json(),
        compiled.state,
        compiled.record,
        compiled.rows,
        compiled.draft.tail,
        compiled.budget,
        compiled.headers,
    )


def live(seed: int) -> None:
    chance = random.Random(seed)
    store = cc.open_store("memory:")
    provider = cc.provider(chance.choice(MODELS), window=chance.choice((3_000, 6_000, 200_000, 200_000)), output=500)
    compiler = cc.MessageCompiler(store, provider)
    asked: AgentArguments = {"tools": TOOLS, "instructions": chance.choice((None, "Be brief.", "Be kind."))}
    todos = chance.random() < 0.3
    store.append("demo", cc.user(words(chance), author="ann"))
    for number in range(STEPS):
        if chance.random() < 0.05:
            asked["instructions"] = words(chance)
        if todos:
            text = f"Todos: {number if chance.random() < 0.2 else 0}"
            asked["instructions"] = ["Be brief.", cc.PromptFragment("todos", text, lifecycle="dynamic")]
        if chance.random() < 0.05:
            asked["tools"] = TOOLS[: chance.randint(1, 3)]
        try:
            whole = by_all_passes(compiler, "demo", asked)
        except cc.errors.ContextOverflow:
            return
        compiled = compiler.compile("demo", retry=True, **asked)
        assert request_facts(compiled) == request_facts(whole)
        usage = cc.Usage(input=int(compiled.budget.input * chance.uniform(0.9, 1.3)), output=20)
        with compiler.attempt(compiled) as attempt:
            (said,) = attempt.commit(reply(chance, number), usage=usage if chance.random() < 0.7 else None)
        answer(chance, store, said)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_shortcut_compiles_what_all_passes_compile(part: int, taken: list[Draft]) -> None:
    """Guarantee 9.2: memory makes a step cheaper, and nothing else."""
    for seed in range(part, LIVES, PARTS):
        live(seed)
    assert len(taken) > LIVES // PARTS


def test_a_request_whose_results_were_shortened_is_not_extended() -> None:
    """The provider's own figure decides how much is trimmed, and it is that of the request before."""
    live(165)


@pytest.mark.parametrize("model", some(MODELS[:4], 2))
def test_recorded_conversations_are_compiled_alike(model: str, taken: list[Draft]) -> None:
    """Guarantee 9.2: what was recorded of real agents, replayed step by step."""
    talk = recorded()
    compiler = cc.MessageCompiler(cc.open_store("memory:"), model)
    messages = talk.messages[:MESSAGES]
    for compiled in replay(compiler, messages, system_prompt=talk.system_prompt, tools=talk.tools):
        asked: AgentArguments = {"instructions": [talk.system_prompt], "tools": talk.tools}
        assert request_facts(by_all_passes(compiler, "long", asked)) == request_facts(compiled)
    assert len(taken) > len(messages) // 8


# ── requests that are not sent ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """The requests that extend one that was not sent."""
    extend, found = step._extend_unsent, list[Compiled]()  # pyright: ignore[reportPrivateUsage]

    def watched(ask: step.CompileInput, before: step.UnsentRequest) -> Compiled | None:
        if (compiled := extend(ask, before)) is not None:
            found.append(compiled)
        return compiled

    monkeypatch.setattr(step, "_extend_unsent", watched)
    return found


def from_the_store(compiler: cc.MessageCompiler, asked: AgentArguments, limit: int | None = None) -> Compiled:
    """Compile as a process does that has just begun. A dry run leaves nothing in memory."""
    fresh = cc.MessageCompiler(compiler.store, compiler.provider, **asdict(compiler.options))
    fresh.shortcuts = False
    return fresh.compile("demo", retry=True, dry_run=True, max_input_tokens=limit, **asked)


def begin_history(chance: random.Random, store: cc.Store) -> None:
    """Append a history that nothing was sent of: of people, of an agent, or of several."""
    for number in range(chance.choice((1, 2, 6, 12, 12, 700))):
        kind = chance.random()
        if kind < 0.5:
            store.append("demo", cc.user(words(chance), author=chance.choice((None, "ann"))))
        elif kind < 0.9:
            said = store.append("demo", reply(chance, number))
            answer(chance, store, said)
        else:
            store.append("demo", cc.user([cc.Text(words(chance)), cc.Media(mime_type="image/png", data=PNG)]))


def say(chance: random.Random, store: cc.Store) -> None:
    """Append what comes between two requests: mostly messages of people, rarely something else."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        author = chance.choice((None, "ann", "ann", "bob"))
        audience = "tester" if chance.random() < 0.1 else None
        store.append("demo", cc.user(words(chance), author=author, audience=audience))
    kind, tip = chance.random(), store.conversation("demo").length
    if kind < 0.03:
        store.append("demo", cc.system(words(chance)))
    elif kind < 0.06:
        store.append("demo", cc.assistant(words(chance) + " "))
    elif kind < 0.09:
        store.edit("demo", tip, cc.user(words(chance)))
    elif kind < 0.12:
        store.rewind("demo", max(1, tip - 2))
    elif kind < 0.15:
        store.redact("demo", chance.randint(1, tip))
    elif kind < 0.18:
        store.reset("demo")
        store.append("demo", cc.user(words(chance)))
    elif kind < 0.21:
        store.pin("demo", tip)
    elif kind < 0.24:
        store.append("demo", cc.user([cc.Media(mime_type="image/png", data=PNG)]))


def live_unanswered(seed: int) -> None:
    chance = random.Random(seed)
    store = cc.open_store("memory:")
    provider = cc.provider(chance.choice(MODELS), window=chance.choice((6_000, 200_000, 200_000)), output=500)
    compiler = cc.MessageCompiler(store, provider, policy=chance.choice(("", "", "sliding_window")))
    asked: AgentArguments = {"tools": chance.choice(((), TOOLS)), "instructions": chance.choice((None, "Be brief."))}
    begin_history(chance, store)
    for number in range(2 * STEPS):
        if chance.random() < 0.05:
            asked["instructions"] = chance.choice((None, words(chance)))
        if chance.random() < 0.05:
            asked["tools"] = TOOLS[: chance.randint(1, 3)]
        limit = chance.choice((None, None, None, None, 4_000))
        try:
            whole = from_the_store(compiler, asked, limit)
        except cc.errors.ContextOverflow:
            return
        compiled = compiler.compile("demo", retry=True, max_input_tokens=limit, **asked)
        assert request_facts(compiled) == request_facts(whole)
        assert compiled.new_token_counts == whole.new_token_counts
        if chance.random() < 0.1:
            usage = cc.Usage(input=int(compiled.budget.input * chance.uniform(0.9, 1.3)), output=20)
            with compiler.attempt(compiled) as attempt:
                (said,) = attempt.commit(reply(chance, number), usage=usage if chance.random() < 0.7 else None)
            answer(chance, store, said)
        say(chance, store)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_request_that_was_not_sent_is_extended_as_all_passes_would(part: int, extended: list[Compiled]) -> None:
    """Guarantee 9.2: memory makes a request cheaper, and nothing else."""
    for seed in range(part, UNANSWERED_LIVES, PARTS):
        live_unanswered(seed)
    assert len(extended) > 2 * UNANSWERED_LIVES // PARTS


@pytest.mark.parametrize("last", ["reply", "result"])
def test_a_history_that_did_not_change_is_not_compiled_again_whatever_it_ends_with(
    last: str, extended: list[Compiled]
) -> None:
    """A program that looks at the request of a long history, which it did not send, looks again."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "anthropic:claude-opus-4-5")
    for number in range(4):
        store.append("demo", cc.user(f"Question {number}"))
        said = store.append("demo", cc.assistant("Look.", tool_calls=[cc.tool_call(f"c{number}", "read", {})]))
        store.append("demo", cc.tool_result(said.tool_calls[0].id, "read", "found"))
        if last == "reply":
            store.append("demo", cc.assistant(f"Answer {number}"))
    compiler.compile("demo", retry=True)
    first = compiler.compile("demo", retry=True)
    again = compiler.compile("demo", retry=True)
    assert again is extended[-1]
    assert len(extended) == 2
    assert request_facts(first) == request_facts(again) == request_facts(from_the_store(compiler, {}))
    store.append("demo", cc.user("And now?"))
    assert request_facts(compiler.compile("demo", retry=True)) == request_facts(from_the_store(compiler, {}))
    assert len(extended) == 2

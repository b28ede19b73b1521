"""Warnings stay current: active ones are in every request, and expired ones are followed by a correction."""

import asyncio
import re
from collections.abc import Callable
from random import Random

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.compiler.draft import PolicyArgument
from contextc.errors import ProviderFailed
from contextc.events import AnyEvent, CompactionFinished, StepStart, SystemMessageCreated
from contextc.triggers import ResourceUsage, Trigger, TriggerContext, context_triggers, memory_trigger, trigger
from tests.conftest import some
from tests.executor.scripted_provider import SONNET, Line, Say, Scripted, call, fails, rebuilt, run_turn, says
from tests.executor.test_provider_tools import recorded

HIGH = 20
"""The step after which memory is short."""
BUDGET = 3_000
MARKS = {b"": (0, 0.8), b"warning": (0.75, 0.9), b"critical": (0.85, 1), b"recovered": (0, 0.8)}
"""Between which shares of the available tokens each message on the context holds; a level is left below its mark."""
WORD = re.compile(rb"Context (warning|critical|recovered): (\d+) %")


def read(number: int) -> str:
    """Read a file."""
    return f"content {number} " + "lorem ipsum " * 15


class Reading(Scripted):
    """A model that reads one file after the other. How far it is, it counts itself: its past is cut."""

    def __init__(self, steps: int, lines: dict[int, Line] | None = None) -> None:
        super().__init__(self.next)
        self.steps, self.lines = steps, lines or {}
        self.done: int = 0

    def next(self, request: JSONObject) -> Say | Exception:
        line = self.lines.pop(self.done + 1, None)
        if line is not None:
            assert isinstance(line, Say | Exception)
            return line
        self.done += 1
        if self.done > self.steps:
            return says("Done.", input=0)
        return says(call(self.done, "read", number=self.done), input=0)

    def resources(self) -> ResourceUsage:
        return ResourceUsage(memory=0.9 if self.done >= HIGH else 0.5, cpu=0.1)


def agent(
    store: cc.Store,
    line: Reading,
    *,
    triggers: list[Trigger] | None = None,
    summarize: Callable[..., str] | None = None,
    max_input_tokens: int | None = BUDGET,
    model: str | cc.Provider = SONNET,
    decay: bool = True,
) -> cc.AgentExecutor:
    """Without `decay`, results do not go before text: whole steps are cut away, with the warnings in them."""
    return cc.AgentExecutor(
        store,
        model,
        tools=[read],
        triggers=[*cc.default_triggers(), memory_trigger()] if triggers is None else triggers,
        endpoint=line,
        resources=line.resources,
        summarize=summarize,
        max_input_tokens=max_input_tokens,
        compiler=cc.CompilerOptions(decay=decay),
    )


def said(events: list[AnyEvent], lead: str) -> list[int]:
    """The steps before which something was said."""
    return [event.step for event in events if isinstance(event, SystemMessageCreated) and event.text.startswith(lead)]


def short(*_: object) -> str:
    return "Files were read."


def share_of(executor: cc.AgentExecutor, request: int) -> float:
    """How much of what is available for messages a request took, as it was compiled."""
    return executor.compiler.explain("demo", request=request, name=executor.name).record.budget.share


@pytest.mark.parametrize("summarize", [None, short], ids=["cut", "compaction"])
def test_every_request_of_a_long_turn_is_true(store: cc.Store, summarize: Callable[..., str] | None) -> None:
    """90 steps, memory is short from step 20 on, and the context is cut or summed up on the way: the memory warning is
    in every request, and what was said last of the context fits how full that request is.
    """
    line = Reading(90)

    executor = agent(store, line, summarize=summarize, decay=summarize is not None)
    events = run_turn(executor, "understand this project")

    starts = [event for event in events if isinstance(event, StepStart)]
    assert len(starts) == len(line.bodies) == 91
    epochs = [event.step for event in starts if event.why and event.step > 1]
    assert epochs
    assert any(isinstance(event, CompactionFinished) for event in events) is (summarize is not None)
    assert [number for number, body in enumerate(line.bodies, 1) if b"Memory warning:" not in body] == [
        *range(1, HIGH + 1)
    ]
    first, *others = said(events, "Memory warning")
    assert first == HIGH + 1
    assert others
    assert {*others} <= {*epochs}
    for number, (start, body) in enumerate(zip(starts, line.bodies, strict=True), 1):
        share, words = share_of(executor, number), WORD.findall(body)
        low, high = MARKS[words[-1][0] if words else b""]
        assert low <= share < high, (start.step, words, share)
        if start.step in said(events, "Context"):
            assert int(words[-1][1]) == int(100 * share + 1e-9), "a message gives the figure of its own request"


def test_a_retried_request_contains_a_repeated_text_once(store: cc.Store) -> None:
    """The first request after a cut fails, and is made again: nothing is doubled by that."""
    whole = Reading(45)
    cut = said(run_turn(agent(store, whole, decay=False), conversation="whole"), "Memory warning")[1]
    line = Reading(45, {cut: fails("transient", "Overloaded", retry_after=0.001)})

    events = run_turn(agent(store, line, decay=False))

    assert said(events, "Memory warning") == [HIGH + 1, cut]
    assert line.bodies[cut - 1] == line.bodies[cut]


def test_a_smaller_budget_repeats_trimmed_warnings(store: cc.Store) -> None:
    """The provider finds a request too long, and it is cut without being prepared again."""
    line = Reading(62, {60: fails("context", "prompt is too long")})

    events = run_turn(agent(store, line, max_input_tokens=20_000, decay=False))

    assert said(events, "Memory warning") == [HIGH + 1, 60]
    assert all(b"Memory warning:" in body for body in line.bodies[HIGH:])


def test_a_request_that_cannot_shrink_is_retried_once(store: cc.Store) -> None:
    """A provider that finds a short request too long is asked once more, not answered with an error of ours."""
    line = Reading(0, {1: fails("context", "prompt is too long")})

    run_turn(agent(store, line, max_input_tokens=None))

    assert len(line.bodies) == 2
    assert store.turns("demo")[0].finish == "stop"


def test_a_standing_text_of_a_function_is_repeated_after_trimming(store: cc.Store) -> None:
    """What a function returns at every step holds at every step, so every request has it."""

    @trigger("plan")
    def plan(moment: TriggerContext) -> str:
        return "Keep to the plan."

    line = Reading(45)
    events = run_turn(agent(store, line, triggers=[plan]))

    assert all(body.count(b"Keep to the plan.") >= 1 for body in line.bodies)
    epochs = sum(isinstance(event, StepStart) and bool(event.why) for event in events)
    assert len(said(events, "Keep to the plan.")) <= epochs


def test_triggers_are_asked_after_a_compaction_that_was_requested(store: cc.Store) -> None:
    """`executor.compact` runs outside of a turn: they are asked before the next request, once, though that fails."""
    asked: list[tuple[str, int]] = []

    @trigger("listen", at="after_compaction")
    def listen(moment: TriggerContext) -> str:
        asked.append((moment.when, len(moment.todos)))
        return "Read the plan again."

    store.add_todo("demo", "go on")
    line = Reading(0)
    executor = agent(store, line, triggers=[listen], summarize=short)
    for number in range(8):
        line.done = 0
        run_turn(executor, f"question {number} " + "word " * 200)
    assert asyncio.run(executor.compact("demo")) is not None
    line.done = 0
    line.lines[1] = fails("auth", "no key")
    with pytest.raises(ProviderFailed):
        run_turn(executor, "in vain")
    for given in ("next", "and next"):
        line.done = 0
        run_turn(executor, given)

    assert asked == [("after_compaction", 1)]
    assert [body.count(b"Read the plan again.") for body in line.bodies] == [0] * 8 + [1, 1, 1]


def test_how_full_one_models_context_is_concerns_no_other_model(store: cc.Store) -> None:
    """A warning of a small model is not shown to a large one, and is not forgotten by the small one meanwhile."""
    small = cc.provider(SONNET, window=4_000, output=500)
    first, other, third = Reading(30), Reading(1), Reading(1)
    events = run_turn(agent(store, first, max_input_tokens=None, model=small, triggers=context_triggers()))
    assert said(events, "Context warning")

    large = agent(store, other, max_input_tokens=None, model="anthropic:claude-opus-4-5", triggers=context_triggers())
    run_turn(large, "and you?")
    back = run_turn(agent(store, third, max_input_tokens=None, model=small, triggers=context_triggers()), "and?")

    assert not any(b"Context warning" in body for body in other.bodies)
    assert all(body.count(b"Context warning") == 1 for body in third.bodies)
    assert said(back, "Context warning") == []


def test_a_provider_that_compacts_its_own_session_is_warned_again(store: cc.Store) -> None:
    """The content of its session is unknown, so active warnings are repeated."""
    provider = cc.provider("codex:gpt-5.4", client="replay")
    replies = [{"events": recorded("auto")}, {"events": recorded("turn")}, {"events": recorded("turn")}]
    executor = cc.AgentExecutor(
        store,
        provider,
        triggers=[memory_trigger()],
        endpoint=cc.endpoint(provider, recordings=replies),
        resources=lambda: ResourceUsage(memory=0.9, cpu=0.1),
    )

    steps = [run_turn(executor, text) for text in ("Go on and on.", "And now?", "And then?")]

    assert [len(said(events, "Memory warning")) for events in steps] == [1, 1, 0]


@pytest.mark.parametrize("seed", some(range(4), 2))
def test_every_request_of_random_turns_is_true(store: cc.Store, seed: int) -> None:
    """Memory comes and goes, results differ in size, the conversation is compacted and rewound between turns, and the
    provider may report its own figures: what a request says last of memory and of the context fits that request.
    """
    random, held = Random(seed), list[float]()

    class Model(Reading):
        share: float = 0.5
        asked: int = -1

        def next(self, request: JSONObject) -> Say:
            held.append(self.share)
            self.done += 1
            tokens = len(encode(request)) // 4 if seed % 2 else 0
            if random.random() < 0.1:
                return says("Done.", input=tokens)
            return says(call(self.done, "read", number=self.done), input=tokens)

        def resources(self) -> ResourceUsage:
            if self.asked != self.done and random.random() < 0.15:
                self.share = random.choice([0.5, 0.8, 0.9, 0.9])
            self.asked = self.done
            return ResourceUsage(memory=self.share, cpu=0.1)

    def read(number: int) -> str:
        """Read a file."""
        return f"content {number} " + "lorem ipsum " * random.choice([5, 15, 40, 120])

    line, starts = Model(0), list[StepStart]()
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[read],
        triggers=[*cc.default_triggers(), memory_trigger()],
        endpoint=line,
        resources=line.resources,
        summarize=short if seed > 1 else None,
        max_input_tokens=3_000,
        limits=cc.Limits(steps=30),
    )
    for turn in range(4):
        events = run_turn(executor, f"go {turn}")
        starts += [event for event in events if isinstance(event, StepStart)]
        if seed > 1:
            asyncio.run(executor.compact("demo"))
        elif len(store.load("demo")) > 12:
            store.rewind("demo", len(store.load("demo")) - 8)

    assert sum(bool(start.why) for start in starts) > 2
    for number, (body, memory) in enumerate(zip(line.bodies, held, strict=True), 1):
        on_memory, on_context = (re.findall(rb"%s (\w+): \d" % lead, body)[-1:] for lead in (b"Memory", b"Context"))
        assert memory < 0.85 or on_memory == [b"warning"]
        assert memory >= 0.75 or on_memory != [b"warning"]
        low, high = MARKS[b"".join(on_context)]
        assert low <= share_of(executor, number) < high


class Answering(Scripted):
    """A model that answers every message at once, with so many words."""

    def __init__(self, words: int) -> None:
        super().__init__(lambda _: says("word " * words, input=0))


@pytest.mark.parametrize(
    ("summarize", "policy"),
    [(None, "default"), (short, "default"), (None, "sliding_window")],
    ids=["cut", "compaction", "sliding window"],
)
def test_no_request_gets_a_warning_and_its_end_at_once(
    summarize: Callable[..., str] | None, policy: PolicyArgument
) -> None:
    """Guarantee 11.4: in a small window a warning itself can be too long for the request. Then that is trimmed first,
    and the messages are about what is left. Each has the percentage of its own request, for messages of many sizes.
    """
    model, told = cc.provider(SONNET, window=2_000, output=500), set[bytes]()
    for size in (65, 67, 96):
        line, store = Answering(size), cc.open_store("memory:")
        executor = cc.AgentExecutor(
            store,
            model,
            triggers=context_triggers(),
            endpoint=line,
            summarize=summarize,
            compiler=cc.CompilerOptions(policy=policy),
        )
        for number in range(1, 14):
            words = size + number % 3 * 130 * (policy == "sliding_window")  # what it cuts differs with the message
            events = run_turn(executor, f"question {number} " + "text " * words)
            news = [event.text for event in events if isinstance(event, SystemMessageCreated)]
            assert len(news) <= 1, (size, number, news)
            for word, percentage in WORD.findall("".join(news).encode()):
                told.add(word)
                assert int(percentage) == int(100 * share_of(executor, number) + 1e-9), (size, number, news)
    assert told >= {b"warning", b"critical"}


@pytest.mark.parametrize("tools", [[], [read]], ids=["no tools", "tools"])
def test_a_trigger_text_that_is_too_long_is_shortened_and_can_be_read_on(tools: list[Callable[..., str]]) -> None:
    """The request has its beginning, its end, and how much is missing. The conversation has all of it."""

    @trigger("manual", once=True)
    def manual(moment: TriggerContext) -> str:
        return "BEGIN " + "page " * 20_000 + "END"

    line, store = Answering(3), cc.open_store("memory:")
    model = cc.provider(SONNET, window=8_000, output=500)
    executor = cc.AgentExecutor(store, model, tools=tools, triggers=[manual], endpoint=line)

    for text in ("go", "again"):
        run_turn(executor, text)

    assert [turn.finish for turn in store.turns("demo")] == ["stop", "stop"]
    assert rebuilt(executor, "demo", 2) == line.bodies
    (stored,) = [message for message in store.load("demo") if message.role == "system"]
    assert len(stored.text) == 100_009
    for body in line.bodies:
        assert b"BEGIN page" in body
        assert b"page END" in body
        assert len(body) < 20_000
    missing = re.search(rb"\[\xe2\x80\xa6 ([\d,]+) characters were left out\.(.*?) \xe2\x80\xa6\]", line.bodies[0])
    assert missing is not None
    assert int(missing[1].replace(b",", b"")) > 80_000
    offset = re.search(rb"offset (\d+)", missing[2])
    assert (offset is not None) is bool(tools)
    if offset is not None:
        wanted = cc.ToolCall(
            id="f1", name="fetch_result", arguments={"id": f"r{stored.seq}", "offset": int(offset[1]), "length": 99}
        )
        assert executor.compiler.fetch("demo", wanted).startswith(stored.text[int(offset[1]) :][:99])
        assert "no result" in executor.compiler.fetch("demo", wanted, name="other")


def test_a_trigger_message_never_takes_the_place_of_what_was_asked() -> None:
    """A question that fits alone is answered, however full the window is: messages of triggers are left out first."""

    @trigger("rules")
    def rules(moment: TriggerContext) -> str:
        return "Rules: " + "rule " * 300

    model = cc.provider(SONNET, window=2_000, output=500)
    for size in range(770, 1_131, 45):
        alone, line = Answering(3), Answering(3)
        asked = "question " + "text " * size
        bare = cc.AgentExecutor(cc.open_store("memory:"), model, endpoint=alone, summarize=None, triggers=())
        executor = cc.AgentExecutor(
            cc.open_store("memory:"),
            model,
            triggers=[rules, *cc.default_triggers()],
            endpoint=line,
            summarize=None,
        )

        run_turn(bare, asked)
        for _ in range(3):
            run_turn(executor, asked)
        assert all(asked.strip().encode() in body for body in line.bodies)

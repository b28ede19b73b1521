"""A turn from its first event to its last."""

import asyncio
import threading
import time
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ConversationBusy
from contextc.events import StepFinish, StepStart, TextDelta, ToolFailed, ToolFinished, TurnFinish, UsageReport
from tests.executor.scripted_provider import (
    FIRST_WORD,
    SONNET,
    Scripted,
    add,
    call,
    kinds,
    rebuilt,
    run_turn,
    says,
)


def test_a_turn_with_a_tool_publishes_all_events(store: cc.Store) -> None:
    """Guarantees 11.1, 12.1."""
    provider = Scripted(says("Let me add.", call(1, a=2, b=3)), says("It is 5."))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())

    events = run_turn(executor, "What is 2 + 3?")

    assert kinds(events) == [
        "turn-start",
        "step-start",
        "text-delta",
        "tool-call-delta",
        "usage",
        "step-finish",
        "tool-start",
        "tool-result",
        "step-start",
        "text-delta",
        "usage",
        "step-finish",
        "turn-finish",
    ]
    assert [message.role for message in store.load("demo")] == ["user", "assistant", "tool", "assistant"]
    assert store.load("demo")[2].tool_results[0].text == "5"
    assert [(message.turn, message.step) for message in store.load("demo")][1:] == [(1, 1), (1, 1), (1, 2)]


def test_events_are_numbered_stored_and_replayed_from_any_number(store: cc.Store) -> None:
    """Guarantee 12.1."""
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=Scripted(says(call(1)), says("3")), triggers=())

    events = run_turn(executor)

    assert [event.number for event in events] == [*range(1, len(events) + 1)]
    assert store.events("demo") == events
    assert store.events("demo", after=4) == events[4:]
    assert store.events("demo", after=4, limit=2) == events[4:6]


def test_sent_requests_equal_rebuilt_requests(store: cc.Store) -> None:
    """Guarantee 11.1: byte for byte, at every step."""
    script = [
        says(f"Step {number}.", call(number, a=number, b=1), call(f"{number}b", a=number, b=2)) for number in range(12)
    ]
    provider = Scripted(*script, says("Done."))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=cc.default_triggers(), endpoint=provider)

    run_turn(executor)

    assert len(provider.bodies) == 13
    assert rebuilt(executor, "demo", 13) == provider.bodies


def test_steps_and_turns_are_stored(store: cc.Store) -> None:
    """Guarantee 3.3."""
    provider = Scripted(says(call(1), input=40), says("3", input=60), says("Bye."))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())

    run_turn(executor)
    run_turn(executor, "thanks")

    first, second = store.turns("demo")
    assert (first.number, first.state, first.finish, first.steps, first.tool_calls) == (1, "finished", "stop", 2, 1)
    assert first.usage == cc.Usage(input=100, output=20)
    assert (second.number, second.steps, second.tool_calls) == (2, 1, 0)
    steps = store.steps("demo", 1)
    assert [(step.index, step.state, step.finish, step.request) for step in steps] == [
        (1, "finished", "tool_calls", 1),
        (2, "finished", "stop", 2),
    ]
    assert [step.usage.input for step in steps if step.usage] == [40, 60]
    assert len(store.steps("demo")) == 3


def test_parallel_tools_run_side_by_side_and_are_shown_in_order(store: cc.Store) -> None:
    """Guarantee 3.3: each result commits by itself as it ends, and is shown in the order of the calls."""
    together = threading.Barrier(3, timeout=60)

    def slow(number: int) -> str:
        """Wait for the others."""
        together.wait()
        time.sleep(0.02 * (3 - number))
        return f"result {number}"

    calls = tuple(call(number, "slow", number=number) for number in range(3))
    provider = Scripted(says(*calls), says("Done."))
    executor = cc.AgentExecutor(store, SONNET, tools=[slow], endpoint=provider, triggers=())

    run_turn(executor)

    results: list[JSONObject] = provider.requests[1]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["c0", "c1", "c2"]
    assert [result["content"] for result in results] == ["result 0", "result 1", "result 2"]


def test_a_tool_that_must_not_runs_alone(store: cc.Store) -> None:
    running = 0
    most = 0

    def counted(number: int) -> int:
        """Count who runs."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        return number

    tool = cc.tool(counted, parallel=False)
    calls = tuple(call(number, "counted", number=number) for number in range(4))
    executor = cc.AgentExecutor(
        store, SONNET, tools=[tool], endpoint=Scripted(says(*calls), says("Done.")), triggers=()
    )

    run_turn(executor)

    assert most == 1


def test_tool_errors_are_reported_to_the_model(store: cc.Store) -> None:
    def fails(a: int) -> int:
        """Fail."""
        raise ValueError("the disk is on fire")

    provider = Scripted(
        says(call(1, "fails", a=1), call(2, "nothing_like_it", a=1), call(3, "fails", a="x")),
        says(call(4, "fails", a=1), malformed='{"a": '),
        says("I give up."),
    )
    executor = cc.AgentExecutor(store, SONNET, tools=[fails], endpoint=provider, triggers=())

    events = run_turn(executor)

    errors = [event for event in events if isinstance(event, ToolFailed)]
    assert [event.id for event in errors if "on fire" in event.text] == ["c1"]
    assert "There is no tool nothing_like_it" in next(event.text for event in errors if event.id == "c2")
    assert len(errors) == 4
    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == "stop"


def test_a_tool_that_takes_too_long_is_left(store: cc.Store) -> None:
    """Guarantee 11.2: wall time per tool."""

    async def sleeps() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "late"

    provider = Scripted(says(call(1, "sleeps")), says("Too slow."))
    limits = cc.Limits(tool_seconds=0.05)
    executor = cc.AgentExecutor(store, SONNET, tools=[cc.tool(sleeps)], limits=limits, endpoint=provider, triggers=())

    run_turn(executor)

    assert "had not ended after 0.05 seconds" in store.load("demo")[2].tool_results[0].text


def test_usage_and_context_size_are_published(store: cc.Store) -> None:
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Hi.", input=1_000, output=50)), triggers=())

    events = run_turn(executor)

    report = next(event for event in events if isinstance(event, UsageReport))
    assert report.usage == cc.Usage(input=1_000, output=50)
    assert 0 < report.used < report.available
    assert report.cost == pytest.approx((1_000 * 3 + 50 * 15) / 1e6)


def test_a_slow_reply_is_published_in_pieces(store: cc.Store) -> None:
    """Guarantees 3.3, 12.1: batches, stored before they are published."""
    seen: list[int] = []
    slow = says("one two three four five six", silent=FIRST_WORD + 2, until=lambda: bool(seen))
    provider = Scripted(slow)
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def watched() -> None:
        async for event in executor.run("demo", "count"):
            stored = {each.number for each in store.events("demo")}
            assert event.number in stored
            if isinstance(event, TextDelta):
                seen.append(event.number)

    asyncio.run(watched())

    assert len(seen) > 1
    deltas = [event for event in store.events("demo") if isinstance(event, TextDelta)]
    reply = store.load("demo")[-1]
    assert "".join(event.text for event in deltas) == reply.text == "one two three four five six"
    assert {event.uid for event in deltas} == {reply.uid}
    assert next(event for event in store.events("demo") if isinstance(event, StepFinish)).uid == reply.uid


def test_a_second_turn_is_refused_or_waits(store: cc.Store) -> None:
    """Guarantee 3.2."""
    refused = False
    slow = says("one two three", silent=FIRST_WORD, until=lambda: refused)
    provider = Scripted(slow, says("second"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def both() -> str:
        nonlocal refused
        first = executor.start("demo", "go")
        await first.begun()
        with pytest.raises(ConversationBusy):
            await executor.start("demo", "me too", wait=0).begun()
        refused = True
        events = [event async for event in executor.run("demo", "now me", wait=60)]
        assert (await first.wait()).finish == "stop"
        assert repr(first) == "<Turn of 'demo' for 'assistant': stop>"
        return str(events[-1])

    assert "stop" in asyncio.run(both())
    assert [message.text for message in store.load("demo")] == ["go", "one two three", "now me", "second"]


def test_leaving_the_loop_cancels_the_turn(store: cc.Store) -> None:
    provider = Scripted(says("one two three four five six seven", silent=FIRST_WORD))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def leaves() -> None:
        events = executor.run("demo", "count")
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()

    asyncio.run(leaves())

    assert provider.closed == 1
    assert store.turns("demo")[0].finish == "cancelled"
    assert store.load("demo")[-1].status == "cancelled"


def test_no_turn_without_input(store: cc.Store) -> None:
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Hi.")), triggers=())

    run_turn(executor)
    events = run_turn(executor, None)

    assert events == []
    assert len(store.turns("demo")) == 1


def test_an_unanswered_message_is_answered_without_new_input(store: cc.Store) -> None:
    store.append("demo", cc.user("Anybody there?"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Yes.")), triggers=())

    events = run_turn(executor, None)

    assert store.load("demo")[-1].text == "Yes."
    assert isinstance(events[1], StepStart)


def test_results_are_published_with_their_first_characters(store: cc.Store) -> None:
    def long() -> str:
        """Return much."""
        return "x" * 10_000

    provider = Scripted(says(call(1, "long")), says("Much."))
    executor = cc.AgentExecutor(store, SONNET, tools=[long], endpoint=provider, triggers=())

    events = run_turn(executor)

    told = next(event for event in events if isinstance(event, ToolFinished))
    assert len(told.text) == 2_000
    assert len(store.load("demo")[told.seq - 1].tool_results[0].text) == 10_000


def test_a_small_model_is_kept_from_going_round_in_circles(store: cc.Store) -> None:
    """Only without tools: calls repeat the same text. The caller's value takes precedence."""

    def sent(**options: Any) -> JSONObject:  # options of several types
        line = Scripted(says("Hello."))
        executor = cc.AgentExecutor(
            store, cc.provider("local", format="anthropic"), endpoint=line, triggers=(), **options
        )
        run_turn(executor, "hi")
        return line.requests[0]

    assert sent()["repeat_penalty"] == 1.1
    assert sent(settings={"repeat_penalty": 1.0})["repeat_penalty"] == 1.0
    assert "repeat_penalty" not in sent(tools=[add])

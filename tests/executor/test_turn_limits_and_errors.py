"""Turns that end early: limits, cancellation and provider failures."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ContextOverflow, ProviderFailed, StaleCompile
from contextc.events import (
    AnyEvent,
    ApprovalRequest,
    ErrorOccurred,
    FailureDetails,
    RetryScheduled,
    TextDelta,
    ToolStart,
    TurnFinish,
)
from contextc.providers.client import ProviderCall
from tests.executor.scripted_provider import (
    FIRST_WORD,
    SONNET,
    Say,
    Scripted,
    add,
    call,
    fails,
    kinds,
    played,
    rebuilt,
    run_turn,
    says,
)
from tests.movable_clock import HOUR, Advance, run_with_clock


def overloaded() -> ProviderFailed:
    return fails("transient", "Overloaded", status=529)


def asks_for_ever(request: JSONObject) -> Say:
    number = len(request["messages"])
    return says(call(number, a=number, b=1))


def finish_of(events: list[AnyEvent]) -> str:
    assert isinstance(events[-1], TurnFinish)
    return events[-1].finish


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_the_limit_of_steps_is_exact(store: cc.Store, steps: int) -> None:
    """Guarantee 11.2: it ends the turn with its own finish reason, not with an error."""
    provider = Scripted(asks_for_ever)
    executor = cc.AgentExecutor(
        store, SONNET, tools=[add], limits=cc.Limits(steps=steps), endpoint=provider, triggers=()
    )

    events = run_turn(executor)

    assert len(provider.bodies) == steps
    assert finish_of(events) == "max_steps"
    assert len(store.load("demo")) == 1 + 2 * steps


def test_the_limit_of_steps_is_250_by_default() -> None:
    """Guarantee 11.2."""
    assert cc.Limits().steps == 250


def test_the_limit_of_tool_calls_is_exact(store: cc.Store) -> None:
    """Guarantee 11.2: what is over the limit is answered, and not run."""
    ran: list[int] = []

    def note(number: int) -> str:
        """Note that it ran."""
        ran.append(number)
        return "noted"

    calls = tuple(call(number, "note", number=number) for number in range(5))
    executor = cc.AgentExecutor(
        store, SONNET, tools=[note], limits=cc.Limits(tool_calls=3), endpoint=Scripted(says(*calls)), triggers=()
    )

    events = run_turn(executor)

    assert sorted(ran) == [0, 1, 2]
    assert finish_of(events) == "max_tool_calls"
    answered = [message.tool_results[0] for message in store.load("demo")[2:]]
    assert [result.call_id for result in answered if result.is_error] == ["c3", "c4"]
    assert store.turns("demo")[0].tool_calls == 3


def test_the_limit_of_cost_ends_the_turn(store: cc.Store) -> None:
    """Guarantee 11.2."""
    script = [says(call(number, a=number, b=1), input=100_000) for number in range(9)]
    executor = cc.AgentExecutor(
        store, SONNET, tools=[add], limits=cc.Limits(cost=0.7), endpoint=Scripted(*script), summarize=None, triggers=()
    )

    events = run_turn(executor)

    assert finish_of(events) == "max_cost"
    assert store.turns("demo")[0].steps == 3


def test_the_limit_of_time_ends_the_turn(store: cc.Store) -> None:
    """Guarantee 11.2: wall time per turn."""
    provider = Scripted(says("one two three four", silent=FIRST_WORD))
    executor = cc.AgentExecutor(store, SONNET, limits=cc.Limits(seconds=HOUR), endpoint=provider, triggers=())

    async def main(advance: Advance) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        async for event in executor.run("demo", "count"):
            events.append(event)
            if isinstance(event, TextDelta):
                advance(HOUR)
        return events

    assert finish_of(run_with_clock(main)) == "max_seconds"
    assert store.load("demo")[-1].status == "cancelled"
    assert store.load("demo")[-1].text.startswith("one")


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="steps must be an integer above 0, got 0"):
        cc.Limits(steps=0)


def test_a_custom_rule_may_end_the_turn_after_tools(store: cc.Store) -> None:
    """Guarantee 11.2."""
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[add],
        endpoint=Scripted(asks_for_ever),
        should_continue=lambda reply, results: len(store.load("demo")) < 6,
        triggers=(),
    )

    events = run_turn(executor)

    assert finish_of(events) == "stop"
    assert store.turns("demo")[0].steps == 3


def test_cancelling_during_the_stream_keeps_received_text(store: cc.Store) -> None:
    """Guarantee 11.10: partial text with its status, usage kept, the ledger does not move."""
    provider = Scripted(says("one two three four five six", silent=FIRST_WORD), says("Fresh."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def cancels() -> cc.TurnResult:
        turn = executor.start("demo", "count")
        async for event in turn.events():
            if isinstance(event, TextDelta):
                turn.cancel()
        return await turn.wait()

    result = asyncio.run(cancels())
    partial = store.load("demo")[-1]

    assert result.finish == "cancelled"
    assert partial.status == "cancelled"
    assert partial.text.startswith("one")
    assert partial.usage is not None
    assert partial.usage.input == 100
    assert store.turns("demo")[0].usage == partial.usage
    run_turn(executor, "again")
    assert provider.bodies[1] == executor.compiler.rebuild("demo", 1)
    assert b"one two" not in provider.bodies[1]


def test_cancelling_while_tools_run_answers_every_call(store: cc.Store) -> None:
    """Guarantee 11.10."""
    started = threading.Event()

    async def waits(number: int) -> str:
        """Wait for ever."""
        started.set()
        await asyncio.sleep(60 if number else 0)
        return "quick"

    calls = tuple(call(number, "waits", number=number) for number in range(3))
    provider = Scripted(says(*calls), says("Fine."))
    executor = cc.AgentExecutor(store, SONNET, tools=[waits], endpoint=provider, triggers=())

    async def cancels() -> cc.TurnResult:
        turn = executor.start("demo", "go")
        while not started.is_set() or len(store.load("demo")) < 3:
            await asyncio.sleep(0.01)
        turn.cancel()
        return await turn.wait()

    result = asyncio.run(cancels())

    results = [result for message in store.load("demo") for result in message.tool_results]
    assert result.finish == "cancelled"
    assert sorted(each.call_id for each in results) == ["c0", "c1", "c2"]
    assert [each.call_id for each in results if "Interrupted" in each.text] == ["c1", "c2"]
    run_turn(executor, "and now?")
    assert len(provider.requests[1]["messages"][-1]["content"]) == 4


def test_a_transient_failure_is_retried_twice(store: cc.Store) -> None:
    """Guarantee 11.11: transient errors twice with backoff."""
    provider = Scripted(overloaded(), overloaded(), says("There."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    events = run_turn(executor)

    retries = [event for event in events if isinstance(event, RetryScheduled)]
    assert [(event.attempt, event.kind) for event in retries] == [(1, "transient"), (2, "transient")]
    assert {event.failure for event in retries} == {
        FailureDetails(provider="anthropic", message="Overloaded", status=529)
    }
    assert provider.bodies[0] == provider.bodies[1] == provider.bodies[2] == executor.compiler.rebuild("demo", 1)
    assert [step.state for step in store.steps("demo")] == ["failed", "failed", "finished"]


def test_the_third_failure_ends_the_turn(store: cc.Store) -> None:
    """Guarantee 11.11. What was asked stays, and the next turn answers it."""
    provider = Scripted(overloaded(), overloaded(), overloaded(), says("Back again."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    with pytest.raises(ProviderFailed, match="Overloaded"):
        run_turn(executor)

    last = store.events("demo")[-1]
    assert isinstance(last, TurnFinish)
    assert last.finish == "error"
    (failed,) = [event for event in store.events("demo") if isinstance(event, ErrorOccurred)]
    assert failed.kind == "transient"
    assert failed.failure == FailureDetails(provider="anthropic", message="Overloaded", status=529)
    run_turn(executor, None)
    assert [message.text for message in store.load("demo")] == ["hello", "Back again."]


def test_retry_after_is_honoured(store: cc.Store) -> None:
    """Guarantee 11.11."""
    busy = fails("rate", "slow down", status=429, retry_after=1.2)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(busy, says("Now.")), triggers=())

    began = time.monotonic()
    run_turn(executor)

    assert time.monotonic() - began >= 1.2


@pytest.mark.parametrize("kind", ["auth", "quota", "invalid"])
def test_permanent_failures_are_not_retried(store: cc.Store, kind: str) -> None:
    """Guarantee 11.11: auth and quota never."""
    failure = fails("auth" if kind == "auth" else "quota" if kind == "quota" else "invalid", "no")
    provider = Scripted(failure)
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    with pytest.raises(ProviderFailed):
        run_turn(executor)

    assert len(provider.bodies) == 1


def test_an_error_without_a_text_is_named_by_its_type(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    """A client may raise a plain `TimeoutError()`: the log, the event, the step and the attempt name it."""
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(TimeoutError()), triggers=())
    with pytest.raises(TimeoutError):
        run_turn(executor)

    (error,) = [event for event in store.events("demo") if isinstance(event, ErrorOccurred)]
    (known,) = cc.SessionManager(store).sessions("demo")
    assert (error.error, known.error) == ("TimeoutError", "TimeoutError")
    assert "demo: turn 1 failed: TimeoutError" in [record.getMessage() for record in caplog.records]
    compiler = cc.MessageCompiler(store, SONNET)
    with pytest.raises(TimeoutError), compiler.attempt(compiler.compile("demo")):
        raise TimeoutError
    assert cc.SessionManager(store).sessions("demo")[0].error == "TimeoutError"
    with pytest.raises(ValueError, match="half \ud800"), compiler.attempt(compiler.compile("demo")):
        raise ValueError("half \ud800")  # and not the error of storing it
    assert cc.SessionManager(store).sessions("demo")[0].error == "ValueError: half \ufffd"


def test_no_retry_after_output_has_begun(store: cc.Store) -> None:
    """Guarantees 11.11, 11.10: what came is kept, with its status."""
    provider = Scripted(says("one two three", broken=4), says("never"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    with pytest.raises(ProviderFailed, match="cut"):
        run_turn(executor)

    partial = store.load("demo")[-1]
    assert len(provider.bodies) == 1
    assert (partial.status, partial.text) == ("error", "one two ")
    assert partial.error is not None
    assert "the connection was cut" in partial.error


def test_a_context_that_is_too_long_is_tried_once_with_less(store: cc.Store) -> None:
    """Guarantee 7.6: one retry with a harder budget, never a loop."""
    for number in range(30):
        store.append("demo", cc.user(f"question {number} " + "word " * 200))
        store.append("demo", cc.assistant(f"answer {number} " + "word " * 200))
    too_long = fails("context", "prompt is too long", status=400)
    provider = Scripted(too_long, says("Fits."), too_long, too_long, says("never"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, summarize=None, triggers=())

    run_turn(executor)
    with pytest.raises(ProviderFailed, match="too long"):
        run_turn(executor, "more")

    sizes = [len(body) for body in provider.bodies]
    assert sizes[1] < sizes[0] * 0.8
    assert len(sizes) == 4
    assert rebuilt(executor, "demo", 1) == [provider.bodies[1]]


def test_what_cannot_fit_is_not_sent(store: cc.Store) -> None:
    """Guarantee 7.3."""
    provider = Scripted(says("never"))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, max_input_tokens=100, triggers=())

    with pytest.raises(ContextOverflow):
        run_turn(executor, "word " * 1_000)

    assert provider.bodies == []
    assert store.turns("demo")[0].finish == "error"


def test_a_reply_that_comes_too_late_is_kept(store: cc.Store) -> None:
    """The conversation was edited while the model answered: its reply stays in the store, as a failed message."""

    class Edited(Scripted):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            async for event in super().stream(call):
                if event["type"] == "message_stop":
                    store.edit("demo", 1, cc.user("something else"))
                yield event

    executor = cc.AgentExecutor(store, SONNET, endpoint=Edited(says("one two three four")), triggers=())
    store.append("demo", cc.user("first"))
    with pytest.raises(StaleCompile):
        run_turn(executor, "second")

    assert store.load("demo")[-1].status == "error"
    assert store.load("demo")[-1].text == "one two three four"


def test_approval_is_requested_and_published(store: cc.Store) -> None:
    asked: list[str] = []

    async def decide(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool | str:
        asked.append(f"{tool.name}({call.arguments['path']})")
        return call.arguments["path"] == "a" or "keep your hands off b"

    def delete(path: str) -> str:
        """Delete a file."""
        return f"{path} is gone"

    provider = Scripted(says(call(1, "delete", path="a"), call(2, "delete", path="b")), says("Done."))
    tools = [cc.tool(delete, approval=True)]
    executor = cc.AgentExecutor(store, SONNET, tools=tools, approve=decide, endpoint=provider, triggers=())

    events = run_turn(executor)

    assert asked == ["delete(a)", "delete(b)"]
    assert [result.text for message in store.load("demo") for result in message.tool_results] == [
        "a is gone",
        "Not run: the user declined: keep your hands off b",
    ]
    assert kinds(events).count("approval-request") == 2
    assert [event.id for event in events if isinstance(event, ToolStart)] == ["c1"]


def test_calls_of_one_id_are_approved_and_answered_one_by_one(store: cc.Store) -> None:
    """A model may give two calls of a reply the same id: each yes is for one of them, and each has its own result."""
    ran: list[str] = []
    twice = tuple(call(1, "noted", path=path) for path in ("first", "second", "third"))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[noting(ran)],
        approve=lambda call, tool: call.arguments["path"] != "second",
        endpoint=Scripted(says(*twice), says(call(1, "noted", path="later")), says("Done.")),
        triggers=(),
    )

    events = run_turn(executor)

    assert ran == ["first", "third", "later"]
    results = [result for message in store.load("demo") for result in message.tool_results]
    assert [(result.call_id, result.text) for result in results] == [
        ("c1", "first"),
        ("c1", "Not run: the user declined."),
        ("c1", "third"),
        ("c1", "later"),
    ]
    asked = [event for event in events if isinstance(event, ApprovalRequest)]
    assert [event.arguments["path"] for event in asked] == ["first", "second", "third", "later"]
    assert len({event.approval for event in asked}) == 4
    assert min(len(event.approval) for event in asked) >= 22, "128 bits that nothing can guess"


def test_parallel_calls_of_one_id_run_one_after_the_other(store: cc.Store) -> None:
    """Results are matched to calls of one id by their order, so the second must not end before the first."""
    ran: list[str] = []

    async def noted(path: str) -> str:
        """Note a path."""
        ran.append(f"{path} begins")
        if path == "first":
            for _ in range(100):  # long enough for another call to overtake it
                await asyncio.sleep(0)
        ran.append(f"{path} ends")
        return path

    twice = tuple(call(1, "noted", path=path) for path in ("first", "second"))
    line = Scripted(says(*twice), says("Done."))
    run_turn(cc.AgentExecutor(store, SONNET, tools=[noted], endpoint=line, triggers=()))

    assert ran == ["first begins", "first ends", "second begins", "second ends"]
    results = [result for message in store.load("demo") for result in message.tool_results]
    assert [result.text for result in results] == ["first", "second"]


def test_a_call_that_is_altered_while_it_waits_is_not_run(store: cc.Store) -> None:
    """The yes was for what was shown, and stored: not for what the arguments have become."""
    ran: list[str] = []

    def decide(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool:
        call.arguments["path"] = "another"
        return True

    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[noting(ran)],
        approve=decide,
        endpoint=Scripted(says(call(1, "noted", path="a")), says("Pity.")),
        triggers=(),
    )

    run_turn(executor)

    assert ran == []
    assert "altered while it waited" in store.load("demo")[2].tool_results[0].text


def test_without_an_approver_the_call_is_declined(store: cc.Store) -> None:
    ran: list[str] = []
    tool = noting(ran)
    executor = cc.AgentExecutor(
        store, SONNET, tools=[tool], endpoint=Scripted(says(call(1, "noted", path="a")), says("Pity.")), triggers=()
    )

    run_turn(executor)

    assert ran == []
    assert "nobody is there" in store.load("demo")[2].tool_results[0].text


def noting(ran: list[str]) -> cc.tools.FunctionTool:
    def noted(path: str) -> str:
        """Note it."""
        ran.append(path)
        return path

    return cc.tool(noted, approval=True)


def test_a_pending_approval_does_not_block_other_calls(store: cc.Store) -> None:
    """A function that is not async may ask a person; other turns run on the same loop."""
    asked, answered = threading.Event(), threading.Event()

    def decide(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool:
        asked.set()
        return answered.wait(60)

    waits = cc.AgentExecutor(
        store,
        SONNET,
        tools=[noting([])],
        approve=decide,
        endpoint=Scripted(says(call(1, "noted", path="a")), says("Noted.")),
        triggers=(),
    )
    other = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Meanwhile.")), triggers=())

    async def both() -> list[str]:
        first = waits.start("one", "go")
        while not asked.is_set():
            await asyncio.sleep(0.01)
        await played(other, "two")
        answered.set()
        return [(await first.wait()).text, store.load("two")[-1].text]

    assert asyncio.run(both()) == ["Noted.", "Meanwhile."]

"""What a model gets between the calls that its provider makes within one reply."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import AnyEvent, TurnFinish
from contextc.messages import Message, ToolCall
from contextc.providers.client import ProviderCall
from tests.executor.scripted_provider import run_turn
from tests.executor.scripted_tool_provider import agent, answered, asked, ended, said, used

PIXEL = b"\x89PNG\r\n\x1a\n"


def finish(events: list[AnyEvent]) -> str:
    (end,) = [event.finish for event in events if isinstance(event, TurnFinish)]
    return end


class Model:
    """A model that makes calls one after the other, as far as it is admitted, and reads what comes in between."""

    def __init__(self, calls: int, *, gets: bool = True, fails: bool = False, answers: bool = True) -> None:
        self.calls, self.gets, self.fails, self.answers = calls, gets, fails, answers
        self.read: list[tuple[str, str]] = []
        self.ended = ""
        self.meanwhile: list[Callable[[], Awaitable[object]]] = []
        """What happens while the calls run, one for each call."""

    async def __call__(self, call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        self.ended = ""
        for place in range(self.calls):
            name = f"call_{number}_{place}"
            yield said(f"Call {place}.")
            yield asked(name)
            self.ended = await call.host.admit(ToolCall(id=name, name="look", arguments={"thing": "it"}))
            if self.ended:
                yield answered(name, self.ended)
                break
            if self.answers:
                yield answered(name, f"seen {place}")
                yield used(1_000 * (place + 1), 5)
            if self.meanwhile:
                await self.meanwhile.pop(0)()
            self.ended = await call.host.between_calls(self.deliver)
            if self.ended:
                break
        if self.fails:
            raise ProviderFailed("codex", "transient", "the line was cut")
        if not self.ended:
            yield said("Done.")
        yield ended()

    async def deliver(self, messages: Sequence[Message]) -> bool:
        self.read += [(message.role, message.text) for message in messages] if self.gets else []
        return self.gets


def after(calls: int, **say: object) -> cc.triggers.Trigger:
    """Return a trigger that warns once, after a number of calls."""

    @cc.trigger("warned", once=True)
    def warned(moment: cc.TriggerContext) -> cc.TriggerMessage | None:
        text = f"Warning: {moment.tool_calls} calls."
        return cc.TriggerMessage(text=text, **say) if moment.tool_calls >= calls else None  # pyright: ignore[reportArgumentType]

    return warned


def sent(executor: cc.AgentExecutor, store: cc.Store) -> list[str]:
    """Return the texts that the next request would send."""
    store.append("demo", cc.user("And?"))
    return [message.text for message in executor.compiler.compile("demo").messages]


def shape(store: cc.Store) -> list[str]:
    return [f"{message.role} {message.text}".strip() for message in store.load("demo")]


@pytest.mark.parametrize("gets", [True, False], ids=["delivered", "not delivered"])
def test_a_message_is_stored_where_the_model_reads_it_and_sent_again_only_if_it_did_not(
    store: cc.Store, gets: bool
) -> None:
    """Guarantees 9.2, 11.1: the next request has what the session does not have, and nothing else."""
    model = Model(3, gets=gets)
    executor, program = agent(store, model, triggers=[after(2)])
    events = run_turn(executor, "Go.")
    assert finish(events) == "stop"
    assert shape(store) == [
        "user Go.",
        "assistant Call 0.",
        "tool",
        "assistant Call 1.",
        "tool",
        "system Warning: 2 calls.",
        "assistant Call 2.",
        "tool",
        "assistant Done.",
    ]
    assert model.read == ([("system", "Warning: 2 calls.")] if gets else [])
    texts = "\n".join(sent(executor, store))
    assert texts.count("Warning: 2 calls.") == (0 if gets else 1)
    assert "Call" not in texts
    assert finish(run_turn(executor, "More.")) == "stop"
    assert program.calls[1].session, "the session goes on"


def test_a_failed_reply_leaves_everything_for_the_next_request(store: cc.Store) -> None:
    """Guarantees 9.8, 11.10: its session is reverted, so the next request has each message once."""
    executor, _ = agent(store, Model(2, fails=True), triggers=[after(1)])

    async def work() -> str:
        return (await executor.start("demo", "Go.").wait()).finish

    assert asyncio.run(work()) == "error"
    texts = "\n".join(sent(executor, store))
    assert [texts.count(each) for each in ("Go.", "Call 0.", "Warning: 1 calls.", "Call 1.")] == [1, 1, 1, 1]
    (step,) = store.steps("demo", 1)
    assert step.usage is not None
    assert (step.usage.input, step.seq) == (3_000, 2)


def test_nothing_is_added_while_a_call_is_open(store: cc.Store) -> None:
    """Guarantee 5.1: a message never comes between a call and its result."""
    executor, _ = agent(store, Model(1, answers=False), triggers=[after(1)])
    run_turn(executor, "Go.")
    assert not [message for message in store.load("demo") if message.role == "system"]


def test_steering_is_read_before_the_next_call(store: cc.Store) -> None:
    """Guarantee 11.9: text at once, and what a program cannot be given within its reply with the next request."""

    model = Model(3)
    executor, program = agent(store, model)
    image = cc.user(["See:", cc.Media(mime_type="image/png", data=PIXEL)])
    model.meanwhile = [partial(executor.steer, "demo", each) for each in ("Mind the tests.", image)]
    run_turn(executor, "Go.")
    assert model.read == [("user", "Mind the tests.")]
    assert len(program.calls) == 2
    assert b"image/png" in program.calls[1].body
    assert b"Mind the tests." not in program.calls[1].body


def test_a_second_person_is_named_within_a_reply_and_after_it(store: cc.Store) -> None:
    """Guarantee 4.3: the model can tell people apart, wherever the second one speaks first."""
    model = Model(1)
    executor, _ = agent(store, model)
    model.meanwhile = [partial(executor.steer, "demo", cc.user("Hurry.", author="bob"))]
    run_turn(executor, "Go.")
    assert model.read == [("user", "[@bob] Hurry.")]
    store.append("demo", cc.user("Stay calm.", author="ann"))
    assert "[@ann] Stay calm." in executor.compiler.compile("demo").body.decode()


@pytest.mark.parametrize(
    ("limits", "expected", "calls"),
    [
        (cc.Limits(tool_calls=2), "max_tool_calls", 2),
        (cc.Limits(tool_calls=3), "stop", 3),
        (cc.Limits(cost=0.004), "max_cost", 2),
    ],
    ids=["tool calls", "just enough", "cost"],
)
def test_a_limit_holds_within_a_reply(store: cc.Store, limits: cc.Limits, expected: str, calls: int) -> None:
    """Guarantee 11.2: the turn ends with the finish reason of the limit, and the next one goes on."""
    model = Model(3)
    executor, _ = agent(store, model, limits=limits)
    events = run_turn(executor, "Go.")
    assert finish(events) == expected
    (turn,) = store.turns("demo")
    assert turn.tool_calls == calls
    assert bool(model.ended) == (expected != "stop")
    model.calls = 0
    assert finish(run_turn(executor, "And?")) == "stop"


def test_a_trigger_can_end_the_turn_within_a_reply(store: cc.Store) -> None:
    """Guarantee 11.5: its message is the next request's, because the model makes no other call."""
    model = Model(9)
    executor, _ = agent(store, model, triggers=[after(2, stop="enough")])
    assert finish(run_turn(executor, "Go.")) == "enough"
    assert model.read == []
    assert "\n".join(sent(executor, store)).count("Warning: 2 calls.") == 1


@pytest.mark.parametrize("ends", ["said", "returned"])
@pytest.mark.parametrize("limits", [cc.Limits(tool_calls=2), cc.Limits(cost=0.004)], ids=["tool calls", "cost"])
def test_a_turn_that_ended_at_a_limit_within_a_reply_is_continued(
    store: cc.Store, limits: cc.Limits, ends: str
) -> None:
    """Guarantee 11.2: the model has not answered, so a turn without input asks it to go on, in its session."""

    class Limited(Model):
        async def __call__(self, call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
            async for event in super().__call__(call, number):
                if event != ended() or not self.ended or ends == "said":
                    yield event

    model = Limited(3)
    executor, program = agent(store, model, limits=limits)

    async def work() -> list[cc.executor.TurnResult]:
        first = await executor.start("demo", "Go.").wait()
        assert [message for message in store.load("demo") if not message.parts] == []
        model.calls = 0
        return [first, await executor.resume("demo").wait(), await executor.start("demo").wait()]

    first, second, third = asyncio.run(work())
    assert (first.finish, first.error) == (f"max_{'cost' if limits.cost else 'tool_calls'}", None)
    assert (second.finish, second.text, second.error) == ("stop", "Done.", None)
    assert third.finish == "nothing to do"
    assert [bool(call.session) for call in program.calls] == [False, True]
    assert b'"items":[]' in program.calls[1].body


def test_a_turn_that_a_trigger_ended_within_a_reply_is_continued_with_its_message(store: cc.Store) -> None:
    """Guarantee 11.5: nothing stands between the message and the next request."""
    model = Model(9)
    executor, program = agent(store, model, triggers=[after(2, stop="enough")])
    run_turn(executor, "Go.")
    assert shape(store)[-1] == "system Warning: 2 calls."

    async def work() -> str:
        model.calls = 0
        return (await executor.start("demo").wait()).text

    assert asyncio.run(work()) == "Done."
    assert program.calls[1].body.count(b"Warning: 2 calls.") == 1


def test_a_limit_holds_for_a_client_that_does_not_ask_before_its_calls(store: cc.Store) -> None:
    """Guarantee 11.2: `between_calls` notices the calls in the events."""
    made: list[str] = []

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        for name in ("call_1", "call_2", "call_3"):
            made.append(name)
            yield asked(name)
            yield answered(name, "seen")
            if await call.host.between_calls(lambda messages: True, [name]):
                return
        yield said("Done.")
        yield ended()

    executor, _ = agent(store, script, limits=cc.Limits(tool_calls=2))
    assert finish(run_turn(executor, "Go.")) == "max_tool_calls"
    assert made == ["call_1", "call_2"]


def test_a_client_may_deliver_without_a_coroutine_and_name_an_unknown_call(
    store: cc.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 9.2: nothing can arrive while a client waits in its own stream, so it does not wait."""
    got: list[str] = []

    def deliver(messages: Sequence[Message]) -> bool:
        got.extend([message.text for message in messages])
        return True

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        yield asked("call_1")
        yield answered("call_1", "seen")
        await call.host.between_calls(deliver, ["nope"])
        yield said("Done.")
        yield ended()

    executor, _ = agent(store, script, triggers=[after(1)])
    assert finish(run_turn(executor, "Go.")) == "stop"
    assert got == ["Warning: 1 calls."]
    assert "nope" in caplog.text


def test_a_request_to_stop_ends_the_turn_between_two_calls(store: cc.Store) -> None:
    """Guarantee 11.9: the program does not go on to its end first."""
    model = Model(9)
    executor, _ = agent(store, model)

    async def stop() -> None:
        await asyncio.to_thread(store.stop_turn, "demo")

    model.meanwhile = [stop]
    assert finish(run_turn(executor, "Go.")) == "stopped"
    assert store.turns("demo")[0].tool_calls < 9
    assert not [message for message in store.load("demo") if message.text == "Done."]


def test_a_turn_that_is_cancelled_between_two_calls_stores_each_message_once(store: cc.Store) -> None:
    """Guarantee 11.10: what was stored before the cancellation is not stored with it again."""

    class Slow(Model):
        async def deliver(self, messages: Sequence[Message]) -> bool:
            handles[-1].cancel()
            await asyncio.Event().wait()
            return True

    executor, _ = agent(store, Slow(2), triggers=[after(1)])
    handles: list[cc.executor.Turn] = []

    async def work() -> str:
        handles.append(executor.start("demo", "Go."))
        return (await handles[-1].wait()).finish

    assert asyncio.run(work()) == "cancelled"
    assert shape(store) == ["user Go.", "assistant Call 0.", "tool", "system Warning: 1 calls."]
    texts = "\n".join(sent(executor, store))
    assert [texts.count(each) for each in ("Go.", "Call 0.", "Warning: 1 calls.")] == [1, 1, 1]


KILLED = """
import asyncio, sys
import contextc as cc
from tests.executor.scripted_tool_provider import agent
from tests.executor.test_between_calls import Model, after

class Dies(Model):
    async def deliver(self, messages):
        print("now", flush=True)
        await asyncio.Event().wait()

async def main():
    store = cc.open_store(sys.argv[1])
    executor, _ = agent(store, Dies(2), triggers=[after(1)])
    store.append("demo", cc.system("Opened."))
    await executor.steer("demo", "Mind the tests.")
    await executor.start("demo", "Go.").wait()

asyncio.run(main())
"""


def test_a_process_that_is_killed_before_a_delivery_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Guarantees 3.3, 9.8, 11.9: what was stored is in the next request, once."""
    address = f"sqlite:///{tmp_path / 'chat.db'}"
    with subprocess.Popen([sys.executable, "-c", KILLED, address], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        os.kill(process.pid, signal.SIGKILL)
    with cc.open_store(address) as store:
        store.recover()
        executor, _ = agent(store, Model(0), triggers=[after(1)])
        texts = "\n".join(sent(executor, store))
        assert [texts.count(each) for each in ("Go.", "Mind the tests.", "Call 0.", "Warning: 1 calls.")] == [1] * 4
        assert finish(run_turn(executor, "More.")) == "stop"

"""Input during a turn is queued in the store, in order, and not lost however the turn ends."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import AnyEvent, InputDequeued, InputQueued, TextDelta, TurnFinish, TurnStart
from contextc.store.turn_records import QueuedMessage
from tests.executor.scripted_provider import FIRST_WORD, SONNET, Say, Scripted, add, call, fails, kinds, run_turn, says

PROCESSES = multiprocessing.get_context("forkserver")


def texts(store: cc.Store) -> list[str]:
    """Return roles and texts, without tool results."""
    return [f"{each.role}: {each.text}" for each in store.load("demo") if each.role != "tool"]


def waiting(store: cc.Store) -> list[tuple[str, str]]:
    return [(each.kind, each.message.text) for each in store.queued("demo")]


def users(request: JSONObject) -> list[str]:
    """What people said, as the model sees it."""
    blocks = [
        block
        for message in request["messages"]
        if message["role"] == "user"
        for block in ([{"text": message["content"]}] if isinstance(message["content"], str) else message["content"])
    ]
    return [block["text"] for block in blocks if "text" in block]


def then(action: Callable[[], object], reply: Say | Exception) -> Callable[[JSONObject], Say | Exception]:
    """A reply, and what happens while the model writes it."""

    def line(_: JSONObject) -> Say | Exception:
        action()
        return reply

    return line


def steer(store: cc.Store, text: str) -> QueuedMessage:
    return store.enqueue("demo", cc.user(text), kind="steer")


def follow_up(store: cc.Store, text: str) -> QueuedMessage:
    return store.enqueue("demo", cc.user(text))


def test_what_steers_enters_between_two_steps_of_the_running_turn(store: cc.Store) -> None:
    """Guarantee 11.9."""
    provider = Scripted(says(call(1)), then(lambda: steer(store, "only the first"), says(call(2))), says("All right."))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())

    events = run_turn(executor, "add them all")

    assert [users(request) for request in provider.requests] == [
        ["add them all"],
        ["add them all"],
        ["add them all", "only the first"],
    ]
    assert [message.role for message in store.load("demo")][-2:] == ["user", "assistant"]
    assert len(store.turns("demo")) == 1
    queued = next(event for event in events if isinstance(event, InputQueued))
    taken = next(event for event in events if isinstance(event, InputDequeued))
    assert (queued.kind, queued.text, queued.agent) == ("steer", "only the first", "assistant")
    assert (taken.queued, taken.turn) == (queued.queued, 1)
    assert store.load("demo")[taken.seq - 1].text == "only the first"
    assert waiting(store) == []


def test_a_follow_up_opens_the_next_turn(store: cc.Store) -> None:
    """Guarantee 11.9: by itself, and the handle of the first turn has the events of both."""
    provider = Scripted(then(lambda: follow_up(store, "and then?"), says("First.")), says("Second."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    events = run_turn(executor)

    assert texts(store) == ["user: hello", "assistant: First.", "user: and then?", "assistant: Second."]
    assert [(turn.number, turn.finish, turn.opened) for turn in store.turns("demo")] == [(1, "stop", 1), (2, "stop", 3)]
    assert [type(event) for event in events if event.turn == 2][:2] == [TurnStart, InputDequeued]
    assert kinds(events).count("turn-finish") == 2


def test_several_of_both_keep_their_order(store: cc.Store) -> None:
    """Guarantee 11.9."""

    def talk() -> None:
        follow_up(store, "later 1")
        steer(store, "now 1")
        follow_up(store, "later 2")
        steer(store, "now 2")

    provider = Scripted(then(talk, says(call(1))), says("Steered."), says("One."), says("Two."), says("?"))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())

    run_turn(executor)

    assert texts(store) == [
        "user: hello",
        "assistant: ",
        "user: now 1",
        "user: now 2",
        "assistant: Steered.",
        "user: later 1",
        "assistant: One.",
        "user: later 2",
        "assistant: Two.",
    ]
    assert len(store.turns("demo")) == 3


def test_what_steers_a_turn_that_ends_opens_the_next(store: cc.Store) -> None:
    """Guarantee 11.9: it came while the last reply was written."""
    provider = Scripted(then(lambda: steer(store, "wait"), says("Done.")), says("I wait."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    run_turn(executor)

    assert texts(store) == ["user: hello", "assistant: Done.", "user: wait", "assistant: I wait."]


@pytest.mark.parametrize("failure", ["error", "cancel"])
def test_nothing_is_lost_where_a_turn_ends_badly(store: cc.Store, failure: str) -> None:
    """Guarantee 11.9: it stays queued, the next run takes it, and steering input precedes the new message."""

    def talk() -> None:
        steer(store, "not so fast")
        follow_up(store, "then this")

    refused = fails("auth", "no key")
    slow = says("one two three four five six", silent=FIRST_WORD)
    provider = Scripted(then(talk, refused if failure == "error" else slow), says("New."), says("Then."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def ends_badly() -> cc.TurnResult:
        turn = executor.start("demo", "go")
        with pytest.raises(ProviderFailed) if failure == "error" else nullcontext():
            async for event in turn.events():
                if isinstance(event, TextDelta):
                    turn.cancel()
        return await turn.wait()

    assert asyncio.run(ends_badly()).finish == ("error" if failure == "error" else "cancelled")
    assert waiting(store) == [("steer", "not so fast"), ("follow-up", "then this")]
    run_turn(executor, "this now")

    said = [line for line in texts(store) if not line.startswith("assistant: one")]
    assert said == [
        "user: go",
        "user: not so fast",
        "user: this now",
        "assistant: New.",
        "user: then this",
        "assistant: Then.",
    ]
    assert waiting(store) == []


def test_a_run_without_input_takes_what_waits(store: cc.Store) -> None:
    """Guarantee 11.9: also where no turn was ever run."""
    follow_up(store, "anybody?")
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Yes.")), triggers=())

    events = run_turn(executor, None)

    assert texts(store) == ["user: anybody?", "assistant: Yes."]
    assert kinds(events)[:2] == ["turn-start", "input-taken"]


def test_input_that_comes_in_the_moment_a_turn_ends_is_answered(store: cc.Store) -> None:
    """Guarantee 11.9: by the turn that ends, or by the next run; exactly once."""

    async def talk(delay: float, number: int) -> None:
        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(lambda _: says("Yes.")), triggers=())
        turn = executor.start("demo", f"first {number}")
        await asyncio.sleep(delay)
        await executor.follow_up("demo", f"second {number}")
        await turn.wait()
        if store.queued("demo"):
            await executor.start("demo").wait()

    for number in range(12):
        asyncio.run(talk(number * 0.003, number))
        assert waiting(store) == []
    said = [line for line in texts(store) if line.startswith("user")]
    assert sorted(said) == sorted(f"user: {each} {number}" for number in range(12) for each in ("first", "second"))
    assert store.load("demo")[-1].role == "assistant"
    assert {turn.finish for turn in store.turns("demo")} == {"stop"}


def test_pictures_wait_too(store: cc.Store) -> None:
    """Guarantee 11.9."""
    picture = cc.Media(mime_type="image/png", data=b"\x89PNG not really")
    provider = Scripted(says("Nice."))
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())

    async def queues() -> None:
        await executor.follow_up("demo", cc.user([cc.Text("look"), picture]))
        await executor.start("demo").wait()

    asyncio.run(queues())

    part = store.load("demo")[0].parts[1]
    assert isinstance(part, cc.Media)
    assert store.blob(part.blob or "") == b"\x89PNG not really"
    content = provider.requests[0]["messages"][0]["content"]
    assert [block["type"] for block in content] == ["text", "image"]


def test_what_cannot_be_a_message_does_not_enter_the_queue(store: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidMessage):
        store.enqueue("demo", cc.Message(role="user", parts=(cc.ToolCall(id="c", name="f", arguments={}),)))
    with pytest.raises(cc.errors.InvalidInput, match="steer"):
        store.enqueue("demo", cc.user("x"), kind="later")  # pyright: ignore[reportArgumentType]


def test_redaction_removes_text_of_queued_input(store: cc.Store) -> None:
    """Guarantee 2.8: events about queued input are redacted with the message that it became."""
    follow_up(store, "my number is 555-1234")
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Noted.")), triggers=())
    run_turn(executor, None)

    store.redact("demo", 1)

    assert [event.text for event in store.events("demo") if isinstance(event, InputQueued)] == [""]


def die_while_input_waits(address: str) -> None:
    store = cc.open_store(address)

    def die() -> None:
        steer(store, "careful")
        follow_up(store, "and this")
        os.kill(os.getpid(), signal.SIGKILL)

    provider = Scripted(says(call(1)), then(die, says("never")))
    run_turn(cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=()))


def test_nothing_is_lost_where_the_process_dies(tmp_path: Path) -> None:
    """Guarantee 11.9."""
    address = f"sqlite:///{tmp_path}/queue.db"
    child = PROCESSES.Process(target=die_while_input_waits, args=(address,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with cc.open_store(address) as store:
        assert waiting(store) == [("steer", "careful"), ("follow-up", "and this")]
        provider = Scripted(says("Careful."), says("This."))
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=provider, triggers=())

        events = asyncio.run(resumed(executor))

        assert texts(store)[-4:] == ["user: careful", "assistant: Careful.", "user: and this", "assistant: This."]
        assert [event.finish for event in events if isinstance(event, TurnFinish)] == ["stop", "stop"]
        assert waiting(store) == []


async def resumed(executor: cc.AgentExecutor) -> list[AnyEvent]:
    return [event async for event in executor.resume("demo").events()]

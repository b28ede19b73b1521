"""Turns that any process cancels, or stops after their step, by a stored request."""

import asyncio
from contextlib import suppress

import pytest

import contextc as cc
from contextc.executor.turn_store import TurnStore
from tests.executor.approval_shop import DONE, PATIENCE, PAYS, Shop
from tests.executor.scripted_provider import SONNET, Scripted, call, kinds, run_turn, says


def test_a_running_turn_is_cancelled_by_a_row(store: cc.Store) -> None:
    """Guarantee 18.4: a tool that stores nothing for a long time is stopped, too."""
    started = asyncio.Event()

    async def work() -> str:
        """Work for long."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def run() -> cc.TurnResult:
        script = Scripted(says(call(1, "work")))
        turn = cc.AgentExecutor(store, SONNET, tools=[work], endpoint=script, triggers=()).start("demo", "Go.")
        await started.wait()
        assert store.cancel_turn("demo", who="ann").turn == 1
        return await asyncio.wait_for(turn.wait(), PATIENCE)

    assert asyncio.run(run()).finish == "cancelled"
    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [("finished", "cancelled")]
    (request,) = store.turn_requests("demo", 1)
    assert (request.kind, request.who, request.taken > 0) == ("cancel", "ann", True)


def test_a_turn_is_stopped_after_its_step(store: cc.Store) -> None:
    """Guarantee 18.4: the step is complete, and queued input stays queued."""

    def stop() -> str:
        """Stop."""
        store.stop_turn("demo")
        store.enqueue("demo", cc.user("And then?"))
        return "stopping"

    script = Scripted(says(call(1, "stop")), DONE)
    agent = cc.AgentExecutor(store, SONNET, tools=[stop], endpoint=script, triggers=())
    told = run_turn(agent, "Go.")
    assert kinds(told)[-1] == "turn-finish"
    assert [(turn.finish, turn.steps) for turn in store.turns("demo")] == [("stopped", 1)]
    assert [result.text for message in store.load("demo") for result in message.tool_results] == ["stopping"]
    assert [each.message.text for each in store.queued("demo")] == ["And then?"]
    assert len(script.bodies) == 1


@pytest.mark.parametrize("kind", ["cancel", "stop"])
def test_a_request_before_the_turn_is_suspended_ends_it(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Guarantee 18.4: between the last write and the suspension."""
    suspend, calls = TurnStore.suspend, list[str]()

    def late(self: TurnStore, *given: object) -> bool:
        if not calls:
            (store.cancel_turn if kind == "cancel" else store.stop_turn)("demo")
        calls.append(kind)
        return suspend(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TurnStore, "suspend", late)
    shop = Shop(store)
    assert shop.run(shop.agent(PAYS)).finish == {"cancel": "cancelled", "stop": "stopped"}[kind]
    assert store.approvals("demo") == []
    assert [text for id, text in shop.results if id != "c2"] == [
        f"Not run: the turn ended before ({'it was cancelled' if kind == 'cancel' else 'stopped'})."
    ] * 2


def test_a_turn_that_is_cancelled_while_it_is_suspended_ends(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 11.10: the handle is cancelled in the moment in which the suspension is stored."""
    suspend, handles = TurnStore.suspend, list[cc.executor.Turn]()

    def cancelling(self: TurnStore, *given: object) -> bool:
        done = suspend(self, *given)  # pyright: ignore[reportArgumentType]
        handles[0]._task.get_loop().call_soon_threadsafe(handles[0].cancel)  # pyright: ignore[reportPrivateUsage]
        return done

    monkeypatch.setattr(TurnStore, "suspend", cancelling)
    shop = Shop(store)

    async def run() -> cc.TurnResult:
        handles.append(shop.agent(PAYS).start("demo", "Pay."))
        return await asyncio.wait_for(handles[0].wait(), PATIENCE)

    assert asyncio.run(run()).finish == "cancelled"
    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [("finished", "cancelled")]
    assert store.approvals() == []


def test_a_callback_that_swallows_the_cancellation_does_not_keep_the_turn(store: cc.Store) -> None:
    """Guarantee 11.10: the turn ends before its next request."""

    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    async def approve(*_: object) -> bool:
        store.cancel_turn("demo")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        return False

    async def run() -> cc.TurnResult:
        scripted = Scripted(says(call(1, "pay")), says("done"))
        executor = cc.AgentExecutor(store, SONNET, tools=[pay], endpoint=scripted, triggers=(), approve=approve)
        return await asyncio.wait_for(executor.start("demo", "go").wait(), PATIENCE)

    assert asyncio.run(run()).finish == "cancelled"
    assert [turn.finish for turn in store.turns("demo")] == ["cancelled"]

"""Turns that wait for approval without a process: suspended, answered anywhere, and continued by any executor."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import AlreadyAnswered, InvalidSetting, TurnWaits
from contextc.events import ApprovalRequest, ToolStart, TurnWaiting
from contextc.providers.client import ProviderCall
from contextc.store.transaction_engine import Transaction
from contextc.tools import FunctionTool
from tests.executor.approval_shop import DONE, PATIENCE, PAYS, Shop, sound
from tests.executor.scripted_provider import SONNET, Scripted, call, kinds, says
from tests.executor.scripted_tool_provider import agent as tool_provider
from tests.executor.scripted_tool_provider import ended, said

PIXEL = b"\x89PNG"


def test_a_turn_waits_without_lease_and_another_executor_continues_it(store: cc.Store) -> None:
    """Guarantee 18.1: tools without approval run first; all approvals of the reply are asked together."""
    shop = Shop(store)
    result = shop.run(shop.agent(PAYS))
    assert (result.finish, result.error, shop.did) == ("waiting", None, ["look"])
    assert [(turn.state, turn.steps) for turn in store.turns("demo")] == [("waiting", 1)]
    assert kinds(store.events("demo"))[-4:] == ["tool-result", "approval-request", "approval-request", "turn-waiting"]
    first, second = store.approvals("demo")
    assert [(each.call, each.arguments) for each in (first, second)] == [("c1", {"amount": 5}), ("c3", {"amount": 7})]
    (wait,) = shop.events(TurnWaiting)
    assert isinstance(wait, TurnWaiting)
    assert wait.approvals == (first.id, second.id)
    store.release(store.acquire("demo"))  # it is free
    assert [turn.state for turn in store.turns("demo")] == ["waiting"]

    store.answer_approval(first.id, True, who="ann")
    store.answer_approval(second.id, False, reason="too much")
    other = Shop(store)
    assert other.resume(DONE).finish == "stop"
    assert other.did == ["pay 5"]
    assert other.results == [("c2", "looked"), ("c1", "paid 5"), ("c3", "Not run: the user declined: too much")]
    assert [(turn.state, turn.finish, turn.steps, turn.tool_calls) for turn in store.turns("demo")] == [
        ("finished", "stop", 2, 3)
    ]
    assert [each.state for each in store.turn_approvals("demo", 1)] == ["allowed", "denied"]
    assert sound(store)
    numbers = [event.number for event in store.events("demo")]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_a_turn_is_not_resumed_before_an_answer(store: cc.Store) -> None:
    """Guarantee 18.1: the error names what it waits for."""
    shop = Shop(store)
    shop.run(shop.agent(PAYS))
    for given in (lambda: shop.resume(DONE), lambda: shop.run(shop.agent(DONE), None)):
        error = given().error
        assert isinstance(error, TurnWaits)
        assert "turn 1 of agent 'assistant' waits for approval of pay, pay" in str(error)
        assert error.approvals == tuple(each.id for each in store.approvals("demo"))
    assert shop.did == ["look"]
    assert len(shop.events(ApprovalRequest)) == 2
    store.release(store.acquire("demo"))


def test_answered_calls_run_and_the_others_stay_open(store: cc.Store) -> None:
    """Guarantee 18.1: nothing is asked twice."""
    shop = Shop(store)
    shop.run(shop.agent(PAYS))
    first, second = store.approvals("demo")
    store.answer_approval(second.id, True)
    assert shop.resume().finish == "waiting"
    assert shop.did == ["look", "pay 7"]
    assert [each.id for each in store.approvals("demo")] == [first.id]
    assert isinstance(shop.resume().error, TurnWaits)
    store.answer_approval(first.id, True)
    assert shop.resume(DONE).finish == "stop"
    assert shop.did == ["look", "pay 7", "pay 5"]
    assert len(shop.events(ApprovalRequest)) == 2
    assert sound(store)


def test_new_input_is_queued_while_a_turn_waits(store: cc.Store) -> None:
    """Guarantees 11.9 and 18.1: it is neither lost nor a new turn, and the open calls stay open."""
    shop = Shop(store)
    shop.run(shop.agent(PAYS))

    picture = cc.Media(mime_type="image/png", data=PIXEL)

    async def more() -> tuple[cc.TurnResult, list[str]]:
        turn = shop.agent().start("demo", cc.user(["Hurry up.", picture]))
        return await turn.wait(), kinds([event async for event in turn.events()])

    result, told = asyncio.run(more())
    assert (result.turn, result.finish, told) == (1, "waiting", ["queued-input"])
    assert [each.message.text for each in store.queued("demo")] == ["Hurry up."]
    assert shop.results == [("c2", "looked")]
    for each in store.approvals("demo"):
        store.answer_approval(each.id, True)
    provider = Scripted(DONE, says("Yes."))
    agent = cc.AgentExecutor(store, SONNET, tools=shop.tools(), endpoint=provider, approve=cc.Suspend(), triggers=())

    async def resumed() -> list[str]:
        turn = agent.resume("demo")
        await turn.wait()
        return [each.finish for each in turn.results]

    assert asyncio.run(resumed()) == ["stop", "stop"]
    assert [(turn.number, turn.finish) for turn in store.turns("demo")] == [(1, "stop"), (2, "stop")]
    asked, hurry = [message for message in store.load("demo") if message.role == "user"]
    assert (asked.text, hurry.text) == ("Pay 5 and 7.", "Hurry up.")
    (stored,) = [part for part in hurry.parts if isinstance(part, cc.Media)]
    assert store.blob(stored.blob or "") == PIXEL


def test_calls_with_the_same_id_are_asked_one_after_the_other(store: cc.Store) -> None:
    """Guarantee 11.12: only their order tells their results apart."""
    shop = Shop(store)
    twice = says(("x", "pay", {"amount": 1}), ("x", "pay", {"amount": 2}), ("x", "look", {}))
    assert shop.run(shop.agent(twice)).finish == "waiting"
    (first,) = store.approvals("demo")
    assert (first.index, first.arguments) == (0, {"amount": 1})
    store.answer_approval(first.id, False)
    assert shop.resume().finish == "waiting"
    (second,) = store.approvals("demo")
    assert (second.index, second.arguments) == (1, {"amount": 2})
    store.answer_approval(second.id, True)
    assert shop.resume(DONE).finish == "stop"
    assert shop.did == ["pay 2", "look"]
    assert shop.results == [("x", "Not run: the user declined."), ("x", "paid 2"), ("x", "looked")]
    assert [each.id for each in shop.events(ToolStart) if isinstance(each, ToolStart)] == ["x", "x"]


@pytest.mark.parametrize("default", [True, False, "nobody was there"])
def test_an_approval_that_expires_gets_the_default_answer(store: cc.Store, default: bool | str) -> None:
    """Guarantee 18.3: resuming looks for it."""
    shop = Shop(store)
    suspend = cc.Suspend(seconds=1e-3, default=default)
    shop.run(shop.agent(says(call(1, "pay", amount=5)), approve=suspend))
    while store.approvals("demo"):
        pass
    assert store.answered_turns() == [("demo", "assistant", 1)]
    assert shop.resume(DONE, approve=suspend).finish == "stop"
    declined = "Not run: the user declined" + (f": {default}" if isinstance(default, str) else ".")
    assert shop.results == [("c1", "paid 5" if default is True else declined)]


def test_a_turn_that_is_continued_elsewhere_is_superseded(store: cc.Store) -> None:
    """Rewinding removes the calls from the conversation, so nothing waits any more."""
    shop = Shop(store)
    shop.run(shop.agent(PAYS))
    (asked, *_) = store.approvals("demo")
    store.rewind("demo", 0)
    assert shop.run(shop.agent(DONE), "Something else.").finish == "stop"
    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [
        ("finished", "superseded"),
        ("finished", "stop"),
    ]
    with pytest.raises(AlreadyAnswered, match="its turn ended at"):
        store.answer_approval(asked.id, True)
    assert shop.did == ["look"]


def test_a_callback_answers_what_a_suspended_turn_asked(store: cc.Store) -> None:
    """The terminal continues a turn of the web server: it asks for what has no answer, and keeps the others."""
    shop, asked = Shop(store), list[int]()

    def approve(call: cc.ToolCall, _: FunctionTool) -> bool:
        asked.append(call.arguments["amount"])
        return True

    shop.run(shop.agent(PAYS))
    first, second = store.approvals("demo")
    store.answer_approval(first.id, False)
    assert shop.resume(DONE, approve=approve).finish == "stop"
    assert (asked, shop.did) == ([7], ["look", "pay 7"])
    with pytest.raises(AlreadyAnswered):
        store.answer_approval(second.id, False)


def test_an_approval_is_valid_for_the_call_as_it_was_asked(store: cc.Store) -> None:
    """Guarantee 11.12."""
    shop = Shop(store)
    shop.run(shop.agent(says(call(1, "pay", amount=5))))
    (asked,) = store.approvals("demo")
    store.answer_approval(asked.id, True)
    store.write(lambda tx: tx.run("UPDATE main.approval SET body = ?", _altered(tx)))
    assert shop.resume(DONE).finish == "stop"
    assert (shop.did, shop.results) == ([], [("c1", "Not run: the call was altered while it waited for approval.")])


def _altered(tx: Transaction) -> bytes:
    row = tx.row("SELECT body FROM main.approval")
    assert row is not None
    return bytes(row[0]).replace(b'"amount":5', b'"amount":4')


@pytest.mark.parametrize(
    ("approve", "why"),
    [
        (cc.Suspend, "approve must be callable or a Suspend, got the class. Pass cc.Suspend()."),
        (cc.Suspend(seconds=0), "approve: seconds must be a number of seconds above 0, got 0"),
        (cc.Suspend(default=None), "approve: default must be True, False or a reason, got NoneType"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_wrong_options_are_refused(store: cc.Store, approve: object, why: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Shop(store).agent(approve=approve)
    assert why in str(refused.value)


@pytest.mark.parametrize("way", ["answered", "expired", "cancelled"])
def test_a_provider_that_runs_tools_itself_waits_in_its_process_for_the_stored_answer(
    store: cc.Store, way: str
) -> None:
    """Guarantee 18.1: it asks in the middle of its reply. Any process answers, and the turn keeps its lease."""
    decisions: list[str] = []

    async def script(call: ProviderCall, _: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        decisions.append(await call.host.approve(cc.ToolCall(id="c", name="shell", arguments={"command": "ls"})))
        yield said("Done.")
        yield ended()

    async def run() -> str:
        suspend = cc.Suspend(seconds=0.01 if way == "expired" else None, default="too late")
        executor, _ = tool_provider(store, script, approve=suspend)
        turn = executor.start("demo", "List the files.")
        async for event in turn.events():
            if isinstance(event, ApprovalRequest) and way != "expired":
                (asked,) = store.approvals("demo")
                assert (asked.id, asked.seq, asked.name) == (event.approval, 0, "shell")
                assert [each.state for each in store.turns("demo")] == ["running"]
                if way == "answered":
                    store.answer_approval(asked.id, True)
                else:
                    store.cancel_turn("demo")
        return (await asyncio.wait_for(turn.wait(), PATIENCE)).finish

    assert asyncio.run(run()) == ("cancelled" if way == "cancelled" else "stop")
    assert decisions == {"answered": [""], "expired": ["Not run: the user declined: too late"], "cancelled": []}[way]
    states = {"answered": "allowed", "expired": "denied", "cancelled": "withdrawn"}
    assert [each.state for each in store.turn_approvals("demo", 1)] == [states[way]]
    rows = store.read(lambda tx: tx.rows("SELECT answered > 0, unused FROM main.approval"))
    assert [tuple(map(int, row)) for row in rows] == [(1, 0)]

"""Turns that wait for approval without a process: suspended, answered anywhere, and continued by any executor."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.errors import AlreadyAnswered, InvalidSetting, TurnWaits
from contextc.events import AnyEvent, ApprovalRequest, ToolStart, TurnWaiting
from contextc.executor.turn_store import TurnStore
from contextc.providers.client import ProviderCall
from contextc.store.backend_interface import Result, Transaction
from contextc.store.leases import RESULT_PROCESS_ENDED
from contextc.store.sqlite import SQLiteStore
from contextc.tools import FunctionTool
from tests.conftest import some
from tests.executor.scripted_provider import SONNET, Line, Say, Scripted, kinds, played
from tests.executor.scripted_tool_provider import agent as tool_provider
from tests.executor.scripted_tool_provider import ended, said
from tests.executor.test_killed_turns import killed
from tests.executor.test_lost_leases import Cutting, Hesitant

PAYS = Say(
    text="Paying.",
    calls=(("c1", "pay", {"amount": 5}), ("c2", "look", {}), ("c3", "pay", {"amount": 7})),
)
DONE = Say(text="Done.")
PATIENCE = 60
PIXEL = b"\x89PNG"


class Shop:
    """Tools that keep a list of what they did, and an agent that uses them."""

    def __init__(self, store: cc.Store) -> None:
        self.store, self.did = store, list[str]()

    def tools(self) -> list[FunctionTool]:
        @cc.tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.did.append(f"pay {amount}")
            return f"paid {amount}"

        @cc.tool
        def look() -> str:
            """Look."""
            self.did.append("look")
            return "looked"

        return [pay, look]

    def agent(self, *script: Line, approve: object = None, **options: object) -> cc.AgentExecutor:
        return cc.AgentExecutor(
            self.store,
            SONNET,
            tools=self.tools(),
            endpoint=Scripted(script),
            approve=cc.executor.Suspend() if approve is None else approve,  # pyright: ignore[reportArgumentType]
            **options,  # pyright: ignore[reportArgumentType]
        )

    def run(self, agent: cc.AgentExecutor, given: str | None = "Pay 5 and 7.") -> cc.TurnResult:
        async def turn() -> cc.TurnResult:
            return await asyncio.wait_for(agent.start("demo", given).wait(), PATIENCE)

        return asyncio.run(turn())

    def resume(self, *script: Line, approve: object = None, **options: object) -> cc.TurnResult:
        async def turn() -> cc.TurnResult:
            agent = self.agent(*script, approve=approve, **options)
            return await asyncio.wait_for(agent.resume("demo").wait(), PATIENCE)

        return asyncio.run(turn())

    @property
    def results(self) -> list[tuple[str, str]]:
        found = [result for message in self.store.load("demo") for result in message.tool_results]
        return [(result.call_id, result.text) for result in found]

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.store.events("demo") if isinstance(event, kind)]


def sound(store: cc.Store) -> bool:
    return [finding for finding in scan_store(store) if finding.kind == "fault"] == []


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
    provider = Scripted([DONE, Say(text="Yes.")])
    agent = cc.AgentExecutor(store, SONNET, tools=shop.tools(), endpoint=provider, approve=cc.executor.Suspend())

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
    twice = Say(calls=(("x", "pay", {"amount": 1}), ("x", "pay", {"amount": 2}), ("x", "look", {})))
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
    suspend = cc.executor.Suspend(seconds=1e-3, default=default)
    shop.run(shop.agent(Say(calls=(("c1", "pay", {"amount": 5}),)), approve=suspend))
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
    shop.run(shop.agent(Say(calls=(("c1", "pay", {"amount": 5}),))))
    (asked,) = store.approvals("demo")
    store.answer_approval(asked.id, True)
    store.write(lambda tx: tx.run("UPDATE approval SET body = ?", _altered(tx)))
    assert shop.resume(DONE).finish == "stop"
    assert (shop.did, shop.results) == ([], [("c1", "Not run: the call was altered while it waited for approval.")])


def _altered(tx: Transaction) -> bytes:
    row = tx.row("SELECT body FROM approval")
    assert row is not None
    return bytes(row[0]).replace(b'"amount":5', b'"amount":4')


@pytest.mark.parametrize(
    ("approve", "why"),
    [
        (cc.executor.Suspend, "approve must be callable or a Suspend, got the class. Pass cc.executor.Suspend()."),
        (cc.executor.Suspend(seconds=0), "approve: seconds must be a number of seconds above 0, got 0"),
        (cc.executor.Suspend(default=None), "approve: default must be True, False or a reason, got NoneType"),  # pyright: ignore[reportArgumentType]
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
        suspend = cc.executor.Suspend(seconds=0.01 if way == "expired" else None, default="too late")
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
    rows = store.read(lambda tx: tx.rows("SELECT answered > 0, unused FROM approval"))
    assert [tuple(map(int, row)) for row in rows] == [(1, 0)]


# ── cancel and stop ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_running_turn_is_cancelled_by_a_row(store: cc.Store) -> None:
    """Guarantee 18.4: a tool that stores nothing for a long time is stopped, too."""
    started = asyncio.Event()

    async def work() -> str:
        """Work for long."""
        started.set()
        await asyncio.sleep(3_600)
        return "never"

    async def run() -> cc.TurnResult:
        script = Scripted([Say(calls=(("c1", "work", {}),))])
        turn = cc.AgentExecutor(store, SONNET, tools=[work], endpoint=script).start("demo", "Go.")
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

    script = Scripted([Say(calls=(("c1", "stop", {}),)), DONE])
    agent = cc.AgentExecutor(store, SONNET, tools=[stop], endpoint=script)
    told = asyncio.run(played(agent, "demo", "Go."))
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


# ── transactions that are run again ───────────────────────────────────────────────────────────────────────────────────


def test_a_suspended_turn_is_the_same_where_every_transaction_is_run_twice(tmp_path: Path) -> None:
    """A transaction may be run again: only what is committed counts, and events are delivered once."""
    store = Hesitant(str(tmp_path / "chat.db"))
    store.initialize()
    shop = Shop(store)
    told = asyncio.run(played(shop.agent(PAYS), "demo", "Pay."))
    assert told == store.events("demo")
    for each in store.approvals("demo"):
        assert store.answer_approval(each.id, True, who="ann").who == "ann"
    assert shop.resume(DONE).finish == "stop"
    assert shop.did == ["look", "pay 5", "pay 7"]
    assert [event.number for event in store.events("demo")] == [*range(1, len(store.events("demo")) + 1)]
    assert kinds(store.events("demo")).count("approval-answer") == 2
    store.close()


def test_a_suspension_and_an_answer_are_stored_once_though_the_answer_to_their_commit_is_lost(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 18.5: the stored outcome can be read, so the caller gets it, and nothing is stored twice."""
    store, suspend = Cutting(postgres_address), TurnStore.suspend
    store.initialize()

    def cut(self: TurnStore, *given: object) -> bool:
        store.cuts = True
        return suspend(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TurnStore, "suspend", cut)
    shop = Shop(store)
    assert shop.run(shop.agent(PAYS)).finish == "waiting"
    assert not store.cuts
    first, second = store.approvals("demo")
    for each in (first, second):
        store.cuts = True
        assert store.answer_approval(each.id, True, who="ann").state == "allowed"
        assert not store.cuts
    assert kinds(store.events("demo")).count("turn-waiting") == 1
    assert kinds(store.events("demo")).count("approval-answer") == 2
    assert shop.resume(DONE).finish == "stop"
    store.close()


# ── processes that die ────────────────────────────────────────────────────────────────────────────────────────────────


class Dying(SQLiteStore):
    """A store whose process is killed right after its transaction number `last`."""

    last, count = 0, 0

    def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        done = super().write(work, repeatable=repeatable)
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def journal(path: Path) -> list[FunctionTool]:
    """Tools that note their calls in a file, which survives their process."""

    def noted(text: str) -> str:
        with path.open("a") as file:
            file.write(f"{text}\n")
        return text

    @cc.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return noted(f"pay {amount}")

    @cc.tool
    def look() -> str:
        """Look."""
        return noted("look")

    return [pay, look]


def lives(address: str, path: Path, last: int = 0) -> int:
    """Begin or continue the turn, answer what is pending, and go on until it is done. Return the number of writes."""
    store = Dying(address.removeprefix("sqlite:///"))
    store.initialize()
    store.last, store.count = last, 0

    async def run() -> None:
        for _ in range(5):
            steps = store.turns("demo")[-1].steps if store.conversations() and store.turns("demo") else 0
            script = Scripted([PAYS, DONE] if not steps else [DONE])
            agent = cc.AgentExecutor(
                store, SONNET, tools=journal(path), endpoint=script, approve=cc.executor.Suspend(), triggers=()
            )
            known = store.conversations() and store.turns("demo")
            turn = agent.resume("demo") if known else agent.start("demo", "Pay 5 and 7.")
            if (await turn.wait()).finish == "stop":
                return
            for each in store.approvals("demo"):
                store.answer_approval(each.id, each.call == "c1")

    asyncio.run(run())
    store.close()
    return store.count


def dies_at(address: str, *, last: int, path: Path) -> None:
    lives(address, path, last)
    os.kill(os.getpid(), signal.SIGKILL)  # the turn was done before


def test_a_process_may_die_between_any_two_transactions(tmp_path: Path) -> None:
    """Guarantee 18.5: whatever the moment, every call gets one result, and no tool runs twice."""
    whole = tmp_path / "whole"
    whole.mkdir()
    count = lives(f"sqlite:///{whole}/killed.db", whole / "tools.txt")
    assert (whole / "tools.txt").read_text().splitlines() == ["look", "pay 5"]
    assert count > 12
    for last in some(range(1, count + 1), 12):
        folder = tmp_path / str(last)
        folder.mkdir()
        path = folder / "tools.txt"
        address = killed(partial(dies_at, last=last, path=path), folder)
        lives(address, path)
        ran = path.read_text().splitlines() if path.exists() else []
        assert len(ran) == len(set(ran)), (last, ran)
        with cc.open_store(address) as store:
            found = Shop(store).results
            results = dict(found)
            assert len(found) == 3, (last, found)
            assert results["c3"] == "Not run: the user declined.", last
            for id, text in (("c1", "pay 5"), ("c2", "look")):
                assert results[id] == text if text in ran else results[id] == RESULT_PROCESS_ENDED, (last, results)
            assert [message.text for message in store.load("demo") if message.role == "user"] == ["Pay 5 and 7."]
            assert [turn.finish for turn in store.turns("demo")] == ["stop"], last
            assert (store.approvals(), store.answered_turns()) == ([], [])
            assert sound(store), last

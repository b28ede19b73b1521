"""Suspended turns where transactions are run again, commits are cut off, and processes die."""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import contextc as cc
from contextc.executor.turn_store import TurnStore
from contextc.store.leases import RESULT_PROCESS_ENDED
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Result, Transaction
from contextc.tools import FunctionTool
from tests.conftest import some
from tests.executor.approval_shop import DONE, PAYS, Shop, sound
from tests.executor.scripted_provider import SONNET, Scripted, kinds, run_turn
from tests.executor.test_killed_turns import killed
from tests.executor.test_lost_leases import Cutting, Hesitant


def test_a_suspended_turn_is_the_same_where_every_transaction_is_run_twice(tmp_path: Path) -> None:
    """A transaction may be run again: only what is committed counts, and events are delivered once."""
    store = open_with(Hesitant(str(tmp_path / "chat.db")))
    shop = Shop(store)
    told = run_turn(shop.agent(PAYS), "Pay.")
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
    cutting, suspend = Cutting(postgres_address), TurnStore.suspend
    store = open_with(cutting)

    def cut(self: TurnStore, *given: object) -> bool:
        cutting.cuts = True
        return suspend(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TurnStore, "suspend", cut)
    shop = Shop(store)
    assert shop.run(shop.agent(PAYS)).finish == "waiting"
    assert not cutting.cuts
    first, second = store.approvals("demo")
    for each in (first, second):
        cutting.cuts = True
        assert store.answer_approval(each.id, True, who="ann").state == "allowed"
        assert not cutting.cuts
    assert kinds(store.events("demo")).count("turn-waiting") == 1
    assert kinds(store.events("demo")).count("approval-answer") == 2
    assert shop.resume(DONE).finish == "stop"
    store.close()


class Dying(SQLiteEngine):
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
    dying = Dying(address.removeprefix("sqlite:///"))
    store = open_with(dying)
    dying.last, dying.count = last, 0

    async def run() -> None:
        for _ in range(5):
            steps = store.turns("demo")[-1].steps if store.conversations() and store.turns("demo") else 0
            script = Scripted(*[PAYS, DONE] if not steps else [DONE])
            agent = cc.AgentExecutor(
                store, SONNET, tools=journal(path), endpoint=script, approve=cc.Suspend(), triggers=()
            )
            known = store.conversations() and store.turns("demo")
            turn = agent.resume("demo") if known else agent.start("demo", "Pay 5 and 7.")
            if (await turn.wait()).finish == "stop":
                return
            for each in store.approvals("demo"):
                store.answer_approval(each.id, each.call == "c1")

    asyncio.run(run())
    store.close()
    return dying.count


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
    for last in some(range(1, count + 1), 3):
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

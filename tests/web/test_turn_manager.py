"""Turns that were requested and have not begun: they can be cancelled, and end with the server."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.app.agent_factory import ModelChoice
from contextc.events import ApprovalRequest
from contextc.executor import AgentExecutor, event_hub
from contextc.executor.turn import Turn
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.providers import Endpoint
from contextc.providers.client import ProviderCall
from contextc.store.turn_records import TurnRecord
from contextc.web.app_state import AppState, ServerOptions
from contextc.web.http_errors import HTTPError
from contextc.web.turn_manager import MAX_EXECUTORS, ExecutorPool, RunningTurn, TurnManager
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, says

PATIENCE = 120.0


class Opening:
    """A line that takes as long to open as the test wants."""

    def __init__(self, store: cc.Store, expected: Say) -> None:
        self.store, self.free = store, threading.Event()
        self.line = Scripted(lambda _: expected)

    def __call__(self, _: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        assert self.free.wait(PATIENCE)
        return cc.AgentExecutor(self.store, SONNET, endpoint=self.line, triggers=()), self.line


@asynccontextmanager
async def being_opened(
    store: cc.Store, root: Path
) -> AsyncGenerator[tuple[TurnManager, Opening, "asyncio.Task[RunningTurn]"]]:
    """A turn that was asked for, whose line is being opened."""
    opening = Opening(store, says("one"))
    running = TurnManager(store, opening, agent="assistant", model="replay:none.jsonl", root=root)
    asked = asyncio.create_task(running.start("demo", "hello"))
    await asyncio.sleep(0)
    try:
        yield running, opening, asked
    finally:
        opening.free.set()
        await running.close()


def nothing_was_stored(store: cc.Store, opening: Opening) -> bool:
    return not store.conversations() and not opening.line.bodies


@pytest.mark.parametrize(("how", "status"), [("cancel", 409), ("close", 503)])
def test_a_turn_is_stopped_before_it_has_begun(store: cc.Store, tmp_path: Path, how: str, status: int) -> None:
    """Guarantee 11.10: a cancellation, or a shutdown, does not wait for a client to open. No model is called."""

    async def run() -> HTTPError:
        async with being_opened(store, tmp_path) as (running, opening, asked):
            closing: Callable[[], object] = {
                "cancel": lambda: running.cancel("demo"),
                "close": lambda: asyncio.create_task(running.close()),
            }[how]
            assert closing()
            await asyncio.sleep(0)
            opening.free.set()
            with pytest.raises(HTTPError) as refused:
                await asked
            assert nothing_was_stored(store, opening)
            return refused.value

    assert asyncio.run(run()).status == status


def test_stop_is_handled_from_the_first_moment_on(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 11.10: in whatever moment of its beginning a turn is stopped, it does not run to its end."""

    async def run() -> set[str]:
        opening = Opening(store, says("one two three", pause=0.5))
        opening.free.set()
        running = TurnManager(store, opening, agent="assistant", model="replay:none.jsonl", root=tmp_path)
        for number in range(40):
            asked = asyncio.create_task(running.start(f"demo{number}", "hello"))
            await asyncio.sleep(0)
            for _ in range(number):
                await asyncio.sleep(0)
            assert running.cancel(f"demo{number}")
            begun = (await asyncio.gather(asked, return_exceptions=True))[0]
            if isinstance(begun, RunningTurn):
                await begun.turn.wait()
            else:
                assert isinstance(begun, HTTPError)
                assert begun.problem.kind == "Cancelled"
        await running.close()
        return {turn.finish for number in range(40) for turn in _turns(store, f"demo{number}")}

    assert asyncio.run(run()) <= {"cancelled"}


def _turns(store: cc.Store, conversation: str) -> list[TurnRecord]:
    known = {each.name for each in store.conversations()}
    return store.turns(conversation) if conversation in known else []


def test_a_line_that_is_slow_to_open_blocks_no_other_turn(store: cc.Store) -> None:
    """A local model may load for a minute; turns on other models are not delayed."""
    slow, made = threading.Event(), list[str]()

    def make(choice: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        made.append(choice.provider.model.name)
        assert choice.provider.model.name != "slow" or slow.wait(PATIENCE)
        line = Scripted()
        return cc.AgentExecutor(store, SONNET, endpoint=line, triggers=()), line

    async def run() -> None:
        lines = ExecutorPool(make)

        async def used(spec: str) -> AgentExecutor:
            async with lines.acquire(spec) as executor:
                return executor

        first = await used("replay:open")
        waiting = [asyncio.create_task(used("replay:slow")) for _ in range(3)]
        try:
            while "slow" not in made:
                await asyncio.sleep(0.001)
            assert await asyncio.wait_for(used("replay:open"), PATIENCE) is first
            await asyncio.wait_for(used("replay:new"), PATIENCE)
            assert not any(each.done() for each in waiting)
        finally:
            slow.set()
        assert len({id(each) for each in await asyncio.gather(*waiting)}) == 1
        await lines.close()

    asyncio.run(run())
    assert sorted(made) == ["new", "open", "slow"]


class Closing(Endpoint):
    """A connection whose closing takes until the test releases it."""

    def __init__(self) -> None:
        self.begins, self.may_end, self.is_closed = asyncio.Event(), asyncio.Event(), False

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        raise AssertionError("no model is called")
        yield {}

    async def close(self) -> None:
        self.begins.set()
        await self.may_end.wait()
        self.is_closed = True


def test_a_connection_taken_into_use_while_another_is_closing_stays_open(store: cc.Store) -> None:
    """Closing takes time. A connection that was idle before may be in use afterwards, and must not be closed then."""
    made: dict[str, Closing] = {}

    def make(choice: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        endpoint = made[choice.provider.model.name] = Closing()
        return cc.AgentExecutor(store, SONNET, endpoint=endpoint, triggers=()), endpoint

    async def run() -> None:
        lines, leave, stay = ExecutorPool(make), asyncio.Event(), asyncio.Event()
        entered = asyncio.Semaphore(0)

        async def use(name: str, until: asyncio.Event | None = None) -> None:
            async with lines.acquire(f"replay:{name}"):
                entered.release()
                if until is not None:
                    await until.wait()

        for name in ("first", "second"):
            await use(name)
        busy = [asyncio.create_task(use(f"busy{number}", stay)) for number in range(MAX_EXECUTORS - 1)]
        last = asyncio.create_task(use("last", leave))
        for _ in range(MAX_EXECUTORS + 2):
            await entered.acquire()
        leave.set()  # now two are too many, and `first` and `second` are idle
        await made["first"].begins.wait()
        again = asyncio.create_task(use("second", stay))
        await entered.acquire()
        for endpoint in made.values():
            endpoint.may_end.set()
        await last
        closed = [name for name, endpoint in made.items() if endpoint.is_closed]
        assert (closed, len(lines)) == (["first", "last"], MAX_EXECUTORS)
        stay.set()
        await asyncio.gather(*busy, again)
        await lines.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_the_first_answer_to_a_question_counts_and_the_second_is_refused(store: cc.Store, tmp_path: Path) -> None:
    """Two tabs may answer at the same time, before the turn continues: the second must get an error."""

    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    line = Scripted(says(call(1, "pay")), says("Done."))

    def make(_: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
        return cc.AgentExecutor(store, SONNET, tools=[pay], endpoint=line, triggers=()), line

    async def run() -> None:
        running = TurnManager(store, make, agent="assistant", model="replay:none.jsonl", root=tmp_path)
        begun = await running.start("demo", "Pay.")
        assert isinstance(begun.turn, Turn)
        async for event in begun.turn.events():
            if isinstance(event, ApprovalRequest):
                await running.answer("demo", event.approval, True)
                assert not running.approvals("demo")
                with pytest.raises(HTTPError) as refused:
                    await running.answer("demo", event.approval, False)
                assert (refused.value.status, refused.value.problem.kind) == (409, "UnknownApproval")
        resumed = await running.resume_answered("demo")
        assert resumed is not None
        await resumed.turn.wait()
        await running.close()

    asyncio.run(run())
    assert [result.text for message in store.load("demo") for result in message.tool_results] == ["paid"]


def test_a_turn_that_is_recovered_is_reported_to_its_watchers_at_once(
    store: cc.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watchers learn that the process ended when this server has found it, and not at the next poll."""
    monkeypatch.setattr(event_hub, "POLL_SECONDS", 3_600.0)
    TurnStore(store, "demo", "assistant", store.acquire("demo")).open(GivenInput([cc.user("Hello")]), resume=False)
    store.write(lambda tx: tx.run("UPDATE main.lease SET holder = 'elsewhere 7 1', expires = 0"))

    async def run() -> bool:
        desk, inbox = AppState(store, ServerOptions(root=tmp_path, model="replay:none.jsonl")), event_hub.Inbox()
        event_hub.event_hub(store).add_watcher("demo", inbox)
        desk.recover_turns()
        return await inbox.wait(PATIENCE)

    assert asyncio.run(run())

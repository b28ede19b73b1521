"""A turn that lost its lease, or whose process died while a person was asked: what is told is what is stored, no tool
runs on or runs twice, and a call that was never started is asked for again."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.errors import LeaseLost, StoreFull
from contextc.events import ApprovalRequest, ToolStart
from contextc.executor.agent_config import Approve
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.store.leases import RESULT_PROCESS_ENDED
from contextc.store.postgres import PostgresEngine, StoreConnection
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import leases_of, open_with
from contextc.store.transaction_engine import ConnectionLost, Result, Transaction
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.tools import FunctionTool
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, kinds, run_turn, says, taken_over
from tests.executor.test_killed_turns import killed
from tests.stress.suspended_process import suspended

PAYS = says(call(1, "look"), call(2, "pay", amount=5))


def look() -> str:
    """Look."""
    return "looked"


def pay_with(paid: list[int]) -> FunctionTool:
    @cc.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return pay


def agent(
    store: cc.Store, tool: FunctionTool, script: list[Say], approve: Approve, limits: cc.Limits | None = None
) -> cc.AgentExecutor:
    tools = [look, tool]
    return cc.AgentExecutor(
        store, SONNET, tools=tools, endpoint=Scripted(*script), approve=approve, limits=limits, triggers=()
    )


def yes(_: cc.ToolCall, __: FunctionTool) -> bool:
    return True


def results(store: cc.Store) -> list[tuple[str, str]]:
    found = [result for message in store.load("demo") for result in message.tool_results]
    return [(result.call_id, result.text) for result in found]


# ── killed while a person is asked ────────────────────────────────────────────────────────────────────────────────────


def die(_: object = None, __: object = None) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def dies_while_asking(address: str) -> None:
    run_turn(agent(cc.open_store(address), pay_with([]), [PAYS], approve=die), "pay 5")


def dies_in_the_approved_tool(address: str) -> None:
    """Go on with the turn of `dies_while_asking`, say yes, and die in the tool."""

    @cc.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        die()
        return str(amount)

    async def resumed() -> None:
        await agent(cc.open_store(address), pay, [], approve=yes).resume("demo").wait()

    asyncio.run(resumed())


def resumed(store: cc.Store, paid: list[int], asked: list[str], limits: cc.Limits | None = None) -> cc.TurnResult:
    def approve(call: cc.ToolCall, _: FunctionTool) -> bool:
        asked.append(call.id)
        return True

    async def go_on() -> cc.TurnResult:
        executor = agent(store, pay_with(paid), [says("Done.")], approve=approve, limits=limits)
        return await executor.resume("demo").wait()

    return asyncio.run(go_on())


@pytest.mark.parametrize("most", [None, 2], ids=["no limit", "limit reached"])
def test_a_call_that_waited_for_approval_is_asked_for_again(tmp_path: Path, most: int | None) -> None:
    """It never started: no result may say that it perhaps did, and the person's answer is still wanted."""
    address = killed(dies_while_asking, tmp_path)
    with cc.open_store(address) as store:
        assert results(store) == [("c1", "looked")]
        assert kinds(store.events("demo"))[-1] == "interrupted"
        assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
        paid, asked = list[int](), list[str]()
        result = resumed(store, paid, asked, limits=cc.Limits(tool_calls=most))
        assert result.finish == ("stop" if most is None else "max_tool_calls")
        assert (paid, asked) == ([5], ["c2"])
        assert results(store) == [("c1", "looked"), ("c2", "paid")]
        assert [(message.turn, message.step) for message in store.load("demo") if message.role == "tool"] == [
            (1, 1)
        ] * 2
        events = store.events("demo")
        assert [each.id for each in events if isinstance(each, ApprovalRequest)] == ["c2", "c2"]
        assert [each.id for each in events if isinstance(each, ToolStart)] == ["c1", "c2"]
        assert [(turn.state, turn.tool_calls) for turn in store.turns("demo")] == [("finished", 2)]


def test_a_call_that_needs_no_approval_any_more_is_on_record_before_it_runs(tmp_path: Path) -> None:
    """A process that dies in it must leave behind that it started, or the next one runs it a second time."""
    address, started = killed(dies_while_asking, tmp_path), list[str]()
    with cc.open_store(address) as store:

        @cc.tool
        def pay(amount: int) -> str:
            """Pay."""
            started.extend([each.id for each in store.events("demo") if isinstance(each, ToolStart)])
            return "paid"

        async def go_on() -> None:
            await agent(store, pay, [says("Done.")], approve=yes).resume("demo").wait()

        asyncio.run(go_on())
        assert results(store) == [("c1", "looked"), ("c2", "paid")]
    assert started == ["c1", "c2"]


def test_a_call_that_was_approved_after_a_crash_is_not_run_again_after_the_next(tmp_path: Path) -> None:
    """The reply that asks for it is older than the lease under which it was started."""
    address = killed(dies_while_asking, tmp_path)
    assert killed(dies_in_the_approved_tool, tmp_path) == address
    with cc.open_store(address) as store:
        paid, asked = list[int](), list[str]()
        assert resumed(store, paid, asked).finish == "stop"
        assert (paid, asked) == ([], [])
        assert results(store) == [("c1", "looked"), ("c2", RESULT_PROCESS_ENDED)]


@pytest.mark.parametrize("given", ["never mind", None])
def test_a_turn_that_is_not_resumed_answers_such_a_call_as_not_run(tmp_path: Path, given: str | None) -> None:
    """The conversation continues without it, and the model gets a result that it did not run."""
    address = killed(dies_while_asking, tmp_path)
    with cc.open_store(address) as store:
        paid: list[int] = []
        executor = agent(store, pay_with(paid), [says("Well.")], approve=yes)
        told = run_turn(executor, given)
        assert (kinds(told)[0], kinds(told)[-1]) == ("turn-start", "turn-finish")
        assert paid == []
        assert results(store) == [("c1", "looked"), ("c2", NOT_RUN_RESULT.format(why="it was interrupted"))]
        roles = [message.role for message in store.load("demo")]
        assert roles == ["user", "assistant", "tool", "tool", *(["user"] if given else []), "assistant"]
        assert [turn.state for turn in store.turns("demo")] == ["interrupted", "finished"]


def test_a_process_that_runs_on_can_look_for_dead_turns(tmp_path: Path) -> None:
    """A server does so every few seconds, so that its watchers learn what became of another server's turn."""
    with cc.open_store(tmp_path / "killed.db") as store:
        assert store.recover() == []
        killed(dies_while_asking, tmp_path)
        assert [(each.conversation, each.agent) for each in store.recover()] == [("demo", "assistant")]
        assert kinds(store.events("demo"))[-1] == "interrupted"
        assert store.recover() == []


# ── a lease that is late, or lost ─────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_goes_on_after_its_process_was_suspended(tmp_path: Path) -> None:
    """Ctrl-Z, or a laptop that sleeps, for longer than the lease lasts."""
    assert suspended(f"sqlite:///{tmp_path}/chat.db", lease_seconds=0.3) == []


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_tool_is_stopped_when_its_turn_was_taken_over(store: cc.Store, kind: str) -> None:
    """Two processes must not do the work of one turn side by side."""
    stopped = threading.Event()

    def take() -> None:
        store.write(lambda tx: tx.run("UPDATE main.lease SET number = number + 1, holder = ''"))

    def work(context: cc.ToolContext) -> str:
        """Work until stopped."""
        take()
        if context.cancelled.wait(60):
            stopped.set()
        return "stopped"

    async def work_async() -> str:
        """Work until cancelled."""
        take()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    async def turn() -> cc.executor.Turn:
        tool = work if kind == "plain" else work_async
        executor = cc.AgentExecutor(
            store,
            SONNET,
            tools=[tool],
            endpoint=Scripted(says(("c1", tool.__name__, {}))),
            lease_seconds=0.3,
            triggers=(),
        )
        handle = executor.start("demo", "go")
        await handle.wait()
        return handle

    (result,) = asyncio.run(turn()).results
    assert stopped.is_set()
    assert result.finish == "error"
    assert isinstance(result.error, LeaseLost)


def ends_at_once() -> cc.Limits:
    """A limit that ends the turn after its first step, in a transaction of its own."""
    return cc.Limits(steps=1)


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize("reply", ["answer", "call"])
def test_a_turn_whose_end_was_refused_does_not_report_success(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    """The caller gets the stored outcome, of an end that is stored with the answer, and of one that is not."""
    close, finish_step = TurnStore.close, TurnStore.finish_step

    def too_late(self: TurnStore, finish: str, **rest: str) -> bool:
        taken_over(store)
        return close(self, finish, **rest)  # pyright: ignore[reportArgumentType]

    def answered_too_late(self: TurnStore, **rest: Any) -> Any:
        assert rest["ends_with"] == "stop"
        taken_over(store)
        return finish_step(self, **rest)

    if reply == "answer":
        monkeypatch.setattr(TurnStore, "finish_step", answered_too_late)
    else:
        monkeypatch.setattr(TurnStore, "close", too_late)

    async def turn() -> cc.TurnResult:
        scripted = Scripted(says("Hi.") if reply == "answer" else says(call(1)))
        executor = cc.AgentExecutor(store, SONNET, endpoint=scripted, triggers=(), tools=[add], limits=ends_at_once())
        return await executor.start("demo", "hello").wait()

    result = asyncio.run(turn())
    assert result.finish == "error"
    assert isinstance(result.error, LeaseLost)
    assert [record.state for record in store.turns("demo")] == ["interrupted"]


@pytest.mark.parametrize("reply", ["answer", "call"])
def test_a_turn_cancelled_while_its_end_cannot_be_stored_is_reported_once(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    """The cancellation hides why the end was not stored; the turn then ends as cancelled, in both places."""
    close, finish_step, handles = TurnStore.close, TurnStore.finish_step, list[cc.executor.Turn]()

    def cancel_and_refuse() -> None:
        asked = threading.Event()
        handles[0]._task.get_loop().call_soon_threadsafe(  # pyright: ignore[reportPrivateUsage]
            lambda: (handles[0].cancel(), asked.set())
        )
        assert asked.wait(60)
        raise StoreFull("The disk is full.")

    def refused(self: TurnStore, finish: str, **rest: str) -> bool:
        if finish != "cancelled":
            cancel_and_refuse()
        return close(self, finish, **rest)  # pyright: ignore[reportArgumentType]

    def answer_refused(self: TurnStore, **rest: Any) -> Any:
        if rest["ends_with"] is not None:
            cancel_and_refuse()
        return finish_step(self, **rest)

    monkeypatch.setattr(TurnStore, "close", refused)
    monkeypatch.setattr(TurnStore, "finish_step", answer_refused)

    async def turn() -> list[cc.TurnResult]:
        scripted = Scripted(says("Hi.") if reply == "answer" else says(call(1)))
        executor = cc.AgentExecutor(store, SONNET, endpoint=scripted, triggers=(), tools=[add], limits=ends_at_once())
        handles.append(executor.start("demo", "hello"))
        await handles[0].wait()
        return handles[0].results

    assert [result.finish for result in asyncio.run(turn())] == ["cancelled"]
    assert [(record.state, record.finish) for record in store.turns("demo")] == [("finished", "cancelled")]


def test_a_turn_cancelled_while_its_end_is_stored_keeps_its_finish(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 11.10: the result, the record and the usage are those that are stored. The turn that follows ends."""
    finish_step, handles = TurnStore.finish_step, list[cc.executor.Turn]()

    def cancelled(self: TurnStore, **rest: Any) -> Any:
        if self.turn.number == 1:
            asked = threading.Event()
            handles[0]._task.get_loop().call_soon_threadsafe(  # pyright: ignore[reportPrivateUsage]
                lambda: (handles[0].cancel(), asked.set())
            )
            assert asked.wait(60)
        return finish_step(self, **rest)

    monkeypatch.setattr(TurnStore, "finish_step", cancelled)

    async def turn() -> list[cc.TurnResult]:
        is_queued = asyncio.Event()

        async def answer() -> Say:
            await is_queued.wait()
            return says("Hi.")

        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(lambda _: answer()), triggers=())
        handles.append(executor.start("demo", "hello"))
        await handles[0].begun()
        await executor.follow_up("demo", "and then?")
        is_queued.set()
        await handles[0].wait()
        return handles[0].results

    results, records = asyncio.run(turn()), store.turns("demo")
    assert [result.finish for result in results] == [record.finish for record in records] == ["stop", "cancelled"]
    assert [result.usage for result in results] == [record.usage or cc.Usage() for record in records]
    assert results[0].usage.output
    assert results[0].text == "Hi."


def test_turns_that_wait_for_one_conversation_run_in_the_order_they_were_started(store: cc.Store) -> None:
    """First come, first served."""

    async def turns() -> None:
        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(lambda _: says("Yes.")), triggers=())
        first = store.acquire("demo")
        waiting = [executor.start("demo", f"question {number}", wait=60) for number in range(6)]
        while len(leases_of(store).queue) < len(waiting):
            await asyncio.sleep(0)
        store.release(first)
        for turn in waiting:
            assert (await turn.wait()).finish == "stop"

    asyncio.run(turns())
    asked = [message.text for message in store.load("demo") if message.role == "user"]
    assert asked == [f"question {number}" for number in range(6)]


# ── transactions that are run again ───────────────────────────────────────────────────────────────────────────────────


class Undone(Exception):
    """A try that leaves no trace in the store."""


class Hesitant(SQLiteEngine):
    """Runs every transaction that writes twice, the first time for nothing; or once for nothing, and then refuses."""

    refuses = False

    def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        def undone(tx: Transaction) -> Result:
            work(tx)
            raise Undone

        try:
            super().write(undone, repeatable=repeatable)
        except Undone:
            if self.refuses:
                raise StoreFull("The disk is full.") from None
        return super().write(work, repeatable=repeatable)


@pytest.fixture
def hesitant(tmp_path: Path) -> Hesitant:
    return Hesitant(str(tmp_path / "chat.db"))


def test_a_turn_is_the_same_where_every_transaction_is_run_twice(hesitant: Hesitant) -> None:
    """A watcher gets the stored events, each once."""
    store = open_with(hesitant)
    told = run_turn(agent(store, pay_with([]), [PAYS, says("Done.")], approve=yes))
    assert told == store.events("demo")
    assert [event.number for event in told] == [*range(1, len(told) + 1)]
    assert [step.index for step in store.steps("demo")] == [1, 2]
    assert results(store) == [("c1", "looked"), ("c2", "paid")]
    assert not leases_of(store).holds_lease("demo", "assistant", 1)
    store.close()


def test_a_try_that_was_undone_changes_nothing_of_the_turn(hesitant: Hesitant) -> None:
    """A transaction may be run again, or fail after a try: only what is committed counts."""
    store = open_with(hesitant)
    run_turn(cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Hi.")), triggers=()))
    lease = store.acquire("demo")
    record = TurnStore(store, "demo", "assistant", lease)
    hesitant.refuses = True
    with pytest.raises(StoreFull):
        record.open(GivenInput([cc.user("more")]), resume=False)
    assert record.previous_turn is None
    hesitant.refuses = False
    record.open(GivenInput([cc.user("more")]), resume=False)
    compiler = cc.MessageCompiler(store, SONNET)
    compiled = compiler.compile("demo")
    also, begun = record.start_step(compiled, 1, {})
    hesitant.refuses = True
    with pytest.raises(StoreFull):
        compiler.begin(compiled, lease=lease, in_transaction=also)
    assert record.step is None
    with pytest.raises(StoreFull):
        record.close("stop")
    assert leases_of(store).holds_lease("demo", "assistant", lease.number)
    hesitant.refuses = False
    compiler.begin(compiled, lease=lease, in_transaction=also)
    begun()
    assert record.step in store.steps("demo")
    record.close("stop")
    assert not leases_of(store).holds_lease("demo", "assistant", lease.number)
    store.close()


class Cutting(PostgresEngine):
    """A store that loses the connection right after a commit, once, if `cuts` is set."""

    cuts = False

    def _run(
        self,
        connection: StoreConnection,
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        done = super()._run(connection, work, writing=writing, again=again)
        if writing and self.cuts:
            self.cuts = False
            raise ConnectionLost(during_commit=True)
        return done


@pytest.mark.parametrize("follows", [False, True], ids=["the last turn", "one that another follows"])
def test_the_end_of_a_turn_is_stored_once_though_the_answer_to_its_commit_is_lost(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """The stored outcome can be read, so the caller gets the end of the turn, and not an unknown outcome."""
    cutting, close, ends = Cutting(postgres_address), TurnStore.close, list[str]()
    store = open_with(cutting)

    def cut(self: TurnStore, finish: str, **rest: str) -> bool:
        ends.append(finish)
        cutting.cuts = len(ends) == 1
        return close(self, finish, **rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TurnStore, "close", cut)

    async def turn() -> tuple[list[str], list[str]]:
        go_on = asyncio.Event()

        async def answer(_: JSONObject) -> Say:
            await go_on.wait()  # or the commit of the follow-up could be the one that is cut
            return says("Hi.")

        provider = Scripted(answer)
        executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=())
        handle = executor.start("demo", "hello")
        await handle.begun()
        if follows:
            await executor.follow_up("demo", "and?")
        go_on.set()
        told = [event async for event in handle.events()]
        assert told == store.events("demo")
        return kinds(told), [result.finish for result in handle.results]

    told, finishes = asyncio.run(turn())
    assert finishes == ["stop"] * (1 + follows)
    assert told.count("turn-finish") == 1 + follows
    assert [(record.state, record.finish) for record in store.turns("demo")] == [("finished", "stop")] * (1 + follows)
    store.release(store.acquire("demo"))
    store.close()

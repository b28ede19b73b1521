"""Submitted input: stored with its job in one transaction, once per key, and answered one turn after the other."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidInput, InvalidSetting, KeyReused, ProviderFailed
from contextc.events import ErrorOccurred, TurnFinish
from contextc.executor import turn
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.providers.client import ProviderCall
from contextc.store import Store, turn_queue
from contextc.store.store import leases_of
from contextc.store.transaction_engine import Transaction
from contextc.worker import (
    TurnWorker,
    WorkerOptions,
    WorkerTurn,
    cancel_parked,
    parked_turns,
    resume_parked,
    submit,
    submit_sync,
    turn_worker,
)
from contextc.worker.health_server import format_metrics, serve_health
from contextc.worker.turn_worker import ProviderSlots, RetryRules
from tests.executor.scripted_provider import SONNET, Line, Say, Scripted, fails, says
from tests.telemetry.exported_spans import TRACEPARENT, attributes_of, came_from, exporting
from tests.worker.worker_process import PATIENCE, events, in_event_loop

RULES = RetryRules(max_deaths=2, max_failures=1, first_delay=0.01, max_unknown=2)


@pytest.fixture
def store(new_postgres_address: str) -> Generator[Store]:
    with cc.open_store(new_postgres_address) as opened:
        yield opened


def agent(store: Store, *script: Line, **options: Any) -> cc.AgentExecutor:
    return cc.AgentExecutor(store, SONNET, endpoint=Scripted(*script), summarize=None, triggers=(), **options)


@asynccontextmanager
async def working(store: Store, executor: cc.AgentExecutor, **options: object) -> AsyncGenerator[TurnWorker]:
    """A worker in this process."""
    worker = TurnWorker(
        store,
        {executor.name: executor},
        WorkerOptions(heartbeat=0.2, rules=RULES, **options),  # pyright: ignore[reportArgumentType]
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)


async def ended(store: Store, name: str = "demo", turns: int = 1) -> list[TurnFinish]:
    """Wait for the end of some turns."""
    found: list[TurnFinish] = []
    async with asyncio.timeout(PATIENCE):
        async for event in agent(store, Say()).watch(name):
            found += [event] if isinstance(event, TurnFinish) else []
            if len(found) == turns:
                return found
    raise AssertionError("the events ended")


def jobs(store: Store) -> int:
    rows = store.read(lambda tx: tx.rows("SELECT id FROM main.procrastinate_jobs"))
    return len(rows)


def no_delay(*_: object) -> float:
    return 0.0


def take_job(store: Store) -> None:
    """Take the job as a worker does that dies at once."""

    def work(tx: Transaction) -> None:
        turn_queue.set_search_path(tx)
        tx.run("UPDATE main.procrastinate_jobs SET status = 'doing'")

    store.write(work)


def test_input_and_job_are_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 19.1: a failure between the two leaves neither. The same key again submits nothing."""
    submit_sync(store, "other", "hello")
    before = jobs(store)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(turn_queue, "defer_job", fail)
        with pytest.raises(RuntimeError, match="cut"):
            submit_sync(store, "demo", "hello", key="k1")
    assert jobs(store) == before
    assert "demo" not in [each.name for each in store.conversations()]

    first = submit_sync(store, "demo", "hello", key="k1")
    again = submit_sync(store, "demo", "hello", key="k1")
    assert (first.seq, first.is_new, again.seq, again.is_new) == (1, True, 1, False)
    with pytest.raises(KeyReused):
        submit_sync(store, "demo", "something else", key="k1")
    queued = submit_sync(store, "demo", "and more", key="k2")  # the first one is not answered yet
    assert queued.queued
    assert submit_sync(store, "demo", "and more", key="k2") == queued._replace(is_new=False, after=queued.after + 1)
    with pytest.raises(KeyReused):
        submit_sync(store, "demo", "something else", key="k2")
    assert jobs(store) == before + 2
    assert [message.text for message in store.load("demo")] == ["hello"]
    body = store.read(lambda tx: tx.rows("SELECT args::text FROM main.procrastinate_jobs"))
    assert "hello" not in str(body)  # ids only


def test_what_cannot_be_submitted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 19.1: another store than PostgreSQL is refused, with the fix, and so is a missing package."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "procrastinate.schema", None)
        with pytest.raises(InvalidSetting, match=r"procrastinate.*contextc\[worker\]"):
            submit_sync(store, "demo", "hello")
    with cc.open_store("memory:") as other:
        with pytest.raises(InvalidSetting, match=r"require a PostgreSQL store.*postgresql://"):
            submit_sync(other, "demo", "hello")
        with pytest.raises(InvalidSetting, match="PostgreSQL"):
            TurnWorker(other, {})
    with pytest.raises(InvalidInput, match="queue"):
        submit_sync(store, "demo", "hello", queue="")
    with pytest.raises(InvalidInput, match="has an executor of agent 'assistant'"):
        TurnWorker(store, {"writer": agent(store)})


@in_event_loop
async def test_a_worker_continues_the_trace_of_what_was_submitted(store: Store) -> None:
    """Guarantee 25.4: across processes, because the job carries it. Other jobs begin traces of their own."""
    with exporting() as exported:
        executor = agent(store, says("One."), says("Two."))
        async with working(store, executor):
            with cc.telemetry.continuing({"traceparent": TRACEPARENT}):
                await submit(store, "first", "hello")
            await submit(store, "second", "hello")
            for name in ("first", "second"):
                await ended(store, name)
        found = exported.named("invoke_agent assistant")
        spans = {attributes_of(span)["gen_ai.conversation.id"]: span for span in found}
        assert (came_from(spans["first"]), spans["second"].parent) == (TRACEPARENT, None)


@in_event_loop
async def test_the_job_of_a_silent_worker_keeps_its_trace(store: Store) -> None:
    """Guarantee 25.4: the worker that replaces it goes on with the trace."""
    with exporting() as exported:
        with cc.telemetry.continuing({"traceparent": TRACEPARENT}):
            await submit(store, "demo", "hello")
        take_job(store)
        async with working(store, agent(store, says("One."))):
            await ended(store)
        [span] = exported.named("invoke_agent assistant")
        assert came_from(span) == TRACEPARENT


@in_event_loop
async def test_one_turn_at_a_time_in_order(store: Store) -> None:
    """Guarantee 19.2: each input opens a turn of its own, in the order of submission, and turns do not overlap."""
    running: list[str] = []

    def reply(request: JSONObject) -> Say:
        assert not running
        running.append("call")
        return says(f"answer to {str(request['messages'])[-40:]}", pause=0.005)

    executor = agent(store, reply)
    for number in range(4):
        await submit(store, "demo", f"input {number}", key=f"k{number}")
    async with working(store, executor), asyncio.timeout(PATIENCE):
        count = 0
        async for event in executor.watch("demo"):
            if isinstance(event, TurnFinish):
                running.clear()
                count += 1
                if count == 4:
                    break
    messages = store.load("demo")
    assert [each.text for each in messages if each.role == "user"] == [f"input {number}" for number in range(4)]
    assert [each.role for each in messages] == ["user", "assistant"] * 4
    assert [each.state for each in store.turns("demo")] == ["finished"] * 4


@in_event_loop
async def test_a_provider_that_is_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 19.6: the turn is retried later, then parked with its reason. It can be resumed; new input does so."""
    monkeypatch.setattr(turn, "retry_delay", no_delay)
    down = fails("transient", "overloaded")
    tries = (turn.MAX_RETRIES + 1) * 2
    executor = agent(store, *[down] * tries, says("Up again."))
    await submit(store, "demo", "hello")
    async with working(store, executor) as worker:
        (end,) = await ended(store)
        assert end.finish == "error"
        assert "overloaded" in end.error
        parked = await parked_turn(store)
        assert (parked.conversation, parked.turn) == ("demo", 1)
        assert "2 times in a row" in parked.reason
        assert resume_parked(store, "demo") == parked
        assert parked_turns(store) == []
        assert (await ended(store, turns=2))[1].finish == "stop"
        assert (worker.counts["retried"], worker.counts["parked"]) == (1, 1)
    assert [each.text for each in store.load("demo")] == ["hello", "Up again."]
    with pytest.raises(InvalidInput, match="no turn of agent 'assistant' is parked"):
        resume_parked(store, "demo")


async def parked_turn(store: Store) -> WorkerTurn:
    """Wait for a parked turn."""
    async with asyncio.timeout(PATIENCE):
        while not (found := parked_turns(store)):
            await asyncio.sleep(0.01)
    return found[0]


@in_event_loop
async def test_an_agent_that_no_worker_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 19.6: its jobs are parked with the reason, and an event says so. A worker that has it resumes them."""
    monkeypatch.setattr(turn_worker, "LONGEST_RETRY_SECONDS", 0.01)
    await submit(store, "demo", "hello", agent="coder")
    await submit(store, "other", "hello", agent="coder")
    async with working(store, agent(store, says("no"))) as worker:
        async with asyncio.timeout(PATIENCE):
            while len(parked_turns(store)) < 2:
                await asyncio.sleep(0.01)
    assert worker.counts["parked"] == 2
    assert {(each.agent, each.turn) for each in parked_turns(store)} == {("coder", 0)}
    (told,) = [each for each in events(store) if isinstance(each, ErrorOccurred)]
    assert "has the agent 'coder'. This one has 'assistant'" in told.error
    assert store.read(lambda tx: tx.rows("SELECT id FROM main.procrastinate_jobs")) == []
    cancel_parked(store, "other", agent="coder")
    assert [each.conversation for each in parked_turns(store)] == ["demo"]
    await submit(store, "demo", "and more", agent="coder")  # new input resumes it, too
    assert parked_turns(store) == []
    executor = agent(store, says("one"), says("two"), name="coder")
    async with working(store, executor):
        await ended(store, turns=2)
    assert [each.text for each in store.load("demo")] == ["hello", "one", "and more", "two"]
    assert [each.text for each in store.load("other")] == ["hello"]


@in_event_loop
async def test_a_turn_that_ends_its_workers(store: Store) -> None:
    """Guarantee 19.6: after so many dead workers the turn is parked, and its calls are not run."""
    executor = agent(store, says("never sent"))
    submit_sync(store, "demo", "hello")
    number = store.read(lambda tx: tx.row("SELECT number FROM main.conversation WHERE name = 'demo'"))
    assert number is not None
    for _ in range(2):  # a worker takes the job, opens a turn, and dies
        lease = store.acquire("demo", "assistant")
        record = TurnStore(store, "demo", "assistant", lease)
        record.open(GivenInput([]), resume=True, only_submitted=True)
        take_job(store)
        leases_of(store).stop_renewing(lease)
        store.write(lambda tx: tx.run("UPDATE main.lease SET expires = 0"))
        (job,) = store.read(lambda tx: tx.rows("SELECT id FROM main.procrastinate_jobs"))
        assert store.write(lambda tx, id=job[0]: turn_queue.rescue_job(tx, id, None, max_deaths=RULES.max_deaths))
        assert not store.write(lambda tx, id=job[0]: turn_queue.rescue_job(tx, id, None, max_deaths=RULES.max_deaths))
    async with working(store, executor):
        (end,) = await ended(store)
    assert end.finish == "error"
    assert "2 workers ended" in end.error
    assert "2 workers ended" in parked_turns(store)[0].reason


def test_a_held_lease_is_not_stalled(store: Store) -> None:
    """Guarantee 19.3: the job of a silent worker is taken over only after the lease of its turn has ended."""
    submit_sync(store, "demo", "hello")
    with store.lease("demo", "assistant"):
        take_job(store)
        (job,) = store.read(lambda tx: tx.rows("SELECT id FROM main.procrastinate_jobs"))
        assert not store.write(lambda tx: turn_queue.rescue_job(tx, job[0], None, max_deaths=5))
    assert store.write(lambda tx: turn_queue.rescue_job(tx, job[0], None, max_deaths=5))


@in_event_loop
async def test_slots_of_a_provider(store: Store) -> None:
    """Guarantee 19.7: no more model calls at a time than there are slots. A slot whose time is over is free."""
    calls: list[int] = []
    now = 0

    class Counting(Scripted):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            nonlocal now
            now += 1
            calls.append(now)
            try:
                async for event in super().stream(call):
                    yield event
            finally:
                now -= 1

    executor = cc.AgentExecutor(store, SONNET, endpoint=Counting(lambda _: says("a b c", pause=0.01)), triggers=())
    store.write(
        lambda tx: tx.run(
            "INSERT INTO main.provider_slot (provider, number, holder, expires) VALUES ('anthropic', 0, 'x', 1)"
        )
    )
    for number in range(4):
        submit_sync(store, f"c{number}", "hello")
    async with working(store, executor, slots={"anthropic": 1}):
        for number in range(4):
            await ended(store, f"c{number}")
    assert calls == [1, 1, 1, 1]
    assert store.read(lambda tx: tx.rows("SELECT number, holder FROM main.provider_slot")) == [(0, "")]


@in_event_loop
async def test_a_call_that_waits_for_a_slot_creates_slots_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks several times a second, so that each further question is one statement, however many slots there are."""
    monkeypatch.setattr("contextc.worker.turn_worker.SLOT_POLL_SECONDS", 0)
    asked: list[int] = []
    with cc.open_store("memory:") as store:

        def gives_up() -> bool:
            asked.append(store.write(lambda tx: tx.run("DELETE FROM main.provider_slot")))
            return len(asked) == 3

        slots = ProviderSlots(store, {"anthropic": 1})
        async with slots.call("anthropic", gives_up):
            with pytest.raises(ProviderFailed, match="no slot became free"):
                async with slots.call("anthropic", gives_up):
                    pass
    assert asked == [1, 0, 0]


@in_event_loop
async def test_health_and_metrics(store: Store) -> None:
    """A worker reports its health and its metrics in the format of Prometheus."""
    executor = agent(store, says("Hi."))
    await submit(store, "demo", "hello")

    async def get(port: int, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        return text

    async with working(store, executor) as worker, serve_health(worker, "127.0.0.1", 0) as port:
        await ended(store)
        async with asyncio.timeout(PATIENCE):
            while not worker.counts["turns"]:
                await asyncio.sleep(0.01)
        assert "200 OK" in await get(port, "/health")
        assert "contextc_worker_turns_total 1\n" in await get(port, "/metrics")
        assert "404" in await get(port, "/other")
        assert "contextc_worker_parked_total 0" in format_metrics(worker)
    assert len(events(store)) > 0

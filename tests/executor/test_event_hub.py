"""Watch a conversation from any event: any number of watchers at any speed, in order and without gaps."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.events import AnyEvent, TextDelta, TurnFinish
from contextc.executor import event_hub
from contextc.executor.event_hub import MAX_INBOX_EVENTS, POLLER_THREAD_NAME
from contextc.executor.model_call import FIRST_BATCH_SECONDS
from contextc.executor.turn_store import TurnStore
from contextc.providers.client import Endpoint, ProviderCall
from contextc.store.transaction_engine import Result, Transaction
from tests.executor.scripted_provider import SONNET, Scripted, add, call, kinds, run_turn, says

PROCESSES = multiprocessing.get_context("forkserver")


def script(steps: int) -> Scripted:
    said = [says(f"Step {number}.", call(number, a=number, b=1)) for number in range(steps)]
    return Scripted(*said, says("It is done now.", pause=0.01))


async def until(events: AsyncGenerator[AnyEvent, None], turns: int, *, pause: float = 0.0) -> list[AnyEvent]:
    """What a watcher sees until so many turns have ended."""
    seen: list[AnyEvent] = []
    async with aclosing(events):
        async for event in events:
            seen.append(event)
            if pause:
                await asyncio.sleep(pause)
            if kinds(seen).count("turn-finish") == turns:
                break
    return seen


@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_watching_begins_at_any_number_and_goes_on(store: cc.Store, after: int) -> None:
    """Guarantee 12.1: what was before and what is to come, as one."""
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(3), triggers=())
    run_turn(executor)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(3), triggers=())

    async def watched() -> list[AnyEvent]:
        watcher = asyncio.create_task(until(executor.watch("demo", after=after), 2))
        await asyncio.sleep(0.02)
        await executor.start("demo", "more").wait()
        return await watcher

    assert asyncio.run(watched()) == store.events("demo", after=after)


def test_many_watchers_slow_and_quick_see_the_same(store: cc.Store) -> None:
    """Guarantee 12.1: in order, no gap, nothing twice; no watcher delays the turn."""
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(8), triggers=())

    async def watched() -> list[list[AnyEvent]]:
        quick = [asyncio.create_task(until(executor.watch("demo"), 1)) for _ in range(20)]
        slow = [asyncio.create_task(until(executor.watch("demo"), 1, pause=0.004)) for _ in range(5)]
        turn = executor.start("demo", "go")
        async with asyncio.timeout(60):
            await turn.wait()
            return [*await asyncio.gather(*quick), *await asyncio.gather(*slow)]

    seen = asyncio.run(watched())

    stored = store.events("demo")
    assert [event.number for event in stored] == [*range(1, len(stored) + 1)]
    assert all(each == stored for each in seen)


def test_two_agents_at_once_are_seen_in_the_order_of_the_record(store: cc.Store) -> None:
    """Guarantee 12.1: one sequence of numbers per conversation for all writers; a turn's own events are its agent's."""
    planner = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(6), name="planner", triggers=())
    coder = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(6), name="coder", triggers=())

    async def both() -> tuple[list[AnyEvent], tuple[list[AnyEvent], list[AnyEvent]]]:
        watcher = asyncio.create_task(until(planner.watch("demo"), 2))
        turns = await asyncio.gather(all_of(planner, "demo"), all_of(coder, "demo"))
        return await watcher, turns

    watched, turns = asyncio.run(both())

    assert watched == store.events("demo")
    assert [{event.agent for event in turn} for turn in turns] == [{"planner"}, {"coder"}]
    assert sorted([event.number for turn in turns for event in turn]) == [event.number for event in watched]


async def all_of(executor: cc.AgentExecutor, conversation: str) -> list[AnyEvent]:
    return [event async for event in executor.run(conversation, "go")]


def test_an_inbox_that_overflows_is_filled_from_the_store(store: cc.Store) -> None:
    """Guarantee 12.1: a watcher that sleeps through more than it can keep misses nothing."""
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(), triggers=())
    count = MAX_INBOX_EVENTS + 700

    async def sleeps() -> list[int]:
        seen: list[int] = []
        async with aclosing(executor.watch("demo")) as events:
            store.enqueue("demo", cc.user("first"))
            seen.append((await anext(events)).number)
            with store.lease("demo") as lease:
                record = TurnStore(store, "demo", "assistant", lease)
                for number in range(0, count, 50):
                    record.append_events(*[TextDelta(uid="u", text=str(each)) for each in range(number, number + 50)])
            async for event in events:
                seen.append(event.number)
                if len(seen) == count + 1:
                    return seen
        return seen

    assert asyncio.run(sleeps()) == [*range(1, count + 2)]


def test_a_turn_can_be_followed_late_twice_and_from_several_places(store: cc.Store) -> None:
    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(4), triggers=())

    async def follow(turn: cc.executor.Turn) -> list[AnyEvent]:
        return [event async for event in turn.events()]

    async def follows() -> list[list[AnyEvent]]:
        turn = executor.start("demo", "go")
        together = await asyncio.gather(follow(turn), follow(turn))
        return [*together, await follow(turn)]

    async def too_late() -> list[AnyEvent]:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(4), triggers=())
        turn = executor.start("late", "go")
        await turn.wait()
        return await follow(turn)

    assert all(seen == store.events("demo") for seen in asyncio.run(follows()))
    assert asyncio.run(too_late()) == store.events("late")


def test_the_last_event_of_a_turn_is_never_missed(store: cc.Store) -> None:
    """Guarantee 12.1."""
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(lambda _: says("Yes.")), triggers=())

    async def many() -> list[list[AnyEvent]]:
        return [[event async for event in executor.run("demo", f"turn {number}")] for number in range(40)]

    seen = asyncio.run(many())

    assert all(isinstance(events[-1], TurnFinish) for events in seen)
    assert [event for events in seen for event in events] == store.events("demo")


def test_a_conversation_that_is_not_there_yet_can_be_watched(store: cc.Store) -> None:
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Hi.")), triggers=())

    async def watched() -> list[AnyEvent]:
        watcher = asyncio.create_task(until(executor.watch("new"), 1))
        await asyncio.sleep(0.05)
        await executor.start("new", "hello").wait()
        return await watcher

    assert asyncio.run(watched()) == store.events("new")


def run_turns(address: str, count: int) -> None:
    with cc.open_store(address) as store:
        for number in range(count):
            executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(4), name="other", triggers=())
            run_turn(executor, f"there {number}")


def test_turns_of_another_process_are_seen_between_ones_own(tmp_path: Path) -> None:
    """Guarantee 12.1."""
    address = f"sqlite:///{tmp_path}/shared.db"
    with cc.open_store(address) as store:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=Scripted(), triggers=())
        child = PROCESSES.Process(target=run_turns, args=(address, 3))

        async def watched() -> list[list[AnyEvent]]:
            watchers = [asyncio.create_task(until(executor.watch("demo"), 6, pause=pause)) for pause in (0, 0.001)]
            child.start()
            for number in range(3):
                mine = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=script(4), triggers=())
                await mine.start("demo", f"here {number}").wait()
            async with asyncio.timeout(60):
                return await asyncio.gather(*watchers)

        seen = asyncio.run(watched())
        child.join(60)

        assert child.exitcode == 0
        stored = store.events("demo")
        assert [event.number for event in stored] == [*range(1, len(stored) + 1)]
        assert all(events == stored for events in seen)
        assert {event.agent for event in stored} == {"assistant", "other"}


def test_input_that_waits_is_seen_at_once(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 12.1: also where no turn runs, and without a look into the store."""
    monkeypatch.setattr(event_hub, "POLL_SECONDS", 3_600.0)
    monkeypatch.setattr(event_hub, "CHECK_SECONDS", 3_600.0)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(), triggers=())

    async def watched() -> None:
        async with aclosing(executor.watch("demo")) as events:
            await executor.follow_up("demo", "first")
            await anext(events)
            for number in range(2, 6):
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.01)
                await executor.follow_up("demo", "another")
                assert (await waiting).number == number

    asyncio.run(asyncio.wait_for(watched(), 60))


def test_idle_watchers_share_one_look_into_the_store(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand quiet readers must not keep a core busy: they wait, and one thread looks for all of them."""
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(), triggers=())
    names = [f"quiet{number}" for number in range(10)]
    for name in names:
        store.enqueue(name, cc.user("first"))
    read, readers = store.read, list[str]()

    def counted(work: Callable[[Transaction], Result]) -> Result:
        readers.append(threading.current_thread().name)
        return read(work)

    async def looks(count: int) -> list[str]:
        """Who read the store, during so many looks for events of other processes."""
        start = len(readers)
        while readers[start:].count(POLLER_THREAD_NAME) < count:
            await asyncio.sleep(0.01)
        return [name for name in readers[start:] if name != POLLER_THREAD_NAME]

    async def watched() -> None:
        seen = [0] * 5 * len(names)

        async def watch(index: int) -> None:
            async for event in executor.watch(names[index % len(names)]):
                seen[index] = event.number

        watchers = [asyncio.create_task(watch(index)) for index in range(len(seen))]
        while not all(seen):
            await asyncio.sleep(0.01)
        await looks(2)  # a new watcher looks once more
        assert await looks(2) == []
        store.enqueue(names[0], cc.user("second"))  # as another process would
        while seen.count(2) < 5:
            await asyncio.sleep(0.01)
        assert max(seen[1:5]) == 1
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    monkeypatch.setattr(store, "read", counted)
    asyncio.run(asyncio.wait_for(watched(), 60))


class Pausing(Endpoint):
    """Says one thing, says another while the first is being written down, and then waits until that was heard."""

    def __init__(self, address: str) -> None:
        self.address, self.heard = address, asyncio.Event()
        self.was_heard = False

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        begin, *words, stop, last, end = says("one two three four").events()
        for event in (begin, *words[:2]):
            yield event
        with cc.open_store(self.address) as other:
            written = asyncio.create_task(
                asyncio.to_thread(other.write, lambda _: time.sleep(FIRST_BATCH_SECONDS * 10))
            )
            await asyncio.sleep(FIRST_BATCH_SECONDS * 5)  # the journal waits for the store by now
            for event in words[2:]:
                yield event
            await written
        with suppress(TimeoutError):
            self.was_heard = await asyncio.wait_for(self.heard.wait(), 60)
        for event in (stop, last, end):
            yield event


def test_received_text_is_published_before_the_next_piece_arrives(tmp_path: Path) -> None:
    """Guarantee 12.1: a model that says something and then thinks for long is heard, also where the store was busy."""
    endpoint = Pausing(f"sqlite:///{tmp_path}/chat.db")

    async def watched(executor: cc.AgentExecutor) -> None:
        said = ""
        async for event in executor.run("demo", "Count"):
            said += event.text if isinstance(event, TextDelta) else ""
            if said == "one two three four":
                endpoint.heard.set()

    with cc.open_store(endpoint.address) as store:
        asyncio.run(watched(cc.AgentExecutor(store, SONNET, endpoint=endpoint, triggers=())))
    assert endpoint.was_heard


async def test_events_that_are_about_to_be_published_are_not_read_from_the_store() -> None:
    """An event loop that is behind has enough to do: events of its own turns come to it anyway."""
    with cc.open_store("memory:") as store:
        hub, inbox = event_hub.EventHub(store), event_hub.Inbox()
        hub.add_watcher("demo", inbox)
        hub.announce("demo", 5)
        inbox.compare_with_store(0, 5)
        assert inbox.take_events() == ([], False)
        inbox.compare_with_store(0, 6)
        assert inbox.take_events() == ([], True), "another process has written this one"
        hub.remove_watcher("demo", inbox)

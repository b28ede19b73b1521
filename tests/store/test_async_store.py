"""`store.aio`: the methods of a store as coroutines."""

import asyncio
import inspect
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

import contextc as cc
from contextc._worker_threads import STORE_SLOTS
from contextc.errors import ConversationBusy, InvalidMessage, UnknownConversation
from contextc.store.async_store import AsyncStore
from contextc.store.store import Store, leases_of

NOT_AWAITED = {"address", "aio", "on_lease_lost", "pending_erasure", "recovered"}
"""Attributes, and what never waits."""


@pytest.fixture
def store(tmp_path: Path) -> Generator[cc.Store]:
    with cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}") as opened:
        yield opened


def test_every_method_of_a_store_can_be_awaited() -> None:
    """Guarantee 20.3: a method that is added to the store is added here, with the same parameters."""
    methods = {name for name in dir(Store) if not name.startswith("_")} - NOT_AWAITED
    awaited = {name for name in dir(AsyncStore) if not name.startswith("_")} - {"pending_erasure"}
    assert awaited == methods
    with cc.open_store("memory:") as store:
        for name in sorted(methods):
            ours, theirs = (
                [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
                for method in (getattr(store.aio, name), getattr(store, name))
            )
            assert ours == theirs, name
            is_manager = name == "lease"
            assert is_manager or inspect.iscoroutinefunction(getattr(store.aio, name)), name


def test_awaited_calls_return_what_the_store_returns(store: cc.Store) -> None:
    """Guarantee 20.3: there is one path to the database."""

    async def main() -> None:
        aio = store.aio
        message = await aio.append("demo", cc.user("hello"), key="k1")
        assert await aio.append("demo", cc.user("hello"), key="k1") == message
        await aio.extend("demo", [cc.assistant("hi"), cc.user("bye")])
        assert await aio.load("demo", last=2) == store.load("demo", last=2)
        assert (await aio.fork("demo", "other", at=1)).name == "other"
        assert [each.name for each in await aio.conversations()] == [each.name for each in store.conversations()]
        assert await aio.read(lambda tx: tx.rows("SELECT count(*) FROM main.message")) == [(3,)]
        assert await aio.pending_erasure() == 0
        with pytest.raises(UnknownConversation, match="nope"):
            await aio.load("nope")
        with pytest.raises(InvalidMessage):
            await aio.append("demo", cc.tool_result("", "", ""))

    asyncio.run(main())


def test_a_call_does_not_block_the_event_loop(store: cc.Store) -> None:
    """Guarantee 20.3: the loop goes on while a call is held up, and the call runs on another thread."""
    release, threads = threading.Event(), list[int]()

    async def main() -> None:
        def work(tx: object) -> str:
            threads.append(threading.get_ident())
            assert release.wait(60)
            return "done"

        held = asyncio.create_task(store.aio.read(work))
        while not threads:
            await asyncio.sleep(0)
        release.set()  # this line would never run if the call blocked the loop
        assert await held == "done"

    asyncio.run(main())
    assert threads[0] != threading.get_ident()


def test_calls_at_a_time_are_limited(store: cc.Store) -> None:
    """Guarantee 20.3: the other calls wait without a thread."""
    lock, release = threading.Lock(), threading.Event()
    running, most = 0, 0

    def work(tx: object) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == STORE_SLOTS.limit:
                release.set()
        assert release.wait(60)
        with lock:
            running -= 1

    async def main() -> None:
        with cc.open_store("memory:") as memory:
            assert memory.aio.store is memory
        await asyncio.gather(*[asyncio.create_task(store.aio.read(work)) for _ in range(STORE_SLOTS.limit * 2)])

    asyncio.run(main())
    assert most == STORE_SLOTS.limit


def test_a_cancelled_write_is_complete(store: cc.Store) -> None:
    """Guarantee 20.3: the caller knows that it has happened when the cancellation is raised."""
    started, release = threading.Event(), threading.Event()

    def work(tx: object) -> None:
        started.set()
        assert release.wait(60)

    async def main() -> list[str]:
        task = asyncio.create_task(store.aio.write(work))
        while not started.is_set():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [message.text for message in [await store.aio.append("demo", cc.user("next"))]]

    assert asyncio.run(main()) == ["next"]


def test_leases_and_streams(store: cc.Store) -> None:
    """Guarantees 20.3, 3.4: an exception ends both."""

    async def fail() -> None:
        async with store.aio.lease("demo") as lease, await store.aio.stream(lease) as stream:
            stream.write("half")
            raise ZeroDivisionError

    async def main() -> None:
        aio = store.aio
        await aio.append("demo", cc.user("hello"))
        async with aio.lease("demo") as lease:
            with pytest.raises(ConversationBusy):
                await aio.acquire("demo")
            async with await aio.stream(lease) as stream:
                stream.write("hi ")
                await stream.flush()
                stream.write("there")
            assert stream.message is not None
        assert [message.text for message in store.load("demo")] == ["hello", "hi there"]
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert store.load("demo")[-1].status == "error"
        await aio.release(await aio.acquire("demo"))

    asyncio.run(main())


def test_more_waiters_than_threads_get_the_lease(store: cc.Store) -> None:
    """Guarantee 20.3: waiting takes no thread, so the holder can always release."""

    async def main() -> int:
        aio, done = store.aio, 0
        await aio.append("demo", cc.user("hello"))

        async def hold() -> None:
            nonlocal done
            async with aio.lease("demo", wait=600):
                done += 1

        async with aio.lease("demo"):
            waiting = [asyncio.create_task(hold()) for _ in range(STORE_SLOTS.limit + 8)]
            while len(leases_of(store).queue) < len(waiting):
                await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        return done

    assert asyncio.run(main()) == STORE_SLOTS.limit + 8


def test_a_cancelled_acquire_leaves_no_lease(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 20.3: the caller never got the lease, so it cannot release it."""
    taken, go_on = threading.Event(), threading.Event()
    leases = leases_of(store)
    try_acquire = leases.try_acquire

    def slow(conversation: str, agent: str, *, ttl: float, patient: bool = False) -> cc.store.Lease:
        lease = try_acquire(conversation, agent, ttl=ttl, patient=patient)
        taken.set()
        assert go_on.wait(60)
        return lease

    monkeypatch.setattr(leases, "try_acquire", slow)

    async def main() -> None:
        await store.aio.append("demo", cc.user("hello"))
        task = asyncio.create_task(store.aio.acquire("demo"))
        while not taken.is_set():
            await asyncio.sleep(0)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.aio.release(await store.aio.acquire("demo"))

    asyncio.run(main())

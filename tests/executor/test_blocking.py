"""Blocking work on a thread: a caller gets its result only after it has ended."""

import asyncio
import threading

import pytest

from contextc._worker_threads import CALLBACK_SLOTS, STORE_SLOTS, defer, run_blocking


async def test_a_cancellation_is_raised_when_the_work_is_done() -> None:
    """Guarantee 11.10: a write that has begun is finished before the cancellation is raised."""
    begun, may_end, ended = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        may_end.wait(60)
        ended.append("stored")

    task = asyncio.ensure_future(run_blocking(work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["stored"]


async def test_an_error_of_the_work_is_raised_where_it_is_waited_for() -> None:
    """Guarantee 11.1: a store that fails ends the turn that wrote to it."""

    def work(number: int) -> int:
        return 1 // number

    assert await run_blocking(work, 1) == 1
    with pytest.raises(ZeroDivisionError):
        await run_blocking(work, 0)


async def test_deferred_work_runs_on_the_loop_before_the_caller_continues() -> None:
    """Guarantee 12.1: events are published when they are stored, in the order of their numbers."""
    told: list[tuple[str, threading.Thread]] = []

    def work() -> None:
        defer(lambda: told.append(("first", threading.current_thread())))
        defer(lambda: told.append(("second", threading.current_thread())))
        assert not told

    await run_blocking(work)
    here = threading.current_thread()
    assert told == [("first", here), ("second", here)]


def test_outside_of_durable_work_it_is_done_at_once() -> None:
    """Guarantee 12.1: writers without an event loop notify watchers too."""
    told: list[str] = []
    defer(lambda: told.append("told"))
    assert told == ["told"]


async def test_code_of_users_that_blocks_leaves_the_store_its_threads() -> None:
    """Triggers and fragments may hang. Every turn would hang with them if they took the threads of the store."""
    may_end = threading.Event()

    hanging = [
        asyncio.ensure_future(run_blocking(may_end.wait, 60, slots=CALLBACK_SLOTS)) for _ in range(CALLBACK_SLOTS.limit)
    ]
    await asyncio.sleep(0)  # so that each has taken its slot
    storing = asyncio.ensure_future(run_blocking(lambda: "stored", slots=STORE_SLOTS))
    await asyncio.wait([storing], timeout=60)
    was_stored = storing.done()
    may_end.set()
    await asyncio.gather(storing, *hanging)
    assert was_stored

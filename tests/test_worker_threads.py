"""Worker threads: free ones are reused, and busy ones are never waited for."""

import asyncio
import os
import threading
from typing import Any, cast

import pytest

from contextc._worker_threads import ConcurrencyLimit, read_thread_limit, run_in_thread, submit
from contextc.errors import InvalidSetting

SECONDS = 60


def ran_on(work_is_done: threading.Event | None = None) -> threading.Thread:
    """The thread that the next piece of work gets."""
    found: list[threading.Thread] = []
    delivered = work_is_done or threading.Event()
    submit(lambda: found.append(threading.current_thread()), delivered.set)
    assert delivered.wait(SECONDS)
    return found[0]


def test_a_thread_that_is_free_is_taken_again() -> None:
    """Guarantee 11.1: a step is cheap, so its work does not pay for a new thread each time."""
    assert ran_on() is ran_on()


def test_work_that_hangs_blocks_no_other_work() -> None:
    """Guarantee 11.2: a tool that never ends keeps its own thread; the next call has another."""
    first, hangs, begun, ended = ran_on(), threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hangs.wait(SECONDS)

    submit(hang, ended.set)
    assert begun.wait(SECONDS)
    assert ran_on() is not first
    hangs.set()
    assert ended.wait(SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of every fork beside threads
def test_a_forked_process_has_threads_of_its_own() -> None:
    """Guarantee 3.2: a process that was forked after work was done does not wait for threads it does not have."""
    ran_on()
    child = os.fork()
    if not child:
        done = threading.Event()
        submit(lambda: None, done.set)
        os._exit(0 if done.wait(SECONDS) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def passed(times: int = 5) -> None:
    """Let everything on the loop go as far as it can."""
    for _ in range(times):
        await asyncio.sleep(0)


def test_no_more_run_at_once_than_there_are_slots_and_those_that_wait_go_in_order() -> None:
    """A bound that lets some overtake others would leave those others waiting forever."""

    async def main() -> list[int]:
        slots, begun, may_end = ConcurrencyLimit(2), list[int](), asyncio.Event()

        async def work(number: int) -> None:
            async with slots.hold():
                begun.append(number)
                await may_end.wait()

        tasks = [asyncio.ensure_future(work(number)) for number in range(6)]
        await passed()
        assert begun == [0, 1]
        may_end.set()
        await asyncio.gather(*tasks)
        return begun

    assert asyncio.run(main()) == list(range(6))


@pytest.mark.parametrize("moment", ["waiting", "just given"])
def test_a_slot_is_not_lost_with_the_one_that_waited_for_it(moment: str) -> None:
    """A cancellation, also in the very moment when the slot comes, leaves it to the next."""

    async def main() -> None:
        slots = ConcurrencyLimit(1)
        first, second = slots.hold(), slots.hold()
        await first.__aenter__()
        waiting = asyncio.ensure_future(second.__aenter__())
        await passed()
        if moment == "just given":
            await first.__aexit__(None, None, None)
            await asyncio.sleep(0)  # the slot is marked as given; the task has not gone on yet
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if moment == "waiting":
            await first.__aexit__(None, None, None)
        await passed()
        async with asyncio.timeout(SECONDS), slots.hold():
            pass

    asyncio.run(main())


def test_a_slot_goes_past_those_whose_event_loop_is_closed() -> None:
    """Another loop of the process may have ended while its tasks waited."""
    slots = ConcurrencyLimit(1)
    slots.acquire(lambda: None)
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        async with slots.hold():
            pass

    task = loop.create_task(wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    cast(Any, task)._log_destroy_pending = False
    taken = threading.Event()
    slots.acquire(taken.set)
    slots.release()
    assert taken.is_set()


def test_a_base_exception_is_raised_as_an_exception() -> None:
    """SystemExit from a worker thread would end the event loop, and with it every other task."""

    def leave() -> None:
        raise SystemExit(3)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="SystemExit: 3"):
            await run_in_thread(leave)

    asyncio.run(main())


def test_a_number_of_threads_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value is refused by its name."""
    assert read_thread_limit("CONTEXTC_SOME_THREADS", 7) == 7
    monkeypatch.setenv("CONTEXTC_SOME_THREADS", "12")
    assert read_thread_limit("CONTEXTC_SOME_THREADS", 7) == 12
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("CONTEXTC_SOME_THREADS", wrong)
        with pytest.raises(InvalidSetting, match=f"CONTEXTC_SOME_THREADS must be an integer above 0, got '{wrong}'"):
            read_thread_limit("CONTEXTC_SOME_THREADS", 7)

"""Threads for work that blocks: taken again when they are free, never waited for when they are not."""

import os
import threading

import pytest

from contextc._threads import run_soon

SECONDS = 10


def ran_on(work_is_done: threading.Event | None = None) -> threading.Thread:
    """The thread that the next piece of work gets."""
    found: list[threading.Thread] = []
    delivered = work_is_done or threading.Event()
    run_soon(lambda: found.append(threading.current_thread()), delivered.set)
    assert delivered.wait(SECONDS)
    return found[0]


def test_a_thread_that_is_free_is_taken_again() -> None:
    """SPEC 11.1: a step is cheap, so its work does not pay for a new thread each time."""
    assert ran_on() is ran_on()


def test_work_that_hangs_stands_in_nobodys_way() -> None:
    """SPEC 11.2: a tool that never ends keeps its own thread; the next call has another."""
    first, hangs, begun, ended = ran_on(), threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hangs.wait(SECONDS)

    run_soon(hang, ended.set)
    assert begun.wait(SECONDS)
    assert ran_on() is not first
    hangs.set()
    assert ended.wait(SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of every fork beside threads
def test_a_forked_process_has_threads_of_its_own() -> None:
    """SPEC 3.2: a process that was forked after work was done does not wait for threads it does not have."""
    ran_on()
    child = os.fork()
    if not child:
        done = threading.Event()
        run_soon(lambda: None, done.set)
        os._exit(0 if done.wait(SECONDS) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

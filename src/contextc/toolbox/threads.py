"""Threads for work that blocks, taken when it comes and kept for a while when it is done.

A thread has one piece of work at a time, and is among those that wait only while it has none: work that never ends
keeps its own thread, and stands in nobody's way. There is always a thread for the next piece, a new one if need be.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

Work: TypeAlias = Callable[[], None]
IDLE_SECONDS = 10.0

_idle: "list[_Worker]" = []


def run_soon(work: Work, deliver: Work) -> None:
    """Run work on a thread of its own, then `deliver` there, when the thread is free for others. Neither may raise.

    Raises RuntimeError where no thread can be started.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.given.put((work, deliver))


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="contextc-worker", daemon=True)
        self.given: SimpleQueue[tuple[Work, Work]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                work, deliver = self.given.get(timeout=IDLE_SECONDS)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # somebody has just taken it, and work is on its way
                return
            work()
            _idle.append(self)
            deliver()
            del work, deliver  # what they hold is not to live until the next work comes


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process has none of these threads

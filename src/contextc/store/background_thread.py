"""A background scheduler, one thread per store: renews leases and journals streams on time.

The thread starts with the first task and sleeps until the next one is due. A shared task runs once for all its items
that are due, and before other tasks, so leases are renewed on time however many there are. A task that fails is logged
and retried at its next interval.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

TaskItem = TypeVar("TaskItem")
THREAD_NAME = "contextc-keeper"
"""The name of the thread. A store with a connection limit reserves one connection for it."""


class _Task(NamedTuple):
    due: float
    seconds: float
    shared: bool
    run: Callable[[list[Any]], None]  # items of any type
    thing: Any


class Scheduler:
    def __init__(self) -> None:
        self._tasks: dict[int, _Task] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._count = 0

    def run_every(self, seconds: float, task: Callable[[], None]) -> Callable[[], None]:
        """Call the task periodically. Return a function that stops it."""

        def run(_: list[Any]) -> None:
            task()

        return self._add(_Task(time.monotonic() + seconds, seconds, False, run, None))

    def run_every_for(
        self, seconds: float, item: TaskItem, task: Callable[[list[TaskItem]], None]
    ) -> Callable[[], None]:
        """Call the task periodically with all its items that are due. Return a function that removes `item`."""
        return self._add(_Task(time.monotonic() + seconds, seconds, True, task, item))

    def _add(self, task: _Task) -> Callable[[], None]:
        with self._changed:
            self._count += 1
            number = self._count
            self._tasks[number] = task
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._changed.notify()

        def stop() -> None:
            with self._changed:
                self._tasks.pop(number, None)
                self._changed.notify()

        return stop

    def stop(self) -> None:
        """Remove all tasks."""
        with self._changed:
            self._tasks.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._tasks:
                    self._thread = None
                    return
                now = time.monotonic()
                first = min(self._tasks.values(), key=lambda task: (max(task.due, now), not task.shared, task.due))
                if first.due > now:
                    self._changed.wait(first.due - now)
                    continue
                things: list[Any] = []
                for number, task in self._tasks.items():
                    if task.run == first.run and task.due <= now:
                        things.append(task.thing)
                        self._tasks[number] = task._replace(due=now + task.seconds)
            try:
                first.run(things)
            except Exception as error:
                log_warning(f"background task of the store failed: {error}")


def log_warning(text: str) -> None:
    import logging  # imported here: it costs as much as the rest of the store

    logging.getLogger("contextc.store").warning(text)

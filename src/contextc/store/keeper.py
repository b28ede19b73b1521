"""One quiet thread per store for what must happen on time: renewing leases, journaling streams.

It starts with the first task and sleeps until the next one is due. A task that fails is logged and tried again at its
next turn: whoever depends on it learns the truth from its own next write.
"""

import threading
import time
from collections.abc import Callable


class Keeper:
    def __init__(self) -> None:
        self._tasks: dict[int, tuple[float, float, Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._count = 0

    def every(self, seconds: float, task: Callable[[], None]) -> Callable[[], None]:
        """Call the task again and again; the function returned stops that."""
        with self._changed:
            self._count += 1
            number = self._count
            self._tasks[number] = (time.monotonic() + seconds, seconds, task)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="contextc-keeper", daemon=True)
                self._thread.start()
            self._changed.notify()

        def stop() -> None:
            with self._changed:
                self._tasks.pop(number, None)
                self._changed.notify()

        return stop

    def stop(self) -> None:
        """Forget every task."""
        with self._changed:
            self._tasks.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._tasks:
                    self._thread = None
                    return
                due, number = min((task[0], number) for number, task in self._tasks.items())
                wait = due - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                _, seconds, task = self._tasks[number]
                self._tasks[number] = (time.monotonic() + seconds, seconds, task)
            try:
                task()
            except Exception as error:
                warn(f"a background task of the store failed: {error}")


def warn(text: str) -> None:
    import logging  # here, because it costs as much as the rest of the store, and is hardly needed

    logging.getLogger("contextc.store").warning(text)

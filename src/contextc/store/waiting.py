"""Turns that wait for another one to end: first come, first served, within one process.

The first asks the store again and again, because the turn may be of another process, or its process may die; where it
is of this one, it is woken. The others sleep until they are the first.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from contextc.errors import ConversationBusy
from contextc.store.engine import jitter

HERE_SECONDS = 1.0
"""Between two looks at a turn of this process, whose end is told."""


class Waiter:
    """One that waits, for `wait` seconds at most. `wake` is called when it is worth looking."""

    def __init__(self, wake: Callable[[], None], wait: float, ttl: float) -> None:
        self.wake = wake
        self.queue: list[Waiter] = []
        self._deadline, self._grace = monotonic() + wait, ttl / 3 if wait else 0.0
        self._late: tuple[int, float] | None = None

    @property
    def is_first(self) -> bool:
        return self.queue[0] is self

    @property
    def is_patient(self) -> bool:
        """Whether a late process that lives is left the time that a renewal takes."""
        return self._grace > 0 and (self._late is None or monotonic() - self._late[1] < self._grace)

    def pause(self, busy: ConversationBusy, *, held_here: bool) -> float:
        """How many seconds to wait until the next look; raises `busy` where no time is left."""
        now = monotonic()
        if busy.seconds <= 0 and (self._late is None or self._late[0] != busy.number):
            self._late = busy.number, now
        left = self._deadline - now
        if left <= 0:
            raise busy
        if not self.is_first:
            return left
        return min(left, HERE_SECONDS if held_here else 0.02 + jitter(0.08))


class Waiting:
    """All that wait in one process, by conversation and agent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, str], list[Waiter]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum([len(queue) for queue in self._queues.values()])

    @contextmanager
    def join(
        self, conversation: str, agent: str, wake: Callable[[], None], *, wait: float, ttl: float
    ) -> Generator[Waiter]:
        """Stand last in line until the block ends."""
        key, waiter = (conversation, agent), Waiter(wake, wait, ttl)
        try:
            with self._lock:
                waiter.queue = self._queues.setdefault(key, waiter.queue)
                waiter.queue.append(waiter)
            yield waiter
        finally:  # also where an interrupt came in the middle of it
            with self._lock:
                if waiter in waiter.queue:
                    waiter.queue.remove(waiter)
                if not self._queues.get(key, True):
                    del self._queues[key]
            self.wake(conversation, agent)

    def wake(self, conversation: str, agent: str) -> None:
        """Have the first one look."""
        with self._lock:
            first = next(iter(self._queues.get((conversation, agent), ())), None)
        if first is not None:
            first.wake()

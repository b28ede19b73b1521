"""Queue of turns that wait for another turn to end: first in, first out, within one process.

The first waiter polls the store, because the running turn may belong to another process, or its process may die. If
the running turn belongs to this process, the first waiter is woken. The others sleep until they are first.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from contextc.errors import ConversationBusy
from contextc.store.transactions import jitter

LOCAL_POLL_SECONDS = 1.0
"""Interval between two checks of a turn of this process, whose end wakes the waiter."""


class LeaseWaiter:
    """A waiting turn, for at most `wait` seconds. `wake` is called when the lease may be free."""

    def __init__(self, wake: Callable[[], None], wait: float, ttl: float) -> None:
        self.wake = wake
        self.queue: list[LeaseWaiter] = []
        self._deadline, self._grace = monotonic() + wait, ttl / 3 if wait else 0.0
        self._late: tuple[int, float] | None = None

    @property
    def is_first(self) -> bool:
        return self.queue[0] is self

    @property
    def is_patient(self) -> bool:
        """True if a late process that is alive still gets time to renew its lease."""
        return self._grace > 0 and (self._late is None or monotonic() - self._late[1] < self._grace)

    def next_poll_delay(self, busy: ConversationBusy, *, held_here: bool) -> float:
        """Return the seconds until the next check. Raise `busy` if no time is left."""
        now = monotonic()
        if busy.seconds <= 0 and (self._late is None or self._late[0] != busy.number):
            self._late = busy.number, now
        left = self._deadline - now
        if left <= 0:
            raise busy
        if not self.is_first:
            return left
        return min(left, LOCAL_POLL_SECONDS if held_here else 0.02 + jitter(0.08))


class LeaseQueue:
    """All waiting turns of one process, by conversation and agent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, str], list[LeaseWaiter]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum([len(queue) for queue in self._queues.values()])

    @contextmanager
    def join(
        self, conversation: str, agent: str, wake: Callable[[], None], *, wait: float, ttl: float
    ) -> Generator[LeaseWaiter]:
        """Queue a waiter until the block ends."""
        key, waiter = (conversation, agent), LeaseWaiter(wake, wait, ttl)
        try:
            with self._lock:
                waiter.queue = self._queues.setdefault(key, waiter.queue)
                waiter.queue.append(waiter)
            yield waiter
        finally:  # also after an interrupt in the middle
            with self._lock:
                if waiter in waiter.queue:
                    waiter.queue.remove(waiter)
                if not self._queues.get(key, True):
                    del self._queues[key]
            self.wake_first(conversation, agent)

    def wake_first(self, conversation: str, agent: str) -> None:
        """Wake the first waiter."""
        with self._lock:
            first = next(iter(self._queues.get((conversation, agent), ())), None)
        if first is not None:
            first.wake()

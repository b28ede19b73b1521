"""A limit on the connections of a PostgreSQL store, with a first-in, first-out queue.

A server admits a fixed number of connections (100 by default), shared by all processes. A store therefore
uses at most a few at once, and further operations wait for a free slot. A slot belongs to an object and is freed when
that object is collected, so an exception raised by a signal handler cannot leak one.
"""

import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from contextc.errors import InvalidInput, StoreBusy

RECHECK_SECONDS = 1.0


class ConnectionSlots:
    """At most `limit` slots. Waiters get one in the order of their arrival."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._mutex = threading.RLock()  # a slot may be collected, and freed, while this thread holds the lock
        self._held: dict[int, int] = {}
        self._waiting: deque[ConnectionSlot] = deque()

    def take(self, seconds: float) -> "ConnectionSlot":
        """Return a slot within `seconds`, or raise `StoreBusy`."""
        slot = ConnectionSlot(self)
        with self._mutex:
            if slot.thread in self._held.values():
                raise InvalidInput(
                    "A store operation was started inside another one of the same thread, which could deadlock",
                    fix="Use the transaction that the outer operation received, or start it afterwards.",
                )
            self._waiting.append(slot)
            self._serve()
        end = time.monotonic() + seconds
        while not slot.ready.wait(max(0.0, min(RECHECK_SECONDS, end - time.monotonic()))):
            with self._mutex:
                self._serve()  # a holder may have been interrupted between freeing its slot and this call
                if slot.key not in self._held and time.monotonic() >= end:
                    slot.free()
                    raise StoreBusy(
                        f"All {self.limit} connections of this store were in use for {seconds:g} s",
                        fix="Nothing was written. Retry, or raise the limit with ?pool= in the store's address.",
                    )
        return slot

    def free(self, slot: "ConnectionSlot") -> None:
        with self._mutex:
            self._held.pop(slot.key, None)
            if slot in self._waiting:
                self._waiting.remove(slot)
            self._serve()

    def _serve(self) -> None:
        while self._waiting and len(self._held) < self.limit:
            slot = self._waiting.popleft()
            self._held[slot.key] = slot.thread
            slot.ready.set()


class ConnectionSlot:
    """The right to use one connection, until the `with` block ends."""

    def __init__(self, slots: ConnectionSlots) -> None:
        self._slots = slots
        self.key, self.thread = id(self), threading.get_ident()
        self.ready = threading.Event()

    def free(self) -> None:
        self._slots.free(self)

    __del__ = free

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

"""Gaps: exchanges that passed the proxy and were not recorded, with time and reason."""

from collections import deque
from threading import Lock
from typing import NamedTuple

MAX_LISTED = 100


class Gap(NamedTuple):
    """An exchange that was not recorded. `time` is in Unix milliseconds."""

    time: int
    reason: str


class GapLog:
    """The gaps of one run of the proxy: the last ones, and the number by reason."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: deque[Gap] = deque(maxlen=MAX_LISTED)
        self._counts: dict[str, int] = {}

    def add(self, time: int, reason: str) -> None:
        with self._lock:
            self._last.append(Gap(time, reason))
            self._counts[reason] = self._counts.get(reason, 0) + 1

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def last(self) -> list[Gap]:
        with self._lock:
            return list(self._last)

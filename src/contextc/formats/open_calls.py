"""Calls without results, indexed by what a result may identify them with: an id, a name, or their order."""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Entry(Generic[T]):
    __slots__ = ("is_open", "number", "value")

    def __init__(self, number: int, value: T) -> None:
        self.number, self.value, self.is_open = number, value, True


class OpenCalls(Generic[T]):
    """Values in insertion order, each under several keys, until they are taken."""

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._queues: dict[Hashable, deque[_Entry[T]]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._entries) - self._taken

    def add(self, value: T, *keys: Hashable) -> None:
        entry = _Entry(len(self._entries), value)
        self._entries.append(entry)
        for key in keys:
            self._queues.setdefault(key, deque()).append(entry)

    def pop(self, *keys: Hashable) -> T | None:
        """Remove and return the first remaining value with one of these keys, or None."""
        first: _Entry[T] | None = None
        for key in keys:
            queue = self._queues.get(key)
            while queue and not queue[0].is_open:
                queue.popleft()
            if queue and (first is None or queue[0].number < first.number):
                first = queue[0]
        if first is None:
            return None
        first.is_open = False
        self._taken += 1
        return first.value

    def remaining(self) -> Iterable[T]:
        """Return the values that were not taken, in order."""
        return [entry.value for entry in self._entries if entry.is_open]

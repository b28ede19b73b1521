"""Results that are kept with what they were computed from, to be continued when requests are added to it."""

from collections.abc import Callable
from typing import Self, TypeVar, cast

T = TypeVar("T")


class KeepsResults:
    """An object with which others keep what they computed. `forget` is called if it changed other than at its end."""

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}

    def keep(self, kind: Callable[[Self], T]) -> T:
        """Return the object that a class made of this one when it was asked for first."""
        if kind not in self._kept:
            self._kept[kind] = kind(self)
        return cast(T, self._kept[kind])

    def forget(self) -> None:
        """Discard everything that is kept."""
        self._kept.clear()

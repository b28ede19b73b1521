"""Clocks that a test moves forward: of an event loop, and of a module.

All time limits of coroutines are measured by the clock of the event loop. A test of a limit sets one of an hour and
moves the clock. So the limit ends when the test says so, however slow the machine is.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")
Advance: TypeAlias = Callable[[float], None]
HOUR = 3_600.0


class MovableClockLoop(asyncio.SelectorEventLoop):
    _ahead = 0.0

    def time(self) -> float:
        return super().time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


def run_with_clock(main: Callable[[Advance], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function, as `asyncio.run` does, and give it what moves the clock."""
    with asyncio.Runner(loop_factory=MovableClockLoop) as runner:
        return runner.run(main(cast(MovableClockLoop, runner.get_loop()).advance))


class MovableTime:
    """The module `time`, for a module of ours that measures a limit on a thread."""

    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds

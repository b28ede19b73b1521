"""Writers that wait for the disk together: their transactions are brought to it as one.

A commit costs what the disk takes to say that it has it, however much is in it. So while one writer waits for that, the
others stand in line, and the first of them then runs the work of all: each between two savepoints, as if it were alone
and they had come one after the other. Who fails takes nothing along. Where the whole cannot be stored nothing was, and
everybody tries alone, which tells them what is wrong. A writer that is alone is not kept waiting. The main thread
writes for itself alone: a Ctrl-C may come to it between a commit and the news of it, and the others would write twice.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from contextc.store.base import T, Transaction

MOST = 100
"""Writers whose work is one transaction."""


class Together(Protocol):
    """Runs pieces of work in one transaction; what each gave or raised, or None where nothing was stored."""

    def __call__(self, works: Sequence[Callable[[Transaction], Any]]) -> "list[Outcome] | None": ...


class Outcome:
    """What came of a piece of work."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:  # as different as what they do
        self.value, self.error = value, error


class _Writer:
    """One who stands in line. `outcome` is there when somebody has done the work; else it is this one's to do."""

    __slots__ = ("_turn", "outcome", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.outcome: Outcome | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        self._turn.acquire()

    def call(self) -> None:
        self._turn.release()


class Line:
    """Where the writers of one process stand."""

    def __init__(self, together: Together) -> None:
        self._together = together
        self._mutex = threading.Lock()
        self._waiting: list[_Writer] = []
        self._busy = False

    def write(self, work: Callable[[Transaction], T], alone: Callable[[], T]) -> T:
        """Do a piece of work with those of others, or as it is done `alone`."""
        writer = _Writer(work)
        with self._mutex:
            leads, self._busy = not self._busy, True
            if not leads:
                self._waiting.append(writer)
        if not leads:
            writer.wait()
            if writer.outcome is not None:
                if writer.outcome.error is not None:
                    raise writer.outcome.error
                return writer.outcome.value
        try:
            return self._lead(writer, alone)
        finally:
            self._hand_on()

    def _lead(self, writer: _Writer, alone: Callable[[], T]) -> T:
        """The work of all who wait, or of one alone where nobody else does."""
        most = MOST - 1 if threading.current_thread() is not threading.main_thread() else 0
        with self._mutex:
            others, self._waiting = self._waiting[:most], self._waiting[most:]
        if not others:
            return alone()
        found: list[Outcome] | None = None
        try:
            found = self._together([writer.work, *[other.work for other in others]])
        finally:
            if found is None:  # nothing was stored: each for itself
                with self._mutex:
                    self._waiting[:0] = others
            else:
                for other, outcome in zip(others, found[1:], strict=True):
                    other.outcome = outcome
                    other.call()
        if found is None:
            return alone()
        if found[0].error is not None:
            raise found[0].error
        return found[0].value

    def _hand_on(self) -> None:
        """The next one leads."""
        with self._mutex:
            after = self._waiting.pop(0) if self._waiting else None
            self._busy = after is not None
        if after is not None:
            after.call()

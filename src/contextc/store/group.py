"""Writers that wait for the disk together: their transactions are brought to it as one.

A commit costs what the disk takes to say that it has it, however much is in it. So while one writer waits for that, the
others stand in line, and the first of them then runs the work of all: each between two savepoints, as if it were alone
and they had come one after the other. Who fails takes nothing along. Where the whole cannot be stored nothing was, and
everybody is run alone, once, which tells them what is wrong. A writer that is alone is not kept waiting.

Signals come to the main thread only, and may end it anywhere. So it never stands in line, nobody writes for it, and it
for nobody. It takes turns with those who lead, by locks that are held by a `with` and by nothing else: an interrupt
leaves none of them behind.
"""

import threading
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Protocol

from contextc.errors import InvalidInput
from contextc.store.base import T, Transaction

MOST = 100
"""Writers whose work is one transaction."""


class Together(Protocol):
    """Runs pieces of work in one transaction; what each gave or raised, or None where nothing was stored."""

    def __call__(self, works: Sequence[Callable[[Transaction], Any]]) -> "list[Outcome] | None": ...


class Outcome:
    """What came of a piece of work."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:  # as different as what they do
        self.value, self.error = value, error


class _Writer:
    """One who stands in line. `outcome` is there when somebody has done the work; else it is this one's to do.

    `alone` says that a group it was in could not be stored: it is in no other.
    """

    __slots__ = ("_turn", "alone", "outcome", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.alone = False
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
        self._inside: set[int] = set()
        """The threads that are here: a write inside a write would wait for itself."""
        self._disk = threading.Lock()
        """Held by whoever writes."""
        self._main = threading.Lock()
        """Held by the main thread while it writes or is next: meanwhile nobody who leads goes on to the disk."""
        self._kept = threading.Lock()
        """Held by one who leads and waits: the main thread does not come before it a second time."""

    def write(self, work: Callable[[Transaction], T], alone: Callable[[], T]) -> T:
        """Do a piece of work with those of others, or as it is done `alone`."""
        return self._once(lambda: self._for_itself(alone) if _is_main() else self._in_line(_Writer(work), alone))

    def at_once(self, statement: Callable[[], bool]) -> bool:
        """Run one short statement where nobody writes; False where somebody does: then it goes in line, as work."""
        return self._once(lambda: self._for_itself(statement) if _is_main() else self._if_free(statement))

    def _once(self, write: Callable[[], T]) -> T:
        me = get_ident()
        if me in self._inside:
            raise InvalidInput(
                "A write was begun inside another one of the same thread, and would wait for itself. Use the "
                "transaction that the work is given, or write when it is done."
            )
        try:
            self._inside.add(me)
            return write()
        finally:
            self._inside.discard(me)

    def _for_itself(self, write: Callable[[], T]) -> T:
        """The main thread's turn."""
        with self._kept:
            pass
        with self._main, self._disk:
            return write()

    def _if_free(self, statement: Callable[[], bool]) -> bool:
        with self._mutex:
            if self._busy:
                return False
            self._busy = True
        return self._lead(statement)

    def _in_line(self, writer: _Writer, alone: Callable[[], T]) -> T:
        with self._mutex:
            leads, self._busy = not self._busy, True
            if not leads:
                self._waiting.append(writer)
        if not leads:
            writer.wait()
        if writer.outcome is None:
            return self._lead(lambda: self._for_all(writer, alone))
        if writer.outcome.error is not None:
            raise writer.outcome.error
        return writer.outcome.value

    def _lead(self, write: Callable[[], T]) -> T:
        """Write when it is not the main thread's turn; then the next one leads."""
        with self._kept:
            with self._main:
                pass
            self._disk.acquire()
        try:
            return write()
        finally:
            self._disk.release()
            self._hand_on()

    def _for_all(self, writer: _Writer, alone: Callable[[], T]) -> T:
        """The work of all who wait, or of one alone where nobody else does."""
        others = [] if writer.alone else self._take_others()
        if not others:
            return alone()
        found: list[Outcome] | None = None
        try:
            found = self._together([writer.work, *[other.work for other in others]])
        finally:
            if found is None:  # nothing was stored: each for itself
                for other in others:
                    other.alone = True
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

    def _take_others(self) -> list[_Writer]:
        with self._mutex:
            others = [each for each in self._waiting if not each.alone][: MOST - 1]
            taken = set(others)
            self._waiting = [each for each in self._waiting if each not in taken]
        return others

    def _hand_on(self) -> None:
        """The next one leads."""
        with self._mutex:
            after = self._waiting.pop(0) if self._waiting else None
            self._busy = after is not None
        if after is not None:
            after.call()


def _is_main() -> bool:
    return get_ident() == threading.main_thread().ident

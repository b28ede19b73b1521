"""Group commit: concurrent writers of one process share a transaction.

A commit costs one disk sync, however much it contains. While one writer waits for the sync, the others queue. The
first in the queue (the leader) then runs the work of all queued writers in one transaction. Each runs in a savepoint,
so a failure affects only its own work. If the group cannot be stored, nothing was stored, and each writer then runs
alone once to get its own error. A single writer does not wait.

Python runs signal handlers on the main thread, which may raise anywhere. The main thread therefore never queues, and
never shares a transaction. It alternates with the leaders. All its locks are held by `with`, so an interrupt releases
them.
"""

import threading
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Protocol

from contextc.errors import InvalidInput
from contextc.store.backend_interface import Result, Transaction

MAX_GROUP_SIZE = 100
"""Maximum number of writers in one transaction."""


class GroupRunner(Protocol):
    """Runs several pieces of work in one transaction. Returns an outcome for each, or None if nothing was stored."""

    def __call__(self, works: Sequence[Callable[[Transaction], Any]]) -> "list[WorkOutcome] | None": ...


class WorkOutcome:
    """The result of a piece of work: its return value or its exception."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:  # any return type
        self.value, self.error = value, error


class _QueuedWriter:
    """A queued writer. `outcome` is set if a leader ran its work; otherwise the writer leads itself.

    `alone` is True after its group could not be stored: it joins no other group.
    """

    __slots__ = ("_turn", "alone", "outcome", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.alone = False
        self.outcome: WorkOutcome | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        self._turn.acquire()

    def call(self) -> None:
        self._turn.release()


class WriteQueue:
    """The queue of writers of one process."""

    def __init__(self, together: GroupRunner) -> None:
        self._run_group = together
        self._mutex = threading.Lock()
        self._waiting: list[_QueuedWriter] = []
        self._busy = False
        self._inside: set[int] = set()
        """Threads that are writing or queued: a nested write would deadlock."""
        self._disk = threading.Lock()
        """Held by the thread that writes."""
        self._main_thread = threading.Lock()
        """Held by the main thread while it writes or is next: leaders wait meanwhile."""
        self._leader_waits = threading.Lock()
        """Held by a waiting leader: the main thread cannot overtake it twice."""

    def write(self, work: Callable[[Transaction], Result], run_alone: Callable[[], Result]) -> Result:
        """Run work in a group, or by calling `run_alone`."""
        return self._refuse_nested(
            lambda: (
                self._write_on_main_thread(run_alone)
                if _is_main()
                else self._queue_and_run(_QueuedWriter(work), run_alone)
            )
        )

    def try_now(self, statement: Callable[[], bool]) -> bool:
        """Run one short statement if no other thread writes. Otherwise return False: queue it with `write`."""
        return self._refuse_nested(
            lambda: self._write_on_main_thread(statement) if _is_main() else self._run_if_free(statement)
        )

    def _refuse_nested(self, write: Callable[[], Result]) -> Result:
        me = get_ident()
        if me in self._inside:
            raise InvalidInput(
                "A write was started inside another one of the same thread, which would deadlock",
                fix="Use the transaction that the work received, or write after it has returned.",
            )
        try:
            self._inside.add(me)
            return write()
        finally:
            self._inside.discard(me)

    def _write_on_main_thread(self, write: Callable[[], Result]) -> Result:
        """Write on the main thread."""
        with self._leader_waits:
            pass
        with self._main_thread, self._disk:
            return write()

    def _run_if_free(self, statement: Callable[[], bool]) -> bool:
        with self._mutex:
            if self._busy:
                return False
            self._busy = True
        return self._lead(statement)

    def _queue_and_run(self, writer: _QueuedWriter, alone: Callable[[], Result]) -> Result:
        with self._mutex:
            leads, self._busy = not self._busy, True
            if not leads:
                self._waiting.append(writer)
        if not leads:
            writer.wait()
        if writer.outcome is None:
            return self._lead(lambda: self._run_queued(writer, alone))
        if writer.outcome.error is not None:
            raise writer.outcome.error
        return writer.outcome.value

    def _lead(self, write: Callable[[], Result]) -> Result:
        """Write when the main thread does not; then make the next writer lead."""
        with self._leader_waits:
            with self._main_thread:
                pass
            self._disk.acquire()
        try:
            return write()
        finally:
            self._disk.release()
            self._wake_next()

    def _run_queued(self, writer: _QueuedWriter, alone: Callable[[], Result]) -> Result:
        """Run the work of all queued writers, or of this one alone if no other is queued."""
        others = [] if writer.alone else self._take_others()
        if not others:
            return alone()
        found: list[WorkOutcome] | None = None
        try:
            found = self._run_group([writer.work, *[other.work for other in others]])
        finally:
            if found is None:  # nothing was stored: each runs alone
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

    def _take_others(self) -> list[_QueuedWriter]:
        with self._mutex:
            others = [each for each in self._waiting if not each.alone][: MAX_GROUP_SIZE - 1]
            taken = set(others)
            self._waiting = [each for each in self._waiting if each not in taken]
        return others

    def _wake_next(self) -> None:
        """Make the next writer lead."""
        with self._mutex:
            after = self._waiting.pop(0) if self._waiting else None
            self._busy = after is not None
        if after is not None:
            after.call()


def _is_main() -> bool:
    return get_ident() == threading.main_thread().ident

"""The store is synchronous, so a turn calls it on a worker thread, and always waits for the end.

How much of it runs at a time is bounded for the whole process. Work that also runs code of users (fragments, triggers)
is counted apart: where such code blocks, the store can still be written.

A durable step that has begun is not to be left alone: who is cancelled while it runs is told so afterwards, when what
it did is certain.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, cast

from contextc._threads import Slots, as_exception, limit_from_environment, run_soon

T = TypeVar("T")
Given = TypeVarTuple("Given")
THREADS = limit_from_environment("CONTEXTC_STORE_THREADS", 64)
STORE, CALLBACKS, REQUESTS = Slots(THREADS), Slots(THREADS), Slots(THREADS)
"""Work on the store alone; work that also runs code of users; requests of a web server."""


async def durable(work: Callable[[Unpack[Given]], T], *given: *Given, slots: Slots = STORE) -> T:
    """Run blocking work on a thread. A cancellation that comes meanwhile is raised when the work is done."""
    job = _Job(lambda: work(*given), slots)
    slots.take(job.start)
    cancelled: asyncio.CancelledError | None = None
    while not job.done:
        try:
            await job.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if job.error is not None:
        raise as_exception(job.error)
    return cast(T, job.value)


def stops(error: BaseException) -> bool:
    """Whether an error ends the task or the process that it came up in, and is no failure of the code that ran.

    A coroutine of a user may raise CancelledError by itself, though its task was not cancelled.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


async def settled(future: "asyncio.Future[Any]") -> None:
    """Wait until something has ended, however it ends. A cancellation that comes meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if not future.cancelled():
        future.exception()  # it was seen
    if cancelled is not None:
        raise cancelled


def afterwards(work: Callable[[], None]) -> None:
    """Do something small when the durable work that runs on this thread has ended, on its event loop.

    So a loop is woken once for all that one piece of work leads to. Outside of durable work it is done at once.
    """
    job: _Job[Any] | None = getattr(_here, "job", None)
    if job is None:
        work()
    else:
        job.afterwards.append(work)


_here = threading.local()


class _Job(Generic[T]):
    """Work on another thread, for one who waits on an event loop. `done` changes on the loop alone."""

    __slots__ = ("_loop", "_slots", "_waiting", "_work", "afterwards", "done", "error", "value")

    def __init__(self, work: Callable[[], T], slots: Slots) -> None:
        self._work, self._slots, self._loop = work, slots, asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] = self._loop.create_future()
        self.done = False
        self.afterwards: list[Callable[[], None]] = []
        self.value: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        try:
            run_soon(self._run, self._deliver)
        except RuntimeError as error:  # no thread can be started
            self.error = error
            self._deliver()

    def _run(self) -> None:
        _here.job = self
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error
        finally:
            _here.job = None

    def _deliver(self) -> None:
        self._slots.give()
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop was closed: nobody waits
            self._tell()

    def wait(self) -> "asyncio.Future[None]":
        """What to wait for; after a cancellation it is another one."""
        if self._waiting.done():
            self._waiting = self._loop.create_future()
        return self._waiting

    def _end(self) -> None:
        self._tell()
        self.done = True
        if not self._waiting.done():
            self._waiting.set_result(None)

    def _tell(self) -> None:
        for work in self.afterwards:
            work()

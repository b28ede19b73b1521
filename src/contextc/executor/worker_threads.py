"""Run blocking store work of a turn on worker threads, and always wait for its end.

The number of threads is limited for the whole process. Work that also runs user code (fragments, triggers) has a limit
of its own: if such code blocks, the store can still be written.

Started work is never abandoned. A cancellation that arrives while it runs is raised afterwards, when its outcome is
known.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, cast

from contextc._worker_threads import ConcurrencyLimit, as_exception, read_thread_limit, submit

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
MAX_THREADS = read_thread_limit("CONTEXTC_STORE_THREADS", 64)
STORE_SLOTS, CALLBACK_SLOTS, REQUEST_SLOTS = (
    ConcurrencyLimit(MAX_THREADS),
    ConcurrencyLimit(MAX_THREADS),
    ConcurrencyLimit(MAX_THREADS),
)
"""Thread limits for store work, for work that also runs user code, and for requests of the web server."""


async def run_blocking(
    work: Callable[[Unpack[Arguments]], T], *given: *Arguments, slots: ConcurrencyLimit = STORE_SLOTS
) -> T:
    """Run blocking work on a thread. A cancellation that arrives meanwhile is raised when the work is done."""
    job = _Job(lambda: work(*given), slots)
    slots.acquire(job.start)
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


def ends_task(error: BaseException) -> bool:
    """Return True if an exception ends the current task or process, rather than being a failure of the called code.

    User code may raise CancelledError itself although its task was not cancelled.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


async def wait_until_done(future: "asyncio.Future[Any]") -> None:
    """Wait until a future is done, without raising its error. A cancellation meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if not future.cancelled():
        future.exception()  # mark it as retrieved
    if cancelled is not None:
        raise cancelled


def defer(work: Callable[[], None]) -> None:
    """Run a short callback on the event loop after the `run_blocking` work on this thread has ended.

    This wakes the loop once per work, not once per callback. Outside of `run_blocking` the callback runs immediately.
    """
    job: _Job[Any] | None = getattr(_current, "job", None)
    if job is None:
        work()
    else:
        job.deferred.append(work)


_current = threading.local()


class _Job(Generic[T]):
    """Work on another thread that an event loop awaits. `done` changes only on the loop."""

    __slots__ = ("_loop", "_slots", "_waiting", "_work", "deferred", "done", "error", "value")

    def __init__(self, work: Callable[[], T], slots: ConcurrencyLimit) -> None:
        self._work, self._slots, self._loop = work, slots, asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] = self._loop.create_future()
        self.done = False
        self.deferred: list[Callable[[], None]] = []
        self.value: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        try:
            submit(self._run, self._deliver)
        except RuntimeError as error:  # no thread can be started
            self.error = error
            self._deliver()

    def _run(self) -> None:
        _current.job = self
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error
        finally:
            _current.job = None

    def _deliver(self) -> None:
        self._slots.release()
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop was closed: nothing awaits the work
            self._run_deferred()

    def wait(self) -> "asyncio.Future[None]":
        """Return the future to await, a new one after a cancellation."""
        if self._waiting.done():
            self._waiting = self._loop.create_future()
        return self._waiting

    def _end(self) -> None:
        self._run_deferred()
        self.done = True
        if not self._waiting.done():
            self._waiting.set_result(None)

    def _run_deferred(self) -> None:
        for work in self.deferred:
            work()

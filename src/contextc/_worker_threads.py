"""Worker threads for blocking work, separate from asyncio's default pool.

The default pool is small, and user code and SDKs share it (`asyncio.to_thread`, DNS lookups). Work that waits for one
of its threads while holding another can deadlock. All blocking work of this package therefore runs on the threads
below, and no thread ever waits for an event loop.

A thread runs one piece of work at a time. Work that never ends keeps its thread, and the next piece gets another one.
`ConcurrencyLimit` limits how many pieces of one kind run at a time.

`run_blocking` is for store work of a turn. Started work is never abandoned: a cancellation that arrives while it runs
is raised afterwards, when its outcome is known. Work that also runs user code (fragments, triggers) has a limit of its
own: if such code blocks, the store can still be written.
"""

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack, cast

from contextc.errors import InvalidSetting, describe_error

T = TypeVar("T")
Args = TypeVarTuple("Args")
Work: TypeAlias = Callable[[], None]
IDLE_SECONDS = 10.0

_idle: "list[_Worker]" = []


def submit(work: Work, deliver: Work) -> None:
    """Run work on a worker thread, free the thread, then run `deliver` there. Neither may raise.

    Raises RuntimeError if no thread can be started.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.given.put((work, deliver))


async def run_in_thread(work: Callable[[Unpack[Args]], T], *given: *Args) -> T:
    """Run blocking work on a worker thread and return its result. Replaces `asyncio.to_thread`.

    A cancelled caller does not wait; the thread finishes in the background.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    ended: asyncio.Future[None] = loop.create_future()
    values: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            values.append(context.run(work, *given))
        except BaseException as error:
            errors.append(error)

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def deliver() -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(end)

    submit(run, deliver)
    await ended
    if errors:
        raise as_exception(errors[0])
    return values[0]


def as_exception(error: BaseException) -> Exception:
    """Return the error as an Exception that an event loop can deliver to one task.

    SystemExit and KeyboardInterrupt end a whole event loop. On a worker thread they come from the code that ran there.
    A user's Ctrl-C is raised on the main thread only.
    """
    if isinstance(error, Exception):
        return error
    made = RuntimeError(f"the code that ran raised {describe_error(error)}")
    made.__cause__ = error
    return made


class ConcurrencyLimit:
    """A limit on concurrent pieces of work of one kind. Waiters are served in order of arrival."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)  # a forked process has none of these threads

    def _reset(self) -> None:
        self._free, self._waiting, self._lock = self.limit, deque[Work](), threading.Lock()

    def acquire(self, then: Work) -> None:
        """Call `then` as soon as a slot is free: at once, or later on the thread that frees one."""
        with self._lock:
            if not self._free:
                self._waiting.append(then)
                return
            self._free -= 1
        then()

    def release(self) -> None:
        """Free a slot, and give it to the next waiter."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            then = self._waiting.popleft()
        then()

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None, None]:
        """Hold a slot for the block. Waiting for it blocks no thread."""
        loop = asyncio.get_running_loop()
        ours: asyncio.Future[None] = loop.create_future()
        has_left = False

        def mark() -> None:
            if has_left:
                self.release()
            elif not ours.done():
                ours.set_result(None)

        def then() -> None:
            try:
                loop.call_soon_threadsafe(mark)
            except RuntimeError:  # the loop was closed while this waited
                self.release()

        with self._lock:
            is_free = self._free > 0
            if is_free:
                self._free -= 1
            else:
                self._waiting.append(then)
        try:
            if not is_free:
                await ours
        except BaseException:
            has_left = True
            if ours.done() and not ours.cancelled():  # the slot arrived together with the cancellation
                self.release()
            raise
        try:
            yield
        finally:
            self.release()


def read_thread_limit(name: str, default: int) -> int:
    """Read a number of threads from an environment variable."""
    value = os.environ.get(name, "").strip() or str(default)
    if not value.isdecimal() or not int(value[:9]) > 0:
        raise InvalidSetting(f"{name} must be an integer above 0", got=value, fix=f"Set it to {default}, or unset it.")
    return int(value[:9])


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="contextc-worker", daemon=True)
        self.given: SimpleQueue[tuple[Work, Work]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                work, deliver = self.given.get(timeout=IDLE_SECONDS)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # it was just taken, and work will arrive
                return
            work()
            _idle.append(self)
            deliver()
            del work, deliver  # release their references before the next work arrives


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process has none of these threads


MAX_THREADS = read_thread_limit("CONTEXTC_STORE_THREADS", 64)
STORE_SLOTS, CALLBACK_SLOTS, REQUEST_SLOTS = (
    ConcurrencyLimit(MAX_THREADS),
    ConcurrencyLimit(MAX_THREADS),
    ConcurrencyLimit(MAX_THREADS),
)
"""Thread limits for store work, for work that also runs user code, and for requests of the web server."""


async def run_blocking(work: Callable[[Unpack[Args]], T], *given: *Args, slots: ConcurrencyLimit = STORE_SLOTS) -> T:
    """Run blocking work on a thread, with the context variables of the caller. A cancellation that arrives meanwhile is
    raised when the work is done.
    """
    context = contextvars.copy_context()
    job = _Job(lambda: context.run(work, *given), slots)
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

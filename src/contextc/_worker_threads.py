"""Worker threads for blocking work, separate from asyncio's default pool.

The default pool is small, and user code and SDKs share it (`asyncio.to_thread`, DNS lookups). Work that waits for one
of its threads while holding another can deadlock. All blocking work of this package therefore runs on the threads
below, and no thread ever waits for an event loop.

A thread runs one piece of work at a time. Work that never ends keeps its thread, and the next piece gets another one.
`ConcurrencyLimit` limits how many pieces of one kind run at a time.
"""

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar, TypeVarTuple, Unpack

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

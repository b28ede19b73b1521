"""`store.aio`: the methods of a store as coroutines, for code on an event loop.

Each of them calls the method of the store on a worker thread. `CONTEXTC_STORE_THREADS` limits how many run at a time.
Waiting for a lease takes no thread, because the call that releases it needs one.

Started work is never abandoned: a cancellation that arrives meanwhile is raised when the work is done.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, ConversationBusy, InvalidInput
from contextc.messages import Message, Usage
from contextc.store.message_log import DEFAULT_AGENT, Lease, check_name
from contextc.store.store import Store, leases_of
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import Stream, StreamDelta, StreamStatus

P = ParamSpec("P")
T = TypeVar("T")


HEAD_START_SECONDS = 0.25
"""Seconds for which openings go before other work, at most."""


class Openings:
    """The leases that are being taken on one event loop.

    Where hundreds of turns begin at one moment, all of them begin before the first one goes on: its caller waits for
    its model anyway, the others wait for a sign.
    """

    def __init__(self) -> None:
        self._count = 0
        self._going: dict[int, None] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextmanager
    def opening(self) -> Generator[None]:
        """Count an opening for the time of the block."""
        number = self._count
        self._count, self._going[number] = number + 1, None
        try:
            yield
        finally:
            del self._going[number]
            oldest = next(iter(self._going), self._count)
            while self._waiting and self._waiting[0][0] <= oldest:
                _, waiting = self._waiting.popleft()
                if not waiting.done():
                    waiting.set_result(None)

    async def wait(self) -> None:
        """Wait for the openings that have begun until now, for a short time."""
        if not self._going:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((self._count, waiting))
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_START_SECONDS):
                await waiting


_openings: WeakKeyDictionary[asyncio.AbstractEventLoop, Openings] = WeakKeyDictionary()


def openings_of_loop() -> Openings:
    """Return the openings of the running event loop."""
    return _openings.setdefault(asyncio.get_running_loop(), Openings())


async def wait_for_lease(
    store: Store,
    conversation: str,
    agent: str,
    *,
    wait: float,
    ttl: float,
    take: Callable[[bool], T],
    before_waiting: Callable[[], None] | None = None,
) -> T:
    """Call `take` on a thread until it gets the lease, for at most `wait` seconds, and return its result.

    `take` raises `ConversationBusy` if another turn holds the lease. It gets True if a late process that is alive
    should still get time to renew it. `before_waiting` is called once, on a thread, if it has to wait.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed: nothing to wake
            loop.call_soon_threadsafe(woken.set)

    leases = leases_of(store)
    with leases.queue.join(conversation, agent, wake, wait=wait, ttl=ttl) as waiter:
        waiter.is_stored = before_waiting is None
        while True:
            woken.clear()
            try:
                if not waiter.is_first:
                    raise await run_blocking(leases.load_busy_error, conversation, agent)
                with openings_of_loop().opening():
                    return await run_blocking(take, waiter.is_patient)
            except ConversationBusy as busy:
                held_here = leases.holds_lease(conversation, agent, busy.number)
                seconds = waiter.next_poll_delay(busy, held_here=held_here)
            if before_waiting is not None and waiter.may_store:
                await run_blocking(before_waiting)
                waiter.is_stored = True
                waiter.wake_next()
                seconds = 0.0  # the lease may be free by now
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), seconds)


class AwaitedMethod(Generic[P, T]):
    """A method of a store as a coroutine function with the same parameters."""

    def __init__(self, method: Callable[Concatenate[Store, P], T]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: "AsyncStore", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: "AsyncStore | None", owner: type) -> "Self | Callable[P, Coroutine[Any, Any, T]]":
        if instance is None:
            return self
        method: Callable[P, T] = getattr(instance.store, self._name)  # a back-end may have its own

        @wraps(method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return await run_blocking(partial(method, *args, **kwargs))

        return call


class AsyncStream:
    """A message being written, as `Stream`. `write` only collects; `flush` and `end` store, and are awaited.

    Use it in an `async with`: an exception ends it as `error`, a cancellation as `cancelled`.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return repr(self.stream).replace("<Stream", "<AsyncStream", 1)

    @property
    def uid(self) -> str:
        """The uid of the message that is being written."""
        return self.stream.uid

    @property
    def message(self) -> Message | None:
        """The message as it was stored, once the stream has ended."""
        return self.stream.message

    def write(self, delta: StreamDelta | str) -> None:
        """Add text, reasoning or a call. Raises `LeaseLost` after the turn has ended."""
        self.stream.write(delta)

    def write_call(self, id: str, name: str, piece: str) -> None:
        """Add the next piece of the JSON text of a call's arguments. Pieces of several calls may interleave."""
        self.stream.write_call(id, name, piece)

    async def flush(self) -> None:
        """Journal what was written so far. The store does this four times a second."""
        await run_blocking(self.stream.flush)

    async def end(
        self,
        message: Message | None = None,
        *,
        status: StreamStatus | None = None,
        error: str | None = None,
        finish: str | None = None,
        usage: Usage | None = None,
    ) -> Message:
        """Append the message to the chain, as `Stream.end`."""
        return await run_blocking(
            partial(self.stream.end, message, status=status, error=error, finish=finish, usage=usage)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_blocking(self.stream.__exit__, kind, error, trace)


class AsyncStore:
    """The methods of a store as coroutines: `await store.aio.append("demo", message)`. Their docs are those of `Store`.

    `lease` is an asynchronous context manager, and `stream` returns an `AsyncStream`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def __repr__(self) -> str:
        return repr(self.store).replace("<Store", "<AsyncStore", 1)

    append = AwaitedMethod(Store.append)
    extend = AwaitedMethod(Store.extend)
    load = AwaitedMethod(Store.load)
    sync = AwaitedMethod(Store.sync)
    conversation = AwaitedMethod(Store.conversation)
    conversations = AwaitedMethod(Store.conversations)
    begin = AwaitedMethod(Store.begin)
    overview = AwaitedMethod(Store.overview)
    overviews = AwaitedMethod(Store.overviews)
    set_title = AwaitedMethod(Store.set_title)
    tags = AwaitedMethod(Store.tags)
    tag = AwaitedMethod(Store.tag)
    untag = AwaitedMethod(Store.untag)
    notes = AwaitedMethod(Store.notes)
    add_note = AwaitedMethod(Store.add_note)
    delete_note = AwaitedMethod(Store.delete_note)
    blob = AwaitedMethod(Store.blob)
    backup = AwaitedMethod(Store.backup)
    branches = AwaitedMethod(Store.branches)
    fork = AwaitedMethod(Store.fork)
    rewind = AwaitedMethod(Store.rewind)
    edit = AwaitedMethod(Store.edit)
    switch = AwaitedMethod(Store.switch)
    reset = AwaitedMethod(Store.reset)
    pin = AwaitedMethod(Store.pin)
    unpin = AwaitedMethod(Store.unpin)
    pinned = AwaitedMethod(Store.pinned)
    delete = AwaitedMethod(Store.delete)
    redact = AwaitedMethod(Store.redact)
    redact_text = AwaitedMethod(Store.redact_text)
    expire = AwaitedMethod(Store.expire)
    todos = AwaitedMethod(Store.todos)
    add_todo = AwaitedMethod(Store.add_todo)
    set_todo = AwaitedMethod(Store.set_todo)
    change_todos = AwaitedMethod(Store.change_todos)
    replace_todos = AwaitedMethod(Store.replace_todos)
    turns = AwaitedMethod(Store.turns)
    steps = AwaitedMethod(Store.steps)
    events = AwaitedMethod(Store.events)
    enqueue = AwaitedMethod(Store.enqueue)
    queued = AwaitedMethod(Store.queued)
    approvals = AwaitedMethod(Store.approvals)
    turn_approvals = AwaitedMethod(Store.turn_approvals)
    answer_approval = AwaitedMethod(Store.answer_approval)
    approval_rules = AwaitedMethod(Store.approval_rules)
    revoke_rule = AwaitedMethod(Store.revoke_rule)
    answered_turns = AwaitedMethod(Store.answered_turns)
    cancel_turn = AwaitedMethod(Store.cancel_turn)
    stop_turn = AwaitedMethod(Store.stop_turn)
    turn_requests = AwaitedMethod(Store.turn_requests)
    release = AwaitedMethod(Store.release)
    recover = AwaitedMethod(Store.recover)
    close = AwaitedMethod(Store.close)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction that reads."""
        return await run_blocking(self.store.read, work)

    async def write(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> T:
        """Run `work` in a transaction that writes, as `Store.write`."""
        return await run_blocking(partial(self.store.write, work, repeatable=repeatable))

    async def pending_erasure(self) -> int:
        """Return the number of redactions and deletions whose content is still in the files of the store."""
        return await run_blocking(lambda: self.store.pending_erasure)

    async def acquire(
        self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0
    ) -> Lease:
        """Take the lease, for code that cannot use an `async with`. End it with `release`."""
        check_name(agent, "agent")
        if ttl <= 0:
            raise InvalidInput("ttl must be above 0 seconds", got=ttl)
        taken: list[Lease] = []

        def take(patient: bool) -> Lease:
            taken.append(leases_of(self.store).try_acquire(conversation, agent, ttl=ttl, patient=patient))
            return taken[0]

        try:
            return await wait_for_lease(self.store, conversation, agent, wait=wait, ttl=ttl, take=take)
        except asyncio.CancelledError:
            for lease in taken:  # it was taken when the cancellation arrived: the caller does not get it
                await run_blocking(self.store.release, lease)
            raise

    @asynccontextmanager
    async def lease(
        self, conversation: str, agent: str = DEFAULT_AGENT, *, ttl: float = 30, wait: float = 0
    ) -> AsyncGenerator[Lease, None]:
        """Hold the lease of an agent in a conversation, renewed until the block ends, as `Store.lease`."""
        lease = await self.acquire(conversation, agent, ttl=ttl, wait=wait)
        try:
            yield lease
        except BaseException:
            with suppress(ContextcError):  # keep the exception of the block
                await run_blocking(partial(self.store.release, lease, failed=True))
            raise
        await run_blocking(self.store.release, lease)

    async def stream(self, lease: Lease, head: Message | None = None) -> AsyncStream:
        """Open a stream for a message whose content is still arriving, as `Store.stream`."""
        return AsyncStream(await run_blocking(self.store.stream, lease, head))

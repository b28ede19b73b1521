"""Following the events of a conversation, from any number on.

What this process stores is handed to its watchers as it is stored; what another process stores is found by looking. A
watcher that is slow keeps nobody waiting: it has an inbox of its own, and what no longer fits in is read from the store
when its turn comes.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from weakref import WeakKeyDictionary

from contextc.errors import UnknownConversation
from contextc.events import AnyEvent
from contextc.executor.threads import durable
from contextc.store import Store

INBOX = 2_000
PAGE = 500
LOOK_SECONDS = 0.5


class Hub:
    """Who watches which conversation of a store, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[str, list[Inbox]] = {}

    def tell(self, conversation: str, events: Sequence[AnyEvent]) -> None:
        """Hand on events that were stored. From any thread."""
        if not events:
            return
        with self._lock:
            watchers = tuple(self._watchers.get(conversation, ()))
        for inbox in watchers:
            inbox.put(events)

    def look(self, conversation: str) -> None:
        """Have watchers look into the store, where something was stored that nobody handed on."""
        with self._lock:
            watchers = tuple(self._watchers.get(conversation, ()))
        for inbox in watchers:
            inbox.miss()

    def join(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            self._watchers.setdefault(conversation, []).append(inbox)

    def leave(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            watchers = self._watchers.get(conversation, [])
            if inbox in watchers:
                watchers.remove(inbox)
            if not watchers:
                self._watchers.pop(conversation, None)


class Inbox:
    """What one watcher has not seen yet."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._new = False
        self._waiting: asyncio.Future[bool] | None = None
        self._lock = threading.Lock()
        self._events: list[AnyEvent] = []
        self._overflowed = False

    def put(self, events: Sequence[AnyEvent]) -> None:
        with self._lock:
            if len(self._events) + len(events) > INBOX:
                self._overflowed = True
            else:
                self._events.extend(events)
        self.wake()

    def miss(self) -> None:
        """Note that something came which is not here."""
        with self._lock:
            self._overflowed = True
        self.wake()

    def wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._ring()
        else:
            with suppress(RuntimeError):  # the loop of a watcher that did not say goodbye is closed
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._new = True
        _answer(self._waiting, True)

    def take(self) -> tuple[list[AnyEvent], bool]:
        """What has come, and whether more came than is here."""
        self._new = False
        with self._lock:
            events, self._events = self._events, []
            overflowed, self._overflowed = self._overflowed, False
        return events, overflowed

    async def wait(self, seconds: float) -> bool:
        """Wait for news; False where there were none."""
        if self._new:
            return True
        self._waiting = waiting = self._loop.create_future()
        timer = self._loop.call_later(seconds, _answer, waiting, False)
        try:
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None


def _answer(waiting: "asyncio.Future[bool] | None", answer: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


_hubs: WeakKeyDictionary[Store, Hub] = WeakKeyDictionary()
_hubs_lock = threading.Lock()


def hub(store: Store) -> Hub:
    with _hubs_lock:
        return _hubs.setdefault(store, Hub())


async def watch(store: Store, conversation: str, after: int = 0) -> AsyncGenerator[AnyEvent, None]:
    """Every event after number `after`, in order, none twice; then those to come."""
    async with aclosing(watch_together(store, conversation, after)) as found:
        async for events in found:
            for event in events:
                yield event


async def watch_together(
    store: Store,
    conversation: str,
    after: int = 0,
    *,
    inbox: Inbox | None = None,
    done: Callable[[], bool] = lambda: False,
    look: bool = True,
    pulse: bool = False,
) -> AsyncGenerator[Sequence[AnyEvent], None]:
    """As `watch`, until `done`; events that are ready together come together. With `pulse`, none come twice a second of
    silence. An `inbox` that is given is already among those the hub tells; `look=False` says that it missed nothing.
    """
    box = inbox or Inbox()
    if inbox is None:
        hub(store).join(conversation, box)
    seen: int = after
    try:
        while True:
            ended = done()
            events, overflowed = box.take()
            fresh: Sequence[AnyEvent] = [event for event in events if event.number > seen]
            if look or overflowed or [event.number for event in fresh] != [*range(seen + 1, seen + 1 + len(fresh))]:
                page: list[AnyEvent] = await durable(_page, store, conversation, seen)
                look, fresh = len(page) == PAGE, page
            if fresh:
                seen = fresh[-1].number
                yield fresh
            if look or fresh:
                continue
            if ended:
                return
            look = not await box.wait(LOOK_SECONDS)
            if look and pulse:
                yield ()
    finally:
        if inbox is None:
            hub(store).leave(conversation, box)


def _page(store: Store, conversation: str, after: int) -> list[AnyEvent]:
    try:
        return store.events(conversation, after=after, limit=PAGE)
    except UnknownConversation:
        return []

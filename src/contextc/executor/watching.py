"""Following the events of a conversation, from any number on.

What this process stores is handed to its watchers as it is stored. What another process stores is found by one thread,
which asks the store for all watched conversations at once: a watcher of a quiet conversation costs nothing. A watcher
that is slow keeps nobody waiting: it has an inbox of its own, and what no longer fits in is read from the store when
its turn comes.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from weakref import WeakKeyDictionary, ref

from contextc.errors import ContextcError, UnknownConversation
from contextc.events import AnyEvent
from contextc.executor.threads import durable
from contextc.store import Store
from contextc.store.turns import last_events

log = logging.getLogger(__name__)
INBOX = 2_000
PAGE = 500
LOOK_SECONDS = 0.25
POLLER = "contextc-watch"


class Hub:
    """Who watches which conversation of a store, in this process."""

    def __init__(self, store: Store) -> None:
        self._store = ref(store)
        self._lock = threading.Lock()
        self._watchers: dict[str, list[Inbox]] = {}
        self._poller: threading.Thread | None = None

    def tell(self, conversation: str, events: Sequence[AnyEvent]) -> None:
        """Hand on events that were stored. From any thread."""
        if not events:
            return
        with self._lock:
            watchers = tuple(self._watchers.get(conversation, ()))
        for inbox in watchers:
            inbox.put(events)

    def look(self, conversation: str | None = None) -> None:
        """Have watchers look into the store, of one conversation or of all. From any thread."""
        with self._lock:
            found = self._watchers if conversation is None else {conversation}
            watchers = [inbox for each in found for inbox in self._watchers.get(each, ())]
        for inbox in watchers:
            inbox.miss()

    def join(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            self._watchers.setdefault(conversation, []).append(inbox)
            if self._poller is None or not self._poller.is_alive():  # a forked process has none
                self._poller = threading.Thread(target=self._poll, name=POLLER, daemon=True)
                self._poller.start()

    def leave(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            watchers = self._watchers.get(conversation, [])
            if inbox in watchers:
                watchers.remove(inbox)
            if not watchers:
                self._watchers.pop(conversation, None)

    def _poll(self) -> None:
        """Look for what other processes stored, as long as anything is watched."""
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                watched = {name: tuple(each) for name, each in self._watchers.items()}
                store = self._store()
                if not watched or store is None:
                    self._poller = None
                    return
            try:
                found = store.read(lambda tx, names=tuple(watched): last_events(tx, names))
            except Exception as error:
                if not isinstance(error, ContextcError):  # else the store is away or closed, and may be back later
                    log.warning("looking for the events of other processes failed", exc_info=error)
                continue
            finally:
                del store
            for name, inboxes in watched.items():
                for inbox in inboxes:
                    inbox.found(*found.get(name, (0, 0)))


class Inbox:
    """What one watcher has not seen yet. `root` is the number of the conversation it is for, where that matters."""

    def __init__(self, root: int = 0) -> None:
        self.root, self.is_replaced = root, False
        """Whether the conversation was deleted, or is another one of its name by now."""
        self._last = -1
        self._loop = asyncio.get_running_loop()
        self._new = False
        self._waiting: asyncio.Future[bool] | None = None
        self._lock = threading.Lock()
        self._events: list[AnyEvent] = []
        self._overflowed = False

    def put(self, events: Sequence[AnyEvent]) -> None:
        with self._lock:
            self._last = max(self._last, events[-1].number)
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

    def found(self, root: int, last: int) -> None:
        """Take note of what the store holds: the conversation's number, and that of its last event."""
        with self._lock:
            is_new, is_replaced = last > self._last, bool(self.root) and root != self.root
            self._last, self.is_replaced = max(self._last, last), self.is_replaced or is_replaced
        if is_new or is_replaced:
            self.miss()

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

    async def wait(self, seconds: float | None) -> bool:
        """Wait for news; False where there were none for so many seconds."""
        if self._new:
            return True
        self._waiting = waiting = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _answer, waiting, False)
        try:
            return await waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting = None


def _answer(waiting: "asyncio.Future[bool] | None", answer: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


_hubs: WeakKeyDictionary[Store, Hub] = WeakKeyDictionary()
_hubs_lock = threading.Lock()


def hub(store: Store) -> Hub:
    with _hubs_lock:
        found = _hubs.get(store)
        if found is None:
            found = _hubs[store] = Hub(store)
        return found


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
    pulse: float | None = None,
) -> AsyncGenerator[Sequence[AnyEvent], None]:
    """As `watch`, until `done`; events that are ready together come together. With `pulse`, none come after so many
    seconds of silence, and where the watcher was woken for nothing. An `inbox` that is given is already among those the
    hub tells; `look=False` says that it missed nothing.
    """
    box = inbox or Inbox()
    if inbox is None:
        hub(store).join(conversation, box)
    seen: int = after
    is_woken = False
    try:
        while True:
            ended = done()
            events, overflowed = box.take()
            fresh: Sequence[AnyEvent] = [event for event in events if event.number > seen]
            if look or overflowed or [event.number for event in fresh] != [*range(seen + 1, seen + 1 + len(fresh))]:
                page: list[AnyEvent] = await durable(_page, store, conversation, seen)
                look, fresh = len(page) == PAGE, page
            if fresh:
                seen, is_woken = fresh[-1].number, False
                yield fresh
            if look or fresh:
                continue
            if ended:
                return
            if is_woken and pulse is not None:
                yield ()
            while not await box.wait(pulse):
                yield ()
            is_woken = True
    finally:
        if inbox is None:
            hub(store).leave(conversation, box)


def _page(store: Store, conversation: str, after: int) -> list[AnyEvent]:
    try:
        return store.events(conversation, after=after, limit=PAGE)
    except UnknownConversation:
        return []

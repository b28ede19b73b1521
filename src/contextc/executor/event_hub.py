"""Watch the events of a conversation, from any event number on.

Events stored by this process are delivered to its watchers directly. Events of other processes are found by one thread.
A PostgreSQL store with a queue notifies it of changes; otherwise it polls all watched conversations with one query. A
watcher of an idle conversation costs nothing. A slow watcher does not block others: each has an inbox, and events that
do not fit into it are read from the store later.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from weakref import WeakKeyDictionary, ref

from contextc._credential_mask import get_logger
from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, UnknownConversation
from contextc.events import AnyEvent
from contextc.store import Store
from contextc.store.store import engine_of, leases_of
from contextc.store.transaction_engine import ChangeListener, merge_changes
from contextc.store.turn_records import WatchedState, load_events_of_many, load_watched_states

log = get_logger(__name__)
MAX_INBOX_EVENTS = 2_000
PAGE_EVENTS = 500
POLL_SECONDS = 0.25
CHECK_SECONDS = 5.0
"""Seconds without a notification after which all watched conversations are looked at nevertheless."""
GATHER_SECONDS = 0.01
"""Seconds in which further notifications are gathered."""
LISTEN_ATTEMPT_SECONDS, LINGER_SECONDS = 30.0, 30.0
POLLER_THREAD_NAME = "contextc-watch"


class EventHub:
    """The watchers of a store's conversations in this process."""

    def __init__(self, store: Store) -> None:
        self._store = ref(store)
        self._lock = threading.Lock()
        self._inboxes: dict[str, list[Inbox]] = {}
        self._poller: threading.Thread | None = None
        self._numbers: dict[str, int] = {}
        """The numbers of watched conversations, as far as they are known."""
        self.is_notified = False
        """True while the store notifies this process of new events. Watchers then need no `refresh`."""

    def publish(self, conversation: str, events: Sequence[AnyEvent]) -> None:
        """Deliver stored events to the watchers. Callable from any thread."""
        if not events:
            return
        with self._lock:
            watchers = tuple(self._inboxes.get(conversation, ()))
        for inbox in watchers:
            inbox.put(events)

    def announce(self, conversation: str, last: int) -> None:
        """Tell watchers that events up to a number are stored and will be published: they need not read the store.

        Callable from any thread.
        """
        with self._lock:
            watchers = tuple(self._inboxes.get(conversation, ()))
        for inbox in watchers:
            inbox.note_read(last)

    def note_change(self, conversation: str) -> None:
        """Make the watchers of a conversation read the store, unless the store notifies them of its change anyway."""
        if not self.is_notified:
            self.refresh(conversation)

    def refresh(self, conversation: str | None = None) -> None:
        """Make the watchers of one or all conversations read the store. Callable from any thread."""
        with self._lock:
            found = self._inboxes if conversation is None else {conversation}
            watchers = [inbox for each in found for inbox in self._inboxes.get(each, ())]
        for inbox in watchers:
            inbox.mark_missed()

    def add_watcher(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            self._inboxes.setdefault(conversation, []).append(inbox)
            if self._poller is None or not self._poller.is_alive():  # a forked process has none
                self._poller = threading.Thread(target=self._poll, name=POLLER_THREAD_NAME, daemon=True)
                self._poller.start()

    def remove_watcher(self, conversation: str, inbox: "Inbox") -> None:
        with self._lock:
            watchers = self._inboxes.get(conversation, [])
            if inbox in watchers:
                watchers.remove(inbox)
            if not watchers:
                self._inboxes.pop(conversation, None)

    def _poll(self) -> None:
        """Look for events of other processes while a conversation is watched."""
        changes = ChangeSource(self._store)
        idle_since, has_failed = None, False
        while True:
            changed = changes.wait()
            self.is_notified = changes.is_listening
            with self._lock:
                watched = {name: tuple(each) for name, each in self._inboxes.items()}
                store = self._store()
                idle_since = None if watched else idle_since or time.monotonic()
                is_idle = idle_since is not None and time.monotonic() - idle_since >= changes.linger_seconds
                if store is None or is_idle:
                    self._poller, self.is_notified = None, False
                    changes.close()
                    return
            try:
                if changed is not None and not has_failed:
                    watched = self._deliver(store, changed, watched)
                found = store.read(lambda tx, names=tuple(watched): load_watched_states(tx, names)) if watched else {}
                for name, state in found.items():
                    if state.has_end_request:
                        leases_of(store).find_end_requests(name)
            except Exception as error:
                has_failed = True  # notifications are lost: look at all conversations next time
                if not isinstance(error, ContextcError):  # otherwise the store is closed, or unavailable for a while
                    log.warning("looking for events of other processes failed", exc_info=error)
                continue
            finally:
                del store
            has_failed = False
            numbered = {name: state.conversation for name, state in found.items()}
            if changed is not None:
                numbered = {name: known for name, known in self._numbers.items() if name in self._inboxes} | numbered
            self._numbers = numbered
            for name, inboxes in watched.items():
                for inbox in inboxes:
                    inbox.compare_with_store(*found.get(name, WatchedState())[:2])

    def _deliver(
        self, store: Store, changed: Mapping[int, int], watched: Mapping[str, "tuple[Inbox, ...]"]
    ) -> "dict[str, tuple[Inbox, ...]]":
        """Deliver the events that were notified, read for all conversations at once.

        Return the watched conversations that need a further look.
        """
        rest: dict[str, tuple[Inbox, ...]] = {}
        behind: dict[int, tuple[Inbox, ...]] = {}
        for name, inboxes in watched.items():
            number = self._numbers.get(name, 0)
            last = changed.get(number, -1) if number else 0
            late = tuple([each for each in inboxes if each.last_event < last])
            if not last or any(each.last_event < 0 for each in late):
                rest[name] = inboxes
            elif late:
                behind[number] = late
        starts = {number: min([each.last_event for each in inboxes]) for number, inboxes in behind.items()}
        found = store.read(lambda tx: load_events_of_many(tx, starts, PAGE_EVENTS)) if starts else {}
        for number, events in found.items():
            for inbox in behind[number]:
                if len(events) == PAGE_EVENTS:
                    inbox.mark_missed()
                elif events:
                    inbox.put(events)
        return rest


class ChangeSource:
    """Tells when to look for events of other processes: after a notification of the store, or periodically."""

    def __init__(self, store: "ref[Store]") -> None:
        self._store = store
        self._listener: ChangeListener | None = None
        self._next_attempt = 0.0

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    @property
    def linger_seconds(self) -> float:
        """The seconds that a listener is kept without a watcher."""
        return LINGER_SECONDS if self._listener is not None else 0.0

    def wait(self) -> dict[int, int] | None:
        """Return the conversations that changed, each with the number of its last event, or None to look at all."""
        if self._listener is None:
            time.sleep(0 if self._try_listen() else POLL_SECONDS)
            return None
        changed = self._listener.wait(CHECK_SECONDS)
        if changed is None:  # the connection has ended
            self.close()
            return None
        time.sleep(GATHER_SECONDS if changed else 0)
        return merge_changes([changed, self._listener.wait(0) or {}]) if changed else None

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _try_listen(self) -> bool:
        """Open a listener, unless that was tried a short time ago."""
        store = self._store()
        if store is not None and time.monotonic() >= self._next_attempt:
            self._next_attempt = time.monotonic() + LISTEN_ATTEMPT_SECONDS
            self._listener = engine_of(store).open_listener()
        return self._listener is not None


class Inbox:
    """The undelivered events of one watcher.

    `conversation_number` is the number of its conversation, 0 if it is not checked.
    """

    def __init__(self, conversation_number: int = 0) -> None:
        self.conversation_number, self.is_replaced = conversation_number, False
        """True if the conversation was deleted, or replaced by another of the same name."""
        self.last_event = -1
        """The number of the last event that the watcher has, or will read. -1 if that is not known."""
        self._loop = asyncio.get_running_loop()
        self._has_new = False
        self._waiter: asyncio.Future[bool] | None = None
        self._lock = threading.Lock()
        self._events: list[AnyEvent] = []
        self._overflowed = False

    def put(self, events: Sequence[AnyEvent]) -> None:
        with self._lock:
            self.last_event = max(self.last_event, events[-1].number)
            if len(self._events) + len(events) > MAX_INBOX_EVENTS:
                self._overflowed = True
            else:
                self._events.extend(events)
        self.wake()

    def mark_missed(self) -> None:
        """Record that events exist that are not in the inbox."""
        with self._lock:
            self._overflowed = True
        self.wake()

    def compare_with_store(self, root: int, last: int) -> None:
        """Compare with the store: the conversation's number and the number of its last event."""
        with self._lock:
            is_new, is_replaced = (
                last > self.last_event,
                bool(self.conversation_number) and root != self.conversation_number,
            )
            self.last_event, self.is_replaced = max(self.last_event, last), self.is_replaced or is_replaced
        if is_new or is_replaced:
            self.mark_missed()

    def note_read(self, last: int) -> None:
        """Record that the watcher has all events up to a number, or gets them without a look at the store."""
        with self._lock:
            self.last_event = max(self.last_event, last)

    def wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._wake_on_loop()
        else:
            with suppress(RuntimeError):  # the watcher's loop was closed without leaving the hub
                self._loop.call_soon_threadsafe(self._wake_on_loop)

    def _wake_on_loop(self) -> None:
        self._has_new = True
        _resolve(self._waiter, True)

    def take_events(self) -> tuple[list[AnyEvent], bool]:
        """Return the events, and True if more exist than the inbox holds."""
        self._has_new = False
        with self._lock:
            events, self._events = self._events, []
            overflowed, self._overflowed = self._overflowed, False
        return events, overflowed

    async def wait(self, seconds: float | None) -> bool:
        """Wait for new events. Return False if none came within `seconds`."""
        if self._has_new:
            return True
        self._waiter = waiting = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _resolve, waiting, False)
        try:
            return await waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None


def _resolve(waiting: "asyncio.Future[bool] | None", answer: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


_hubs: WeakKeyDictionary[Store, EventHub] = WeakKeyDictionary()
_hubs_lock = threading.Lock()


def event_hub(store: Store) -> EventHub:
    with _hubs_lock:
        found = _hubs.get(store)
        if found is None:
            found = _hubs[store] = EventHub(store)
        return found


async def watch(store: Store, conversation: str, after: int = 0) -> AsyncGenerator[AnyEvent, None]:
    """Yield every event after number `after`, in order and once, then new ones as they occur."""
    async with aclosing(watch_batches(store, conversation, after)) as found:
        async for events in found:
            for event in events:
                yield event


async def watch_batches(
    store: Store,
    conversation: str,
    after: int = 0,
    *,
    inbox: Inbox | None = None,
    done: Callable[[], bool] = lambda: False,
    read_first: bool = True,
    heartbeat: float | None = None,
) -> AsyncGenerator[Sequence[AnyEvent], None]:
    """Yield events in batches as `watch` does, until `done` returns True.

    With `heartbeat`, an empty batch follows after so many seconds without events, and after a wake-up without events. A
    given `inbox` must already be registered with the hub; `read_first=False` means that it has missed no event.
    """
    box = inbox or Inbox()
    if inbox is None:
        event_hub(store).add_watcher(conversation, box)
    seen: int = after
    is_woken = False
    try:
        while True:
            ended = done()
            events, overflowed = box.take_events()
            fresh: Sequence[AnyEvent] = [event for event in events if event.number > seen]
            if (
                read_first
                or overflowed
                or [event.number for event in fresh] != [*range(seen + 1, seen + 1 + len(fresh))]
            ):
                page: list[AnyEvent] = await run_blocking(_load_page, store, conversation, seen)
                read_first, fresh = len(page) == PAGE_EVENTS, page
                if not read_first:
                    box.note_read(page[-1].number if page else seen)
            if fresh:
                seen, is_woken = fresh[-1].number, False
                yield fresh
            if read_first or fresh:
                continue
            if ended:
                return
            if is_woken and heartbeat is not None:
                yield ()
            while not await box.wait(heartbeat):
                yield ()
            is_woken = True
    finally:
        if inbox is None:
            event_hub(store).remove_watcher(conversation, box)


def _load_page(store: Store, conversation: str, after: int) -> list[AnyEvent]:
    try:
        return store.events(conversation, after=after, limit=PAGE_EVENTS)
    except UnknownConversation:
        return []

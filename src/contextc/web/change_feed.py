"""The change feed: changes of the store by any process, for all open pages; and deletions, for event streams.

While a page is connected, one task asks the store twice a second, with one query for all pages together. A change is
encoded once and sent to every page. Entries are numbered, so that a page that reconnects continues where it was. A page
that has missed too much gets a `reset`: it must load everything again.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc._credential_mask import get_logger
from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError
from contextc.executor.event_hub import event_hub
from contextc.proxy.proxy_status import ProxyStatus, read_statuses
from contextc.store import Store
from contextc.store.conversation_list import (
    ConversationChanges,
    ConversationOverview,
    States,
    load_changes,
    load_states,
    mark_waiting,
)

# ── the change feed ───────────────────────────────────────────────────────────────────────────────────────────────────


log = get_logger(__name__)
POLL_SECONDS = 0.5
RESET = "reset"
ENDED = "ended"
"""The event of a server that ends with the program that it shows."""
MAX_ENTRIES = 256
"""Entries that are kept for pages that reconnect."""


class ConversationsEvent(Struct, frozen=True, kw_only=True):
    """Conversations that are new or have changed, as in the list, and the names of deleted ones."""

    conversations: list[ConversationOverview]
    removed: list[str]


class ProxiesEvent(Struct, frozen=True, kw_only=True):
    """All running proxies that record to this store."""

    proxies: list[ProxyStatus]


class FeedEntry(NamedTuple):
    number: int
    event: str
    data: bytes


class ChangeFeed:
    """The changes of a store, and of approvals: `waiting` returns the conversations that need one, `parked` those with
    a parked turn, and why.

    Entries begin above those of an earlier server, because clients may have its numbers.
    """

    def __init__(
        self,
        store: Store,
        waiting: Callable[[], frozenset[str]] = frozenset,
        parked: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._store, self._waiting, self._parked = store, waiting, parked
        self._marked: set[tuple[str, str]] = set()
        """Conversations that need an approval, or with a parked turn, as of the last look."""
        self._states: States | None = None
        self._proxies: list[ProxyStatus] = []
        self._entries: deque[FeedEntry] = deque(maxlen=MAX_ENTRIES)
        self._last = self._first = time.time_ns() // 1_000_000
        self._readers: set[asyncio.Event] = set()
        self.polling: asyncio.Task[None] | None = None
        """The task that asks the store while there are readers."""
        self._lock, self._has_failed = asyncio.Lock(), False

    async def read(self, after: int | None, heartbeat: float) -> AsyncGenerator[list[FeedEntry]]:
        """Yield entries after a number, then new ones; an empty list after `heartbeat` seconds and after `wake`.

        If entries are missing, because the reader was away or slow, the next one is `reset`.
        """
        woken = asyncio.Event()
        self._readers.add(woken)
        try:
            await self._start()
            while True:
                woken.clear()
                if after is None or not self._has_all(after):
                    found = [FeedEntry(self._last, RESET, b"{}"), self._proxies_entry(self._last)]
                else:
                    found = [each for each in self._entries if each.number > after]
                after = self._last
                yield found
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), heartbeat)
        finally:
            self._readers.discard(woken)

    def wake(self) -> None:
        for each in self._readers:
            each.set()

    async def end(self) -> None:
        """Pass the last changes on, and after them that the server ends for good."""
        await self.poll()
        self._add(ENDED, b"{}")

    def stop(self) -> None:
        """Stop polling."""
        if self.polling is not None:
            self.polling.cancel()
            self.polling = None

    def _has_all(self, after: int) -> bool:
        first = self._entries[0].number if len(self._entries) == MAX_ENTRIES else self._first + 1
        return first - 1 <= after <= self._last

    async def _start(self) -> None:
        """Start polling, unless it runs. The first result is there when this returns."""
        if self.polling is None or self.polling.done():
            await self.poll()
        if self.polling is None or self.polling.done():  # another reader may have started it meanwhile
            self.polling = asyncio.create_task(self._poll_while_read(), name="change feed")

    async def _poll_while_read(self) -> None:
        while self._readers:
            await asyncio.sleep(POLL_SECONDS)
            if self._readers:
                await self.poll()

    async def poll(self) -> None:
        """Ask the store once, and pass changes on to the readers. Errors of the store are ignored."""
        async with self._lock:
            try:
                found, proxies = await run_blocking(self._load)
            except Exception as error:
                self._has_failed = True
                if not isinstance(error, ContextcError):  # otherwise the store is closed, or unavailable for a while
                    log.warning("change feed: the store could not be read", exc_info=error)
                return
            is_late, is_first = self._has_failed, self._states is None
            self._states, self._has_failed = found.states, False
            if is_first and is_late:  # readers have nothing to compare with
                self._add(RESET, b"{}")
            if not is_first and (found.changed or found.removed):
                event = ConversationsEvent(conversations=found.changed, removed=found.removed)
                self._add("conversations", msgspec.json.encode(event))
            if proxies != self._proxies:
                self._proxies = proxies
                entry = self._proxies_entry(self._last + 1)
                self._add(entry.event, entry.data)

    def _load(self) -> tuple[ConversationChanges, list[ProxyStatus]]:
        address, before = self._store.address, self._states
        proxies = [] if address.startswith("memory:") else read_statuses(address)
        waiting, parked = self._waiting(), self._parked()
        marked = {(name, "") for name in waiting} | set(parked.items())
        if before is None:
            found = ConversationChanges(self._store.read(load_states), [], [])
        else:
            also = frozenset([name for name, _ in marked ^ self._marked])
            found = self._store.read(lambda tx: load_changes(tx, before, also=also))
        self._marked = marked
        return found._replace(changed=mark_waiting(found.changed, waiting, parked)), proxies

    def _proxies_entry(self, number: int) -> FeedEntry:
        return FeedEntry(number, "proxies", msgspec.json.encode(ProxiesEvent(proxies=self._proxies)))

    def _add(self, event: str, data: bytes) -> None:
        self._last += 1
        self._entries.append(FeedEntry(self._last, event, data))
        self.wake()


# ── deletions ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# An event stream has no end of its own. A deletion in this process ends the streams at once. Deletions by other
# processes are found by the thread that polls for events (`executor.event_hub`).


class DeletionEvents:
    """The open event streams, by conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leaving: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def count(self) -> int:
        """Number of open streams."""
        return sum([len(each) for each in self._leaving.values()])

    @contextmanager
    def watch(self, conversation: str) -> Generator[asyncio.Event]:
        """Yield an event that is set when the conversation is deleted."""
        self._loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        self._leaving.setdefault(conversation, set()).add(gone)
        try:
            yield gone
        finally:
            left = self._leaving[conversation]
            left.discard(gone)
            if not left:
                del self._leaving[conversation]

    def notify_deleted(self, conversation: str) -> None:
        """Notify the streams of a deleted conversation. Thread-safe."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._notify, conversation)

    def _notify(self, conversation: str) -> None:
        for gone in self._leaving.get(conversation, ()):
            gone.set()
        event_hub(self._store).refresh(conversation)  # wake the streams, which wait for events

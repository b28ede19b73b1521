"""Channels as their last request left them, so that the next request of each reads no rows. Limited in bytes."""

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from contextc.observation.exchange_parser import ParsedElements
from contextc.observation.head_facts import HeadFacts
from contextc.store import Store
from contextc.store.ledger_schema import Channel, ChannelState, StoredRow

MAX_CACHED_BYTES = 64 << 20


class KnownChannel(NamedTuple):
    """A channel as its last request left it. `counts` has the number of elements of each row. If it `is_incomplete`,
    rows have lost their bytes, because a message was redacted or damaged, and nothing continues them.
    """

    number: int
    version: int
    state: ChannelState = ChannelState()
    rows: Sequence[StoredRow] = ()
    counts: Sequence[int] = ()
    parsed: ParsedElements = ParsedElements([], [], {}, [], [])
    head: str = ""
    facts: HeadFacts = HeadFacts()
    is_incomplete: bool = False


class ChannelCache:
    """The channels that were written last."""

    def __init__(self) -> None:
        self._known: dict[Channel, KnownChannel] = {}
        self._bytes = 0
        self._lock = Lock()

    def get(self, channel: Channel, number: int, version: int) -> KnownChannel | None:
        found = self._known.get(channel)
        return found if found is not None and (found.number, found.version) == (number, version) else None

    def put(self, channel: Channel, known: KnownChannel) -> None:
        with self._lock:
            self._remove(channel)
            self._known[channel] = known
            self._bytes += known.state.size
            while self._bytes > MAX_CACHED_BYTES and len(self._known) > 1:
                self._remove(next(iter(self._known)))

    def _remove(self, channel: Channel) -> None:
        if (known := self._known.pop(channel, None)) is not None:
            self._bytes -= known.state.size


class PendingChannels:
    """The channels that one transaction has written so far. They are kept if it commits."""

    def __init__(self, cache: ChannelCache) -> None:
        self._cache, self._pending = cache, dict[Channel, KnownChannel]()

    def get(self, channel: Channel, number: int, version: int) -> KnownChannel | None:
        found = self._pending.get(channel)
        if found is not None and (found.number, found.version) == (number, version):
            return found
        return self._cache.get(channel, number, version)

    def put(self, channel: Channel, known: KnownChannel) -> None:
        self._pending[channel] = known

    def keep(self) -> None:
        for channel, known in self._pending.items():
            self._cache.put(channel, known)


_caches: WeakKeyDictionary[Store, ChannelCache] = WeakKeyDictionary()


def cache_of(store: Store) -> ChannelCache:
    return _caches.setdefault(store, ChannelCache())

"""In-memory cache of sealed rows by channel, so that the cost of a step depends on what is new only.

`ChannelCacheEntry` is a channel at one version. Later versions of the same channel share its lists, which only grow;
`count` is the length that belongs to this version. The cache of a store holds the most recently used channels up to a
number of bytes. Others are read again from the ledger.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, overload
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode
from contextc.compiler.ledger.summaries import Summary
from contextc.messages import Message
from contextc.store import Store
from contextc.store.ledger_schema import Channel, ChannelState, StoredRow
from contextc.store.message_rows import BranchTip

MAX_BYTES = 64_000_000
ROW_BYTES = 400  # estimated memory of a row besides its wire form
MAX_UNJOINED_ROWS = 24  # maximum number of rows that are not yet joined into the front chunk


class _RowPrefix(Sequence[StoredRow]):
    """The first rows of a growing list, without a copy: most steps read the last row only."""

    __slots__ = ("_count", "_rows")

    def __init__(self, rows: list[StoredRow], count: int) -> None:
        self._rows, self._count = rows, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StoredRow]:
        return islice(self._rows, self._count)

    def __reversed__(self) -> Iterator[StoredRow]:
        return map(self._rows.__getitem__, range(self._count - 1, -1, -1))

    @overload
    def __getitem__(self, index: int) -> StoredRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredRow]: ...

    def __getitem__(self, index: int | slice) -> StoredRow | list[StoredRow]:
        return self._rows[range(self._count)[index]] if isinstance(index, int) else self._rows[: self._count][index]


class CommitTail(NamedTuple):
    """The tail of the conversation after the last commit: its tip, the last reply, pins and summary.

    All of it stays valid while the conversation's revision is unchanged.
    """

    tip: BranchTip
    produced: tuple[tuple[int, Message], ...]
    pins: frozenset[int]
    summary: Summary | None


class ChannelCacheEntry:
    """The rows of a channel's epoch at one version. `since` is None if the tail must be read from the store."""

    __slots__ = (
        "_chunks",
        "_front",
        "_sealed",
        "count",
        "lead",
        "number",
        "since",
        "size",
        "standing",
        "used",
        "version",
    )

    def __init__(self, number: int, version: int, standing: ChannelState, sealed: Sequence[StoredRow] = ()) -> None:
        self.number, self.version, self.standing = number, version, standing
        self.lead: dict[int, Message] = {}
        self.since: CommitTail | None = None
        self._sealed = list(sealed)
        self._chunks = [each.chunk for each in sealed]
        self._front: tuple[int, bytes] = (0, b"")
        self.count = len(self._sealed)
        self.used = {name for each in sealed for name in each.row.ids}
        self.size = sum(map(len, self._chunks)) + ROW_BYTES * self.count

    @property
    def is_observed(self) -> bool:
        """True if other software sent the first request of the epoch."""
        rows = self._sealed[:1]
        return bool(rows) and bool(rows[0].row.items) and rows[0].row.items[0].verbatim

    @classmethod
    def from_rows(
        cls,
        number: int,
        version: int,
        standing: ChannelState,
        rows: Sequence[StoredRow],
        before: Sequence[StoredRow] = (),
    ) -> "ChannelCacheEntry":
        """Create an entry from rows. `before` are rows whose replacements are already applied."""
        if not any([each.row.drop for each in rows]):
            return cls(number, version, standing, [*before, *rows])
        sealed = list(before)
        for each in rows:
            if each.row.drop:
                remove_last_messages(sealed, each.row.drop)
            sealed.append(each)
        return cls(number, version, standing, sealed)

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes of memory: the rows, and their joined form."""
        return 2 * self.size

    @property
    def rows(self) -> Sequence[StoredRow]:
        return _RowPrefix(self._sealed, self.count)

    def extended(self, version: int, standing: ChannelState, rows: Sequence[StoredRow]) -> "ChannelCacheEntry":
        """Return the channel one commit later. It shares the existing rows, or copies them if a row replaces some."""
        if self.count != len(self._sealed) or any(each.row.drop for each in rows):
            return ChannelCacheEntry.from_rows(self.number, version, standing, rows, self.rows)
        later = ChannelCacheEntry.__new__(ChannelCacheEntry)
        later.number, later.version, later.standing, later.lead = self.number, version, standing, self.lead
        later._sealed, later._chunks = self._sealed, self._chunks
        later._front, later.since = self._front, None
        later.used, later.size = self.used, self.size
        for each in rows:
            later._sealed.append(each)
            later._chunks.append(each.chunk)
            later.used.update(each.row.ids)
            later.size += len(each.chunk) + ROW_BYTES
        later.count = len(later._sealed)
        return later

    def join_chunks(self) -> list[bytes]:
        """Return the wire messages of these rows in few chunks. The last row is a separate chunk."""
        rows, front = self._front
        if self.count - rows > MAX_UNJOINED_ROWS:
            rows = self.count - 1
            front = b",".join([chunk for chunk in self._chunks[:rows] if chunk])
            self._front = (rows, front)
        return [front, *self._chunks[rows : self.count]] if front else self._chunks[rows : self.count]

    def list_messages(self) -> list[JSONObject]:
        """Return all wire messages of these rows as plain data."""
        return split_chunk(b",".join([chunk for chunk in self.join_chunks() if chunk]))


def split_chunk(chunk: bytes) -> list[JSONObject]:
    return decode(b"[%b]" % chunk) if chunk else []


def join_messages(messages: Sequence[JSONObject]) -> bytes:
    return encode(messages)[1:-1]


def remove_last_messages(sealed: list[StoredRow], drop: int) -> None:
    """Remove wire messages at the end, which the next row replaces."""
    for index in range(len(sealed) - 1, -1, -1):
        inside = split_chunk(sealed[index].chunk)
        rest = inside[: max(0, len(inside) - drop)]
        drop -= len(inside) - len(rest)
        sealed[index] = replace(sealed[index], chunk=join_messages(rest), row=replace(sealed[index].row, held=True))
        if not drop:
            return


class ChannelCache:
    """The most recently used channels of one store."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.limit = limit
        self._kept: OrderedDict[Channel, ChannelCacheEntry] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, channel: Channel, number: int, version: int) -> ChannelCacheEntry | None:
        found = self._kept.get(channel)
        return found if found is not None and found.number == number and found.version == version else None

    def get_last(self, channel: Channel) -> ChannelCacheEntry | None:
        """Return the channel as this handle last used it. Other writers may have changed it since."""
        return self._kept.get(channel)

    def put(self, channel: Channel, shown: ChannelCacheEntry) -> None:
        with self._lock:
            if (before := self._kept.pop(channel, None)) is not None:
                self._size -= before.memory_bytes
            self._kept[channel] = shown
            self._size += shown.memory_bytes
            while self._size > self.limit and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.memory_bytes

    def clear(self) -> None:
        """Remove all entries. The next compile reads the ledger."""
        with self._lock:
            self._kept.clear()
            self._size = 0


_STORES: WeakKeyDictionary[Store, ChannelCache] = WeakKeyDictionary()


def get_channel_cache(store: Store) -> ChannelCache:
    """Return the cache of a store."""
    found = _STORES.get(store)
    if found is None:
        found = _STORES[store] = ChannelCache()
    return found

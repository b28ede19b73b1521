"""The ledger: what was sent on each channel, as rows, and the state that the next request continues from.

Its types are in `store/ledger_schema.py`. A row is the encoded form of some items; sealed rows are never encoded again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, takewhile
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload
from weakref import WeakKeyDictionary

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder, Encoder
from msgspec.structs import astuple, replace

from contextc._json import JSONObject, decode, encode, is_valid_text
from contextc.compiler.facts_in_texts import Receipt
from contextc.compiler.message_cache import decode_message_rows
from contextc.errors import InvalidInput, StoreCorrupt
from contextc.messages import Message, decode_message
from contextc.store import Store
from contextc.store.ledger_schema import (
    NO_CHANGES,
    Channel,
    ChannelState,
    EpochReason,
    Item,
    LedgerRow,
    ProviderSession,
    RowRange,
    StoredRow,
    find_head_changes,
    find_latest_copies,
    row_to_json,
    rows_from_json,
    state_from_json,
    state_to_json,
    unpack_record,
    unpack_wire,
)
from contextc.store.message_log import (
    DECODE_ERRORS,
    DEFAULT_AGENT,
    DOCTOR_HINT,
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    check_name,
    decode_row,
    decode_rows,
    load_between,
    load_context_start,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
    to_id,
)
from contextc.store.pins import load_pinned_places
from contextc.store.store import engine_of
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import load_last_turn

# ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Summaries in the store.
#
# A summary replaces everything that an agent sees up to one message, its anchor. It is written once, if there is none
# at that anchor. It applies to every branch that contains the anchor, and all messages that it was written from. So a
# fork has it too, and an edit before the anchor makes it inapplicable. One that was undone stays stored, and is not
# used.


class Summary(NamedTuple):
    """A stored summary of everything that an agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int
    humans: tuple[str, ...] = ()
    """Authors of the user messages up to the anchor."""
    opening: int | None = 0
    """Place of the message that opened the turn in progress at the anchor; 0 if there was none, None if unknown."""
    waits: bool = False
    """True if it is used only where the context is trimmed next."""
    missing: tuple[str, ...] = ()
    """The facts that the request lacked with it. The index names this first."""
    sources: Mapping[str, int] = MappingProxyType({})
    """Places of the messages that its facts, and those that are missing, are from."""


class StoredSummary(Struct, frozen=True, kw_only=True):
    """The stored form of a summary, with what the next one needs from the messages before it."""

    text: str
    made_by: str = ""
    time: int = 0
    humans: tuple[str, ...] = ()
    opening: int | None = None
    anchor_id: str | UnsetType = UNSET
    """Id of the message at the anchor; unset in summaries of older versions."""
    undone: tuple[tuple[int, int, int], ...] | UnsetType = UNSET
    """The position where it was taken out of use: conversation, branch, and number of the last message at that time."""
    seen: int | UnsetType = UNSET
    """Place of the last message that the summarizer was sent, if that is after the anchor."""
    receipt: Receipt | UnsetType = UNSET
    missing: tuple[str, ...] | UnsetType = UNSET
    """The facts that the request lacked before the index named them."""
    sources: dict[str, int] | UnsetType = UNSET
    waits: bool | UnsetType = UNSET
    """True if it is used only where the context is trimmed next."""
    before: int | UnsetType = UNSET
    """Tokens of what a summary that waits replaces."""


_encode_summary = Encoder().encode
_decode_summary = Decoder(StoredSummary).decode


LAST_SUMMARY = (
    "SELECT o.anchor, o.body, m.id FROM main.overlay o LEFT JOIN main.message m ON m.place = o.anchor"
    " WHERE o.tree = ? AND o.agent = ? AND o.anchor BETWEEN ? AND ? ORDER BY o.anchor DESC LIMIT 1"
)


RAISE_REVISIONS = "UPDATE main.conversation SET revision = revision + 1 WHERE tree = ?"


def load_latest_summary(tx: Transaction, agent: str, at: BranchTip, count: Callable[[str], int]) -> Summary | None:
    """Return the newest summary on the current branch that was not undone, and whose messages are still there."""
    for anchor, stored in load_summaries(tx, agent, at):
        waits = stored.waits is True
        tokens, missing = count(stored.text), stored.missing or ()
        return Summary(anchor, stored.text, tokens, stored.humans, stored.opening, waits, missing, stored.sources or {})
    return None


def load_summaries(tx: Transaction, agent: str, at: BranchTip) -> Iterator[tuple[int, StoredSummary]]:
    """Yield the summaries that are in use on the current branch, newest first, each with its anchor."""
    ranges = [*split_by_branch(load_lineage(tx, at.branch), 0, at.seq)]
    for branch, first, last in reversed(ranges):
        low, high = make_place(branch, first), make_place(branch, last)
        while (row := tx.row(LAST_SUMMARY, at.tree, agent, low, high)) is not None:
            stored, high = decode_row(_decode_summary, row[1], "A summary"), row[0] - 1
            if _is_anchored(stored, row[2]) and _is_seen(stored, ranges) and not _is_undone(stored, at, ranges):
                yield row[0], stored


def _is_seen(stored: StoredSummary, ranges: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if the branch has all messages that a summary was written from."""
    seen = stored.seen or 0
    return not seen or any(
        make_place(branch, first) <= seen <= make_place(branch, last) for branch, first, last in ranges
    )


def find_undone(tx: Transaction, agent: str, at: BranchTip, anchors: Iterable[int]) -> set[int]:
    """Return those of these anchors whose summaries were undone on the current branch."""
    ranges = [*split_by_branch(load_lineage(tx, at.branch), 0, at.seq)]
    found = [(anchor, load_summary(tx, at.tree, agent, anchor)) for anchor in anchors]
    return {anchor for anchor, stored in found if stored is not None and _is_undone(stored, at, ranges)}


def use_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int, stored: StoredSummary) -> None:
    """Let requests begin with a summary that waits."""
    _write_summary(tx, at.tree, agent, anchor, replace(stored, waits=UNSET))


def delete_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int) -> None:
    """Delete a summary that no request has used."""
    tx.run("DELETE FROM main.overlay WHERE tree = ? AND agent = ? AND anchor = ?", at.tree, agent, anchor)
    tx.run(RAISE_REVISIONS, at.tree)


def undo_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int) -> None:
    """Take a summary out of use on the current branch, and on branches that continue it."""
    stored = load_summary(tx, at.tree, agent, anchor)
    if stored is not None:
        _write_summary(
            tx,
            at.tree,
            agent,
            anchor,
            replace(stored, undone=(*(stored.undone or ()), (at.conversation, at.branch, at.seq))),
        )


def _is_undone(stored: StoredSummary, at: BranchTip, ranges: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if a summary was undone in this conversation, or in the one it was forked from, before the fork."""
    if not stored.undone:
        return False
    ends = {branch: last for branch, _, last in ranges}
    return any(
        conversation == at.conversation or ends.get(branch, -1) >= seq for conversation, branch, seq in stored.undone
    )


def load_summary(tx: Transaction, tree: int, agent: str, anchor: int) -> StoredSummary | None:
    """Return the summary at an anchor, in use or not."""
    row = tx.row("SELECT body FROM main.overlay WHERE tree = ? AND agent = ? AND anchor = ?", tree, agent, anchor)
    return decode_row(_decode_summary, row[0], "A summary") if row else None


def _write_summary(tx: Transaction, tree: int, agent: str, anchor: int, stored: StoredSummary) -> None:
    body = _encode_summary(stored)
    tx.run("UPDATE main.overlay SET body = ? WHERE tree = ? AND agent = ? AND anchor = ?", body, tree, agent, anchor)
    tx.run(RAISE_REVISIONS, tree)


def is_summary_lost(body: bytes, identity: object) -> bool:
    """Return True if a stored summary ends at another message than this one. None is a missing message."""
    return not _is_anchored(decode_row(_decode_summary, body, "A summary"), identity)


def _is_anchored(stored: StoredSummary, identity: object) -> bool:
    return identity is not None and stored.anchor_id in (UNSET, to_id(identity).hex())


def count_redacted(tx: Transaction, at: BranchTip) -> int:
    """Return the number of redacted messages on a branch."""
    counted = 0
    for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq):
        places = make_place(branch, first), make_place(branch, last)
        row = tx.row("SELECT count(*) FROM main.message WHERE place BETWEEN ? AND ? AND redacted <> 0", *places)
        counted += row[0] if row else 0
    return counted


def save_summary(
    tx: Transaction, at: BranchTip, agent: str, anchor: int, overlay: StoredSummary, redacted: int
) -> bool | None:
    """Store a summary of a branch that had so many redacted messages when it was read.

    Returns False if there is one at that anchor already, unless it was undone; None if the conversation was deleted, or
    a message redacted, while the summary was written, or if it would wait although there is a later one.
    """
    tx.run(RAISE_REVISIONS, at.tree)  # a redaction does the same first, so that one of the two waits for the other
    row = tx.row("SELECT id FROM main.message WHERE place = ?", anchor)
    if row is None or count_redacted(tx, at) != redacted:
        return None
    if overlay.waits is True and tx.row(LAST_SUMMARY, at.tree, agent, anchor + 1, anchor | SEQ_MASK):
        return None
    overlay = replace(overlay, anchor_id=to_id(row[0]).hex())
    made = tx.run(
        "INSERT INTO main.overlay (tree, agent, anchor, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        at.tree,
        agent,
        anchor,
        _encode_summary(overlay),
    )
    if not made and find_undone(tx, agent, at, [anchor]):
        _write_summary(tx, at.tree, agent, anchor, overlay)
        made = 1
    return made == 1


# ── rows that are kept in memory ──────────────────────────────────────────────────────────────────────────────────────
# In-memory cache of sealed rows by channel, so that the cost of a step depends on what is new only.
#
# `CachedChannelRows` is a channel at one version. Later versions of the same channel share its lists, which only grow;
# `count` is the length that belongs to this version. The cache of a store holds the most recently used channels up to
# a number of bytes, and of channels. Others are read again from the ledger.


MAX_BYTES, MAX_CHANNELS = 64_000_000, 2_000
CHANNEL_BYTES, ROW_BYTES = 3_600, 650
"""Estimated memory of a channel without rows, and half of that of a row without its wire form."""
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


class CachedChannelRows:
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
    ) -> "CachedChannelRows":
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
        return CHANNEL_BYTES + 2 * self.size

    @property
    def rows(self) -> Sequence[StoredRow]:
        return _RowPrefix(self._sealed, self.count)

    def extended(self, version: int, standing: ChannelState, rows: Sequence[StoredRow]) -> "CachedChannelRows":
        """Return the channel one commit later. It shares the existing rows, or copies them if a row replaces some."""
        if self.count != len(self._sealed) or any(each.row.drop for each in rows):
            return CachedChannelRows.from_rows(self.number, version, standing, rows, self.rows)
        later = CachedChannelRows.__new__(CachedChannelRows)
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


class Cacheable(Protocol):
    @property
    def memory_bytes(self) -> int: ...


Cached = TypeVar("Cached", bound=Cacheable)


class RecentChannels(Generic[Cached]):
    """One value for each of the most recently used channels, up to a number of bytes, and of channels."""

    def __init__(self, limit: int = MAX_BYTES, channels: int = MAX_CHANNELS) -> None:
        self.limit, self.channels = limit, channels
        self._kept: OrderedDict[Channel, Cached] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get_last(self, channel: Channel) -> Cached | None:
        """Return the channel as this handle last used it. Other writers may have changed it since."""
        return self._kept.get(channel)

    def put(self, channel: Channel, shown: Cached) -> None:
        with self._lock:
            self._remove(channel)
            self._kept[channel] = shown
            self._size += shown.memory_bytes
            while len(self._kept) > self.channels or (self._size > self.limit and len(self._kept) > 1):
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.memory_bytes

    def remove(self, channel: Channel) -> None:
        with self._lock:
            self._remove(channel)

    def clear(self) -> None:
        """Remove all entries. The next compile reads the store."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _remove(self, channel: Channel) -> None:
        if (before := self._kept.pop(channel, None)) is not None:
            self._size -= before.memory_bytes


class ChannelCache(RecentChannels[CachedChannelRows]):
    """The rows of the most recently used channels of one store."""

    def get(self, channel: Channel, number: int, version: int) -> CachedChannelRows | None:
        found = self._kept.get(channel)
        return found if found is not None and found.number == number and found.version == version else None


_STORES: WeakKeyDictionary[Store, ChannelCache] = WeakKeyDictionary()


def get_channel_cache(store: Store) -> ChannelCache:
    """Return the cache of a store."""
    found = _STORES.get(store)
    if found is None:
        found = _STORES[store] = ChannelCache()
    return found


# ── reading and writing rows ──────────────────────────────────────────────────────────────────────────────────────────
# The ledger in the store: channels, rows, request heads, attempts and manifests.
#
# Functions over a transaction. The cost of a commit depends on what is new only.


class OpenAttempt(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request that was sent, or was about to be: its session, and the hashes of its head and rows."""

    request: int
    token: str = ""
    session: str = ""
    head: str = ""
    chain: str = ""
    error: str = ""
    doubtful: bool = False
    """True if another request was open when this one began, and may have reached the session too."""
    kept: int = 0
    """The number under which a failed request can be inspected; 0 if it cannot."""


_encode_attempt = Encoder().encode
_decode_attempt = Decoder(OpenAttempt).decode
_check_json = Decoder(Raw).decode
ROW_LABEL = "A ledger row"
BODIES_PER_QUERY = 512

FIND_CHANNEL = (
    "SELECT number, version, state, attempt FROM main.channel"
    " WHERE conversation = ? AND agent = ? AND provider = ? AND model = ? AND directory = ?"
)


UPDATE_STATE = "UPDATE main.channel SET version = version + 1, state = ?, attempt = ? WHERE number = ? AND version = ?"


class ChannelRow(NamedTuple):
    """A channel's number and version, its encoded state, and its encoded attempt."""

    number: int
    version: int
    state: bytes
    attempt: bytes | None


def find_channel(tx: Transaction, channel: Channel, *, lock: bool = False) -> ChannelRow | None:
    """Return a channel. With `lock`, no other writer changes its row before this transaction ends."""
    row = tx.row(FIND_CHANNEL + tx.dialect.row_lock if lock else FIND_CHANNEL, *channel)
    return ChannelRow(*row) if row else None


def prefetch_locked_channel(tx: Transaction, channel: Channel) -> None:
    """Announce `find_channel(…, lock=True)`, which follows the lock of the conversation."""
    if tx.locked is not None:
        tx.prefetch(FIND_CHANNEL + tx.dialect.row_lock, *channel)


def load_state(tx: Transaction, channel: Channel) -> ChannelState | None:
    """Return the state of a channel; None if the channel does not exist."""
    found = find_channel(tx, channel)
    return decode_state(channel.conversation, found.state) if found else None


def load_parent_state(tx: Transaction, channel: Channel, at: BranchTip) -> ChannelState | None:
    """Return the state of the same channel in the conversation from which this one was forked.

    A run that has a channel of its own begins with the ledger of its agent, unless that has messages of another run
    that is still going, or the message that this run must answer: it was sent to the other run, too.
    """
    if channel.agent != channel.author:
        own = load_state(tx, channel._replace(agent=channel.author))
        turn = load_last_turn(tx, at.conversation, channel.agent)
        if own is None or not own.requests or not own.answered or own.going:
            return None
        return own if turn is None or own.seen < turn.opened else None
    for branch, _ in load_lineage(tx, at.branch)[1:]:
        row = tx.row("SELECT conversation FROM main.branch WHERE number = ?", branch)
        if row is None or row[0] is None or row[0] == channel.conversation:
            continue
        standing = load_state(tx, channel._replace(conversation=row[0]))
        if standing is not None and standing.requests:
            return standing
    return None


def decode_state(conversation: str, state: bytes) -> ChannelState:
    """Decode the state of a channel. Raises `StoreCorrupt`."""
    return decode_row(state_from_json, state, f"The state of a channel of {conversation!r}", DOCTOR_HINT)


def load_rows(tx: Transaction, layout: Iterable[RowRange]) -> list[StoredRow]:
    """Return the rows of an epoch, in order."""
    rows = _rows(tx, layout, "wire")
    packed = [item.place for _, row, wire in rows if row.packed and wire for item in row.items]
    bodies = load_bodies(tx, list(dict.fromkeys(packed))) if packed else {}
    chunks: dict[tuple[int, bytes], bytes] = {}  # epochs repeat rows
    found: list[StoredRow] = []
    for where, row, wire in rows:
        if row.packed and wire:
            key = (id(row), wire)
            if (chunk := chunks.get(key)) is None:
                chunk = chunks[key] = _unpacked(row, wire, bodies)
            wire = chunk
        found.append(StoredRow(where, row, wire))
    return found


def load_bodies(tx: Transaction, places: Sequence[int]) -> dict[int, bytes]:
    """Return the stored bytes of messages by place."""
    found: dict[int, bytes] = {}
    for start in range(0, len(places), BODIES_PER_QUERY):
        some = places[start : start + BODIES_PER_QUERY]
        marks = ", ".join("?" * len(some))
        found |= {
            where: body.encode() if isinstance(body, str) else bytes(body)  # text only if it was changed from outside
            for where, body in tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({marks})", *some)
        }
    return found


def _unpacked(row: LedgerRow, wire: bytes, bodies: Mapping[int, bytes]) -> bytes:
    known = b"".join([bodies.get(item.place, b"") for item in row.items])
    return decode_row(lambda stored: unpack_wire(stored, known), bytes(wire), ROW_LABEL)


def load_row_items(tx: Transaction, layout: Iterable[RowRange]) -> list[tuple[int, LedgerRow, int]]:
    """Return the rows of an epoch without their wire form: place, row, and number of wire bytes."""
    return [(where, row, row.packed or size) for where, row, size in _rows(tx, layout, "length(wire)")]


def _rows(
    tx: Transaction, layout: Iterable[RowRange], what: str
) -> list[tuple[int, LedgerRow, Any]]:  # Any: the type of the column
    rows = [
        row
        for channel, first, last in layout
        for row in tx.rows(
            f"SELECT place, items, {what} FROM main.shown WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(channel, first),
            make_place(channel, last),
        )
    ]
    # decoding all rows at once takes half the time; equal ones, which epochs repeat, are decoded once
    distinct = list(dict.fromkeys([items for _, items, _ in rows]))
    decoded = decode_row(lambda given: rows_from_json(b"[%b]" % b",".join(given)), distinct, ROW_LABEL)
    known = dict(zip(distinct, decoded, strict=True))
    return [(where, known[items], found) for where, items, found in rows]


def write_request(
    tx: Transaction,
    channel: int,
    request: int,
    manifest: bytes,
    *,
    rows: Sequence[tuple[LedgerRow, bytes]],
    first: int,
    head: tuple[bytes, bytes] | None,
    whole: bytes | None = None,
) -> None:
    """Write a request, of our own or of other software: its manifest, and its new rows from number `first` on.

    `head` is the hash and the body of its head, None if that is stored already. `whole` is its body if that differs
    from what the rows give.
    """
    if rows:
        sql = "INSERT INTO main.shown (place, items, wire) VALUES (?, ?, ?)"
        values = [
            (make_place(channel, first + index), row_to_json(row), wire) for index, (row, wire) in enumerate(rows)
        ]
        if len(values) == 1:
            tx.send(sql, *values[0])
        else:
            tx.run_many(sql, values)
    if whole is not None:
        tx.send("INSERT INTO main.replaced (place, body) VALUES (?, ?)", make_place(channel, request), whole)
    if head is not None:
        tx.send("INSERT INTO main.head (channel, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", channel, *head)
    tx.send("INSERT INTO main.manifest (place, body) VALUES (?, ?)", make_place(channel, request), manifest)


def create_channel(tx: Transaction, channel: Channel, standing: ChannelState) -> int:
    """Create a channel at version 1 and return its number; 0 if another writer created it first."""
    row = tx.row(
        "INSERT INTO main.channel (conversation, agent, provider, model, directory, version, state)"
        " VALUES (?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO NOTHING RETURNING number",
        *channel,
        state_to_json(standing),
    )
    return row[0] if row else 0


def update_state(
    tx: Transaction, number: int, version: int, standing: ChannelState, *, open_attempt: OpenAttempt | None = None
) -> bool:
    """Write the state of a channel and its open attempt. Returns False if it is no longer at `version`."""
    return tx.run(UPDATE_STATE, *_state_values(number, version, standing, open_attempt)) == 1


def replace_state(tx: Transaction, number: int, standing: ChannelState, *, close_attempt: bool) -> None:
    """Write the state of a channel at whatever version, and close its open attempt if it is unreadable too."""
    attempt = "attempt = NULL, " if close_attempt else ""
    sql = f"UPDATE main.channel SET {attempt}version = version + 1, state = ? WHERE number = ?"
    tx.run(sql, state_to_json(standing), number)


def update_locked_state(
    tx: Transaction, number: int, version: int, standing: ChannelState, *, open_attempt: OpenAttempt | None = None
) -> None:
    """Write the state of a channel that this transaction has locked at `version`, and its open attempt."""
    tx.send(UPDATE_STATE, *_state_values(number, version, standing, open_attempt))


def _state_values(
    number: int, version: int, standing: ChannelState, open_attempt: OpenAttempt | None
) -> tuple[bytes, bytes | None, int, int]:
    attempt = None if open_attempt is None else _encode_attempt(open_attempt)
    return state_to_json(standing), attempt, number, version


def load_head(tx: Transaction, channel: int, name: bytes) -> bytes | None:
    row = tx.row("SELECT body FROM main.head WHERE channel = ? AND hash = ?", channel, name)
    return bytes(row[0]) if row else None


def load_replaced(tx: Transaction, channel: int, request: int) -> bytes | None:
    row = tx.row("SELECT body FROM main.replaced WHERE place = ?", make_place(channel, request))
    return bytes(row[0]) if row else None


def replace_manifest(tx: Transaction, channel: int, number: int, body: bytes) -> None:
    tx.run("UPDATE main.manifest SET body = ? WHERE place = ?", body, make_place(channel, number))


def load_manifests(
    tx: Transaction, channel: int, until: int = FIRST_UNANSWERED, *, after: int = -1, limit: int | None = None
) -> list[bytes]:
    """Return the manifests of a channel after a request and up to another, newest first; the last few, or all."""
    rows = tx.rows(
        "SELECT body FROM main.manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC"
        + (f" LIMIT {limit}" if limit is not None else ""),
        make_place(channel, after + 1),
        make_place(channel, until),
    )
    return decode_rows(_checked_body, [body for (body,) in rows], "The manifest of a request")


def load_unanswered(tx: Transaction, channel: int, number: int | None = None) -> tuple[int, bytes] | None:
    """Return an unanswered request by its number; by default the last stored one, with its number."""
    low, high = (FIRST_UNANSWERED + 1, SEQ_MASK) if number is None else (number, number)
    row = tx.row(
        "SELECT place, body FROM main.manifest WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        make_place(channel, low),
        make_place(channel, high),
    )
    return (row[0] & SEQ_MASK, _checked_body(row[1])) if row else None


def next_row_for_unanswered_request(tx: Transaction, channel: int) -> int:
    """Return the next free row number for unanswered requests."""
    low, high = make_place(channel, FIRST_UNANSWERED + 1), make_place(channel, SEQ_MASK)
    row = tx.row("SELECT max(place) FROM main.shown WHERE place BETWEEN ? AND ?", low, high)
    return (row[0] & SEQ_MASK) + 1 if row and row[0] is not None else FIRST_UNANSWERED + 1


def _checked_body(body: bytes) -> bytes:
    """Return the body if it is valid JSON. The caller decodes it."""
    body = unpack_record(bytes(body))
    _check_json(body)
    return body


def save_attempt(tx: Transaction, number: int, attempt: OpenAttempt) -> None:
    """Store the attempt of a channel."""
    tx.send("UPDATE main.channel SET attempt = ? WHERE number = ?", _encode_attempt(attempt), number)


def save_attempt_if_unchanged(
    store: Store, number: int, version: int, attempt: OpenAttempt, seen: OpenAttempt | None
) -> bool:
    """Store the attempt with one statement, if the channel is at `version` and has no other attempt than `seen`.

    Returns False if that is not the case.
    """
    sql = "UPDATE main.channel SET attempt = ? WHERE number = ? AND version = ? AND (attempt IS NULL OR attempt = ?)"
    before = b"" if seen is None else _encode_attempt(seen)
    return bool(number) and engine_of(store).try_write_statement(
        sql, (_encode_attempt(attempt), number, version, before)
    )


def save_failure(tx: Transaction, number: int, token: str, error: str, stored_as: int = 0) -> None:
    """Record why a request failed, and the number under which it was stored.

    It is unknown how much of it a session received, so the attempt stays open.
    """
    row = tx.row(f"SELECT attempt FROM main.channel WHERE number = ?{tx.dialect.row_lock}", number)
    attempt = decode_attempt(row[0]) if row else None
    if attempt is not None and attempt.token == token:
        save_attempt(tx, number, replace(attempt, error=error, kept=stored_as))


def decode_attempt(stored: bytes | None) -> OpenAttempt | None:
    if stored is None:
        return None
    return decode_row(_decode_attempt, stored, "The open attempt of a channel", DOCTOR_HINT)


def load_channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, ChannelState, OpenAttempt | None]]:
    """Return number, name, state and attempt of all channels of a conversation."""
    return [
        (number, channel, decode_state(conversation, state), decode_attempt(attempt))
        for number, channel, state, attempt in load_encoded_channels(tx, conversation)
    ]


def load_encoded_channels(tx: Transaction, conversation: str) -> list[tuple[int, Channel, bytes, bytes | None]]:
    """Return number, name, and encoded state and attempt of all channels of a conversation."""
    rows = tx.rows(
        "SELECT number, agent, provider, model, directory, state, attempt FROM main.channel WHERE conversation = ?"
        " ORDER BY number",
        conversation,
    )
    return [(number, Channel(conversation, *name), state, attempt) for number, *name, state, attempt in rows]


def recover_counters(tx: Transaction, channel: int) -> ChannelState:
    """Return a state for a channel whose own one cannot be read: no session, and numbers that are still free."""

    def last(table: str) -> int:
        low, high = make_place(channel, 0), make_place(channel, FIRST_UNANSWERED)
        row = tx.row(f"SELECT max(place) FROM main.{table} WHERE place BETWEEN ? AND ?", low, high)
        return row[0] & SEQ_MASK if row and row[0] is not None else 0

    requests = last("manifest")
    return ChannelState(requests=requests, rows=last("shown"), epoch=requests)


# ── has the log changed under a channel? ──────────────────────────────────────────────────────────────────────────────
# Compare the ledger of a channel with the messages of its conversation.
#
# Nothing here deletes a message that was sent. Other programs can: rows are deleted manually, or a backup is restored
# in part. New messages then get the numbers of the lost ones, so numbers alone prove nothing. The id of a message
# depends on all messages before it. So the id of the last message that a channel knows shows, with one row, whether
# its log still ends or continues there. The full check looks up every message of the epoch; it runs when the rows are
# read anyway.


PLACES_PER_QUERY = 512
SEQ_BYTES = 4  # an id begins with the seq


def is_tip_lost(tx: Transaction, standing: ChannelState, at: BranchTip) -> bool:
    """Return True if the last message that a channel knows is missing, or another one is in its place.

    `at` is the end of the conversation. States of older versions have no id, so only a shorter log is noticed.
    """
    if not standing.branch or not (standing.requests or standing.held):
        return False
    if not standing.tip:
        return standing.branch == at.branch and at.seq < standing.seen
    return is_message_lost(tx, standing.branch, bytes.fromhex(standing.tip), at)


def is_message_lost(tx: Transaction, branch: int, identity: bytes, at: BranchTip) -> bool:
    """Return True if the chain that ends on a branch does not contain a message any more."""
    seq = int.from_bytes(identity[:SEQ_BYTES])
    if seq == 0:
        return False
    if branch == at.branch and seq >= at.seq:
        return seq > at.seq or at.id != identity
    row = tx.row("SELECT id FROM main.message WHERE place = ?", make_place(branch, seq))
    if row is None:  # on a parent of the branch
        for parent, _, _ in split_by_branch(load_lineage(tx, branch), seq - 1, seq):
            row = tx.row("SELECT id FROM main.message WHERE place = ?", make_place(parent, seq))
    return row is None or to_id(row[0]) != identity


def is_cursor_void(standing: ChannelState, at: BranchTip) -> bool:
    """Return True if a cursor was set, and the messages up to it may be others now, or end before it."""
    there = (standing.branch, standing.revision)
    return standing.held > at.seq or bool(standing.held and there != (at.branch, at.revision))


def has_lost_messages(tx: Transaction, rows: Iterable[LedgerRow]) -> bool:
    """Return True if a message of these rows is missing from the store."""
    places = list({item.place for row in rows for item in row.items if item.place})
    for start in range(0, len(places), PLACES_PER_QUERY):
        some = places[start : start + PLACES_PER_QUERY]
        found = tx.row(f"SELECT count(*) FROM main.message WHERE place IN ({', '.join('?' * len(some))})", *some)
        if found is None or found[0] < len(some):
            return True
    return False


def check_bases(tx: Transaction, at: BranchTip) -> None:
    """Raise `StoreCorrupt` if a branch of a conversation does not begin after the message it was created after.

    What precedes such a branch is the history of another conversation.
    """
    if at.branch == at.tree:
        return
    lineage = load_lineage(tx, at.branch)
    for (branch, base), (parent, _) in pairwise(lineage):
        row = tx.row(
            "SELECT m.id, b.base_id FROM main.branch b JOIN main.message m ON m.place = ? WHERE b.number = ?",
            make_place(parent, base),
            branch,
        )
        if row is not None and to_id(row[0]) != to_id(row[1]):
            raise StoreCorrupt(
                f"Branch {branch} begins after message {base} of branch {parent}, which is another message now",
                fix=DOCTOR_HINT,
            )


def without_rows(standing: ChannelState, lost: str) -> ChannelState:
    """Return the state of a channel whose ledger is gone: everything is sent again, in a new session."""
    return replace(
        ChannelState(),
        requests=standing.requests,
        rows=standing.rows,
        epoch=standing.epoch,
        head=standing.head,
        tools=standing.tools,
        overhead=standing.overhead,
        lost=lost,
    )


# ── loading a channel and what is new ─────────────────────────────────────────────────────────────────────────────────
# Load a channel: what was sent on it, and which messages are new.
#
# If only appends happened, this takes three short queries, whatever the length of the history, or one if this handle
# has just written the channel (`load_next`). After any other change, sent items that left the current branch are
# removed.


BLOCK_SIZE = 512
REPLIES_PER_BATCH = 32
AUTHOR = b'],"author":'  # follows the parts of a stored message
BEGINS_WITH_CALL = b'{"role":"assistant","parts":[{"type":"tool_call"'
LATEST_PER_BATCH = 64
"""Number of messages of people that are read at a time."""
MAX_LEADING = 8
FOLLOWING = (
    "SELECT m.place, m.id, m.body FROM main.channel h, main.conversation c, main.message m"
    " WHERE h.number = ? AND h.version = ? AND h.attempt IS NULL AND c.number = ? AND c.branch = ? AND c.revision = ?"
    f" AND m.place >= ? AND m.place <= ? ORDER BY m.place LIMIT {BLOCK_SIZE}"
)
"""Messages from a place on, on condition that channel and conversation are unchanged."""
FOLLOWING_UNSENT = (
    "SELECT m.place, m.id, m.body FROM main.conversation c, main.message m"
    " WHERE NOT EXISTS (SELECT 1 FROM main.channel h WHERE h.conversation = ? AND h.agent = ? AND h.provider = ?"
    " AND h.model = ? AND h.directory = ?) AND c.number = ? AND c.branch = ? AND c.revision = ?"
    f" AND m.place >= ? AND m.place <= ? ORDER BY m.place LIMIT {BLOCK_SIZE}"
)
"""The same for a channel that nothing was sent on, on condition that this is still so."""


class ChannelSnapshot(Struct, frozen=True, kw_only=True):
    """A channel as loaded from the store: its state, what was sent, and what is new."""

    tip: BranchTip
    channel: int
    """The channel's number; 0 if it has no row yet."""
    version: int
    cached: CachedChannelRows
    state: ChannelState
    """State of the channel on the current branch."""
    log: tuple[tuple[int, Message], ...]
    unread_until: int
    turn_opening: int = 0
    """Place of the message that opened the turn, if it is in the part that was not read and is in `log` nevertheless.
    """
    revealed: dict[int, Message]
    remaining: tuple[Item, ...] | None
    """The remaining items, if some were removed."""
    reason: str
    """The reason why some were removed."""
    unanswered_calls: dict[str, int] = {}
    """Calls whose results were removed while the calls remain, each with the place of its message."""
    pins: frozenset[int]
    leading: dict[int, Message]
    """System messages at the start of a conversation, by place, if they are its instructions, because none are given.
    """
    attempt: OpenAttempt | None
    """A request that was not answered."""
    missing: int = 0
    """Number of messages that should have been read, and are missing from the store."""

    @property
    def has_calls(self) -> bool:
        """True if what was sent, or what is new, contains tool calls."""
        return bool(self.cached.used) or any(message.tool_calls for _, message in self.log)


def load_snapshot(
    tx: Transaction,
    cache: ChannelCache,
    channel: Channel,
    *,
    window: int,
    runs: str = "",
    is_full: Callable[[Sequence[tuple[int, Message]]], bool],
    until: int | None = None,
    since: Summary | None = None,
    has_instructions: bool = False,
) -> ChannelSnapshot:
    """Load a channel. `window` is the window in tokens; `is_full` reports whether messages, read backwards, fill it.

    `runs` identifies the caller's runs. `until` loads the conversation as if it ended there. `since` is a summary whose
    messages are not read, so the cost depends on what came after it. If the request `has_instructions`, system messages
    at the start of the conversation are messages like others.
    """
    at = load_tip(tx, channel.conversation)
    number, version, shown, inherited, attempt = _load_cached(tx, cache, channel, at)
    if is_tip_lost(tx, shown.standing, at):
        shown = CachedChannelRows(number, version, without_rows(shown.standing, EpochReason.LOG_LOST))
    if has_instructions and shown.standing.lead:
        shown = CachedChannelRows(number, version, without_rows(shown.standing, EpochReason.LEAD_MOVED))
    if until is not None and until < at.seq:
        at = replace(at, seq=until)
    if is_cursor_void(shown.standing, at):
        shown = CachedChannelRows(number, version, without_rows(shown.standing, EpochReason.CURSOR_VOID))
    standing = shown.standing
    kept, why = None, ""
    if standing.branch != at.branch or standing.revision != at.revision or until is not None:
        standing, kept, why = _on_this_branch(tx, shown, at, window, channel.author)
        if inherited and kept is not None:
            why = EpochReason.FORKED
    first = standing.seen if since is None else max(standing.seen, since.anchor & SEQ_MASK)
    log, unread = _log(tx, at, first, is_full)
    if since is not None and _has_orphan_result(log):  # a call is before the summary, its result after it
        since, (log, unread) = None, _log(tx, at, standing.seen, is_full)
    if since is not None and not unread and first > standing.seen:
        standing, unread = replace(standing, humans=since.humans), first
    missing = at.seq - max(first, unread) - len(log)
    current = runs.partition("|")[0]
    others = any([message.run is not None and message.run != current for _, message in log])
    stays = standing.runs == runs and kept is None and not others
    late = load_messages_by_place(tx, standing.waiting) if standing.waiting and not stays else dict[int, Message]()
    lead = {} if has_instructions else _lead(tx, at, standing, shown, log, unread)
    if standing.lead is None:
        standing = replace(standing, lead=tuple(lead))
    pins = frozenset(load_pinned_places(tx, at)) if may_have_summaries(at) else frozenset[int]()
    opening: tuple[int, Message] | None = None
    if unread:
        if since is not None and since.opening is not None and unread == first:
            opening = next(iter(load_messages_by_place(tx, (since.opening,)).items()), None) if since.opening else None
        else:
            opening = _opening(tx, at, channel.author, standing, unread, log)
        log = (*_needed(tx, standing.seen, unread, pins, opening), *log)
    return ChannelSnapshot(
        tip=at,
        channel=number,
        version=version,
        cached=shown,
        state=replace(standing, branch=at.branch, revision=at.revision)
        if (standing.branch, standing.revision) != (at.branch, at.revision)
        else standing,
        log=tuple([each for each in log if each[0] not in lead]) if lead and log and log[0][0] in lead else log,
        leading=lead,
        unread_until=unread,
        turn_opening=opening[0] if opening else 0,
        revealed=late,
        remaining=kept,
        reason=why,
        unanswered_calls={} if kept is None else _unanswered(tx, shown, kept),
        pins=pins,
        attempt=attempt,
        missing=max(missing, 0),
    )


def load_next(
    store: Store, cache: ChannelCache, channel: Channel, *, may_be_empty: bool = False
) -> ChannelSnapshot | None:
    """Load the next step of a channel with one statement, if this handle stored its last request and only appends
    followed.

    The statement itself checks that. Returns None if other changes happened, or if nothing is new, unless that
    `may_be_empty`.
    """
    shown = cache.get_last(channel)
    if shown is None or (since := shown.since) is None or shown.standing.waiting:
        return None
    known = ChannelSnapshot(
        tip=since.tip,
        channel=shown.number,
        version=shown.version,
        cached=shown,
        state=shown.standing,
        log=since.produced,
        leading=shown.lead,
        unread_until=0,
        revealed={},
        remaining=None,
        reason="",
        pins=since.pins,
        attempt=None,
    )
    found = load_appended(store, channel, known)
    return found if found is not None and (may_be_empty or found.tip.seq > since.tip.seq) else None


def load_appended(store: Store, channel: Channel, known: ChannelSnapshot) -> ChannelSnapshot | None:
    """Load a channel with one statement, if only appends followed this snapshot of it. Else return None."""
    number, tree, branch, revision, seq, tip, last_active = astuple(known.tip)
    first = make_place(branch, seq)
    condition = (known.channel, known.version) if known.channel else channel
    rows = engine_of(store).try_read_statement(
        FOLLOWING if known.channel else FOLLOWING_UNSENT,
        (*condition, number, branch, revision, first, make_place(branch, SEQ_MASK)),
    )
    if not rows or len(rows) == BLOCK_SIZE or rows[-1][0] - first != len(rows) - 1:
        return None
    last_id = rows[-1][1]
    if rows.pop(0)[1] != tip:  # the last known message was lost
        return None
    try:
        new = [(where, decode_message(body)) for where, _, body in rows]
    except DECODE_ERRORS:  # the full load raises an error that names the message
        return None
    last_active = new[-1][1].time // 1000 if new else last_active
    return replace(
        known,
        tip=BranchTip(number, tree, branch, revision, seq + len(rows), to_id(last_id), last_active),
        log=(*known.log, *new),
    )


def may_have_summaries(at: BranchTip) -> bool:
    """Return False if only appends ever happened. A fork begins at revision 0 and inherits from its parent."""
    return bool(at.revision) or at.branch != at.tree


def _load_cached(
    tx: Transaction, warm: ChannelCache, channel: Channel, at: BranchTip
) -> tuple[int, int, CachedChannelRows, bool, OpenAttempt | None]:
    """Return number, version, cache entry, whether the entry was inherited by a fork, and the open attempt."""
    found = find_channel(tx, channel)
    attempt = decode_attempt(found.attempt) if found else None
    if found is not None:
        number, version, state, _ = found
        if (shown := warm.get(channel, number, version)) is not None:
            return number, version, shown, False, attempt
        standing = decode_state(channel.conversation, state)
        if standing.requests or standing.held:
            check_bases(tx, at)
            rows = load_rows(tx, standing.layout)
            if len(rows) < sum([last - first + 1 for _, first, last in standing.layout]):
                rows, standing = [], without_rows(standing, EpochReason.PARENT_DELETED)
            elif has_lost_messages(tx, [each.row for each in rows]):
                rows, standing = [], without_rows(standing, EpochReason.LOG_LOST)
            shown = CachedChannelRows.from_rows(number, version, standing, rows)
            warm.put(channel, shown)
            return number, version, shown, False, attempt
    else:
        number, version = 0, 0
    check_bases(tx, at)
    parent = load_parent_state(tx, channel, at)
    if parent is None:
        return number, version, CachedChannelRows(number, version, ChannelState()), False, attempt
    rows = load_rows(tx, parent.layout)
    if is_tip_lost(tx, parent, at) or has_lost_messages(tx, [each.row for each in rows]):
        return number, version, CachedChannelRows(number, version, ChannelState()), False, attempt
    standing = replace(parent, session=None, held=0, lost="", requests=0, rows=0, input=0)
    return number, version, CachedChannelRows.from_rows(number, version, standing, rows), True, attempt


def _on_this_branch(
    tx: Transaction, shown: CachedChannelRows, at: BranchTip, room: int, agent: str
) -> tuple[ChannelState, tuple[Item, ...] | None, str]:
    """Return the state and the items, restricted to the current branch; None for the items if all of them are on it.

    If something was trimmed for lack of room, and there is room now, the log is read again from its edge.
    """
    standing = shown.standing
    edge = load_context_start(tx, at.branch, at.seq)
    line = {branch: (first, last) for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq)}
    here = {branch: (max(first, edge + 1), last) for branch, (first, last) in line.items()}

    items = [item for each in shown.rows for item in each.row.items]
    undone = find_undone(tx, agent, at, [item.place for item in items if item.kind == "summary"])

    def stands(item: Item) -> bool:
        if item.kind != "message" and not item.text:  # its text was redacted
            return False
        if item.kind == "summary" and item.place in undone:
            return False
        return all([_within(here, where) for where in (item.place, *item.places) if where])

    common = 0
    if standing.branch:
        old = split_by_branch(load_lineage(tx, standing.branch), 0, SEQ_MASK)
        common = max((min(last, line[branch][1]) for branch, _, last in old if branch in line), default=0)
    standing = replace(
        standing,
        seen=max(min(standing.seen, common), edge) if edge >= standing.edge else edge,
        edge=edge,
        waiting=tuple([where for where in standing.waiting if _within(here, where)]),
        produced=tuple([item for item in standing.produced if stands(item)]),
        lead=None,
        container=standing.container if standing.container and _within(here, standing.container.place) else None,
    )
    sealed = shown.rows
    kept = _on_branch(items, stands)
    standing = replace(standing, fragments=find_latest_copies(kept)).with_changes(find_head_changes(kept))
    blanked = any(each.row.gone for each in sealed)
    if standing.session is not None and not blanked:  # the session's last reply is in no row yet
        said = load_messages_by_place(tx, [item.place for item in standing.produced])
        blanked = any(message.redacted for message in said.values())
    gone = len(kept) < len(items) or len(standing.produced) < len(shown.standing.produced)
    is_earlier = edge < shown.standing.edge and bool(kept or standing.produced)  # the context starts before these
    if not gone and not blanked and not is_earlier:
        return standing, None, ""
    cleared = [item for item in items if item.place and not stands(item) and _within(line, item.place)]
    why = EpochReason.CLEARED if cleared else EpochReason.EDITED if gone or is_earlier else EpochReason.REDACTED
    why = EpochReason.COMPACTION_UNDONE if undone else why
    unsummed = any((item.kind == "summary" or item.is_kept_history) and item not in kept for item in items)
    if is_earlier or (gone and (unsummed or (standing.cut and sum([item.tokens for item in kept]) < room // 2))):
        standing = replace(standing, seen=edge, produced=(), waiting=(), answered=True, pending={}, fragments={})
        standing = standing.with_changes(NO_CHANGES)
        return replace(standing, cut=False, summary=0, humans=(), going=()), (), why
    if gone:
        ids = {id(each.row.items[0]): bool(each.row.ids) for each in sealed if each.row.items}
        last = next((item for item in reversed(kept) if item.place), None)
        asked = last is not None and ids.get(id(last), False)
        answered = last is None or (last.role == "assistant" and not asked)
        standing = replace(standing, answered=answered, pending={})
    return standing, tuple(kept), why


def _unanswered(tx: Transaction, shown: CachedChannelRows, kept: Sequence[Item]) -> dict[str, int]:
    """Return calls that remain while results sent with them do not, each with the place of its message."""
    stands = {id(item) for item in kept}
    rows = [each.row.items for each in shown.rows if each.row.ids]
    torn = [items for items in rows if any(item.role == "tool" and id(item) not in stands for item in items)]
    found = load_messages_by_place(
        tx, [item.place for items in torn for item in items if id(item) in stands and item.place]
    )
    calls = {call.id: where for where, message in found.items() for call in message.tool_calls}
    for message in found.values():
        for result in message.tool_results:
            calls.pop(result.call_id, None)
    return calls


def _lead(
    tx: Transaction,
    at: BranchTip,
    standing: ChannelState,
    shown: CachedChannelRows,
    log: tuple[tuple[int, Message], ...],
    unread: int,
) -> dict[int, Message]:
    """Return the system messages at the start of the conversation, or right after a context edge, by place."""
    if standing.lead is not None:
        if len(shown.lead) != len(standing.lead):
            shown.lead = load_messages_by_place(tx, standing.lead)
        return shown.lead
    edge = load_context_start(tx, at.branch, at.seq)
    first = (
        _between(tx, at, edge, min(at.seq, edge + MAX_LEADING)) if unread or standing.seen > edge else log[:MAX_LEADING]
    )
    sent = {item.place for each in shown.rows for item in each.row.items}
    return {
        where: message
        for where, message in takewhile(lambda each: each[1].role == "system" and each[1].audience is None, first)
        if not message.redacted and where not in sent
    }


def _on_branch(items: Iterable[Item], stands: Callable[[Item], bool]) -> list[Item]:
    """Return the items that remain. Inserted text is removed together with the message that it followed."""
    kept: list[Item] = []
    before = True
    for item in items:
        here = stands(item) and (before or bool(item.place))
        before = here if item.place else before
        if here:
            kept.append(item)
    return kept


def _within(line: dict[int, tuple[int, int]], where: int) -> bool:
    first, last = line.get(where >> SEQ_BITS, (1, 0))
    return first <= (where & SEQ_MASK) <= last


def _log(
    tx: Transaction, at: BranchTip, seen: int, enough: Callable[[Sequence[tuple[int, Message]]], bool]
) -> tuple[tuple[tuple[int, Message], ...], int]:
    """Return the messages after `seen`, with their places, and the seq up to which they were not read.

    Messages are not read if those after them fill the window; the seq is 0 if all were read.
    """
    if at.seq - seen <= BLOCK_SIZE:
        return tuple(_between(tx, at, seen, at.seq)), 0
    blocks: list[list[tuple[int, Message]]] = []
    last = at.seq
    while last > seen:
        first = max(seen, last - BLOCK_SIZE)
        blocks.append(_between(tx, at, first, last))
        last = first
        if enough(blocks[-1]):
            break
    return tuple(each for block in reversed(blocks) for each in block), last if last > seen else 0


def _has_orphan_result(log: Iterable[tuple[int, Message]]) -> bool:
    """Return True if there is a result whose call does not precede it."""
    calls: set[str] = set()
    for _, message in log:
        if any([result.call_id not in calls for result in message.tool_results]):
            return True
        calls.update([call.id for call in message.tool_calls])
    return False


def _needed(
    tx: Transaction, seen: int, unread: int, pins: frozenset[int], opening: tuple[int, Message] | None
) -> list[tuple[int, Message]]:
    """Return the unread messages that must be sent nevertheless: pinned messages, and the one that opened the turn."""
    wanted = [where for where in pins if seen < where & SEQ_MASK <= unread]
    found = load_messages_by_place(tx, wanted) | ({opening[0]: opening[1]} if opening else {})
    return sorted(found.items(), key=lambda each: each[0] & SEQ_MASK)


def _opening(
    tx: Transaction, at: BranchTip, agent: str, standing: ChannelState, unread: int, log: Sequence[tuple[int, Message]]
) -> tuple[int, Message] | None:
    """Return the message that opened the current turn; None if it was read, or sent before."""

    def is_final(message: Message) -> bool:
        return message.role == "assistant" and message.author in (None, agent) and not message.tool_calls

    final = next((index for index, (_, message) in enumerate(log) if is_final(message)), len(log))
    if any([message.role == "user" for _, message in log[final:]]):
        return None
    before, ended = [*split_by_branch(load_lineage(tx, at.branch), standing.seen, unread)], False
    for branch, first, last in reversed(before):
        if (end := _last_reply(tx, agent, branch, first, last, is_final)) is not None:
            before, ended = [*split_by_branch(load_lineage(tx, at.branch), end, unread)], True
            break
    for branch, first, last in before if ended or standing.answered else ():
        row = tx.row(
            "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? AND body >= ? AND body < ?"
            " ORDER BY place LIMIT 1",
            make_place(branch, first),
            make_place(branch, last),
            *_role_bounds("user"),
        )
        if row is not None:
            return decode_message_rows(tx, [row])[0]
    return None


def _last_reply(
    tx: Transaction, agent: str, branch: int, first: int, last: int, is_final: Callable[[Message], bool]
) -> int | None:
    """Return the seq of the last message in a range that ended a turn of this agent.

    A turn may be as long as the history. So the database excludes other rows by their bytes: messages with calls, and
    replies of other agents. It compares the beginning of each row with the role, which is cheap.
    """
    contains = "position(? in body)" if tx.dialect.name == "postgres" else "instr(body, ?)"
    sql = (  # the first comparison excludes most rows: all other roles sort after "assistant"
        "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? AND body < ? AND body >= ?"
        f" AND NOT (body >= ? AND body < ?) AND {contains} = 0 AND ({contains} = 0 OR {contains} > 0)"
        f" ORDER BY place DESC LIMIT {REPLIES_PER_BATCH}"
    )
    while first <= last:
        rows = tx.rows(
            sql,
            make_place(branch, first),
            make_place(branch, last),
            *reversed(_role_bounds("assistant")),
            BEGINS_WITH_CALL,
            BEGINS_WITH_CALL + b"\xff",
            b'{"type":"tool_call","id":',
            AUTHOR,
            AUTHOR + encode(agent),
        )
        for where, message in decode_message_rows(tx, rows):
            if is_final(message):
                return where & SEQ_MASK
        if len(rows) < REPLIES_PER_BATCH:
            return None
        last = (rows[-1][0] & SEQ_MASK) - 1
    return None


def load_latest(tx: Transaction, at: BranchTip, after: int, upto: int, role: str = "") -> dict[int, Message]:
    """Return the latest messages in a range of the log, by place: a batch of them. With `role`, only of that role."""
    found: dict[int, Message] = {}
    for branch, first, last in reversed([*split_by_branch(load_lineage(tx, at.branch), after, upto)]):
        rows = tx.rows(
            "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? AND body >= ? AND body < ?"
            f" ORDER BY place DESC LIMIT {LATEST_PER_BATCH - len(found)}",
            make_place(branch, first),
            make_place(branch, last),
            *(_role_bounds(role) if role else (b"", b"\xff")),
        )
        found |= dict(decode_message_rows(tx, rows))
    return found


def _role_bounds(role: str) -> tuple[bytes, bytes]:
    """Return the bounds of the stored bodies of a role. A body begins with its role."""
    return b'{"role":"%b"' % role.encode(), b'{"role":"%b#' % role.encode()


def _between(tx: Transaction, at: BranchTip, after: int, upto: int) -> list[tuple[int, Message]]:
    if upto <= after:
        return []
    rows = tx.rows(
        "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place",
        make_place(at.branch, after + 1),
        make_place(at.branch, upto),
    )
    if len(rows) < upto - after:  # the range begins on a parent branch
        rows = [
            row
            for branch, first, last in split_by_branch(load_lineage(tx, at.branch), after, upto)
            for row in tx.rows(
                "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place",
                make_place(branch, first),
                make_place(branch, last),
            )
        ]
    return decode_message_rows(tx, rows)


def load_messages_by_place(tx: Transaction, places: Iterable[int]) -> dict[int, Message]:
    """Return messages by place."""
    wanted, found = list(places), dict[int, Message]()
    for start in range(0, len(wanted), BLOCK_SIZE):
        some = wanted[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        rows = tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({marks})", *some)
        found |= dict(decode_message_rows(tx, rows))
    return found


# ── sessions that a provider knows ────────────────────────────────────────────────────────────────────────────────────
# Known sessions: list, adopt and invalidate the sessions that stateful providers keep of conversations.


class KnownSession(Struct, frozen=True, kw_only=True):
    """The session of a channel. `id` is empty if there is none, and `lost` is the reason."""

    channel: Channel
    id: str = ""
    cursor: str = ""
    lost: str = ""
    requests: int = 0
    epoch: int = 0
    unanswered: bool = False
    """True if a request was begun and no reply was stored; `error` is the reason, if known."""
    error: str = ""
    shown: int = 0
    """The number of the message up to which the conversation was shown, replies included. `cursor` is the same in the
    provider's own terms, if it has any.
    """


class SessionManager:
    """Lists, adopts and invalidates the sessions of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def sessions(self, conversation: str) -> list[KnownSession]:
        """Return every channel of a conversation with its session."""

        def work(tx: Transaction) -> list[KnownSession]:
            return [
                KnownSession(
                    channel=channel,
                    id=standing.session.id if standing.session else "",
                    cursor=standing.session.cursor if standing.session else "",
                    lost=standing.lost,
                    requests=standing.requests,
                    epoch=standing.epoch,
                    unanswered=attempt is not None,
                    error=attempt.error if attempt else "",
                    shown=_find_shown(standing),
                )
                for _, channel, standing, attempt in load_channels(tx, conversation)
            ]

        return self.store.read(work)

    def session(
        self, conversation: str, *, provider: str, model: str, agent: str = DEFAULT_AGENT, directory: str = ""
    ) -> KnownSession | None:
        """Return the session of one channel; None if the channel does not exist."""
        wanted = Channel(conversation, agent, provider, model, directory)
        return next((each for each in self.sessions(conversation) if each.channel == wanted), None)

    def invalidate(self, channel: Channel, why: str) -> None:
        """Mark a session as unusable, for example because the provider no longer has it. The next request is a full
        one.
        """
        if not is_valid_text(why) or not why.strip():
            raise InvalidInput(
                "why must be a non-empty string", got=why, fix="Pass the reason; the next manifest contains it."
            )
        _check_channel(channel)

        def work(tx: Transaction) -> bool:
            found = find_channel(tx, channel)
            standing = load_state(tx, channel)
            if found is None or standing is None:
                raise InvalidInput(
                    f"Conversation {channel.conversation!r}: channel {channel} not found",
                    fix="Pass the `channel` of an entry that `sessions` returns.",
                )
            return update_state(tx, found[0], found[1], replace(standing, session=None, held=0, lost=why))

        self._repeat(work)

    def set_cursor(self, channel: Channel, shown: int, *, session_id: str | None = None, cursor: str = "") -> None:
        """Set how far a session has the conversation: up to message `shown`. The next request continues after it.

        `session_id` adopts a session that something else began, and `cursor` is its position in the provider's own
        terms. A channel is what `compiler.channel(…)` or `executor.channel(…)` returns; it need not have any request.
        If the conversation is edited before the next request, that one is a full one.
        """
        _check_channel(channel)
        check_name(channel.author, "agent")
        if session_id is not None and not (session_id and is_valid_text(session_id)):
            raise InvalidInput("session_id must be a non-empty string", got=session_id, fix="Pass the provider's id.")
        if not is_valid_text(cursor):
            raise InvalidInput("cursor must be a string", got=cursor, fix="Pass the provider's own position as text.")

        def work(tx: Transaction) -> bool:
            at = load_tip(tx, channel.conversation)
            edge = load_context_start(tx, at.branch, at.seq)
            if isinstance(shown, bool) or not isinstance(shown, int) or not edge < shown <= at.seq:
                raise InvalidInput(
                    f"shown must be the number of a message of {channel.conversation!r}, from {edge + 1} to {at.seq}",
                    got=shown,
                    fix="Pass the last one that the session has, or call `invalidate` to begin a new session.",
                )
            found = find_channel(tx, channel)
            before = load_state(tx, channel) or ChannelState()
            known = before.session.id if before.session else ""
            if not (session_id or known):
                raise InvalidInput(f"Channel {channel} has no session", fix="Pass session_id.")
            state = replace(
                without_rows(before, ""),
                epoch=before.epoch + 1,
                session=ProviderSession(session_id or known, cursor),
                held=shown,
                branch=at.branch,
                revision=at.revision,
                seen=edge,
                edge=edge,
                tip=load_between(tx, at.branch, shown - 1, shown)[0].id,
            )
            if found is None:
                return bool(create_channel(tx, channel, state))
            return update_state(tx, found.number, found.version, state)

        self._repeat(work)

    def _repeat(self, work: Callable[[Transaction], bool]) -> None:
        while not self.store.write(work):  # a request was committed in between
            pass


def _check_channel(channel: object) -> None:
    if not isinstance(channel, Channel) or not all([isinstance(name, str) for name in channel]):
        raise InvalidInput(
            f"channel must be a Channel, got {type(channel).__name__}",
            fix="Pass the `channel` of an entry that `sessions` returns.",
        )


def _find_shown(standing: ChannelState) -> int:
    """Return the seq up to which the log was shown. A reply counts if no message came before it meanwhile."""
    shown, produced = standing.held or standing.seen, {item.place & SEQ_MASK for item in standing.produced}
    while shown + 1 in produced:
        shown += 1
    return shown

"""Requests of other conversations that matter for the cache of one: those that were being answered when it began, and
the one that it continues under another name.

Only the manifests of a few of them are read. Those that cannot be read are left out.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, TypeAlias

from contextc.analysis.cache_model import CACHING_STATUSES, MAX_BRANCHES, CacheModel, CacheOutlook, CacheRules
from contextc.analysis.changed_content import ATTRIBUTION
from contextc.analysis.request_elements import RequestView
from contextc.compiler import ledger
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.errors import StoreCorrupt
from contextc.inspection.prefix_break import MISSED_TOKENS
from contextc.store.conversation_list import ObservedSource
from contextc.store.ledger_schema import Channel, ChannelState
from contextc.store.transaction_engine import Transaction

NEIGHBOURS = 32
"""The number of conversations before and after one that may have begun at the same time."""
LAST, NEAR = 2, 8
"""The numbers of requests at the end of a channel, and around one, that may have been answered at the same time."""
MODEL_ROLES = ("assistant", "model")
WEAK_CLIENTS = ("", "cache-key", "user")
"""Clients whose ids do not identify a conversation, so that it is found by its content."""
SAME_SHARE = 0.5
"""The share of earlier messages that a request has unchanged, if it continues them."""
MAX_ANSWER = 600_000
"""Milliseconds after which a request of our own is not looked for any more: it was answered."""
ReadRequest: TypeAlias = Callable[[Transaction, int, Channel, int, ChannelState, RequestRecord], RequestView]
"""Returns a request, by the numbers of its conversation and its channel."""
ReadTimes: TypeAlias = Callable[[Transaction, int, Channel, RequestRecord], tuple[int, int] | None]
"""Returns the begin and the end of a request of our own, by the number of its conversation; None if unknown."""


class Neighbours(NamedTuple):
    """`overlapping` are requests that were being answered when the first request of a channel began. `continued` is the
    request of another conversation whose messages the first request has, with changes; None if there is none.
    """

    overlapping: list[RequestView]
    continued: RequestView | None


class _NeighbourChannel(NamedTuple):
    conversation: int
    revision: int
    channel: Channel
    number: int
    state: ChannelState

    @property
    def scope(self) -> tuple[str, str]:
        return self.channel.provider, self.channel.model


class NeighbourLoader:
    """Loads requests of other conversations. Later calls return the same objects again, if they did not change."""

    def __init__(self, read: ReadRequest, read_times: ReadTimes) -> None:
        self._read, self._read_times = read, read_times
        self._known: dict[tuple[int, int], tuple[object, RequestView]] = {}
        self._times: dict[tuple[int, int], tuple[int, int]] = {}

    def load(
        self, tx: Transaction, number: int, requests: Sequence[RequestView], source: ObservedSource | None
    ) -> Neighbours:
        """Return the neighbours of a conversation, by its number and its requests in their order.

        They are of the same session, or of conversations that were stored shortly before or after.
        """
        before, self._known = self._known, {}
        firsts = _find_firsts(requests)
        channels = list(_load_channels(tx, number, list({each.scope: None for each in firsts})))
        overlapping: dict[tuple[int, int], RequestView] = {}
        for first in firsts:
            for where, body, record in _find_overlapping(tx, first, channels):
                with suppress(StoreCorrupt):
                    if record.observed is not None or self._is_answered(tx, where, record, first.began):
                        overlapping[where.number, record.request] = self._load(tx, where, body, record, before)
        continued = None
        if requests and (source is None or source.client in WEAK_CLIENTS) and _has_history(requests[0]):
            earlier = [each for each in channels if each.conversation < number]
            with suppress(StoreCorrupt):
                continued = self._find_continued(tx, requests[0], earlier, before)
        found = sorted(overlapping.values(), key=lambda each: (each.began, each.channel_number, each.number))
        return Neighbours(found, continued)

    def _is_answered(self, tx: Transaction, where: _NeighbourChannel, record: RequestRecord, time: int) -> bool:
        """Return True if a request of our own was being answered at a time."""
        key = where.number, record.request
        if (times := self._times.get(key)) is None:
            times = self._read_times(tx, where.conversation, where.channel, record)
            if times is not None:
                self._times[key] = times
        return times is not None and times[0] <= time < times[1]

    def _find_continued(
        self,
        tx: Transaction,
        first: RequestView,
        channels: Iterable[_NeighbourChannel],
        before: dict[tuple[int, int], tuple[object, RequestView]],
    ) -> RequestView | None:
        for each in sorted(channels, key=lambda each: -each.conversation):
            if each.scope != first.scope:
                continue
            following = _find_next_end(tx, each.number, each.state.requests, first.began)
            last = (following if following is not None else each.state.requests + 1) - 1
            stored = ledger.load_manifests(tx, each.number, last, limit=1) if last else []
            record = record_from_json(stored[0]) if stored else None
            if record is None or record.observed is None or record.head != first.record.head:
                continue
            view = self._load(tx, each, stored[0], record, before)
            if _is_continued(view, first):
                return view
        return None

    def _load(
        self,
        tx: Transaction,
        where: _NeighbourChannel,
        body: bytes,
        record: RequestRecord,
        before: dict[tuple[int, int], tuple[object, RequestView]],
    ) -> RequestView:
        key, content = (where.number, record.request), (body, where.revision, where.channel, where.state.head.encoder)
        known = self._known.get(key) or before.get(key)
        if known is None or known[0] != content:
            known = content, self._read(tx, where.conversation, where.channel, where.number, where.state, record)
        self._known[key] = known
        return known[1]


def _find_firsts(requests: Sequence[RequestView]) -> list[RequestView]:
    """Return the first request of each channel, if something of it was not read from the cache."""
    found: dict[Channel, RequestView] = {}
    for each in requests:
        if each.is_begin_known and each.status != "error" and not each.is_without_answer:
            found.setdefault(each.channel, each)
    usages = [(each, each.usage) for each in found.values()]
    return [each for each, usage in usages if usage is None or usage.input - usage.cache_read >= MISSED_TOKENS]


def _find_overlapping(
    tx: Transaction, first: RequestView, channels: Iterable[_NeighbourChannel]
) -> list[tuple[_NeighbourChannel, bytes, RequestRecord]]:
    """Return the requests that were being answered when one began: those with the same head, then those that began
    first, and no more than a cache model keeps. Of our own requests, whose begin is not known yet, it is twice as many,
    those with the nearest times.
    """
    found = [
        (each, body, record)
        for each in channels
        if each.scope == first.scope
        for body, record in find_overlapping(tx, each.number, each.state.requests, first.began)
    ]

    def order(each: tuple[_NeighbourChannel, bytes, RequestRecord]) -> tuple[bool, int, int]:
        where, _, record = each
        time = abs(record.time - first.began) if record.observed is None else record.observed.began
        return record.head != first.record.head, time, where.number

    observed = [each for each in found if each[2].observed is not None]
    own = [each for each in found if each[2].observed is None and abs(each[2].time - first.began) < MAX_ANSWER]
    return [*sorted(observed, key=order)[:MAX_BRANCHES], *sorted(own, key=order)[: 2 * MAX_BRANCHES]]


def _load_channels(tx: Transaction, number: int, models: Sequence[tuple[str, str]]) -> Iterator[_NeighbourChannel]:
    """Return the channels of neighbours to some models, by provider and model."""
    if not models:
        return
    rows = tx.rows(
        "SELECT c.number, c.revision, h.number, h.conversation, h.agent, h.provider, h.model, h.directory, h.state"
        " FROM main.channel h JOIN main.conversation c ON c.name = h.conversation"
        " WHERE c.number <> ? AND (c.number BETWEEN ? AND ? OR c.number IN"
        " (SELECT o.conversation FROM main.observed_conversation o JOIN main.observed_conversation mine"
        " ON o.session = mine.session WHERE mine.conversation = ? AND mine.session <> ''))"
        f" AND ({' OR '.join(['h.provider = ? AND h.model = ?'] * len(models))})",
        number,
        number - NEIGHBOURS,
        number + NEIGHBOURS,
        number,
        *chain.from_iterable(models),
    )
    for conversation, revision, channel_number, *name, stored in rows:
        channel = Channel(*name)
        with suppress(StoreCorrupt):
            state = ledger.decode_state(channel.conversation, stored)
            yield _NeighbourChannel(conversation, revision, channel, channel_number, state)


def _has_history(request: RequestView) -> bool:
    """Return True if a request has replies of a model before its last message."""
    return any([each.role in MODEL_ROLES for each in request.elements(request.head_ends[2])[:-1]])


def _is_continued(before: RequestView, now: RequestView) -> bool:
    """Return True if a request has the messages of an earlier one, some of them changed, and then a reply.

    If none is changed, it is a fork.
    """
    old, new = before.elements(before.head_ends[2]), now.elements(now.head_ends[2])
    if not len(new) > len(old) > 1 or new[len(old)].role not in MODEL_ROLES or old[-1].key != new[len(old) - 1].key:
        return False
    same = sum([one.key == other.key for one, other in zip(old, new, strict=False)])
    return SAME_SHARE * len(old) <= same < len(old)


# ── requests at a time ────────────────────────────────────────────────────────────────────────────────────────────────


def find_overlapping(tx: Transaction, channel: int, count: int, time: int) -> list[tuple[bytes, RequestRecord]]:
    """Return the manifests of requests of a channel that may have been in progress at a time, as stored and decoded.

    `count` is the number of requests of the channel. They are stored in the order in which their replies ended, or
    nearly so. Manifests of our own requests have only one time, at which the reply began or ended: of these, the last
    one before the time and the first one after it are returned. None is returned if they cannot be read.
    """
    with suppress(StoreCorrupt):
        return _search_overlapping(tx, channel, count, time)
    return []


def _search_overlapping(tx: Transaction, channel: int, count: int, time: int) -> list[tuple[bytes, RequestRecord]]:
    first = ledger.load_manifests(tx, channel, 1, limit=1) if count else []
    seen = record_from_json(first[0]).observed if first else None
    if not count or (seen is not None and seen.began > time):
        return []
    number = _find_next_end(tx, channel, count, time)
    if number is None and seen is not None:
        return []
    near = ledger.load_manifests(tx, channel, min(count, (number or count) + NEAR), limit=2 * NEAR + 1)
    records = [(body, record_from_json(body)) for body in reversed(near)]
    own = [each for each in records if each[1].observed is None]
    before = bisect_right([each[1].time for each in own], time)
    return [*[each for each in records if _is_answered(each[1], time)], *own[max(0, before - 1) : before + 1]]


def _find_next_end(tx: Transaction, channel: int, count: int, time: int) -> int | None:
    """Return the number of the first request whose reply ended after a time; None if there is none."""
    low, high = 1, count
    if not _ended_after(tx, channel, count, time, LAST):
        return None
    while low < high:
        middle = (low + high) // 2
        if _ended_after(tx, channel, middle, time):
            high = middle
        else:
            low = middle + 1
    return low


def _ended_after(tx: Transaction, channel: int, number: int, time: int, limit: int = 1) -> bool:
    """Return True if a request, or one of some up to it, ended after a time."""
    stored = ledger.load_manifests(tx, channel, number, limit=limit)
    return any([_end_of(record_from_json(each)) > time for each in stored])


def _end_of(record: RequestRecord) -> int:
    if record.observed is not None:
        return record.observed.ended or record.observed.began
    return record.time


def _is_answered(record: RequestRecord, time: int) -> bool:
    seen = record.observed
    return seen is not None and seen.began <= time < seen.ended


# ── requests that begin together ──────────────────────────────────────────────────────────────────────────────────────
# Requests that begin together with the same prefix, such as sub-agents: one of them has to write it.


MAX_ATTRIBUTION = 500
"""The bytes of a system block from which on it is more than an attribution line."""


def compare_with_overlapping(
    rules: CacheRules, now: RequestView, others: Iterable[RequestView], ignored: Collection[str] = ()
) -> CacheOutlook:
    """Return what the first request of a channel could read from requests of other channels that are being answered.

    Of equal times, the one that was recorded first counts. Of several that share as much, it is compared with the one
    that began first. `ignored` are the paths of system blocks that the provider leaves out of its prefix.
    """
    earlier = [each for each in others if is_answered_during(each, now) and each.scope == now.scope]
    model = CacheModel({*ignored, *find_attribution(rules, now)})
    for other in sorted(earlier, key=_begin_order, reverse=True):
        model.add_single(rules, other)
    return model.expect(rules, now)


def find_attribution(rules: CacheRules, request: RequestView) -> Iterator[str]:
    """Return the paths of attribution lines that a provider is known to leave out. Each sub-agent may have its own."""
    if rules.ignores_attribution:
        for element in request.system.elements:
            if len(element.raw) < MAX_ATTRIBUTION and ATTRIBUTION.search(element.text):
                yield element.suffix


def is_answered_during(other: RequestView, now: RequestView) -> bool:
    """Return True if a request began before another one, and was still being answered when that began."""
    if other.status not in CACHING_STATUSES or other.is_without_answer:
        return False
    return _begin_order(other) < _begin_order(now) and now.began < other.ended


def _begin_order(request: RequestView) -> tuple[int, int]:
    return request.began, request.channel_number

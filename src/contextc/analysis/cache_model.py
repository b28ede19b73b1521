"""A model of a provider's prompt cache: which prefix of a request should be readable when it begins.

A cache holds branches: requests that share a prefix up to some element, and differ after it. Each has entries, which
are prefixes that were written. An explicit cache has an entry at each breakpoint. An implicit cache can read every
prefix of what it has.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc.analysis.cache_rules import CacheRules
from contextc.analysis.prefix_comparison import Comparison, compare_requests
from contextc.analysis.request_view import RequestView

MAX_BRANCHES = 8
MAX_ENTRIES, FIRST_ENTRIES = 24, 4
READ_SHARE = 0.95
"""The share of a prefix that was read, from which on all of it counts as read."""
CACHING_STATUSES = ("ok", "unfinished")


class CacheEntry(Struct):
    """A prefix in the cache: the number of its elements. Times are in milliseconds.

    `used` and `ended` are the begin and the end of the request that used it last. It can be read from `ready` on, when
    the reply to the request that wrote it has begun; only the end of that reply is known.
    """

    position: int
    used: int
    ended: int
    ready: int
    life: int
    kept: int

    def is_expired(self, time: int) -> bool:
        return time - self.used > self.life

    def is_probably_expired(self, time: int) -> bool:
        return time - self.ended > min(self.kept, 2 * self.life)

    def is_surely_expired(self, time: int) -> bool:
        return time - self.ended > self.kept


class CacheBranch(Struct):
    """The last request of a branch, and the prefixes of it that are in the cache."""

    tip: RequestView
    entries: list[CacheEntry]


class ReadablePrefix(Struct, frozen=True, kw_only=True):
    """The prefix of a request that a cache should have, and what it would have under other conditions.

    All are numbers of elements. `position` is what can be read, `fresh` what can be read even if entries expire as
    early as they may. The others are without one obstacle each: if no entry were expired, if every reply had begun, if
    breakpoints found every entry.
    """

    position: int = 0
    fresh: int = 0
    unexpired: int = 0
    ready: int = 0
    found: int = 0
    written: int = 0
    """The longest entry within the shared prefix, whatever the obstacles."""


class CacheOutlook(Struct, frozen=True):
    """The state before a request begins: its comparison with the most similar earlier request, None if there is none;
    the prefix that it should be able to read, and its tokens as the provider counts them.
    """

    comparison: Comparison | None
    branch: CacheBranch | None
    prefix: ReadablePrefix
    tokens: int


class CacheModel:
    """The cache of one model of one provider, as the requests of one conversation use it.

    `ignored` are the paths of system blocks that the provider is known to leave out of its prefix.
    """

    def __init__(self, ignored: Collection[str] = ()) -> None:
        self._ignored = ignored
        self._branches: list[CacheBranch] = []

    def expect(self, rules: CacheRules, now: RequestView) -> CacheOutlook:
        """Return what a request should be able to read."""
        best: tuple[tuple[int, int, int, int], Comparison, CacheBranch] | None = None
        for recent, branch in reversed(list(enumerate(self._branches))):
            comparison = compare_requests(rules, branch.tip, now, self._ignored)
            if best is not None and comparison.shared < best[0][0]:
                continue
            rows = 0 if comparison.equal >= branch.tip.count else comparison.equal_rows
            score = (comparison.shared, find_position(rules, branch.entries, comparison), rows, recent)
            if best is None or score > best[0]:
                best = score, comparison, branch
        if best is None:
            return CacheOutlook(None, None, ReadablePrefix(), 0)
        _, comparison, branch = best
        prefix = find_readable(rules, branch.entries, comparison)
        return CacheOutlook(comparison, branch, prefix, count_readable_tokens(rules, comparison, prefix.position))

    def expect_from(self, rules: CacheRules, tip: RequestView, now: RequestView) -> CacheOutlook | None:
        """Return what a request should be able to read of one earlier request; None if it was replaced."""
        branch = next((each for each in reversed(self._branches) if each.tip is tip), None)
        if branch is None:
            return None
        comparison = compare_requests(rules, tip, now, self._ignored)
        prefix = find_readable(rules, branch.entries, comparison)
        return CacheOutlook(comparison, branch, prefix, count_readable_tokens(rules, comparison, prefix.position))

    def add(self, rules: CacheRules, now: RequestView, outlook: CacheOutlook) -> None:
        """Add what a request leaves in the cache."""
        if now.status not in CACHING_STATUSES or (now.status == "unfinished" and now.usage is None):
            return
        entries: dict[int, CacheEntry] = {}
        branch, comparison = outlook.branch, outlook.comparison
        if branch is not None and comparison is not None and rules.explicit:
            for entry in branch.entries:
                if entry.position <= comparison.shared:
                    if entry.position <= outlook.prefix.position:
                        entry = _used(entry, now)
                    entries[entry.position] = entry
        for position, life, kept in _find_written(rules, now):
            old = entries.get(position)
            is_read = old is not None and position <= outlook.prefix.position
            ready = old.ready if old is not None and is_read else now.ended
            entries[position] = CacheEntry(position, now.began, now.ended, ready, life, kept)
        made = CacheBranch(now, _limit([entries[each] for each in sorted(entries)]))
        if branch is not None and comparison is not None and comparison.is_extension:
            self._branches = [each for each in self._branches if each is not branch]
        self._branches = [*self._branches, made][-MAX_BRANCHES:]

    def add_single(self, rules: CacheRules, now: RequestView) -> None:
        """Add what a request leaves in the cache, whatever the others left. What it read itself, as far as the provider
        reported it, could be read when it began.
        """
        if now.status not in CACHING_STATUSES or (now.status == "unfinished" and now.usage is None):
            return
        read = now.usage.cache_read if now.usage is not None else 0
        written = list(_find_written(rules, now))
        if not rules.explicit and read:
            written += [(_find_read(now, read), *times) for _, *times in written[:1]]
        entries = [
            CacheEntry(
                position, now.began, now.ended, now.began if _is_read(now, position, read) else now.ended, life, kept
            )
            for position, life, kept in sorted(written)
        ]
        self._branches = [*self._branches, CacheBranch(now, _limit(entries))][-MAX_BRANCHES:]


def _find_written(rules: CacheRules, now: RequestView) -> Iterator[tuple[int, int, int]]:
    """Return the prefixes that a request writes: position, life, and when it has certainly expired."""
    lives = {mark + 1: rules.lifetime(ttl) for mark, ttl in now.marks.items()}
    if not rules.explicit:
        lives = {now.count: rules.lifetime("")}
    for position, life in lives.items():
        if min(now.charged_before(position), now.input) >= rules.minimum:
            yield position, life, max(life, rules.kept) if not rules.explicit else life


def _find_read(now: RequestView, read: int) -> int:
    """Return the number of elements that a request read from the cache."""
    ends = [*accumulate(now.tokens())]
    return bisect_right(ends, (read - now.overhead) / now.scale) if now.scale else 0


def _is_read(now: RequestView, position: int, read: int) -> bool:
    """Return True if a request read a prefix. Its size is known by our own count only."""
    return bool(read) and now.charged_before(position) * READ_SHARE <= read


def find_position(rules: CacheRules, entries: Sequence[CacheEntry], comparison: Comparison) -> int:
    """Return the `position` of `find_readable`."""
    time, shared = comparison.now.began, comparison.shared
    ready = [each for each in entries if each.ready <= time and not each.is_probably_expired(time)]
    if not rules.explicit:
        return max([min(each.position, shared) for each in ready], default=0)
    return _find_from_marks(rules, comparison.now, [each for each in ready if each.position <= shared])


def find_readable(rules: CacheRules, entries: Sequence[CacheEntry], comparison: Comparison) -> ReadablePrefix:
    """Return the prefix of a request that entries of an earlier one let it read."""
    now, shared = comparison.now, comparison.shared
    time = now.began
    if not rules.explicit:
        have = [(each, min(each.position, shared)) for each in entries]
        alive = [(each, size) for each, size in have if not each.is_probably_expired(time)]
        return ReadablePrefix(
            position=find_position(rules, entries, comparison),
            fresh=max([size for each, size in have if each.ready <= time and not each.is_expired(time)], default=0),
            unexpired=max([size for each, size in have if each.ready <= time], default=0),
            ready=max([size for _, size in alive], default=0),
            found=max([size for each, size in alive if each.ready <= time], default=0),
            written=max([size for _, size in have], default=0),
        )
    usable = [each for each in entries if each.position <= shared]
    alive = [each for each in usable if not each.is_probably_expired(time)]
    ready = [each for each in alive if each.ready <= time]
    return ReadablePrefix(
        position=find_position(rules, entries, comparison),
        fresh=_find_from_marks(rules, now, [each for each in ready if not each.is_expired(time)]),
        unexpired=_find_from_marks(rules, now, [each for each in usable if each.ready <= time]),
        ready=_find_from_marks(rules, now, alive),
        found=max([each.position for each in ready], default=0),
        written=max([each.position for each in usable], default=0),
    )


def _find_from_marks(rules: CacheRules, now: RequestView, entries: Sequence[CacheEntry]) -> int:
    """Return the longest entry that a breakpoint of the request finds: at it, or within the lookback before it."""
    best = 0
    for mark in now.marks:
        end = mark + 1
        nearest = max([each.position for each in entries if each.position <= end], default=0)
        if nearest > best and (not rules.lookback or count_positions(rules, now, nearest, end) < rules.lookback):
            best = nearest
    return best


def count_positions(rules: CacheRules, request: RequestView, start: int, end: int) -> int:
    """Return the number of cache positions between two elements."""
    if not rules.joined or end - start < rules.lookback:
        return end - start
    elements = request.elements(start)[: end - start]
    joined = ("tool_call", "tool_result")
    repeated = sum([element.type in joined and element.type == before.type for before, element in pairwise(elements)])
    return len(elements) - repeated


def count_readable_tokens(rules: CacheRules, comparison: Comparison, position: int) -> int:
    """Return the tokens of a readable prefix as the provider counts them: whole blocks, and at least the minimum."""
    now, before = comparison.now, comparison.before
    tokens: float = now.charged_before(position)
    if not rules.explicit and position and position == comparison.equal < min(before.count, now.count):
        tokens += _count_common_part(before, now, position) * now.scale
    whole = int(min(tokens, now.input)) // rules.block * rules.block
    return whole if whole >= rules.minimum else 0


def _count_common_part(before: RequestView, now: RequestView, index: int) -> int:
    """Return the tokens of the part of an element with which another one begins too."""
    one, other = before.at(index).element, now.at(index).element
    if one.kind != other.kind or one.role != other.role:
        return 0
    texts = one.text, other.text
    same = count_common_prefix(*texts)
    return now.tokens(index)[0] * same // max(1, len(texts[1]))


def _limit(entries: list[CacheEntry]) -> list[CacheEntry]:
    """Return the shortest prefixes, which other requests share, and the longest ones."""
    return (
        entries if len(entries) <= MAX_ENTRIES else [*entries[:FIRST_ENTRIES], *entries[FIRST_ENTRIES - MAX_ENTRIES :]]
    )


def _used(entry: CacheEntry, now: RequestView) -> CacheEntry:
    return CacheEntry(entry.position, now.began, now.ended, entry.ready, entry.life, entry.kept)

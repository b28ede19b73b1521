"""A model of a provider's prompt cache: which prefix of a request should be readable when it begins.

A cache holds branches: requests that share a prefix up to some element, and differ after it. Each has entries, which
are prefixes that were written. An explicit cache has an entry at each breakpoint. An implicit cache can read every
prefix of what it has.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object
from contextc._plugins import data_files
from contextc._sequence_comparison import count_common_prefix
from contextc.analysis.request_elements import Element, RequestView, Section
from contextc.models import Model

# ── rules of providers ────────────────────────────────────────────────────────────────────────────────────────────────
# The rules of providers' prompt caches. The facts are in `cache_rules.toml`.


Tier: TypeAlias = Literal["all", "system", "messages"]
"""The part of a prefix that a setting invalidates: everything, system prompt and messages, or messages."""


class CacheRules(Struct, frozen=True, kw_only=True):
    """The rules of one cache; `cache_rules.toml` describes them. Times are in milliseconds."""

    name: str
    explicit: bool = False
    lookback: int = 0
    joined: bool = False
    block: int = 1
    minimum: int = 0
    reports: bool = False
    ignores_attribution: bool = False
    ttl: dict[str, int] = {}
    kept: int = 0
    keys: tuple[str, ...] = ()
    settings: dict[str, Tier] = {}
    ttl_fields: tuple[str, ...] = ()
    explicit_fields: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}

    def lifetime(self, name: str) -> int:
        """Return how long an entry exists without use, for the ttl of a breakpoint."""
        return self.ttl.get(name, self.ttl[""])

    def agrees(self, reason: str, causes: Iterable[str]) -> bool | None:
        """Return True if the provider's word for a miss means one of these causes; None if it states no cause."""
        return any([each in self.reasons[reason] for each in causes]) if reason in self.reasons else None


class _RuleEntry(Struct, frozen=True):
    """A rule of the file, with the channels that it applies to."""

    rules: CacheRules
    providers: tuple[str, ...]
    vendors: tuple[str, ...]
    formats: tuple[str, ...]
    models: tuple[tuple[re.Pattern[str], CacheRules], ...]


def find_cache_rules(request: RequestView) -> CacheRules | None:
    """Return the rules of the cache that a request uses; None if its provider is not known to have one."""
    model = request.model
    found = _find_rules(request.channel.provider, request.format, request.channel.model, model)
    if found is None:
        return None
    mode = {name: value for name, value in found.explicit_fields.items() if read_field(request.settings, name) == value}
    ttl = next((value for name in found.ttl_fields if (value := read_field(request.settings, name))), None)
    if mode:
        found = replace(found, explicit=True)
    if isinstance(ttl, str) and ttl in found.ttl:
        found = replace(found, ttl={**found.ttl, "": found.ttl[ttl]}, kept=found.ttl[ttl])
    return found


@cache
def _find_rules(provider: str, format: str, model_name: str, model: Model | None) -> CacheRules | None:
    entries = _load_rules()
    vendor = model.vendor if model is not None else ""
    entry = (
        next((each for each in entries if provider in each.providers), None)
        or next((each for each in entries if vendor in each.vendors and format == "openai_chat"), None)
        or next((each for each in entries if format in each.formats), None)
    )
    if entry is None:
        return None
    rules = next((rules for pattern, rules in entry.models if pattern.search(model_name)), entry.rules)
    if provider not in entry.providers:  # another one may not pass a key on
        rules = replace(rules, keys=())
    return replace(rules, minimum=model.cache_minimum) if model is not None and model.cache_minimum else rules


@cache
def _load_rules() -> tuple[_RuleEntry, ...]:
    content = tomllib.loads(data_files("contextc.analysis", ".toml")["cache_rules.toml"])
    return tuple([_read_entry(name, facts) for name, facts in content.items()])


def _read_entry(name: str, facts: JSONObject) -> _RuleEntry:
    options = as_object(facts.get("options"))
    rules = msgspec.convert(
        {
            **facts,
            "name": name,
            "ttl": _as_milliseconds(facts["ttl"]),
            "kept": facts.get("kept", facts["ttl"][""]) * 1_000,
            "ttl_fields": options.get("ttl", []),
            "explicit_fields": options.get("explicit", {}),
        },
        CacheRules,
    )
    models = [
        (
            re.compile(each["pattern"]),
            replace(
                rules,
                ttl=_as_milliseconds(each["ttl"]),
                kept=each.get("kept", each["ttl"][""]) * 1_000,
                keys=tuple(each.get("keys", rules.keys)),
            ),
        )
        for each in cast(list[JSONObject], facts.get("models", []))
    ]
    providers, vendors, formats = (tuple(facts.get(each, ())) for each in ("providers", "vendors", "formats"))
    return _RuleEntry(rules, providers, vendors, formats, tuple(models))


def _as_milliseconds(ttl: dict[str, int]) -> dict[str, int]:
    return {name: seconds * 1_000 for name, seconds in ttl.items()}


def read_field(settings: JSONObject, path: str) -> JSON:
    """Return a field of the settings by its path; None if it is missing."""
    if path in settings:
        return settings[path]
    value: JSON = settings
    for name in path.split("."):
        value = as_object(value).get(name)
    return value


MEDIA = "media"
"""The name that stands for the presence of media among the settings."""


def changed_settings(rules: CacheRules, before: RequestView, now: RequestView) -> Iterator[tuple[str, Tier]]:
    """Return the settings that changed, with the part of the prefix that each invalidates."""
    if MEDIA in rules.settings and (before.rows.media is None) != (now.rows.media is None):
        yield MEDIA, rules.settings[MEDIA]
    if before.settings is now.settings or before.settings == now.settings:
        return
    for path, tier in rules.settings.items():
        if path != MEDIA and read_field(before.settings, path) != read_field(now.settings, path):
            yield path, tier


# ── a request and an earlier one ──────────────────────────────────────────────────────────────────────────────────────
# Compare a request with an earlier one: the elements that both begin with, and how they differ after these.


MessageChange: TypeAlias = Literal["changed", "removed", "inserted", "replaced"]
SYSTEM_ROLES = ("system", "developer")
LAST_ELEMENTS = 16
MAX_SEARCH = 4_000
"""The number of elements after a difference among which equal ones are searched."""


class Comparison(Struct, frozen=True):
    """The comparison of two requests.

    `equal` is the number of leading elements that both have; `shared` is the number of those that a cache can share,
    which a changed setting may limit. `settings` are the changed settings, with what they invalidate.
    """

    before: RequestView
    now: RequestView
    equal: int
    shared: int
    settings: tuple[tuple[str, Tier], ...] = ()

    @property
    def is_extension(self) -> bool:
        """True if a cache can share everything that the earlier request had."""
        return self.shared >= self.before.count

    @property
    def equal_rows(self) -> int:
        """The number of leading elements of the messages that are equal, whatever precedes the messages."""
        head = self.now.head_ends[2]
        return self.equal - head if self.equal > head else count_equal_rows(self.before, self.now)

    @property
    def shared_tokens(self) -> int:
        """The tokens of the shared prefix, as the provider counts them."""
        return self.now.charged_before(self.shared)


def compare_requests(
    rules: CacheRules, before: RequestView, now: RequestView, ignored: Collection[str] = ()
) -> Comparison:
    """Return the comparison of a request with an earlier one to the same model.

    `ignored` are the paths of system blocks that the provider is known to leave out of its prefix.
    """
    equal = count_equal(before, now, ignored)
    settings = tuple(changed_settings(rules, before, now))
    limits = find_tier_starts(now)
    return Comparison(before, now, equal, min([equal, *[limits[tier] for _, tier in settings]]), settings)


def find_tier_starts(request: RequestView) -> dict[Tier, int]:
    """Return the number of elements before the part that a setting of each tier invalidates."""
    return {"all": 0, "system": request.head_start("system"), "messages": request.head_ends[2]}


def count_equal(before: RequestView, now: RequestView, ignored: Collection[str] = ()) -> int:
    """Return the number of leading elements that are equal, or that are ignored."""
    count = 0
    for one, other in zip(before.head_sections, now.head_sections, strict=True):
        same = _count_keys(one.elements, other.elements)
        while ignored and same < min(len(one.elements), len(other.elements)) and one.elements[same].suffix in ignored:
            same += 1 + _count_keys(one.elements[same + 1 :], other.elements[same + 1 :])
        count += same
        if same < max(len(one.elements), len(other.elements)):
            return count
    return count + count_equal_rows(before, now)


def count_equal_rows(before: RequestView, now: RequestView) -> int:
    """Return the number of leading elements of the messages that are equal, whatever precedes the messages."""
    one, other = before.rows.sections, now.rows.sections
    rows = count_common_prefix(one, other)
    count = before.rows.ends[rows - 1] if rows else 0
    if rows == len(one) or rows == len(other):
        return count
    pairs = zip(_iter_elements(one[rows:]), _iter_elements(other[rows:]), strict=False)
    for old, new in pairs:
        if old is not new and old.key != new.key:
            break
        count += 1
    return count


def _iter_elements(sections: Iterable[Section]) -> Iterator[Element]:
    return chain.from_iterable(map(attrgetter("elements"), sections))


def _count_keys(one: Sequence[Element], other: Sequence[Element]) -> int:
    if one == other:
        return len(one)
    size = min(len(one), len(other))
    return next((at for at in range(size) if one[at] is not other[at] and one[at].key != other[at].key), size)


def find_reformatted(before: RequestView, now: RequestView) -> int | None:
    """Return the index of the first element that is the same content in other bytes, such as other spacing."""
    heads = [[each for section in view.head_sections for each in section.elements] for view in (before, now)]
    at = next((at for at, pair in enumerate(zip(*heads, strict=False)) if _is_reformatted(*pair)), None)
    rows = count_common_prefix(before.rows.sections, now.rows.sections)
    if at is not None or rows == len(before.rows.sections):
        return at
    start = before.head_ends[2] + (before.rows.ends[rows - 1] if rows else 0)
    if len(heads[0]) != len(heads[1]):
        start = min(map(len, heads))
    pairs = zip(before.elements(start), now.elements(start), strict=False)
    return next((at for at, pair in enumerate(pairs, start) if _is_reformatted(*pair)), None)


def _is_reformatted(old: Element, new: Element) -> bool:
    return old is not new and old.raw != new.raw and old.ttl == new.ttl


def reordered_tools(before: RequestView, now: RequestView) -> bool:
    """Return True if both requests have the same tools in another order."""
    one, other = ([each.key for each in view.tools.elements] for view in (before, now))
    return one != other and sorted(one) == sorted(other)


def classify_message_change(before: RequestView, now: RequestView, at: int) -> MessageChange:
    """Return how the messages of a request differ from an element on: whole messages are missing, whole messages are
    new in between, or content changed; "replaced" if nothing of the earlier request follows.
    """
    old = [each.key for each in before.elements(at)[:MAX_SEARCH]]
    new = [each.key for each in now.elements(at)[:MAX_SEARCH]]
    removed = _find_run(old, new)
    inserted = _find_run(new, old)
    same = sum([one == other for one, other in zip(old, new, strict=False)])
    best = max(removed[1], inserted[1], same)
    if not best:
        return "replaced"
    if removed[1] == best and best > same:
        return "removed" if _are_whole(before, now, at, removed[0]) else "changed"
    if inserted[1] == best and best > same:
        return "inserted" if _are_whole(now, before, at, inserted[0]) else "changed"
    return "changed"


def _find_run(longer: Sequence[bytes], shorter: Sequence[bytes]) -> tuple[int, int]:
    """Return where the elements of `shorter` begin in `longer`, and how many follow there; the longest such run."""
    if not shorter:
        return 0, 0
    best = (0, 0)
    for start, key in enumerate(longer):
        if start and key == shorter[0]:
            size = min(len(longer) - start, len(shorter))
            run = next((n for n in range(size) if longer[start + n] != shorter[n]), size)
            best = max(best, (start, run), key=lambda each: each[1])
    return best


def _are_whole(longer: RequestView, shorter: RequestView, at: int, size: int) -> bool:
    """Return True if the first `size` elements from `at` on, which only one request has, are whole messages."""
    if all(each.type == "reasoning" for each in longer.elements(at)[:size]):
        return False  # reasoning belongs to the message after it, even where a format has an item of its own for it
    begins = [at == 0 or view.message_of(at - 1) != view.message_of(at) for view in (longer, shorter)]
    return all(begins) and longer.message_of(at + size) != longer.message_of(at + size - 1)


def count_repeated_tokens(before: RequestView, now: RequestView, at: int, old_at: int | None = None) -> int:
    """Return the tokens of the elements from one on, up to the last that the earlier request had too.

    What comes after it is new, so no cache could have had it. `old_at` is the index in the earlier request.
    """
    end = now.head_ends[2]
    if at <= end and count_equal_rows(before, now) >= before.rows.count > 0:
        return now.tokens_before(end + before.rows.count) - now.tokens_before(at)
    first = at if old_at is None else old_at
    elements = now.elements(at)
    for start in (max(first, before.count - LAST_ELEMENTS), first):
        known = {each.key for each in before.elements(start)}
        last = next((index for index in range(len(elements) - 1, -1, -1) if elements[index].key in known), -1)
        if last >= 0:
            return now.tokens_before(at + last + 1) - now.tokens_before(at)
    return 0


def count_known_tokens(before: RequestView, now: RequestView, at: int) -> int:
    """Return the tokens of the elements from one on that the earlier request had too, in any order."""
    known = {each.key for each in before.elements(at)}
    pairs = zip(now.elements(at), now.tokens(at), strict=True)
    return sum([tokens for element, tokens in pairs if element.key in known])


def is_system_element(view: RequestView, index: int) -> bool:
    """Return True if an element belongs to the instructions before the conversation."""
    if (part := view.head_part_at(index)) is not None:
        return part == "system"
    leading = view.head_ends[2]
    return all(
        each.role in SYSTEM_ROLES or each.type == "other" for each in view.elements(leading)[: index - leading + 1]
    )


# ── the cache ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
            position = find_readable(rules, branch.entries, comparison).position
            score = (comparison.shared, position, rows, recent)
            if best is None or score > best[0]:
                best = score, comparison, branch
        if best is None:
            return CacheOutlook(None, None, ReadablePrefix(), 0)
        return _look_ahead(rules, *best[1:])

    def expect_from(self, rules: CacheRules, tip: RequestView, now: RequestView) -> CacheOutlook | None:
        """Return what a request should be able to read of one earlier request; None if it was replaced."""
        branch = next((each for each in reversed(self._branches) if each.tip is tip), None)
        if branch is None:
            return None
        return _look_ahead(rules, compare_requests(rules, tip, now, self._ignored), branch)

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
                        entry = replace(entry, used=now.began, ended=now.ended)
                    entries[entry.position] = entry
        for position, life, kept in _find_written(rules, now):
            old = entries.get(position)
            is_read = old is not None and position <= outlook.prefix.position
            ready = old.ready if old is not None and is_read else now.ended
            entries[position] = CacheEntry(position, now.began, now.ended, ready, life, kept)
        made = CacheBranch(now, _limit_entries([entries[each] for each in sorted(entries)]))
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
        self._branches = [*self._branches, CacheBranch(now, _limit_entries(entries))][-MAX_BRANCHES:]


def _look_ahead(rules: CacheRules, comparison: Comparison, branch: CacheBranch) -> CacheOutlook:
    prefix = find_readable(rules, branch.entries, comparison)
    return CacheOutlook(comparison, branch, prefix, count_readable_tokens(rules, comparison, prefix.position))


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


def find_readable(rules: CacheRules, entries: Sequence[CacheEntry], comparison: Comparison) -> ReadablePrefix:
    """Return the prefix of a request that entries of an earlier one let it read. An implicit cache can read a part of
    an entry, an explicit one only whole entries that a breakpoint finds.
    """
    now, shared = comparison.now, comparison.shared
    time = now.began

    def longest(some: Iterable[CacheEntry]) -> int:
        return max([min(each.position, shared) for each in some], default=0)

    def reach(some: Sequence[CacheEntry]) -> int:
        return _find_from_marks(rules, now, some) if rules.explicit else longest(some)

    usable = [each for each in entries if not rules.explicit or each.position <= shared]
    alive = [each for each in usable if not each.is_probably_expired(time)]
    ready = [each for each in alive if each.ready <= time]
    return ReadablePrefix(
        position=reach(ready),
        fresh=reach([each for each in ready if not each.is_expired(time)]),
        unexpired=reach([each for each in usable if each.ready <= time]),
        ready=reach(alive),
        found=longest(ready),
        written=longest(usable),
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


def _limit_entries(entries: list[CacheEntry]) -> list[CacheEntry]:
    """Return the shortest prefixes, which other requests share, and the longest ones."""
    return (
        entries if len(entries) <= MAX_ENTRIES else [*entries[:FIRST_ENTRIES], *entries[FIRST_ENTRIES - MAX_ENTRIES :]]
    )

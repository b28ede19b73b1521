"""Compare a request with an earlier one: the elements that both begin with, and how they differ after these."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc.analysis.cache_rules import CacheRules, Tier, changed_settings
from contextc.analysis.request_elements import Element, Section
from contextc.analysis.request_view import RequestView

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
    limits = count_before_tiers(now)
    return Comparison(before, now, equal, min([equal, *[limits[tier] for _, tier in settings]]), settings)


def count_before_tiers(request: RequestView) -> dict[Tier, int]:
    """Return the number of elements before the part that a setting of each tier invalidates."""
    return {"all": 0, "system": request.head_start("system"), "messages": request.head_ends[2]}


def count_equal(before: RequestView, now: RequestView, ignored: Collection[str] = ()) -> int:
    """Return the number of leading elements that are equal, or that are ignored."""
    count = 0
    for one, other in zip(before.head_sections, now.head_sections, strict=True):
        same = _count_in(one, other)
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


def _count_in(one: Section, other: Section) -> int:
    if one.elements == other.elements:
        return len(one.elements)
    return _count_keys(one.elements, other.elements)


def _count_keys(one: Sequence[Element], other: Sequence[Element]) -> int:
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
    same = _count_aligned(old, new)
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


def _count_aligned(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """Return the number of elements at equal positions that are equal."""
    return sum([one == other for one, other in zip(old, new, strict=False)])


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

"""The comparison of two sequences: texts, lists of messages, lists of hashes. All of it takes linear time.

Every comparison of two requests is made of these: how far both are equal, and which runs of elements both have. At the
end: which known names are near a misspelt one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

# ── beginnings and ends ───────────────────────────────────────────────────────────────────────────────────────────────


def count_common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of leading elements that are equal. Both must be of one type, such as two texts or two lists.

    They are compared in halves: slices are compared much faster than elements in a loop.
    """
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def count_common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """Return the number of leading elements that are equal, and of equal elements at the end of what follows them."""
    start = count_common_prefix(one, other)
    low, high = 0, min(len(one), len(other)) - start + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle
    return start, low


# ── common runs ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Alignment of two sequences: the runs of elements that both have, in the same order.


Run: TypeAlias = tuple[int, int, int]
"""A common run: its start in the first sequence, its start in the second, and its length."""
MAX_DEPTH = 6
"""The number of times that a part without anchors is searched again for elements that are unique within it."""


def align(before: Sequence[Hashable], after: Sequence[Hashable], depth: int = MAX_DEPTH) -> Iterator[Run]:
    """Yield the common runs of both sequences in order, like `find_common_runs`, and again between these runs, where
    more elements are unique.
    """
    done = at = 0
    runs = list(find_common_runs(before, after))
    for start, other, length in [*runs, (len(before), len(after), 0)]:
        old, new = before[done:start], after[at:other]
        if old and new and runs and depth:
            for first, second, size in align(old, new, depth - 1):
                yield done + first, at + second, size
        if length:
            yield start, other, length
        done, at = start + length, other + length


def split_at_runs(
    before: Sequence[T], after: Sequence[T], runs: Iterable[Run]
) -> Iterator[tuple[Sequence[T], Sequence[T], Sequence[T], Sequence[T]]]:
    """Yield both sequences in parts: what each has before a common run, and the run in each; at last, what follows."""
    done = at = 0
    for start, other, length in [*runs, (len(before), len(after), 0)]:
        yield before[done:start], after[at:other], before[start : start + length], after[other : other + length]
        done, at = start + length, other + length


def find_common_runs(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[Run]:
    """Yield the common runs of both sequences, in order: start in the first, start in the second, length.

    The common prefix and suffix are found first. Between them, elements that both contain exactly once, in the same
    order, are anchors, and runs grow from there. So the time is linear in the lengths, not in their product.
    """
    start, end = count_common_ends(before, after)
    if start:
        yield 0, 0, start
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    done = at = 0
    for one, two in _find_anchors(old, new):
        if one < done or two < at:  # inside a run that was already yielded
            continue
        back = 0
        while one - back > done and two - back > at and old[one - back - 1] == new[two - back - 1]:
            back += 1
        ahead = 1
        while one + ahead < len(old) and two + ahead < len(new) and old[one + ahead] == new[two + ahead]:
            ahead += 1
        yield start + one - back, start + two - back, back + ahead
        done, at = one + ahead, two + ahead
    if end:
        yield len(before) - end, len(after) - end, end


def _find_anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return positions of elements that occur once in each sequence: the longest list that is in the same order in
    both.
    """
    counts = Counter(old), Counter(new)
    places = {each: index for index, each in enumerate(new) if counts[1][each] == 1}
    pairs = [(n, places[each]) for n, each in enumerate(old) if counts[0][each] == 1 and each in places]
    ends: list[int] = []  # per length of an increasing run: its smallest last position
    at: list[int] = []  # the index of that pair
    before: list[int] = []  # per pair: the index of its predecessor in the run
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        at[length : length + 1] = [index]
        before.append(at[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    index = at[-1] if at else -1
    while index >= 0:
        found.append(pairs[index])
        index = before[index]
    return found[::-1]


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


MIN_SIMILARITY = 0.7
"""Of a typing error: "opnai" and "openai" have 0.91, "lits" and "list" 0.75; "nope" and "openai", not one, have 0.6."""


def find_near_names(name: str, known: Iterable[str], similarity: float = MIN_SIMILARITY) -> list[str]:
    """Return at most three known names that are near a misspelt one, the nearest first."""
    from difflib import get_close_matches  # only errors need it

    return get_close_matches(name, list(known), n=3, cutoff=similarity)

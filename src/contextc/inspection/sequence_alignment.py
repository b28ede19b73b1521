"""Alignment of two sequences in linear time: the runs of elements that both have, in the same order."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

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


def find_common_runs(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[Run]:
    """Yield the common runs of both sequences, in order: start in the first, start in the second, length.

    The common prefix and suffix are found first. Between them, elements that both contain exactly once, in the same
    order, are anchors, and runs grow from there. So the time is linear in the lengths, not in their product.
    """
    start = next((n for n, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), None)
    start = min(len(before), len(after)) if start is None else start
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    if start:
        yield 0, 0, start
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    done = at = 0
    for one, two in _anchors(old, new):
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


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
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

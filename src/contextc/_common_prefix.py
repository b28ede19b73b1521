"""The length of the common prefix of two sequences."""

from collections.abc import Sequence


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

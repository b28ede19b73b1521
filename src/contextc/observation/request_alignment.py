"""Compare the elements of a request with those of the request before it on the same channel.

A row of the ledger holds a segment: the output of the model, and what follows it. Rows are used from an element on to
their end.
"""

from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

from contextc._common_prefix import count_common_prefix

Change: TypeAlias = Literal["", "rewound", "changed", "removed", "inserted"]
MAX_PRODUCT = 1_000_000


class Alignment(NamedTuple):
    """The rows of the previous request that are the leading elements of this one.

    `rows` are their indexes, each with the number of elements to skip. The first `shared` are the same prefix.
    `elements` is the number of elements in all of them, `equal` the number of leading elements that both requests have.
    `change` is how the client broke the prefix.
    """

    rows: list[tuple[int, int]]
    shared: int
    elements: int
    equal: int
    change: Change


def align(before: Sequence[bytes], now: Sequence[bytes], counts: Sequence[int]) -> Alignment:
    """Compare two requests by the hashes of their elements. `counts` has the number of elements of each row before."""
    equal = count_common_prefix([*before], [*now])
    ends = list(accumulate(counts))
    shared = sum(1 for end in ends if end <= equal)
    kept = ends[shared - 1] if shared else 0
    rows = [(index, 0) for index in range(shared)]
    if equal == len(before):
        return Alignment(rows, shared, kept, equal, "")
    if equal == len(now):
        return Alignment(rows, shared, kept, equal, "rewound")
    if (len(before) - kept) * (len(now) - kept) > MAX_PRODUCT:
        return Alignment(rows, shared, kept, equal, "changed")
    blocks = SequenceMatcher(None, before[equal:], now[equal:], autojunk=False).get_matching_blocks()
    first = blocks[0]
    if not first.size:
        return Alignment(rows, shared, kept, equal, "rewound" if len(now) - equal == 1 else "changed")
    if first.b or equal > kept:
        return Alignment(rows, shared, kept, equal, "inserted" if not first.a else "changed")
    at = kept
    for block in blocks:
        if not block.size or equal + block.b != at:
            break
        first_row = bisect_right(ends, equal + block.a)
        skip = equal + block.a - (ends[first_row] - counts[first_row])
        for index in range(first_row, len(counts)):
            size = counts[index] - skip
            if at + size > equal + block.b + block.size:
                break
            rows.append((index, skip))
            at, skip = at + size, 0
    return Alignment(rows, shared, at, equal, "removed" if len(rows) > shared else "changed")

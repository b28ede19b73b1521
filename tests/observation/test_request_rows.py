"""The rows of an observed request, compared with those of the request before it."""

import pytest

from contextc.observation.request_rows import RowAlignment, align


def hashes(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@pytest.mark.parametrize("size", [10, 3_000])
def test_a_history_without_its_first_messages_has_the_same_rows(size: int) -> None:
    """A client that keeps its last messages, however many these are. Otherwise each request would be stored again."""
    before = hashes(*range(size))
    found = align(before, [before[0], *before[5:], b"new"], [1] * size)
    assert found == RowAlignment([(0, 0), *[(row, 0) for row in range(5, size)]], 1, size - 4, 1, "removed")


def test_a_row_is_used_from_an_element_on() -> None:
    before, counts = hashes(*range(9)), [3, 3, 3]
    found = align(before, [*before[:3], *before[4:]], counts)
    assert found == RowAlignment([(0, 0), (1, 1), (2, 0)], 1, 8, 3, "removed")


@pytest.mark.parametrize(
    ("now", "equal", "change"),
    [
        (hashes(0, 1, 2, 3, 4, 5), 4, ""),
        (hashes(0, 1), 2, "rewound"),
        (hashes(0, 1, 8), 2, "rewound"),
        (hashes(0, 1, 8, 3), 2, "changed"),
        (hashes(0, 8, 1, 2, 3), 1, "inserted"),
        (hashes(0, 8, 9), 1, "changed"),
        (hashes(0, 3), 1, "removed"),
    ],
)
def test_how_the_client_broke_the_prefix(now: list[bytes], equal: int, change: str) -> None:
    found = align(hashes(0, 1, 2, 3), now, [1] * 4)
    assert (found.equal, found.change) == (equal, change)

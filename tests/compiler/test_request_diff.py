"""Differences between two requests: exact, with unchanged parts folded."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextc._json import JSON, JSONObject, decode, encode
from contextc._sequence_comparison import find_common_runs
from contextc.errors import InvalidRequest
from contextc.inspection.diff import MAX_LINE_LENGTH, MAX_LINES, RequestDiff, diff_requests


def request_body(*texts: object) -> bytes:
    return encode({"model": "m", "messages": [{"role": "user", "content": item} for item in texts]})


def changes(diff: RequestDiff) -> list[tuple[str, str]]:
    return [(hunk.kind, hunk.path) for hunk in diff.hunks if hunk.kind != "same"]


def test_what_comes_to_the_end_is_all_that_is_reported() -> None:
    diff = diff_requests(request_body("a", "b"), request_body("a", "b", "c"))
    assert [(hunk.kind, hunk.path, hunk.count) for hunk in diff.hunks] == [
        ("same", "model", 1),
        ("same", "messages[0…1]", 2),
        ("added", "messages[2]", 4),
    ]
    assert diff.hunks[-1].lines == ["{", '  "role": "user",', '  "content": "c"', "}"]
    assert diff.unchanged_bytes == len('"m"') + 2 * len(encode({"role": "user", "content": "a"}))
    assert not diff.cut


def test_in_a_changed_message_the_lines_are_reported_that_changed() -> None:
    diff = diff_requests(request_body("a", "b", "c"), request_body("a", "x", "c"))
    assert [(hunk.kind, hunk.path, hunk.lines) for hunk in diff.hunks[2:5]] == [
        ("same", "messages[1]", ["{", '  "role": "user",']),
        ("removed", "messages[1]", ['  "content": "b"']),
        ("added", "messages[1]", ['  "content": "x"']),
    ]


def test_what_was_cut_from_the_middle_leaves_the_rest_the_same() -> None:
    """Guarantee 7.2: a cut takes old messages away, and shortens others between those that stay."""
    before = [f"message {number}" for number in range(2_000)]
    after = [text for number, text in enumerate(before) if number % 7]
    diff = diff_requests(request_body(*before), request_body(*after))
    assert {kind for kind, _ in changes(diff)} == {"removed"}
    assert len(changes(diff)) == len(before) - len(after)


def test_fields_that_come_go_and_change_are_reported() -> None:
    diff = diff_requests(encode({"a": 1, "b": {"c": 2}}), encode({"b": {"c": 3}, "d": [1]}))
    assert changes(diff) == [("removed", "b"), ("added", "b"), ("added", "d[0]"), ("removed", "a")]


def test_what_is_too_long_to_read_is_cut_and_it_is_reported() -> None:
    diff = diff_requests(request_body(), request_body(*map(str, range(5_000))))
    assert diff.cut
    assert sum(len(hunk.lines) for hunk in diff.hunks) == MAX_LINES
    wide = diff_requests(request_body("a"), request_body("x" * 2 * MAX_LINE_LENGTH))
    assert wide.cut
    assert max(len(line) for hunk in wide.hunks for line in hunk.lines) == MAX_LINE_LENGTH + 1


def test_long_unchanged_lines_inside_a_message_are_folded() -> None:
    before: JSONObject = {"messages": [{str(number): number for number in range(100)}]}
    after: JSONObject = {"messages": [{**before["messages"][0], "50": "x"}]}
    diff = diff_requests(encode(before), encode(after))
    same = [hunk for hunk in diff.hunks if hunk.kind == "same"]
    assert [hunk.count for hunk in same] == [51, 50]
    assert all(len(hunk.lines) == 7 and hunk.lines[3] == "…" for hunk in same)


def test_invalid_requests_are_refused() -> None:
    for strange in (b"[]", b"x", b""):
        with pytest.raises(InvalidRequest):
            diff_requests(strange, b"{}")


SHORT = st.lists(st.sampled_from("abcdef"), max_size=12)


@given(SHORT, SHORT)
def test_nothing_is_lost_and_nothing_is_made_up(before: list[str], after: list[str]) -> None:
    """The common runs, and the parts between them, add up to the two lists."""
    first, second = ([encode(each) for each in side] for side in (before, after))
    done = at = 0
    for start, other, length in find_common_runs(first, second):
        assert start >= done
        assert other >= at
        assert length > 0
        assert first[start : start + length] == second[other : other + length]
        done, at = start + length, other + length
    diff = diff_requests(encode({"messages": before}), encode({"messages": after}))
    assert sorted([*_only(diff, "added"), *_same(diff, after)]) == sorted(after)
    assert len(_only(diff, "removed")) == len(before) - len(_same(diff, after))


def _only(result: RequestDiff, kind: str) -> list[str]:
    return [decode(line) for hunk in result.hunks if hunk.kind == kind for line in hunk.lines]


def _same(result: RequestDiff, after: Sequence[JSON]) -> list[str]:
    found: list[str] = []
    for hunk in result.hunks:
        if hunk.kind == "same" and hunk.path.startswith("messages"):
            first = hunk.path.removeprefix("messages").strip("[]").split("…")[0]
            found += after[int(first) : int(first) + hunk.count] if first else after
    return found


def test_ten_thousand_messages_are_compared_without_being_taken_apart() -> None:
    """Work follows the lengths: also where every second message is another, and many are the same."""
    chance = random.Random(8)
    before = [f"message {number}" if number % 3 else "ok" for number in range(10_000)]
    after = [f"{text}!" if chance.random() < 0.5 else text for text in before]
    diff = diff_requests(request_body(*before), request_body(*after))
    assert diff.cut
    assert diff.unchanged_bytes > 100_000

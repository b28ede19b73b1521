"""Recognition of what changed between two texts."""

import pytest

from contextc._sequence_comparison import count_common_ends, count_common_prefix
from contextc.analysis.changed_content import find_leaf, recognise

LONG = "Follow these rules. " * 20


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Current time: 10:31:02. Rules", "Current time: 10:31:40. Rules", "clock"),
        ("It is 9:05 AM", "It is 9:06 AM", "clock"),
        ("now=1790000000123;", "now=1790000020123;", "clock"),
        ("2026-11-17T10:31:02Z", "2026-11-17T10:32:07Z", "clock"),
        ("Today is 2026-11-16.", "Today is 2026-11-17.", "date"),
        ("Today's date: Nov 16, 2026", "Today's date: Nov 17, 2026", "date"),
        ("Today is Monday.", "Today is Tuesday.", "date"),
        ("Step 4 of many", "Step 5 of many", "counter"),
        ("You have used 12,400 tokens", "You have used 13,052 tokens", "counter"),
        ("request 3/10 left", "request 4/10 left", "counter"),
        ("session 3f2a9c1e-7d4b-4a6e-9f10-0123456789ab", "session 9b1d0c2f-1a2b-4c3d-8e9f-ba9876543210", "random_id"),
        ("id: a81f03bc9d", "id: 77e0c1d4aa", "random_id"),
        (
            "x-anthropic-billing-header: cc_version=2.1.70.a1f; cch=3fa91;",
            "x-anthropic-billing-header: cc_version=2.1.70.a1f; cch=00b7c;",
            "attribution",
        ),
        ('{"a": 1, "b": {"c": 2, "d": 3}}', '{"b": {"d": 3, "c": 2}, "a": 1}', "key_order"),
        ("caf\u00e9 au lait", "cafe\u0301 au lait", "reencoded"),
        ("line one\nline two", "line one\r\nline two", "reencoded"),
        ("if a < b & c", "if a &lt; b &amp; c", "reencoded"),
        ("result: " + LONG, "[Old tool result content cleared]", "shortened"),
        ("result: " + LONG, "result: " + LONG[:100], "shortened"),
        ("You are a cook.", "You are a lawyer.", "text"),
    ],
)
def test_a_change_is_recognised_by_what_changed(before: str, after: str, kind: str) -> None:
    for frame in ("{}", LONG + "{}", "{}" + LONG, LONG + "\n{}\n" + LONG):
        if kind in ("key_order", "shortened") and frame != "{}":
            continue
        change = recognise(frame.replace("{}", before), frame.replace("{}", after))
        assert change.kind == kind, frame
        assert change.before != change.after


def test_common_beginnings_and_ends() -> None:
    assert count_common_prefix("abcd", "abxd") == 2
    assert count_common_prefix("", "a") == 0
    assert count_common_prefix("abc", "abc") == 3
    assert count_common_ends("abcd", "xbcd") == (0, 3)
    assert count_common_ends("aa", "aaa") == (2, 0)


def test_the_first_difference_of_two_values_has_a_path() -> None:
    before = {"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    after = {"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "c"}]}
    assert find_leaf(before, after) == (".content[1].text", "b", "c")
    assert find_leaf({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}).path == ".a"
    assert find_leaf([1], [1, 2]) == ("[1]", None, 2)

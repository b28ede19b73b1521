"""Calls and results of Google's format are matched by id, else by name and place."""

from typing import Any

import pytest

from tests.fake_vendors.gemini_calls import list_gemini_calls


def model(*names: str, **ids: str) -> dict[str, Any]:
    calls = [{"name": name, **({"id": ids[name]} if name in ids else {})} for name in names]
    return {"role": "model", "parts": [{"text": "I look."}, *[{"functionCall": call} for call in calls]]}


def results(*names: str, **ids: str) -> dict[str, Any]:
    found = [{"name": name, **({"id": ids[name]} if name in ids else {})} for name in names]
    return {"role": "user", "parts": [{"functionResponse": each} for each in found]}


@pytest.mark.parametrize(
    ("contents", "orphans"),
    [
        ([model("a", "a", "b"), results("b", "a", "a")], set[str]()),
        ([model("a", "b", a="1", b="2"), results("b", "a", b="2", a="1")], set[str]()),
        ([model("a"), model("b"), results("a", "b")], set[str]()),
        ([model("a", "a"), results("a")], {"0.2"}),
        ([model("a"), results("a", "a")], {"1.1"}),
        ([model("a"), results("b")], {"0.1", "1.0"}),
        ([model("a", a="1"), results("a", a="2")], {"0.1", "1.0"}),
        ([results("a"), model("a"), results("a")], {"0.0"}),
        ([model("a"), results(), model("b"), results("b", "a")], {"0.1", "3.1"}),
    ],
)
def test_orphans_are_found_with_and_without_ids(contents: list[dict[str, Any]], orphans: set[str]) -> None:
    """The benchmarks of frameworks, and the tests of windows, rely on it."""
    found = list(list_gemini_calls(contents))
    calls, answers = ({name for kind, name in found if kind == which} for which in ("call", "result"))
    assert calls ^ answers == orphans

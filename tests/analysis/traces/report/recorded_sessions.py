"""Traces of the half `report`: recorded sessions."""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.recorded import recorded
from tests.analysis.traces.texts import JSONObject

# Recorded sessions


def _backwards(body: JSONObject, count: int) -> None:
    if count >= 2:
        body["tools"].reverse()


def _other_key(body: JSONObject, count: int) -> None:
    if count >= 2:
        body["prompt_cache_key"] = "another-key"


def _without_marks(body: JSONObject, count: int) -> None:
    if count == 3:
        for block in [*body["system"], *[each for message in body["messages"] for each in message["content"]]]:
            block.pop("cache_control", None)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("clean-recorded-agents", ("anthropic",), recorded("claude_code", 5))
    add("clean-recorded-fork", ("anthropic",), recorded("claude_code", 6))
    add("clean-recorded-title", ("anthropic",), recorded("claude_code", 9))
    add("clean-recorded-agents", ("responses",), recorded("codex", 4))
    add("clean-recorded-retry", ("responses",), recorded("codex", 6))
    add("compacted-recorded", ("anthropic",), recorded("claude_code", 8, {6: "compacted"}))
    add("compacted-recorded-large", ("anthropic",), recorded("claude_code", 15, {3: "compacted"}))
    add(
        "tools_reordered-recorded",
        ("anthropic",),
        recorded("claude_code", 9, {2: "tools_reordered"}, change=_backwards),
    )
    add("settings_changed-recorded", ("responses",), recorded("codex", 4, {2: "settings_changed"}, change=_other_key))
    add(
        "breakpoint_missing-recorded",
        ("anthropic",),
        recorded("claude_code", 5, {3: "breakpoint_missing"}, change=_without_marks),
    )

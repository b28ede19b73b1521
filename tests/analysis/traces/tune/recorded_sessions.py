"""Traces of the half `tune`: recorded sessions."""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.recorded import recorded
from tests.analysis.traces.texts import JSONObject

# Recorded sessions


def _without_reminder(body: JSONObject, count: int) -> None:
    """Remove the third block of the first message, from the fourth request on."""
    if count >= 3:
        del body["messages"][0]["content"][2]


def _sorted_tools(body: JSONObject, count: int) -> None:
    if count >= 3:
        tools: list[JSONObject] = body["tools"]
        body["tools"] = sorted(tools, key=lambda tool: str(tool.get("name")), reverse=True)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("clean-recorded-loop", ("anthropic",), recorded("claude_code", 1))
    add("clean-recorded-agent", ("anthropic",), recorded("claude_code", 3))
    add("clean-recorded-agents", ("anthropic",), recorded("claude_code", 4))
    add("clean-recorded-loop", ("responses",), recorded("codex", 1))
    add("clean-recorded-agent", ("responses",), recorded("codex", 3))
    add("compacted-recorded", ("anthropic",), recorded("claude_code", 7, {5: "compacted"}))
    add("model_changed-recorded", ("anthropic",), recorded("claude_code", 16, {2: "model_changed"}))
    add("cache_expired-recorded", ("anthropic",), recorded("claude_code", 2, {3: "cache_expired"}, idle={3: 700}))
    add(
        "message_changed-recorded",
        ("anthropic",),
        recorded("claude_code", 2, {3: "message_changed"}, change=_without_reminder),
    )
    add("tools_reordered-recorded", ("responses",), recorded("codex", 2, {3: "tools_reordered"}, change=_sorted_tools))

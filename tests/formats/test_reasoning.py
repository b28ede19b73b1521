"""Reasoning in histories that are sent again."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from tests.formats.known import problems

THOUGHT = cc.Reasoning(text="I have to read it. ", signature="sig", provider="anthropic")
HISTORY = [
    cc.user("What is in a.py?"),
    cc.assistant("Let me look.", reasoning=THOUGHT, tool_calls=[cc.tool_call("c1", "read", "{}")]),
    cc.tool_result("c1", "read", "print(1)"),
]


def made(name: str, policy: str) -> Formatter:
    return type(formatter(name))(reasoning=policy)  # pyright: ignore[reportCallIssue]  # every face takes it


@pytest.mark.parametrize("name", format_names())
def test_inline_joins_reasoning_into_the_text(name: str) -> None:
    """Guarantee 2.4: `inline`: content and reasoning in the order of the parts."""
    wire = made(name, "inline").format(HISTORY)
    assert "I have to read it. Let me look." in str(wire)
    assert "sig" not in str(wire).replace("thoughtSignature", "").replace("skip_thought_signature_validator", "")
    assert cc.lint(wire, format=name) == []
    assert problems(name, wire) == []


@pytest.mark.parametrize("name", format_names())
def test_drop_leaves_reasoning_out(name: str) -> None:
    """Guarantee 2.4: `drop`."""
    wire = made(name, "drop").format(HISTORY)
    assert "I have to read it." not in str(wire)
    assert "Let me look." in str(wire)
    assert cc.lint(wire, format=name) == []


@pytest.mark.parametrize(("policy", "text"), [("drop", "yo"), ("inline", "hmyo")])
def test_reasoning_in_a_field_of_its_own_follows_the_policy_too(policy: str, text: str) -> None:
    """Guarantee 2.4: endpoints like DeepSeek's keep it beside the content."""
    said: JSONObject = {"role": "assistant", "content": "yo", "reasoning_content": "hm"}
    history = cc.OpenAIFormatter().decode_request([{"role": "user", "content": "hi"}, said]).messages
    assert made("openai_chat", policy).format(history)[1] == {"role": "assistant", "content": text}

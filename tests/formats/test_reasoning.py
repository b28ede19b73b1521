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


def test_by_default_only_providers_that_require_reasoning_get_it() -> None:
    """Guarantee 2.4: `native`."""
    assert cc.AnthropicFormatter().format(HISTORY)[1]["content"][0] == {
        "type": "thinking",
        "thinking": "I have to read it. ",
        "signature": "sig",
    }
    assert cc.OpenAIFormatter().format(HISTORY)[1]["content"] == "Let me look."


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


def test_what_dropped_reasoning_led_to_goes_without_its_id() -> None:
    """Guarantee 2.4: by its id, OpenAI would ask for the reasoning."""
    said: JSONObject = {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
        ]
    }
    reply = cc.formats.OpenAIResponsesFormatter().decode_reply(said)
    wire = cc.formats.OpenAIResponsesFormatter(reasoning="drop").format([cc.user("hi"), reply, HISTORY[2]])
    assert wire[1] == {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}


SIGNED: JSONObject = {
    "modelVersion": "gemini-3-pro-preview",
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"id": "c1", "name": "read", "args": {}}, "thoughtSignature": "c2ln"}],
            }
        }
    ],
}


@pytest.mark.parametrize(
    ("asked", "signature"),
    [
        (None, "c2ln"),
        ("gemini-3-pro", "c2ln"),
        ("gemini-3-pro-preview", "c2ln"),
        ("gemini-4-argon", "skip_thought_signature_validator"),
    ],
)
def test_a_signature_goes_to_no_model_but_the_one_that_gave_it(asked: str | None, signature: str) -> None:
    """llxprt-code#2335: the model that produced it decides, not the provider alone."""
    reply = cc.GeminiFormatter().decode_reply(SIGNED)
    wire = cc.GeminiFormatter(model=asked).format([cc.user("hi"), reply, HISTORY[2]])
    assert wire[1]["parts"][0]["thoughtSignature"] == signature


@pytest.mark.parametrize(("policy", "text"), [("drop", "yo"), ("inline", "hmyo")])
def test_reasoning_in_a_field_of_its_own_follows_the_policy_too(policy: str, text: str) -> None:
    """Guarantee 2.4: endpoints like DeepSeek's keep it beside the content."""
    said: JSONObject = {"role": "assistant", "content": "yo", "reasoning_content": "hm"}
    history = cc.OpenAIFormatter().decode_request([{"role": "user", "content": "hi"}, said]).messages
    assert made("openai_chat", policy).format(history)[1] == {"role": "assistant", "content": text}

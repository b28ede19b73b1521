"""Failures known from practice: reasoning that is lost, or sent to the wrong model."""

import json
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import formatter
from tests.formats.field import NAMES, USE, outline, result, sent
from tests.formats.known import having

THINKING: list[JSONObject] = [
    {"type": "thinking", "thinking": "I have to read it.", "signature": "sig1"},
    {"type": "redacted_thinking", "data": "cmVk"},
    {"type": "thinking", "thinking": "", "signature": "sig2"},
]
CLAUDE: JSONObject = {
    "id": "msg_1",
    "model": "claude-opus-5-5",
    "role": "assistant",
    "content": [*THINKING, {"type": "text", "text": "Let me look."}, USE],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
CLAUDE_STREAM: list[JSONObject] = [
    {"type": "message_start", "message": {**CLAUDE, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I have to "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "read it."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig1"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": THINKING[1]},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "sig2"}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": "Let me look."}},
    {"type": "content_block_stop", "index": 3},
    {"type": "content_block_start", "index": 4, "content_block": USE},
    {"type": "content_block_stop", "index": 4},
]


def thought_by_claude(*, streamed: bool = False) -> cc.Message:
    form = formatter("anthropic")
    return form.decode_stream(CLAUDE_STREAM) if streamed else form.decode_reply(CLAUDE)


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_goes_back_first_and_unchanged(streamed: bool) -> None:
    """openai-agents-python#1704; Guarantee 2.4: "Expected `thinking`… found `tool_use`"; the empty and the redacted
    too.
    """
    store = cc.open_store("memory:")
    history = [cc.user("hi"), thought_by_claude(streamed=streamed), result("a")]
    store.extend("demo", history)
    for messages in (history, store.load("demo")):
        wire = sent("anthropic", messages)
        assert wire[1] == {"role": "assistant", "content": CLAUDE["content"]}
        body = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 4096,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
        assert cc.lint({**body, "messages": wire}, format="anthropic") == []


REASONING: JSONObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "gAAAAAB",
}
FUNCTION_CALL: JSONObject = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "a",
    "name": "look",
    "arguments": '{ "path":"a.py" }',
    "status": "completed",
}
OPENAI: JSONObject = {
    "id": "resp_1",
    "model": "gpt-5.6",
    "status": "completed",
    "output": [REASONING, FUNCTION_CALL],
}
OPENAI_STREAM: list[JSONObject] = [  # cut off before `response.completed`: items have to be put together
    {"type": "response.created", "response": {**OPENAI, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "encrypted_content": "gAA"}},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.added", "output_index": 1, "item": {**FUNCTION_CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": FUNCTION_CALL["arguments"]},
    {"type": "response.output_item.done", "output_index": 1, "item": FUNCTION_CALL},
]


def thought_by_gpt(*, streamed: bool = False) -> cc.Message:
    form = formatter("openai_responses")
    return form.decode_stream(OPENAI_STREAM) if streamed else form.decode_reply(OPENAI)


@pytest.mark.parametrize("target", [name for name in NAMES if name not in ("openai_responses", *having("PASSES_ON"))])
def test_reasoning_that_a_conversion_drops_is_reported(target: str) -> None:
    """litellm#36197; Guarantee 10.6: never silently."""
    wire = sent("openai_responses", [cc.user("hi"), thought_by_gpt(), result("a")])
    made = cc.convert(wire, source="openai_responses", target=target)
    assert [warning for warning in made.warnings if "left out: reasoning" in warning]
    assert cc.lint(cast(list[JSONObject], made), format=target) == []


SIGNED_CALL: JSONObject = {"functionCall": {"id": "a", "name": "look", "args": {}}, "thoughtSignature": "c2ln"}
LAST_SIGNATURE: JSONObject = {"text": "", "thoughtSignature": "bGFzdA=="}


def thought_by_gemini(*, streamed: bool) -> cc.Message:
    parts: list[JSONObject] = [{"text": "I have to read it.", "thought": True}, SIGNED_CALL, LAST_SIGNATURE]
    form = formatter("gemini")
    if not streamed:
        return form.decode_reply({"candidates": [{"content": {"role": "model", "parts": parts}}]})
    halves = [{"text": "I have to ", "thought": True}, {"text": "read it.", "thought": True}, *parts[1:]]
    return form.decode_stream({"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in halves)


PROOFS = {
    "anthropic": ("sig1", "cmVk", "sig2"),
    "openai_responses": ("gAAAAAB", "rs_1", "fc_1"),
    "gemini": ("c2ln", "bGFzdA=="),
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in having("PASSES_ON")])
@pytest.mark.parametrize("source", PROOFS)
def test_a_signature_is_sent_only_to_its_vendor(name: str, source: str) -> None:
    """llxprt-code#2335; Guarantee 2.4: after a switch of providers a foreign one is a 400."""
    replies = {
        "anthropic": thought_by_claude(),
        "openai_responses": thought_by_gpt(),
        "gemini": thought_by_gemini(streamed=False),
    }
    wire = sent(name, [cc.user("hi"), replies[source], result("a"), cc.user("go on")])
    found = [proof for proof in PROOFS[source] if f'"{proof}"' in json.dumps(wire)]
    assert found == (list(PROOFS[source]) if name == source else [])
    assert [line for line in outline(name, wire) if line.startswith(("call", "result"))] == [
        "call a",
        "result a: print(1)",
    ]

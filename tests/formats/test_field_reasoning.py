"""Failures known from practice: reasoning that is lost, or sent to the wrong model."""

import json
from typing import cast

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import formatter
from contextc.formats.base import Request
from contextc.formats.gemini.codec import PLACEHOLDER_SIGNATURE
from tests.formats.field import NAMES, USE, call, codes, outline, result, sent, sound
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


def test_dropped_thinking_is_reported_and_fixed() -> None:
    """openai-agents-python#1704; Guarantee 10.6: what is gone cannot be brought back, so thinking is off for once."""
    wire = sent("anthropic", [cc.user("hi"), thought_by_claude(), result("a")])
    later = sent("anthropic", [cc.user("hi"), cc.assistant(tool_calls=[call("b")]), result("b")])
    body: JSONObject = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [*wire, *later[1:]],
    }
    assert codes("anthropic", body) == ["ANT015"]
    fixed, _ = cc.fix(body, format="anthropic")
    assert cc.lint(fixed, format="anthropic") == []
    assert fixed["messages"][1] == wire[1]


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


@pytest.mark.parametrize("streamed", [False, True])
def test_encrypted_reasoning_goes_back_as_it_came(streamed: bool) -> None:
    """litellm#36197; Guarantee 2.4: also from a stream, of which the finished item counts and not the begun one."""
    wire = sent("openai_responses", [cc.user("hi"), thought_by_gpt(streamed=streamed), result("a")])
    assert wire[1:3] == [REASONING, FUNCTION_CALL]


@pytest.mark.parametrize(
    ("source", "proofs"),
    [("anthropic", ["sig1", "cmVk", "sig2"]), ("openai_responses", ["gAAAAAB"])],
)
def test_reasoning_survives_a_conversion_to_a_format_that_has_a_place_for_it(source: str, proofs: list[str]) -> None:
    """litellm#36197; Guarantee 10.5: to the AI SDK's messages and back, with what proves it."""
    reply = thought_by_claude() if source == "anthropic" else thought_by_gpt()
    wire = sent(source, [cc.user("hi"), reply, result("a")])
    there = list(cast(list[JSONObject], cc.convert(wire, source=source, target="vercel")))
    sound("vercel", there)
    back = list(cast(list[JSONObject], cc.convert(there, source="vercel", target=source)))
    sound(source, back)
    for made in (there, back):
        assert [proof for proof in proofs if f'"{proof}"' in json.dumps(made)] == proofs
    if source == "anthropic":
        assert back == wire


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


@pytest.mark.parametrize("streamed", [False, True])
def test_signatures_of_gemini_go_back_on_the_part_they_came_on(streamed: bool) -> None:
    """litellm#16893; Guarantee 2.4: lost in streaming, where the last one comes on an empty text."""
    wire = sent("gemini", [cc.user("hi"), thought_by_gemini(streamed=streamed), result("a")])
    thought = {"text": "I have to read it.", "thought": True}
    assert wire[1] == {"role": "model", "parts": [thought, SIGNED_CALL, LAST_SIGNATURE]}
    body = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "contents": wire}
    assert cc.lint(body, format="gemini") == []


def test_a_call_without_its_signature_is_reported_and_fixed() -> None:
    """litellm#16893; Guarantee 10.6: the placeholder that Google's guide names."""
    wire = sent("gemini", [cc.user("hi"), thought_by_gemini(streamed=True), result("a")])
    bare = {"functionCall": SIGNED_CALL["functionCall"]}
    body: JSONObject = {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}},
        "contents": [wire[0], {"role": "model", "parts": [bare]}, wire[2]],
    }
    assert codes("gemini", body) == ["GEM012"]
    fixed, _ = cc.fix(body, format="gemini")
    assert fixed["contents"][1] == {"role": "model", "parts": [{**bare, "thoughtSignature": PLACEHOLDER_SIGNATURE}]}
    assert cc.lint(fixed, format="gemini") == []


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


def test_the_ai_sdk_is_given_a_signature_under_its_owners_name() -> None:
    """llxprt-code#2335; Guarantee 2.4: it hands it to that provider, and the others pass over it."""
    wire = sent("vercel", [cc.user("hi"), thought_by_claude(), result("a")])
    assert [part.get("providerOptions") for part in wire[1]["content"]] == [
        {"anthropic": {"signature": "sig1"}},
        {"anthropic": {"redactedData": "cmVk"}},
        {"anthropic": {"signature": "sig2"}},
        None,
        None,
    ]


def test_another_model_of_the_same_provider_is_sent_the_thinking_still() -> None:
    """llxprt-code#2335: at Anthropic "unreadable blocks are silently dropped. Keep sending them"."""
    reply = thought_by_claude()
    assert {part.model for part in reply.parts if isinstance(part, cc.Reasoning)} == {"claude-opus-5-5"}
    request = Request(
        messages=(cc.user("hi"), reply, result("a")), settings={"model": "claude-haiku-5-5", "max_tokens": 1024}
    )
    body = formatter("anthropic").encode_request(request)
    assert cc.lint(body, format="anthropic") == []
    assert body["messages"][1]["content"] == CLAUDE["content"]


def test_the_same_format_at_another_provider_is_another_provider() -> None:
    """llxprt-code#2335; Guarantee 2.4: one API, several hosts, and signatures that only one of them takes."""
    claude, gpt, gemini = thought_by_claude(), thought_by_gpt(), thought_by_gemini(streamed=False)
    rest = [result("a"), cc.user("go on")]
    elsewhere = cc.AnthropicFormatter(provider="elsewhere").format([cc.user("hi"), claude, *rest])
    assert elsewhere[1]["content"] == [{"type": "text", "text": "Let me look."}, USE]
    elsewhere = cc.formats.OpenAIResponsesFormatter(provider="elsewhere").format([cc.user("hi"), gpt, *rest])
    plain = {key: value for key, value in FUNCTION_CALL.items() if key not in ("id", "status")}
    assert elsewhere[1] == plain
    elsewhere = cc.GeminiFormatter(provider="elsewhere").format([cc.user("hi"), gemini, *rest])
    assert elsewhere[1]["parts"] == [{**SIGNED_CALL, "thoughtSignature": PLACEHOLDER_SIGNATURE}]


def test_a_tail_that_gave_up_its_reasoning_is_otherwise_what_it_was() -> None:
    """pi#9391; Guarantee 9.3: after a compaction signatures are bound to a prefix that is gone; text and calls stay."""
    reply = thought_by_claude()
    bare = replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, cc.Reasoning)))
    tail = [result("a"), cc.user("go on")]
    before, after = sent("anthropic", [cc.user("hi"), reply, *tail]), sent("anthropic", [cc.user("hi"), bare, *tail])
    assert after[1]["content"] == before[1]["content"][len(THINKING) :]
    assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]


def test_a_call_and_the_reasoning_before_it_go_together() -> None:
    """pydantic-ai#3230; Guarantee 2.4: both as they came; and what led to nothing is not sent."""
    reply = thought_by_gpt()
    assert sent("openai_responses", [cc.user("hi"), reply, result("a")])[1:3] == [REASONING, FUNCTION_CALL]
    alone = replace(reply, parts=reply.parts[:1])
    assert sent("openai_responses", [cc.user("hi"), alone, result("a"), cc.user("?")]) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "?"},
    ]


@pytest.mark.parametrize(
    ("reasoning", "code"),
    [
        ({**REASONING, "encrypted_content": "gAAAA" + "x" * 90}, "OAR010"),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, "OAR009"),
    ],
)
def test_a_call_whose_reasoning_cannot_be_sent_goes_without_its_id(reasoning: JSONObject, code: str) -> None:
    """pydantic-ai#3230; Guarantee 10.6: by its id OpenAI would miss the reasoning."""
    output = {"type": "function_call_output", "call_id": "a", "output": "1"}
    user = {"role": "user", "content": "hi"}
    body: JSONObject = {"model": "gpt-5.6", "store": False, "input": [user, reasoning, FUNCTION_CALL, output]}
    assert codes("openai_responses", body) == [code]
    fixed, _ = cc.fix(body, format="openai_responses")
    nameless = {key: value for key, value in FUNCTION_CALL.items() if key != "id"}
    assert fixed == {**body, "input": [user, nameless, output]}
    assert cc.lint(fixed, format="openai_responses") == []


def test_a_call_whose_reasoning_lost_its_proof_goes_without_its_id() -> None:
    """Guarantee 2.4, pydantic-ai#3230."""
    reply = thought_by_gpt()
    thought, asked = cast(tuple[cc.Reasoning, cc.ToolCall], reply.parts)
    bare = replace(reply, parts=(replace(thought, id=None, data=None, extra=None), asked))
    wire = sent("openai_responses", [cc.user("hi"), bare, result("a")])
    assert [item.get("type") for item in wire] == [None, "function_call", "function_call_output"]
    assert "id" not in wire[1]


def test_reasoning_that_only_the_provider_holds_is_not_sent_where_it_stores_nothing() -> None:
    """Guarantee 2.4, pydantic-ai#3230: with `store` false an id alone refers to nothing."""
    reply = thought_by_gpt()
    thought, asked = cast(tuple[cc.Reasoning, cc.ToolCall], reply.parts)
    bare = replace(reply, parts=(replace(thought, data=None), asked))
    request = Request(messages=(cc.user("hi"), bare, result("a")), settings={"model": "gpt-5.6", "store": False})
    body = formatter("openai_responses").encode_request(request)
    assert cc.lint(body, format="openai_responses") == []
    assert [item.get("type") for item in body["input"]] == [None, "function_call", "function_call_output"]


def test_a_signature_of_gemini_survives_the_ai_sdk() -> None:
    """Guarantee 10.5, litellm#16893: on the part it came on, under its provider's name."""
    answer: JSONObject = {"functionResponse": {"id": "a", "name": "look", "response": {"output": "1"}}}
    wire: list[JSONObject] = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [SIGNED_CALL]},
        {"role": "user", "parts": [answer]},
    ]
    there = cc.convert(wire, source="gemini", target="vercel")
    assert isinstance(there, list)
    assert there[1]["content"][0]["providerOptions"] == {"google": {"thoughtSignature": "c2ln"}}
    assert there.warnings == []
    assert cc.convert(list(there), source="vercel", target="gemini") == wire

"""Unknown fields: reported only for providers that are known to refuse them."""

from typing import Any, get_args, get_type_hints

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.anthropic.codec import BLOCKS as ANTHROPIC_BLOCKS
from contextc.formats.anthropic.rules import MESSAGE_FIELDS as ANTHROPIC_MESSAGE_FIELDS
from contextc.formats.openai_chat import rules as chat_sketch
from contextc.formats.openai_responses import rules as responses_sketch

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "K1"}'}}
CAMEL: JSONObject = {"role": "assistant", "content": "ok", "toolCalls": [CALL]}
ASKED: dict[str, JSONObject] = {
    "anthropic": {"role": "user", "content": "hi"},
    "bedrock": {"role": "user", "content": [{"text": "hi"}]},
    "gemini": {"role": "user", "parts": [{"text": "hi"}]},
    "mistral": {"role": "user", "content": "hi"},
    "openai_chat": {"role": "user", "content": "hi"},
    "openai_responses": {"role": "user", "content": "hi"},
}


@pytest.mark.parametrize("name", ASKED)
def test_a_field_that_the_provider_refuses_is_flagged_with_its_name(name: str) -> None:
    """A message that is stored with fields of one's own is refused as a whole, and so is all that follows."""
    (found,) = cc.lint([{**ASKED[name], "shoeSize": 44}], format=name)
    assert "shoeSize" in found.message
    assert "shoeSize" in found.error
    fixed, _ = cc.fix([{**ASKED[name], "shoeSize": 44}], format=name)
    assert cc.lint(fixed, format=name) == []
    assert "hi" in str(fixed)
    assert cc.lint([{**ASKED[name], "shoeSize": None}], format=name) == [] or name in ("bedrock", "mistral")


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses", "bedrock", "mistral"])
def test_calls_in_another_librarys_spelling_are_flagged_and_not_lost(name: str) -> None:
    body = [ASKED[name], {**CAMEL, "content": [{"text": "ok"}]} if name == "bedrock" else CAMEL]
    assert any("toolCalls" in found.message for found in cc.lint(body, format=name))
    fixed, _ = cc.fix(body, format=name)
    assert cc.lint(fixed, format=name) == []
    assert "K1" in str(fixed)


def test_chat_gets_such_calls_under_their_own_name() -> None:
    answer = {"role": "tool", "tool_call_id": "a", "content": "1"}
    fixed, _ = cc.fix([ASKED["openai_chat"], CAMEL, answer], format="openai_chat")
    assert fixed[1:] == [{"role": "assistant", "content": "ok", "tool_calls": [CALL]}, answer]


@pytest.mark.parametrize(
    ("name", "model"),
    [("anthropic", "kimi-k3"), ("openai_chat", "deepseek-v4"), ("openai_responses", "grok-5"), ("ollama", "qwen3:8b")],
)
def test_endpoints_of_other_vendors_may_take_more(name: str, model: str) -> None:
    """A false alarm costs more trust than a missed error."""
    key = cc.formatter(name).messages_key
    body = {"model": model, "max_tokens": 100, key: [{"role": "user", "content": "hi", "shoeSize": 44}]}
    assert cc.lint(body, format=name) == []


def test_blocks_are_checked_too() -> None:
    """Anthropic names the place: `messages.0.content.0.shoeSize: Extra inputs are not permitted`."""
    block = {"type": "text", "text": "hi", "shoeSize": 44}
    (found,) = cc.lint([{"role": "user", "content": [block]}], format="anthropic")
    assert (found.code, found.path) == ("ANT026", "[0].content[0].shoeSize")
    assert found.error == "messages.0.content.0.shoeSize: Extra inputs are not permitted"


def test_codex_sends_a_field_of_its_own() -> None:
    """OpenAI answers every request of Codex, so its field is known, in messages, calls and results."""
    own: JSONObject = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    items: list[JSONObject] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}], **own},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}", **own},
        {"type": "function_call_output", "call_id": "a", "output": "1", **own},
    ]
    assert cc.fix({"model": "gpt-5.6", "input": items}, format="openai_responses") == (
        {"model": "gpt-5.6", "input": items},
        [],
    )


def test_an_answered_request_breaks_no_rule() -> None:
    """Guarantee 17.7: the answer is evidence, and the list of fields may be out of date."""
    body: JSONObject = {"model": "gpt-5.6", "input": [{"role": "user", "content": "hi", "new": 1}]}
    assert [each.code for each in cc.lint(body, format="openai_responses")] == ["OAR019"]
    assert cc.lint(body, format="openai_responses", answered=True) == []


def fields(kind: object) -> set[str]:
    """The fields of a TypedDict, or of all in a union."""
    return {name for each in get_args(kind) or (kind,) for name in get_type_hints(each)}


def test_every_field_of_the_sdks_types_is_known() -> None:
    """A field that the SDK has and the table has not would be a false alarm."""
    import anthropic.types
    import anthropic.types.beta
    from anthropic.types import MessageParam
    from anthropic.types.beta import BetaMessageParam
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
    from openai.types.responses import (
        EasyInputMessageParam,
        ResponseFunctionToolCallParam,
        ResponseInputFileParam,
        ResponseInputImageParam,
        ResponseInputTextParam,
        ResponseOutputMessageParam,
        ResponseOutputRefusalParam,
        ResponseOutputTextParam,
        ResponseReasoningItemParam,
    )
    from openai.types.responses.response_input_item_param import FunctionCallOutput, Message

    assert fields(MessageParam) | fields(BetaMessageParam) <= ANTHROPIC_MESSAGE_FIELDS
    blocks: dict[str, set[str]] = {}
    for module in (anthropic.types, anthropic.types.beta):
        for name, kind in vars(module).items():
            if name.endswith("BlockParam") and isinstance(kind, type):
                hints: dict[str, Any] = get_type_hints(kind)
                for tag in get_args(hints.get("type")):
                    blocks.setdefault(tag, set()).update(hints)
    assert blocks.keys() >= {"text", "image", "document", "tool_use", "tool_result", "thinking", "server_tool_use"}
    for tag, given in blocks.items():
        if tag in ANTHROPIC_BLOCKS.field_names:
            assert given <= ANTHROPIC_BLOCKS.field_names[tag], tag
    assert fields(ChatCompletionMessageParam) | set(ChatCompletionMessage.model_fields) <= chat_sketch.FIELDS
    messages = fields(EasyInputMessageParam) | fields(Message) | fields(ResponseOutputMessageParam)
    assert messages <= responses_sketch.MESSAGE_FIELDS
    items = {
        "function_call": ResponseFunctionToolCallParam,
        "function_call_output": FunctionCallOutput,
        "reasoning": ResponseReasoningItemParam,
    }
    for tag, kind in items.items():
        assert fields(kind) <= responses_sketch.ITEMS.field_names[tag], tag
    parts = {
        "input_text": ResponseInputTextParam,
        "input_image": ResponseInputImageParam,
        "input_file": ResponseInputFileParam,
        "output_text": ResponseOutputTextParam,
        "refusal": ResponseOutputRefusalParam,
    }
    for tag, kind in parts.items():
        assert fields(kind) <= responses_sketch.BLOCKS.field_names[tag], tag

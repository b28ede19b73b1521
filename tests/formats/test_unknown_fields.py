"""Unknown fields: reported only for providers that are known to refuse them."""

from typing import Any, get_args, get_type_hints

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.anthropic.codec import BLOCKS as ANTHROPIC_BLOCKS
from contextc.formats.anthropic.rules import MESSAGE_FIELDS as ANTHROPIC_MESSAGE_FIELDS
from contextc.formats.openai_chat import rules as chat_sketch
from contextc.formats.openai_responses import rules as responses_sketch


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

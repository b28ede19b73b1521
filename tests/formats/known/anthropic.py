"""Anthropic's Messages API, validated with the TypedDicts of its SDK.

The beta's types know blocks that the others do not. They are asked second: not everybody may send them.
"""

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT, Formatter
from contextc.tools.definitions import NativeTool
from tests.formats.judging import Problem, typed
from tests.formats.known import PARTIAL, Blocks, Refused

FORM = "anthropic.types.message_create_params.MessageCreateParamsNonStreaming"
BETA = "anthropic.types.beta.message_create_params.MessageCreateParamsNonStreaming"
SETTINGS: JSONObject = {"model": "claude-next", "max_tokens": 100}  # unknown: takes system messages, and a last reply
MODEL = "anthropic:claude-sonnet-4-5"
UNANSWERED, ORPHAN = "ANT006", "ANT008"
BLANK_REFUSED = True
ARGUMENTS_AT = ("content", 0, "input")
VENDOR = "anthropic"
VARIANTS: dict[str, Formatter] = {"system between": cc.AnthropicFormatter(system_between=True)}
OPENED: JSONObject = {"role": "user", "content": [{"type": "text", "text": OPENING_TEXT}]}
MALFORMED: JSONObject = {"type": "tool_use", "id": "a", "name": "look", "input": {"malformed_arguments": PARTIAL}}
BROKEN: list[JSONObject] = [
    {"type": "message_start", "message": {"role": "assistant", "usage": {"input_tokens": 7}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
    {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}},
]
ERRORS: list[JSONObject] = [
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
]
THOUGHTS = (
    cc.Reasoning(text="*", provider="anthropic", signature="c2lnbmVk"),
    cc.Reasoning(text="*", provider="anthropic"),
    cc.Reasoning(data="cmVkYWN0ZWQ=", provider="anthropic"),
)
FILES = (cc.Media(mime_type="application/pdf", file_id="file_1", provider="anthropic"),)
USER_BLOCKS: Blocks = (
    ("anthropic", {"type": "search_result", "source": "s", "title": "*", "content": [{"type": "text", "text": "x"}]}),
)
TOOLS = (NativeTool(provider="anthropic", data={"type": "web_search_20250305", "name": "web_search"}),)
GOOD: list[JSONObject] = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sunny"}]},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ],
    },
]
REFUSED: list[Refused] = [
    ("1.content.1.input", '{"city": "Paris"}', "messages.1.content.1.tool_use: input: Input should be a"),
    ("1.content.1.input", ..., "messages.1.content.1.tool_use: input: Field required"),
    ("1.content.0.signature", ..., "messages.1.content.0.thinking: signature: Field required"),
    ("1.content.0.colour", "red", "messages.1.content.0.thinking: colour: Extra inputs are not permitted"),
    ("1.content.0.type", "idea", "messages.1.content.0: Not expected here: {'type': 'idea'}"),
    ("2.content.0.content.0.text", ..., "messages.2.content.0.tool_result.content.0.text: text: Field"),
    ("2.content.1.source.url", ..., "messages.2.content.1.image.source.url: url: Field required"),
    ("0.role", "tool", "messages.0: Not expected here: {'role': 'tool'}"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["input"]


def problems(body: JSONObject) -> list[Problem]:
    given = {"max_tokens": 1, **body}
    found = typed(FORM, given)
    return found and min(found, typed(BETA, given), key=len)

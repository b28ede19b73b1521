"""OpenAI's Chat Completions API, validated with the TypedDicts of its SDK."""

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from tests.formats.judging import Problem, typed
from tests.formats.known import PARTIAL, Blocks, Refused

SETTINGS: JSONObject = {"model": "gpt-5.2"}
MODEL = "openai-chat:gpt-5"
UNANSWERED, ORPHAN = "OAC006", "OAC007"
VENDOR = "openai"
VARIANTS: dict[str, Formatter] = {
    "reasoning": cc.OpenAIFormatter(provider="deepseek", reasoning_field="reasoning_content")
}
OPENED: JSONObject = {"role": "assistant", "content": "Hello!"}
MALFORMED: JSONObject = {"id": "a", "type": "function", "function": {"name": "look", "arguments": PARTIAL}}
HALF_CALL: list[JSONObject] = [
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": PARTIAL[:4]}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": PARTIAL[4:]}}]}}]},
]
BROKEN: list[JSONObject] = [
    {"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}]},
    {"error": {"message": "overloaded", "code": 529}},
]
ERRORS: list[JSONObject] = [
    {"error": {"code": 502, "message": "Upstream"}, "choices": []},
]
THOUGHTS = (cc.Reasoning(text="*", provider="openai_chat"),)
FILES = (cc.Media(mime_type="application/pdf", file_id="file-1", provider="openai_chat"),)
MODEL_BLOCKS: Blocks = (("openai_chat", {"type": "refusal", "refusal": "*"}),)
GOOD: list[JSONObject] = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
]
REFUSED: list[Refused] = [
    ("1.tool_calls.0.function.arguments", {}, "messages.1.tool_calls.0.function: function.arguments: "),
    ("0.content.0.image_url.url", ..., "messages.0.content.0.image_url: image_url.url: Field required"),
    ("0.content.0.type", "video", "messages.0.content.0: Not expected here: {'type': 'video'}"),
    ("2.tool_call_id", ..., "messages.2.tool_call_id: Field required"),
    ("2.is_error", True, "messages.2.is_error: Extra inputs are not permitted"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["function"]["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    return typed("openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming", body)

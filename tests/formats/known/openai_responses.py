"""OpenAI's Responses API, validated with the TypedDicts of its SDK and one rule of ours."""

from typing import cast

import contextc as cc
from contextc._json import JSON, JSONObject
from tests.formats.judging import CHOSEN, Problem, typed
from tests.formats.known import PARTIAL, Blocks, Refused

SETTINGS: JSONObject = {"model": "gpt-5.2", "store": False}
MODEL = "openai:gpt-5"
UNANSWERED, ORPHAN = "OAR004", "OAR005"
RESULTS_ANYWHERE = True
VENDOR = "openai"
OPENED: JSONObject = {"role": "assistant", "content": "Hello!"}
MALFORMED: JSONObject = {"type": "function_call", "call_id": "a", "name": "look", "arguments": PARTIAL}
HALF_CALL: list[JSONObject] = [
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "function_call", "call_id": "a", "name": "look", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": PARTIAL},
]
BROKEN: list[JSONObject] = [
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "half"},
    {"type": "error", "message": "overloaded", "code": "server_error"},
]
ERRORS: list[JSONObject] = [
    {"type": "error", "code": "server_error", "message": "Oops"},
    {"type": "response.failed", "response": {"status": "failed", "error": {"code": "x"}}},
]
THOUGHTS = (
    cc.Reasoning(text="*", data="ZW5jcnlwdGVk", id="rs_*", provider="openai"),
    cc.Reasoning(text="*", data="ZW5jcnlwdGVk", provider="openai"),
    cc.Reasoning(text="*", id="rs_*", provider="openai"),
)
FILES = (
    cc.Media(mime_type="application/pdf", file_id="file-1", provider="openai"),
    cc.Media(mime_type="image/png", file_id="file-2", provider="openai"),
)
MODEL_BLOCKS: Blocks = (
    (
        "openai",
        {"type": "web_search_call", "id": "ws_*", "status": "completed", "action": {"type": "search", "query": "*"}},
    ),
    ("openai", {"type": "compaction", "encrypted_content": "*"}),
)
GOOD: list[JSONObject] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
    {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "sunny"},
]
REFUSED: list[Refused] = [
    ("2.arguments", {}, "input.2.function_call: arguments: Input should be a valid string"),
    ("3.call_id", ..., "input.3.function_call_output: call_id: Missing, though the type allows it"),
    ("1.summary", ..., "input.1.reasoning: summary: Field required"),
    ("0.content.0.type", "text", "input.0.content.0: Not expected here: {'type': 'text'}"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    found = typed("openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming", body)
    return found or _without_call(body.get("input"))


def _without_call(items: JSON) -> list[Problem]:
    """Results that belong to no call: our own rule. OpenAI's types let `call_id` be missing, but then a call stays
    without its result, and that the service refuses."""
    listed = cast(list[JSONObject], items) if isinstance(items, list) else []
    return [
        (("input", number, f"{CHOSEN}function_call_output", "call_id"), "Missing, though the type allows it")
        for number, item in enumerate(listed)
        if item.get("type") == "function_call_output" and not item.get("call_id")
    ]

"""The AI SDK's messages. It has a zod schema, which is kept as JSON Schema in `tests/data`."""

import json
from functools import cache
from pathlib import Path
from typing import cast

from jsonschema import Draft202012Validator

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.vercel.codec import PROOF_FIELDS
from tests.formats.judging import Problem, refused
from tests.formats.known import PARTIAL, Blocks, Refused

MODEL_MESSAGE = Path(__file__).parent.parent.parent / "data" / "vercel-model-message.schema.json"
SETTINGS: JSONObject = {"model": "anthropic/claude-opus-5-5"}
MODEL = ""
UNANSWERED, ORPHAN = "VER011", "VER012"
PASSES_ON = tuple(PROOF_FIELDS)
BORROWS = ("anthropic", "gemini")
OPENED: JSONObject = {"role": "assistant", "content": "Hello!"}
MALFORMED: JSONObject = {
    "type": "tool-call",
    "toolCallId": "a",
    "toolName": "look",
    "input": {"malformed_arguments": PARTIAL},
}
HALF_CALL: list[JSONObject] = [
    {"type": "start"},
    {"type": "tool-input-start", "toolCallId": "a", "toolName": "look"},
    {"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": PARTIAL},
    {"type": "abort"},
]
THOUGHTS = (cc.Reasoning(text="*", provider="vercel"),)
MODEL_BLOCKS: Blocks = (("vercel", {"type": "custom", "kind": "openai.*"}),)
GOOD: list[JSONObject] = [
    {"role": "user", "content": [{"type": "file", "mediaType": "image/png", "data": "iVBO"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Hm.", "providerOptions": {"anthropic": {"any": ["thing"]}}},
            {"type": "tool-call", "toolCallId": "a", "toolName": "weather", "input": {"city": "Paris"}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "a",
                "toolName": "weather",
                "output": {"type": "json", "value": {"sun": [1, None]}},
            }
        ],
    },
]
REFUSED: list[Refused] = [
    ("1.content.1.input", ..., "messages.1.content.1.tool-call: 'input' is a required property"),
    ("1.content.1.args", {}, "messages.1.content.1.tool-call: Additional properties are not allowed ('args'"),
    ("0.content.0.data", 5, "messages.0.content.0.file: data: Not expected here: 5"),
    ("2.content.0.output", "sunny", "messages.2.content.0.tool-result: output: Not expected here: sunny"),
    ("2.role", "function", "messages.2: Not expected here: {'role': 'function'}"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["input"]


def problems(body: JSONObject) -> list[Problem]:
    return refused(_schema(), body.get("messages"), ("messages",))


@cache
def _schema() -> Draft202012Validator:
    """The schema of a list of messages."""
    message = cast(JSONObject, _closed(json.loads(MODEL_MESSAGE.read_text())))
    # References inside it are to its root, so its definitions move there.
    definitions = message.pop("$defs", {})
    return Draft202012Validator({"type": "array", "items": message, "$defs": definitions})


def _closed(node: JSON) -> JSON:
    """The schema without what zod lets pass: keys it would strip, and what is not JSON (bytes, a URL), which its export
    writes as `{}`, anything at all.
    """
    if isinstance(node, list):
        return [_closed(each) for each in cast(list[JSON], node)]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in cast(JSONObject, node).items()}
    if "anyOf" in closed:
        closed["anyOf"] = [each for each in closed["anyOf"] if each != {}]
    return {**closed, "additionalProperties": False} if isinstance(closed.get("properties"), dict) else closed

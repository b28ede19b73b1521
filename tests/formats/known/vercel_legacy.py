"""The AI SDK's older messages, validated with a schema of its last TypeScript types."""

from functools import cache

from jsonschema import Draft202012Validator

import contextc as cc
from contextc._json import JSON, JSONObject
from tests.formats.judging import Problem, object_schema, refused
from tests.formats.known import PARTIAL, Refused

SETTINGS: JSONObject = {"model": "gpt-4o"}
MODEL = ""
UNANSWERED, ORPHAN = "VEL006", "VEL008"
BORROWS = ("anthropic", "gemini")
OPENED: JSONObject = {"role": "assistant", "content": "Hello!"}
MALFORMED: JSONObject = {"name": "look", "arguments": PARTIAL}
THOUGHTS = (cc.Reasoning(text="*", provider="vercel_legacy"),)
GOOD: list[JSONObject] = [
    {"role": "user", "content": "Weather?", "experimental_attachments": [{"url": "data:,", "contentType": "a/b"}]},
    {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
    {"role": "function", "name": "weather", "content": "sunny", "tool_call_id": "a"},
]
REFUSED: list[Refused] = [
    ("1.function_call.arguments", {}, "messages.1.function_call.arguments: {} is not of type 'string'"),
    ("2.name", ..., "messages.2: 'name' is a required property"),
    ("0.function_call", {}, "messages.0: Additional properties are not allowed ('function_call'"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    return refused(_schema(), body.get("messages"), ("messages",))


@cache
def _schema() -> Draft202012Validator:
    """The schema of a list of messages."""
    return Draft202012Validator({"type": "array", "items": _message()})


def _message() -> JSONObject:
    """`CreateMessage` of @ai-sdk/ui-utils 0.0.50, and what of it is for which role, as its comments say. Beyond it: the
    `reasoning` of version 1, and null for a call's content, which the type forbids."""
    text = {"type": "string"}
    call = object_schema("name arguments", name=text, arguments=text)
    listed = object_schema("id type function", id=text, type=text, function=call)
    state = {"enum": ["partial-call", "call", "result"]}
    named = {"toolCallId": text, "toolName": text, "args": {}, "result": {}}
    invocation = object_schema("state toolCallId toolName args", state=state, **named)
    attachment = object_schema("url", name=text, contentType=text, url=text)
    asked = {
        "content": {"type": ["string", "null"]},
        "reasoning": text,
        "function_call": call,
        "tool_calls": {"type": "array", "items": listed},
        "tool_call_id": text,
        "toolInvocations": {"type": "array", "items": invocation},
    }
    attached = {"content": text, "experimental_attachments": {"type": "array", "items": attachment}}
    answered = {"content": text, "name": text, "tool_call_id": text}
    common = {"id": text, "createdAt": text, "data": {}, "annotations": {"type": "array"}}
    roles = [
        object_schema("role content", role={"enum": ["system", "user", "data"]}, **attached, **common),
        object_schema("role content", role={"const": "assistant"}, **asked, **common),
        object_schema("role content name", role={"const": "function"}, **answered, **common),
        object_schema("role content tool_call_id", role={"const": "tool"}, **answered, **common),
    ]
    return {"anyOf": roles}

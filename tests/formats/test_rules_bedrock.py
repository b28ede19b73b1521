"""Rules specific to Bedrock: one member per block, required tools, and shapes that it accepts."""

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock.codec import PLACEHOLDER_TOOL, encode_tool
from contextc.linting import fix, lint

ASK: JSONObject = {"role": "user", "content": [{"text": "What is in a.py?"}]}
SPEC: JSONObject = {"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="bedrock")]


def said(body: JSON) -> list[str]:
    return [violation.error for violation in lint(body, format="bedrock")]


def call(call_id: str = "a", name: str = "look") -> JSONObject:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": {}}}


def result(*content: JSONObject, call_id: str = "a", **beside: JSON) -> JSONObject:
    return {"toolResult": {"toolUseId": call_id, "content": list(content), **beside}}


def model(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


def test_tools_must_be_there_where_calls_are() -> None:
    """A whole request can be held against this, and bare messages cannot."""
    messages = [ASK, model(call()), user(result({"text": "1"}))]
    assert codes(messages) == []
    assert codes({"messages": messages, "toolConfig": {"tools": [SPEC]}}) == []
    assert said({"messages": messages}) == [
        "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    ]
    fixed, _ = fix({"messages": messages}, format="bedrock")
    assert fixed["toolConfig"] == {"tools": [encode_tool(PLACEHOLDER_TOOL)]}

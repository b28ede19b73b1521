"""Repairs that decoding and encoding does not make."""

from contextc._json import JSONObject
from contextc.formats.fix_builders import change_messages, keep_messages
from contextc.formats.vercel_legacy.lint_parser import CONTENT_SUBSTITUTES


def without_empty(body: JSONObject) -> JSONObject:
    return keep_messages(body, lambda message: not is_empty(message))


def with_assistant_calls(body: JSONObject) -> JSONObject:
    return change_messages(
        body, lambda message: {**message, "role": "assistant"} if message.get("function_call") else message
    )


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty. A tool result may be empty."""
    speaks = wire["role"] in ("system", "user", "assistant")
    return speaks and not wire.get("content") and not any(wire.get(name) for name in CONTENT_SUBSTITUTES)

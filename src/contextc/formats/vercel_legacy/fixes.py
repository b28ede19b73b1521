"""Repairs that decoding and encoding does not make."""

from typing import cast

from contextc._json import JSONObject
from contextc.formats.vercel_legacy.lint_parser import CONTENT_SUBSTITUTES, text_message

EMPTY_CONVERSATION = "(Nothing has been said yet.)"


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [text_message(EMPTY_CONVERSATION)]}


def without_empty(body: JSONObject) -> JSONObject:
    messages = cast(list[JSONObject], body["messages"])
    return {**body, "messages": [each for each in messages if not is_empty(each)]}


def with_assistant_calls(body: JSONObject) -> JSONObject:
    messages = cast(list[JSONObject], body["messages"])
    made = [{**each, "role": "assistant"} if each.get("function_call") else each for each in messages]
    return {**body, "messages": made}


def without_function_choice(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "function_call"}


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty. A tool result may be empty."""
    speaks = wire["role"] in ("system", "user", "assistant")
    return speaks and not wire.get("content") and not any(wire.get(name) for name in CONTENT_SUBSTITUTES)

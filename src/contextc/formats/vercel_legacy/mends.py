"""Repairs of what decoding and encoding does not put right by itself."""

from typing import cast

from contextc._json import JSONObject
from contextc.formats.vercel_legacy.sketch import BESIDE, message

NOTHING_SAID = "(Nothing has been said yet.)"


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [message(NOTHING_SAID)]}


def without_empty(body: JSONObject) -> JSONObject:
    messages = cast(list[JSONObject], body["messages"])
    return {**body, "messages": [each for each in messages if not is_empty(each)]}


def with_calls_of_the_assistant(body: JSONObject) -> JSONObject:
    messages = cast(list[JSONObject], body["messages"])
    made = [{**each, "role": "assistant"} if each.get("function_call") else each for each in messages]
    return {**body, "messages": made}


def without_choice(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "function_call"}


def is_empty(wire: JSONObject) -> bool:
    """Whether a message says nothing. A tool may well have returned nothing."""
    speaks = wire["role"] in ("system", "user", "assistant")
    return speaks and not wire.get("content") and not any(wire.get(name) for name in BESIDE)

"""Cache points in the content of messages, as gateways take them for models that have such points.

A point stands on a text, because OpenRouter's types have it on no other part; a picture at the end is behind it. The
text of a message that is a plain string becomes a part of its own then, and a string again where the point is taken
away; to a provider both are the same.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject

MARK = "cache_control"
CACHE_CONTROL: JSONObject = {"type": "ephemeral"}


def marked(message: JSONObject) -> JSONObject | None:
    """The message with a point on its last words; None where it has none, or goes on with calls."""
    content: JSON = message.get("content")
    parts = cast(list[JSONObject], [{"type": "text", "text": content}] if isinstance(content, str) else content or [])
    last = next((index for index in reversed(range(len(parts))) if _is_text(parts[index])), None)
    if message.get("tool_calls") or last is None:
        return None
    return {**message, "content": [*parts[:last], {**parts[last], MARK: CACHE_CONTROL}, *parts[last + 1 :]]}


def unmarked(message: JSONObject) -> JSONObject:
    content: JSON = message.get("content")
    if not isinstance(content, list) or not count(cast(list[JSONObject], content)):
        return message
    parts = [{name: value for name, value in part.items() if name != MARK} for part in cast(list[JSONObject], content)]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return {**message, "content": parts[0]["text"] if plain else parts}


def count(blocks: Iterable[JSONObject]) -> int:
    return sum([MARK in block for block in blocks])


def marked_head(body: JSONObject) -> JSONObject:
    """The body with a point on its system prompt, which stands first and before others, or else on its last tool."""
    first, *others = cast(list[JSONObject], body["messages"])
    if others and first["role"] in ("system", "developer") and (system := marked(first)) is not None:
        return {**body, "messages": [system, *others]}
    if not body.get("tools"):
        return body
    *before, last = cast(list[JSONObject], body["tools"])
    return {**body, "tools": [*before, {**last, MARK: CACHE_CONTROL}]}


def _is_text(part: JSONObject) -> bool:
    return part.get("type") == "text" and bool(str(part.get("text")).strip())

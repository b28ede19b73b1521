"""Set cache breakpoints in the content of messages, for gateways that accept them.

A breakpoint is set on a text part, because OpenRouter's types allow it on no other part. An image at the end is
therefore after the breakpoint. Content that is a plain string becomes one text part, and a string again when the
breakpoint is removed. Both forms are the same to a provider.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject

CACHE_FIELD = "cache_control"
CACHE_CONTROL: JSONObject = {"type": "ephemeral"}


def with_cache_breakpoint(message: JSONObject) -> JSONObject | None:
    """Return the message with a cache breakpoint on its last text; None if it has no text, or has tool calls."""
    content: JSON = message.get("content")
    parts = cast(list[JSONObject], [{"type": "text", "text": content}] if isinstance(content, str) else content or [])
    last = next((index for index in reversed(range(len(parts))) if _is_text(parts[index])), None)
    if message.get("tool_calls") or last is None:
        return None
    return {**message, "content": [*parts[:last], {**parts[last], CACHE_FIELD: CACHE_CONTROL}, *parts[last + 1 :]]}


def without_cache_breakpoints(message: JSONObject) -> JSONObject:
    content: JSON = message.get("content")
    if not isinstance(content, list) or not count_breakpoints(cast(list[JSONObject], content)):
        return message
    parts = [
        {name: value for name, value in part.items() if name != CACHE_FIELD} for part in cast(list[JSONObject], content)
    ]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return {**message, "content": parts[0]["text"] if plain else parts}


def count_breakpoints(blocks: Iterable[JSONObject]) -> int:
    return sum([CACHE_FIELD in block for block in blocks])


def with_head_breakpoint(body: JSONObject) -> JSONObject:
    """Return the body with a cache breakpoint on its leading system message, or else on its last tool."""
    first, *others = cast(list[JSONObject], body["messages"])
    if others and first["role"] in ("system", "developer") and (system := with_cache_breakpoint(first)) is not None:
        return {**body, "messages": [system, *others]}
    if not body.get("tools"):
        return body
    *before, last = cast(list[JSONObject], body["tools"])
    return {**body, "tools": [*before, {**last, CACHE_FIELD: CACHE_CONTROL}]}


def _is_text(part: JSONObject) -> bool:
    return part.get("type") == "text" and bool(str(part.get("text")).strip())

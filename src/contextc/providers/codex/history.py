"""History as a thread can take it in: items of the Responses API, of the kinds that Codex knows.

It drops what it does not know without a word, and refuses a list for one item it cannot read. Both become text here, in
their place, and are told of: that something was said as text only is better than that it was never said.
"""

import re
from typing import cast

from contextc._json import JSON, JSONObject, encode

KINDS = (
    "message",
    "agent_message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
    "image_generation_call",
    "compaction",
)
ROLES = ("user", "assistant", "developer")
PLACE = re.compile(r"items\[(\d+)\]")


def importable(items: list[JSONObject]) -> tuple[list[JSONObject], int]:
    """The items as they are taken, and how many of them became text."""
    taken = [_taken(item) for item in items]
    return taken, sum(1 for item, other in zip(items, taken, strict=True) if _is_text_of(item, other))


def without(items: list[JSONObject], refusal: str) -> list[JSONObject] | None:
    """The items with the one that was refused as text; None where the refusal names none, or named it before."""
    found = PLACE.search(refusal)
    if found is None or (place := int(found[1])) >= len(items):
        return None
    text = as_text(items[place])
    return None if text == items[place] else [*items[:place], text, *items[place + 1 :]]


def as_text(item: JSONObject) -> JSONObject:
    """An item as words of the user: its texts, and everything else as JSON."""
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [item]
    texts = [block["text"] if isinstance(block.get("text"), str) else encode(block).decode() for block in blocks]
    role = item["role"] if item.get("role") in ROLES else "user"
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _taken(item: JSONObject) -> JSONObject:
    if item.get("type", "message") not in KINDS:
        return as_text(item)
    if item.get("type", "message") != "message":
        return item
    role = "developer" if item.get("role") == "system" else item.get("role")
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [{"text": content}]
    if role != "assistant":
        told = [{"type": "input_text", **block} for block in blocks]
        return {**item, "type": "message", "role": role, "content": told}
    said: list[JSONObject] = [{"type": "output_text", "annotations": [], **block} for block in blocks]
    return {**item, "type": "message", "role": role, "status": "completed", "content": said}


def _is_text_of(item: JSONObject, other: JSONObject) -> bool:
    return item.get("type", "message") != other["type"]

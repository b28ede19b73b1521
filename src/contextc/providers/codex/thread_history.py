"""Conversion of history to items that a Codex thread accepts: items of the Responses API of supported types.

Codex silently drops items of unknown types, and rejects a whole list for one invalid item. Both are converted to text
here and counted for a note, because text is better than a missing message.
"""

import re
from typing import cast

from contextc._json import JSON, JSONObject, encode

ITEM_TYPES = (
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
ITEM_INDEX = re.compile(r"items\[(\d+)\]")


def to_importable(items: list[JSONObject]) -> tuple[list[JSONObject], int]:
    """Return the items in the accepted form, and the number that became text."""
    taken = [_taken(item) for item in items]
    return taken, sum(1 for item, other in zip(items, taken, strict=True) if _is_text_of(item, other))


def replace_rejected(items: list[JSONObject], refusal: str) -> list[JSONObject] | None:
    """Convert the rejected item to text and return all items. None if no item is named, or it is text already."""
    found = ITEM_INDEX.search(refusal)
    if found is None or (place := int(found[1])) >= len(items):
        return None
    text = item_as_text(items[place])
    return None if text == items[place] else [*items[:place], text, *items[place + 1 :]]


def item_as_text(item: JSONObject) -> JSONObject:
    """Return an item as a text message: its texts, and everything else as JSON."""
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [item]
    texts = [block["text"] if isinstance(block.get("text"), str) else encode(block).decode() for block in blocks]
    role = item["role"] if item.get("role") in ROLES else "user"
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _taken(item: JSONObject) -> JSONObject:
    if item.get("type", "message") not in ITEM_TYPES:
        return item_as_text(item)
    if item.get("type", "message") != "message":
        return item
    role = "developer" if item.get("role") == "system" else item.get("role")
    content: JSON = item.get("content")
    blocks = cast(list[JSONObject], content) if isinstance(content, list) else [{"text": content}]
    if role != "assistant":
        input_blocks = [{"type": "input_text", **block} for block in blocks]
        return {**item, "type": "message", "role": role, "content": input_blocks}
    output_blocks: list[JSONObject] = [{"type": "output_text", "annotations": [], **block} for block in blocks]
    return {**item, "type": "message", "role": role, "status": "completed", "content": output_blocks}


def _is_text_of(item: JSONObject, other: JSONObject) -> bool:
    return item.get("type", "message") != other["type"]

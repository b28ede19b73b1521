"""Messages and their parts: immutable values, their JSON form, their hash and their validation."""

from contextc.messages.admission import Admitted, admit
from contextc.messages.make import Content, assistant, system, tool_call, tool_result, user
from contextc.messages.message import (
    Message,
    Role,
    Status,
    Usage,
    chain_id,
    content_hash,
    content_of,
    from_json,
    new_root,
    to_json,
)
from contextc.messages.parts import AnyPart, Extra, Hint, Media, Native, Part, Reasoning, Text, ToolCall, ToolResult

__all__ = [
    "Admitted",
    "AnyPart",
    "Content",
    "Extra",
    "Hint",
    "Media",
    "Message",
    "Native",
    "Part",
    "Reasoning",
    "Role",
    "Status",
    "Text",
    "ToolCall",
    "ToolResult",
    "Usage",
    "admit",
    "assistant",
    "chain_id",
    "content_hash",
    "content_of",
    "from_json",
    "new_root",
    "system",
    "to_json",
    "tool_call",
    "tool_result",
    "user",
]

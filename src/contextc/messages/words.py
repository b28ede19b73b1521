"""The content of a message as one string, for lists of messages and for search."""

from contextc._json import encode
from contextc.messages.message import Message
from contextc.messages.parts import AnyPart, Text, ToolCall, ToolResult

REDACTED_TEXT = "[removed]"


def to_plain_text(message: Message | None) -> str:
    """Return a message's text, its calls with their arguments, and its results, without reasoning and user notices."""
    if message is None:
        return ""
    if message.redacted:
        return REDACTED_TEXT
    told = [message.text, *(_part_text(part) for part in message.parts if not isinstance(part, Text))]
    return " ".join(each for each in told if each)


def _part_text(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"calls {part.name}({encode(part.arguments).decode()})"
    return f"{part.name}: {part.text}" if isinstance(part, ToolResult) else ""

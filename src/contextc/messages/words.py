"""The content of a message as one string, for lists of messages and for search."""

from contextc._json import encode
from contextc.messages.message import Message
from contextc.messages.parts import AnyPart, Text, ToolCall, ToolResult

REMOVED = "[removed]"


def words(message: Message | None) -> str:
    """Return a message's text, its calls with their arguments, and its results, without reasoning and user notices."""
    if message is None:
        return ""
    if message.redacted:
        return REMOVED
    told = [message.text, *(_told(part) for part in message.parts if not isinstance(part, Text))]
    return " ".join(each for each in told if each)


def _told(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"calls {part.name}({encode(part.arguments).decode()})"
    return f"{part.name}: {part.text}" if isinstance(part, ToolResult) else ""

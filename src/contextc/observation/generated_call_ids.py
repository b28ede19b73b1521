"""Numbering of tool calls that a client sends without ids, as those of Ollama.

Decoders number such calls from zero in every request and every reply. On the chain of a conversation, the numbers
continue, so that each call has a unique id and its result names it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from contextc.messages import AnyPart, Message, ToolCall, ToolResult

GENERATED_ID = re.compile(r"call_(\d+)")


def has_generated_ids(messages: Iterable[Message], raw: bytes) -> bool:
    """Return True if calls of messages have ids that are not in the bytes they were decoded from."""
    return any(
        GENERATED_ID.fullmatch(call.id) and f'"{call.id}"'.encode() not in raw
        for message in messages
        for call in message.tool_calls
    )


def next_number(ids: Iterable[str]) -> int:
    """Return the number after those of generated ids."""
    return max([int(found[1]) for each in ids if (found := GENERATED_ID.fullmatch(each))], default=-1) + 1


def number_calls(messages: Sequence[Message], first: int) -> list[Message]:
    """Return messages whose calls with generated ids are numbered from a number on. Results follow their calls."""
    ids: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        for call in message.tool_calls:
            if GENERATED_ID.fullmatch(call.id):
                ids[call.id] = f"call_{first}"
                first += 1
        found.append(rename_calls(message, ids))
    return found


def rename_calls(message: Message, ids: Mapping[str, str]) -> Message:
    """Return a message with other ids of calls."""
    if not ids or not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        return message

    def rename(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolCall):
            return replace(part, id=ids.get(part.id, part.id))
        return replace(part, call_id=ids.get(part.call_id, part.call_id)) if isinstance(part, ToolResult) else part

    return replace(message, parts=tuple([rename(part) for part in message.parts]))

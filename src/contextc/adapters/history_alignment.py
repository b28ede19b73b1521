"""Comparison of a framework's message history with the stored messages of a conversation.

Messages are compared by what a model reads: role, text, calls, results, media, provider blocks. Reasoning and metadata
are ignored, because frameworks leave them out or rewrite them. How parts are grouped into messages is ignored too: one
message with two results equals two messages with one each.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import JSON, encode_canonical, hash_blob
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Text, ToolCall, ToolResult

PartKey: TypeAlias = tuple[str, ...]


class AlignedBlock(NamedTuple):
    """Equal content: the stored messages `stored[start:end]` and the messages `given[given_start:given_end]`."""

    start: int
    end: int
    given_start: int
    given_end: int


class Alignment(NamedTuple):
    """The common beginning of both histories. `stored` and `given` are the numbers of messages in it."""

    blocks: list[AlignedBlock]
    stored: int
    given: int


def align_histories(stored: Sequence[Message], given: Sequence[Message]) -> Alignment:
    """Return the common beginning. A redacted message equals any message of its role."""
    blocks: list[AlignedBlock] = []
    at, index = 0, 0
    while at < len(stored) and index < len(given):
        block = _next_block(stored, at, given, index)
        if block is None:
            break
        blocks.append(block)
        at, index = block.end, block.given_end
    while at < len(stored) and not stored[at].redacted and not list_part_keys(stored[at]):
        at += 1  # an empty reply, which frameworks do not keep
    return Alignment(blocks, at, index)


def _next_block(stored: Sequence[Message], at: int, given: Sequence[Message], index: int) -> AlignedBlock | None:
    start, given_start = at, index
    if stored[at].redacted:
        return AlignedBlock(at, at + 1, index, index + 1) if stored[at].role == given[index].role else None
    ours, theirs = list_part_keys(stored[at]), list_part_keys(given[index])
    at, index = at + 1, index + 1
    while ours != theirs:
        if len(ours) < len(theirs) and theirs[: len(ours)] == ours and at < len(stored) and not stored[at].redacted:
            ours += list_part_keys(stored[at])
            at += 1
        elif len(theirs) < len(ours) and ours[: len(theirs)] == theirs and index < len(given):
            theirs += list_part_keys(given[index])
            index += 1
        else:
            return None
    return AlignedBlock(start, at, given_start, index)


def list_part_keys(message: Message) -> list[PartKey]:
    """Return what is compared of a message: one key for each part that a model reads."""
    return [key for part in message.parts if (key := _part_key(message.role, part))]


def _part_key(role: str, part: AnyPart) -> PartKey:
    if isinstance(part, Text):
        return ("text", role, part.text) if part.text.strip() else ()
    if isinstance(part, ToolCall):
        arguments = part.raw or "" if part.malformed else _canonical(part.arguments)
        return "call", part.id, part.name, arguments
    if isinstance(part, ToolResult):
        media = [] if isinstance(part.content, str) else [_media_key(x) for x in part.content if isinstance(x, Media)]
        return "result", part.call_id, part.text, *media
    if isinstance(part, Media):
        return "media", role, _media_key(part)
    return ("block", role, _canonical(part.data)) if isinstance(part, ProviderBlock) else ()


def _media_key(part: Media) -> str:
    return hash_blob(part.data) if part.data is not None else part.blob or part.url or part.file_id or ""


def _canonical(value: JSON) -> str:
    return encode_canonical(value).decode()

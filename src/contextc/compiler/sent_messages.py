"""The messages of a compiled request before they are encoded, each with the stored message that it was made from.

Callers that send the request with software of their own replace the messages that contextc changed, and keep the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.compiler.compiled import Compiled
from contextc.compiler.draft import DraftEntry
from contextc.compiler.ledger.row_encoding import in_blocks, render_item, slice_at_replies
from contextc.messages import AnyPart, Message, ToolResult
from contextc.store.ledger_schema import Item
from contextc.store.message_rows import SEQ_MASK


class SentMessage(NamedTuple):
    """A message as it is sent. `seq` is that of the stored message; 0 if there is none, as for a summary.

    `is_changed` is False if it has the content of the stored message, all of it.
    """

    message: Message
    seq: int
    is_changed: bool


def list_sent_messages(compiled: Compiled, stored: Mapping[int, Message]) -> list[SentMessage]:
    """Return the messages of a request in order. `stored` are the messages of the conversation by seq.

    System messages at the start of the conversation come first, although they are sent in the system prompt.
    """
    found = [SentMessage(message, message.seq, False) for message in compiled.snapshot.leading.values()]
    used: set[str] = set()
    entries = [
        DraftEntry(item, render_item(item, _stored_message(item, stored), fetchable=compiled.draft.fetchable))
        for item in _list_items(compiled)
    ]
    for part in slice_at_replies(entries):
        paired = compiled.formatter.pair_calls(in_blocks(part), used_ids=used).messages
        found += _trace(paired, [message for _, message in part], stored)
        encode_id = compiled.formatter.name_codec.encode_id
        used.update([encode_id(call.id) for message in paired for call in message.tool_calls])
    return found


def _list_items(compiled: Compiled) -> list[Item]:
    new, order = compiled.rows.new_rows, compiled.rows.order
    if order is None:
        rows = [*[each.row for each in compiled.snapshot.cached.rows], *[each.row for each in new]]
    else:
        rows = [new[each].row if isinstance(each, int) else each.row for each in order]
    return [item for row in rows for item in row.items]


def _stored_message(item: Item, stored: Mapping[int, Message]) -> Message | None:
    return stored.get(item.place & SEQ_MASK) if item.place and item.kind == "message" else None


def _trace(
    paired: Sequence[Message], rendered: Sequence[Message], stored: Mapping[int, Message]
) -> Iterator[SentMessage]:
    """Yield the messages after pairing. A tool message is split into those that its results come from."""
    origins: dict[str, Message] = {}
    for message in rendered:
        for result in message.tool_results:
            origins.setdefault(result.call_id, message)
    for message in paired:
        if message.role != "tool":
            yield _compare(message, stored)
            continue
        group: list[ToolResult] = []
        origin: Message | None = None
        for part in message.tool_results:
            source = origins.get(part.call_id)
            if group and (source is None or source is not origin):
                yield _compare(_with_results(origin, group), stored)
                group = []
            group.append(part)
            origin = source
        if group:
            yield _compare(_with_results(origin, group), stored)


def _with_results(origin: Message | None, results: Sequence[ToolResult]) -> Message:
    if origin is None:
        return Message(role="tool", parts=tuple(results))
    return replace(origin, parts=tuple(results))


def _compare(message: Message, stored: Mapping[int, Message]) -> SentMessage:
    original = stored.get(message.seq) if message.seq else None
    is_same = (
        original is not None
        and message.role == original.role
        and len(message.parts) == len(original.parts)
        and all([_is_same_part(*pair) for pair in zip(message.parts, original.parts, strict=True)])
    )
    return SentMessage(message, message.seq if original is not None else 0, not is_same)


def _is_same_part(sent: AnyPart, stored: AnyPart) -> bool:
    """Return True if two parts are equal. Pairing gives a result the name of its call, which does not count."""
    if type(sent) is ToolResult and type(stored) is ToolResult:
        sent = replace(sent, name=stored.name)
    return sent == stored

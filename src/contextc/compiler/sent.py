"""The text of each item of a request as the model read it, beside the stored text.

A result may have been sent as a stub or shortened, a user message escaped, a reply without its reasoning, old messages
as a summary. Everything that displays a request takes its texts from here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from contextc.ledger.items import Item
from contextc.ledger.render import FETCH_TOOL, render_item
from contextc.messages import Message
from contextc.messages.words import to_plain_text

_FETCH = FETCH_TOOL.name.encode()


class SentItem(NamedTuple):
    """One item: the message that the model read, and the stored message it was rendered from.

    `original` is None if the two are equal, or if the item has no stored message. `text` and `original_text` are both
    as plain text.
    """

    message: Message
    original: Message | None

    @property
    def text(self) -> str:
        return to_plain_text(self.message)

    @property
    def original_text(self) -> str:
        return to_plain_text(self.original)


def render_sent(item: Item, message: Message | None, *, fetchable: bool = True) -> SentItem:
    """Return what a model read for an item. `fetchable`: the request had the tool `fetch_result`."""
    if message is not None and item.kind == "message" and message.redacted:
        return SentItem(message, None)
    shown = render_item(item, message, fetchable=fetchable)
    is_same = message is None or item.kind != "message" or shown.parts == message.parts
    return SentItem(shown, None if is_same else message)


def render_sent_items(
    items: Iterable[Item], messages: Mapping[int, Message], *, fetchable: bool = True
) -> list[tuple[Item, SentItem]]:
    """Return every item of a request with what the model read for it. `messages` are the stored messages by place."""
    return [(item, render_sent(item, messages.get(item.place), fetchable=fetchable)) for item in items]


def offers_fetch(head: bytes | None) -> bool:
    """Return True if a request with this head has the tool `fetch_result`. A missing head counts as True."""
    return head is None or _FETCH in head

"""The text of each item of a request as the model read it, beside the stored text.

A result may have been sent as a stub or shortened, a user message escaped, a reply without its reasoning, old messages
as a summary. Everything that displays a request takes its texts from here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from contextc.ledger.items import Item
from contextc.ledger.render import FETCH, rendered
from contextc.messages import Message
from contextc.messages.words import words

_FETCH = FETCH.name.encode()


class Sent(NamedTuple):
    """One item: the message that the model read, and the stored message it was rendered from.

    `original` is None if the two are equal, or if the item has no stored message. `text` and `original_text` are both
    as plain text.
    """

    message: Message
    original: Message | None

    @property
    def text(self) -> str:
        return words(self.message)

    @property
    def original_text(self) -> str:
        return words(self.original)


def as_sent(item: Item, message: Message | None, *, fetchable: bool = True) -> Sent:
    """Return what a model read for an item. `fetchable`: the request had the tool `fetch_result`."""
    if message is not None and item.kind == "message" and message.redacted:
        return Sent(message, None)
    shown = rendered(item, message, fetchable=fetchable)
    is_same = message is None or item.kind != "message" or shown.parts == message.parts
    return Sent(shown, None if is_same else message)


def sent_lines(
    items: Iterable[Item], messages: Mapping[int, Message], *, fetchable: bool = True
) -> list[tuple[Item, Sent]]:
    """Return every item of a request with what the model read for it. `messages` are the stored messages by place."""
    return [(item, as_sent(item, messages.get(item.place), fetchable=fetchable)) for item in items]


def is_fetchable(head: bytes | None) -> bool:
    """Return True if a request with this head has the tool `fetch_result`. A missing head counts as True."""
    return head is None or _FETCH in head

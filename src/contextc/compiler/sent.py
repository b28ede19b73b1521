"""The text of every line of a request as the model read it, beside the text that is stored.

A result may have been sent as a stub or shortened, a user's words escaped, a reply without its reasoning, an old part
of the conversation as a summary. Everything that shows a request to a person takes its texts from here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from contextc.ledger.items import Item
from contextc.ledger.render import FETCH, rendered
from contextc.messages import Message
from contextc.messages.words import words

_FETCH = FETCH.name.encode()


class Sent(NamedTuple):
    """One line: what the model read, and the stored message it was made from.

    `original` is None where the two are the same, or where no message is behind the line. `text` and `original_text`
    say both in one string each.
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
    """Return what a model read for an item. `fetchable`: the request had the tool that fetches left-out results."""
    if message is not None and item.kind == "message" and message.redacted:
        return Sent(message, None)
    shown = rendered(item, message, fetchable=fetchable)
    is_same = message is None or item.kind != "message" or shown.parts == message.parts
    return Sent(shown, None if is_same else message)


def sent_lines(
    items: Iterable[Item], messages: Mapping[int, Message], *, fetchable: bool = True
) -> list[tuple[Item, Sent]]:
    """Return every item of a request with what the model read for it. `messages` are those of the log, by place."""
    return [(item, as_sent(item, messages.get(item.place), fetchable=fetchable)) for item in items]


def is_fetchable(head: bytes | None) -> bool:
    """Whether a request with this head offers the tool that fetches results. One whose head is gone is taken to."""
    return head is None or _FETCH in head

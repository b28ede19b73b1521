"""Detection of the format of a logged exchange: by its address, by the formats that can decode its reply, by the fields
of its request that a format does not know, and by its model, in this order. Providers and formatters hold the facts.
"""

from collections.abc import Sequence
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.messages import Message, Native
from contextc.providers.named import COMPATIBLE, format_for, formats_at
from contextc.transfer.exchanges import Exchange
from contextc.transfer.replies import ODD, events_in, says, spoken_formats
from contextc.wire.reading import readable

NOT_READ = 1_000_000


class Dialects:
    """Format detection with a cache: exchanges with equal address, model and fields have the same candidates."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[tuple[str, int]]] = {}

    def format_of(self, exchange: Exchange) -> str:
        body = exchange.body or {}
        mark = (exchange.address.partition("?")[0], str(body.get("model")), frozenset(body))
        if mark not in self._known:
            self._known[mark] = _fitting(exchange.address, body)
        likeliest, *others = self._known[mark]
        if not others or exchange.reply is None or not _strange_in(formatter(likeliest[0]), exchange.reply):
            return likeliest[0]
        fitting = [likeliest, *others]
        return min(fitting, key=lambda each: each[1] + _strange_in(formatter(each[0]), exchange.reply))[0]


def format_of_messages(messages: list[JSONObject]) -> str:
    """Return the format with the fewest unknown fields for a bare list of messages; "" if none can decode it."""
    names = [name for name in format_names() if not formatter(name).lines]
    order = sorted(names, key=lambda name: (name != COMPATIBLE, name not in spoken_formats()))
    strange = {name: _strange(formatter(name), {formatter(name).messages_key: messages}, lost=True) for name in order}
    least = min(strange, key=strange.__getitem__)
    return least if strange[least] < len(messages) else ""


def _fitting(address: str, body: JSONObject) -> list[tuple[str, int]]:
    """Return the candidate formats of a request, best first, each with its number of unknown fields."""
    names = [name for name in spoken_formats() if formatter(name).messages_key in body]
    there = [name for name in formats_at(address) if name in names]
    order = [format_for(str(body.get("model") or "")), *there, COMPATIBLE, *names]
    fitting = sorted(there or names, key=order.index) or [COMPATIBLE]
    strange = {name: _strange(formatter(name), body) if len(fitting) > 1 else 0 for name in fitting}
    return sorted(strange.items(), key=lambda each: each[1])


def _strange(form: Formatter, body: JSONObject, *, lost: bool = False) -> int:
    """Return the number of fields that a format does not know. With `lost`, empty messages count too."""
    try:
        count = len(form.rules.read(body).misshapen)
        request = form.decode_request(readable(form, body).body)
        empty = sum(not message.parts for message in request.messages) if lost else 0
        return count + len(form.settings.read(request.settings).unread) + _natives(request.messages) + empty
    except (ContextcError, *ODD):
        return NOT_READ


def _strange_in(form: Formatter, reply: JSON) -> int:
    """Return the same for a reply. A stream is parsed first, because any format would decode it as plain text."""
    messages = says(form, cast(JSON, events_in(reply).events or reply) if isinstance(reply, str) else reply)
    return NOT_READ if messages is None else _natives(messages)


def _natives(messages: Sequence[Message]) -> int:
    return sum(isinstance(part, Native) for message in messages for part in message.parts)

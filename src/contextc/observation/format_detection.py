"""Detection of the format of a logged exchange: by its address, by the formats that can decode its reply, by the fields
of its request that a format does not know, and by its model, in this order. Providers and formatters hold the facts.
"""

from collections.abc import Sequence
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.linting.tolerant_decoding import coerce_request
from contextc.messages import Message, ProviderBlock
from contextc.observation.reply_decoding import DECODE_ERRORS, decode_or_none, parse_events, request_formats
from contextc.providers.registry import DEFAULT_FORMAT, format_of_model, formats_of_url

UNDECODABLE = 1_000_000


class FormatDetector:
    """Format detection with a cache: exchanges with equal address, model and fields have the same candidates."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[tuple[str, int]]] = {}

    def format_of(self, body: JSONObject, reply: JSON = None, address: str = "") -> str:
        mark = (address.partition("?")[0], str(body.get("model")), frozenset(body))
        if mark not in self._known:
            self._known[mark] = _candidates(address, body)
        likeliest, *others = self._known[mark]
        if not others or reply is None or not _count_unknown_in_reply(formatter(likeliest[0]), reply):
            return likeliest[0]
        fitting = [likeliest, *others]
        return min(fitting, key=lambda each: each[1] + _count_unknown_in_reply(formatter(each[0]), reply))[0]


def detect_message_format(messages: list[JSONObject]) -> str:
    """Return the format with the fewest unknown fields for a bare list of messages; "" if none can decode it."""
    names = [name for name in format_names() if not formatter(name).session_line_fields]
    order = sorted(names, key=lambda name: (name != DEFAULT_FORMAT, name not in request_formats()))
    strange = {
        name: _count_unknown(formatter(name), {formatter(name).messages_key: messages}, lost=True) for name in order
    }
    least = min(strange, key=strange.__getitem__)
    return least if strange[least] < len(messages) else ""


def _candidates(address: str, body: JSONObject) -> list[tuple[str, int]]:
    """Return the candidate formats of a request, best first, each with its number of unknown fields."""
    names = [name for name in request_formats() if formatter(name).messages_key in body]
    there = [name for name in formats_of_url(address) if name in names]
    order = [format_of_model(str(body.get("model") or "")), *there, DEFAULT_FORMAT, *names]
    fitting = sorted(there or names, key=order.index) or [DEFAULT_FORMAT]
    strange = {name: _count_unknown(formatter(name), body) if len(fitting) > 1 else 0 for name in fitting}
    return sorted(strange.items(), key=lambda each: each[1])


def _count_unknown(form: Formatter, body: JSONObject, *, lost: bool = False) -> int:
    """Return the number of fields that a format does not know. With `lost`, empty messages count too."""
    try:
        count = len(form.rules.parse(body).malformed)
        request = form.decode_request(coerce_request(form, body).body)
        empty = sum(not message.parts for message in request.messages) if lost else 0
        return count + len(form.settings.read(request.settings).unread) + _count_native_parts(request.messages) + empty
    except (ContextcError, *DECODE_ERRORS):
        return UNDECODABLE


def _count_unknown_in_reply(form: Formatter, reply: JSON) -> int:
    """Return the same for a reply. A stream is parsed first, because any format would decode it as plain text."""
    messages = decode_or_none(
        form, cast(JSON, parse_events(reply).events or reply) if isinstance(reply, str) else reply
    )
    return UNDECODABLE if messages is None else _count_native_parts(messages)


def _count_native_parts(messages: Sequence[Message]) -> int:
    return sum(isinstance(part, ProviderBlock) for message in messages for part in message.parts)

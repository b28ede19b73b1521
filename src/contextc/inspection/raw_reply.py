"""A response as it arrived, event by event, with the time of each."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

from contextc.compiler import ledger
from contextc.store import Store
from contextc.store.ledger_schema import Channel
from contextc.store.raw_replies import RawReply, load_raw_reply
from contextc.store.transaction_engine import Transaction

EVENT_END = re.compile(rb"\r?\n\r?\n")
LINE_END = re.compile(rb"\n")
STREAM_START = re.compile(rb"\s*(?:event|data|id|retry)?:")


class RawEvent(Struct, frozen=True, kw_only=True):
    """An event of a stream, or a piece of another response. `offset` is the time of its last byte in milliseconds since
    the request was sent; None if it is not known.
    """

    offset: int | None
    text: str


class RawReplyView(Struct, frozen=True, kw_only=True):
    """A response as it arrived. `is_stored` is False if it is not kept: then all other fields are empty.

    `size` is the number of its bytes, and `kept` how many of them are here. `status` is 0 if it is not known.
    """

    is_stored: bool
    status: int = 0
    size: int = 0
    kept: int = 0
    events: list[RawEvent] = []


def find_raw_reply(store: Store, channel: Channel, request: int) -> RawReply | None:
    """Return the kept response to a request of a channel, or None."""

    def work(tx: Transaction) -> RawReply | None:
        found = ledger.find_channel(tx, channel)
        return load_raw_reply(tx, found.number, request) if found is not None else None

    return store.read(work)


def view_raw_reply(raw: RawReply | None) -> RawReplyView:
    """Return a response as events with their times."""
    if raw is None:
        return RawReplyView(is_stored=False)
    ends = [*accumulate(size for _, size in raw.pieces)]
    events: list[RawEvent] = []
    start = 0
    for end in _event_ends(raw, ends):
        at = bisect_left(ends, end)
        time = raw.pieces[at][0] if at < len(ends) else None
        events.append(RawEvent(offset=time, text=raw.data[start:end].decode("utf-8", "replace")))
        start = end
    return RawReplyView(is_stored=True, status=raw.status, size=raw.size, kept=len(raw.data), events=events)


def _event_ends(raw: RawReply, pieces: list[int]) -> Iterator[int]:
    """Yield where the events of a response end: of server-sent events, of lines of JSON, else of its pieces."""
    data = raw.data
    if STREAM_START.match(data):
        ends = [match.end() for match in EVENT_END.finditer(data)]
    elif data[:1] == b"{" and b"}\n{" in data:
        ends = [match.end() for match in LINE_END.finditer(data)]
    else:
        ends = pieces
    yield from ends
    if data and (not ends or ends[-1] < len(data)):
        yield len(data)

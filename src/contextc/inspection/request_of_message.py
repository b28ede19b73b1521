"""The request that a message is in: the first one that contains it, or the one whose reply it is."""

from typing import NamedTuple

from contextc.inspection.request_details import load_request_details
from contextc.inspection.request_timeline import TimelineEntry, load_timeline
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import (
    SEQ_BITS,
    SEQ_MASK,
    find_message,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
)

MAX_TRIED = 8
"""Requests whose messages are read. A message that none of them contains was left out."""


class RequestOfMessage(NamedTuple):
    """A request, and the number of the line with the message; None if the message is its reply."""

    channel: Channel
    request: int
    line: int | None


def find_request_of_message(store: Store, conversation: str, seq: int) -> RequestOfMessage | None:
    """Return the first request that contains a message of the current branch; None if there is none.

    A message that was left out of all requests has a line in the first request after it. Raises `UnknownConversation`
    and `UnknownMessage`.
    """
    entries = load_timeline(store, conversation, with_uids=False)

    def work(tx: Transaction) -> tuple[int, list[TimelineEntry]]:
        tip = load_tip(tx, conversation)
        found = find_message(tx, conversation, tip, seq)
        place = make_place(found.branch, found.seq)
        ends = {branch: load_lineage(tx, branch) for branch in {each.record.branch for each in entries}}
        return place, [each for each in entries if _covers(ends[each.record.branch], each.record.tip, place)]

    place, after = store.read(work)
    left_out: RequestOfMessage | None = None
    for each in after[:MAX_TRIED]:
        details = load_request_details(store, each.channel, each.record.request)
        lines = [item.place for item in details.items]
        if place in lines:
            return RequestOfMessage(each.channel, each.record.request, lines.index(place))
        hidden = details.left_out_places if left_out is None else []
        if place in hidden:
            left_out = RequestOfMessage(each.channel, each.record.request, len(lines) + hidden.index(place))
    if left_out is not None:
        return left_out
    made = next((each for each in entries if place in each.record.produced), None)
    return RequestOfMessage(made.channel, made.record.request, None) if made is not None else None


def _covers(lineage: list[tuple[int, int]], tip: int, place: int) -> bool:
    """Return True if a place is on a branch up to its message `tip`."""
    branch, seq = place >> SEQ_BITS, place & SEQ_MASK
    return any([number == branch and first <= seq <= last for number, first, last in split_by_branch(lineage, 0, tip)])

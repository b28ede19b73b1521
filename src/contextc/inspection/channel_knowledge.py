"""The content of a conversation that a channel's provider has already, and the content that is new to it.

Known is what was sent and answered: the rows of the epoch, and the model's last reply, which a session holds without
being sent it. News is what the next request would add. News may have been sent before, on another branch.
"""

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from contextc.compiler.ledger import repository
from contextc.compiler.ledger.channel_loader import load_messages_at
from contextc.compiler.manifest import ManifestLine, record_from_json
from contextc.compiler.manifest_builder import build_lines
from contextc.compiler.past_requests import find_request, load_channel_provider, load_records
from contextc.errors import ContextOverflow, InvalidSetting, UnknownRequest
from contextc.inspection.preview import load_last_budget, preview_request
from contextc.inspection.request_details import (
    RequestDetails,
    is_new_item,
    load_request_details,
    preview_request_details,
)
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState, Item, RowRange


class ChannelEpoch(NamedTuple):
    """A period in which the ledger only grew: its first request, the reason it began, and its number of rows."""

    epoch: int
    request: int
    why: str
    rows: int
    time: int


class ChannelKnowledge(NamedTuple):
    """`acknowledged`: what is known is still held by the session, or is sent with every request if there is no session.
    `sent_on_other_branch` are the places of news that an earlier request sent on another branch. `last` is the last
    request. The first known items are its items.
    """

    session: str
    lost: str
    unanswered: bool
    acknowledged: bool
    known: tuple[Item, ...]
    news: tuple[Item, ...]
    sent_on_other_branch: frozenset[int]
    last: RequestDetails


def load_epochs(store: Store, channel: Channel) -> list[ChannelEpoch]:
    """Return the epochs of a channel, oldest first."""
    found: list[ChannelEpoch] = []
    for record in load_records(store, channel):
        if record.why or not found:
            found.append(ChannelEpoch(record.epoch, record.request, record.why, _length(record.layout), record.time))
        else:
            found[-1] = found[-1]._replace(rows=found[-1].rows + record.added)
    return found


def _length(layout: Sequence[tuple[int, int, int]] | None) -> int:
    return sum(last - first + 1 for _, first, last in layout or ())


def load_knowledge(store: Store, channel: Channel) -> ChannelKnowledge:
    """Return what is known on a channel, and what is news. Raises `UnknownRequest` if the channel has no request."""

    def work(tx: Transaction) -> tuple[ChannelState, bool]:
        found = repository.find_channel(tx, channel)
        if found is None:  # its conversation was deleted between the two reads
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return repository.decode_state(channel.conversation, found.state), found.attempt is not None

    shown = load_request_details(store, channel)
    state, unanswered = store.read(work)
    produced, lost = state.produced, state.lost
    session = state.session.id if state.session else ""
    ahead = _preview_next(store, channel)
    places = {item.place for item in produced}
    news: tuple[Item, ...] = ()
    if ahead is not None:
        fresh = [item for index, item in enumerate(ahead.items) if is_new_item(ahead, index, item)]
        news = tuple([item for item in fresh if item.place not in places])
    keeps = load_channel_provider(store, channel).session_resumption or bool(lost)
    known = (*shown.items, *produced)
    before = (
        _find_sent_before(store, channel, {item.place for item in news if item.place}) if news else frozenset[int]()
    )
    return ChannelKnowledge(session, lost, unanswered, bool(session) or not keeps, known, news, before, shown)


def _find_sent_before(store: Store, channel: Channel, places: Set[int]) -> frozenset[int]:
    """Return those places that any earlier request of this channel sent, or received as its answer."""

    def work(tx: Transaction) -> frozenset[int]:
        number, record = find_request(tx, channel, None)
        rows = repository.load_row_items(tx, [RowRange(number, 1, record.rows)])
        found = {item.place for _, row, _ in rows for item in row.items} & places
        answers = (where for body in repository.load_manifests(tx, number) for where in record_from_json(body).produced)
        return frozenset(found | (places & {*answers}))

    return store.read(work)


def _preview_next(store: Store, channel: Channel) -> RequestDetails | None:
    """Return the next request; None if it cannot be previewed."""
    last = load_last_budget(store, channel)
    with suppress(ContextOverflow, InvalidSetting):
        compiled = preview_request(
            store,
            load_channel_provider(store, channel),
            channel.conversation,
            agent=channel.agent,
            directory=channel.directory or None,
            budget=last.limit if last else None,
        )
        return preview_request_details(store, compiled)
    return None


def build_item_lines(store: Store, items: Sequence[Item]) -> list[ManifestLine]:
    """Return the manifest lines of these items."""
    places = [item.place for item in items if item.place]
    return build_lines(items, {}, lambda _: store.read(lambda tx: load_messages_at(tx, places)))

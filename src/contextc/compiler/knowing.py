"""The content of a conversation that a channel's provider has already, and the content that is new to it.

Known is what was sent and answered: the rows of the epoch, and the model's last reply, which a session holds without
being sent it. News is what the next request would add. News may have been sent before, on another branch.
"""

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from contextc.compiler.account import located, provider_of, records
from contextc.compiler.inspecting import Inspected, foretold, inspected, is_news
from contextc.compiler.preview import last_budget, preview
from contextc.compiler.telling import lines_of
from contextc.errors import ContextOverflow, InvalidSetting, UnknownRequest
from contextc.ledger import book
from contextc.ledger.items import Item
from contextc.ledger.look import messages_at
from contextc.ledger.standing import Channel, Standing, Stretch
from contextc.manifest import Line, record_from_json
from contextc.store import Store
from contextc.store.base import Transaction


class Epoch(NamedTuple):
    """A period in which the ledger only grew: its first request, the reason it began, and its number of rows."""

    epoch: int
    request: int
    why: str
    rows: int
    time: int


class Knowledge(NamedTuple):
    """`acknowledged`: what is known is still held by the session, or is sent with every request if there is no session.
    `before` are the places of news that an earlier request sent on another branch.
    """

    session: str
    lost: str
    unanswered: bool
    acknowledged: bool
    known: tuple[Item, ...]
    news: tuple[Item, ...]
    before: frozenset[int]


def epochs(store: Store, channel: Channel) -> list[Epoch]:
    """Return the epochs of a channel, oldest first."""
    found: list[Epoch] = []
    for record in records(store, channel):
        if record.why or not found:
            found.append(Epoch(record.epoch, record.request, record.why, _length(record.layout), record.time))
        else:
            found[-1] = found[-1]._replace(rows=found[-1].rows + record.added)
    return found


def _length(layout: Sequence[tuple[int, int, int]] | None) -> int:
    return sum(last - first + 1 for _, first, last in layout or ())


def knowledge(store: Store, channel: Channel) -> Knowledge:
    """Return what is known on a channel, and what is news. Raises `UnknownRequest` if the channel has no request."""

    def work(tx: Transaction) -> tuple[Standing, bool]:
        found = book.find(tx, channel)
        if found is None:  # its conversation was deleted between the two reads
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return book.standing_of(channel.conversation, found.state), found.attempt is not None

    shown = inspected(store, channel)
    standing, unanswered = store.read(work)
    produced, lost = standing.produced, standing.lost
    session = standing.session.id if standing.session else ""
    ahead = _ahead(store, channel)
    said = {item.place for item in produced}
    news: tuple[Item, ...] = ()
    if ahead is not None:
        fresh = [item for index, item in enumerate(ahead.items) if is_news(ahead, index, item)]
        news = tuple([item for item in fresh if item.place not in said])
    keeps = provider_of(store, channel).session_resumption or bool(lost)
    known = (*shown.items, *produced)
    before = _shown_before(store, channel, {item.place for item in news if item.place}) if news else frozenset[int]()
    return Knowledge(session, lost, unanswered, bool(session) or not keeps, known, news, before)


def _shown_before(store: Store, channel: Channel, places: Set[int]) -> frozenset[int]:
    """Return those places that any earlier request of this channel sent, or received as its answer."""

    def work(tx: Transaction) -> frozenset[int]:
        number, record = located(tx, channel, None)
        rows = book.load_items(tx, [Stretch(number, 1, record.rows)])
        found = {item.place for _, row, _ in rows for item in row.items} & places
        answers = (where for body in book.manifests(tx, number) for where in record_from_json(body).produced)
        return frozenset(found | (places & {*answers}))

    return store.read(work)


def _ahead(store: Store, channel: Channel) -> Inspected | None:
    """Return the next request; None if it cannot be previewed."""
    last = last_budget(store, channel)
    with suppress(ContextOverflow, InvalidSetting):
        compiled = preview(
            store,
            provider_of(store, channel),
            channel.conversation,
            agent=channel.agent,
            directory=channel.directory or None,
            budget=last.limit if last else None,
        )
        return foretold(store, compiled)
    return None


def told(store: Store, items: Sequence[Item]) -> list[Line]:
    """Return the manifest lines of these items."""
    places = [item.place for item in items if item.place]
    return lines_of(items, {}, lambda _: store.read(lambda tx: messages_at(tx, places)))

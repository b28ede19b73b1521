"""Load the requests of a conversation. Each row of the ledger and each head is read and parsed once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from contextc.analysis.element_parser import ElementParser
from contextc.analysis.request_elements import (
    Head,
    Rows,
    Section,
)
from contextc.analysis.request_view import ChannelFacts, ConversationView, RequestView
from contextc.compiler.body_splitting import split_body
from contextc.compiler.compiled import OBSERVED
from contextc.compiler.ledger import repository
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.compiler.past_requests import find_channel_model
from contextc.errors import ContextcError, StoreCorrupt
from contextc.formats import formatter
from contextc.inspection.channel_ids import channel_id
from contextc.providers.registry import format_of_provider
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState, RowRange, StoredRow, extend_layout
from contextc.store.message_rows import FIRST_UNANSWERED, SEQ_MASK, find_tip, make_place
from contextc.store.observed_conversation_sources import load_sources
from contextc.store.turn_and_event_records import StepRecord

NEIGHBOURS = 32
"""The number of conversations before and after one that may have begun at the same time."""


def load_conversation_view(store: Store, conversation: str) -> ConversationView:
    """Return the requests of a conversation. Raises `UnknownConversation`."""
    store.conversation(conversation)  # raises if it does not exist
    steps = _load_steps(store, conversation)

    def work(tx: Transaction) -> ConversationView:
        return _load(tx, conversation, steps)

    return store.read(work)


def _load(tx: Transaction, conversation: str, steps: "dict[tuple[object, ...], list[StepRecord]]") -> ConversationView:
    parser = ElementParser()
    requests: list[RequestView] = []
    for number, channel, state, _ in repository.load_channels(tx, conversation):
        requests += _ChannelReader(tx, parser, number, channel, state, steps).read()
    tip = find_tip(tx, conversation, False)
    number = tip.conversation if tip is not None else 0
    requests.sort(key=lambda each: (each.began, each.number))
    source = load_sources(tx, [number]).get(number)
    is_observed = bool(requests) and requests[0].observed is not None
    others = _load_overlapping(tx, parser, number, requests[0].began) if is_observed else []
    return ConversationView(conversation, requests, source, others)


def _load_overlapping(tx: Transaction, parser: ElementParser, number: int, began: int) -> list[RequestView]:
    """Return first requests of other conversations that were being answered at a time: of the same session, or of
    conversations that were stored shortly before or after.
    """
    channels = tx.rows(
        "SELECT h.number, h.conversation, h.agent, h.provider, h.model, h.directory, h.state FROM channel h"
        " JOIN conversation c ON c.name = h.conversation"
        " WHERE c.number <> ? AND (c.number BETWEEN ? AND ? OR c.number IN"
        " (SELECT o.conversation FROM observed_conversation o JOIN observed_conversation mine"
        " ON o.session = mine.session WHERE mine.conversation = ? AND mine.session <> ''))",
        number,
        number - NEIGHBOURS,
        number + NEIGHBOURS,
        number,
    )
    found: list[RequestView] = []
    for channel_number, *name, stored in channels:
        facts = [record_from_json(body).observed for body in repository.load_manifests(tx, channel_number, 1, limit=1)]
        if not facts or facts[0] is None or not facts[0].began <= began < facts[0].ended:
            continue
        channel = Channel(*name)
        state = repository.decode_state(channel.conversation, stored)
        found += _ChannelReader(tx, parser, channel_number, channel, state, {}).read(until=1)
    return sorted(found, key=lambda each: each.began)


class _ChannelReader:
    """Reads the requests of one channel."""

    def __init__(
        self,
        tx: Transaction,
        parser: ElementParser,
        number: int,
        channel: Channel,
        state: ChannelState,
        steps: "dict[tuple[object, ...], list[StepRecord]]",
    ) -> None:
        self._tx, self._parser, self._number, self._steps = tx, parser, number, steps
        format = state.head.encoder.partition("/")[0] or format_of_provider(channel.provider) or ""
        self._facts = ChannelFacts(
            channel, number, channel_id(channel), format, _messages_key(format), find_channel_model(channel)
        )
        self._heads: dict[str, Head] = {}
        self._rows: dict[int, StoredRow] = {}

    def read(self, until: int = FIRST_UNANSWERED) -> Iterator[RequestView]:
        """Return the requests up to a number, oldest first, then those without an answer."""
        stored = reversed(repository.load_manifests(self._tx, self._number, until))
        records = [(record.request, record) for record in map(record_from_json, stored)]
        lost = self._load_unanswered() if until == FIRST_UNANSWERED else []
        whole = self._load_replaced()
        layouts = self._layouts([record for _, record in records]) + [record.layout or () for _, record in lost]
        self._rows = _load_rows(self._tx, chain.from_iterable(layouts))
        before: tuple[RowRange, ...] = ()
        sections = Rows()
        for (number, record), layout in zip(records + lost, layouts, strict=True):
            if (body := whole.get(number)) is not None:
                head, rows = self._whole(body, record)
            else:
                added = _added(before, layout)
                sections = self._join(sections, added) if added is not None else self._join(Rows(), layout)
                before, head, rows = layout, self._head(record.head), sections
            yield RequestView(
                channel=self._facts, number=number, record=record, head=head, rows=rows,
                parser=self._parser, step=self._step(number, record),
            )  # fmt: skip

    def _layouts(self, records: Sequence[RequestRecord]) -> list[tuple[RowRange, ...]]:
        found: list[tuple[RowRange, ...]] = []
        start: tuple[RowRange, ...] = ()
        first = 1
        for record in records:
            if record.layout is not None:
                start, first = record.layout, record.rows + 1
                found.append(start)
            else:
                found.append(extend_layout(start, self._number, first, record.rows))
        return found

    def _load_unanswered(self) -> list[tuple[int, RequestRecord]]:
        places = self._tx.rows(
            "SELECT place FROM manifest WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(self._number, FIRST_UNANSWERED + 1),
            make_place(self._number, SEQ_MASK),
        )
        loaded = [repository.load_unanswered(self._tx, self._number, place & SEQ_MASK) for (place,) in places]
        return [(each[0], record_from_json(each[1])) for each in loaded if each is not None]

    def _load_replaced(self) -> dict[int, bytes]:
        rows = self._tx.rows(
            "SELECT place, body FROM replaced WHERE place BETWEEN ? AND ?",
            make_place(self._number, 0),
            make_place(self._number, SEQ_MASK),
        )
        return {place & SEQ_MASK: bytes(body) for place, body in rows}

    def _join(self, rows: Rows, layout: Iterable[RowRange]) -> Rows:
        found: list[Section] = []
        for channel, first, last in layout:
            for place in range(make_place(channel, first), make_place(channel, last) + 1):
                if (row := self._rows.get(place)) is None:
                    continue
                if row.row.drop:
                    rows, found = rows.extended(found).without_last(row.row.drop), []
                found.append(
                    self._parser.section(row.chunk, row.row.tokens)
                    if row.chunk
                    else self._parser.redacted(place, row.row.tokens)
                )
        return rows.extended(found)

    def _head(self, name: str) -> Head:
        if (found := self._heads.get(name)) is None:
            stored = repository.load_head(self._tx, self._number, bytes.fromhex(name))
            found = self._heads[name] = self._parser.head(stored or b"{}", self._facts.messages_key)
        return found

    def _whole(self, body: bytes, record: RequestRecord) -> tuple[Head, Rows]:
        """Return head and messages of a request that is stored whole."""
        parts = split_body(body, self._facts.messages_key)
        if parts is None:
            return self._parser.head(b"{}", self._facts.messages_key), Rows()
        section = self._parser.section(b",".join(parts.elements), record.budget.used)
        return self._parser.head(parts.head, self._facts.messages_key), Rows().extended([section])

    def _step(self, number: int, record: RequestRecord) -> StepRecord | None:
        if record.mode == OBSERVED:
            return None
        channel = self._facts.channel
        steps = self._steps.get((channel.agent, channel.provider, channel.model, record.request), [])
        if number > FIRST_UNANSWERED:
            return next((step for step in steps if step.kept == number), None)
        seqs = {where & SEQ_MASK for where in record.produced}
        return next((step for step in reversed(steps) if step.seq in seqs), None)


def _load_rows(tx: Transaction, ranges: Iterable[RowRange]) -> dict[int, StoredRow]:
    """Return the rows of some ranges by place. Each is read once."""
    wanted: dict[int, tuple[int, int]] = {}
    for channel, first, last in set(ranges):
        # rows of unanswered requests are far behind the others
        key = channel << 1 | (first > FIRST_UNANSWERED)
        low, high = wanted.get(key, (first, last))
        wanted[key] = min(low, first), max(high, last)
    layout = [RowRange(key >> 1, first, last) for key, (first, last) in sorted(wanted.items())]
    try:
        rows = repository.load_rows(tx, layout)
    except StoreCorrupt:
        numbers = [(each.channel, number) for each in layout for number in range(each.first, each.last + 1)]
        rows = [row for channel, number in numbers for row in _load_row(tx, RowRange(channel, number, number))]
    return {row.place: row for row in rows}


def _load_row(tx: Transaction, where: RowRange) -> list[StoredRow]:
    try:
        return repository.load_rows(tx, [where])
    except StoreCorrupt:
        return []


def _added(before: tuple[RowRange, ...], layout: tuple[RowRange, ...]) -> tuple[RowRange, ...] | None:
    """Return the ranges that a layout has beyond another one; None if it does not begin with it."""
    if not before or before == layout:
        return () if before == layout else None
    *same, last = before
    if tuple(same) != layout[: len(same)] or len(layout) < len(before):
        return None
    now = layout[len(same)]
    if (now.channel, now.first) != (last.channel, last.first) or now.last < last.last:
        return None
    if now.last > last.last:
        return (RowRange(now.channel, last.last + 1, now.last), *layout[len(before) :])
    return layout[len(before) :]


def _messages_key(format: str) -> str:
    try:
        return formatter(format).messages_key
    except ContextcError:
        return "messages"


def _load_steps(store: Store, conversation: str) -> dict[tuple[object, ...], list[StepRecord]]:
    """Return the steps by agent, provider, model and request number."""
    agents = {turn.number: turn.agent for turn in store.turns(conversation)}
    found: dict[tuple[object, ...], list[StepRecord]] = {}
    for step in store.steps(conversation):
        found.setdefault((agents.get(step.turn, ""), step.provider, step.model, step.request), []).append(step)
    return found

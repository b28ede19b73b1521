"""Load the requests of a conversation. Each row of the ledger and each head is read and parsed once."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from typing import NamedTuple, cast

from msgspec import Struct

from contextc._json import JSONObject, decode_json
from contextc.analysis.cache_neighbours import NeighbourLoader
from contextc.analysis.element_costs import ChannelRun
from contextc.analysis.request_elements import (
    ChannelFacts,
    ConversationView,
    ElementParser,
    Head,
    RequestView,
    Rows,
    Section,
)
from contextc.compiler import ledger
from contextc.compiler.draft import hash_chunks
from contextc.compiler.manifest import Fragment, RequestRecord, record_from_json
from contextc.compiler.past_requests import (
    find_channel_model,
    find_request,
    join_observed,
    load_channel_formatter,
    load_request_layout,
    rebuild,
    split_at_conversation,
)
from contextc.compiler.step import OBSERVED
from contextc.errors import ContextcError, StoreCorrupt
from contextc.formats import Formatter, formatter
from contextc.formats.registry import is_format
from contextc.inspection.request_timeline import (
    ChannelRecords,
    RecentConversations,
    Steps,
    decode_messages_at,
    find_step,
    index_steps,
    load_step_index,
)
from contextc.linting import Violation, lint
from contextc.providers.registry import format_of_provider
from contextc.store import Store
from contextc.store.conversation_list import ObservedSource, load_observed_sources
from contextc.store.ledger_schema import Channel, ChannelState, Item, RowRange, StoredRow, channel_id, extend_layout
from contextc.store.message_log import FIRST_UNANSWERED, SEQ_MASK, find_tip, make_place
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import StepRecord, load_steps, load_turns

NO_HEAD = b"{}"


class SectionLines(NamedTuple):
    """The lines of the inspector that a section of messages was made from: the index of the first, and all items."""

    first: int
    items: tuple[Item, ...]


class SingleRequest(NamedTuple):
    """One request, the lines of each of its sections of messages, and the fragments of its system prompt."""

    request: RequestView
    lines: list[SectionLines]
    fragments: tuple[Fragment, ...]


def load_conversation_view(store: Store, conversation: str) -> "StoredConversation":
    """Return a conversation with its requests. Raises `UnknownConversation`."""
    return ConversationLoader(store, conversation).load()


def load_single_request(
    store: Store, channel: Channel, number: int, parser: ElementParser | None = None
) -> SingleRequest:
    """Return one request. Raises `UnknownRequest`.

    A parser that has parsed the conversation before has kept its elements, which makes this fast.
    """
    steps = load_step_index(store, channel.conversation)
    return store.read(lambda tx: _load_single(tx, steps, channel, number, parser or ElementParser()))


def load_request_views(
    store: Store, wanted: Sequence[tuple[Channel, int]], parser: ElementParser | None = None
) -> list[RequestView]:
    """Return single requests, by channel and number. Raises `UnknownRequest`."""
    used = parser or ElementParser()
    steps = {name: load_step_index(store, name) for name in {channel.conversation for channel, _ in wanted}}

    def work(tx: Transaction) -> list[RequestView]:
        return [
            _load_single(tx, steps[channel.conversation], channel, number, used).request for channel, number in wanted
        ]

    return store.read(work)


def _load_single(tx: Transaction, steps: Steps, channel: Channel, number: int, parser: ElementParser) -> SingleRequest:
    channel_number, record = find_request(tx, channel, number)
    found = ledger.find_channel(tx, channel)
    assert found is not None, "it has a request"
    facts = find_channel_facts(channel_number, channel, ledger.decode_state(channel.conversation, found.state))
    return _ChannelReader(parser, facts).read_one(tx, steps, number, record)


def load_two_conversations(store: Store, one: str, other: str) -> tuple["StoredConversation", "StoredConversation"]:
    """Return the requests of two conversations. They share what has the same bytes, so that comparing them is fast."""
    steps = [(each, load_step_index(store, store.conversation(each).name)) for each in (one, other)]

    def work(tx: Transaction) -> tuple[StoredConversation, StoredConversation]:
        parser = ElementParser()
        first, second = (ConversationLoader(store, name, parser).load_from(tx, found) for name, found in steps)
        return first, second

    return store.read(work)


class ConversationLoader:
    """Loads the requests of a conversation. Later calls read only what was added since.

    Requests that were loaded before are the same objects again, unless something earlier changed: a message was
    redacted, a branch was left, or a manifest was written again. `parser` keeps their elements. Without one, the loader
    has its own, and takes another one after such a change.
    """

    def __init__(self, store: Store, conversation: str, parser: ElementParser | None = None) -> None:
        self._store, self._conversation, self._shared_parser = store, conversation, parser
        self._view = StoredConversation(store, conversation)
        self._clear()

    def _clear(self) -> None:
        self._revision: tuple[int, int] | None = None
        self.parser = self._shared_parser or ElementParser()
        self._readers: dict[int, _ChannelReader] = {}
        self._neighbours = NeighbourLoader(self._read_other, _read_times)

    def load(self) -> "StoredConversation":
        """Return the conversation with all requests. Raises `UnknownConversation`."""
        self._store.conversation(self._conversation)  # raises if it does not exist
        steps = load_step_index(self._store, self._conversation)
        try:
            return self._store.read(lambda tx: self.load_from(tx, steps))
        except BaseException:
            self._clear()
            raise

    def load_from(self, tx: Transaction, steps: Steps) -> "StoredConversation":
        """Return the conversation with all requests, as a transaction sees them."""
        tip = find_tip(tx, self._conversation, False)
        number = tip.conversation if tip is not None else 0
        revision = (number, tip.revision if tip is not None else 0)
        if self._revision is not None and revision != self._revision:
            self._clear()
        self._revision = revision
        requests: list[RequestView] = []
        for channel_number, channel, state, _ in ledger.load_channels(tx, self._conversation):
            facts = find_channel_facts(channel_number, channel, state)
            reader = self._readers.get(channel_number)
            if reader is None or reader.facts != facts:
                reader = self._readers[channel_number] = _ChannelReader(self.parser, facts)
            requests += reader.read(tx, steps)
        requests.sort(key=lambda each: (each.began, each.number))
        source = load_observed_sources(tx, [number]).get(number)
        others = self._neighbours.load(tx, number, requests, source)
        self._view.update(requests, source, *others)
        return self._view

    def _read_other(
        self, tx: Transaction, conversation: int, channel: Channel, number: int, state: ChannelState,
        record: RequestRecord,
    ) -> RequestView:  # fmt: skip
        """Return a request of another conversation."""
        steps: Steps = _load_steps_of(tx, conversation) if record.observed is None else {}
        reader = _ChannelReader(self.parser, find_channel_facts(number, channel, state))
        return reader.read_one(tx, steps, record.request, record).request


def _read_times(
    tx: Transaction, conversation: int, channel: Channel, record: RequestRecord
) -> tuple[int, int] | None:  # fmt: skip
    """Return the begin and the end of a request of our own; None if no executor sent it."""
    step = find_step(_load_steps_of(tx, conversation), channel, record.request, record.produced)
    return (step.started, step.started + step.milliseconds) if step is not None and step.started else None


def _load_steps_of(tx: Transaction, conversation: int) -> Steps:
    return index_steps(load_turns(tx, conversation), load_steps(tx, conversation, None))


def find_channel_facts(number: int, channel: Channel, state: ChannelState) -> ChannelFacts:
    """Return the facts that all requests of a channel have in common, by its number and its state."""
    format = state.head.encoder.partition("/")[0] or format_of_provider(channel.provider) or ""
    kind: type[Formatter] = type(formatter(format)) if is_format(format) else Formatter
    return ChannelFacts(
        channel, number, channel_id(channel), format, kind.messages_key, kind.caches_system_first,
        find_channel_model(channel),
    )  # fmt: skip


class _ChannelReader:
    """Reads the requests of one channel: those that it has not read before."""

    def __init__(self, parser: ElementParser, facts: ChannelFacts) -> None:
        self.facts, self._parser = facts, parser
        self._records = ChannelRecords(facts.number)
        self._clear()

    def _clear(self) -> None:
        self._heads: dict[str, Head] = {}
        self._rows: dict[int, StoredRow] = {}
        self._loaded: dict[int, tuple[int, int]] = {}
        self._views: list[RequestView] = []
        self._lost: dict[int, tuple[bytes, RequestView]] = {}
        self._epoch: tuple[tuple[RowRange, ...], int] = ((), 1)
        self._last: tuple[tuple[RowRange, ...], Rows] = ((), Rows())

    def read(self, tx: Transaction, steps: Steps) -> list[RequestView]:
        """Return all requests, oldest first, then those without an answer."""
        is_changed = self._records.update(tx) < len(self._views)
        if is_changed or any([self._step(steps, each.number, each.record) != each.step for each in self._views]):
            self._clear()
        last = self._views[-1].number if self._views else -1
        added = self._records.records[len(self._views) :]
        layouts = self._layouts(added)
        places = tx.rows(
            "SELECT place FROM main.manifest WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(self.facts.number, FIRST_UNANSWERED + 1),
            make_place(self.facts.number, SEQ_MASK),
        )
        loaded = [ledger.load_unanswered(tx, self.facts.number, place & SEQ_MASK) for (place,) in places]
        lost = {each[0]: each[1] for each in loaded if each is not None}
        self._lost = {
            key: (body, view)
            for key, (body, view) in self._lost.items()
            if lost.get(key) == body and self._step(steps, key, view.record) == view.step
        }
        new_lost = {key: record_from_json(body) for key, body in lost.items() if key not in self._lost}
        whole = self._load_replaced(tx, last + 1) if added or new_lost else {}
        self._load_rows(tx, chain(*layouts, *[each.layout or () for each in new_lost.values()]))
        for record, layout in zip(added, layouts, strict=True):
            view, self._last = self._view(tx, steps, record.request, record, layout, whole)
            self._views.append(view)
        for key, record in new_lost.items():
            view, _ = self._view(tx, steps, key, record, record.layout or (), whole)
            self._lost[key] = lost[key], view
        return [*self._views, *[self._lost[key][1] for key in lost]]

    def _view(
        self,
        tx: Transaction,
        steps: Steps,
        number: int,
        record: RequestRecord,
        layout: tuple[RowRange, ...],
        whole: Mapping[int, bytes],
    ) -> tuple[RequestView, tuple[tuple[RowRange, ...], Rows]]:
        """Return a request, and the layout and rows that the next one may continue."""
        last = self._last
        if (body := whole.get(number)) is not None:
            head, rows = self._whole(body, record)
        else:
            added = _added_ranges(last[0], layout)
            rows = self._join(last[1], added) if added is not None else self._join(Rows(), layout)
            last, head = (layout, rows), self._head(tx, record.head)
        view = RequestView(
            channel=self.facts, number=number, record=record, head=head, rows=rows, parser=self._parser,
            step=self._step(steps, number, record), is_replaced=body is not None,
        )  # fmt: skip
        return view, last

    def read_one(self, tx: Transaction, steps: Steps, number: int, record: RequestRecord) -> SingleRequest:
        """Return one request and its lines. For a resumed session, it is the whole context that the session held."""
        layout, start = load_request_layout(tx, self.facts.number, record)
        self._rows = _load_rows(tx, layout)
        places: list[int] = []
        rows = self._join(Rows(), layout, places)
        ordered = [
            place
            for channel, first, last in layout
            for place in range(make_place(channel, first), make_place(channel, last) + 1)
            if place in self._rows
        ]
        items = [self._rows[place].row.items for place in ordered]
        starts = dict(zip(ordered, accumulate([len(each) for each in items], initial=0), strict=False))
        lines = [SectionLines(starts[place], self._rows[place].row.items) for place in places]
        if (body := self._load_replaced(tx, number, number).get(number)) is not None:
            head, rows = self._whole(body, record)
            lines = [SectionLines(0, tuple(chain.from_iterable(items)))] * len(rows.sections)
        else:
            head = self._head(tx, start.head if record.mode == "resume" else record.head)
        request = RequestView(
            channel=self.facts, number=number, record=record, head=head, rows=rows, parser=self._parser,
            step=self._step(steps, number, record), is_replaced=body is not None,
        )  # fmt: skip
        return SingleRequest(request, lines, start.fragments)

    def _layouts(self, records: Sequence[RequestRecord]) -> list[tuple[RowRange, ...]]:
        """Return the layouts of the requests that follow those read before."""
        found: list[tuple[RowRange, ...]] = []
        start, first = self._epoch
        for record in records:
            if record.layout is not None:
                start, first = record.layout, record.rows + 1
                found.append(start)
            else:
                found.append(extend_layout(start, self.facts.number, first, record.rows))
        self._epoch = start, first
        return found

    def _load_replaced(self, tx: Transaction, first: int, last: int = SEQ_MASK) -> dict[int, bytes]:
        """Return the requests that are stored whole, by number."""
        rows = tx.rows(
            "SELECT place, body FROM main.replaced WHERE place BETWEEN ? AND ?",
            make_place(self.facts.number, first),
            make_place(self.facts.number, last),
        )
        return {place & SEQ_MASK: bytes(body) for place, body in rows}

    def _load_rows(self, tx: Transaction, ranges: Iterable[RowRange]) -> None:
        """Load the rows of some ranges, as far as they are not known. Each is read once."""
        wanted: dict[int, tuple[int, int]] = {}
        for channel, first, last in set(ranges):
            # rows of unanswered requests are far behind the others
            key = channel << 1 | (first > FIRST_UNANSWERED)
            low, high = wanted.get(key, (first, last))
            wanted[key] = min(low, first), max(high, last)
        layout: list[RowRange] = []
        for key, (first, last) in sorted(wanted.items()):
            low, high = self._loaded.get(key, (last + 1, last))
            layout += [RowRange(key >> 1, first, low - 1), RowRange(key >> 1, high + 1, last)]
            self._loaded[key] = min(low, first), max(high, last)
        self._rows |= _load_rows(tx, [each for each in layout if each.first <= each.last])

    def _join(self, rows: Rows, layout: Iterable[RowRange], places: list[int] | None = None) -> Rows:
        """Return rows and those of a layout. `places` gets the place of each row that no later one replaces."""
        found: list[Section] = []
        for channel, first, last in layout:
            for place in range(make_place(channel, first), make_place(channel, last) + 1):
                if (row := self._rows.get(place)) is None:
                    continue
                if row.row.drop:
                    rows, found = rows.extended(found).without_last(row.row.drop, self._parser.shortened), []
                    if places is not None:
                        del places[len(rows.sections) :]
                if places is not None:
                    places.append(place)
                found.append(
                    self._parser.section(row.chunk, row.row.tokens, row.row.items)
                    if row.chunk
                    else self._parser.redacted(place, row.row.tokens)
                )
        return rows.extended(found)

    def _head(self, tx: Transaction, name: str) -> Head:
        if (found := self._heads.get(name)) is None:
            stored = ledger.load_head(tx, self.facts.number, bytes.fromhex(name))
            found = self._heads[name] = self._parser.head(stored or NO_HEAD, self.facts.messages_key)
        return found

    def _whole(self, body: bytes, record: RequestRecord) -> tuple[Head, Rows]:
        """Return head and messages of a request that is stored whole."""
        parts = split_at_conversation(body, self.facts.messages_key)
        if parts is None:
            return self._parser.head(NO_HEAD, self.facts.messages_key), Rows()
        section = self._parser.section(b",".join(parts.elements), record.budget.used)
        return self._parser.head(parts.head, self.facts.messages_key), Rows().extended([section])

    def _step(self, steps: Steps, number: int, record: RequestRecord) -> StepRecord | None:
        if record.mode == OBSERVED:
            return None
        return find_step(steps, self.facts.channel, record.request, record.produced, number)


def _load_rows(tx: Transaction, layout: Sequence[RowRange]) -> dict[int, StoredRow]:
    """Return the rows of some ranges by place. Those that cannot be read are left out."""
    try:
        rows = ledger.load_rows(tx, layout)
    except StoreCorrupt:
        numbers = [(each.channel, number) for each in layout for number in range(each.first, each.last + 1)]
        rows: list[StoredRow] = []
        for channel, number in numbers:
            with suppress(StoreCorrupt):
                rows += ledger.load_rows(tx, [RowRange(channel, number, number)])
    return {row.place: row for row in rows}


def _added_ranges(before: tuple[RowRange, ...], layout: tuple[RowRange, ...]) -> tuple[RowRange, ...] | None:
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


# ── with replies and exact bodies ─────────────────────────────────────────────────────────────────────────────────────
# A conversation with what its requests do not contain: its replies, and the exact bodies that were sent.


CALL_TAG = "tool_call"


class _PartName(Struct):
    """The kind of a part, and the name of the tool that it calls."""

    type: str = ""
    name: str | None = None


class _ReplyMessage(Struct):
    """The fields of a stored reply that findings need. Others are not decoded."""

    finish: str | None = None
    error: str | None = None
    parts: list[_PartName] = []


class Reply(Struct, frozen=True, kw_only=True):
    """The reply to one request: why it ended, its error, and the names of the tools that it calls."""

    finish: str = ""
    error: str = ""
    calls: tuple[str, ...] = ()


NO_REPLY = Reply()


class StoredConversation(ConversationView):
    """A conversation view that can read its store, and that can be updated.

    `channels` are the requests of each channel in their order, by the short id of the channel; `runs` are the same with
    their prices.
    """

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(name)
        self.store = store
        self._forget_requests()

    def _forget_requests(self) -> None:
        self.forget()
        self.requests.clear()
        self.channels: dict[str, list[RequestView]] = {}
        self._runs: dict[str, ChannelRun] = {}
        self._replies: dict[int, Reply] = {}
        self._replies_read = 0
        self._violations: dict[int, list[Violation]] = {}

    def update(
        self,
        requests: Sequence[RequestView],
        source: ObservedSource | None,
        overlapping: list[RequestView],
        continued: RequestView | None,
    ) -> None:
        """Take over a later state of the conversation. What was computed is kept if requests were only added."""
        count, self.source = len(self.requests), source
        is_same = overlapping == self.overlapping and continued is self.continued
        if requests[:count] != self.requests or not is_same:
            count, self.overlapping, self.continued = 0, overlapping, continued
            self._forget_requests()
        self.requests.extend(requests[count:])
        for each in requests[count:]:
            self.channels.setdefault(each.channel_id, []).append(each)

    @property
    def runs(self) -> list[ChannelRun]:
        for id, requests in self.channels.items():
            run = self._runs.setdefault(id, ChannelRun())
            run.extend(requests[len(run.requests) :])
        return list(self._runs.values())

    def reply(self, request: RequestView) -> Reply:
        """Return the reply to a request. It is empty if none is stored."""
        if self._replies_read < len(self.requests):
            self._load_replies(self.requests[self._replies_read :])
            self._replies_read = len(self.requests)
        return self._replies.get(id(request), NO_REPLY)

    def violations(self, request: RequestView) -> list[Violation]:
        """Return what `contextc lint` finds in the body of a request; nothing if it cannot be rebuilt."""
        if (found := self._violations.get(id(request))) is None:
            found = self._violations[id(request)] = []
            with suppress(ContextcError):
                if (body := self.body(request)) is not None:
                    found += lint(body, format=request.format)
        return found

    def body(self, request: RequestView) -> JSONObject | None:
        """Return the body of a request as it was sent; None if it cannot be rebuilt."""
        with suppress(ContextcError, ValueError):
            found = decode_json(self._rebuild(request))
            return cast(JSONObject, found) if isinstance(found, dict) else None
        return None

    def _rebuild(self, request: RequestView) -> bytes:
        rows = [each.raw for each in request.rows.sections]
        is_known = request.observed is not None and not request.is_replaced and request.head.raw != NO_HEAD
        if request.observed is None or not is_known or hash_chunks("", rows) != request.record.chain:
            formatter = load_channel_formatter(self.store, request.channel)
            return rebuild(self.store, request.channel, formatter, request.number)
        return join_observed(request.head.raw, rows, request.observed)

    def _load_replies(self, requests: Sequence[RequestView]) -> None:
        places = [where for each in requests for where in each.record.produced]
        messages = self.store.read(lambda tx: decode_messages_at(tx, places, _ReplyMessage))
        for each in requests:
            produced = [messages[where] for where in each.record.produced if where in messages]
            if produced:
                self._replies[id(each)] = Reply(
                    finish=next((one.finish for one in reversed(produced) if one.finish), ""),
                    error=next((one.error for one in reversed(produced) if one.error), ""),
                    calls=tuple(
                        [part.name for one in produced for part in one.parts if part.type == CALL_TAG and part.name]
                    ),
                )


# ── while it grows ────────────────────────────────────────────────────────────────────────────────────────────────────
# Conversations that are analysed again and again while they grow: each time, only what is new is read and compared.


MAX_CONVERSATIONS = 4
"""The number of conversations that are kept. A long one takes some 100 MB."""


class AnalysedConversations:
    """The most recently analysed conversations of a store. It can be used by several threads."""

    def __init__(self, store: Store, limit: int = MAX_CONVERSATIONS) -> None:
        self._loaders = RecentConversations(lambda name: ConversationLoader(store, name), limit)

    @contextmanager
    def open(self, name: str) -> Generator[StoredConversation]:
        """Return the present state of a conversation, for one thread at a time. Raises `UnknownConversation`.

        What was computed from an earlier state is used again. After an error, nothing of it is kept.
        """
        with self._loaders.open(name) as loader:
            yield loader.load()

    @contextmanager
    def use_parser(self, name: str) -> Generator[ElementParser]:
        """Return the parser of a conversation, which keeps what it parsed; a new one if another thread uses it."""
        with self._loaders.open(name, waits=False) as loader:
            yield loader.parser

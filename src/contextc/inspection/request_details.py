"""One request in detail, sent or previewed: its items, the prefix it shares, its budget by kind, and its lines.

A page of lines loads the messages of that page only, and never the wire bytes. Texts are as the model read them. Token
figures are the provider's if it reported any, distributed over all parts.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from contextc._json import JSONObject
from contextc._sequence_comparison import count_common_prefix
from contextc.compiler import ledger
from contextc.compiler.draft import Budget, distribute
from contextc.compiler.head_parts import HeadPart, compare_heads, load_whole_head, split_head
from contextc.compiler.ledger import load_messages_by_place
from contextc.compiler.manifest import Fragment, ManifestLine, RequestRecord
from contextc.compiler.past_requests import (
    find_channel_model,
    find_request,
    load_channel_formatter,
    load_kept_facts,
    load_left_out_reasons,
    load_request_layout,
)
from contextc.compiler.step import (
    Compiled,
    build_included_line,
    build_left_out_line,
    find_included_places,
    is_reduced,
    offers_fetch,
    render_sent_items,
)
from contextc.inspection.line_details import (
    LineCause,
    LineDetails,
    LineResult,
    LineToolCall,
    compute_item_costs,
    describe_parts,
    pair_details,
    searched_text,
)
from contextc.inspection.prefix_break import load_compared_record
from contextc.messages import AnyPart, Message, Usage
from contextc.models import Model
from contextc.store import Store
from contextc.store.ledger_schema import Channel, EpochReason, Item, LedgerRow, RowRange
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, load_lineage, split_by_branch
from contextc.store.transaction_engine import Transaction

LINES_PER_BATCH = 500  # lines that a search loads per batch
Reduction: TypeAlias = Literal["", "stub", "shortened"]
"""The form of the tool results of a line: complete, replaced by a stub, or shortened to head and tail."""


class RequestDetails(Struct, frozen=True, kw_only=True):
    """A request with its items. The first `shared` items are in the prefix that the previous request had too: the last
    one that was answered. `size` is the bytes of all its messages.

    `load_left_out` and `load_messages` load on demand: the messages that are left out, by place, with the reason;
    messages by place. `load_head` loads the system prompt and the tool definitions. `was_sent` reports whether the
    previous request already covered a place, and `was_answered` whether it has usage. `load_kept_facts` loads what
    summaries kept and lost, by the last message that they cover. `is_preview` is true of a request that was not sent,
    and `expected` is the usage that is expected of it.
    """

    channel: Channel
    record: RequestRecord
    items: tuple[Item, ...]
    shared: int
    size: int
    fragments: tuple[Fragment, ...]
    load_left_out: Callable[[], Mapping[int, str]]
    load_messages: Callable[[Sequence[int]], Mapping[int, Message]]
    load_head: Callable[[], tuple[HeadPart, ...]]
    load_kept_facts: Callable[[], Mapping[int, str]]
    was_sent: Callable[[int], bool]
    fetchable: bool
    was_answered: bool = False
    is_preview: bool = False
    expected: Usage | None = None

    @property
    def left_out_places(self) -> list[int]:
        """The places of the messages that are left out, in order."""
        places = find_included_places(self.items)
        return sorted(
            [where for where in self.load_left_out() if where not in places], key=lambda where: where & SEQ_MASK
        )

    @property
    def reduced_lines(self) -> list[int]:
        """The numbers of the lines whose result is a stub or shortened."""
        return [index for index, item in enumerate(self.items) if is_reduced(item)]

    @property
    def budget(self) -> Budget:
        """The budget, by the provider's own total if it reported one."""
        return self.record.corrected_budget

    @property
    def tokens(self) -> list[int]:
        """The tokens of each item. Their sum is what the budget has for messages, without the overhead."""
        return distribute(self.budget.messages, [item.tokens for item in self.items])

    @property
    def above(self) -> int:
        """The tokens before the first item: system prompt, tools, and what the provider adds."""
        return self.budget.input - self.budget.messages

    @property
    def charged(self) -> Usage | None:
        """The usage that items are priced by; None if it is unknown."""
        return self.record.usage or self.expected

    @property
    def priced_model(self) -> Model | None:
        """The model with the prices of the items; None if what a sent request cost is unknown, as of a failed one."""
        return find_channel_model(self.channel) if self.is_preview or self.charged is not None else None

    @property
    def shared_tokens(self) -> int:
        """The tokens of the shared prefix: system prompt, tools and messages."""
        return self.record.shared_tokens


class TokenDistribution(Struct, frozen=True, kw_only=True):
    """Distribution of the tokens of a window, or of the limit below it. The parts add up to all of it.

    `overhead` was counted by the provider beyond what the request contains. `history` was sent before, `new` was not;
    `dynamic` are fragments rendered for a request. A request that exceeds its
    room uses the margin first, then the reserve.
    """

    system: int
    tools: int
    overhead: int
    dynamic: int
    history: int
    new: int
    reserve: int
    margin: int
    free: int


LineState: TypeAlias = Literal["shared", "new", "left", "shown"]
"""State of a line: also in the previous request, new, left out, or without a previous request to compare with."""


class RequestLine(Struct, frozen=True, kw_only=True):
    """One message or inserted text of a request. `index` counts from 0: sent lines in order, then the rest.

    `text` is the text as sent, and `original` the stored text if it differs. `parts` and `original_parts` are the same
    as message parts, if the query asks for them. `reduction` is "stub" or "shortened" if a tool result was reduced, and
    `original_length` is then the number of characters of the stored text.

    The other fields are present in a detailed answer. `causes` are the causes of its tokens, as in the costs by cause.
    `tool` is the name of the tool that the line defines, calls or has a result of, if it is one tool. `again` is true
    if the previous request had the message too, but not in the shared prefix. `paid_again` is true if it is in the
    shared prefix, but the provider did not read it from its cache. `changed` is true for a system prompt or a tool of
    which the previous request had another version. `definition` is a tool definition as sent, if the
    query asks for parts. Lines of the system prompt and of tools have negative indexes.
    """

    index: int
    seq: int
    kind: str
    role: str
    shown: bool
    tokens: int
    cost: float | None
    why: str
    text: str
    state: LineState
    uid: str
    original: str = ""
    parts: tuple[AnyPart, ...] | None = None
    original_parts: tuple[AnyPart, ...] | None = None
    reduction: Reduction = ""
    original_length: int = 0
    causes: tuple[LineCause, ...] | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    calls: tuple[LineToolCall, ...] | UnsetType = UNSET
    results: tuple[LineResult, ...] | UnsetType = UNSET
    again: bool | UnsetType = UNSET
    paid_again: bool | UnsetType = UNSET
    changed: bool | UnsetType = UNSET
    definition: JSONObject | UnsetType = UNSET


class LinePage(NamedTuple):
    """A page of lines, whether more follow, and the `after` value of the next page."""

    lines: list[RequestLine]
    more: bool
    next: int


# ── a request, from the store or just compiled ────────────────────────────────────────────────────────────────────────


def load_request_details(store: Store, channel: Channel, request: int | None = None) -> RequestDetails:
    """Load a committed request; by default the last one. Raises `UnknownRequest`."""

    def work(tx: Transaction) -> RequestDetails:
        number, record = find_request(tx, channel, request)
        layout, start = load_request_layout(tx, number, record)
        rows = ledger.load_row_items(tx, layout)
        before = load_compared_record(tx, number, record.request)
        items = tuple([item for _, row, _ in rows for item in row.items])
        return RequestDetails(
            channel=channel,
            record=record,
            items=items,
            shared=_shared(tx, number, record, before, rows),
            size=sum([size for *_, size in rows]),
            fragments=start.fragments,
            load_left_out=_left(store, channel, record, items),
            load_messages=lambda places: store.read(lambda tx: load_messages_by_place(tx, places)),
            load_head=_head(store, channel, record, before),
            load_kept_facts=lambda: load_kept_facts(store, channel),
            was_sent=_branch_test(tx, before),
            was_answered=before is not None and before.usage is not None,
            fetchable=offers_fetch(ledger.load_head(tx, number, bytes.fromhex(start.head))),
        )

    return store.read(work)


def preview_request_details(store: Store, compiled: Compiled) -> RequestDetails:
    """Inspect a request that was compiled and not committed."""
    record, draft, assembled = compiled.record, compiled.draft, compiled.rows
    sealed, order = compiled.snapshot.cached.rows, assembled.order
    if order is None:
        items = [item for each in sealed for item in each.row.items] + [entry.item for entry in draft.tail]
        shared = sum([len(each.row.items) for each in sealed])
    else:
        items, shared = list(draft.kept or ()), 0
        if record.shares_head and record.why != EpochReason.NEW_ENCODER:
            rows = next(
                (n for n, (one, two) in enumerate(zip(order, sealed, strict=False)) if one is not two), len(order)
            )
            shared = sum([len(each.row.items) for each in sealed[:rows]])
            # Compare by identity: in a dry run, an edited message may equal the message that it replaces.
            pairs = zip(items[shared:], sealed[rows].row.items if rows < len(sealed) else (), strict=False)
            shared += sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    known = dict(draft.log)

    def read(places: Sequence[int]) -> Mapping[int, Message]:
        missing = [where for where in places if where not in known]
        return {**store.read(lambda tx: load_messages_by_place(tx, missing)), **known}

    def work(tx: Transaction) -> Callable[[int], bool]:
        found = ledger.find_channel(tx, compiled.channel)
        return _branch_test(tx, load_compared_record(tx, found.number, record.request) if found else None)

    return RequestDetails(
        channel=compiled.channel,
        record=record,
        items=tuple(items),
        shared=shared,
        size=compiled.state.size,
        fragments=compiled.manifest.fragments,
        load_left_out=_left(store, compiled.channel, record, items),
        load_messages=read,
        load_head=_preview_head(store, compiled),
        load_kept_facts=lambda: load_kept_facts(store, compiled.channel),
        was_sent=store.read(work),
        fetchable=draft.fetchable,
        is_preview=True,
    )


def _head(
    store: Store, channel: Channel, record: RequestRecord, before: RequestRecord | None
) -> Callable[[], tuple[HeadPart, ...]]:
    def work(tx: Transaction) -> list[bytes | None]:
        found = ledger.find_channel(tx, channel)
        return [load_whole_head(tx, found.number, each) if found and each else None for each in (record, before)]

    def read() -> tuple[HeadPart, ...]:
        now, then = store.read(work)
        formatter = load_channel_formatter(store, channel)
        parts = split_head(formatter, now)
        return compare_heads(parts, split_head(formatter, then) if before is not None else None, record)

    return read


def _preview_head(store: Store, compiled: Compiled) -> Callable[[], tuple[HeadPart, ...]]:
    record, formatter = compiled.record, compiled.formatter

    def work(tx: Transaction) -> bytes | None:
        number, before = find_request(tx, compiled.channel, record.request - 1)
        return load_whole_head(tx, number, before)

    def read() -> tuple[HeadPart, ...]:
        parts = split_head(formatter, compiled.head.body if compiled.mode == "full" else compiled.session_head)
        then = split_head(formatter, store.read(work)) if record.request > 1 else None
        return compare_heads(parts, then, record)

    return read


def _left(
    store: Store, channel: Channel, record: RequestRecord, items: Sequence[Item]
) -> Callable[[], Mapping[int, str]]:
    found: list[Mapping[int, str]] = []

    def read() -> Mapping[int, str]:
        if not found:
            now = {each.place: each.why for each in record.left}
            found.append(load_left_out_reasons(store, channel, record.branch, record.tip, record.request, items) | now)
        return found[0]

    return read


def _shared(
    tx: Transaction,
    number: int,
    record: RequestRecord,
    before: RequestRecord | None,
    rows: Sequence[tuple[int, LedgerRow, int]],
) -> int:
    """Return the number of leading items that the previous request had too.

    These are the items of rows at the same places, and the equal leading items of the first row that differs.
    """
    is_previous = before is None or before.request == record.request - 1
    if not record.why and is_previous:
        return _items(rows[: len(rows) - record.added])
    if not record.shares_head or record.why == EpochReason.NEW_ENCODER:
        return 0
    if before is None:  # a fork: its first rows are its parent's
        ends = accumulate(size for *_, size in rows)
        return _items(rows[: sum(end <= record.shared_bytes for end in ends)])
    theirs = [
        where
        for channel, first, last in load_request_layout(tx, number, before)[0]
        for where in range(channel << SEQ_BITS | first, (channel << SEQ_BITS | last) + 1)
    ]
    same = count_common_prefix([where for where, *_ in rows], theirs)
    if same == len(rows) or same == len(theirs):
        return _items(rows[:same])
    parting = RowRange(theirs[same] >> SEQ_BITS, theirs[same] & SEQ_MASK, theirs[same] & SEQ_MASK)
    ((_, row, _),) = ledger.load_row_items(tx, [parting])
    return _items(rows[:same]) + count_common_prefix(rows[same][1].items, row.items)


def _items(rows: Sequence[tuple[int, LedgerRow, int]]) -> int:
    return sum([len(row.items) for _, row, _ in rows])


def _branch_test(tx: Transaction, before: RequestRecord | None) -> Callable[[int], bool]:
    """Return a function that reports whether a place is on the conversation's branch as the previous request saw it."""
    ends: dict[int, tuple[int, int]] = {}
    if before is not None:
        ends = {
            branch: (first, last)
            for branch, first, last in split_by_branch(load_lineage(tx, before.branch), 0, before.tip)
        }

    def is_on_it(where: int) -> bool:
        first, last = ends.get(where >> SEQ_BITS, (1, 0))
        return first <= where & SEQ_MASK <= last

    return is_on_it


# ── where its budget goes ─────────────────────────────────────────────────────────────────────────────────────────────


def compute_distribution(request: RequestDetails) -> TokenDistribution:
    """Return the budget of a request by kind."""
    counted = {"dynamic": 0, "history": 0, "new": 0}
    sizes = distribute(request.budget.messages, [item.tokens for item in request.items])
    for index, (item, tokens) in enumerate(zip(request.items, sizes, strict=True)):
        counted[_kind(request, index, item)] += tokens
    return distribute_window(request.budget, **counted)


def is_new_item(request: RequestDetails, index: int, item: Item) -> bool:
    """Return True if an item was never sent on its channel before."""
    return _kind(request, index, item) == "new"


def _kind(seen: RequestDetails, index: int, item: Item) -> str:
    if item.kind in ("dynamic", "turn"):
        return "dynamic"
    if not seen.record.why:
        return "history" if index < seen.shared else "new"
    is_new = item.kind == "late" or (item.kind == "message" and not seen.was_sent(item.place))
    return "new" if is_new else "history"


def distribute_window(budget: Budget, *, dynamic: int, history: int, new: int) -> TokenDistribution:
    """Return the whole window by kind. The budget's tokens for messages are distributed in proportion to our count."""
    total, used = dynamic + history + new, budget.messages
    shares = [used * each // total if total else 0 for each in (dynamic, history, new)]
    shares[max(range(3), key=lambda index: (shares[index], index == 1))] += used - sum(shares)
    room = (budget.limit or budget.window) - budget.input
    over = max(0, budget.reserve + budget.margin - max(0, room))
    margin = max(0, budget.margin - over)
    reserve = max(0, budget.reserve - (over - (budget.margin - margin)))
    return TokenDistribution(
        system=budget.system,
        tools=budget.tools,
        overhead=budget.used - used,
        dynamic=shares[0],
        history=shares[1],
        new=shares[2],
        reserve=reserve,
        margin=margin,
        free=max(0, room - reserve - margin),
    )


# ── its lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def page_lines(
    request: RequestDetails, *, after: int = 0, limit: int = 200, only: str = "", search: str = ""
) -> LinePage:
    """Return a page of lines. `only` is "shown", "left" (left out or shortened), or empty for all.

    Lines are numbered: first what was sent, in order, then what was left out. `after` is the number of lines to skip.
    `search` selects the lines whose text contains it, as sent or as stored, regardless of case.
    """
    end = len(request.items)
    hidden = [] if only == "shown" or (not only and not search and after + limit < end) else request.left_out_places
    numbers: Sequence[int] = range(end + len(hidden))
    if only:
        numbers = range(end) if only == "shown" else [*request.reduced_lines, *numbers[end:]]
    if not search:
        last = min(len(numbers), after + limit)
        return LinePage(build_numbered_lines(request, numbers[after:last], hidden), last < len(numbers), last)
    found: list[RequestLine] = []
    wanted, figures = search.casefold(), compute_line_figures(request)
    for first in range(after, len(numbers), LINES_PER_BATCH):
        some = build_numbered_lines(request, numbers[first : first + LINES_PER_BATCH], hidden, figures)
        for place, each in enumerate(some, first + 1):
            texts = (each.text, each.original, each.why, each.role, each.kind, str(each.seq))
            if wanted in "\n".join(texts).casefold():
                found.append(each)
                if len(found) == limit:
                    return LinePage(found, place < len(numbers), place)
    return LinePage(found, False, len(numbers))


class LineFigures(NamedTuple):
    """The tokens and the costs of all items of a request."""

    tokens: Sequence[int]
    costs: Sequence[float | None]


def compute_line_figures(request: RequestDetails) -> LineFigures:
    costs = compute_item_costs(request.priced_model, request.tokens, request.above, request.charged)
    return LineFigures(request.tokens, costs)


def build_numbered_lines(
    seen: RequestDetails, numbers: Sequence[int], hidden: Sequence[int], figures: LineFigures | None = None
) -> list[RequestLine]:
    """Return these lines of a request: first those that were sent. `hidden` are the places of what it leaves out."""
    end = len(seen.items)
    shown = [number for number in numbers if number < end]
    left = [hidden[number - end] for number in numbers if number >= end]
    items = [seen.items[number] for number in shown]
    messages = seen.load_messages(list(dict.fromkeys([*(item.place for item in items if item.place), *left])))
    tokens, costs = (figures or compute_line_figures(seen)) if shown else ((), ())
    found: list[RequestLine] = []
    sent_items = render_sent_items(items, messages, fetchable=seen.fetchable)
    kept: Mapping[int, str] = seen.load_kept_facts() if any([item.kind == "summary" for item in items]) else {}
    for number, (item, sent) in zip(shown, sent_items, strict=True):
        line = build_included_line(item, sent, tokens[number])
        if item.kind == "summary":
            line = replace(line, why=kept.get(line.seq, line.why))
        reduction: Reduction = "stub" if item.decayed else "shortened" if item.limit else ""
        found.append(
            make_line(
                number,
                line,
                is_shared=number < seen.shared,
                cost=costs[number],
                uid=messages[item.place].uid if item.place in messages else "",
                parts=sent.message.parts,
                original_parts=None if sent.original is None else sent.original.parts,
                reduction=reduction,
                original_length=len(line.original) if reduction else 0,
            )
        )
    reasons: Mapping[int, str] = seen.load_left_out() if left else {}
    rest = [number for number in numbers if number >= end]
    for number, where in zip(rest, left, strict=True):
        message = messages.get(where)
        line = build_left_out_line(where, message, reasons[where])
        uid, parts = (message.uid, message.parts) if message is not None else ("", ())
        found.append(make_line(number, line, is_shared=False, cost=None, uid=uid, parts=parts))
    return found


def make_line(index: int, line: ManifestLine, *, is_shared: bool, **others: Any) -> RequestLine:
    """Return a line of a manifest with its index and other fields."""
    state: LineState = "left" if not line.shown else "shared" if is_shared else "new"
    names = ("seq", "kind", "role", "shown", "tokens", "why", "text", "original")
    return RequestLine(index=index, state=state, **{name: getattr(line, name) for name in names}, **others)


def is_sent_again(request: RequestDetails, index: int) -> bool:
    """Return True if an item behind the shared prefix is a message that the previous request had too."""
    if not request.record.why or index < request.shared:
        return False
    item = request.items[index]
    return item.kind == "message" and request.was_sent(item.place)


# ── lines by state, role, tool, cause and text ────────────────────────────────────────────────────────────────────────
# Selection of lines of a request by state, role, tool, cause, error and text, with the number of lines per value.
#
# A selection reads every message once. It returns numbers of lines only, and `load_lines` loads some of them. So a
# long list is filtered once, however many of its pages are read.
#
# The lines of the head have negative numbers: the last one is -1. Messages keep the numbers that they have without it.


PAIRING_DISTANCES = (4, 64)
"""Lines before a result in which its call is looked for, and after a call for its result: first near, then further."""
SelectedState: TypeAlias = Literal["", "unchanged", "paid_again", "new", "changed", "again", "shortened", "left"]
FACETS = ("state", "role", "tool", "cause", "error")


class LineFilter(NamedTuple):
    """The lines to select. Empty values select all. `head` includes the lines of the system prompt and the tools.

    `state` "shortened" selects lines whose result is sent as a stub or shortened, "paid_again" unchanged lines that
    were not read from the cache, and "changed" a system prompt or tools of which the previous request had another
    version; these also have one of the other states. `only` is "shown" for all that was sent, or "left" for all that
    was left out or shortened.
    """

    state: SelectedState = ""
    role: str = ""
    tool: str = ""
    cause: str = ""
    error: bool = False
    only: str = ""
    search: str = ""
    sort: str = ""
    head: bool = False

    @property
    def is_filter(self) -> bool:
        """False if all lines are selected, in order."""
        return any(self[:-1])


class FacetCounts(NamedTuple):
    """Number of lines per value of each field, among the lines that match the other fields."""

    states: dict[str, int]
    roles: dict[str, int]
    tools: dict[str, int]
    causes: dict[str, int]
    errors: int


class LineSelection(NamedTuple):
    """The numbers of the selected lines. `head` is the number of lines of the head, and `total` that of all lines.

    `prefix_end` is the first line that is not in the prefix of the previous request; None if there is none. `tokens`
    are the tokens of the selected lines.
    """

    numbers: list[int]
    head: int
    total: int
    prefix_end: int | None
    tokens: int
    counts: FacetCounts


class _Line(NamedTuple):
    """A line with what can be selected: its values per field, in the order of `FACETS`, and its text."""

    number: int
    tokens: int
    values: tuple[tuple[str, ...], ...]
    text: Callable[[], str]

    @property
    def state(self) -> str:
        return self.values[0][0]


def select_lines(request: RequestDetails, wanted: LineFilter) -> LineSelection:
    """Return the lines that match a filter."""
    head = request.load_head() if wanted.head else ()
    tokens = distribute_head(head, request.budget.system, request.budget.tools)
    paid = find_paid_again(request, tokens)
    lines = [*_head_lines(head, tokens, paid), *_sent_lines(request, paid), *_left_out_lines(request)]
    words = wanted.search.casefold()
    given = (wanted.state, wanted.role, wanted.tool, wanted.cause, "error" if wanted.error else "")
    fields = [(place, value) for place, value in enumerate(given) if value]
    chosen: list[_Line] = []
    counts: tuple[dict[str, int], ...] = ({}, {}, {}, {}, {})
    for line in lines:
        missed = [place for place, value in fields if value not in line.values[place]]
        is_left = line.state == "left"
        is_kind = not is_left if wanted.only == "shown" else is_left or "shortened" in line.values[0]
        if len(missed) > 1 or (wanted.only and not is_kind):
            continue
        if words and words not in line.text().casefold():
            continue
        for place in missed or range(len(FACETS)):
            for value in line.values[place]:
                counts[place][value] = counts[place].get(value, 0) + 1
        if not missed:
            chosen.append(line)
    if wanted.sort == "size":
        chosen.sort(key=lambda each: (-each.tokens, each.number))
    states, roles, tools, causes, errors = counts
    return LineSelection(
        numbers=[each.number for each in chosen],
        head=len(head),
        total=len(lines),
        prefix_end=next((each.number for each in lines if each.state in ("new", "again")), None),
        tokens=sum([each.tokens for each in chosen]),
        counts=FacetCounts(states, roles, tools, causes, errors.get("error", 0)),
    )


def _facet_values(
    state: str, role: str, details: LineDetails, *, reduced: bool = False, paid: bool = False
) -> tuple[tuple[str, ...], ...]:
    states = [state, *(["shortened"] if reduced else []), *(["changed"] if details.is_changed else [])]
    states += ["paid_again"] if paid and state == "unchanged" else []
    return (tuple(states), (role,), details.tools, details.causes, ("error",) if details.is_error else ())


# ── all lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _head_lines(head: Sequence[HeadPart], tokens: Sequence[int], paid: Collection[int]) -> list[_Line]:
    found: list[_Line] = []
    for number, (part, size) in enumerate(zip(head, tokens, strict=True), -len(head)):
        values = _facet_values(part.state, part.kind, head_details(part), paid=number in paid)
        found.append(_Line(number, size, values, partial(getattr, part, "searched")))
    return found


def _sent_lines(request: RequestDetails, paid: Collection[int]) -> list[_Line]:
    messages = request.load_messages(list(dict.fromkeys([item.place for item in request.items if item.place])))
    tokens = request.tokens
    found: list[_Line] = []
    for index, (item, sent) in enumerate(render_sent_items(request.items, messages, fetchable=request.fetchable)):
        state = "unchanged" if index < request.shared else "again" if is_sent_again(request, index) else "new"
        details = describe_parts(sent.message.parts, short=True)
        reduced = is_reduced(item)
        values = _facet_values(state, item.role, details, reduced=reduced, paid=index in paid)
        stored = messages.get(item.place) if reduced else None
        found.append(_Line(index, tokens[index], values, partial(_searched_texts, sent.message, stored)))
    return found


def _searched_texts(sent: Message, stored: Message | None) -> str:
    """Return the text of a message as it was sent and, if it was shortened, as it is stored."""
    return searched_text(sent) if stored is None else f"{searched_text(sent)}\n{searched_text(stored)}"


def _left_out_lines(request: RequestDetails) -> list[_Line]:
    hidden = request.left_out_places
    messages: Mapping[int, Message] = request.load_messages(hidden) if hidden else {}
    found: list[_Line] = []
    for number, where in enumerate(hidden, len(request.items)):
        message = messages.get(where)
        role, parts = (message.role, message.parts) if message is not None else ("", ())
        values = _facet_values("left", role, describe_parts(parts, short=True))
        found.append(_Line(number, 0, values, partial(searched_text, message) if message is not None else str))
    return found


# ── some lines, with all that is shown of them ────────────────────────────────────────────────────────────────────────


def load_lines(request: RequestDetails, numbers: Sequence[int], *, head: bool) -> list[RequestLine]:
    """Return the lines with these numbers, in this order, with their details. Numbers of no line are left out."""
    wanted = dict.fromkeys(numbers)
    end = len(request.items)
    hidden = request.left_out_places if any([number >= end for number in wanted]) else []
    total = end + len(hidden)
    inside = sorted([number for number in wanted if 0 <= number < total])
    found = {each.index: each for each in build_numbered_lines(request, inside, hidden)}
    details = _paired_details(request, inside, hidden)
    is_head = head and any([number < 0 for number in wanted])
    parts = request.load_head() if is_head else ()
    tokens = distribute_head(parts, request.budget.system, request.budget.tools)
    paid = find_paid_again(request, tokens)
    found = {
        number: replace(line, **detail_fields(details[number]._replace(is_paid_again=number in paid)))
        for number, line in found.items()
    }
    if is_head:
        found |= {each.index: each for each in _numbered_head(request, parts, tokens, paid)}
    return [found[number] for number in wanted if number in found]


def _paired_details(
    request: RequestDetails, numbers: Sequence[int], hidden: Sequence[int]
) -> Mapping[int, LineDetails]:
    """Return the details of these lines. Lines near them are read too, to find calls and results."""
    end = len(request.items)
    parts = [[number for number in numbers if number < end], [number for number in numbers if number >= end]]
    found: dict[int, LineDetails] = {}
    for some, first, last in zip(parts, (0, end), (end, end + len(hidden)), strict=True):
        known = _describe_lines(request, some, hidden)
        paired = pair_details(sorted(known.items()))
        for distance in PAIRING_DISTANCES:
            near = {
                each
                for number in some
                for each in _where_to_look(number, paired[number], distance)
                if first <= each < last and each not in known
            }
            if near:
                known |= _describe_lines(request, sorted(near), hidden)
                paired = pair_details(sorted(known.items()))
        found |= {number: paired[number] for number in some}
    return found


def _where_to_look(number: int, line: LineDetails, distance: int) -> Iterable[int]:
    """Return the lines that may have the results of its calls, and the calls of its results."""
    if any([each.result is None for each in line.calls]):
        yield from range(number + 1, number + distance + 1)
    if any([each.call is None for each in line.results]):
        yield from range(number - distance, number)


def _describe_lines(request: RequestDetails, numbers: Sequence[int], hidden: Sequence[int]) -> dict[int, LineDetails]:
    """Return the details of these lines, which are sorted, without pairs."""
    end = len(request.items)
    split = bisect_left(numbers, end)
    items = [request.items[number] for number in numbers[:split]]
    left = [hidden[number - end] for number in numbers[split:]]
    messages = request.load_messages(list(dict.fromkeys([*(item.place for item in items if item.place), *left])))
    sent = render_sent_items(items, messages, fetchable=request.fetchable)
    found = {
        number: describe_parts(each.message.parts, is_sent_again(request, number))
        for number, (_, each) in zip(numbers, sent, strict=False)
    }
    for number, where in zip(numbers[split:], left, strict=True):
        message = messages.get(where)
        found[number] = describe_parts(message.parts if message is not None else ())
    return found


def _numbered_head(
    request: RequestDetails, head: Sequence[HeadPart], tokens: Sequence[int], paid: Collection[int]
) -> list[RequestLine]:
    added = request.above - sum(tokens)
    costs = compute_item_costs(request.priced_model, [*tokens, added, *request.tokens], 0, request.charged)
    found: list[RequestLine] = []
    for index, part in enumerate(head):
        number, is_unchanged = index - len(head), part.state == "unchanged"
        line = ManifestLine(seq=0, kind=part.kind, role=part.kind, shown=True, tokens=tokens[index], text=part.text)
        details = head_details(part)._replace(is_paid_again=is_unchanged and number in paid)
        fields = detail_fields(details)
        found.append(make_line(number, line, is_shared=is_unchanged, cost=costs[index], uid="", parts=(), **fields))
    return found


def detail_fields(details: LineDetails) -> dict[str, Any]:
    """Return the fields of a line in a detailed answer. Fields that do not apply are left out."""
    fields: dict[str, Any] = {"causes": details.causes, "calls": details.calls, "results": details.results}
    fields |= {"tool": details.tools[0] if len(details.tools) == 1 else "", "again": details.is_again}
    fields |= {"paid_again": details.is_paid_again, "changed": details.is_changed, "definition": details.definition}
    return {name: value for name, value in fields.items() if value}


def head_details(part: HeadPart) -> LineDetails:
    return LineDetails(
        (part.kind,),
        is_again=part.state == "again",
        name=part.name,
        definition=part.definition,
        is_changed=part.is_changed,
    )


def distribute_head(head: Sequence[HeadPart], system: int, tools: int) -> list[int]:
    """Return the tokens of each part: those of the system prompt and of all tools, by size."""
    found = {
        kind: iter(distribute(total, [each.size for each in head if each.kind == kind]))
        for kind, total in (("system", system), ("tool", tools))
    }
    return [next(found[each.kind]) for each in head]


# ── unchanged, but paid again ─────────────────────────────────────────────────────────────────────────────────────────
# The part of an unchanged prefix that the provider did not read from its cache, by the usage that it reported.
#
# An unchanged prefix is not always cheap: its cache may have expired, or another server answered. Then it is paid
# again.


MIN_DIFFERENCE, MIN_SHARE = 256, 0.1
"""Tokens, and share of the prefix, by which it must exceed what was read. Providers read whole blocks, and the tokens
of messages are estimated.
"""


def count_read_tokens(request: RequestDetails) -> int | None:
    """Return the tokens of the shared prefix that the provider read from its cache, in the units of the budget.

    None if that is unknown: without a shared prefix, without usage of this request and the previous one, and for models
    that cost nothing. A previous request that failed was not paid.
    """
    usage, shared, known = request.record.usage, request.shared_tokens, find_channel_model(request.channel)
    is_free = known is not None and (known.price is None or not known.price.input)
    if usage is None or not usage.input or not shared or is_free or not request.was_answered:
        return None
    read = round(usage.cache_read * request.budget.input / usage.input)
    if read and shared - read <= max(MIN_DIFFERENCE, shared * MIN_SHARE):
        return shared
    return min(read, shared)


def find_paid_again(request: RequestDetails, head: Sequence[int] = ()) -> frozenset[int]:
    """Return the numbers of the lines in the shared prefix that were not read from the cache. `head` are the tokens of
    the lines of the head, whose numbers are negative.
    """
    read = count_read_tokens(request)
    if read is None or read >= request.shared_tokens:
        return frozenset()
    lines = [*accumulate(head, initial=0)]
    messages = [*accumulate(request.tokens[: request.shared], initial=request.above)]
    middles = [(one + other) / 2 for one, other in (*pairwise(lines), *pairwise(messages))]
    return frozenset([index - len(head) for index, middle in enumerate(middles) if middle >= read])

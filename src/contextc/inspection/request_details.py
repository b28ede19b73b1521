"""One request in detail, sent or previewed: its items, the prefix it shares, its budget by kind, its lines by page.

A page of lines loads the messages of that page only, and never the wire bytes. Texts are as the model read them. Token
figures are the provider's if it reported any, distributed over all parts.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from contextc._common_prefix import count_common_prefix
from contextc._json import JSONObject
from contextc.compiler import ledger
from contextc.compiler.draft import Budget, distribute
from contextc.compiler.ledger import load_messages_at
from contextc.compiler.manifest import Fragment, ManifestLine, RequestRecord
from contextc.compiler.past_requests import (
    find_channel_model,
    find_request,
    load_channel_formatter,
    load_left_out_reasons,
    load_request_layout,
)
from contextc.compiler.step import (
    NEW_ENCODER,
    Compiled,
    build_included_line,
    build_left_out_line,
    find_included_places,
    is_reduced,
    offers_fetch,
    render_sent_items,
)
from contextc.inspection.line_details import (
    HeadPart,
    LineCall,
    LineCause,
    LineResult,
    compare_heads,
    compute_item_costs,
    load_whole_head,
    split_head,
)
from contextc.inspection.prefix_break import load_compared_record
from contextc.messages import AnyPart, Message, Usage
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, Item, LedgerRow, RowRange
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK, load_lineage, split_by_branch

LINES_PER_BATCH = 500  # lines that a search loads per batch
Reduction: TypeAlias = Literal["", "stub", "shortened"]
"""How the tool results of a line are sent: complete, replaced by a stub, or shortened to head and tail."""


class RequestDetails(Struct, frozen=True, kw_only=True):
    """A request with its items. The first `shared` items are in the prefix that the previous request had too: the last
    one that was answered. `size` is the bytes of all its messages.

    `load_left_out` and `load_messages` load on demand: the messages that are left out, by place, with the reason;
    messages by place. `load_head` loads the system prompt and the tool definitions. `was_sent` reports whether the
    previous request already covered a place, and `was_answered` whether it has usage. `expected` is the usage that is
    expected of a request that was not sent.
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
    was_sent: Callable[[int], bool]
    fetchable: bool
    was_answered: bool = False
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
    def shared_tokens(self) -> int:
        """The tokens of the shared prefix, counted like the lines: system prompt, tools and messages."""
        if not self.record.shared:
            return 0
        return min(self.record.shared_tokens, self.above) + sum(self.tokens[: self.shared])


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
    calls: tuple[LineCall, ...] | UnsetType = UNSET
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
            load_messages=lambda places: store.read(lambda tx: load_messages_at(tx, places)),
            load_head=_head(store, channel, record, before),
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
        if record.shared and record.why != NEW_ENCODER:
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
        return {**store.read(lambda tx: load_messages_at(tx, missing)), **known}

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
        was_sent=store.read(work),
        fetchable=draft.fetchable,
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
        return compare_heads(parts, split_head(formatter, then) if before is not None else None, bool(record.shared))

    return read


def _preview_head(store: Store, compiled: Compiled) -> Callable[[], tuple[HeadPart, ...]]:
    record, formatter = compiled.record, compiled.formatter

    def work(tx: Transaction) -> bytes | None:
        number, before = find_request(tx, compiled.channel, record.request - 1)
        return load_whole_head(tx, number, before)

    def read() -> tuple[HeadPart, ...]:
        parts = split_head(formatter, compiled.head.body if compiled.mode == "full" else compiled.session_head)
        then = split_head(formatter, store.read(work)) if record.request > 1 else None
        return compare_heads(parts, then, bool(record.shared))

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
    if not record.shared or record.why == NEW_ENCODER:
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
    if item.kind == "dynamic":
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
    `search` selects the lines whose text contains it, regardless of case.
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
            if wanted in f"{each.text}\n{each.why}\n{each.role}\n{each.kind}\n{each.seq}".casefold():
                found.append(each)
                if len(found) == limit:
                    return LinePage(found, place < len(numbers), place)
    return LinePage(found, False, len(numbers))


class LineFigures(NamedTuple):
    """The tokens and the costs of all items of a request."""

    tokens: Sequence[int]
    costs: Sequence[float | None]


def compute_line_figures(request: RequestDetails) -> LineFigures:
    model = find_channel_model(request.channel)
    return LineFigures(request.tokens, compute_item_costs(model, request.tokens, request.above, request.charged))


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
    for number, (item, sent) in zip(shown, sent_items, strict=True):
        line = build_included_line(item, sent, tokens[number])
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

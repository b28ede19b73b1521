"""One request looked at closely, whether it was sent or is foretold: its items, what of them was sent before, where its
budget goes by kind, and its lines a page at a time.

What is read follows what is asked: a page of lines reads the messages of that page, and no bytes that went out. Figures
are of the record; where the provider measured more or less than we had counted, the kinds of messages share that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import eq, is_
from typing import NamedTuple

from msgspec import Struct

from contextc.compiler.account import laid_out, left_before, located, model_of
from contextc.compiler.compiled import Compiled
from contextc.compiler.heads import NEW_ENCODER
from contextc.compiler.telling import lines_of
from contextc.draft import Budget
from contextc.ledger import book
from contextc.ledger.items import Item, Row
from contextc.ledger.look import messages_at
from contextc.ledger.standing import Channel, Stretch
from contextc.manifest import Fragment, Line, Record, record_from_json
from contextc.messages import Message, Usage
from contextc.models import Model
from contextc.models.facts import MILLION
from contextc.store import Store
from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, lineage, stretches


class Inspected(Struct, frozen=True, kw_only=True):
    """A request with what it shows. The first `shared` items stand in the prefix that the request before had too;
    `size` is the bytes of all its messages.

    `left_out` and `read` are asked when somebody looks: what is not shown, by place, with the reason; messages by their
    places. `was_sent` says of a place whether it was there for the request before.
    """

    channel: Channel
    record: Record
    items: tuple[Item, ...]
    shared: int
    size: int
    fragments: tuple[Fragment, ...]
    left_out: Callable[[], Mapping[int, str]]
    read: Callable[[Sequence[int]], Mapping[int, Message]]
    was_sent: Callable[[int], bool]

    @property
    def hidden(self) -> list[int]:
        """The places of what is not shown, in order."""
        places = {item.place for item in self.items}
        return sorted([where for where in self.left_out() if where not in places], key=lambda where: where & SEQ_MASK)

    @property
    def shared_tokens(self) -> int:
        """What the prefix takes that the request before had too, as its lines are counted: prompt, tools, messages."""
        if not self.record.shared:
            return 0
        above = self.record.budget.system + self.record.budget.tools
        return min(self.record.shared, above) + sum([item.tokens for item in self.items[: self.shared]])


class Parts(Struct, frozen=True, kw_only=True):
    """Where the tokens of a window go, or of the limit below it: together they are all of it.

    `history` was sent before, `new` was not; `dynamic` are fragments that were rendered for a request. What a request
    takes beyond its room, it takes from the margin, then from the reserve.
    """

    system: int
    tools: int
    dynamic: int
    history: int
    new: int
    reserve: int
    margin: int
    free: int


class PagedLine(NamedTuple):
    """A line with its number in the account, the message it tells of, and what it cost; None where nobody knows."""

    number: int
    line: Line
    uid: str
    is_shared: bool
    cost: float | None


# ── a request, from the store or just compiled ────────────────────────────────────────────────────────────────────────


def inspected(store: Store, channel: Channel, request: int | None = None) -> Inspected:
    """A request that was committed; by default the last. Raises `UnknownRequest`."""

    def work(tx: Transaction) -> Inspected:
        number, record = located(tx, channel, request)
        layout, start = laid_out(tx, number, record)
        rows = book.load_items(tx, layout)
        before = _record_before(tx, number, record.request)
        return Inspected(
            channel=channel,
            record=record,
            items=tuple([item for _, row, _ in rows for item in row.items]),
            shared=_shared(tx, number, record, before, rows),
            size=sum([size for *_, size in rows]),
            fragments=start.fragments,
            left_out=_left(store, channel, record),
            read=lambda places: store.read(lambda tx: messages_at(tx, places)),
            was_sent=_line_of(tx, before),
        )

    return store.read(work)


def foretold(store: Store, compiled: Compiled) -> Inspected:
    """A request that was compiled and not committed."""
    record, draft, assembled = compiled.record, compiled.draft, compiled.assembled
    sealed, order = compiled.sight.shown.sealed, assembled.order
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
            # An edit that is only asked about may look like what it edits, and is not the same.
            shared += _alike(items[shared:], sealed[rows].row.items, is_) if rows < len(sealed) else 0
    known = dict(draft.log)

    def read(places: Sequence[int]) -> Mapping[int, Message]:
        missing = [where for where in places if where not in known]
        return {**store.read(lambda tx: messages_at(tx, missing)), **known}

    def work(tx: Transaction) -> Callable[[int], bool]:
        found = book.find(tx, compiled.channel)
        return _line_of(tx, _record_before(tx, found.number, record.request) if found else None)

    return Inspected(
        channel=compiled.channel,
        record=record,
        items=tuple(items),
        shared=shared,
        size=compiled.standing.size,
        fragments=compiled.manifest.fragments,
        left_out=_left(store, compiled.channel, record),
        read=read,
        was_sent=store.read(work),
    )


def _left(store: Store, channel: Channel, record: Record) -> Callable[[], Mapping[int, str]]:
    found: list[Mapping[int, str]] = []

    def read() -> Mapping[int, str]:
        if not found:
            now = {each.place: each.why for each in record.left}
            found.append(left_before(store, channel, record.branch, record.tip, record.request) | now)
        return found[0]

    return read


def _record_before(tx: Transaction, number: int, request: int) -> Record | None:
    bodies = book.manifests(tx, number, request - 1, last=1) if request > 1 else []
    return record_from_json(bodies[0]) if bodies else None


def _shared(
    tx: Transaction, number: int, record: Record, before: Record | None, rows: Sequence[tuple[int, Row, int]]
) -> int:
    """How many items, from the first, the request before had too: those of rows in the same places, and of the row in
    which the two part, as many as it begins with in both.
    """
    if not record.why:
        return _items(rows[: len(rows) - record.added])
    if not record.shared or record.why == NEW_ENCODER:
        return 0
    if before is None:  # of a fork: what it began with is its parent's
        ends = accumulate(size for *_, size in rows)
        return _items(rows[: sum(end <= record.shared_bytes for end in ends)])
    theirs = list(_places(laid_out(tx, number, before)[0]))
    pairs = zip((where for where, *_ in rows), theirs, strict=False)
    same = next((index for index, (mine, other) in enumerate(pairs) if mine != other), min(len(rows), len(theirs)))
    if same == len(rows) or same == len(theirs):
        return _items(rows[:same])
    parting = Stretch(theirs[same] >> SEQ_BITS, theirs[same] & SEQ_MASK, theirs[same] & SEQ_MASK)
    ((_, row, _),) = book.load_items(tx, [parting])
    return _items(rows[:same]) + _alike(rows[same][1].items, row.items, eq)


def _items(rows: Sequence[tuple[int, Row, int]]) -> int:
    return sum([len(row.items) for _, row, _ in rows])


def _alike(mine: Sequence[Item], theirs: Sequence[Item], same: Callable[[object, object], bool]) -> int:
    """How many items, from the first, are the same."""
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((index for index, (one, other) in pairs if not same(one, other)), min(len(mine), len(theirs)))


def _places(layout: Iterable[Stretch]) -> Iterable[int]:
    return chain.from_iterable(
        range(channel << SEQ_BITS | first, (channel << SEQ_BITS | last) + 1) for channel, first, last in layout
    )


def _line_of(tx: Transaction, before: Record | None) -> Callable[[int], bool]:
    """Whether a place is on the line of the conversation as the request before saw it."""
    ends: dict[int, tuple[int, int]] = {}
    if before is not None:
        ends = {branch: (first, last) for branch, first, last in stretches(lineage(tx, before.branch), 0, before.tip)}

    def is_on_it(where: int) -> bool:
        first, last = ends.get(where >> SEQ_BITS, (1, 0))
        return first <= where & SEQ_MASK <= last

    return is_on_it


# ── where its budget goes ─────────────────────────────────────────────────────────────────────────────────────────────


def parts_of(seen: Inspected) -> Parts:
    """The budget of a request by kind."""
    counted = {"dynamic": 0, "history": 0, "new": 0}
    for index, item in enumerate(seen.items):
        counted[_kind(seen, index, item)] += item.tokens
    return parted(seen.record.budget, **counted)


def is_news(seen: Inspected, index: int, item: Item) -> bool:
    """Whether an item was never sent on its channel before."""
    return _kind(seen, index, item) == "new"


def _kind(seen: Inspected, index: int, item: Item) -> str:
    if item.kind == "dynamic":
        return "dynamic"
    if not seen.record.why:
        return "history" if index < seen.shared else "new"
    is_new = item.kind == "late" or (item.kind == "message" and not seen.was_sent(item.place))
    return "new" if is_new else "history"


def parted(budget: Budget, *, dynamic: int, history: int, new: int) -> Parts:
    """The whole window by kind. What the messages take by the budget is shared out as it was counted."""
    total, used = dynamic + history + new, budget.used
    shares = [used * each // total if total else 0 for each in (dynamic, history, new)]
    shares[max(range(3), key=lambda index: (shares[index], index == 1))] += used - sum(shares)
    room = (budget.limit or budget.window) - budget.input
    over = max(0, budget.reserve + budget.margin - max(0, room))
    margin = max(0, budget.margin - over)
    reserve = max(0, budget.reserve - (over - (budget.margin - margin)))
    return Parts(
        system=budget.system,
        tools=budget.tools,
        dynamic=shares[0],
        history=shares[1],
        new=shares[2],
        reserve=reserve,
        margin=margin,
        free=max(0, room - reserve - margin),
    )


# ── its lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def page(seen: Inspected, *, after: int = 0, limit: int = 200, only: str = "") -> tuple[list[PagedLine], bool]:
    """Some lines of a request, and whether more follow. `only` is "shown", "left", or both.

    Lines are numbered through: what is shown in its order, then what is not. `after` is how many to pass over.
    """
    first, end = (len(seen.items) if only == "left" else 0) + after, len(seen.items)
    last = first + limit
    shown = seen.items[first:last] if only != "left" else ()
    hidden: list[int] = []
    if only != "shown" and last >= end:
        places = seen.hidden
        hidden, more = places[max(0, first - end) : last - end], last < end + len(places)
    else:
        more = last < end
    left: Mapping[int, str] = seen.left_out() if hidden else {}
    wanted = dict.fromkeys([*(item.place for item in shown if item.place), *hidden])
    messages = seen.read(list(wanted))
    told = lines_of(shown, {}, lambda _: {}, messages)
    told += lines_of((), {where: left[where] for where in hidden}, lambda _: {}, messages)
    places = [*(item.place for item in shown), *hidden]
    costs = [*_costs(seen)[first:last], *(None for _ in hidden)] if shown else [None for _ in hidden]
    return [
        PagedLine(number, line, messages[where].uid if where in messages else "", number < seen.shared, cost)
        for number, (line, where, cost) in enumerate(zip(told, places, costs, strict=True), first)
    ], more


def _costs(seen: Inspected) -> Sequence[float | None]:
    known = model_of(seen.channel)
    if known is None or known.price is None:
        return [None] * len(seen.items)
    budget = seen.record.budget
    return item_costs(known, [item.tokens for item in seen.items], budget.system + budget.tools, seen.record.usage)


def item_costs(model: Model, tokens: Sequence[int], above: int, usage: Usage | None) -> list[float]:
    """What each of these took of the input's price, in dollars, behind `above` tokens of system prompt and tools.

    A provider says how much it read from its cache and how much it wrote there, and both are prefixes: so what stands
    before the end of the one was read, what stands before the end of the other written. Without usage all is new.
    """
    assert model.price is not None, "who asks has looked"
    price = model.price
    if price.long is not None and usage is not None and usage.input > price.above:
        price = price.long
    ends = list(accumulate(tokens, initial=above))
    scale = ends[-1] / usage.input if usage is not None and usage.input else 0.0
    read = usage.cache_read * scale if usage is not None else 0.0
    written = read + (usage.cache_write * scale if usage is not None else 0.0)
    costs: list[float] = []
    for start, end in pairwise(ends):
        from_cache = max(0.0, min(end, read) - start)
        to_cache = max(0.0, min(end, written) - max(start, read))
        fresh = end - start - from_cache - to_cache
        costs.append((from_cache * price.cache_read + to_cache * price.cache_write + fresh * price.input) / MILLION)
    return costs

"""Selection of lines of a request by state, role, tool, cause, error and text, with the number of lines per value.

A selection reads every message once. It returns numbers of lines only, and `load_lines` loads some of them. So a long
list is filtered once, however many of its pages are read.

The lines of the head have negative numbers: the last one is -1. Messages keep the numbers that they have without it.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc.compiler.draft import distribute
from contextc.compiler.manifest import ManifestLine
from contextc.compiler.past_requests import find_channel_model
from contextc.compiler.step import is_reduced, render_sent_items
from contextc.inspection.line_details import (
    HeadPart,
    LineDetails,
    compute_item_costs,
    describe_parts,
    pair_details,
    searched_text,
)
from contextc.inspection.request_details import (
    RequestDetails,
    RequestLine,
    build_numbered_lines,
    is_sent_again,
    make_line,
)
from contextc.messages import Message

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
        values = _facet_values(state, item.role, details, reduced=is_reduced(item), paid=index in paid)
        found.append(_Line(index, tokens[index], values, partial(searched_text, sent.message)))
    return found


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
    model = find_channel_model(request.channel)
    costs = compute_item_costs(model, [*tokens, added, *request.tokens], 0, request.charged)
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
    """Return the tokens of the shared prefix that the provider read from its cache.

    None if that is unknown: without a shared prefix, without usage of this request and the previous one, and for models
    that cost nothing. A previous request that failed was not paid.
    """
    read, shared = _count_all_read(request), request.shared_tokens
    if read is None or not shared:
        return None
    if read and shared - read <= max(MIN_DIFFERENCE, shared * MIN_SHARE):
        return shared
    return min(read, shared)


def _count_all_read(request: RequestDetails) -> int | None:
    """Return the tokens of a request that were read from the cache, in the units of its budget."""
    usage, known = request.record.usage, find_channel_model(request.channel)
    is_free = known is not None and (known.price is None or not known.price.input)
    if usage is None or not usage.input or is_free or not request.was_answered:
        return None
    return round(usage.cache_read * request.budget.input / usage.input)


def find_paid_again(request: RequestDetails, head: Sequence[int] = ()) -> frozenset[int]:
    """Return the numbers of the lines in the shared prefix that were not read from the cache.

    `head` are the tokens of the lines of the head, whose numbers are negative. If the head changed, lines of it before
    the change can be unchanged, too.
    """
    read = count_read_tokens(request) if request.shared_tokens else _count_all_read(request)
    if read is None or (request.shared_tokens and read >= request.shared_tokens):
        return frozenset()
    lines = [*accumulate(head, initial=0)]
    messages = [*accumulate(request.tokens[: request.shared], initial=request.above)]
    middles = [(one + other) / 2 for one, other in (*pairwise(lines), *pairwise(messages))]
    return frozenset([index - len(head) for index, middle in enumerate(middles) if middle >= read])

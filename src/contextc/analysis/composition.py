"""Composition of requests: their input tokens by cause, as a tree for one request and as sums for all.

Tokens add up to the budget of a request. How they were charged, and their cost, is that of `cost_by_cause`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import as_object
from contextc.analysis.conversation_loader import SectionLines, SingleRequest
from contextc.analysis.cost_by_cause import (
    CauseSplitter,
    ConversationCosts,
    CostLine,
    compute_costs,
    split_answer,
    split_overhead,
)
from contextc.analysis.element_costs import ChannelRun, PricedTokens, RequestPrices, call_name
from contextc.analysis.request_elements import Element, Section
from contextc.analysis.request_view import RequestView
from contextc.analysis.stored_conversation import StoredConversation
from contextc.compiler.options import distribute
from contextc.store.ledger_schema import Item

InputKind: TypeAlias = Literal["tool", "system", "result", "history", "reasoning", "media", "overhead"]
INPUT_KINDS: tuple[InputKind, ...] = ("system", "tool", "result", "history", "reasoning", "media", "overhead")
MAX_CHILDREN = 50
"""The largest parts of a node that are listed. Smaller ones are one part together."""
LABEL_LENGTH = 100
ROLES = {
    "user": "user", "assistant": "assistant", "model": "assistant", "system": "system", "developer": "system",
    "tool": "tool", "function": "tool",
}  # fmt: skip


class CompositionNode(Struct, frozen=True, kw_only=True):
    """Tokens with one cause, and what they consist of.

    `name` identifies it within the node above: the name of a tool or of a prompt fragment, a role, a file, or the
    beginning of a text. `tokens` are those of the budget. `charged` is how the provider charged them; None if it
    reported nothing. `line` is the index of the line of the inspector that it is, None if it is not exactly one.
    `merged` is the number of small parts that it stands for.
    """

    kind: InputKind
    name: str = ""
    tool: str = ""
    tokens: int
    charged: PricedTokens | None = None
    cost: float | None = None
    line: int | None = None
    merged: int = 0
    children: tuple["CompositionNode", ...] = ()


class RequestComposition(Struct, frozen=True, kw_only=True):
    """The composition of one request. The tokens of all nodes add up to `tokens`.

    `answer` are the tokens and costs of its answer, which are not part of the input. `cost` includes them.
    """

    tokens: int
    nodes: tuple[CompositionNode, ...]
    answer: tuple[CostLine, ...]
    cost: float | None
    is_reported: bool


class RequestTokens(NamedTuple):
    """The tokens of one request by kind, in the order of `INPUT_KINDS`. `is_measured` is False if all are estimated."""

    channel: str
    request: int
    tokens: list[int]
    is_measured: bool


class RunComposition(NamedTuple):
    """The composition of all requests of a conversation, and their costs by cause."""

    requests: list[RequestTokens]
    costs: ConversationCosts


class _Part(NamedTuple):
    """An element, or a fragment of the system prompt. `counted` are its tokens by our own count, `start` those before
    it. `path` are the names of the nodes that it is in, from its kind down.
    """

    kind: InputKind
    path: tuple[str, ...]
    tool: str
    start: float
    counted: float
    label: Callable[[], str]
    line: int | None = None
    tokens: int = 0
    charged: PricedTokens = PricedTokens()


# ── all requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def compute_run_composition(view: StoredConversation) -> RunComposition:
    """Return the tokens by kind of each request of a conversation, in the order of the view."""
    costs = compute_costs(view)
    prices = {id(each.request): each for run in view.runs for each in run.prices}
    found: list[RequestTokens] = []
    for request, own in zip(view.requests, costs.requests, strict=True):
        kinds = _tokens_by_kind(request, _counted_by_kind(own.lines, prices[id(request)].row_factor))
        budget = request.record.corrected_budget
        found.append(
            RequestTokens(
                request.channel_id,
                request.number,
                [kinds.get(kind, 0) for kind in INPUT_KINDS],
                budget.measured or budget.exact,
            )
        )
    return RunComposition(found, costs)


def _counted_by_kind(lines: Iterable[CostLine], factor: float) -> dict[InputKind, float]:
    """Return the tokens of messages by kind, by our own count. System prompt and tools only have to be there."""
    found: dict[InputKind, float] = {}
    for line in lines:
        if line.kind in INPUT_KINDS:
            found[line.kind] = found.get(line.kind, 0.0) + line.tokens / (factor or 1.0)
    return found


def _tokens_by_kind(request: RequestView, counted: Mapping[InputKind, float]) -> dict[InputKind, int]:
    """Return the tokens of the budget by kind. System prompt and tools have those of the budget."""
    budget = request.record.corrected_budget
    overhead = min(budget.overhead, budget.input)
    found: dict[InputKind, int] = {}
    if counted.get("system"):
        found["system"] = budget.system
    if counted.get("tool"):
        found["tool"] = budget.tools
    left = budget.input - overhead - sum(found.values())
    messages: tuple[InputKind, ...] = ("result", "history", "reasoning", "media")
    others: list[InputKind] = [kind for kind in messages if counted.get(kind)]
    if others:
        found |= dict(zip(others, distribute(max(0, left), [round(counted[kind]) for kind in others]), strict=True))
    else:
        overhead += left
    return {**found, "overhead": overhead}


# ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────────


def compute_composition(loaded: SingleRequest) -> RequestComposition:
    """Return the composition of one request."""
    request = loaded.request
    run = ChannelRun([request])
    prices, splitter = run.prices[0], CauseSplitter(run)
    parts: dict[InputKind, list[_Part]] = {}
    for part in _list_parts(loaded, run, splitter):
        parts.setdefault(part.kind, []).append(part)
    kinds = _tokens_by_kind(request, {kind: sum([each.counted for each in some]) for kind, some in parts.items()})
    nodes = [
        _node(kind, "", _with_tokens(parts[kind], kinds.get(kind, 0), prices), prices)
        for kind in INPUT_KINDS
        if kind in parts
    ]
    if kinds["overhead"] or prices.overhead:
        extra = _Part("overhead", (), "", 0.0, 0.0, str, tokens=kinds["overhead"], charged=split_overhead(prices))
        nodes.append(_node("overhead", "", [extra], prices))
    answer = split_answer(prices)
    costs = [each.cost or 0.0 for each in (*nodes, *answer)]
    return RequestComposition(
        tokens=request.record.corrected_budget.input,
        nodes=tuple([each for each in nodes if each.tokens or each.cost]),
        answer=tuple(answer),
        cost=sum(costs) if prices.price is not None else None,
        is_reported=prices.usage is not None,
    )


def _with_tokens(parts: Sequence[_Part], total: int, prices: RequestPrices) -> list[_Part]:
    """Return parts with their share of some tokens of the budget, and how they were charged."""
    shares = distribute(total, [round(each.counted) for each in parts])
    return [
        each._replace(tokens=tokens, charged=prices.split(each.start, each.counted))
        for each, tokens in zip(parts, shares, strict=True)
    ]


def _node(kind: InputKind, name: str, parts: Sequence[_Part], prices: RequestPrices, depth: int = 0) -> CompositionNode:
    """Return the node of some parts. Its children are the names at `depth` of their paths, and parts without one."""
    found = _sum_parts(kind, name, parts, prices)
    if len(parts) == 1:
        return replace(found, line=parts[0].line)
    return replace(found, children=tuple(_children(kind, parts, prices, depth)))


def _sum_parts(kind: InputKind, name: str, parts: Sequence[_Part], prices: RequestPrices) -> CompositionNode:
    charged = PricedTokens(
        sum([each.charged.read for each in parts]),
        sum([each.charged.written for each in parts]),
        sum([each.charged.plain for each in parts]),
    )
    return CompositionNode(
        kind=kind,
        name=name,
        tool=parts[0].tool if len({each.tool for each in parts}) == 1 else "",
        tokens=sum([each.tokens for each in parts]),
        charged=charged if prices.usage is not None else None,
        cost=prices.dollars(charged) if prices.price is not None else None,
    )


def _children(kind: InputKind, parts: Sequence[_Part], prices: RequestPrices, depth: int) -> Iterator[CompositionNode]:
    groups: dict[str, list[_Part]] = {}
    leaves: list[list[_Part]] = []
    for part in parts:
        if len(part.path) > depth:
            groups.setdefault(part.path[depth], []).append(part)
        else:
            leaves.append([part])
    ordered = sorted([*groups.values(), *leaves], key=lambda some: -sum([each.tokens for each in some]))
    shown = len(ordered) if len(ordered) <= MAX_CHILDREN + 1 else MAX_CHILDREN
    for some in ordered[:shown]:
        name = some[0].path[depth] if len(some[0].path) > depth else some[0].label()
        yield _node(kind, name, some, prices, depth + 1)
    if rest := ordered[shown:]:
        merged = _sum_parts(kind, "", [part for some in rest for part in some], prices)
        yield replace(merged, merged=len(rest))


# ── its parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _list_parts(loaded: SingleRequest, run: ChannelRun, splitter: CauseSplitter) -> Iterator[_Part]:
    request = loaded.request
    system = request.system.total + request.leading.total
    fragments = list(_fragment_parts(loaded, request.head_tokens_before("system"), system))
    start = 0.0
    for section in request.head_sections:
        if section is request.tools or not fragments:
            yield from _section_parts(section, start, [None] * len(section.elements), run, splitter)
        start += section.total
    yield from fragments
    for section, lines in zip(request.rows.sections, loaded.lines, strict=True):
        yield from _section_parts(section, start, align_lines(section, lines), run, splitter)
        start += section.total


def _fragment_parts(loaded: SingleRequest, start: float, total: float) -> Iterator[_Part]:
    """Return the static fragments of the system prompt. They have its tokens in proportion to their own."""
    found = [each for each in loaded.fragments if each.lifecycle == "static" and each.tokens]
    whole = sum([each.tokens for each in found])
    for fragment in found if total else ():
        counted = total * fragment.tokens / whole
        yield _Part("system", (), "", start, counted, partial(str, fragment.id))
        start += counted


def _section_parts(
    section: Section, start: float, lines: Sequence[int | None], run: ChannelRun, splitter: CauseSplitter
) -> Iterator[_Part]:
    for element, tokens, line in zip(section.elements, section.tokens, lines, strict=True):
        if tokens:
            kind, name = splitter.cause_of(element)
            path, tool = (name,) if kind in ("tool", "result") else (), name
            if kind == "history":
                path, tool = _history_path(element)
            yield _Part(cast(InputKind, kind), path, tool, start, tokens, partial(_label, element, run), line)
        start += tokens


def _history_path(element: Element) -> tuple[tuple[str, ...], str]:
    """Return the place of an element of the history, and the name of the tool that it calls."""
    if element.type == "tool_call":
        name = call_name(element)
        return ("calls", name), name
    return (ROLES.get(element.role, "other"),), ""


def _label(element: Element, run: ChannelRun) -> str:
    if element.type == "tool_result" and (file := run.tool_of(element).file):
        return file
    if element.type == "media":
        type = as_object(element.value).get("type")
        return type if isinstance(type, str) else next(iter(as_object(element.value)), "media")
    return " ".join(element.text[: 4 * LABEL_LENGTH].split())[:LABEL_LENGTH]


def align_lines(section: Section, lines: SectionLines) -> list[int | None]:
    """Return the index of the line of each element of a section; None if it is not certain.

    Items and elements are compared by role, in their order. Several items may be one message, and one item several
    elements.
    """
    first, items = lines
    if len(items) <= 1:
        return [first if items else None] * len(section.elements)
    runs = [(role, list(some)) for role, some in groupby(range(len(items)), lambda index: _item_role(items[index]))]
    found: list[int | None] = []
    at = 0
    elements = list(zip(section.elements, section.messages, strict=True))
    for role, group in groupby(elements, lambda each: _element_role(each[0])):
        some = list(group)
        while at < len(runs) and runs[at][0] != role:
            at += 1
        places = [index for index in runs[at][1] for _ in range(_count(items[index]))] if at < len(runs) else []
        found += [None if index is None else first + index for index in _match(some, places)]
        at += 1
    return found


def _match(elements: Sequence[tuple[Element, int]], places: Sequence[int]) -> list[int | None]:
    """Return the place of each element of one role."""
    if not places:
        return [None] * len(elements)
    if len({*places}) == 1:
        return [places[0]] * len(elements)
    for keys in (
        [element.call if element.type == "tool_result" else index for index, (element, _) in enumerate(elements)],
        [message for _, message in elements],
    ):
        order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(order) == len(places):
            return [places[order[key]] for key in keys]
    return [None] * len(elements)


def _item_role(item: Item) -> str:
    return "user" if item.role == "system" else item.role


def _element_role(element: Element) -> str:
    role = "tool" if element.type == "tool_result" else ROLES.get(element.role, "user")
    return "user" if role == "system" else role


def _count(item: Item) -> int:
    return max(1, len(item.only) or item.results) if item.role == "tool" else 1

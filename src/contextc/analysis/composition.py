"""Composition of requests: their input tokens by cause, as a tree for one request and as sums for all.

Tokens add up to the budget of a request. How they were charged, and their cost, is that of `cost_by_cause`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import sub
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._common_prefix import count_common_prefix
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
from contextc.analysis.line_alignment import ROLES, align_items
from contextc.analysis.request_elements import Element, Section
from contextc.analysis.request_view import RequestView
from contextc.analysis.stored_conversation import StoredConversation
from contextc.compiler.options import distribute

InputKind: TypeAlias = Literal["tool", "system", "result", "history", "reasoning", "media", "overhead"]
INPUT_KINDS: tuple[InputKind, ...] = ("system", "tool", "result", "history", "reasoning", "media", "overhead")
MESSAGE_KINDS: tuple[InputKind, ...] = ("result", "history", "reasoning", "media")
MAX_CHILDREN = 50
"""The largest parts of a node that are listed. Smaller ones are one part together."""
LABEL_LENGTH = 100


class CompositionNode(Struct, frozen=True, kw_only=True):
    """Tokens with one cause, and what they consist of.

    `name` identifies it within the node above: the name of a tool or of a prompt fragment, a role, a file, or the
    beginning of a text. `tokens` are those of the budget. `charged` is how the provider charged them; None if it
    reported nothing. `line` is the index of the line of the inspector that it is, None if it is not exactly one.
    `parts` is the number of elements that it consists of, and `merged` the number of small parts that it stands for.
    """

    kind: InputKind
    name: str = ""
    tool: str = ""
    tokens: int
    charged: PricedTokens | None = None
    cost: float | None = None
    line: int | None = None
    parts: int = 1
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
    found: dict[int, RequestTokens] = {}
    for run in view.runs:
        counter = run.keep(_KindCounter)
        counter.update()
        found |= {id(request): tokens for request, tokens in zip(run.requests, counter.found, strict=True)}
    return RunComposition([found[id(each)] for each in view.requests], compute_costs(view))


class _KindCounter:
    """Counts the tokens of the messages of each request of a run by kind. `found` are those counted so far.

    Consecutive elements of one kind are one stretch. Requests share their first rows, so stretches are kept.
    """

    def __init__(self, run: ChannelRun) -> None:
        self._run, self._splitter = run, run.keep(CauseSplitter)
        self.found: list[RequestTokens] = []
        self._rows: tuple[Section, ...] = ()
        self._sizes: list[int] = []
        """The number of stretches up to the end of each row."""
        self._ends: list[int] = []
        self._masks: dict[InputKind, bytearray] = {kind: bytearray() for kind in MESSAGE_KINDS}
        """For each kind 1 for the stretches that have it."""

    def update(self) -> None:
        """Count the requests that were added to the run."""
        for request in self._run.requests[len(self.found) :]:
            self._extend(request.rows.sections)
            kinds = add_head_tokens(request, self._count(request))
            budget = request.record.corrected_budget
            self.found.append(
                RequestTokens(
                    request.channel_id,
                    request.number,
                    [kinds.get(kind, 0) for kind in INPUT_KINDS],
                    budget.measured or budget.exact,
                )
            )

    def _extend(self, sections: tuple[Section, ...]) -> None:
        same = count_common_prefix(self._rows, sections)
        size = self._sizes[same - 1] if same else 0
        del self._sizes[same:], self._ends[size:]
        for mask in self._masks.values():
            del mask[size:]
        end = self._ends[-1] if self._ends else 0
        for section in sections[same:]:
            last: InputKind | None = None
            for element, tokens in zip(section.elements, section.tokens, strict=True):
                kind = cast(InputKind, self._splitter.cause_of(element).kind)
                end += tokens
                if kind == last:
                    self._ends[-1] = end
                    continue
                last = kind
                self._ends.append(end)
                for name, mask in self._masks.items():
                    mask.append(name == kind)
            self._sizes.append(len(self._ends))
        self._rows = sections

    def _count(self, request: RequestView) -> dict[InputKind, int]:
        ends = request.tokens_before_ends(self._ends)
        sizes = list(map(sub, ends, [0, *ends[:-1]]))
        return {kind: sum(compress(sizes, mask)) for kind, mask in self._masks.items() if 1 in mask}


def add_head_tokens(request: RequestView, messages: Mapping[InputKind, int]) -> dict[InputKind, int]:
    """Return the tokens of the budget by kind: those of messages, with system prompt, tools, and what was added."""
    budget = request.record.corrected_budget
    found: dict[InputKind, int] = {"system": budget.system, "tool": budget.tools, **messages}
    return {**found, "overhead": budget.input - sum(found.values())}


# ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────────


def compute_composition(loaded: SingleRequest) -> RequestComposition:
    """Return the composition of one request."""
    request = loaded.request
    run = ChannelRun([request])
    prices, splitter = run.prices[0], CauseSplitter(run)
    parts: dict[InputKind, list[_Part]] = {}
    for part in _list_parts(loaded, run, splitter):
        parts.setdefault(part.kind, []).append(part)
    messages: dict[InputKind, int] = {
        kind: sum([each.tokens for each in parts[kind]]) for kind in MESSAGE_KINDS if kind in parts
    }
    kinds = add_head_tokens(request, messages)
    if "system" in parts:
        shares = distribute(kinds["system"], [round(each.counted) for each in parts["system"]])
        parts["system"] = [each._replace(tokens=size) for each, size in zip(parts["system"], shares, strict=True)]
    for kind in ("system", "tool"):
        if kinds[kind] and kind not in parts:
            parts[kind] = [_Part(kind, (), "", 0.0, 0.0, str, tokens=kinds[kind])]
    nodes = [
        _node(kind, "", [_with_charges(each, prices) for each in parts[kind]], prices)
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


def _with_charges(part: _Part, prices: RequestPrices) -> _Part:
    """Return a part with how it was charged."""
    return part._replace(charged=prices.split(part.start, part.counted))


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
        parts=len(parts),
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
    start = 0
    for section in request.head_sections:
        if section is request.tools:
            yield from _tool_parts(request, start, splitter)
        elif not fragments:
            parts = _section_parts(section, start, [None] * len(section.elements), run, splitter)
            yield from [part for part in parts if part.counted]
        start += section.total
    yield from fragments
    at = 0
    for section, lines in zip(request.rows.sections, loaded.lines, strict=True):
        for part in _section_parts(section, start + at, find_lines(section, lines), run, splitter):
            if part.counted:
                yield part._replace(tokens=request.tokens_in_budget(at, int(part.counted)))
                at += int(part.counted)


def _tool_parts(request: RequestView, start: float, splitter: CauseSplitter) -> Iterator[_Part]:
    """Return the tool definitions. Our own count is distributed like the tokens of the budget, but not rounded."""
    factor = request.tools.total / (sum(request.tool_tokens) or 1)
    for element, tokens in zip(request.tools.elements, request.tool_tokens, strict=True):
        if tokens:
            name = splitter.cause_of(element).name
            yield _Part("tool", (name,), name, start, tokens * factor, partial(str, name), tokens=tokens)
        start += tokens * factor


def find_lines(section: Section, lines: SectionLines) -> list[int | None]:
    """Return the index of the line of each element of a section; None if it is not certain."""
    return [None if index is None else lines.first + index for index in align_items(section, lines.items)]


def _fragment_parts(loaded: SingleRequest, start: float, total: float) -> Iterator[_Part]:
    """Return the static fragments of the system prompt. They have its tokens in proportion to their own."""
    found = [each for each in loaded.fragments if each.lifecycle == "static" and each.tokens]
    whole = sum([each.tokens for each in found])
    for fragment in found if total else ():
        counted = total * fragment.tokens / whole
        yield _Part("system", (), "", start, counted, partial(str, fragment.id))
        start += counted


def _section_parts(
    section: Section, start: int, lines: Sequence[int | None], run: ChannelRun, splitter: CauseSplitter
) -> Iterator[_Part]:
    for element, tokens, line in zip(section.elements, section.tokens, lines, strict=True):
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

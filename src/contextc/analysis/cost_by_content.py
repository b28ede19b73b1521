"""Costs of a conversation by cause: system prompt, each tool, results, history, reasoning, answers.

Cached tokens cost the price of a cache read, written ones that of a cache write. The costs of all causes add up to the
cost of the request. Causes before the first cached position are the cheap ones, so positions count and not only sizes.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import sub
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from contextc._json import as_object
from contextc._sequence_comparison import count_common_prefix
from contextc.analysis.conversation_loader import (
    SectionLines,
    SingleRequest,
    StoredConversation,
    load_conversation_view,
)
from contextc.analysis.element_costs import (
    ChannelRun,
    RequestPrices,
    call_name,
    has_media,
    is_appended_tool,
    tool_name,
)
from contextc.analysis.request_elements import ROLES, Element, RequestView, Section, align_items, weigh
from contextc.compiler.draft import distribute
from contextc.inspection.line_details import PricedTokens
from contextc.models.billing import bill_call
from contextc.models.model_info import MILLION, CacheFigures
from contextc.store import Store

CostKind: TypeAlias = Literal[
    "system", "tool", "result", "history", "reasoning", "media", "overhead",
    "answer", "answer_reasoning", "answer_calls",
]  # fmt: skip
HEAD_KINDS = ("system", "tool")
"""The causes of everything before the messages."""
KIND_LABELS: dict[str, str] = {
    "system": "system prompt",
    "tool": "tool definition",
    "result": "tool results",
    "history": "history",
    "reasoning": "earlier reasoning",
    "media": "media",
    "overhead": "added by the provider or program",
    "answer": "answers",
    "answer_reasoning": "reasoning",
    "answer_calls": "further calls of the provider",
}


class Cause(NamedTuple):
    """The purpose that tokens are spent for. `name` is the name of a tool, which a message defined if it
    `is_appended`.
    """

    kind: CostKind
    name: str = ""
    is_appended: bool = False


class CostLine(Struct, frozen=True, kw_only=True):
    """The tokens of one cause, and their cost in dollars; None if the price is unknown.

    `read` and `written` are the tokens that were read from the cache and written to it. The others were charged as
    plain input; for answers as output.
    """

    kind: str
    name: str
    tokens: float
    read: float = 0.0
    written: float = 0.0
    cost: float | None = None

    @property
    def label(self) -> str:
        """The cause as text, such as `tool results: read`."""
        return f"{KIND_LABELS[self.kind]}: {self.name}" if self.name else KIND_LABELS[self.kind]


class RequestCosts(Struct, frozen=True, kw_only=True):
    """The costs of one request by cause. `is_reported` is False if the provider reported no usage: then tokens are
    estimated, and nothing has a cost.
    """

    request: int
    channel: str
    is_reported: bool
    lines: tuple[CostLine, ...]
    cost: float | None
    cost_is_lower_bound: bool = False


class ConversationCosts(Struct, frozen=True, kw_only=True):
    """The costs of a conversation by cause, the most expensive first, and of each request.

    `unpriced` is the number of requests whose cost is unknown. They are not included. With `cost_is_lower_bound` a
    factor of a price is unknown.
    """

    conversation: str
    lines: tuple[CostLine, ...]
    requests: tuple[RequestCosts, ...]
    cost: float | None
    unpriced: int
    cache_share: float | None
    rewrite_factor: float | None
    cost_is_lower_bound: bool = False


def conversation_costs(store: Store, conversation: str) -> ConversationCosts:
    """Return the costs of a conversation by cause. Raises `UnknownConversation`."""
    return compute_costs(load_conversation_view(store, conversation))


def add_costs(costs: Iterable[ConversationCosts], name: str) -> ConversationCosts:
    """Return the costs of several conversations as one, without its requests and without figures of the cache."""
    some, lines = list(costs), _LineSums()
    for each in some:
        lines.add(each.lines)
    known = [each.cost for each in some if each.cost is not None]
    return ConversationCosts(
        conversation=name,
        lines=lines.make(),
        requests=(),
        cost=sum(known) if known else None,
        unpriced=sum([each.unpriced for each in some]),
        cache_share=None,
        rewrite_factor=None,
        cost_is_lower_bound=any([each.cost_is_lower_bound for each in some]),
    )


def compute_costs(view: StoredConversation) -> ConversationCosts:
    """Return the costs of a conversation by cause."""
    totals = view.keep(_CostTotals)
    totals.update()
    requests = tuple(totals.requests)
    costs = [each.cost for each in requests if each.cost is not None]
    return ConversationCosts(
        conversation=view.name,
        lines=totals.lines.make(),
        requests=requests,
        cost=sum(costs) if costs else None,
        unpriced=sum([each.cost is None for each in requests]),
        cache_share=totals.figures.cache_share,
        rewrite_factor=totals.figures.rewrite_factor,
        cost_is_lower_bound=any([each.cost_is_lower_bound for each in requests]),
    )


class _CostTotals:
    """The costs of the requests of a view, and their sums. Requests that were added to the view are added to them."""

    def __init__(self, view: StoredConversation) -> None:
        self._view = view
        self._splitters: dict[str, CauseSplitter] = {}
        self._clear()

    def _clear(self) -> None:
        self.requests: list[RequestCosts] = []
        self.lines, self.figures = _LineSums(), CacheFigures()
        self._counts: Counter[str] = Counter()

    def update(self) -> None:
        runs = {run.requests[0].channel_id: run for run in self._view.runs}
        splitters = {id: run.keep(CauseSplitter) for id, run in runs.items()}
        if any([splitters.get(id) is not known for id, known in self._splitters.items()]):
            self._clear()  # a call became known after its result
        self._splitters = splitters
        for request in self._view.requests[len(self.requests) :]:
            id = request.channel_id
            costs = _request_costs(splitters[id], request, runs[id].prices[self._counts[id]])
            self._counts[id] += 1
            self.requests.append(costs)
            if costs.is_reported:
                self.lines.add(costs.lines)
            if request.usage is not None:
                self.figures.add(
                    self._view.name,
                    str(request.channel),
                    input=request.usage.input,
                    cache_read=request.usage.cache_read,
                    cache_write=request.usage.cache_write,
                )


class _LineSums:
    """The sums of lines of the same cause."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[float]] = {}
        self._priced: set[tuple[str, str]] = set()

    def add(self, lines: Iterable[CostLine]) -> None:
        for line in lines:
            key = (line.kind, line.name)
            if (total := self._sums.get(key)) is None:
                total = self._sums[key] = [0.0, 0.0, 0.0, 0.0]
            total[0] += line.tokens
            total[1] += line.read
            total[2] += line.written
            if line.cost is not None:
                total[3] += line.cost
                self._priced.add(key)

    def make(self) -> tuple[CostLine, ...]:
        """Return one line for each cause, the most expensive first."""
        found = [
            CostLine(
                kind=key[0],
                name=key[1],
                tokens=tokens,
                read=read,
                written=written,
                cost=cost if key in self._priced else None,
            )
            for key, (tokens, read, written, cost) in self._sums.items()
        ]
        return tuple(sorted(found, key=lambda each: (-(each.cost or 0.0), -each.tokens, each.kind, each.name)))


def _request_costs(splitter: "CauseSplitter", request: RequestView, prices: RequestPrices) -> RequestCosts:
    price = prices.price
    read, written, whole = (splitter.before(request, end) for end in prices.boundaries())
    lines: list[CostLine] = []
    for cause, tokens in whole.items():
        low, high = read.get(cause, 0.0), written.get(cause, 0.0)
        factor = prices.head_factor if cause.kind in HEAD_KINDS and not cause.is_appended else prices.row_factor
        lines.append(
            _cost_line(cause, PricedTokens(low * factor, (high - low) * factor, (tokens - high) * factor), prices)
        )
    if prices.overhead:
        lines.append(_cost_line(Cause("overhead"), split_overhead(prices), prices))
    lines += split_answer(prices)
    return RequestCosts(
        request=request.number,
        channel=request.channel_id,
        is_reported=prices.usage is not None,
        lines=tuple([each for each in lines if each.tokens]),
        cost=sum([each.cost or 0.0 for each in lines]) if price is not None else None,
        cost_is_lower_bound=request.cost_is_lower_bound,
    )


def split_overhead(prices: RequestPrices) -> PricedTokens:
    """Return how the tokens were charged that the provider added to a request."""
    usage = prices.usage
    read = min(prices.overhead, usage.cache_read) if usage is not None else 0
    written = min(prices.overhead - read, usage.cache_write) if usage is not None else 0
    return PricedTokens(read, written, prices.overhead - read - written)


def split_answer(prices: RequestPrices) -> list[CostLine]:
    """Return the tokens and the costs of an answer, of its reasoning, and of calls that the provider bills beside it;
    empty if nothing was reported.
    """
    usage, price = prices.usage, prices.price
    if usage is None:
        return []
    reasoning = min(usage.reasoning, usage.output)
    parts = [
        CostLine(kind=kind, name="", tokens=tokens, cost=tokens * price.output / MILLION if price is not None else None)
        for kind, tokens in (("answer", usage.output - reasoning), ("answer_reasoning", reasoning))
        if tokens
    ]
    model = prices.request.model
    for call in usage.calls:
        paid = bill_call(model, usage, call) if model is not None else None
        parts.append(
            CostLine(
                kind="answer_calls",
                name=call.kind,
                tokens=call.input + call.output,
                read=call.cache_read,
                written=call.cache_write,
                cost=paid.dollars if paid is not None else None,
            )
        )
    return parts


def _cost_line(cause: Cause, parts: PricedTokens, prices: RequestPrices) -> CostLine:
    return CostLine(
        kind=cause.kind,
        name=cause.name,
        tokens=parts.total,
        read=parts.read,
        written=parts.written,
        cost=prices.dollars(parts) if prices.price is not None else None,
    )


class CauseSplitter:
    """Splits the beginning of a request by cause. Sums over rows are kept, because requests share their first rows."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._rows: tuple[Section, ...] = ()
        self._sums: list[dict[Cause, float]] = [{}]
        self._whole: dict[int, dict[Cause, float]] = {}  # by id: the requests of the run keep sections and elements
        self._causes: dict[int, Cause] = {}

    def before(self, request: RequestView, position: float) -> dict[Cause, float]:
        """Return the tokens before a position by cause."""
        self._extend(request)
        found: dict[Cause, float] = {}
        left = position
        for section in request.head_sections:
            _add_sums(found, self._take(section, left))
            left -= section.total
        if left <= 0:
            return found
        row = bisect_right(request.rows.totals, left)
        _add_sums(found, self._sums[row])
        if row < len(request.rows.sections):
            start = request.rows.totals[row - 1] if row else 0
            _add_sums(found, self._take(request.rows.sections[row], left - start))
        return found

    def _extend(self, request: RequestView) -> None:
        sections = request.rows.sections
        if sections is self._rows:
            return
        same = count_common_prefix(self._rows, sections)
        del self._sums[same + 1 :]
        for section in sections[same:]:
            sums = dict(self._sums[-1])
            _add_sums(sums, self._take(section, section.total))
            self._sums.append(sums)
        self._rows = sections

    def _take(self, section: Section, tokens: float) -> dict[Cause, float]:
        """Return the first tokens of a section by cause."""
        if tokens >= section.total:
            if (found := self._whole.get(id(section))) is None:
                found = self._whole[id(section)] = self._count(section, section.total)
            return found
        return self._count(section, tokens)

    def _count(self, section: Section, tokens: float) -> dict[Cause, float]:
        found: dict[Cause, float] = {}
        for element, size in zip(section.elements, _exact_sizes(section), strict=True):
            if tokens <= 0:
                break
            cause = self.cause_of(element)
            found[cause] = found.get(cause, 0.0) + min(size, tokens)
            tokens -= size
        return found

    def cause_of(self, element: Element) -> Cause:
        """Return the cause of an element of the run."""
        if (found := self._causes.get(id(element))) is None:
            found = self._causes[id(element)] = self._find_cause(element)
        return found

    def _find_cause(self, element: Element) -> Cause:
        if element.kind == "tool":
            return Cause("tool", tool_name(element))
        if element.kind == "system":
            return Cause("system")
        if is_appended_tool(element):
            return Cause("tool", tool_name(element), is_appended=True)
        if has_media(element):
            return Cause("media")
        if element.type == "tool_result":
            return Cause("result", self._run.tool_of(element).name)
        return Cause("reasoning" if element.type == "reasoning" else "history")


def _exact_sizes(section: Section) -> Sequence[float]:
    """Return the tokens of each element by our own count, those of tool definitions not rounded: they are few, and the
    provider may count several times as many.
    """
    if not section.elements or section.elements[0].kind != "tool":
        return section.tokens
    weights = [weigh(each) for each in section.elements]
    return [section.total * each / (sum(weights) or 1) for each in weights]


def _add_sums(sums: dict[Cause, float], more: dict[Cause, float]) -> None:
    for cause, tokens in more.items():
        sums[cause] = sums.get(cause, 0.0) + tokens


# ── tokens of the input ───────────────────────────────────────────────────────────────────────────────────────────────
# Composition of requests: their input tokens by cause, as a tree for one request and as sums for all.
#
# Tokens add up to the budget of a request. They are charged as the costs above are.


InputKind: TypeAlias = Literal["tool", "system", "result", "history", "reasoning", "media", "overhead"]
INPUT_KINDS: tuple[InputKind, ...] = ("system", "tool", "result", "history", "reasoning", "media", "overhead")
MESSAGE_KINDS: tuple[InputKind, ...] = ("tool", "result", "history", "reasoning", "media")
MAX_CHILDREN = 50
"""The largest parts of a node that are listed. Smaller ones are one part together."""
LABEL_LENGTH = 100


class CompositionNode(Struct, frozen=True, kw_only=True):
    """Tokens with one cause. `kind` is system, tool, result, history, reasoning, media or overhead (added by the
    provider). The children are parts of it, the largest first, and add up to it; absent if there are none.

    `name` is the name within the parent: a tool, a prompt fragment, a role, a file, or the beginning of a text. `tool`
    is the tool that it belongs to. `cached`, `written` and `uncached` are how the tokens were charged: read from the
    cache, written to it, or neither; None if the provider reported no usage. `cost` is in dollars. `line` is the index
    of its line, if it is one line. `merged` is the number of smaller parts that it stands for.
    """

    kind: InputKind = field(name="cause")
    name: str
    tokens: int
    cached: int | None
    written: int | None
    uncached: int | None
    cost: float | None
    tool: str | UnsetType = UNSET
    line: int | UnsetType = UNSET
    merged: int | UnsetType = UNSET
    children: "tuple[CompositionNode, ...] | UnsetType" = UNSET


class RequestComposition(Struct, frozen=True, kw_only=True):
    """The composition of one request. The tokens of all nodes add up to `tokens`.

    `answer` are the tokens and costs of its answer, which are not part of the input. `cost` includes them.
    """

    tokens: int
    nodes: tuple[CompositionNode, ...]
    answer: tuple[CostLine, ...]
    cost: float | None
    is_reported: bool
    cost_is_lower_bound: bool = False


class RequestTokens(Struct, frozen=True, kw_only=True):
    """The input tokens of one request by kind, in the order of `INPUT_KINDS`. `estimated` is True if the provider
    reported no total and the tokens are not counted exactly, and absent otherwise.
    """

    channel: str
    number: int
    tokens: list[int]
    estimated: bool | UnsetType = UNSET


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
    is_message: bool = False
    """True if it is part of the messages, and not of the system prompt or the tools before them."""


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
                    channel=request.channel_id,
                    number=request.number,
                    tokens=[kinds.get(kind, 0) for kind in INPUT_KINDS],
                    estimated=UNSET if budget.measured or budget.exact else True,
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
    found: dict[InputKind, int] = {
        "system": budget.system, **messages, "tool": budget.tools + messages.get("tool", 0),
    }  # fmt: skip
    return {**found, "overhead": budget.input - sum(found.values())}


def count_input(request: RequestView, splitter: CauseSplitter) -> dict[tuple[str, str], int]:
    """Return the input tokens of a request by kind and tool, as its composition has them: they add up to the budget."""
    budget = request.record.corrected_budget
    found = {("system", ""): 0 if request.system.elements or request.leading.elements else budget.system}
    found["tool", ""] = 0 if request.tools.elements else budget.tools
    for element, tokens in zip(request.elements(), request.listed_tokens, strict=True):
        kind, name, _ = splitter.cause_of(element)
        found[kind, name] = found.get((kind, name), 0) + tokens
    found["overhead", ""] = budget.input - sum(found.values())
    return {cause: tokens for cause, tokens in found.items() if tokens}


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
        kind: sum([each.tokens for each in parts[kind] if each.is_message]) for kind in MESSAGE_KINDS if kind in parts
    }
    kinds = add_head_tokens(request, messages)
    for kind in ("system", "tool"):
        if kinds[kind] and kind not in parts:
            parts[kind] = [_Part(kind, (), "", 0.0, 0.0, str, tokens=kinds[kind])]
    nodes = [
        _make_node(
            kind,
            "",
            [each._replace(charged=prices.split_at(each.start, each.counted)) for each in parts[kind]],
            prices,
        )
        for kind in INPUT_KINDS
        if kind in parts
    ]
    if kinds["overhead"] or prices.overhead:
        extra = _Part("overhead", (), "", 0.0, 0.0, str, tokens=kinds["overhead"], charged=split_overhead(prices))
        nodes.append(_make_node("overhead", "", [extra], prices))
    answer = split_answer(prices)
    costs = [each.cost or 0.0 for each in (*nodes, *answer)]
    return RequestComposition(
        tokens=request.record.corrected_budget.input,
        nodes=tuple([each for each in nodes if each.tokens or each.cost]),
        answer=tuple(answer),
        cost=sum(costs) if prices.price is not None else None,
        cost_is_lower_bound=request.cost_is_lower_bound,
        is_reported=prices.usage is not None,
    )


def _make_node(
    kind: InputKind, name: str, parts: Sequence[_Part], prices: RequestPrices, depth: int = 0
) -> CompositionNode:
    """Return the node of some parts. Its children are the names at `depth` of their paths, and parts without one."""
    found = _sum_parts(kind, name, parts, prices)
    if len(parts) == 1:
        return found if parts[0].line is None else replace(found, line=parts[0].line)
    return replace(found, children=tuple(_child_nodes(kind, parts, prices, depth)))


def _sum_parts(kind: InputKind, name: str, parts: Sequence[_Part], prices: RequestPrices) -> CompositionNode:
    charged = PricedTokens(
        sum([each.charged.read for each in parts]),
        sum([each.charged.written for each in parts]),
        sum([each.charged.plain for each in parts]),
    )
    tokens = sum([each.tokens for each in parts])
    cached, written, uncached = (None, None, None)
    if prices.usage is not None:
        # they add up to the tokens of the budget, unless the provider charged others; each part is rounded
        is_same = abs(charged.total - tokens) < len(parts) + tokens / 100
        total = tokens if is_same else round(charged.total)
        factor = total / charged.total if charged.total else 0.0
        cached, end = round(charged.read * factor), round((charged.read + charged.written) * factor)
        written, uncached = end - cached, total - end
    return CompositionNode(
        kind=kind,
        name=name,
        tokens=tokens,
        cached=cached,
        written=written,
        uncached=uncached,
        cost=prices.dollars(charged) if prices.price is not None else None,
        tool=(parts[0].tool if len({each.tool for each in parts}) == 1 else "") or UNSET,
    )


def _child_nodes(
    kind: InputKind, parts: Sequence[_Part], prices: RequestPrices, depth: int
) -> Iterator[CompositionNode]:
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
        yield _make_node(kind, name, some, prices, depth + 1)
    if rest := ordered[shown:]:
        merged = _sum_parts(kind, "", [part for some in rest for part in some], prices)
        yield replace(merged, merged=len(rest))


# ── its parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _list_parts(loaded: SingleRequest, run: ChannelRun, splitter: CauseSplitter) -> Iterator[_Part]:
    request = loaded.request
    system = request.system.total + request.leading.total
    fragments = list(_fragment_parts(loaded, request.head_tokens_before("system"), system))
    start, at = 0, 0
    for section in request.head_sections:
        if section is request.tools:
            yield from _tool_parts(request, start, splitter)
        elif not fragments:
            parts = _section_parts(section, start, [None] * len(section.elements), run, splitter)
            shares = request.head_tokens[at : at + len(section.elements)]
            yield from [part._replace(tokens=size) for part, size in zip(parts, shares, strict=True) if size]
        start += section.total
        at += len(section.elements)
    yield from fragments
    at = 0
    for section, lines in zip(request.rows.sections, loaded.lines, strict=True):
        for part in _section_parts(section, start + at, match_elements_to_lines(section, lines), run, splitter):
            if part.counted:
                yield part._replace(tokens=request.tokens_in_budget(at, int(part.counted)), is_message=True)
                at += int(part.counted)


def _tool_parts(request: RequestView, start: float, splitter: CauseSplitter) -> Iterator[_Part]:
    tools = request.tools
    for element, counted, tokens in zip(tools.elements, _exact_sizes(tools), request.tool_tokens, strict=True):
        if tokens:
            name = splitter.cause_of(element).name
            yield _Part("tool", (name,), name, start, counted, partial(str, name), tokens=tokens)
        start += counted


def match_elements_to_lines(section: Section, lines: SectionLines) -> list[int | None]:
    """Return the index of the line of each element of a section; None if it is not certain."""
    return [None if index is None else lines.first + index for index in align_items(section, lines.items)]


def _fragment_parts(loaded: SingleRequest, start: float, total: float) -> Iterator[_Part]:
    """Return the static fragments of the system prompt. They have its tokens in proportion to their own."""
    found = [each for each in loaded.fragments if each.lifecycle == "static" and each.tokens]
    sizes = [each.tokens for each in found]
    shares = distribute(loaded.request.record.corrected_budget.system, sizes)
    for fragment, tokens in zip(found, shares, strict=True) if total else ():
        counted = total * fragment.tokens / sum(sizes)
        yield _Part("system", (), "", start, counted, partial(str, fragment.id), tokens=tokens)
        start += counted


def _section_parts(
    section: Section, start: int, lines: Sequence[int | None], run: ChannelRun, splitter: CauseSplitter
) -> Iterator[_Part]:
    for element, tokens, line in zip(section.elements, section.tokens, lines, strict=True):
        kind, name, _ = splitter.cause_of(element)
        path, tool = (name,) if kind in ("tool", "result") else (), name
        if kind == "history":
            path, tool = _history_path(element)
        yield _Part(cast(InputKind, kind), path, tool, start, tokens, partial(_element_label, element, run), line)
        start += tokens


def _history_path(element: Element) -> tuple[tuple[str, ...], str]:
    """Return the place of an element of the history, and the name of the tool that it calls."""
    if element.type == "tool_call":
        name = call_name(element)
        return ("calls", name), name
    return (ROLES.get(element.role, "other"),), ""


def _element_label(element: Element, run: ChannelRun) -> str:
    if element.type == "tool_result" and (file := run.tool_of(element).file):
        return file
    if element.type == "media":
        type = as_object(element.value).get("type")
        return type if isinstance(type, str) else next(iter(as_object(element.value)), "media")
    return " ".join(element.text[: 4 * LABEL_LENGTH].split())[:LABEL_LENGTH]

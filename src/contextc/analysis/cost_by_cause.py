"""Costs of a conversation by cause: system prompt, each tool, results, history, reasoning, answers.

Cached tokens cost the price of a cache read, written ones that of a cache write. The costs of all causes add up to the
cost of the request. Causes before the first cached position are the cheap ones, so positions count and not only sizes.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc.analysis.element_costs import (
    ChannelRun,
    PricedTokens,
    RequestPrices,
    has_media,
    tool_name,
)
from contextc.analysis.request_elements import Element, Section
from contextc.analysis.request_view import RequestView
from contextc.analysis.stored_conversation import StoredConversation, load_stored_conversation
from contextc.models.cache_figures import CacheFigures
from contextc.models.model_info import MILLION
from contextc.store import Store

CostKind: TypeAlias = Literal[
    "system", "tool", "result", "history", "reasoning", "media", "overhead", "answer", "answer_reasoning"
]
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
}


class Cause(NamedTuple):
    """The purpose that tokens are spent for. `name` is the name of a tool."""

    kind: CostKind
    name: str = ""


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


class ConversationCosts(Struct, frozen=True, kw_only=True):
    """The costs of a conversation by cause, the most expensive first, and of each request.

    `unpriced` is the number of requests whose cost is unknown. They are not included.
    """

    conversation: str
    lines: tuple[CostLine, ...]
    requests: tuple[RequestCosts, ...]
    cost: float | None
    unpriced: int
    cache_share: float | None
    rewrite_factor: float | None


def conversation_costs(store: Store, conversation: str) -> ConversationCosts:
    """Return the costs of a conversation by cause. Raises `UnknownConversation`."""
    return compute_costs(load_stored_conversation(store, conversation))


def add_costs(costs: Iterable[ConversationCosts], name: str) -> ConversationCosts:
    """Return the costs of several conversations as one, without its requests and without figures of the cache."""
    some = list(costs)
    known = [each.cost for each in some if each.cost is not None]
    return ConversationCosts(
        conversation=name,
        lines=_sum_lines([line for each in some for line in each.lines]),
        requests=(),
        cost=sum(known) if known else None,
        unpriced=sum([each.unpriced for each in some]),
        cache_share=None,
        rewrite_factor=None,
    )


def compute_costs(view: StoredConversation) -> ConversationCosts:
    """Return the costs of a conversation by cause."""
    found: dict[int, RequestCosts] = {}
    for run in view.runs:
        splitter = run.keep(CauseSplitter)
        known = splitter.costs
        for index in range(len(known), len(run.requests)):
            known.append(_request_costs(splitter, run.requests[index], run.prices[index]))
        found |= {id(request): costs for request, costs in zip(run.requests, known, strict=True)}
    requests = tuple([found[id(each)] for each in view.requests])
    figures = CacheFigures()
    for each in view.requests:
        if each.usage is not None:
            figures.add(
                view.name,
                str(each.channel),
                input=each.usage.input,
                cache_read=each.usage.cache_read,
                cache_write=each.usage.cache_write,
            )
    costs = [each.cost for each in requests if each.cost is not None]
    return ConversationCosts(
        conversation=view.name,
        lines=_sum_lines([line for each in requests if each.is_reported for line in each.lines]),
        requests=requests,
        cost=sum(costs) if costs else None,
        unpriced=sum([each.cost is None for each in requests]),
        cache_share=figures.cache_share,
        rewrite_factor=figures.rewrite_factor,
    )


def _sum_lines(lines: Iterable[CostLine]) -> tuple[CostLine, ...]:
    sums: dict[tuple[str, str], list[float]] = {}
    priced: set[tuple[str, str]] = set()
    for line in lines:
        key = (line.kind, line.name)
        total = sums.setdefault(key, [0.0, 0.0, 0.0, 0.0])
        total[0] += line.tokens
        total[1] += line.read
        total[2] += line.written
        if line.cost is not None:
            total[3] += line.cost
            priced.add(key)
    found = [
        CostLine(
            kind=key[0],
            name=key[1],
            tokens=tokens,
            read=read,
            written=written,
            cost=cost if key in priced else None,
        )
        for key, (tokens, read, written, cost) in sums.items()
    ]
    return tuple(sorted(found, key=lambda each: (-(each.cost or 0.0), -each.tokens, each.kind, each.name)))


def _request_costs(splitter: "CauseSplitter", request: RequestView, prices: RequestPrices) -> RequestCosts:
    price = prices.price
    read, written, whole = (splitter.before(request, end) for end in prices.boundaries())
    lines: list[CostLine] = []
    for cause, tokens in whole.items():
        low, high = read.get(cause, 0.0), written.get(cause, 0.0)
        factor = prices.head_factor if cause.kind in HEAD_KINDS else prices.row_factor
        lines.append(_line(cause, PricedTokens(low * factor, (high - low) * factor, (tokens - high) * factor), prices))
    if prices.overhead:
        lines.append(_line(Cause("overhead"), split_overhead(prices), prices))
    lines += split_answer(prices)
    return RequestCosts(
        request=request.number,
        channel=request.channel_id,
        is_reported=prices.usage is not None,
        lines=tuple([each for each in lines if each.tokens]),
        cost=sum([each.cost or 0.0 for each in lines]) if price is not None else None,
    )


def split_overhead(prices: RequestPrices) -> PricedTokens:
    """Return how the tokens were charged that the provider added to a request."""
    usage = prices.usage
    read = min(prices.overhead, usage.cache_read) if usage is not None else 0
    written = min(prices.overhead - read, usage.cache_write) if usage is not None else 0
    return PricedTokens(read, written, prices.overhead - read - written)


def split_answer(prices: RequestPrices) -> list[CostLine]:
    """Return the tokens and the costs of an answer and of its reasoning; empty if nothing was reported."""
    usage, price = prices.usage, prices.price
    if usage is None:
        return []
    reasoning = min(usage.reasoning, usage.output)
    return [
        CostLine(kind=kind, name="", tokens=tokens, cost=tokens * price.output / MILLION if price is not None else None)
        for kind, tokens in (("answer", usage.output - reasoning), ("answer_reasoning", reasoning))
        if tokens
    ]


def _line(cause: Cause, parts: PricedTokens, prices: RequestPrices) -> CostLine:
    return CostLine(
        kind=cause.kind,
        name=cause.name,
        tokens=parts.total,
        read=parts.read,
        written=parts.written,
        cost=prices.dollars(parts) if prices.price is not None else None,
    )


class CauseSplitter:
    """Splits the beginning of a request by cause. Sums over rows are kept, because requests share their first rows.

    `costs` are those of the first requests of the run, as far as they were computed.
    """

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self.costs: list[RequestCosts] = []
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
            _add(found, self._take(section, left))
            left -= section.total
        if left <= 0:
            return found
        row = bisect_right(request.rows.totals, left)
        _add(found, self._sums[row])
        if row < len(request.rows.sections):
            start = request.rows.totals[row - 1] if row else 0
            _add(found, self._take(request.rows.sections[row], left - start))
        return found

    def _extend(self, request: RequestView) -> None:
        sections = request.rows.sections
        if sections is self._rows:
            return
        same = count_common_prefix(self._rows, sections)
        del self._sums[same + 1 :]
        for section in sections[same:]:
            sums = dict(self._sums[-1])
            _add(sums, self._take(section, section.total))
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
        for element, size in zip(section.elements, section.tokens, strict=True):
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
        if has_media(element):
            return Cause("media")
        if element.type == "tool_result":
            return Cause("result", self._run.tool_of(element).name)
        return Cause("reasoning" if element.type == "reasoning" else "history")


def _add(sums: dict[Cause, float], more: dict[Cause, float]) -> None:
    for cause, tokens in more.items():
        sums[cause] = sums.get(cause, 0.0) + tokens

"""Comparison of two conversations as a whole: their figures side by side, and the first request that differs."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from msgspec import Struct

from contextc.analysis.cache_model import count_equal
from contextc.analysis.conversation_findings import HARMLESS, find_all
from contextc.analysis.conversation_loader import StoredConversation, load_two_conversations
from contextc.analysis.cost_by_cause import ConversationCosts, CostLine, compute_costs
from contextc.analysis.finding import Finding, get_code
from contextc.analysis.request_comparison import (
    ComparedItem,
    ComparedRequest,
    compare_two_requests,
    count_equal_items,
    is_same_content,
    load_compared_items,
    name_request,
)
from contextc.analysis.request_view import RequestView
from contextc.inspection.request_timeline import compute_total_cost
from contextc.store import Store

WORD = re.compile(r"\w+")
MAX_COMPARED = 10_000
"""Characters of the first messages that are compared."""
ALIKE_SHARE = 0.5


class RunFigures(Struct, frozen=True, kw_only=True):
    """The figures of one conversation. Shares, costs and factors are None if they are unknown. Times are in Unix
    milliseconds.
    """

    conversation: str
    models: tuple[str, ...]
    requests: int
    failed: int
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_share: float | None
    cost: float | None
    rewrite_factor: float | None
    began: int
    ended: int


class CauseFigures(Struct, frozen=True, kw_only=True):
    """The findings of one cause in one conversation."""

    count: int = 0
    tokens: int = 0
    cost: float | None = None


class ComparedCause(Struct, frozen=True, kw_only=True):
    """The findings of one cause in both conversations."""

    code: str
    title: str
    a: CauseFigures
    b: CauseFigures


class ComparedCost(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of one purpose in both conversations, such as the results of one tool."""

    kind: str
    name: str
    tokens_a: int
    tokens_b: int
    cost_a: float | None
    cost_b: float | None


class FirstDifference(Struct, frozen=True, kw_only=True):
    """The first requests that differ: `position` is their common position, from 1 on. One of them is None if its
    conversation has fewer requests. `reason` says what differs first; "" if only one of them exists. `related` is
    False if the conversations are about different things: no request is the same, and the first messages have few words
    in common. `equal` is the number of parts before the first difference, and `equal_tokens` their tokens.
    """

    position: int
    a: ComparedRequest | None
    b: ComparedRequest | None
    reason: str
    related: bool = True
    equal: int = 0
    equal_tokens: int = 0


class ConversationComparison(Struct, frozen=True, kw_only=True):
    """Two conversations side by side. `first` is None if all their requests are the same."""

    a: RunFigures
    b: RunFigures
    causes: tuple[ComparedCause, ...]
    costs: tuple[ComparedCost, ...]
    first: FirstDifference | None


def compare_conversations(store: Store, one: str, other: str) -> ConversationComparison:
    """Return the comparison of two conversations. Raises `UnknownConversation`."""
    first, second = load_two_conversations(store, one, other)
    costs = compute_costs(first), compute_costs(second)
    return ConversationComparison(
        a=_figures(first, costs[0]),
        b=_figures(second, costs[1]),
        causes=tuple(_compare_causes(find_all(first), find_all(second))),
        costs=tuple(_compare_costs(costs[0].lines, costs[1].lines)),
        first=_find_first(store, first.requests, second.requests),
    )


def _figures(view: StoredConversation, costs: ConversationCosts) -> RunFigures:
    used = [each.usage for each in view.requests if each.usage is not None]
    return RunFigures(
        conversation=view.name,
        models=tuple(dict.fromkeys([f"{each.channel.provider}:{each.channel.model}" for each in view.requests])),
        requests=len(view.requests),
        failed=len([each for each in view.requests if each.status != "ok"]),
        input=sum([each.input for each in used]),
        output=sum([each.output for each in used]),
        reasoning=sum([each.reasoning for each in used]),
        cache_read=sum([each.cache_read for each in used]),
        cache_share=costs.cache_share,
        cost=compute_total_cost(view.store, view.name),
        rewrite_factor=costs.rewrite_factor,
        began=min([each.began for each in view.requests], default=0),
        ended=max([each.ended for each in view.requests], default=0),
    )


def _compare_causes(one: Iterable[Finding], other: Iterable[Finding]) -> list[ComparedCause]:
    sides = [_by_code(each) for each in (one, other)]
    found = [
        ComparedCause(
            code=code,
            title=get_code(code).title,
            a=sides[0].get(code, CauseFigures()),
            b=sides[1].get(code, CauseFigures()),
        )
        for code in dict.fromkeys([*sides[0], *sides[1]])
    ]
    return sorted(found, key=lambda each: (-max(each.a.cost or 0.0, each.b.cost or 0.0), each.code))


def _by_code(found: Iterable[Finding]) -> dict[str, CauseFigures]:
    sums: dict[str, list[Finding]] = {}
    for each in found:
        if each.cause not in HARMLESS:
            sums.setdefault(each.code, []).append(each)
    return {code: _sum_findings(some) for code, some in sums.items()}


def _sum_findings(found: Sequence[Finding]) -> CauseFigures:
    known = [each.cost for each in found if each.cost is not None]
    tokens = sum([each.tokens for each in found])
    return CauseFigures(count=len(found), tokens=tokens, cost=sum(known) if known else None)


def _compare_costs(one: Iterable[CostLine], other: Iterable[CostLine]) -> list[ComparedCost]:
    sides = [{(each.kind, each.name): each for each in lines} for lines in (one, other)]
    found: list[ComparedCost] = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        a, b = (side.get(key) for side in sides)
        found.append(
            ComparedCost(
                kind=key[0],
                name=key[1],
                tokens_a=round(a.tokens) if a is not None else 0,
                tokens_b=round(b.tokens) if b is not None else 0,
                cost_a=a.cost if a is not None else None,
                cost_b=b.cost if b is not None else None,
            )
        )
    return sorted(
        found,
        key=lambda each: (-max(each.cost_a or 0.0, each.cost_b or 0.0), -max(each.tokens_a, each.tokens_b)),
    )


def _find_first(store: Store, one: Sequence[RequestView], other: Sequence[RequestView]) -> FirstDifference | None:
    for position, (a, b) in enumerate(zip_longest(one, other), 1):
        if a is None or b is None:
            one_side, other_side = (name_request(each) if each is not None else None for each in (a, b))
            return FirstDifference(position=position, a=one_side, b=other_side, reason="")
        if not _is_equal(store, a, b):
            found = compare_two_requests(store, a, b)
            items = load_compared_items(store, a, b)
            equal = count_equal_items(*items)
            return FirstDifference(
                position=position,
                a=found.before,
                b=found.after,
                reason=found.reason,
                related=position > 1 or _begin_alike(*items),
                equal=equal,
                equal_tokens=sum([each.tokens for each in items[1][:equal]]),
            )
    return None


def _begin_alike(one: Sequence[ComparedItem], other: Sequence[ComparedItem]) -> bool:
    """Return True if the first messages of two requests are the same, or have many words in common."""
    first, second = (next((each for each in side if each.section == "messages"), None) for side in (one, other))
    if first is None or second is None or first.key == second.key:
        return True
    words, others = ({*WORD.findall(each.text[:MAX_COMPARED].lower())} for each in (first, second))
    return len(words & others) >= ALIKE_SHARE * max(1, len(words | others))


def _is_equal(store: Store, a: RequestView, b: RequestView) -> bool:
    if a.format == b.format:  # sections are shared, so this is faster than to compare all elements
        return a.count == b.count and count_equal(a, b) == a.count
    return is_same_content(store, a, b)

"""All findings about a conversation, and those of many conversations, grouped by cause."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from contextc.analysis.cache_misses import find_cache_misses
from contextc.analysis.conversation_loader import StoredConversation, load_conversation_view
from contextc.analysis.finding import (
    Finding,
    RequestLoss,
    conversation_functions,
    cost_order,
    get_code,
    sort_by_cost,
    sum_costs,
)
from contextc.analysis.session_starts import find_session_starts
from contextc.errors import ContextcError, UnknownConversation
from contextc.store import Store


def findings(store: Store, conversation: str) -> list[Finding]:
    """Return the findings about a conversation: those of the most expensive cause first, those of unknown cost last.

    Raises `UnknownConversation`.
    """
    return sort_by_cost(find_all(load_conversation_view(store, conversation)))


def find_all(view: StoredConversation) -> list[Finding]:
    """Return the findings about a conversation that is loaded already: cache misses by request, then all others."""
    found = list(find_cache_misses(view))
    for find in conversation_functions():
        found += find(view)
    return _mark_lower_bounds(view, found)


def _mark_lower_bounds(view: StoredConversation, found: list[Finding]) -> list[Finding]:
    """Return the findings, marked if they are about a request whose cost is a lower bound."""
    bounded = {(each.channel_id, each.number) for each in view.requests if each.cost_is_lower_bound}
    if not bounded:
        return found
    channels = {channel for channel, _ in bounded}
    marked: list[Finding] = []
    for each in found:
        losses = tuple(
            [
                replace(loss, cost_is_lower_bound=loss.cost is not None and (loss.channel, loss.request) in bounded)
                for loss in each.losses
            ]
        )
        is_miss = each.code.startswith("CAC")  # other findings are about all requests of a channel
        is_about = (each.channel, each.request) in bounded if is_miss else each.channel in channels
        is_marked = each.cost is not None and (is_about or any([loss.cost_is_lower_bound for loss in losses]))
        marked.append(replace(each, losses=losses, cost_is_lower_bound=is_marked))
    return marked


# ── many conversations, by cause ──────────────────────────────────────────────────────────────────────────────────────
# Findings of many conversations, grouped by cause, the most expensive first.


MAX_EXAMPLES = 5
HARMLESS = ("first_request", "below_minimum")
"""Causes that are no loss. They are not grouped."""


class CauseFigures(Struct, frozen=True, kw_only=True):
    """All findings of one cause. `cost` is None if no cost is known."""

    code: str
    cause: str
    title: str
    fix: str
    count: int
    conversations: int
    tokens: int
    cost: float | None
    cost_is_lower_bound: bool = False


class CauseSummary(CauseFigures, frozen=True, kw_only=True):
    """The same with the most expensive findings as examples."""

    examples: tuple[Finding, ...]


class StoreFindings(Struct, frozen=True, kw_only=True):
    """The findings of a store by cause, the most expensive first.

    `conversations` and `requests` are the numbers of those that were analysed, `unreadable` are conversations that
    could not be read. Costs of different causes can overlap: a large result also makes a cache miss more expensive. So
    they have no sum.
    """

    causes: tuple[CauseSummary, ...]
    conversations: int
    requests: int = 0
    unreadable: tuple[str, ...] = ()


def group_repeated(found: Iterable[Finding]) -> list[list[Finding]]:
    """Return findings by conversation, cause and place, in the order of the sums of their costs. Each has its most
    expensive finding first. Only cache misses repeat: other findings are about all requests already.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for each in sort_by_cost(found):
        is_miss = each.code.startswith("CAC")
        place = each.evidence[0].path if each.evidence else ""
        key = (each.channel, place) if is_miss else (each.channel, place, each.title, str(each.request))
        groups.setdefault((each.conversation, each.code, *key), []).append(each)
    return sorted(groups.values(), key=lambda some: cost_order(sum_costs(some), sum([each.tokens for each in some])))


def list_losses(found: Iterable[Finding]) -> list[RequestLoss]:
    """Return what each request lost by some findings of one conversation, in the order of the requests. `request` is 0
    if a finding is about all of them.
    """
    losses = [
        loss
        for each in found
        for loss in each.losses
        or [
            RequestLoss(
                channel=each.channel,
                request=each.request,
                tokens=each.tokens,
                cost=each.cost,
                cost_is_lower_bound=each.cost_is_lower_bound,
                would_be=each.evidence[0].would_be if each.evidence else 0,
            )
        ]
    ]
    return sorted(losses, key=lambda each: (each.request, each.channel))


def has_lower_bound(found: Iterable[Finding]) -> bool:
    """Return True if the cost of a finding is a lower bound, so that a sum is one too."""
    return any([each.cost_is_lower_bound for each in found])


def largest_cause_cost(found: Iterable[Finding]) -> float:
    """Return the largest cost of a cause within a conversation: the sum of its findings there."""
    sums: dict[tuple[str, str], float] = {}
    for each in found:
        if is_loss(each):
            key = each.conversation, each.code
            sums[key] = sums.get(key, 0.0) + (each.cost or 0.0)
    return max(sums.values(), default=0.0)


def is_loss(finding: Finding) -> bool:
    """Return False for a finding that only explains why nothing could have been better, such as a first request."""
    return finding.cause not in HARMLESS


def group_by_cause(found: Iterable[Finding]) -> list[CauseSummary]:
    """Return findings by cause, the most expensive cause first."""
    groups: dict[str, list[Finding]] = {}
    for each in found:
        if is_loss(each):
            groups.setdefault(each.code, []).append(each)
    summaries = [_summarize_cause(code, each) for code, each in groups.items()]
    return sorted(summaries, key=lambda each: (cost_order(each.cost, each.tokens), each.code))


def _summarize_cause(code: str, found: Sequence[Finding]) -> CauseSummary:
    facts = get_code(code)
    return CauseSummary(
        code=code,
        cause=facts.cause,
        title=facts.title,
        fix=facts.fix,
        count=len(found),
        conversations=max(len({each.conversation for each in found}), sum([each.sessions for each in found])),
        tokens=sum([each.tokens for each in found]),
        cost=sum_costs(found),
        cost_is_lower_bound=has_lower_bound(found),
        examples=tuple(sort_by_cost(found)[:MAX_EXAMPLES]),
    )


def store_findings(
    store: Store,
    conversations: Sequence[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    on_findings: Callable[[list[Finding]], None] | None = None,
) -> StoreFindings:
    """Return the most expensive causes over a store, or over some of its conversations.

    `on_findings` gets the findings of each conversation, and then those about several ones. A conversation that cannot
    be read is named in the result.
    """
    names = list(conversations) if conversations is not None else [each.name for each in store.conversations()]
    found: list[Finding] = []
    unreadable: list[str] = []
    requests = 0
    for number, name in enumerate(names, 1):
        try:
            view = load_conversation_view(store, name)
            some = find_all(view)
        except UnknownConversation:
            if conversations is not None:
                raise
            continue  # it was deleted meanwhile
        except ContextcError:
            unreadable.append(name)
            continue
        found += some
        requests += len(view.requests)
        if on_findings is not None:
            on_findings(some)
        if progress is not None:
            progress(number, len(names))
    starts = find_session_starts(store, conversations)
    if on_findings is not None and starts:
        on_findings(starts)
    return StoreFindings(
        causes=tuple(group_by_cause([*found, *starts])),
        conversations=len(names),
        requests=requests,
        unreadable=tuple(unreadable),
    )

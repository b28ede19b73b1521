"""Findings: why the cache missed, what fills the window, what failed, and what it cost."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from contextc.analysis import CauseSummary, ConversationCacheReads, Evidence, Finding, store_findings
from contextc.analysis.conversation_findings import find_all
from contextc.analysis.cost_by_cause import ConversationCosts, CostLine, compute_costs
from contextc.analysis.expected_cache import list_cache_reads
from contextc.analysis.finding import RequestLoss, get_code, sort_by_cost
from contextc.errors import UnknownConversation
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint

TAG = "findings"
Limit = Annotated[int, Meta(ge=1, le=10_000)]


class FindingsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`limit` is the maximum number of findings. `channel` and `request` select those about one request."""

    limit: Limit = 1_000
    channel: str = ""
    request: Annotated[int, Meta(ge=0, le=1 << 31)] = 0


class ComparedPlace(Struct, frozen=True, kw_only=True):
    """A request that another one was compared with. `title` is the title of its conversation; "" if it was deleted."""

    conversation: str
    channel: str
    request: int
    title: str


class EvidenceView(Struct, frozen=True, kw_only=True):
    """A place that a finding is based on: number and channel of the request, the path in its body, and what changed.

    If `is_change` is false, `before` and `after` are no versions of a text, but facts. `compared` is the request that
    it was compared with; absent if that is the previous one of the channel. `name` is the name of the tool that
    changed, was added (`before` is "") or was removed (`after` is "").
    """

    request: int
    channel: str
    path: str
    before: str
    after: str
    is_change: bool = True
    compared: ComparedPlace | UnsetType = UNSET
    name: str = ""


class ConversationFinding(Struct, frozen=True, kw_only=True):
    """A finding. `title` says what was found, and `cause_title` is what all findings of its code have in common, as in
    the overview. `tokens` are the tokens that it concerns. `cost` is what they cost more than necessary, in dollars;
    null if it is unknown. `also` are further causes that alone would have had the same effect. `vendor` is the
    provider's own word for the cause of a cache miss, and `vendor_agrees` whether it means the same cause; null if it
    states none. `losses` has tokens and cost of each request, if the finding is about several that lost little each.
    """

    code: str
    cause: str
    title: str
    conversation: str
    evidence: list[EvidenceView]
    tokens: int
    cost: float | None
    fix: str
    confidence: float
    also: list[str]
    vendor: str
    vendor_agrees: bool | None
    cause_title: str = ""
    losses: tuple[RequestLoss, ...] = ()


class CostLineView(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of one cause. `kind` is system, tool, result, history, reasoning, media, overhead, answer
    or answer_reasoning; `name` is the name of a tool. `read` and `written` are tokens read from the cache and written.
    """

    kind: str
    name: str
    tokens: int
    read: int
    written: int
    cost: float | None


class CostsView(Struct, frozen=True, kw_only=True):
    """The costs of a conversation by cause, the most expensive first. They add up to `cost`.

    `unpriced` is the number of requests of unknown cost, which are not included.
    """

    lines: list[CostLineView]
    cost: float | None
    unpriced: int
    cache_share: float | None
    rewrite_factor: float | None


class ConversationFindings(Struct, frozen=True, kw_only=True):
    """Findings, the most expensive first. `more` is true if there are more than requested. Costs of different
    causes can overlap.
    """

    findings: list[ConversationFinding]
    more: bool
    costs: CostsView


class CauseView(Struct, frozen=True, kw_only=True):
    """All findings of one cause. `examples` are the most expensive ones."""

    code: str
    cause: str
    title: str
    fix: str
    count: int
    conversations: int
    tokens: int
    cost: float | None
    examples: list[ConversationFinding]


class StoreFindingsView(Struct, frozen=True, kw_only=True):
    """The findings of all conversations by cause. `unreadable` are conversations that could not be read."""

    causes: list[CauseView]
    conversations: int
    unreadable: list[str]


@endpoint("GET", "/conversations/{name}/findings")
def show_conversation_findings(app: AppState, name: str, query: FindingsQuery) -> ConversationFindings:
    """Return what a conversation wastes or fails at, with evidence, cost and fix; and its costs by cause."""
    with app.analysed.open(name) as view:
        all_found, costs = sort_by_cost(find_all(view)), compute_costs(view)
    found = [each for each in all_found if _is_selected(each, query)]
    return ConversationFindings(
        findings=_finding_views(app, found[: query.limit]),
        more=len(found) > query.limit,
        costs=costs_view(costs),
    )


@endpoint("GET", "/conversations/{name}/cache-reads")
def show_cache_reads(app: AppState, name: str) -> ConversationCacheReads:
    """Return what each request should have read from the cache by the provider's rules, and what was reported."""
    with app.analysed.open(name) as view:
        return list_cache_reads(view)


@endpoint("GET", "/findings")
def show_store_findings(app: AppState) -> StoreFindingsView:
    """Return the findings of all conversations by cause, the most expensive first. This reads the whole store."""
    found = store_findings(app.store)
    return StoreFindingsView(
        causes=[_cause_view(app, each) for each in found.causes],
        conversations=found.conversations,
        unreadable=list(found.unreadable),
    )


def _is_selected(finding: Finding, query: FindingsQuery) -> bool:
    return any(
        [
            query.channel in ("", each.channel) and query.request in (0, each.request)
            for each in finding.evidence or (Evidence(request=0, channel=""),)
        ]
    )


def _finding_views(app: AppState, found: Sequence[Finding]) -> list[ConversationFinding]:
    others = {each.compared.conversation for finding in found for each in finding.evidence if each.compared is not None}
    titles = {name: _find_title(app, name) for name in others}
    return [_finding_view(each, titles) for each in found]


def _find_title(app: AppState, name: str) -> str:
    try:
        return app.store.overview(name).title
    except UnknownConversation:
        return ""


def _evidence_view(evidence: Evidence, titles: Mapping[str, str]) -> EvidenceView:
    other = evidence.compared
    return EvidenceView(
        request=evidence.request,
        channel=evidence.channel,
        path=evidence.path,
        before=evidence.before,
        after=evidence.after,
        is_change=evidence.is_change,
        compared=UNSET
        if other is None
        else ComparedPlace(
            conversation=other.conversation,
            channel=other.channel,
            request=other.request,
            title=titles[other.conversation],
        ),
        name=evidence.name,
    )


def _finding_view(finding: Finding, titles: Mapping[str, str]) -> ConversationFinding:
    return ConversationFinding(
        code=finding.code,
        cause=finding.cause,
        title=finding.title,
        conversation=finding.conversation,
        evidence=[_evidence_view(each, titles) for each in finding.evidence],
        tokens=finding.tokens,
        cost=finding.cost,
        fix=finding.fix,
        confidence=finding.confidence,
        also=list(finding.also),
        vendor=finding.vendor,
        vendor_agrees=finding.vendor_agrees,
        cause_title=get_code(finding.code).title,
        losses=finding.losses,
    )


def _cause_view(app: AppState, cause: CauseSummary) -> CauseView:
    return CauseView(
        code=cause.code,
        cause=cause.cause,
        title=cause.title,
        fix=cause.fix,
        count=cause.count,
        conversations=cause.conversations,
        tokens=cause.tokens,
        cost=cause.cost,
        examples=_finding_views(app, cause.examples),
    )


def costs_view(costs: ConversationCosts) -> CostsView:
    return CostsView(
        lines=[line_view(each) for each in costs.lines],
        cost=costs.cost,
        unpriced=costs.unpriced,
        cache_share=costs.cache_share,
        rewrite_factor=costs.rewrite_factor,
    )


def line_view(line: CostLine) -> CostLineView:
    return CostLineView(
        kind=line.kind,
        name=line.name,
        tokens=round(line.tokens),
        read=round(line.read),
        written=round(line.written),
        cost=line.cost,
    )

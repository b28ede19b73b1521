"""Analysis of a conversation: its timeline, sub-agents, findings, and tokens by cause."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from contextc.analysis import ConversationCacheReads, Evidence, Finding, store_findings
from contextc.analysis.cache_misses import list_cache_reads
from contextc.analysis.conversation_findings import CauseFigures, find_all
from contextc.analysis.conversation_loader import StoredConversation, load_single_request
from contextc.analysis.cost_by_content import (
    INPUT_KINDS,
    CompositionNode,
    ConversationCosts,
    CostLine,
    RequestTokens,
    compute_composition,
    compute_costs,
    compute_run_composition,
)
from contextc.analysis.finding import RequestLoss, RequestPlace, get_code, sort_by_cost
from contextc.compiler.manifest import RequestRecord
from contextc.errors import UnknownConversation
from contextc.inspection.prefix_break import find_retried, has_lost_cache
from contextc.inspection.request_timeline import (
    ProducedMessage,
    SentRequest,
    SubAgent,
    Timeline,
    UnansweredRequest,
    load_produced,
    load_sub_agents,
    load_unanswered_requests,
    sum_requests,
)
from contextc.store.agent_calls import belongs_to_agent_calls
from contextc.store.conversation_list import ObservedSource, ParentRequest, load_observed_sources, load_parent_request
from contextc.store.ledger_schema import channel_id
from contextc.store.message_log import SEQ_MASK, load_tip
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import TurnRecord
from contextc.web.app_state import AppState
from contextc.web.request_view import (
    ChannelView,
    CountOrigin,
    ObservedView,
    as_view,
    channel_views,
    count_origin,
    find_channel,
    observed_view,
)
from contextc.web.router import endpoint

# ── timeline ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class TimelineQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`channel` is the id of one channel; default: all channels."""

    channel: str = ""


class TimelineStep(Struct, frozen=True, kw_only=True):
    """One request. Unknown values are null: tokens that the provider did not report, the turn of a request without one.

    `used` are the tokens of the whole request, `available` their limit, and `shared` the tokens shared with the
    previous request. `added` is the number of new messages, `left` the number of messages left out from here on.
    `cache_share` is the cached share of the input, from 0 to 1. `seq` is the last message of the request on its
    `branch`. `produced` are the seqs of the answer's messages on that branch, and `uids` their uids, which are the
    same on every branch; `tools` are the names of the tools that it calls. `observed` is present if other
    software sent it.

    `latency` are the milliseconds until the reply ended, and `first_chunk` those until its first part arrived.

    `why` is the reason of a new cache epoch, and `reset` is true if cached tokens were lost with it: the provider read
    less than it could have. `retry_of` is the number of the refused request that this one repeats, and `corrected` is
    true if its content is another one; both are absent if it repeats none. `estimated` is the estimated input of an
    answered request for which the provider reported no tokens, else 0.
    """

    channel: str
    request: int
    epoch: int
    why: str
    mode: str
    time: int
    turn: int | None
    step: int | None
    seq: int
    branch: int = 0
    model: str
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None
    cost: float | None
    cost_is_lower_bound: bool = False
    cache_share: float | None
    used: int
    available: int
    window: int
    shared: int
    added: int
    left: int
    produced: list[int]
    uids: list[str]
    tools: list[str] = []
    latency: int | None = None
    first_chunk: int | None = None
    reset: bool = False
    retry_of: int | UnsetType = UNSET
    corrected: bool | UnsetType = UNSET
    observed: ObservedView | UnsetType = UNSET
    estimated: int = 0


class TimelineTotals(Struct, frozen=True, kw_only=True):
    """Totals of all requests. `failed` of them have no complete answer; it is absent if there are none. `unanswered`
    are those of these that are listed as such.

    For a whole conversation, `cost` includes summaries. It is null if no cost is known. With `cost_is_lower_bound` a
    factor of a price is unknown. Tokens are those that the provider reported; `estimated` is the estimated input of
    requests for which it reported none.
    """

    requests: int
    input: int
    output: int
    cache_read: int
    cost: float | None
    cost_is_lower_bound: bool = False
    epochs: int
    unanswered: int
    failed: int | UnsetType = UNSET
    estimated: int = 0


class TimelineView(Struct, frozen=True, kw_only=True):
    """`source` is present if other software made the requests, and `parent` if it is not its main conversation.

    `agents` is present, and true, if it called agents as tools, or is the conversation of a called one.
    """

    channels: list[ChannelView]
    requests: list[TimelineStep]
    unanswered: list[UnansweredRequest]
    totals: TimelineTotals
    source: ObservedSource | UnsetType = UNSET
    parent: ParentRequest | UnsetType = UNSET
    agents: bool | UnsetType = UNSET


@endpoint("GET", "/conversations/{name}/timeline", tag="timeline")
def show_timeline(app: AppState, name: str, query: TimelineQuery) -> TimelineView:
    """List the requests of a conversation, oldest first, with tokens, cost, cache and epochs; and unanswered ones."""
    views = channel_views(app.store, name)
    only = find_channel(app.store, name, query.channel) if query.channel else None
    with app.timelines.open(name) as timeline:
        moments = [each for each in timeline.load() if only in (None, each.channel)]
        steps = timeline.keep(_TimelineSteps).make(moments)
    lost = load_unanswered_requests(app.store, name, only)
    source, parent = app.store.read(lambda tx: _load_source(tx, name))
    return TimelineView(
        channels=views,
        requests=steps,
        unanswered=lost,
        totals=_totals(moments, lost, [] if only is not None else app.store.turns(name)),
        source=source,
        parent=parent,
        agents=app.store.read(lambda tx: belongs_to_agent_calls(tx, load_tip(tx, name).conversation)) or UNSET,
    )


def _load_source(tx: Transaction, name: str) -> tuple[ObservedSource | UnsetType, ParentRequest | UnsetType]:
    number = load_tip(tx, name).conversation
    source = load_observed_sources(tx, [number]).get(number, UNSET)
    return source, (load_parent_request(tx, number) or UNSET) if source is not UNSET else UNSET


class _TimelineSteps:
    """The requests of a timeline, each compared with those before it on its channel."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._found: dict[int, TimelineStep] = {}

    def make(self, moments: Sequence[SentRequest]) -> list[TimelineStep]:
        """Return the steps of some requests. Those that are known are kept."""
        new = {id(each) for each in moments if id(each) not in self._found}
        if new:
            produced = load_produced(self._timeline.store, [each for each in moments if id(each) in new])
            for requests in self._timeline.channels.values():
                records = [each.record for each in requests]
                for index, each in enumerate(requests):
                    if id(each) in new:
                        self._found[id(each)] = _step(each, records[:index], produced)
        return [self._found[id(each)] for each in moments]


def _step(
    moment: SentRequest, before: Sequence[RequestRecord], produced: Mapping[int, ProducedMessage]
) -> TimelineStep:
    channel, record, usage = moment.channel, moment.record, moment.record.usage
    replies = [produced.get(where) for where in record.produced]
    retried = find_retried(record, before[-1] if before else None)
    return as_view(
        TimelineStep,
        record,
        channel=channel_id(channel),
        turn=moment.turn,
        step=moment.step.index if moment.step is not None else None,
        time=0 if record.observed is not None and record.observed.untimed else record.time,
        seq=record.tip,
        model=f"{channel.provider}:{channel.model}",
        input=usage.input if usage else None,
        output=usage.output if usage else None,
        cache_read=usage.cache_read if usage else None,
        cache_write=usage.cache_write if usage else None,
        reasoning=usage.reasoning if usage else None,
        cost=moment.cost,
        cost_is_lower_bound=moment.cost_is_lower_bound,
        cache_share=min(1.0, round(usage.cache_read / usage.input, 4)) if usage and usage.input else None,
        used=record.corrected_budget.input,
        available=record.corrected_budget.room,
        window=record.budget.window,
        shared=record.shared_tokens,
        added=record.new,
        left=len(record.left) + record.skipped,
        produced=[where & SEQ_MASK for where in record.produced],
        uids=[each.uid if each is not None else "" for each in replies],
        tools=sorted({name for each in replies if each is not None for name in each.called}),
        latency=moment.latency,
        first_chunk=moment.first_chunk,
        reset=has_lost_cache(record, before),
        retry_of=retried.request if retried is not None else UNSET,
        corrected=retried.is_corrected if retried is not None else UNSET,
        observed=observed_view(record.observed),
        estimated=record.unreported_input,
    )


def _totals(moments: list[SentRequest], lost: list[UnansweredRequest], turns: list[TurnRecord]) -> TimelineTotals:
    totals = sum_requests(moments, lost, turns)
    return as_view(
        TimelineTotals,
        totals,
        epochs=sum(bool(moment.record.why) for moment in moments),
        unanswered=len(lost),
        failed=totals.failed or UNSET,
    )


# ── sub-agents ────────────────────────────────────────────────────────────────────────────────────────────────────────


class SubAgentsView(Struct, frozen=True, kw_only=True):
    """The main conversation and its sub-agents, parents first, oldest first."""

    agents: list[SubAgent]


@endpoint("GET", "/conversations/{name}/sub-agents", tag="sub_agents")
def list_sub_agents(app: AppState, name: str) -> SubAgentsView:
    """List the conversations of the same session: the main one and its sub-agents, with times, requests and cost.

    Agents that were called as tools are among them. The list is empty if there are no others.
    """
    return SubAgentsView(agents=load_sub_agents(app.store, name, app.timelines))


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


Limit = Annotated[int, Meta(ge=1, le=10_000)]


class FindingsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`limit` is the maximum number of findings. `channel` and `request` select those about one request."""

    limit: Limit = 1_000
    channel: str = ""
    request: Annotated[int, Meta(ge=0, le=1 << 31)] = 0


class ComparedPlace(RequestPlace, frozen=True, kw_only=True):
    """A request that another one was compared with. `title` is the title of its conversation; "" if it was deleted."""

    title: str


class EvidenceView(Struct, frozen=True, kw_only=True):
    """A place that a finding is based on: number and channel of the request, the path in its body, and what changed.

    If `is_change` is false, `before` and `after` are no versions of a text, but facts. `compared` is the request that
    it was compared with; absent if that is the previous one of the channel. `name` is the name of the tool that
    changed, was added (`before` is "") or was removed (`after` is ""). `would_be` is the number that people know a
    request without an answer by; 0 for others.
    """

    request: int
    channel: str
    path: str
    before: str
    after: str
    is_change: bool = True
    compared: ComparedPlace | UnsetType = UNSET
    name: str = ""
    would_be: int = 0


class ConversationFinding(Struct, frozen=True, kw_only=True):
    """A finding. `title` says what was found, and `cause_title` is what all findings of its code have in common, as in
    the overview. `tokens` are the tokens that it concerns. `cost` is what they cost more than necessary, in dollars;
    null if it is unknown. `also` are further causes that alone would have had the same effect. `vendor` is the
    provider's own word for the cause of a cache miss, and `vendor_agrees` whether it means the same cause; null if it
    states none. `losses` has tokens and cost of each request, if the finding is about several that lost little each.
    With `cost_is_lower_bound` a factor of a price is unknown, and it cost at least that.
    """

    code: str
    cause: str
    title: str
    conversation: str
    evidence: list[EvidenceView]
    tokens: int
    cost: float | None
    cost_is_lower_bound: bool = False
    fix: str
    confidence: float
    also: list[str]
    vendor: str
    vendor_agrees: bool | None
    cause_title: str = ""
    losses: tuple[RequestLoss, ...] = ()


class CostLineView(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of one cause. `kind` is system, tool, result, history, reasoning, media, overhead,
    answer, answer_reasoning or answer_calls; `name` is the name of a tool, or the kind of such a call. `read` and
    `written` are tokens read from the cache and written.
    """

    kind: str
    name: str
    tokens: int
    read: int
    written: int
    cost: float | None


class CostsView(Struct, frozen=True, kw_only=True):
    """The costs of a conversation by cause, the most expensive first. They add up to `cost`.

    `unpriced` is the number of requests of unknown cost, which are not included. With `cost_is_lower_bound` a factor of
    a price is unknown.
    """

    lines: list[CostLineView]
    cost: float | None
    cost_is_lower_bound: bool = False
    unpriced: int
    cache_share: float | None
    rewrite_factor: float | None


class ConversationFindings(Struct, frozen=True, kw_only=True):
    """Findings, those of the most expensive cause first. `more` is true if there are more than requested. Costs of
    different causes can overlap.
    """

    findings: list[ConversationFinding]
    more: bool
    costs: CostsView


class CauseView(CauseFigures, frozen=True, kw_only=True):
    """All findings of one cause. `examples` are the most expensive ones."""

    examples: list[ConversationFinding]


class StoreFindingsView(Struct, frozen=True, kw_only=True):
    """The findings of all conversations by cause. `unreadable` are conversations that could not be read."""

    causes: list[CauseView]
    conversations: int
    unreadable: list[str]


@endpoint("GET", "/conversations/{name}/findings", tag="findings")
def show_conversation_findings(app: AppState, name: str, query: FindingsQuery) -> ConversationFindings:
    """Return what a conversation wastes or fails at, with evidence, cost and fix; and its costs by cause."""
    starts = app.overview.session_starts(name)
    with app.analysed.open(name) as view:
        all_found, costs = sort_by_cost([*find_all(view), *starts]), compute_costs(view)
        found = [each for each in all_found if _is_selected(each, query)]
        views = view.keep(_FindingViews).show(app, found[: query.limit])
    return ConversationFindings(
        findings=views,
        more=len(found) > query.limit,
        costs=costs_view(costs),
    )


@endpoint("GET", "/conversations/{name}/cache-reads", tag="findings")
def show_cache_reads(app: AppState, name: str) -> ConversationCacheReads:
    """Return what each request should have read from the cache by the provider's rules, and what was reported."""
    with app.analysed.open(name) as view:
        return list_cache_reads(view)


@endpoint("GET", "/findings", tag="findings")
def show_store_findings(app: AppState) -> StoreFindingsView:
    """Return the findings of all conversations by cause, the most expensive first. This reads the whole store."""
    found = store_findings(app.store)
    causes = [as_view(CauseView, each, examples=_finding_views(app, each.examples)) for each in found.causes]
    return as_view(StoreFindingsView, found, causes=causes)


def _is_selected(finding: Finding, query: FindingsQuery) -> bool:
    return any(
        [
            query.channel in ("", each.channel) and query.request in (0, each.request)
            for each in finding.evidence or (Evidence(request=0, channel=""),)
        ]
    )


def _finding_views(app: AppState, found: Sequence[Finding]) -> list[ConversationFinding]:
    others = {each.compared.conversation for finding in found for each in finding.evidence if each.compared is not None}
    titles = dict.fromkeys(others, "")
    for name in others:
        with suppress(UnknownConversation):
            titles[name] = app.store.overview(name).title
    return [_finding_view(each, titles) for each in found]


class _FindingViews:
    """The findings of a conversation as they were shown last: most are the same after another request."""

    def __init__(self, view: StoredConversation) -> None:
        self._shown: dict[int, tuple[Finding, ConversationFinding]] = {}

    def show(self, app: AppState, found: Sequence[Finding]) -> list[ConversationFinding]:
        known = [self._shown.get(id(each)) for each in found]
        new = iter(_finding_views(app, [each for each, before in zip(found, known, strict=True) if before is None]))
        shown = [before or (each, next(new)) for each, before in zip(found, known, strict=True)]
        self._shown = {id(each): (each, view) for each, view in shown if not any(map(_is_compared, each.evidence))}
        return [view for _, view in shown]


def _is_compared(evidence: Evidence) -> bool:
    """Return True if evidence names another conversation, whose title may change."""
    return evidence.compared is not None


def _finding_view(finding: Finding, titles: Mapping[str, str]) -> ConversationFinding:
    evidence = [
        as_view(
            EvidenceView,
            each,
            compared=UNSET
            if each.compared is None
            else as_view(ComparedPlace, each.compared, title=titles[each.compared.conversation]),
        )
        for each in finding.evidence
    ]
    return as_view(ConversationFinding, finding, evidence=evidence, cause_title=get_code(finding.code).title)


def costs_view(costs: ConversationCosts) -> CostsView:
    return as_view(CostsView, costs, lines=[line_view(each) for each in costs.lines])


def line_view(line: CostLine) -> CostLineView:
    return as_view(CostLineView, line, tokens=round(line.tokens), read=round(line.read), written=round(line.written))


# ── tokens by cause ───────────────────────────────────────────────────────────────────────────────────────────────────


class CompositionView(Struct, frozen=True, kw_only=True):
    """The input of a request by cause. The tokens of all causes add up to `tokens`, which is `input` of the budget.

    `how` is the origin of `tokens`, as in the budget. Parts of a measured total are estimated shares of it. `answer`
    are tokens and costs of the answer, which are not input; `cost` is that of the request with its answer.
    """

    channel: str
    number: int
    tokens: int
    how: CountOrigin
    causes: list[CompositionNode]
    answer: list[CostLineView]
    cost: float | None
    cost_is_lower_bound: bool = False


class RunCompositionView(Struct, frozen=True, kw_only=True):
    """The composition of all requests of a conversation, in the order in which they began, and their costs by cause."""

    causes: list[str]
    requests: list[RequestTokens]
    costs: CostsView


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/composition", tag="composition")
def show_composition(app: AppState, name: str, channel: str, number: int) -> CompositionView:
    """Return the input tokens of a request by cause: system prompt, tools, results, history, reasoning and media."""
    found = find_channel(app.store, name, channel)
    with app.analysed.use_parser(name) as parser:
        loaded = load_single_request(app.store, found, number, parser)
    composition = compute_composition(loaded)
    return as_view(
        CompositionView,
        composition,
        channel=channel,
        number=number,
        how=count_origin(loaded.request.record.corrected_budget),
        causes=list(composition.nodes),
        answer=[line_view(each) for each in composition.answer],
    )


@endpoint("GET", "/conversations/{name}/composition", tag="composition")
def show_run_composition(app: AppState, name: str) -> RunCompositionView:
    """Return the input tokens by cause of each request of a conversation, and the costs of all by cause."""
    with app.analysed.open(name) as view:
        found = compute_run_composition(view)
    return RunCompositionView(
        causes=list(INPUT_KINDS),
        requests=found.requests,
        costs=costs_view(found.costs),
    )

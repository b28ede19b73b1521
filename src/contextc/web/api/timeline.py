"""Timeline of a conversation: its requests with tokens, cost and cache use."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from contextc.compiler.manifest import RequestRecord
from contextc.inspection.prefix_break import find_retried, has_lost_cache
from contextc.inspection.request_timeline import (
    TimelineEntry,
    UnansweredRequest,
    load_timeline,
    load_unanswered_requests,
    sum_costs,
)
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import SEQ_MASK, load_tip
from contextc.store.observed_conversation_sources import ObservedSource, load_parent_request, load_sources
from contextc.store.turn_and_event_records import TurnRecord
from contextc.web.app_state import AppState
from contextc.web.channel_list import ChannelView, channel_id, channel_views, find_channel
from contextc.web.endpoint_registry import endpoint
from contextc.web.request_view import ObservedView, UsageView, observed_view, usage_view

TAG = "timeline"


class TimelineQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`channel` is the id of one channel; default: all channels."""

    channel: str = ""


class TimelineStep(Struct, frozen=True, kw_only=True):
    """One request. Unknown values are null: tokens that the provider did not report, the turn of a request without one.

    `used` are the tokens of the whole request, `available` their limit, and `shared` the tokens shared with the
    previous request. `added` is the number of new messages, `left` the number of messages left out from here on.
    `cache_share` is the cached share of the input, from 0 to 1. `seq` is the last message of the request on its
    `branch`. `produced` are the seqs of the answer's messages on that branch, and `uids` their uids, which are the
    same on every branch. `observed` is present if other software sent it.

    `why` is the reason of a new cache epoch, and `reset` is true if cached tokens were lost with it: the provider read
    less than it could have. `retry_of` is the number of the refused request that this one repeats, and `corrected` is
    true if its content is another one; both are absent if it repeats none.
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
    cache_share: float | None
    used: int
    available: int
    window: int
    shared: int
    added: int
    left: int
    produced: list[int]
    uids: list[str]
    reset: bool = False
    retry_of: int | UnsetType = UNSET
    corrected: bool | UnsetType = UNSET
    observed: ObservedView | UnsetType = UNSET


class UnansweredView(Struct, frozen=True, kw_only=True):
    """A request, or one attempt of it, without a complete answer. It does not count as sent to the model.

    `request` is the number that it would have had. `number` is the number to inspect it by, null if it is not stored.
    `time` is when it was sent and `why` how it ended, as text. `seq` and `uid` are the message with the partial answer.
    Unknown values are null.
    """

    channel: str
    request: int
    time: int | None
    turn: int | None
    step: int | None
    model: str
    why: str
    seq: int | None
    usage: UsageView | None
    uid: str
    number: int | None
    cost: float | None


class TimelineTotals(Struct, frozen=True, kw_only=True):
    """Totals of all requests. Tokens and `cost` include unanswered requests, which `unanswered` counts
    separately.

    For a whole conversation, `cost` includes summaries. It is null if no cost is known. `failed` is the number of
    observed requests without a complete answer; it is absent if there are none. They are among the `requests`.
    """

    requests: int
    input: int
    output: int
    cache_read: int
    cost: float | None
    epochs: int
    unanswered: int
    failed: int | UnsetType = UNSET


class ParentRequestView(Struct, frozen=True, kw_only=True):
    """The request of the main conversation during which a sub-agent or a side request began."""

    conversation: str
    channel: str
    request: int


class TimelineView(Struct, frozen=True, kw_only=True):
    """`source` is present if other software made the requests, and `parent` if it is not its main conversation."""

    channels: list[ChannelView]
    requests: list[TimelineStep]
    unanswered: list[UnansweredView]
    totals: TimelineTotals
    source: ObservedSource | UnsetType = UNSET
    parent: ParentRequestView | UnsetType = UNSET


@endpoint("GET", "/conversations/{name}/timeline")
def show_timeline(app: AppState, name: str, query: TimelineQuery) -> TimelineView:
    """List the requests of a conversation, oldest first, with tokens, cost, cache and epochs; and unanswered ones."""
    views = channel_views(app.store, name)
    only = find_channel(app.store, name, query.channel) if query.channel else None
    moments = load_timeline(app.store, name, only)
    lost = load_unanswered_requests(app.store, name, only)
    source, parent = app.store.read(lambda tx: _load_source(tx, name))
    return TimelineView(
        channels=views,
        requests=_steps(moments),
        unanswered=[_unanswered(each) for each in lost],
        totals=_totals(moments, lost, [] if only is not None else app.store.turns(name)),
        source=source,
        parent=parent,
    )


def _load_source(tx: Transaction, name: str) -> tuple[ObservedSource | UnsetType, ParentRequestView | UnsetType]:
    number = load_tip(tx, name).conversation
    source = load_sources(tx, [number]).get(number, UNSET)
    above = load_parent_request(tx, number) if source is not UNSET else None
    if above is None:
        return source, UNSET
    return source, ParentRequestView(
        conversation=above.conversation, channel=channel_id(above.channel), request=above.request
    )


def _steps(moments: Sequence[TimelineEntry]) -> list[TimelineStep]:
    """Return the requests, each compared with those before it on its channel."""
    numbered: dict[Channel, list[TimelineEntry]] = {}
    for each in moments:
        numbered.setdefault(each.channel, []).append(each)
    found: dict[int, TimelineStep] = {}
    for entries in numbered.values():
        known: list[RequestRecord] = []
        for each in sorted(entries, key=lambda entry: entry.record.request):
            found[id(each)] = _step(each, known)
            known.append(each.record)
    return [found[id(each)] for each in moments]


def _step(moment: TimelineEntry, before: Sequence[RequestRecord]) -> TimelineStep:
    channel, record, usage = moment.channel, moment.record, moment.record.usage
    retried = find_retried(record, before[-1] if before else None)
    return TimelineStep(
        channel=channel_id(channel),
        request=record.request,
        epoch=record.epoch,
        why=record.why,
        mode=record.mode,
        time=record.time,
        turn=moment.turn,
        step=moment.step,
        seq=record.tip,
        branch=record.branch,
        model=f"{channel.provider}:{channel.model}",
        input=usage.input if usage else None,
        output=usage.output if usage else None,
        cache_read=usage.cache_read if usage else None,
        cache_write=usage.cache_write if usage else None,
        reasoning=usage.reasoning if usage else None,
        cost=moment.cost,
        cache_share=min(1.0, round(usage.cache_read / usage.input, 4)) if usage and usage.input else None,
        used=record.corrected_budget.input,
        available=record.corrected_budget.room,
        window=record.budget.window,
        shared=record.shared_tokens,
        added=record.new,
        left=len(record.left) + record.skipped,
        produced=[where & SEQ_MASK for where in record.produced],
        uids=[*moment.uids],
        reset=has_lost_cache(record, before),
        retry_of=retried.request if retried is not None else UNSET,
        corrected=retried.is_corrected if retried is not None else UNSET,
        observed=observed_view(record.observed),
    )


def _unanswered(found: UnansweredRequest) -> UnansweredView:
    channel = found.channel
    return UnansweredView(
        channel=channel_id(channel),
        request=found.request,
        time=found.time,
        turn=found.turn,
        step=found.step,
        model=f"{channel.provider}:{channel.model}",
        why=found.why,
        seq=found.seq,
        usage=usage_view(found.usage),
        uid=found.uid,
        number=found.number,
        cost=found.cost,
    )


def _totals(moments: list[TimelineEntry], lost: list[UnansweredRequest], turns: list[TurnRecord]) -> TimelineTotals:
    used = [moment.record.usage for moment in moments if moment.record.usage is not None]
    used += [each.usage for each in lost if each.usage is not None]
    observed = [moment.record.observed for moment in moments if moment.record.observed is not None]
    return TimelineTotals(
        requests=len(moments),
        input=sum(usage.input for usage in used),
        output=sum(usage.output for usage in used),
        cache_read=sum(usage.cache_read for usage in used),
        cost=sum_costs(moments, lost, turns),
        epochs=sum(bool(moment.record.why) for moment in moments),
        unanswered=len(lost),
        failed=len([each for each in observed if each.status != "ok"]) or UNSET,
    )

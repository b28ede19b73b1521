"""A conversation as a row of requests: what each took, cost, and shared with the one before."""

from msgspec import Struct

from contextc.compiler.timeline import Moment, timeline
from contextc.compiler.unanswered import Unanswered, summed_cost, unanswered
from contextc.store.places import SEQ_MASK
from contextc.store.turns import TurnRecord
from contextc.web.accounts import UsageView, usage_view
from contextc.web.channels import ChannelView, channel_at, channel_id, channel_views
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint


class Which(Struct, frozen=True, forbid_unknown_fields=True):
    """`channel` is one of those that the answer lists; all of them, if none is named."""

    channel: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """One request. What nobody knows is null: tokens that the provider did not report, the turn of a request that was
    made by hand. `used` is what the whole request takes, `available` what it may, `shared` what the request before had
    too. `added` is how many messages were new to the model, `left` how many it was not shown from here on.
    `cache_share` is how much of the input came from a cache, from 0 to 1. `produced` are the messages it answered with,
    by their seqs on the branch that it was asked on, and `uids` their names, which are the same on every branch.
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


class UnansweredView(Struct, frozen=True, kw_only=True):
    """A request that was not answered to its end, or one try of it: it is no part of what a model is taken to know.

    `request` is the number it would have had, `number` the one under which it can be looked at: null where it is not
    kept. `time` is when it left, `why` how it ended, in words, and `seq` and `uid` the message that has what came of
    the answer. What nobody knows is null.
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


class Totals(Struct, frozen=True, kw_only=True):
    """Of all requests. Tokens and `cost` are those of requests that were not answered too, which are counted apart in
    `unanswered`; of a whole conversation, `cost` has that of summaries too. It is null where nothing is known of it.
    """

    requests: int
    input: int
    output: int
    cache_read: int
    cost: float | None
    epochs: int
    unanswered: int


class Timeline(Struct, frozen=True, kw_only=True):
    channels: list[ChannelView]
    requests: list[Step]
    unanswered: list[UnansweredView]
    totals: Totals


@endpoint("GET", "/conversations/{name}/timeline")
def show_timeline(desk: Desk, name: str, query: Which) -> Timeline:
    """Every request of a conversation, oldest first: tokens, cost, cache and epochs; and those without an answer."""
    views = channel_views(desk.store, name)
    only = channel_at(desk.store, name, query.channel) if query.channel else None
    moments = timeline(desk.store, name, only)
    lost = unanswered(desk.store, name, only)
    return Timeline(
        channels=views,
        requests=[_step(each) for each in moments],
        unanswered=[_unanswered(each) for each in lost],
        totals=_totals(moments, lost, [] if only is not None else desk.store.turns(name)),
    )


def _step(moment: Moment) -> Step:
    channel, record, usage = moment.channel, moment.record, moment.record.usage
    return Step(
        channel=channel_id(channel),
        request=record.request,
        epoch=record.epoch,
        why=record.why,
        mode=record.mode,
        time=record.time,
        turn=moment.turn,
        step=moment.step,
        seq=record.tip,
        model=f"{channel.provider}:{channel.model}",
        input=usage.input if usage else None,
        output=usage.output if usage else None,
        cache_read=usage.cache_read if usage else None,
        cache_write=usage.cache_write if usage else None,
        reasoning=usage.reasoning if usage else None,
        cost=moment.cost,
        cache_share=min(1.0, round(usage.cache_read / usage.input, 4)) if usage and usage.input else None,
        used=record.figures.input,
        available=record.figures.room,
        window=record.budget.window,
        shared=record.shared_tokens,
        added=record.new,
        left=len(record.left) + record.skipped,
        produced=[where & SEQ_MASK for where in record.produced],
        uids=[*moment.uids],
    )


def _unanswered(found: Unanswered) -> UnansweredView:
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


def _totals(moments: list[Moment], lost: list[Unanswered], turns: list[TurnRecord]) -> Totals:
    used = [moment.record.usage for moment in moments if moment.record.usage is not None]
    used += [each.usage for each in lost if each.usage is not None]
    return Totals(
        requests=len(moments),
        input=sum(usage.input for usage in used),
        output=sum(usage.output for usage in used),
        cache_read=sum(usage.cache_read for usage in used),
        cost=summed_cost(moments, lost, turns),
        epochs=sum(bool(moment.record.why) for moment in moments),
        unanswered=len(lost),
    )

"""Requests without a complete answer: cancelled, refused, interrupted, or lost with their process.

The ledger does not contain them, because it is unknown how much of such a request the model received. Their steps are
stored, and a channel has its last open attempt. The request is stored beside the ledger, unless its process ended
before that, or it has been redacted since.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from contextc.compiler.ledger import repository
from contextc.compiler.ledger.repository import OpenAttempt
from contextc.compiler.past_requests import find_channel_model
from contextc.inspection.request_timeline import TimelineEntry, load_timeline
from contextc.messages import Usage
from contextc.models import cost as cost_of
from contextc.store import Store
from contextc.store.ledger_schema import Channel
from contextc.store.turn_and_event_records import StepRecord, TurnRecord

CANCELLED = "cancelled"
REASON_TEXTS = {CANCELLED: "It was stopped.", "": "The reason is unknown."}
OPEN_TEXT = "No answer is stored. The request may still be in progress."
CLASS_PREFIX = re.compile(r"\b[A-Z]\w*+: (?=.)", re.DOTALL)


class UnansweredRequest(NamedTuple):
    """One request without an answer, or one attempt of it.

    `request` is the number it would have had. `seq` and `uid` identify the message with the partial answer. `time` is
    when it was sent. `number` is the number under which it can be inspected. Unknown values are None: for a request
    that no executor made, only the channel's data is known.
    """

    channel: Channel
    request: int
    why: str
    time: int | None = None
    turn: int | None = None
    step: int | None = None
    seq: int | None = None
    usage: Usage | None = None
    uid: str = ""
    number: int | None = None
    cost: float | None = None


def load_unanswered_requests(store: Store, conversation: str, only: Channel | None = None) -> list[UnansweredRequest]:
    """Return the unanswered requests of a conversation, oldest first, of one channel or all. Raises
    `UnknownConversation`.

    Requests that are still running are not included.
    """
    turns = {turn.number: turn for turn in store.turns(conversation)}
    steps = store.steps(conversation)
    channels = store.read(lambda tx: repository.load_channels(tx, conversation))
    known = [(channel, attempt) for _, channel, _, attempt in channels]
    found: list[UnansweredRequest] = []
    listed: set[tuple[Channel, int]] = set()
    for step in steps:
        turn = turns.get(step.turn)
        agent = turn.agent if turn is not None else ""
        channel = _channel(known, step, agent) or Channel(conversation, agent, step.provider, step.model)
        is_running = step.state == "started" and turn is not None and turn.state == "running"
        if step.state != "finished":
            listed.add((channel, step.request))
        if step.state == "finished" or is_running:
            continue
        found.append(
            UnansweredRequest(
                channel,
                step.request,
                describe_error(step.error),
                step.started,
                step.turn,
                step.index,
                step.seq or None,
                step.usage,
                step.uid,
                step.kept or None,
                _compute_cost(channel, step.usage),
            )
        )
    by_hand = [
        UnansweredRequest(
            channel,
            attempt.request,
            describe_error(attempt.error) if attempt.error else OPEN_TEXT,
            number=attempt.kept or None,
        )
        for channel, attempt in known
        if attempt is not None and (channel, attempt.request) not in listed
    ]
    return [each for each in (*found, *by_hand) if only in (None, each.channel)]


def compute_total_cost(store: Store, conversation: str) -> float | None:
    """Return the cost of a conversation in dollars; None if no cost is known."""
    moments = load_timeline(store, conversation, with_uids=False)
    return sum_costs(moments, load_unanswered_requests(store, conversation), store.turns(conversation))


def sum_costs(
    moments: Iterable[TimelineEntry], lost: Iterable[UnansweredRequest], turns: Iterable[TurnRecord]
) -> float | None:
    """Return the total cost of answered and unanswered requests, and of the summaries made during turns."""
    known = [(each.turn, each.cost) for each in (*moments, *lost) if each.cost is not None]
    by_turn: dict[int | None, float] = {}
    for turn, cost in known:
        by_turn[turn] = by_turn.get(turn, 0.0) + cost
    for turn in turns:
        if turn.cost is not None:
            by_turn[turn.number] = max(by_turn.get(turn.number, 0.0), turn.cost)
    return sum(by_turn.values()) if by_turn else None


def _compute_cost(channel: Channel, usage: Usage | None) -> float | None:
    model = find_channel_model(channel) if usage is not None else None
    return cost_of(model, usage) if model is not None and usage is not None else None


def _channel(known: Sequence[tuple[Channel, OpenAttempt | None]], step: StepRecord, agent: str) -> Channel | None:
    """Return the channel of a step. A step has no directory, so of several channels the one with that open request is
    used.
    """
    names = (agent, step.provider, step.model)
    same = [(channel, open) for channel, open in known if (channel.agent, channel.provider, channel.model) == names]
    is_open = (channel for channel, open in same if open is not None and open.request == step.request)
    return next(is_open, same[-1][0] if same else None)


def describe_error(error: str) -> str:
    """Return the reason of an error, without the name of our exception class."""
    return REASON_TEXTS.get(error) or CLASS_PREFIX.sub("", error, count=1)

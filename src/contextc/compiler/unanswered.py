"""Requests that were not answered to their end: stopped by a person, refused, broken off, or lost with their process.

The ledger holds none of them, because nobody knows what of such a request a model has taken in. Their steps are in the
store all the same, and a channel has the last of its own that is still open; so they can be told. What was sent is kept
beside the ledger, except where its process ended before it could be, or where it was redacted since.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from contextc.compiler.account import model_of
from contextc.compiler.timeline import Moment, timeline
from contextc.ledger import book
from contextc.ledger.book import OpenAttempt
from contextc.ledger.standing import Channel
from contextc.messages import Usage
from contextc.models import cost as cost_of
from contextc.store import Store
from contextc.store.turns import StepRecord, TurnRecord

CANCELLED = "cancelled"
WORDS = {CANCELLED: "It was stopped.", "": "Why is no longer known."}
OPEN = "No answer is stored; it may still be on its way."
CLASS = re.compile(r"[A-Z]\w*: (?=.)", re.DOTALL)


class Unanswered(NamedTuple):
    """One such request, or one try of it. `request` is the number it would have had, and `seq` and `uid` the message
    that has what came of the answer; `time` is when it left. `number` is the number under which it can be looked at.
    What nobody knows is None: of a request that was made by hand, everything but what its channel knows.
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


def unanswered(store: Store, conversation: str, only: Channel | None = None) -> list[Unanswered]:
    """Those of a conversation, oldest first; on one channel or on all. Raises `UnknownConversation`.

    What is still running is none of them.
    """
    turns = {turn.number: turn for turn in store.turns(conversation)}
    steps = store.steps(conversation)
    channels = store.read(lambda tx: book.channels(tx, conversation))
    known = [(channel, attempt) for _, channel, _, attempt in channels]
    found: list[Unanswered] = []
    told: set[tuple[Channel, int]] = set()
    for step in steps:
        turn = turns.get(step.turn)
        agent = turn.agent if turn is not None else ""
        channel = _channel(known, step, agent) or Channel(conversation, agent, step.provider, step.model)
        is_running = step.state == "started" and turn is not None and turn.state == "running"
        if step.state != "finished":
            told.add((channel, step.request))
        if step.state == "finished" or is_running:
            continue
        found.append(
            Unanswered(
                channel,
                step.request,
                _said(step.error),
                step.started,
                step.turn,
                step.index,
                step.seq or None,
                step.usage,
                step.uid,
                step.kept or None,
                _price(channel, step.usage),
            )
        )
    by_hand = [
        Unanswered(
            channel, attempt.request, _said(attempt.error) if attempt.error else OPEN, number=attempt.kept or None
        )
        for channel, attempt in known
        if attempt is not None and (channel, attempt.request) not in told
    ]
    return [each for each in (*found, *by_hand) if only in (None, each.channel)]


def total_cost(store: Store, conversation: str) -> float | None:
    """What a conversation has cost in dollars; None where that is known of nothing in it."""
    moments = timeline(store, conversation, with_uids=False)
    return summed_cost(moments, unanswered(store, conversation), store.turns(conversation))


def summed_cost(moments: Iterable[Moment], lost: Iterable[Unanswered], turns: Iterable[TurnRecord]) -> float | None:
    """What all of these cost together: answered or not, and the summaries that turns had made on the way."""
    known = [(each.turn, each.cost) for each in (*moments, *lost) if each.cost is not None]
    by_turn: dict[int | None, float] = {}
    for turn, cost in known:
        by_turn[turn] = by_turn.get(turn, 0.0) + cost
    for turn in turns:
        if turn.cost is not None:
            by_turn[turn.number] = max(by_turn.get(turn.number, 0.0), turn.cost)
    return sum(by_turn.values()) if by_turn else None


def _price(channel: Channel, usage: Usage | None) -> float | None:
    model = model_of(channel) if usage is not None else None
    return cost_of(model, usage) if model is not None and usage is not None else None


def _channel(known: Sequence[tuple[Channel, OpenAttempt | None]], step: StepRecord, agent: str) -> Channel | None:
    """The channel of a step, which does not say its directory: of several, the one where that request is open."""
    names = (agent, step.provider, step.model)
    same = [(channel, open) for channel, open in known if (channel.agent, channel.provider, channel.model) == names]
    is_open = (channel for channel, open in same if open is not None and open.request == step.request)
    return next(is_open, same[-1][0] if same else None)


def _said(error: str) -> str:
    """Why it ended, without the name of our exception."""
    return WORDS.get(error) or CLASS.sub("", error, count=1)

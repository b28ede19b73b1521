"""Requests that were not answered to their end: stopped by a person, refused, broken off, or lost with their process.

The ledger holds none of them, because nobody knows what of such a request a model has taken in. Their steps are in the
store all the same, and a channel has the last of its own that is still open; so they can be told.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from contextc.ledger import book
from contextc.ledger.book import OpenAttempt
from contextc.ledger.standing import Channel
from contextc.messages import Usage
from contextc.store import Store
from contextc.store.turns import StepRecord

CANCELLED = "cancelled"
WORDS = {CANCELLED: "It was stopped.", "": "Why is no longer known."}
OPEN = "No answer is stored; it may still be on its way."
CLASS = re.compile(r"[A-Z]\w*: (?=.)", re.DOTALL)


class Unanswered(NamedTuple):
    """One such request, or one try of it. `request` is the number it would have had, and `seq` the message that has
    what came of the answer; `time` is when it left. What nobody knows is None: of a request that was made by hand,
    everything but what its channel knows.
    """

    channel: Channel
    request: int
    why: str
    time: int | None = None
    turn: int | None = None
    step: int | None = None
    seq: int | None = None
    usage: Usage | None = None


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
            )
        )
    by_hand = [
        Unanswered(channel, attempt.request, _said(attempt.error) if attempt.error else OPEN)
        for channel, attempt in known
        if attempt is not None and (channel, attempt.request) not in told
    ]
    return [each for each in (*found, *by_hand) if only in (None, each.channel)]


def _channel(known: Sequence[tuple[Channel, OpenAttempt | None]], step: StepRecord, agent: str) -> Channel | None:
    """The channel of a step, which does not say its directory: of several, the one where that request is open."""
    names = (agent, step.provider, step.model)
    same = [(channel, open) for channel, open in known if (channel.agent, channel.provider, channel.model) == names]
    is_open = (channel for channel, open in same if open is not None and open.request == step.request)
    return next(is_open, same[-1][0] if same else None)


def _said(error: str) -> str:
    """Why it ended, without the name of our exception."""
    return WORDS.get(error) or CLASS.sub("", error, count=1)

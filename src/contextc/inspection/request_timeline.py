"""All requests of a conversation: answered ones with turn and step, those without an answer, those of sub-agents."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from contextc.compiler import ledger
from contextc.compiler.ledger import OpenAttempt
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.compiler.past_requests import find_channel_model
from contextc.inspection.request_details import load_request_details
from contextc.messages import Usage
from contextc.models import cost as cost_of
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_list import ObservedSource, ObservedThread, ParentRequest, load_thread_tree
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    find_message,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
)
from contextc.store.turn_and_event_records import StepRecord, TurnRecord

BLOCK_SIZE = 512


class TimelineEntry(NamedTuple):
    """One request. `turn` and `step` are None if no executor made it; `cost` is None if it is unknown.

    `uids` are the uids of the messages it produced, in order. Unlike a seq, a uid belongs to one branch. A message that
    no longer exists has "".
    """

    channel: Channel
    record: RequestRecord
    turn: int | None
    step: int | None
    cost: float | None
    uids: tuple[str, ...]


class _UidOnly(msgspec.Struct):
    """The uid of a message. Other fields are not decoded."""

    uid: str


def load_timeline(
    store: Store, conversation: str, only: Channel | None = None, *, with_uids: bool = True
) -> list[TimelineEntry]:
    """Return the requests of a conversation, oldest first, of one channel or all. Raises `UnknownConversation`."""

    def work(tx: Transaction) -> tuple[list[tuple[Channel, list[RequestRecord]]], dict[int, str]]:
        asked = [
            (channel, [record_from_json(body) for body in reversed(ledger.load_manifests(tx, number))])
            for number, channel, *_ in ledger.load_channels(tx, conversation)
            if only in (None, channel)
        ]
        produced = [where for _, records in asked for record in records for where in record.produced]
        return asked, _load_uids(tx, produced) if with_uids else {}

    made_for = _load_steps(store, conversation)
    found: list[TimelineEntry] = []
    asked, names = store.read(work)
    for channel, records in asked:
        known = find_channel_model(channel)
        for record in records:
            step = _find_step(made_for, channel, record)
            usage = step.usage if step is not None and step.usage is not None else record.usage
            spent = cost_of(known, usage) if known is not None and usage is not None else None
            uids = tuple([names.get(where, "") for where in record.produced])
            found.append(
                TimelineEntry(channel, record, step.turn if step else None, step.index if step else None, spent, uids),
            )
    return sorted(found, key=lambda moment: moment.record.time)


def _load_uids(tx: Transaction, places: Iterable[int]) -> dict[int, str]:
    """Return the uids of messages by place. Unreadable messages are skipped."""
    wanted, found, decoder = list(places), dict[int, str](), msgspec.json.Decoder(_UidOnly)
    for start in range(0, len(wanted), BLOCK_SIZE):
        some = wanted[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        for where, body in tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *some):
            with suppress(*DECODE_ERRORS):
                found[where] = decoder.decode(body).uid
    return found


def _load_steps(store: Store, conversation: str) -> dict[tuple[object, ...], list[StepRecord]]:
    """Return the steps by agent, provider, model and request number."""
    agents = {turn.number: turn.agent for turn in store.turns(conversation)}
    found: dict[tuple[object, ...], list[StepRecord]] = {}
    for step in store.steps(conversation):
        key = (agents.get(step.turn, ""), step.provider, step.model, step.request)
        found.setdefault(key, []).append(step)
    return found


def _find_step(
    made_for: dict[tuple[object, ...], list[StepRecord]], channel: Channel, record: RequestRecord
) -> StepRecord | None:
    """Return the step of a request: the one that has its reply, because failed attempts had the same request number."""
    steps = made_for.get((channel.agent, channel.provider, channel.model, record.request), [])
    seqs = {where & SEQ_MASK for where in record.produced}
    return next((step for step in reversed(steps) if step.seq in seqs), None)


# ── requests without an answer ────────────────────────────────────────────────────────────────────────────────────────
# Requests without a complete answer: cancelled, refused, interrupted, or lost with their process.
#
# The ledger does not contain them, because it is unknown how much of such a request the model received. Their steps
# are stored, and a channel has its last open attempt. The request is stored beside the ledger, unless its process
# ended before that, or it has been redacted since.


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
    channels = store.read(lambda tx: ledger.load_channels(tx, conversation))
    known = [(channel, attempt) for _, channel, _, attempt in channels]
    found: list[UnansweredRequest] = []
    listed: set[tuple[Channel, int]] = set()
    for step in steps:
        turn = turns.get(step.turn)
        agent = turn.agent if turn is not None else ""
        channel = _find_channel(known, step, agent) or Channel(conversation, agent, step.provider, step.model)
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
                compute_request_cost(channel, step.usage),
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


def compute_request_cost(channel: Channel, usage: Usage | None) -> float | None:
    model = find_channel_model(channel) if usage is not None else None
    return cost_of(model, usage) if model is not None and usage is not None else None


def _find_channel(known: Sequence[tuple[Channel, OpenAttempt | None]], step: StepRecord, agent: str) -> Channel | None:
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


# ── sub-agents ────────────────────────────────────────────────────────────────────────────────────────────────────────
# The sub-agents of an observed conversation: when each began and ended, its requests and its cost.


class SubAgent(NamedTuple):
    """One conversation of a session. `parent` is the name of the conversation above it, "" for the main one.

    `request` is the request of that conversation during which it began. `began` and `ended` are Unix milliseconds;
    None if they are unknown. `failed` is the number of requests without a complete answer. Tokens are those that the
    provider reported.
    """

    name: str
    source: ObservedSource
    parent: str
    request: ParentRequest | None
    began: int | None
    ended: int | None
    requests: int
    failed: int
    input: int
    output: int
    cost: float | None


def load_sub_agents(store: Store, conversation: str) -> list[SubAgent]:
    """Return the main conversation of a session and its sub-agents, parents first. Raises `UnknownConversation`.

    The list is empty if no other software made the conversation.
    """
    threads = store.read(lambda tx: load_thread_tree(tx, load_tip(tx, conversation).conversation))
    return [_summarize(each, load_timeline(store, each.name, with_uids=False)) for each in threads]


def _summarize(thread: ObservedThread, requests: list[TimelineEntry]) -> SubAgent:
    facts = [each.record.observed for each in requests if each.record.observed is not None]
    began = [each.began for each in facts if each.began]
    ended = [each.ended or each.began for each in facts if each.ended or each.began]
    used = [each.record.usage for each in requests if each.record.usage is not None]
    costs = [each.cost for each in requests if each.cost is not None]
    return SubAgent(
        name=thread.name,
        source=thread.source,
        parent=thread.parent,
        request=thread.request,
        began=min(began, default=None),
        ended=max(ended, default=None),
        requests=len(requests),
        failed=len([each for each in facts if each.status != "ok"]),
        input=sum([each.input for each in used]),
        output=sum([each.output for each in used]),
        cost=sum(costs) if costs else None,
    )


# ── the request of a message ──────────────────────────────────────────────────────────────────────────────────────────
# The request that a message is in: the first one that contains it, or the one whose reply it is.


MAX_TRIED = 8
"""Requests whose messages are read. A message that none of them contains was left out."""


class RequestOfMessage(NamedTuple):
    """A request, and the number of the line with the message; None if the message is its reply."""

    channel: Channel
    request: int
    line: int | None


def find_request_of_message(store: Store, conversation: str, seq: int) -> RequestOfMessage | None:
    """Return the first request that contains a message of the current branch; None if there is none.

    A message that was left out of all requests has a line in the first request after it. Raises `UnknownConversation`
    and `UnknownMessage`.
    """
    entries = load_timeline(store, conversation, with_uids=False)

    def work(tx: Transaction) -> tuple[int, list[TimelineEntry]]:
        tip = load_tip(tx, conversation)
        found = find_message(tx, conversation, tip, seq)
        place = make_place(found.branch, found.seq)
        ends = {branch: load_lineage(tx, branch) for branch in {each.record.branch for each in entries}}
        return place, [each for each in entries if _covers(ends[each.record.branch], each.record.tip, place)]

    place, after = store.read(work)
    left_out: RequestOfMessage | None = None
    for each in after[:MAX_TRIED]:
        details = load_request_details(store, each.channel, each.record.request)
        lines = [item.place for item in details.items]
        if place in lines:
            return RequestOfMessage(each.channel, each.record.request, lines.index(place))
        hidden = details.left_out_places if left_out is None else []
        if place in hidden:
            left_out = RequestOfMessage(each.channel, each.record.request, len(lines) + hidden.index(place))
    if left_out is not None:
        return left_out
    made = next((each for each in entries if place in each.record.produced), None)
    return RequestOfMessage(made.channel, made.record.request, None) if made is not None else None


def _covers(lineage: list[tuple[int, int]], tip: int, place: int) -> bool:
    """Return True if a place is on a branch up to its message `tip`."""
    branch, seq = place >> SEQ_BITS, place & SEQ_MASK
    return any([number == branch and first <= seq <= last for number, first, last in split_by_branch(lineage, 0, tip)])

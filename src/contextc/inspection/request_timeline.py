"""The requests of a conversation: answered ones, those without an answer, those of sub-agents; and their replies.

`SentRequest` is the model of a request. Everything that shows or analyses requests is made from it.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from contextc.compiler import ledger
from contextc.compiler.ledger import OpenAttempt
from contextc.compiler.manifest import ObservedFacts, RequestRecord, record_from_json
from contextc.compiler.past_requests import compute_usage_bill, find_channel_model, find_request
from contextc.events import AnyEvent, ErrorOccurred, FailureDetails, RetryScheduled, StepFinish
from contextc.inspection.prefix_break import find_retried
from contextc.inspection.request_details import load_request_details
from contextc.messages import BilledCall, Message, Usage
from contextc.models import Bill, Model, bill
from contextc.store import Store
from contextc.store.conversation_list import ConversationThread, ParentRequest, load_thread_tree
from contextc.store.ledger_schema import Channel, channel_id
from contextc.store.message_log import (
    DECODE_ERRORS,
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    decode_message_rows,
    find_by_name,
    find_message,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
)
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import StepRecord, TurnRecord, load_events, load_last_number

BLOCK_SIZE = 512
T = TypeVar("T")


# ── a request ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SentRequest:
    """One request of a channel: its record, and the step of a turn that sent it; None if no executor did.

    `number` is its number on its channel. `began` and `ended` are Unix milliseconds. The begin of a request of our own
    is not known if it was committed without one. `status` is `ok`, `error`, `unfinished`, `unanswered` or `unrecorded`.
    """

    def __init__(
        self, channel: Channel, number: int, record: RequestRecord, step: StepRecord | None, model: Model | None
    ) -> None:
        self.channel, self.number, self.record, self.step, self.model = channel, number, record, step, model

    def __repr__(self) -> str:
        return f"<request {self.number} of {self.channel}: {self.status}>"

    @property
    def scope(self) -> tuple[str, str]:
        """Provider and model, which have a cache of their own."""
        return self.channel.provider, self.channel.model

    @property
    def turn(self) -> int | None:
        """The number of the turn that sent it."""
        return self.step.turn if self.step is not None else None

    @cached_property
    def usage(self) -> Usage | None:
        """The usage as the provider reported it; None if it reported none."""
        return self.step.usage if self.step is not None and self.step.usage is not None else self.record.usage

    @cached_property
    def bill(self) -> Bill | None:
        """The bill of the request; None if its model or its usage is not known."""
        return bill(self.model, self.usage) if self.model is not None and self.usage is not None else None

    @cached_property
    def cost(self) -> float | None:
        """The cost of the request in dollars; None if it is not known."""
        return self.bill.dollars if self.bill is not None else None

    @property
    def cost_is_lower_bound(self) -> bool:
        """True if the request cost at least `cost`, because a factor of its price is not known."""
        return self.bill is not None and self.bill.is_lower_bound

    @cached_property
    def observed(self) -> ObservedFacts | None:
        """The facts of a request that other software made; None for a request of contextc."""
        return self.record.observed

    @cached_property
    def began(self) -> int:
        if self.observed is not None and self.observed.began:
            return self.observed.began
        return (self.step.started if self.step is not None else 0) or self.record.began or self.record.time

    @property
    def stated_began(self) -> int:
        """`began`, or 0 if the file that the request was imported from states no time."""
        return 0 if self.observed is not None and self.observed.untimed else self.began

    @cached_property
    def ended(self) -> int:
        if self.observed is not None:
            return self.observed.ended or self.began
        if self.step is not None and self.step.started and self.step.milliseconds:
            return self.step.started + self.step.milliseconds
        return self.record.time or self.began

    @property
    def latency(self) -> int | None:
        """Milliseconds until the reply ended; None if they are not known."""
        if self.observed is not None:
            return self.observed.latency
        return (self.step.milliseconds or None) if self.step is not None else self.record.latency

    @property
    def first_chunk(self) -> int | None:
        """Milliseconds until the first part of the reply arrived; None if they are not known."""
        known = self.observed or self.step
        return known.first_chunk if known is not None else None

    @property
    def is_begin_known(self) -> bool:
        """False if only the time of the reply is known."""
        return self.observed is not None or bool((self.step is not None and self.step.started) or self.record.began)

    @cached_property
    def status(self) -> str:
        """The state of the request: `ok`, `unanswered`, or the status of an observed one."""
        if self.observed is not None:
            return self.observed.status
        return "unanswered" if self.number > FIRST_UNANSWERED else "ok"

    @property
    def has_failed(self) -> bool:
        """True if the answer is missing or incomplete. False if it was not recorded, because that is then unknown."""
        return self.observed.has_failed if self.observed is not None else self.status != "ok"

    @property
    def is_answered(self) -> bool:
        """True if the provider accepted the request."""
        return self.observed.is_answered if self.observed is not None else self.status == "ok"

    @property
    def is_session(self) -> bool:
        """True if the provider keeps the messages in a session: the request contains only a part of its input."""
        return self.record.mode == "resume" or bool(self.record.session)

    @cached_property
    def is_without_answer(self) -> bool:
        """True if a request only counted tokens, or continues a session of the provider."""
        return (self.usage is None and self.record.is_token_count) or self.is_session


class ReportedUsage(Struct, frozen=True, kw_only=True):
    """Usage as reported by a provider. `cache_read` and `cache_write` are parts of `input`, `reasoning` of `output`.

    `cache_write_long` is the part of `cache_write` that is kept longer than by default. `tier`, `speed` and `region`
    are empty for the standard ones, `model` is the model that answered in place of the requested one, and `calls` are
    model calls that the provider bills beside these tokens.
    """

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cache_write_long: int = 0
    tier: str = ""
    speed: str = ""
    region: str = ""
    model: str = ""
    calls: tuple[BilledCall, ...] = ()


def to_reported_usage(usage: Usage | None) -> ReportedUsage | None:
    if usage is None:
        return None
    return ReportedUsage(**{name: getattr(usage, name) for name in ReportedUsage.__struct_fields__})


# ── the steps that sent requests ──────────────────────────────────────────────────────────────────────────────────────


Steps: TypeAlias = Mapping[tuple[str, str, str, int], list[StepRecord]]
"""The steps of turns by agent, provider, model and request number."""


def load_step_index(store: Store, conversation: str) -> Steps:
    """Return the steps of a conversation. Raises `UnknownConversation`."""
    return index_steps(store.turns(conversation), store.steps(conversation))


def index_steps(turns: Iterable[TurnRecord], steps: Iterable[StepRecord]) -> Steps:
    agents = {turn.number: turn.agent for turn in turns}
    found: dict[tuple[str, str, str, int], list[StepRecord]] = {}
    for step in steps:
        found.setdefault((agents.get(step.turn, ""), step.provider, step.model, step.request), []).append(step)
    return found


def list_attempts(steps: Steps, channel: Channel, request: int) -> list[StepRecord]:
    """Return the steps that sent a request: its attempts, the failed ones too."""
    return steps.get((channel.agent, channel.provider, channel.model, request), [])


def find_step(
    steps: Steps, channel: Channel, request: int, produced: Iterable[int], number: int = 0
) -> StepRecord | None:
    """Return the step of a request: the one that has its reply, because failed attempts had the same request number.

    `number` is that of a request without an answer.
    """
    some = list_attempts(steps, channel, request)
    if number > FIRST_UNANSWERED:
        return next((step for step in some if step.kept == number), None)
    seqs = {where & SEQ_MASK for where in produced} if some else ()
    return next((step for step in reversed(some) if step.seq in seqs), None)


# ── all requests with an answer ───────────────────────────────────────────────────────────────────────────────────────


class ChannelRecords:
    """The records of the requests of one channel. Those that were added are read, and all again if one has changed:
    an import may complete a manifest. All others change with the revision of the conversation only.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.records: list[RequestRecord] = []
        self._unfinished: dict[int, bytes] = {}

    def update(self, tx: Transaction) -> int:
        """Return the number of records that were known and have not changed."""
        if any(
            [ledger.load_manifests(tx, self._number, at, limit=1) != [body] for at, body in self._unfinished.items()]
        ):
            self.records, self._unfinished = [], {}
        kept = len(self.records)
        stored = ledger.load_manifests(tx, self._number, after=self.records[-1].request if kept else -1)[::-1]
        added = [record_from_json(body) for body in stored]
        for body, record in zip(stored, added, strict=True):
            if record.observed is not None and record.observed.status != "ok":
                self._unfinished[record.request] = body
        self.records += added
        return kept


class KeepsResults:
    """An object with which others keep what they computed. `forget` is called if it changed other than at its end."""

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}

    def keep(self, kind: Callable[[Self], T]) -> T:
        """Return the object that a class made of this one when it was asked for first."""
        if kind not in self._kept:
            self._kept[kind] = kind(self)
        return cast(T, self._kept[kind])

    def forget(self) -> None:
        """Discard everything that is kept."""
        self._kept.clear()


class Timeline(KeepsResults):
    """The requests of a conversation. Later loads read only those that were added since."""

    def __init__(self, store: Store, conversation: str) -> None:
        super().__init__()
        self.store, self._conversation = store, conversation
        self._clear()

    def _clear(self) -> None:
        self.forget()
        self._revision: tuple[int, int] | None = None
        self._records: dict[int, ChannelRecords] = {}
        self.channels: dict[Channel, list[SentRequest]] = {}
        """The requests of each channel in their order."""

    def load(self) -> list[SentRequest]:
        """Return the requests, oldest first. Raises `UnknownConversation`."""
        steps = load_step_index(self.store, self._conversation)
        try:
            self.store.read(lambda tx: self._read(tx, steps))
        except BaseException:
            self._clear()
            raise
        return sorted(chain.from_iterable(self.channels.values()), key=lambda each: each.record.time)

    def _read(self, tx: Transaction, steps: Steps) -> None:
        tip = load_tip(tx, self._conversation)
        if (tip.conversation, tip.revision) != self._revision:
            self._clear()
            self._revision = tip.conversation, tip.revision
        before, self.channels = self.channels, {}
        for number, channel, *_ in ledger.load_channels(tx, self._conversation):
            known = self._records.setdefault(number, ChannelRecords(number))
            requests = self.channels[channel] = before.get(channel, [])
            kept = known.update(tx)
            is_same = not steps or all(
                [find_step(steps, channel, each.number, each.record.produced) == each.step for each in requests]
            )
            if kept < len(requests) or not is_same:
                self.forget()
                requests.clear()
            model = find_channel_model(channel)
            for each in known.records[len(requests) :]:
                step = find_step(steps, channel, each.request, each.produced)
                requests.append(SentRequest(channel, each.request, each, step, model))


def load_timeline(store: Store, conversation: str) -> list[SentRequest]:
    """Return the requests of a conversation, oldest first. Raises `UnknownConversation`."""
    return Timeline(store, conversation).load()


class PartName(Struct):
    """The type of a part, and the name of the tool that it calls. Other fields are not decoded."""

    type: str = ""
    name: str = ""


class ProducedMessage(Struct):
    """The uid of a message and the tools that it calls. Unlike a seq, a uid belongs to one branch."""

    uid: str
    parts: list[PartName] = []

    @property
    def called(self) -> list[str]:
        """The names of the tools that the message calls."""
        return [each.name for each in self.parts if each.type == "tool_call"]


def load_produced(store: Store, requests: Iterable[SentRequest]) -> dict[int, ProducedMessage]:
    """Return the messages that requests produced, by place."""
    places = [where for each in requests for where in each.record.produced]
    return store.read(lambda tx: decode_messages_at(tx, places, ProducedMessage)) if places else {}


def decode_messages_at(tx: Transaction, places: Sequence[int], kind: type[T]) -> dict[int, T]:
    """Return messages by place, decoded as a type that has only the fields that are needed. Unreadable messages are
    skipped.
    """
    found, decoder = dict[int, T](), msgspec.json.Decoder(kind)
    for start in range(0, len(places), BLOCK_SIZE):
        some = places[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        for where, body in tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({marks})", *some):
            with suppress(*DECODE_ERRORS):
                found[where] = decoder.decode(body)
    return found


# ── while it grows ────────────────────────────────────────────────────────────────────────────────────────────────────
# Conversations that are read again and again while they grow.


class RecentConversations(Generic[T]):
    """The most recently used conversations, each with what is kept of it. It can be used by several threads."""

    def __init__(self, make: Callable[[str], T], limit: int) -> None:
        self._make, self._limit = make, limit
        self._entries: OrderedDict[str, tuple[T, Lock]] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def open(self, name: str, *, waits: bool = True) -> Generator[T]:
        """Return what is kept of a conversation, for one thread at a time. After an error, nothing of it is kept.

        If another thread has it, one that does not wait gets a new one.
        """
        kept, lock = self._find(name)
        if not lock.acquire(blocking=waits):
            yield self._make(name)
            return
        try:
            yield kept
        except BaseException:
            with self._lock:
                if name in self._entries and self._entries[name][0] is kept:
                    del self._entries[name]
            raise
        finally:
            lock.release()

    def _find(self, name: str) -> tuple[T, Lock]:
        with self._lock:
            entry = self._entries.pop(name, None) or (self._make(name), Lock())
            self._entries[name] = entry
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return entry


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


class UnansweredRequest(Struct, frozen=True, kw_only=True):
    """A request, or one attempt of it, without a complete answer. It does not count as sent to the model.

    `channel` is the id of its channel, and `request` the number that it would have had. `time` is when it was sent and
    `why` how it ended, as text. `seq` and `uid` are the message with the partial answer. `number` is the number to
    inspect it by; None if it is not stored. Unknown values are None: for a request that no executor made, only the
    channel's data is known.
    """

    channel: str
    request: int
    time: int | None
    turn: int | None
    step: int | None
    model: str
    why: str
    seq: int | None
    usage: ReportedUsage | None
    uid: str
    number: int | None
    cost: float | None
    cost_is_lower_bound: bool = False


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
        if step.state == "finished":
            continue
        listed.add((channel, step.request))
        dollars, is_lower_bound = compute_usage_bill(channel, step.usage) or (None, False)
        if not is_running and only in (None, channel):
            found.append(
                UnansweredRequest(
                    channel=channel_id(channel), request=step.request, time=step.started, turn=step.turn,
                    step=step.index, model=f"{channel.provider}:{channel.model}", why=describe_error(step.error),
                    seq=step.seq or None, usage=to_reported_usage(step.usage), uid=step.uid, number=step.kept or None,
                    cost=dollars, cost_is_lower_bound=is_lower_bound,
                )
            )  # fmt: skip
    for channel, attempt in known:
        if attempt is not None and (channel, attempt.request) not in listed and only in (None, channel):
            found.append(
                UnansweredRequest(
                    channel=channel_id(channel), request=attempt.request, time=None, turn=None, step=None,
                    model=f"{channel.provider}:{channel.model}",
                    why=describe_error(attempt.error) if attempt.error else OPEN_TEXT,
                    seq=None, usage=None, uid="", number=attempt.kept or None, cost=None,
                )
            )  # fmt: skip
    return found


def compute_total_cost(store: Store, conversation: str) -> Bill | None:
    """Return the cost of a conversation in dollars; None if no cost is known. Requests of unknown cost are not part of
    it.
    """
    moments = load_timeline(store, conversation)
    return sum_costs(moments, load_unanswered_requests(store, conversation), store.turns(conversation))


class RequestTotals(NamedTuple):
    """The figures of all requests of a conversation, as every list of them shows.

    `failed` requests have no complete answer; they are among the `requests`. Tokens are those that a provider
    reported: a request without usage adds none. `estimated` is the estimated input of those requests. `bill` is None if
    no cost is known.
    """

    requests: int
    failed: int
    input: int
    estimated: int
    output: int
    reasoning: int
    cache_read: int
    bill: Bill | None

    @property
    def cost(self) -> float | None:
        """The cost of all requests in dollars, with that of summaries; None if it is not known."""
        return self.bill.dollars if self.bill is not None else None

    @property
    def cost_is_lower_bound(self) -> bool:
        """True if they cost at least `cost`."""
        return self.bill is not None and self.bill.is_lower_bound


def load_totals(store: Store, conversation: str) -> RequestTotals:
    """Return the figures of a conversation. Raises `UnknownConversation`."""
    moments = load_timeline(store, conversation)
    return sum_requests(moments, load_unanswered_requests(store, conversation), store.turns(conversation))


def sum_requests(
    moments: Sequence[SentRequest], lost: Sequence[UnansweredRequest], turns: Iterable[TurnRecord]
) -> RequestTotals:
    """Return the figures of requests, answered and unanswered, and of the summaries made during turns."""
    used = [each.record.usage for each in moments if each.record.usage is not None]
    used += [each.usage for each in lost if each.usage is not None]
    return RequestTotals(
        requests=len(moments) + len(lost),
        failed=len([each for each in moments if each.has_failed]) + len(lost),
        input=sum([each.input for each in used]),
        estimated=sum([each.record.unreported_input for each in moments]),
        output=sum([each.output for each in used]),
        reasoning=sum([each.reasoning for each in used]),
        cache_read=sum([each.cache_read for each in used]),
        bill=sum_costs(moments, lost, turns),
    )


def sum_costs(
    moments: Iterable[SentRequest], lost: Iterable[UnansweredRequest], turns: Iterable[TurnRecord]
) -> Bill | None:
    """Return the total cost of answered and unanswered requests, and of the summaries made during turns."""
    by_turn: dict[int | None, float] = {}
    is_lower_bound = False
    for each in (*moments, *lost):
        if each.cost is not None:
            by_turn[each.turn] = by_turn.get(each.turn, 0.0) + each.cost
            is_lower_bound = is_lower_bound or each.cost_is_lower_bound
    for turn in turns:
        if turn.cost is not None:
            by_turn[turn.number] = max(by_turn.get(turn.number, 0.0), turn.cost)
            is_lower_bound = is_lower_bound or turn.cost_is_lower_bound
    return Bill(sum(by_turn.values()), is_lower_bound) if by_turn else None


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
# The sub-agents of an observed conversation, and agents that were called as tools: when each began and ended, its
# requests and its cost.


class SubAgent(Struct, frozen=True, kw_only=True):
    """One conversation of a session. `parent` is the name of the conversation above it, "" for the main one.

    `kind` is main, agent or side, and `agent` the client's own id of a sub-agent, or the name of an agent that was
    called as a tool. Then `client` is "", and `state` is that of its last turn: running, waiting, or why it has ended.
    `request` is the request of the conversation above during which it began. `began` and `ended` are Unix milliseconds;
    None if they are unknown. `failed` of the `requests` have no complete answer. Tokens are those that the
    provider reported; `estimated` is the estimated input of requests for which it reported none.
    """

    name: str
    title: str
    client: str
    kind: str
    agent: str
    parent: str
    request: ParentRequest | None
    began: int | None
    ended: int | None
    requests: int
    failed: int
    input: int
    output: int
    cost: float | None
    cost_is_lower_bound: bool = False
    state: str = ""
    estimated: int = 0


def load_sub_agents(
    store: Store, conversation: str, known: RecentConversations[Timeline] | None = None
) -> list[SubAgent]:
    """Return the main conversation of a session and its sub-agents, parents first. Raises `UnknownConversation`.

    The list is empty if no other software made the conversation, and no agent was called. `known` are timelines that
    are kept.
    """
    threads = store.read(lambda tx: load_thread_tree(tx, load_tip(tx, conversation).conversation))
    known = known or RecentConversations(lambda name: Timeline(store, name), 1)
    found: list[SubAgent] = []
    for each in threads:
        with known.open(each.name) as timeline:
            found.append(_summarize(store, each, timeline.load()))
    return found


def _summarize(store: Store, thread: ConversationThread, requests: Sequence[SentRequest]) -> SubAgent:
    turns = [] if thread.source.client else store.turns(thread.name)
    last = turns[-1] if turns else None
    facts = [each.observed for each in requests if each.observed is not None]
    began = [each.began for each in facts if each.began] + [each.started for each in turns if each.started]
    ended = [each.ended or each.began for each in facts if each.ended or each.began]
    ended += [each.ended for each in turns if each.ended]
    totals = sum_requests(requests, load_unanswered_requests(store, thread.name), turns)
    return SubAgent(
        name=thread.name,
        title=store.overview(thread.name).title,
        client=thread.source.client,
        kind=thread.source.kind,
        agent=thread.source.agent,
        parent=thread.parent,
        request=thread.request,
        began=min(began, default=None),
        ended=max(ended, default=None),
        requests=totals.requests,
        failed=totals.failed,
        input=totals.input,
        output=totals.output,
        cost=totals.cost,
        cost_is_lower_bound=totals.cost_is_lower_bound,
        state="" if last is None else last.finish if last.state == "finished" else last.state,
        estimated=totals.estimated,
    )


# ── the request of a message ──────────────────────────────────────────────────────────────────────────────────────────
# The request that a message is in: the first one that contains it, or the one whose reply it is.


MAX_TRIED = 8
"""Requests whose messages are read. A message that none of them contains was left out."""


class RequestOfMessage(Struct, frozen=True, kw_only=True):
    """A request, by the id of its channel, and the index of the line with the message; None if the message is its
    reply. `channel` is "" and `request` 0 if no request contains it.
    """

    channel: str
    request: int
    line: int | None


def find_request_of_message(store: Store, conversation: str, seq: int) -> RequestOfMessage:
    """Return the first request that contains a message of the current branch.

    A message that was left out of all requests has a line in the first request after it. Raises `UnknownConversation`
    and `UnknownMessage`.
    """
    entries = load_timeline(store, conversation)

    def work(tx: Transaction) -> tuple[int, list[SentRequest]]:
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
            return _place_of(each, lines.index(place))
        hidden = details.left_out_places if left_out is None else []
        if place in hidden:
            left_out = _place_of(each, len(lines) + hidden.index(place))
    if left_out is not None:
        return left_out
    made = next((each for each in entries if place in each.record.produced), None)
    return _place_of(made, None) if made is not None else RequestOfMessage(channel="", request=0, line=None)


def _place_of(entry: SentRequest, line: int | None) -> RequestOfMessage:
    return RequestOfMessage(channel=channel_id(entry.channel), request=entry.record.request, line=line)


def _covers(lineage: list[tuple[int, int]], tip: int, place: int) -> bool:
    """Return True if a place is on a branch up to its message `tip`."""
    branch, seq = place >> SEQ_BITS, place & SEQ_MASK
    return any([number == branch and first <= seq <= last for number, first, last in split_by_branch(lineage, 0, tip)])


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The reply to a request: its stored messages and events, how it ended, and other attempts of the same request.
#
# The store has a reply as messages and, for turns of an executor, as events. It does not have the bytes of the
# response.


ReplyStatus: TypeAlias = Literal["ok", "error", "unfinished", "unanswered", "unrecorded", "stopped"]
NEIGHBOURS = 20
"""The number of requests before and after one that can be the same request, sent again."""
FINISH_FIELDS = ("stop_reason", "stopReason", "finish_reason", "finishReason")
MAX_EVENTS = 500
EVENTS_PER_READ = 500
MAX_READ = 5_000
CLOCK_TOLERANCE = 1_000
"""Milliseconds between the start of a step and its first event, at most."""


class FailedCall(Struct, frozen=True, kw_only=True):
    """A failed call of the same step, which was repeated after some seconds."""

    time: int
    attempt: int
    kind: str
    seconds: float
    error: str


class Attempt(Struct, frozen=True, kw_only=True):
    """Another attempt of the same request. `number` is the number to inspect it by; None if it is not stored.

    `corrected` is True if the content of the later of both is another one, because the earlier was refused.
    """

    number: int | None
    time: int | None
    status: ReplyStatus
    code: int | None
    error: str
    error_type: str = ""
    latency: int | None
    corrected: bool


class RequestReply(Struct, frozen=True, kw_only=True):
    """The reply to a request. `status` is ok, error, unfinished (it broke off), unanswered, unrecorded or
    stopped.

    `finish` is the stop reason, and `provider_finish` the provider's own word for it, empty if it is the same.
    `code` is the HTTP status, `error` the text of an error reply, `error_type` its type or code, and `request_id`
    the provider's id of the request. `began` and `ended` are Unix milliseconds, and `latency` the milliseconds
    between them; after `first_chunk` milliseconds its first part arrived. `messages` are the stored messages of the
    reply, or what was received of it. `events` are the stored events of the step in which an executor made the
    request; `more_events` is True if there are further ones. Unknown values are None or empty.
    """

    status: ReplyStatus
    finish: str
    provider_finish: str = ""
    code: int | None
    error: str
    error_type: str = ""
    request_id: str = ""
    began: int | None
    ended: int | None
    latency: int | None
    first_chunk: int | None = None
    usage: ReportedUsage | None
    cost: float | None
    cost_is_lower_bound: bool = False
    messages: list[Message]
    events: list[AnyEvent]
    more_events: bool
    retries: list[FailedCall]
    attempts: list[Attempt]


def load_reply(store: Store, channel: Channel, number: int) -> RequestReply:
    """Return the reply to a request. Raises `UnknownRequest`."""
    steps = load_step_index(store, channel.conversation)

    def work(tx: Transaction) -> RequestReply:
        channel_number, record = find_request(tx, channel, number)
        if record.observed is not None:
            return _observed_reply(tx, channel, channel_number, record)
        step = find_step(steps, channel, record.request, record.produced, number)
        attempts = list_attempts(steps, channel, record.request)
        # a later turn has another message to answer
        others = [each for each in attempts if step is not None and each is not step and each.turn == step.turn]
        return _own_reply(tx, channel, record, number, step, others)

    return store.read(work)


def _observed_reply(tx: Transaction, channel: Channel, channel_number: int, record: RequestRecord) -> RequestReply:
    facts = record.observed
    assert facts is not None
    messages = _load_messages(tx, record.produced)
    nearby = ledger.load_manifests(
        tx, channel_number, min(FIRST_UNANSWERED, record.request + NEIGHBOURS), limit=2 * NEIGHBOURS + 1
    )
    others = [each for each in map(record_from_json, reversed(nearby)) if each.request != record.request]
    dollars, is_lower_bound = compute_usage_bill(channel, record.usage) or (None, False)
    return RequestReply(
        status=_status(facts.status),
        finish=_finish(messages),
        provider_finish=_provider_finish(messages),
        code=facts.code or None,
        error=facts.error,
        error_type=facts.error_type,
        request_id=facts.request_id,
        began=facts.stated_began or None,
        ended=facts.ended or None,
        latency=facts.latency,
        first_chunk=facts.first_chunk,
        usage=to_reported_usage(record.usage),
        cost=dollars,
        cost_is_lower_bound=is_lower_bound,
        messages=messages,
        events=[],
        more_events=False,
        retries=[],
        attempts=list(_find_attempts(record, others)),
    )


def _find_attempts(record: RequestRecord, others: Iterable[RequestRecord]) -> Iterator[Attempt]:
    """Return other requests with the same content, the one that corrects this one, and the one that it corrects."""
    for each in others:
        if (each.head, each.chain) == (record.head, record.chain):
            yield _observed_attempt(each, is_corrected=False)
        elif abs(each.request - record.request) == 1:
            before, after = sorted([record, each], key=lambda one: one.request)
            if find_retried(after, before) is not None:
                yield _observed_attempt(each, is_corrected=True)


def _observed_attempt(record: RequestRecord, *, is_corrected: bool) -> Attempt:
    facts = record.observed or ObservedFacts()
    return Attempt(
        number=record.request,
        time=None if facts.untimed else facts.began or record.time or None,
        status=_status(facts.status),
        code=facts.code or None,
        error=facts.error,
        error_type=facts.error_type,
        latency=facts.latency,
        corrected=is_corrected,
    )


def _status(stored: str) -> ReplyStatus:
    match stored:
        case "ok" | "error" | "unfinished" | "unanswered" | "unrecorded":
            return stored
        case _:
            return "error"


def _own_reply(
    tx: Transaction,
    channel: Channel,
    record: RequestRecord,
    number: int,
    step: StepRecord | None,
    others: Iterable[StepRecord],
) -> RequestReply:
    places = record.produced
    if number > FIRST_UNANSWERED:
        found = find_by_name(tx, load_tip(tx, channel.conversation).tree, step.uid) if step and step.uid else []
        places = tuple([make_place(each.branch, each.seq) for each in found[:1]])
    messages = _load_messages(tx, places)
    usage = step.usage if step is not None and step.usage is not None else record.usage
    dollars, is_lower_bound = compute_usage_bill(channel, usage) or (None, False)
    error = describe_error(step.error) if step is not None and step.state != "finished" else ""
    if step is None and number > FIRST_UNANSWERED:
        channels = ledger.load_channels(tx, channel.conversation)
        attempt = next(each for _, found_channel, _, each in channels if found_channel == channel)
        error = describe_error(attempt.error) if attempt is not None and attempt.kept == number else ""
    events, more = _load_step_events(tx, channel.conversation, step) if step is not None else ([], False)
    failure = _load_failure(tx, channel.conversation, step) if step is not None and step.error else None
    return RequestReply(
        status=_step_status(step) if step is not None else "unanswered" if number > FIRST_UNANSWERED else "ok",
        finish=_finish(messages) or (step.finish if step is not None else ""),
        provider_finish=_provider_finish(messages),
        code=failure.status if failure is not None else None,
        error_type=failure.code if failure is not None else "",
        request_id=failure.request_id if failure is not None else "",
        error=error or next((each.error for each in messages if each.error), ""),
        began=step.started if step is not None else record.began or None,
        ended=step.started + step.milliseconds if step is not None and step.milliseconds else record.time or None,
        latency=(step.milliseconds or None) if step is not None else record.latency,
        first_chunk=step.first_chunk if step is not None else None,
        usage=to_reported_usage(usage),
        cost=dollars,
        cost_is_lower_bound=is_lower_bound,
        messages=messages,
        events=events[:MAX_EVENTS],
        more_events=more or len(events) > MAX_EVENTS,
        retries=[
            FailedCall(time=each.time, attempt=each.attempt, kind=each.kind, seconds=each.seconds, error=each.error)
            for each in events
            if isinstance(each, RetryScheduled)
        ],
        attempts=[
            Attempt(
                number=record.request if each.state == "finished" else each.kept or None,
                time=each.started or None,
                status=_step_status(each),
                code=None,
                error=describe_error(each.error) if each.state != "finished" else "",
                latency=each.milliseconds or None,
                corrected=False,
            )
            for each in others
        ],
    )


def _step_status(step: StepRecord) -> ReplyStatus:
    if step.state == "finished":
        return "ok"
    if step.error == CANCELLED:
        return "stopped"
    return "error" if step.error else "unanswered"


def _finish(messages: Iterable[Message]) -> str:
    return next((each.finish for each in reversed([*messages]) if each.finish), "")


def _provider_finish(messages: Sequence[Message]) -> str:
    """Return the provider's own word for the stop reason; "" if it is the same, or not stored."""
    message = next((each for each in reversed(messages) if each.finish), None)
    facts = (message.extra or {}).values() if message is not None else ()
    words = [each.get(name) for each in facts for name in FINISH_FIELDS]
    found = next((each for each in words if isinstance(each, str) and each), "")
    return found if message is not None and found != message.finish else ""


def _load_failure(tx: Transaction, conversation: str, step: StepRecord) -> FailureDetails | None:
    """Return what is known about the error of a step: of the event with the same text, in the same turn."""
    number = load_tip(tx, conversation).conversation
    after = _first_event_after(tx, number, step.started - CLOCK_TOLERANCE) - 1
    for _ in range(MAX_READ // EVENTS_PER_READ):
        some = load_events(tx, number, after, EVENTS_PER_READ)
        for event in some:
            if event.turn == step.turn and isinstance(event, RetryScheduled | ErrorOccurred) and event.failure:
                if event.error == step.error:
                    return event.failure
            elif event.turn > step.turn:
                return None
        if len(some) < EVENTS_PER_READ:
            return None
        after = some[-1].number
    return None


def _load_messages(tx: Transaction, places: Sequence[int]) -> list[Message]:
    """Return messages in the order of their places. Those that no longer exist are skipped."""
    if not places:
        return []
    marks = ", ".join("?" * len(places))
    rows = tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({marks})", *places)
    found = dict(decode_message_rows(tx, [(where, bytes(body)) for where, body in rows]))
    return [found[where] for where in places if where in found]


def _load_step_events(tx: Transaction, conversation: str, step: StepRecord) -> tuple[list[AnyEvent], bool]:
    """Return the stored events of a step, and True if there may be more. Only events near its time are read."""
    number = load_tip(tx, conversation).conversation
    after = _first_event_after(tx, number, step.started - CLOCK_TOLERANCE) - 1
    found: list[AnyEvent] = []
    for _ in range(MAX_READ // EVENTS_PER_READ):
        some = load_events(tx, number, after, EVENTS_PER_READ)
        for event in some:
            if event.turn == step.turn and event.step == step.index:
                found.append(event)
                if isinstance(event, StepFinish):
                    return found, False
            elif event.turn > step.turn or (event.turn == step.turn and event.step > step.index):
                return found, False
        if len(some) < EVENTS_PER_READ:
            return found, False
        after = some[-1].number
    return found, True


def _first_event_after(tx: Transaction, conversation: int, time: int) -> int:
    """Return the number of the first event at or after a time, by binary search."""
    low, high = 1, load_last_number(tx, "event", conversation) + 1
    while low < high:
        middle = (low + high) // 2
        some = load_events(tx, conversation, middle - 1, 1)
        if not some or some[0].time >= time:
            high = middle
        else:
            low = middle + 1
    return low

"""The usage and the cost of many conversations, in portions of a quarter of an hour and a model.

Time zones differ by quarters of an hour, so these portions add up to the days of any of them. The sums are those of
`request_timeline.sum_costs`: a cost that only the turn knows, such as that of a summary, is counted once. Manifests
of observed requests are stored compressed, so they are decoded here and not by the database. Unreadable rows are
skipped: the doctor reports them.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc.compiler.ledger import OpenAttempt
from contextc.compiler.manifest import record_from_json
from contextc.compiler.past_requests import find_channel_model
from contextc.inspection.request_timeline import Steps, find_step, index_steps
from contextc.messages import Usage
from contextc.models import Bill, Model, bill
from contextc.store.ledger_schema import Channel, unpack_record
from contextc.store.message_log import DECODE_ERRORS, SEQ_BITS, SEQ_MASK
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import StepRecord, TurnRecord

QUARTER = 900_000
"""Milliseconds of a quarter of an hour."""


class ConversationState(NamedTuple):
    """A conversation, and what differs after a change of its requests: `key`.

    `client` is None if contextc itself made the requests. `last_active` is in seconds, `created` in milliseconds.
    `revision` changes with every edit and redaction. `title` is empty unless a person has given one.
    """

    number: int
    name: str
    branch: int
    created: int
    last_active: int
    client: str | None
    kind: str
    key: tuple[int, ...]
    revision: int = 0
    title: str = ""


class UsagePortion(NamedTuple):
    """The requests of one model within a quarter of an hour. `time` is its start in milliseconds.

    `failed` ones have no complete answer. `unpriced` ones have usage, but their cost is unknown. The cost of
    `bounded` ones is a lower bound. `estimated` is the estimated input of those without usage.
    """

    time: int
    model: str
    requests: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    priced: int = 0
    unpriced: int = 0
    bounded: int = 0
    estimated: int = 0


class _ObservedStatus(Struct):
    status: str = "ok"


class _UsageOfRecord(Struct):
    """The fields of a manifest that are needed here. Others are not decoded."""

    request: int = 0
    time: int = 0
    usage: Usage | None = None
    produced: tuple[int, ...] = ()
    observed: _ObservedStatus | None = None


_record_from_json = msgspec.json.Decoder(_UsageOfRecord).decode
_step_from_json = msgspec.json.Decoder(StepRecord).decode
_attempt_from_json = msgspec.json.Decoder(OpenAttempt).decode
_turn_from_json = msgspec.json.Decoder(TurnRecord).decode


def load_conversation_states(tx: Transaction) -> list[ConversationState]:
    """Return all conversations of a store, with a fixed number of queries that read no messages and no requests."""
    versions: dict[str, tuple[int, int]] = {}
    channels = tx.rows("SELECT conversation, number, version, attempt IS NOT NULL FROM main.channel")
    for name, number, version, is_open in channels:
        total, last = versions.get(name, (0, 0))
        versions[name] = total + 2 * version + is_open, max(last, number)
    rows = tx.rows(
        "SELECT c.number, c.name, c.branch, c.created, c.spoken, o.client, COALESCE(o.kind, ''),"
        " (SELECT max(place) FROM main.event"
        " WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295), c.revision, c.title"
        " FROM main.conversation c LEFT JOIN main.observed_conversation o ON o.conversation = c.number"
    )
    return [
        ConversationState(
            number,
            name,
            branch,
            created,
            spoken,
            client,
            kind,
            (last or 0, revision, *versions.get(name, ())),
            revision,
            title,
        )
        for number, name, branch, created, spoken, client, kind, last, revision, title in rows
    ]


def load_usage(tx: Transaction, conversations: Sequence[ConversationState]) -> dict[int, tuple[UsagePortion, ...]]:
    """Return the usage of some conversations by their number, with four queries."""
    if not conversations:
        return {}
    numbers = {each.name: each.number for each in conversations}
    prices = _Prices()
    sums = {each.number: _Sums(prices) for each in conversations}
    marks = ", ".join("?" * len(numbers))
    steps, turns = _load_steps_and_turns(tx, list(numbers.values()))
    for conversation, by_request in steps.items():
        for key, some in by_request.items():
            for step in some:
                sums[conversation].add_step(step, Channel("", *key[:3]), turns.get((conversation, step.turn)))
    channels: dict[int, Channel] = {}
    last_active = {each.name: each.last_active * 1000 for each in conversations}
    for number, name, agent, provider, model, attempt in tx.rows(
        "SELECT number, conversation, agent, provider, model, attempt FROM main.channel"
        f" WHERE conversation IN ({marks})",
        *numbers,
    ):
        channel = channels[number] = Channel(name, agent, provider, model)
        if attempt is not None:
            with suppress(*DECODE_ERRORS):
                request = _attempt_from_json(bytes(attempt)).request
                if (agent, provider, model, request) not in steps.get(numbers[name], {}):
                    sums[numbers[name]].add_open_attempt(channel, last_active[name])
    rows = tx.rows(
        "SELECT m.place, m.body FROM main.channel h JOIN main.manifest m"
        " ON m.place BETWEEN h.number * 4294967296 AND h.number * 4294967296 + 1073741824"
        f" WHERE h.conversation IN ({marks})",
        *numbers,
    )
    for place, body in rows:
        if (channel := channels.get(place >> SEQ_BITS)) is None:
            continue
        with suppress(*DECODE_ERRORS, ValueError):
            conversation = numbers[channel.conversation]
            stored = unpack_record(bytes(body))
            record = _record_from_json(stored)
            estimate = 0 if record.usage is not None else record_from_json(stored).unreported_input
            sums[conversation].add_record(record, channel, steps.get(conversation, {}), estimate)
    for (conversation, _), turn in turns.items():
        sums[conversation].add_turn(turn)
    return {number: found.portions() for number, found in sums.items()}


class _Sums:
    """The sums of one conversation while its requests are added: steps first, then records, then turns."""

    def __init__(self, prices: "_Prices") -> None:
        self._prices = prices
        self._portions: dict[tuple[int, str], list[float]] = {}
        self._of_turns: dict[int, float] = {}
        self._models: dict[int, str] = {}

    def add_record(self, record: _UsageOfRecord, channel: Channel, steps: Steps, estimate: int) -> None:
        step = find_step(steps, channel, record.request, record.produced)
        spent = step.usage if step is not None and step.usage is not None else record.usage
        failed = record.observed is not None and record.observed.status not in ("ok", "unrecorded")
        self._add(record.time, channel, record.usage, spent, step.turn if step else None, is_failed=failed)
        self._portion(record.time, f"{channel.provider}:{channel.model}")[10] += estimate

    def add_step(self, step: StepRecord, channel: Channel, turn: TurnRecord | None) -> None:
        """Add a step without a complete answer. The others are in the ledger."""
        self._models[step.turn] = f"{channel.provider}:{channel.model}"
        is_running = step.state == "started" and turn is not None and turn.state == "running"
        if step.state != "finished" and not is_running:
            self._add(step.started, channel, step.usage, step.usage, step.turn, is_failed=True)

    def add_open_attempt(self, channel: Channel, time: int) -> None:
        """Add a request that no executor made, and that has no answer. Its time is not stored."""
        self._add(time, channel, None, None, None, is_failed=True)

    def add_turn(self, turn: TurnRecord) -> None:
        """Add what a turn cost beyond its requests."""
        more = (turn.cost or 0.0) - self._of_turns.get(turn.number, 0.0)
        if more > 0 and (model := self._models.get(turn.number)):
            portion = self._portion(turn.ended or turn.started, model)
            portion[6] += more
            portion[7] += 1
            portion[9] += turn.cost_is_lower_bound

    def portions(self) -> tuple[UsagePortion, ...]:
        return tuple(
            [
                UsagePortion._make([time, model, *map(int, found[:6]), found[6], *map(int, found[7:])])
                for (time, model), found in self._portions.items()
            ]
        )

    def _portion(self, time: int, model: str) -> list[float]:
        return self._portions.setdefault((time - time % QUARTER, model), [0.0] * 11)

    def _add(
        self,
        time: int,
        channel: Channel,
        usage: Usage | None,
        spent: Usage | None,
        turn: int | None,
        *,
        is_failed: bool,
    ) -> None:
        portion = self._portion(time, f"{channel.provider}:{channel.model}")
        portion[0] += 1
        portion[1] += is_failed
        if usage is not None:
            portion[2] += usage.input
            portion[3] += usage.output
            portion[4] += usage.cache_read
            portion[5] += usage.cache_write
        if spent is None:
            return
        found = self._prices.compute_bill(channel, spent)
        portion[8 if found is None else 7] += 1
        if found is not None:
            portion[6] += found.dollars
            portion[9] += found.is_lower_bound
            if turn is not None:
                self._of_turns[turn] = self._of_turns.get(turn, 0.0) + found.dollars


class _Prices:
    """The models of one load, each looked up once."""

    def __init__(self) -> None:
        self._models: dict[str, Model | None] = {}

    def compute_bill(self, channel: Channel, usage: Usage) -> Bill | None:
        name = channel.model
        if name not in self._models:
            self._models[name] = find_channel_model(channel) if name.strip() else None
        model = self._models[name]
        return bill(model, usage) if model is not None else None


def _load_steps_and_turns(
    tx: Transaction, numbers: Sequence[int]
) -> tuple[dict[int, Steps], dict[tuple[int, int], TurnRecord]]:
    """Return steps by conversation and request, and turns by conversation and number."""
    turns: dict[tuple[int, int], TurnRecord] = {}
    for place, body in _load_records(tx, "turn", numbers):
        with suppress(*DECODE_ERRORS):
            turns[place >> SEQ_BITS, place & SEQ_MASK] = _turn_from_json(body)
    steps: dict[int, list[StepRecord]] = {}
    for place, body in _load_records(tx, "step", numbers):
        with suppress(*DECODE_ERRORS):
            steps.setdefault(place >> SEQ_BITS, []).append(_step_from_json(body))
    by_conversation: dict[int, list[TurnRecord]] = {}
    for (conversation, _), turn in turns.items():
        by_conversation.setdefault(conversation, []).append(turn)
    found = {each: index_steps(by_conversation.get(each, ()), some) for each, some in steps.items()}
    return found, turns


def _load_records(tx: Transaction, table: str, numbers: Sequence[int]) -> Iterable[tuple[int, bytes]]:
    marks = ", ".join("?" * len(numbers))
    rows = tx.rows(
        f"SELECT r.place, r.body FROM main.conversation c JOIN main.{table} r"
        " ON r.place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295"
        f" WHERE c.number IN ({marks}) ORDER BY r.place",
        *numbers,
    )
    return [(place, body) for place, body in rows]

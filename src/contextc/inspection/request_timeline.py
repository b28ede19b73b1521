"""All requests of a conversation in the order of their answers, each with its turn and step."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from contextc.compiler.ledger import repository
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.compiler.past_requests import find_channel_model
from contextc.models import cost
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import DECODE_ERRORS, SEQ_MASK
from contextc.store.turn_and_event_records import StepRecord

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
            (channel, [record_from_json(body) for body in reversed(repository.load_manifests(tx, number))])
            for number, channel, *_ in repository.load_channels(tx, conversation)
            if only in (None, channel)
        ]
        produced = [where for _, records in asked for record in records for where in record.produced]
        return asked, _uids(tx, produced) if with_uids else {}

    made_for = _steps(store, conversation)
    found: list[TimelineEntry] = []
    asked, names = store.read(work)
    for channel, records in asked:
        known = find_channel_model(channel)
        for record in records:
            step = _step(made_for, channel, record)
            usage = step.usage if step is not None and step.usage is not None else record.usage
            spent = cost(known, usage) if known is not None and usage is not None else None
            uids = tuple([names.get(where, "") for where in record.produced])
            found.append(
                TimelineEntry(channel, record, step.turn if step else None, step.index if step else None, spent, uids),
            )
    return sorted(found, key=lambda moment: moment.record.time)


def _uids(tx: Transaction, places: Iterable[int]) -> dict[int, str]:
    """Return the uids of messages by place. Unreadable messages are skipped."""
    wanted, found, decoder = list(places), dict[int, str](), msgspec.json.Decoder(_UidOnly)
    for start in range(0, len(wanted), BLOCK_SIZE):
        some = wanted[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        for where, body in tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *some):
            with suppress(*DECODE_ERRORS):
                found[where] = decoder.decode(body).uid
    return found


def _steps(store: Store, conversation: str) -> dict[tuple[object, ...], list[StepRecord]]:
    """Return the steps by agent, provider, model and request number."""
    agents = {turn.number: turn.agent for turn in store.turns(conversation)}
    found: dict[tuple[object, ...], list[StepRecord]] = {}
    for step in store.steps(conversation):
        key = (agents.get(step.turn, ""), step.provider, step.model, step.request)
        found.setdefault(key, []).append(step)
    return found


def _step(
    made_for: dict[tuple[object, ...], list[StepRecord]], channel: Channel, record: RequestRecord
) -> StepRecord | None:
    """Return the step of a request: the one that has its reply, because failed attempts had the same request number."""
    steps = made_for.get((channel.agent, channel.provider, channel.model, record.request), [])
    seqs = {where & SEQ_MASK for where in record.produced}
    return next((step for step in reversed(steps) if step.seq in seqs), None)

"""The reply to a request: its stored messages and events, how it ended, and other attempts of the same request.

The store has a reply as messages and, for turns of an executor, as events. It does not have the bytes of the response.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc.compiler import ledger
from contextc.compiler.manifest import ObservedFacts, RequestRecord, record_from_json
from contextc.compiler.past_requests import compute_usage_cost, find_request
from contextc.events import AnyEvent, ErrorOccurred, FailureDetails, RetryScheduled, StepFinish
from contextc.inspection.prefix_break import find_retried
from contextc.inspection.request_timeline import (
    CANCELLED,
    ReportedUsage,
    describe_error,
    find_step,
    list_attempts,
    load_step_index,
    report_usage,
)
from contextc.messages import Message
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import (
    FIRST_UNANSWERED,
    decode_message_rows,
    find_by_name,
    load_tip,
    make_place,
)
from contextc.store.turn_and_event_records import StepRecord, load_events, load_last_number

ReplyStatus: TypeAlias = Literal["ok", "error", "unfinished", "unanswered", "stopped"]
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
    """The reply to a request. `status` is ok, error, unfinished (it broke off), unanswered or stopped.

    `finish` is the stop reason, and `provider_finish` the provider's own word for it, empty if it is the same. `code`
    is the HTTP status, `error` the text of an error reply, `error_type` its type or code, and `request_id` the
    provider's id of the request. `began` and `ended` are Unix milliseconds, and `latency` the milliseconds between
    them. `messages` are the stored messages of the reply, or what was received of it. `events` are the stored events of
    the step in which an executor made the request; `more_events` is True if there are further ones. Unknown values are
    None or empty.
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
    usage: ReportedUsage | None
    cost: float | None
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
    return RequestReply(
        status=_status(facts.status),
        finish=_finish(messages),
        provider_finish=_provider_finish(messages),
        code=facts.code or None,
        error=facts.error,
        error_type=facts.error_type,
        request_id=facts.request_id,
        began=facts.began or None,
        ended=facts.ended or None,
        latency=facts.latency,
        usage=report_usage(record.usage),
        cost=compute_usage_cost(channel, record.usage),
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
        time=facts.began or record.time or None,
        status=_status(facts.status),
        code=facts.code or None,
        error=facts.error,
        error_type=facts.error_type,
        latency=facts.latency,
        corrected=is_corrected,
    )


def _status(stored: str) -> ReplyStatus:
    match stored:
        case "ok" | "error" | "unfinished" | "unanswered":
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
        began=step.started if step is not None else None,
        ended=step.started + step.milliseconds if step is not None and step.milliseconds else record.time or None,
        latency=step.milliseconds if step is not None and step.milliseconds else None,
        usage=report_usage(usage),
        cost=compute_usage_cost(channel, usage),
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
    rows = tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *places)
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

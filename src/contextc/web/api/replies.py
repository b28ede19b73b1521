"""The reply to a request: its messages and events, how it ended, and further attempts."""

from msgspec import Struct

from contextc.events import AnyEvent
from contextc.inspection.request_reply import Attempt, ReplyStatus, load_reply
from contextc.messages import Message
from contextc.web.app_state import AppState
from contextc.web.channel_list import find_channel
from contextc.web.endpoint_registry import endpoint
from contextc.web.request_view import UsageView, usage_view

TAG = "replies"


class RetryView(Struct, frozen=True, kw_only=True):
    """A failed call of the same step, which was repeated after some seconds."""

    time: int
    attempt: int
    kind: str
    seconds: float
    error: str


class AttemptView(Struct, frozen=True, kw_only=True):
    """Another attempt of the same request. `number` is the number to inspect it by; null if it is not stored.

    `corrected` is true if the content of the later of both is another one, because the earlier was refused.
    """

    number: int | None
    time: int | None
    status: ReplyStatus
    code: int | None
    error: str
    error_type: str = ""
    latency: int | None
    corrected: bool


class ReplyView(Struct, frozen=True, kw_only=True):
    """The reply to a request. `status` is ok, error, unfinished (it broke off), unanswered or stopped.

    `finish` is the stop reason, and `provider_finish` the provider's own word for it, empty if it is the same. `code`
    is the HTTP status, `error` the text of an error reply, `error_type` its type or code, and `request_id` the
    provider's id of the request.
    `began` and `ended` are Unix milliseconds, and `latency` the milliseconds between them. `messages` are the stored
    messages of the reply, or what was received of it. `events` are the stored events of the step in which an executor
    made the request; `more_events` is true if there are further ones. Unknown values are null or empty.
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
    usage: UsageView | None
    cost: float | None
    messages: list[Message]
    events: list[AnyEvent]
    more_events: bool
    retries: list[RetryView]
    attempts: list[AttemptView]


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/reply")
def show_reply(app: AppState, name: str, channel: str, number: int) -> ReplyView:
    """Return the reply to a request: its messages, stop reason, latency, error, events, and other attempts."""
    found = load_reply(app.store, find_channel(app.store, name, channel), number)
    return ReplyView(
        status=found.status,
        finish=found.finish,
        provider_finish=found.provider_finish,
        code=found.code,
        error=found.error,
        error_type=found.error_type,
        request_id=found.request_id,
        began=found.began,
        ended=found.ended,
        latency=found.latency,
        usage=usage_view(found.usage),
        cost=found.cost,
        messages=[*found.messages],
        events=[*found.events],
        more_events=found.more_events,
        retries=[
            RetryView(time=each.time, attempt=each.attempt, kind=each.kind, seconds=each.seconds, error=each.error)
            for each in found.retries
        ],
        attempts=[_attempt_view(each) for each in found.attempts],
    )


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        time=attempt.time,
        status=attempt.status,
        code=attempt.code,
        error=attempt.error,
        error_type=attempt.error_type,
        latency=attempt.latency,
        corrected=attempt.is_corrected,
    )

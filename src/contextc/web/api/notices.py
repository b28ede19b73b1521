"""User notices of a conversation: events besides messages, with their position."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.events import CompactionFinished, ErrorOccurred, RetryScheduled, UserNoticeCreated
from contextc.store.events_by_type import load_events_of_types
from contextc.store.message_rows import load_tip
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint

TAG = "notices"
KINDS = (UserNoticeCreated, CompactionFinished, RetryScheduled, ErrorOccurred)
LARGEST_PAGE = 1_000


class NoticesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` notices: the last ones before event `before`, or the last ones of all."""

    before: Annotated[int, Meta(ge=1, lt=1 << 32)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 100


class NoticeView(Struct, frozen=True, kw_only=True):
    """An event, and the last message before it.

    `after` is the seq of that message, 0 if there is none, and `uid` its uid. If the conversation has another message
    at this seq, the notice belongs to another branch.
    """

    after: int
    uid: str
    event: UserNoticeCreated | CompactionFinished | RetryScheduled | ErrorOccurred


@endpoint("GET", "/conversations/{name}/notices")
def notices(app: AppState, name: str, query: NoticesQuery) -> list[NoticeView]:
    """List hints, compactions, retries and errors in order, each with the message before it."""
    found = app.store.read(
        lambda tx: load_events_of_types(
            tx, load_tip(tx, name).conversation, KINDS, before=query.before, limit=query.limit
        )
    )
    return [NoticeView(after=seq or _last_message(event), uid=uid, event=event) for event, seq, uid in found]


def _last_message(event: object) -> int:
    """Return the last message at the time of a compaction, for conversations that were imported: they have no turns."""
    return (event.seq or event.upto) if isinstance(event, CompactionFinished) else 0

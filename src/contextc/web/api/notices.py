"""User notices of a conversation: events besides messages, with their position."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.events import Compaction, Failure, Retry, SystemHint
from contextc.store.notices import happened
from contextc.store.places import head
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint

KINDS = (SystemHint, Compaction, Retry, Failure)
LARGEST_PAGE = 1_000


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` notices: the last ones before event `before`, or the last ones of all."""

    before: Annotated[int, Meta(ge=1, lt=1 << 32)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 100


class Notice(Struct, frozen=True, kw_only=True):
    """An event, and the last message before it.

    `after` is the seq of that message, 0 if there is none, and `uid` its uid. If the conversation has another message
    at this seq, the notice belongs to another branch.
    """

    after: int
    uid: str
    event: SystemHint | Compaction | Retry | Failure


@endpoint("GET", "/conversations/{name}/notices")
def notices(desk: Desk, name: str, query: Wanted) -> list[Notice]:
    """List hints, compactions, retries and errors in order, each with the message before it."""
    found = desk.store.read(
        lambda tx: happened(tx, head(tx, name).conversation, KINDS, before=query.before, limit=query.limit)
    )
    return [Notice(after=seq, uid=uid, event=event) for event, seq, uid in found]

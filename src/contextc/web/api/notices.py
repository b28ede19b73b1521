"""What was told in a conversation for people, besides its messages, and where that was."""

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
    """At most `limit` notices: the last ones before event `before`, or of all."""

    before: Annotated[int, Meta(ge=1, lt=1 << 32)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 100


class Notice(Struct, frozen=True, kw_only=True):
    """An event as the stream of events tells it, and the last message that was told of before it.

    `after` is the number of that message, 0 where none was told of. `uid` is its name: where the conversation has
    another message under this number, it went another way since, and the notice belongs to the line it has left.
    """

    after: int
    uid: str
    event: SystemHint | Compaction | Retry | Failure


@endpoint("GET", "/conversations/{name}/notices")
def notices(desk: Desk, name: str, query: Wanted) -> list[Notice]:
    """Hints, summaries, retries and errors, in order, each with the message after which it happened."""
    found = desk.store.read(
        lambda tx: happened(tx, head(tx, name).conversation, KINDS, before=query.before, limit=query.limit)
    )
    return [Notice(after=seq, uid=uid, event=event) for event, seq, uid in found]

"""The messages of a conversation, some at a time; and a message that is put behind them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from contextc.errors import InvalidInput
from contextc.messages import Message, system, user
from contextc.store import chain
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint

LARGEST_PAGE = 1_000
Number = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` messages: the first ones after message `after`, the last ones before message `before`; or the
    `last` ones of all. Of another branch than the current one, where one is named.
    """

    after: Number = 0
    before: Number | None = None
    last: Count | None = None
    limit: Count = 100
    branch: Number | None = None


class Messages(Struct, frozen=True, kw_only=True):
    """Messages in order; each has its number in `seq`. `length` is how many the branch has in all."""

    messages: list[Message]
    length: int
    branch: int


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole `message`, or a `text` that somebody says.

    With a `key`, the same message sent again is stored once. `parent` is the message that this one has to follow: its
    seq, uid or id; where something else has come behind it, this one is refused.
    """

    message: Message | None = None
    text: str | None = None
    role: Literal["user", "system"] = "user"
    key: str | None = None
    parent: str | int | None = None


@endpoint("GET", "/conversations/{name}/messages")
def messages(desk: Desk, name: str, query: Wanted) -> Messages:
    """Some messages of a conversation, in order."""
    before, limit = query.before, query.limit
    if query.last is not None:
        if query.before is not None or query.after:
            raise InvalidInput("Ask for the `last` messages, or for those `after` or `before` one, not for both.")
        before, limit = 1 << 31, query.last
    found = desk.store.read(
        lambda tx: chain.window(tx, name, after=query.after, before=before, limit=limit, branch=query.branch)
    )
    return Messages(messages=found.messages, length=found.length, branch=found.branch)


@endpoint("POST", "/conversations/{name}/messages", status=201)
def say(desk: Desk, name: str, body: Said) -> Message:
    """Put a message at the end of a conversation, which is made if it is new. No turn begins."""
    if (body.message is None) == (body.text is None):
        raise InvalidInput("Send a `message`, or a `text`: one of them.")
    said = body.message or (user if body.role == "user" else system)(body.text or "")
    return desk.store.append(name, said, key=body.key, parent=body.parent)

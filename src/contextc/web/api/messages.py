"""Messages of a conversation: read in pages, and append."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from contextc.errors import InvalidInput
from contextc.messages import Message, system, user
from contextc.store import append_and_load
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint

TAG = "messages"
LARGEST_PAGE = 1_000
Number = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]


class MessagesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` messages: the first ones after `after`, the last ones before `before`, or the `last` ones of all.

    `branch` selects another branch than the current one.
    """

    after: Number = 0
    before: Number | None = None
    last: Count | None = None
    limit: Count = 100
    branch: Number | None = None


class MessagesPage(Struct, frozen=True, kw_only=True):
    """Messages in order, numbered by `seq`. `length` is the total number of messages on the branch."""

    messages: list[Message]
    length: int
    branch: int


class AppendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete `message`, or a `text` with a `role`.

    With a `key`, retries store the message only once. `parent` is the message that must be the last one: its seq, uid
    or id. Otherwise the append is rejected.
    """

    message: Message | None = None
    text: str | None = None
    role: Literal["user", "system"] = "user"
    key: str | None = None
    parent: str | int | None = None


@endpoint("GET", "/conversations/{name}/messages")
def messages(app: AppState, name: str, query: MessagesQuery) -> MessagesPage:
    """Return messages of a conversation, in order."""
    before, limit = query.before, query.limit
    if query.last is not None:
        if query.before is not None or query.after:
            raise InvalidInput("last cannot be combined with after or before", fix="Send only one of them.")
        before, limit = 1 << 31, query.last
    found = app.store.read(
        lambda tx: append_and_load.load_window(
            tx, name, after=query.after, before=before, limit=limit, branch=query.branch
        )
    )
    return MessagesPage(messages=found.messages, length=found.length, branch=found.branch)


@endpoint("POST", "/conversations/{name}/messages", status=201)
def say(app: AppState, name: str, body: AppendBody) -> Message:
    """Append a message to a conversation, which is created if needed. No turn starts."""
    if (body.message is None) == (body.text is None):
        raise InvalidInput("exactly one of message and text is required", fix="Send one of them.")
    message = body.message or (user if body.role == "user" else system)(body.text or "")
    return app.store.append(name, message, key=body.key, parent=body.parent)

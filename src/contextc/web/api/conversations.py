"""Conversations: list, create, get and delete."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.agents.naming import names_by_time
from contextc.errors import ConversationExists
from contextc.store.overviews import LARGEST_PAGE, Overview
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint
from contextc.web.view import View, view


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`search` selects conversations that contain a text. `before` is `next` of the previous page."""

    search: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 50


class Conversations(Struct, frozen=True, kw_only=True):
    """A page of the list. If there is `more`, the next page has `before` set to `next`.

    A search reads a limited number of messages per page, so a page may be empty although there is more.
    """

    conversations: list[Overview]
    more: bool
    next: str


class Beginning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without a name, the current time is the name."""

    name: str | None = None


@endpoint("GET", "/conversations")
def listing(desk: Desk, query: Wanted) -> Conversations:
    """List conversations, most recently active first."""
    page = desk.store.overviews(search=query.search, before=query.before, limit=query.limit)
    return Conversations(conversations=page.found, more=bool(page.next), next=page.next)


@endpoint("POST", "/conversations", status=201)
def begin(desk: Desk, body: Beginning) -> Overview:
    """Create an empty conversation."""
    if body.name is not None:
        desk.store.begin(body.name)
        return desk.store.overview(body.name)
    for name in names_by_time():
        try:
            desk.store.begin(name)
        except ConversationExists:
            continue
        return desk.store.overview(name)
    raise AssertionError("names_by_time() never ends")


@endpoint("GET", "/conversations/{name}")
def look(desk: Desk, name: str) -> View:
    """Return a conversation and its state. New events follow `last_event`."""
    return view(desk, name)


class Deleted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`pending_erasure` is present if the content is still in the store's files, because another program reads them.

    The store erases it as soon as possible.
    """

    pending_erasure: int = 0


@endpoint("DELETE", "/conversations/{name}")
def delete(desk: Desk, name: str) -> Deleted:
    """Delete a conversation permanently, except messages that a fork shares."""
    desk.store.conversation(name)  # raises if it does not exist
    with desk.store.lease(name, desk.options.agent):  # raises while a turn runs
        pass
    desk.store.delete(name)
    desk.watchers.deleted(name)
    return Deleted(pending_erasure=desk.store.pending_erasure)

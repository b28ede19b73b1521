"""Conversations: the list of them, new ones, one as it stands, and the end of one."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.agents.naming import names_by_time
from contextc.errors import ConversationExists
from contextc.store.overviews import LARGEST_PAGE, Overview
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint
from contextc.web.view import View, view


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`search`: those alone that have these words. `before` is `next` of the page before this one."""

    search: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 50


class Conversations(Struct, frozen=True, kw_only=True):
    """A page of the list. Where there is `more`, it begins with `before=` what `next` says.

    A search reads so many messages at once and no more: a page may have nothing, and there may still be more.
    """

    conversations: list[Overview]
    more: bool
    next: str


class Beginning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without a name, it is named for the time."""

    name: str | None = None


@endpoint("GET", "/conversations")
def listing(desk: Desk, query: Wanted) -> Conversations:
    """The conversations, the one that was last spoken in first."""
    page = desk.store.overviews(search=query.search, before=query.before, limit=query.limit)
    return Conversations(conversations=page.found, more=bool(page.next), next=page.next)


@endpoint("POST", "/conversations", status=201)
def begin(desk: Desk, body: Beginning) -> Overview:
    """Begin a conversation in which nothing was said yet."""
    if body.name is not None:
        desk.store.begin(body.name)
        return desk.store.overview(body.name)
    for name in names_by_time():
        try:
            desk.store.begin(name)
        except ConversationExists:
            continue
        return desk.store.overview(name)
    raise AssertionError("there is always another name")


@endpoint("GET", "/conversations/{name}")
def look(desk: Desk, name: str) -> View:
    """A conversation and where it stands; its events go on after `last_event`."""
    return view(desk, name)


class Deleted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`pending_erasure` is there where the content is still in the files of the store: another program reads from them.

    The store removes it as soon as that is over.
    """

    pending_erasure: int = 0


@endpoint("DELETE", "/conversations/{name}")
def delete(desk: Desk, name: str) -> Deleted:
    """Delete a conversation for good, except what a fork of it still stands on."""
    desk.store.conversation(name)  # that there is one
    with desk.store.lease(name, desk.options.agent):  # and no turn that still writes
        pass
    desk.store.delete(name)
    desk.watchers.deleted(name)
    return Deleted(pending_erasure=desk.store.pending_erasure)

"""Conversations: list, create, get, rename and delete."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.app.agent_factory import time_based_names
from contextc.errors import ConversationExists
from contextc.store.conversation_list import MAX_GIVEN_TITLE, MAX_PAGE_SIZE, ConversationOverview
from contextc.web.app_state import AppState
from contextc.web.conversation_state import ConversationView, load_conversation_view
from contextc.web.endpoint_registry import endpoint

TAG = "conversations"


class ConversationsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`search` selects conversations that contain a text. `before` is `next` of the previous page."""

    search: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] = 50


class ConversationsPage(Struct, frozen=True, kw_only=True):
    """A page of the list. If there is `more`, the next page has `before` set to `next`.

    A search reads a limited number of messages per page, so a page may be empty although there is more.
    """

    conversations: list[ConversationOverview]
    more: bool
    next: str


class CreateBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without a name, the current time is the name."""

    name: str | None = None


@endpoint("GET", "/conversations")
def listing(app: AppState, query: ConversationsQuery) -> ConversationsPage:
    """List conversations, most recently active first."""
    page = app.store.overviews(search=query.search, before=query.before, limit=query.limit)
    return ConversationsPage(conversations=app.turns.with_approvals(page.found), more=bool(page.next), next=page.next)


@endpoint("POST", "/conversations", status=201)
def begin(app: AppState, body: CreateBody) -> ConversationOverview:
    """Create an empty conversation."""
    if body.name is not None:
        app.store.begin(body.name)
        return app.store.overview(body.name)
    for name in time_based_names():
        try:
            app.store.begin(name)
        except ConversationExists:
            continue
        return app.store.overview(name)
    raise AssertionError("names_by_time() never ends")


@endpoint("GET", "/conversations/{name}")
def look(app: AppState, name: str) -> ConversationView:
    """Return a conversation and its state. New events follow `last_event`."""
    return load_conversation_view(app, name)


class RenameBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With an empty title, the first user message is the title again."""

    title: Annotated[str, Meta(max_length=MAX_GIVEN_TITLE)]


@endpoint("PATCH", "/conversations/{name}")
def rename(app: AppState, name: str, body: RenameBody) -> ConversationOverview:
    """Set the title of a conversation. Its name, which URLs and commands use, stays."""
    return app.turns.with_approvals([app.store.set_title(name, body.title)])[0]


class DeleteResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`pending_erasure` is present if the content is still in the store's files, because another program reads them.

    The store erases it as soon as possible.
    """

    pending_erasure: int = 0


@endpoint("DELETE", "/conversations/{name}")
def delete(app: AppState, name: str) -> DeleteResult:
    """Delete a conversation permanently, except messages that a fork shares."""
    app.store.conversation(name)  # raises if it does not exist
    with app.store.lease(name, app.options.agent):  # raises while a turn runs
        pass
    app.store.delete(name)
    app.deletions.notify_deleted(name)
    return DeleteResult(pending_erasure=app.store.pending_erasure)

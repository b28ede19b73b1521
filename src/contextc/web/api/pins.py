"""Pins of a conversation: messages that are never trimmed."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.web.app_state import AppState
from contextc.web.conversation_state import ConversationView, load_conversation_view
from contextc.web.endpoint_registry import endpoint

TAG = "branches"
"""These endpoints were declared with those of branches. Clients are generated from the tag, so it stays."""


class PinBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Annotated[int, Meta(ge=1)]


@endpoint("POST", "/conversations/{name}/pin")
def pin(app: AppState, name: str, body: PinBody) -> ConversationView:
    """Pin a message, so that it is never trimmed. A tool call is pinned with its results."""
    app.store.pin(name, body.seq)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/unpin")
def unpin(app: AppState, name: str, body: PinBody) -> ConversationView:
    """Unpin a message, so that it may be trimmed."""
    app.store.unpin(name, body.seq)
    return load_conversation_view(app, name)

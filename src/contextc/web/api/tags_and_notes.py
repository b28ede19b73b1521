"""Tags and notes of conversations, which people write. No model gets them."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.store import Note
from contextc.store.approvals import MAX_WHO
from contextc.store.tags_and_notes import MAX_NOTE, MAX_REQUEST, MAX_TAGS, change_tags
from contextc.web.app_state import AppState
from contextc.web.router import EmptyObject, endpoint
from contextc.web.turn_manager import WHO


class TagsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tags to add and to remove."""

    add: Annotated[list[str], Meta(max_length=MAX_TAGS)] = []
    remove: Annotated[list[str], Meta(max_length=MAX_TAGS)] = []


class NoteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note. `request` is the request it is about, as CHANNEL/NUMBER; by default it is about the conversation. `who`
    is the name of its author.
    """

    text: Annotated[str, Meta(max_length=MAX_NOTE)]
    who: Annotated[str, Meta(max_length=MAX_WHO)] = WHO
    request: Annotated[str, Meta(max_length=MAX_REQUEST)] = ""


@endpoint("GET", "/tags", tag="conversations")
def all_tags(app: AppState) -> list[str]:
    """List all tags of the store, sorted."""
    return app.store.tags()


@endpoint("POST", "/conversations/{name}/tags", tag="conversations")
def tag(app: AppState, name: str, body: TagsBody) -> list[str]:
    """Add and remove tags of a conversation. Returns its tags."""
    return app.store.write(lambda tx: change_tags(tx, name, add=body.add, remove=body.remove), repeatable=True)


@endpoint("GET", "/conversations/{name}/notes", tag="conversations")
def notes(app: AppState, name: str) -> list[Note]:
    """List the notes of a conversation, oldest first. Their text is text, never markup."""
    return app.store.notes(name)


@endpoint("POST", "/conversations/{name}/notes", status=201, tag="conversations")
def add_note(app: AppState, name: str, body: NoteBody) -> Note:
    """Add a note to a conversation, or to one of its requests."""
    return app.store.add_note(name, body.text, who=body.who, request=body.request)


@endpoint("DELETE", "/conversations/{name}/notes/{number}", tag="conversations")
def delete_note(app: AppState, name: str, number: int) -> EmptyObject:
    """Remove a note permanently."""
    app.store.delete_note(name, number)
    return EmptyObject()

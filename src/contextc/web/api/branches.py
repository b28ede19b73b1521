"""Branches of a conversation: list, fork, rewind, edit and switch; and reset.

Nothing is deleted here. Operations that change the current branch are rejected while a turn runs, because the turn
would continue on another branch than it started on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from msgspec import Meta, Struct, structs

from contextc.compiler.ledger.channel_loader import load_messages_at
from contextc.inspection.preview import build_edited_message
from contextc.messages import Message, ToolCall, ToolResult
from contextc.store import Branch
from contextc.store.conversation_list import ConversationOverview
from contextc.store.message_rows import make_place
from contextc.web.app_state import AppState
from contextc.web.conversation_state import ConversationView, load_conversation_view
from contextc.web.endpoint_registry import EmptyObject, endpoint

TAG = "branches"
EXCERPT_LENGTH = 80
"""Characters of a branch's excerpt."""
Seq = Annotated[int, Meta(ge=1)]


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `name` of the new conversation, and `at`, the last shared message: its seq, uid or id."""

    name: str
    at: str | int | None = None


class RewindBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message to continue from: its seq (0: the start), uid or id."""

    to: str | int


class EditBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Seq
    text: str


class SwitchBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    branch: int


class BranchView(Branch, frozen=True, kw_only=True):
    """A branch with an excerpt `words` of its first own message.

    For the first branch, it is the message at which others branch off. A message without text has the name of its tool
    call or result. Empty if there is no message yet. `time` is when this message was written; without a message, when
    the branch was created.
    """

    words: str
    time: int = 0


@endpoint("GET", "/conversations/{name}/branches")
def branches(app: AppState, name: str) -> list[BranchView]:
    """List the branches of a conversation, oldest first. One of them is current."""
    found = app.store.branches(name)
    places = {branch.number: make_place(branch.number, _divergence(branch, found)) for branch in found}
    messages = app.store.read(lambda tx: load_messages_at(tx, places.values()))
    return [
        _branch_view(branch, messages.get(places[branch.number]))
        for branch in sorted(found, key=lambda each: (each.created, each.number))
    ]


def _branch_view(branch: Branch, message: Message | None) -> BranchView:
    time = branch.created if message is None else message.time or branch.created
    return BranchView(**structs.asdict(branch), words=_excerpt(message), time=time)


def _divergence(branch: Branch, all: list[Branch]) -> int:
    """Return the seq of the message at which a branch diverges."""
    if any(each.number == branch.parent for each in all):
        return branch.base + 1
    leave = [each.base + 1 for each in all if each.parent == branch.number and each.base >= branch.base]
    return min([seq for seq in leave if seq <= branch.length], default=branch.base + 1)


def _excerpt(message: Message | None) -> str:
    """Return the first words of a message; of one without text, the tool that it calls or has a result of."""
    if message is None:
        return ""
    found = " ".join(message.text[: EXCERPT_LENGTH * 8].split())[:EXCERPT_LENGTH]
    if found:
        return found
    for part in message.parts:
        if isinstance(part, ToolCall):
            return f"call of {part.name}"[:EXCERPT_LENGTH]
        if isinstance(part, ToolResult):
            return f"result of {part.name}"[:EXCERPT_LENGTH]
    return ""


@endpoint("POST", "/conversations/{name}/fork", status=201)
def fork(app: AppState, name: str, body: ForkBody) -> ConversationOverview:
    """Create a conversation that shares all messages up to `at`, or all. Nothing is copied."""
    app.store.fork(name, body.name, at=body.at)
    return app.store.overview(body.name)


@endpoint("POST", "/conversations/{name}/rewind")
def rewind(app: AppState, name: str, body: RewindBody) -> ConversationView:
    """Continue from an earlier message. Later messages are kept on their own branch."""
    with _without_running_turn(app, name):
        app.store.rewind(name, body.to)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/edit")
def edit(app: AppState, name: str, body: EditBody) -> Message:
    """Replace the text of a message, on a new branch. Later messages are kept on the old branch."""
    with _without_running_turn(app, name):
        return app.store.edit(name, body.seq, build_edited_message(app.store, name, body.seq, body.text))


@endpoint("POST", "/conversations/{name}/switch")
def switch(app: AppState, name: str, body: SwitchBody) -> ConversationView:
    """Make another branch current."""
    with _without_running_turn(app, name):
        app.store.switch(name, body.branch)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/reset")
def reset(app: AppState, name: str, body: EmptyObject) -> ConversationView:
    """Clear the context: existing messages stay stored, but are no longer sent to a model."""
    with _without_running_turn(app, name):
        app.store.reset(name)
    return load_conversation_view(app, name)


@contextmanager
def _without_running_turn(app: AppState, name: str) -> Generator[None]:
    """Hold the lease of the conversation. Raises `ConversationBusy` while a turn of this server's agent runs."""
    app.store.conversation(name)  # raises if it does not exist: a lease would create it
    with app.store.lease(name, app.options.agent):
        yield

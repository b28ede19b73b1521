"""The branches of a conversation, and whatever makes one: forks, rewinds, edits. And what is cut, kept and written out.

Nothing here takes anything away. What changes the line of a conversation waits for no turn: where one runs, it is
refused, because that turn would go on writing on another line than it began on.
"""

from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta, Struct, structs

from contextc.compiler.preview import edited
from contextc.executor.threads import durable
from contextc.ledger.look import messages_at
from contextc.messages import Message
from contextc.store import Branch
from contextc.store.overviews import Overview
from contextc.store.places import place
from contextc.transfer import export_lines
from contextc.web.desk import Desk
from contextc.web.endpoint import Nothing, Stream, endpoint
from contextc.web.view import View, view

LINES = 200
"""How many lines of an export are read at once."""
WORDS = 80
"""How many characters of a branch's first words are told."""
Seq = Annotated[int, Meta(ge=1)]


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `name` of the new conversation, and the message it shares everything up to: its seq, uid or id."""

    name: str
    at: str | int | None = None


class Rewind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message to go on from: its seq (0: from the start), uid or id."""

    to: str | int


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Seq
    text: str


class Switch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    branch: int


class Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Seq


class Line(Branch, frozen=True, kw_only=True):
    """A branch and its first words of its own: what it says where it parts from the line it comes from, or, of the
    first branch, where others part from it. Empty where nothing was said there yet.
    """

    words: str


@endpoint("GET", "/conversations/{name}/branches")
def branches(desk: Desk, name: str) -> list[Line]:
    """Every line of a conversation, oldest first. One of them is current."""
    found = desk.store.branches(name)
    places = {branch.number: place(branch.number, _parts_at(branch, found)) for branch in found}
    said = desk.store.read(lambda tx: messages_at(tx, places.values()))
    return [
        Line(**structs.asdict(branch), words=_beginning(said.get(places[branch.number])))
        for branch in sorted(found, key=lambda each: (each.created, each.number))
    ]


def _parts_at(branch: Branch, all: list[Branch]) -> int:
    """The message at which a branch goes its own way."""
    if any(each.number == branch.parent for each in all):
        return branch.base + 1
    leave = [each.base + 1 for each in all if each.parent == branch.number and each.base >= branch.base]
    return min([seq for seq in leave if seq <= branch.length], default=branch.base + 1)


def _beginning(message: Message | None) -> str:
    return "" if message is None else " ".join(message.text[: WORDS * 8].split())[:WORDS]


@endpoint("POST", "/conversations/{name}/fork", status=201)
def fork(desk: Desk, name: str, body: Fork) -> Overview:
    """A new conversation that shares everything up to a message; without one, everything. It copies nothing."""
    desk.store.fork(name, body.name, at=body.at)
    return desk.store.overview(body.name)


@endpoint("POST", "/conversations/{name}/rewind")
def rewind(desk: Desk, name: str, body: Rewind) -> View:
    """Go on from an earlier message. What came after it stays, on its own branch."""
    with _no_turn(desk, name):
        desk.store.rewind(name, body.to)
    return view(desk, name)


@endpoint("POST", "/conversations/{name}/edit")
def edit(desk: Desk, name: str, body: Edit) -> Message:
    """Put another text in the place of one, on a new branch. What followed stays, on the branch it is on."""
    with _no_turn(desk, name):
        return desk.store.edit(name, body.seq, edited(desk.store, name, body.seq, body.text))


@endpoint("POST", "/conversations/{name}/switch")
def switch(desk: Desk, name: str, body: Switch) -> View:
    """Go on from the end of another branch."""
    with _no_turn(desk, name):
        desk.store.switch(name, body.branch)
    return view(desk, name)


@endpoint("POST", "/conversations/{name}/reset")
def reset(desk: Desk, name: str, body: Nothing) -> View:
    """Clear the context: what was said so far stays in the record, and no model is sent it any more."""
    with _no_turn(desk, name):
        desk.store.reset(name)
    return view(desk, name)


@endpoint("POST", "/conversations/{name}/pin")
def pin(desk: Desk, name: str, body: Pin) -> View:
    """Keep a message from ever being cut away; a call is kept with its results."""
    desk.store.pin(name, body.seq)
    return view(desk, name)


@endpoint("POST", "/conversations/{name}/unpin")
def unpin(desk: Desk, name: str, body: Pin) -> View:
    """Let a message be cut away again, when there is no room."""
    desk.store.unpin(name, body.seq)
    return view(desk, name)


@endpoint("GET", "/conversations/{name}/export", media_type="application/x-ndjson")
async def export(desk: Desk, name: str) -> Stream:
    """A conversation with its branches and media as JSON Lines; `contextc import` takes it in again."""
    lines = export_lines(desk.store, name)
    first = await durable(_some, lines)  # what is wrong with it is told before anything else is
    saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl"
    return Stream(_rest(first, lines), "application/x-ndjson", {"Content-Disposition": saved})


def _some(lines: Iterator[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in islice(lines, LINES)])


async def _rest(first: bytes, lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    some = first
    while some:
        yield some
        some = await durable(_some, lines)


@contextmanager
def _no_turn(desk: Desk, name: str) -> Generator[None]:
    """The conversation to ourselves; `ConversationBusy` where a turn of this server's agent runs."""
    desk.store.conversation(name)  # that there is one: a lease would begin it
    with desk.store.lease(name, desk.options.agent):
        yield

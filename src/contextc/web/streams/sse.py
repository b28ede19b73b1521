"""Server-sent events: how a frame is written, and a stream that goes on until somebody leaves.

What is ready at the same time leaves in one piece. A reader that is slow is waited for by nobody but its own stream:
what it has not taken is read from the store when its turn comes.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

from starlette.requests import Request

from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import AnyEvent
from contextc.executor.threads import durable
from contextc.executor.watching import Inbox, hub, watch_together
from contextc.store import Store
from contextc.store.places import head
from contextc.store.reading import SEQ_MASK
from contextc.web.desk import Desk
from contextc.web.running import Begun

HEARTBEAT = b": still here\n\n"
HEARTBEAT_SECONDS = 15.0

NONE = -1
"""The number of a conversation that does not exist."""

Encode: TypeAlias = Callable[[AnyEvent], bytes]
"""An event as frames."""


def frame(data: bytes, *, id: int | None = None, event: str = "") -> bytes:
    """One event. `data` has no line ends: it is JSON."""
    named = b"event: %s\n" % event.encode() if event else b""
    numbered = b"id: %d\n" % id if id is not None else b""
    return b"%s%sdata: %s\n\n" % (named, numbered, data)


def first_wanted(request: Request, after: int) -> int:
    """The number after which a reader wants to go on. One that reconnects says it in a header, which then counts."""
    said = request.headers.get("last-event-id", "").strip()
    found = event_number(said) if said else after
    if found is None:
        raise InvalidRequest(f"Last-Event-ID: {said[:100]!r} is no number of an event.")
    return found


def event_number(said: str) -> int | None:
    """The number of an event, as somebody wrote it; None where it is none."""
    is_number = said.isascii() and said.isdigit() and len(said) <= len(str(SEQ_MASK))
    return number if is_number and (number := int(said)) <= SEQ_MASK else None


async def told(desk: Desk, conversation: str, after: int, encode: Encode) -> AsyncGenerator[bytes]:
    """Everything that happens in a conversation after event `after`, until it is deleted or the server ends."""
    inbox, watched = Inbox(await durable(_number, desk.store, conversation)), hub(desk.store)
    watched.join(conversation, inbox)
    try:
        if desk.ending.is_set():
            return
        with desk.watchers.watching(conversation) as gone:
            source = watch_together(desk.store, conversation, after, inbox=inbox, pulse=HEARTBEAT_SECONDS)
            async with aclosing(source):
                async for events in source:
                    if desk.ending.is_set() or gone.is_set() or inbox.is_replaced:
                        return
                    yield b"".join([encode(event) for event in events]) or HEARTBEAT
    finally:
        watched.leave(conversation, inbox)


async def followed(desk: Desk, begun: Begun, after: int, telling: "Telling") -> AsyncGenerator[bytes]:
    """A turn after event `after`, and those that follow it, to its end or to where it waits for a person."""
    with desk.running.following(begun), desk.watchers.watching(begun.turn.conversation) as gone:
        source = begun.turn.together(after=after, pulse=HEARTBEAT_SECONDS)
        async with aclosing(source):
            async for events in source:
                if desk.ending.is_set() or gone.is_set():
                    break
                yield _told_of(events, telling) if events else HEARTBEAT
                if telling.waits:
                    break
        yield telling.ended()


def _told_of(events: Sequence[AnyEvent], telling: "Telling") -> bytes:
    told: list[bytes] = []
    for event in events:
        told.append(telling.frames(event))
        if telling.waits:
            break
    return b"".join(told)


class Telling(Protocol):
    """A vocabulary in which one turn is told."""

    waits: bool
    """Whether the last event asked a person for a word."""

    def frames(self, event: AnyEvent) -> bytes: ...

    def ended(self) -> bytes:
        """What the stream ends with."""
        ...


def _number(store: Store, conversation: str) -> int:
    """The number of a conversation. One that is deleted and made again under the same name has another."""
    try:
        return store.read(lambda tx: head(tx, conversation).conversation)
    except UnknownConversation:
        return NONE

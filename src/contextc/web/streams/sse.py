"""Server-sent events: how a frame is written, and a stream that goes on until somebody leaves.

What is ready at the same time leaves in one piece. A reader that is slow is waited for by nobody but its own stream:
what it has not taken is read from the store when its turn comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

from starlette.requests import Request

from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import AnyEvent
from contextc.executor.threads import durable
from contextc.executor.watching import watch_together
from contextc.store import Store
from contextc.web.desk import Desk
from contextc.web.running import Begun

HEARTBEAT = b": still here\n\n"
HEARTBEAT_SECONDS = 15.0

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
    if said and not (said.isascii() and said.isdigit()):
        raise InvalidRequest(f"Last-Event-ID: {said!r} is no number of an event.")
    return int(said) if said else after


async def told(desk: Desk, conversation: str, after: int, encode: Encode) -> AsyncGenerator[bytes]:
    """Everything that happens in a conversation after event `after`, until it is deleted or the server ends."""
    began = await durable(_begun, desk.store, conversation)
    with desk.watchers.watching(conversation) as gone:
        happens = watch_together(desk.store, conversation, after)
        async with aclosing(until(happens, desk.ending, gone)) as source:
            async for events in source:
                if events:
                    yield b"".join([encode(event) for event in events])
                elif await durable(_begun, desk.store, conversation) != began:
                    return
                else:
                    yield HEARTBEAT


async def followed(desk: Desk, begun: Begun, after: int, telling: "Telling") -> AsyncGenerator[bytes]:
    """A turn after event `after`, and those that follow it, to its end or to where it waits for a person."""
    with desk.running.following(begun), desk.watchers.watching(begun.turn.conversation) as gone:
        async with aclosing(until(begun.turn.together(after=after), desk.ending, gone)) as source:
            async for events in source:
                if not events:
                    yield HEARTBEAT
                    continue
                told = b""
                for event in events:
                    told += telling.frames(event)
                    if telling.waits:
                        break
                if told:
                    yield told
                if telling.waits:
                    break
        yield telling.ended()


class Telling(Protocol):
    """A vocabulary in which one turn is told."""

    waits: bool
    """Whether the last event asked a person for a word."""

    def frames(self, event: AnyEvent) -> bytes: ...

    def ended(self) -> bytes:
        """What the stream ends with."""
        ...


async def until(source: AsyncGenerator[Sequence[AnyEvent]], *ends: asyncio.Event) -> AsyncGenerator[Sequence[AnyEvent]]:
    """What a source gives, until it ends or one of the events is set; nothing at all, once in a while, where it is
    silent.
    """
    loop = asyncio.get_running_loop()
    ending = [loop.create_task(each.wait()) for each in ends]
    upcoming: asyncio.Task[Sequence[AnyEvent] | None] | None = None
    try:
        while True:
            upcoming = upcoming or loop.create_task(_next(source))
            await asyncio.wait({upcoming, *ending}, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if any(each.is_set() for each in ends):
                return
            if not upcoming.done():
                yield ()
                continue
            found, upcoming = upcoming.result(), None
            if found is None:
                return
            yield found
    finally:
        for task in ending:
            task.cancel()
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
        await source.aclose()


async def _next(source: AsyncGenerator[Sequence[AnyEvent]]) -> Sequence[AnyEvent] | None:
    return await anext(source, None)


def _begun(store: Store, conversation: str) -> int | None:
    """When a conversation was begun, by which it is told from another one of its name; None where there is none."""
    try:
        return store.conversation(conversation).created
    except UnknownConversation:
        return None

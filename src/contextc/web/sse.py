"""Server-sent events: encoding of frames, and the streams of a conversation and of a turn.

Events that are ready at the same time are sent in one chunk. A slow client delays only its own stream: events that it
has not received are read from the store later.

In the native stream, `event:` is the type, `id:` the number, `data:` the event as JSON.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

from starlette.requests import Request

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import AnyEvent, TurnStart, encode_event
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.store import Store
from contextc.store.message_log import SEQ_MASK, load_tip
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import load_events_of_types
from contextc.web.app_state import AppState
from contextc.web.turn_manager import RunningTurn

HEARTBEAT = b": still here\n\n"
HEARTBEAT_SECONDS = 15.0
MAX_STARTS = 50
"""Number of last turn starts of all agents among which that of a waiting turn is searched."""

NO_CONVERSATION = -1
"""Number of a conversation that does not exist."""

FrameEncoder: TypeAlias = Callable[[AnyEvent], bytes]
"""Encoder of an event as frames."""


def frame(data: bytes, *, id: int | None = None, event: str = "") -> bytes:
    """Return one event as a frame. `data` is JSON without line breaks."""
    named = b"event: %s\n" % event.encode() if event else b""
    numbered = b"id: %d\n" % id if id is not None else b""
    return b"%s%sdata: %s\n\n" % (named, numbered, data)


def start_number(request: Request, after: int) -> int:
    """Return the event number to continue after. The header `Last-Event-ID` takes precedence over `after`."""
    header = request.headers.get("last-event-id", "").strip()
    found = parse_event_number(header) if header else after
    if found is None:
        raise InvalidRequest("Last-Event-ID must be the number of an event", got=header[:100])
    return found


def parse_event_number(text: str) -> int | None:
    """Parse the number of an event; None if it is invalid."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(SEQ_MASK))
    return number if is_number and (number := int(text)) <= SEQ_MASK else None


async def stream_conversation(
    app: AppState, conversation: str, after: int, encode: FrameEncoder
) -> AsyncGenerator[bytes]:
    """Stream all events of a conversation after event `after`, until it is deleted or the server stops."""
    inbox, watched = Inbox(await run_blocking(_number, app.store, conversation)), event_hub(app.store)
    watched.add_watcher(conversation, inbox)
    try:
        if app.stopping.is_set():
            return
        with app.deletions.watch(conversation) as gone:
            source = watch_batches(app.store, conversation, after, inbox=inbox, heartbeat=HEARTBEAT_SECONDS)
            async with aclosing(source):
                async for events in source:
                    if app.stopping.is_set() or gone.is_set() or inbox.is_replaced:
                        return
                    yield b"".join([encode(event) for event in events]) or HEARTBEAT
    finally:
        watched.remove_watcher(conversation, inbox)


async def stream_turn(app: AppState, begun: RunningTurn, after: int, encoder: "TurnEncoder") -> AsyncGenerator[bytes]:
    """Stream a turn and its follow-up turns after event `after`, to the end or to a pending approval."""
    with app.turns.following(begun), app.deletions.watch(begun.turn.conversation) as gone:
        source = begun.turn.batches(after=after, pulse=HEARTBEAT_SECONDS)
        async with aclosing(source):
            async for events in source:
                if app.stopping.is_set() or gone.is_set():
                    break
                yield _encode_until_waiting(events, encoder) if events else HEARTBEAT
                if encoder.is_waiting:
                    break
        yield encoder.end_frames()


async def stream_waiting_turn(
    app: AppState, conversation: str, after: int | None, encoder: "TurnEncoder"
) -> AsyncGenerator[bytes]:
    """Stream a turn that waits for approval, after an event or from its start, to its next pending approval."""

    def read() -> Sequence[AnyEvent]:
        start = after if after is not None else load_turn_start(app.store, conversation, app.options.agent)
        return app.store.events(conversation, after=start)

    yield _encode_until_waiting(await run_blocking(read), encoder)
    yield encoder.end_frames()


async def continued_stream(
    app: AppState, conversation: str, after: int, encoder: "TurnEncoder"
) -> AsyncGenerator[bytes]:
    """Return the stream after an answer to the approval of event `after`.

    The turn is continued if all its approvals are answered. Otherwise the stream has the next pending approval.
    """
    running = app.turns.running_turn(conversation)
    if running is not None:  # a provider that runs tools itself: its turn waited in this process
        return stream_turn(app, running, after, encoder)
    begun = await app.turns.resume_answered(conversation, attended=True)
    if begun is None:
        return stream_waiting_turn(app, conversation, after, encoder)
    return stream_turn(app, begun, begun.after, encoder)


def load_turn_start(store: Store, conversation: str, agent: str) -> int:
    """Return the number of the event before the last start of an agent's last turn. Blocking: reads the store."""

    def work(tx: Transaction) -> int:
        found = load_events_of_types(tx, load_tip(tx, conversation).conversation, [TurnStart], limit=MAX_STARTS)
        starts = [each.event.number for each in found if each.event.agent == agent]
        return starts[-1] - 1 if starts else 0

    return store.read(work)


def _encode_until_waiting(events: Sequence[AnyEvent], telling: "TurnEncoder") -> bytes:
    frames: list[bytes] = []
    for event in events:
        frames.append(telling.frames(event))
        if telling.is_waiting:
            break
    return b"".join(frames)


class TurnEncoder(Protocol):
    """Encoder of one turn in a client's vocabulary."""

    is_waiting: bool
    """True if the last event requested an approval."""

    def frames(self, event: AnyEvent) -> bytes: ...

    def end_frames(self) -> bytes:
        """Return the final frames of the stream."""
        ...


def _number(store: Store, conversation: str) -> int:
    """Return the number of a conversation. A conversation that is deleted and created again gets another one."""
    try:
        return store.read(lambda tx: load_tip(tx, conversation).conversation)
    except UnknownConversation:
        return NO_CONVERSATION


def encode_native(event: AnyEvent) -> bytes:
    return frame(encode_event(event), id=event.number, event=str(event.__struct_config__.tag))

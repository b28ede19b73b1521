"""Events of given types, each with the message it follows; used to show user notices in place.

There is no index by type, because events are written far more often than they are filtered by type. Their JSON begins
with `type`, so the database filters rows by prefix. It reads from the newest and stops at the limit.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from contextc.errors import StoreCorrupt
from contextc.events import (
    AnyEvent,
    Event,
    InputDequeued,
    StepFinish,
    SystemMessageCreated,
    ToolFailed,
    ToolFinished,
    TurnStart,
    decode_event,
)
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import DOCTOR_HINT, SEQ_MASK, decode_row, make_place
from contextc.store.turn_and_event_records import TurnRecord, load_turns_by_number

EventType = TypeVar("EventType", bound=Event)
MESSAGE_EVENTS = (TurnStart, StepFinish, ToolFinished, ToolFailed, SystemMessageCreated, InputDequeued)
"""Types of events that name a stored message by its seq."""


class PositionedEvent(NamedTuple, Generic[EventType]):
    """An event, with seq and uid of the last message that earlier events name (seq 0 if there is none)."""

    event: EventType
    seq: int
    uid: str


def load_events_of_types(
    tx: Transaction, conversation: int, kinds: Sequence[type[EventType]], *, before: int | None = None, limit: int
) -> list[PositionedEvent[EventType]]:
    """Return the last `limit` events of the given types before event `before` (None: the end), oldest first."""
    wanted, speaking = _type_bounds(kinds), _type_bounds(MESSAGE_EVENTS)
    first, last = make_place(conversation, 0), make_place(conversation, SEQ_MASK if before is None else before - 1)
    rows = tx.rows(
        f"SELECT n.body, ({_last_event_query('n.place - 1', speaking)})"
        f" FROM (SELECT place, body FROM event WHERE place BETWEEN ? AND ? AND {_between('body', wanted)}"
        f" ORDER BY place DESC LIMIT {limit:d}) n ORDER BY n.place",
        *(first, *speaking),
        *(first, last, *wanted),
    )
    told = [(_read(body), _find_message_event(tx, conversation, spoken)) for body, spoken in rows]
    opened = load_turns_by_number(
        tx, conversation, {spoken.turn for _, spoken in told if isinstance(spoken, TurnStart)}
    )
    found: list[PositionedEvent[EventType]] = []
    for event, spoken in told:
        if not isinstance(event, tuple(kinds)):
            raise StoreCorrupt(
                f"Event: its type must be the one its row begins with, got {type(event).__name__}", fix=DOCTOR_HINT
            )
        found.append(PositionedEvent(event, *_message_of(spoken, opened)))
    return found


def _message_of(spoken: AnyEvent | None, opened: Mapping[int, TurnRecord]) -> tuple[int, str]:
    """Return seq and uid of the message that an event names. For a turn start, the turn's record has the uid."""
    match spoken:
        case TurnStart():
            return spoken.seq, opened[spoken.turn].opening if spoken.turn in opened else ""
        case StepFinish() | ToolFinished() | ToolFailed() | SystemMessageCreated() | InputDequeued():
            return spoken.seq, spoken.uid
        case _:
            return 0, ""


def _find_message_event(tx: Transaction, conversation: int, body: bytes | None) -> AnyEvent | None:
    """Return the event that names a message. For a resumed turn, search before its start."""
    speaking = _type_bounds(MESSAGE_EVENTS)
    while body is not None:
        event = _read(body)
        if not isinstance(event, TurnStart) or not event.resumed:
            return event
        where = make_place(conversation, 0), make_place(conversation, event.number - 1)
        row = tx.row(_last_event_query("?", speaking), *where, *speaking)
        body = None if row is None else row[0]
    return None


def _last_event_query(high: str, bounds: Sequence[bytes]) -> str:
    """Return the query for the last event of some types up to a place."""
    which = f"s.place BETWEEN ? AND {high} AND {_between('s.body', bounds)}"
    return f"SELECT s.body FROM event s WHERE {which} ORDER BY s.place DESC LIMIT 1"


def _type_bounds(kinds: Iterable[type[Event]]) -> list[bytes]:
    """Return the bounds of rows of some types: of all types first, which excludes most rows, then of each."""
    tags = [str(kind.__struct_config__.tag) for kind in kinds]
    bounds = [f'{{"type":"{tag}{end}'.encode() for tag in tags for end in ('"', "#")]
    return [min(bounds), max(bounds), *bounds]


def _between(body: str, bounds: Sequence[bytes]) -> str:
    whole, *each = [f"{body} BETWEEN ? AND ?"] * (len(bounds) // 2)
    return f"{whole} AND ({' OR '.join(each)})"


def _read(body: bytes) -> AnyEvent:
    return decode_row(decode_event, body, "Event")

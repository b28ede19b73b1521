"""Turns, steps, events, queued input and trigger states, as functions over a transaction.

All of them belong to a conversation by its number, and are appended under numbers that grow within it. A writer has
locked the conversation, so turns of different agents never get the same number. A turn that is marked as running
while its lease has ended was interrupted; recovery records that here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode, fix_surrogates_in_json
from contextc.errors import StoreCorrupt
from contextc.events import (
    AnyEvent,
    Event,
    InputDequeued,
    InputQueued,
    StepFinish,
    SystemMessageCreated,
    ToolFailed,
    ToolFinished,
    ToolStart,
    TurnInterrupted,
    TurnStart,
    decode_event,
    encode_event,
)
from contextc.messages import AnyPart, Media, Message, Text, Usage, decode_message, encode_message, find_open_calls
from contextc.store.append_and_load import load_between, load_messages, now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import (
    DOCTOR_HINT,
    SEQ_BITS,
    SEQ_MASK,
    decode_readable,
    decode_row,
    decode_rows,
    load_branch_end,
    make_place,
)

MAX_EVENT_TEXT = 2_000  # characters of a text that an event includes; its message has the rest
Call = TypeVar("Call")
QueueKind: TypeAlias = Literal["steer", "follow-up"]


class TurnRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stored turn. `opened` and `opening` are seq and uid of the message that opened it; `finish` is why it ended.

    A turn is `waiting` while tool calls of its last reply wait for approval and no process runs it. It is `queued`
    while it waits for a worker that continues it.
    """

    number: int
    agent: str
    run: str | None = None
    state: Literal["running", "waiting", "queued", "finished", "interrupted"] = "running"
    opened: int = 0
    opening: str = ""
    finish: str = ""
    error: str = ""
    started: int = 0
    ended: int = 0
    steps: int = 0
    tool_calls: int = 0
    usage: Usage | None = None
    cost: float | None = None


class StepRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stored step: a model call and its tool calls. `index` counts from 1 within its turn."""

    number: int
    turn: int
    index: int
    state: Literal["started", "finished", "failed"] = "started"
    provider: str = ""
    model: str = ""
    request: int = 0
    finish: str = ""
    error: str = ""
    usage: Usage | None = None
    seq: int = 0
    uid: str = ""
    """The uid of the message with the received part of an aborted reply; `seq` is its seq."""
    kept: int = 0
    """The number of its stored request if that was not answered."""
    started: int = 0
    milliseconds: int = 0


class UnstartedCalls(NamedTuple):
    """The calls of the last reply that were never started, by index, with their reply, results and step."""

    reply: Message
    indexes: list[int]
    results: list[Message]
    step: StepRecord
    calls_before: int
    """Number of calls that the turn had made before this reply."""


class QueuedMessage(Struct, frozen=True, kw_only=True):
    """Input in the queue of a conversation."""

    number: int
    agent: str
    kind: QueueKind
    message: Message


_turn_from_json = msgspec.json.Decoder(TurnRecord).decode
_step_from_json = msgspec.json.Decoder(StepRecord).decode


LAST_TURN = "SELECT body FROM turn WHERE place BETWEEN ? AND ? AND agent = ? ORDER BY place DESC LIMIT 1"
QUEUE = "SELECT number, kind, body FROM queue WHERE conversation = ? AND agent = ? ORDER BY number"
TRIGGER_STATES = "SELECT name, body, agent FROM trigger_state WHERE conversation = ? AND agent IN (?, ?)"


def _place(conversation: int, number: int) -> int:
    """Return the place of a record: the number of its conversation, and its own number within it."""
    return conversation << SEQ_BITS | number


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def append_events(tx: Transaction, conversation: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Store events. Return them with their numbers."""
    if not events:
        return []
    number = load_last_number(tx, "event", conversation)
    told = [replace(event, number=number + index) for index, event in enumerate(events, 1)]
    try:
        bodies = [encode_event(event) for event in told]
    except UnicodeEncodeError:  # a lone surrogate, or a file name that is not valid UTF-8
        bodies = [encode(fix_surrogates_in_json(msgspec.to_builtins(event))) for event in told]
        told = [decode_event(body) for body in bodies]
    tx.run_many(
        "INSERT INTO event (place, body) VALUES (?, ?)",
        [(_place(conversation, event.number), body) for event, body in zip(told, bodies, strict=True)],
    )
    _set_last_number(tx, "event", conversation, told[-1].number)
    return told


def load_events(tx: Transaction, conversation: int, after: int, limit: int | None) -> list[AnyEvent]:
    return decode_rows(decode_event, [row[0] for row in tx.rows(*_select_events(conversation, after, limit))], "Event")


def _select_events(conversation: int, after: int, limit: int | None) -> tuple[str, int, int]:
    sql = "SELECT body FROM event WHERE place BETWEEN ? AND ? ORDER BY place" + (f" LIMIT {limit:d}" if limit else "")
    return sql, _place(conversation, after + 1), _place(conversation, SEQ_MASK)


def load_events_of_many(tx: Transaction, after: Mapping[int, int], limit: int) -> dict[int, list[AnyEvent]]:
    """Return the events of several conversations, each after a number, in one round trip."""
    for conversation, number in after.items():
        tx.prefetch(*_select_events(conversation, number, limit))
    return {conversation: load_events(tx, conversation, number, limit) for conversation, number in after.items()}


def load_last_number(tx: Transaction, table: str, conversation: int) -> int:
    if tx.locked is not None and (known := tx.locked.last_numbers.get((table, conversation))) is not None:
        return known
    row = tx.row(
        f"SELECT max(place) FROM {table} WHERE place BETWEEN ? AND ?",
        _place(conversation, 0),
        _place(conversation, SEQ_MASK),
    )
    return row[0] & SEQ_MASK if row and row[0] is not None else 0


def _set_last_number(tx: Transaction, table: str, conversation: int, number: int) -> None:
    """Record the number of a new row, if the transaction knows the last one."""
    if tx.locked is not None and (table, conversation) in tx.locked.last_numbers:
        tx.locked.last_numbers[table, conversation] = number


class WatchedState(NamedTuple):
    """The number of a conversation, the number of its last event (0: none), and whether a turn shall end."""

    conversation: int = 0
    last_event: int = 0
    has_end_request: bool = False


def load_watched_states(tx: Transaction, names: Sequence[str]) -> dict[str, WatchedState]:
    """Return the state of each existing conversation, by name."""
    found: dict[str, WatchedState] = {}
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        some = [*some, *[some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))]  # few different statements
        rows = tx.rows(
            "SELECT c.name, c.number, (SELECT max(place) FROM event"
            " WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295),"
            " (SELECT max(request) FROM lease l WHERE l.conversation = c.name AND l.holder <> '')"
            f" FROM conversation c WHERE c.name IN ({', '.join('?' for _ in some)})",
            *some,
        )
        found |= {
            name: WatchedState(number, (last or 0) & SEQ_MASK, bool(request)) for name, number, last, request in rows
        }
    return found


def result_event(message: Message, milliseconds: int) -> AnyEvent:
    """Return the event for a stored tool result."""
    result = message.tool_results[0]
    kind = ToolFailed if result.is_error else ToolFinished
    return kind(
        id=result.call_id,
        name=result.name,
        seq=message.seq,
        uid=message.uid,
        text=result.text[:MAX_EVENT_TEXT],
        milliseconds=milliseconds,
    )


# ── turns and steps ───────────────────────────────────────────────────────────────────────────────────────────────────


def insert_turn(tx: Transaction, conversation: int, turn: TurnRecord) -> TurnRecord:
    """Insert a turn under the next number."""
    turn = replace(turn, number=load_last_number(tx, "turn", conversation) + 1)
    tx.send(
        "INSERT INTO turn (place, agent, running, body) VALUES (?, ?, 1, ?)",
        _place(conversation, turn.number),
        turn.agent,
        msgspec.json.encode(turn),
    )
    _set_last_number(tx, "turn", conversation, turn.number)
    return turn


def save_turn(tx: Transaction, conversation: int, turn: TurnRecord) -> None:
    tx.send(
        "UPDATE turn SET running = ?, body = ? WHERE place = ?",
        int(turn.state == "running"),
        msgspec.json.encode(turn),
        _place(conversation, turn.number),
    )


def load_turns(tx: Transaction, conversation: int, *, last: int | None = None) -> list[TurnRecord]:
    rows = tx.rows(
        "SELECT body FROM turn WHERE place BETWEEN ? AND ? ORDER BY place DESC" + (f" LIMIT {last:d}" if last else ""),
        _place(conversation, 0),
        _place(conversation, SEQ_MASK),
    )
    return decode_rows(_turn_from_json, [body for (body,) in reversed(rows)], "Turn")


def load_last_turn(tx: Transaction, conversation: int, agent: str, *, before: int = SEQ_MASK) -> TurnRecord | None:
    """Return the last turn of an agent, or the last before turn `before`."""
    row = tx.row(LAST_TURN, _place(conversation, 0), _place(conversation, before - 1), agent)
    return decode_row(_turn_from_json, row[0], f"Last turn of {agent!r}") if row else None


def prefetch_opening(tx: Transaction, conversation: int, agent: str, channel: str) -> None:
    """Announce what is read when a turn opens: the last turn, the trigger states and the queue."""
    tx.prefetch(LAST_TURN, _place(conversation, 0), _place(conversation, SEQ_MASK - 1), agent)
    tx.prefetch(TRIGGER_STATES, conversation, agent, channel)
    tx.prefetch(QUEUE, conversation, agent)


def load_turns_by_number(tx: Transaction, conversation: int, numbers: Collection[int]) -> dict[int, TurnRecord]:
    """Return turns by number."""
    if not numbers:
        return {}
    rows = tx.rows(
        f"SELECT body FROM turn WHERE place IN ({', '.join('?' for _ in numbers)})",
        *[_place(conversation, number) for number in numbers],
    )
    return {turn.number: turn for turn in decode_rows(_turn_from_json, [body for (body,) in rows], "Turn")}


def mark_interrupted(
    tx: Transaction, conversation: int, agent: str, time: int, messages: int, why: str
) -> TurnRecord | None:
    """Mark a running turn whose lease has ended as interrupted, and its step as failed. Return it, if there is one."""
    turn = load_last_turn(tx, conversation, agent)
    if turn is None or turn.state != "running":
        return None
    for step in load_steps(tx, conversation, turn.number):
        if step.state == "started":
            save_step(tx, conversation, replace(step, state="failed", error=why))
    save_turn(tx, conversation, replace(turn, state="interrupted", ended=time))
    append_events(tx, conversation, [TurnInterrupted(time=time, agent=agent, turn=turn.number, messages=messages)])
    return turn


def count_started_calls(tx: Transaction, conversation: int, turn: int, seq: int) -> Counter[str] | None:
    """Return the ids of the calls of a reply whose tools were started and have no result, with their number.

    Calls with the same id start one after the other, so those that were started are the first ones without a result.
    Return None if message `seq` is not a complete reply of that turn: the state of its calls is then unknown.
    """
    if not any(step.state == "finished" and step.seq == seq for step in load_steps(tx, conversation, turn)):
        return None
    events: list[AnyEvent] = []
    last = _place(conversation, SEQ_MASK)
    while rows := tx.rows(
        "SELECT place, body FROM event WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 200",
        _place(conversation, 0),
        last,
    ):
        last = rows[-1][0] - 1
        for event in decode_rows(decode_event, [body for _, body in rows], "Event"):
            if isinstance(event, StepFinish) and event.turn == turn and event.seq == seq:
                return _count_running(reversed(events))
            if isinstance(event, ToolStart | ToolFinished | ToolFailed) and event.turn == turn:
                events.append(event)
    return None


def _count_running(events: Iterable[AnyEvent]) -> Counter[str]:
    """Return how many calls of each id have started and not ended. A call that was declined ends without a start."""
    running: Counter[str] = Counter()
    for event in events:
        if isinstance(event, ToolStart):
            running[event.id] += 1
        elif isinstance(event, ToolFinished | ToolFailed) and running[event.id]:
            running[event.id] -= 1
    return running


def split_started(calls: Iterable[Call], started: Counter[str], id_of: Callable[[Call], str]) -> list[Call]:
    """Return those of the open calls of a reply that were never started, in order."""
    left, found = Counter(started), list[Call]()
    for call in calls:
        if left[id_of(call)]:
            left[id_of(call)] -= 1
        else:
            found.append(call)
    return found


def load_unstarted_calls(tx: Transaction, name: str, conversation: int, turn: TurnRecord) -> UnstartedCalls | None:
    """Return the calls of a turn's last reply that were never started, or None."""
    written = [
        message
        for message in load_messages(tx, name, after=max(0, turn.opened - 1))
        if message.role in ("assistant", "tool") and message.turn == turn.number
    ]
    waiting = find_open_calls(written)
    if not waiting:
        return None
    reply = waiting[-1][0]
    started = count_started_calls(tx, conversation, turn.number, reply.seq)
    steps = load_steps(tx, conversation, turn.number)
    step = next((each for each in steps if each.seq == reply.seq), None)
    if started is None or step is None:
        return None
    open_now = split_started([call for message, call in waiting if message is reply], started, lambda call: call.id)
    calls = [index for index, call in enumerate(reply.tool_calls) if any(call is each for each in open_now)]
    results = [message for message in written if message.role == "tool" and message.seq > reply.seq]
    before = sum([len(each.tool_calls) for each in written if each.seq < reply.seq and each.status == "sent"])
    return UnstartedCalls(reply, calls, results, step, before) if calls else None


def find_opening_message(tx: Transaction, branch: int, turn: TurnRecord) -> Message | None:
    """Return the message that opened a turn, or None if it is not on that branch."""
    if load_branch_end(tx, branch)[0] < turn.opened:
        return None
    found = load_between(tx, branch, turn.opened - 1, turn.opened)
    return found[0] if found and found[0].uid == turn.opening else None


def insert_step(tx: Transaction, conversation: int, step: StepRecord) -> StepRecord:
    step = replace(step, number=load_last_number(tx, "step", conversation) + 1)
    tx.send(
        "INSERT INTO step (place, turn, body) VALUES (?, ?, ?)",
        _place(conversation, step.number),
        step.turn,
        msgspec.json.encode(step),
    )
    _set_last_number(tx, "step", conversation, step.number)
    return step


def save_step(tx: Transaction, conversation: int, step: StepRecord) -> None:
    tx.send("UPDATE step SET body = ? WHERE place = ?", msgspec.json.encode(step), _place(conversation, step.number))


def load_steps(tx: Transaction, conversation: int, turn: int | None) -> list[StepRecord]:
    rows = tx.rows(
        "SELECT body FROM step WHERE place BETWEEN ? AND ? AND (turn = ? OR ? < 0) ORDER BY place",
        _place(conversation, 0),
        _place(conversation, SEQ_MASK),
        turn or 0,
        -1 if turn is None else 0,
    )
    return decode_rows(_step_from_json, [body for (body,) in rows], "Step")


def load_last_steps(tx: Transaction, conversations: Sequence[int]) -> dict[int, StepRecord]:
    """Return the last step of each conversation, by conversation number. Unreadable ones are left out."""
    rows = tx.rows(
        "SELECT s.place, s.body FROM conversation c JOIN step s ON s.place = (SELECT max(place) FROM step"
        " WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295)"
        f" WHERE c.number IN ({', '.join('?' for _ in conversations)})",
        *conversations,
    )
    return {where >> SEQ_BITS: step for where, step in decode_readable(_step_from_json, rows)}


# ── queued input ──────────────────────────────────────────────────────────────────────────────────────────────────────


SELECT_STEERING_AND_REQUEST = (
    "SELECT kind FROM (SELECT kind FROM queue WHERE conversation = ? AND agent = ? AND kind = 'steer' LIMIT 1) q"
    " UNION ALL SELECT request FROM lease WHERE conversation = ? AND agent = ? AND request <> ''"
)
"""Selects `steer` if input that steers a running turn is queued, and the kind of a request to end the turn."""


def enqueue_message(tx: Transaction, conversation: int, agent: str, kind: QueueKind, message: Message) -> QueuedMessage:
    try:
        body = encode_message(message)
    except UnicodeEncodeError:
        message = decode_message(body := encode(fix_surrogates_in_json(msgspec.to_builtins(message))))
    row = tx.row(
        "INSERT INTO queue (conversation, agent, kind, body) VALUES (?, ?, ?, ?) RETURNING number",
        conversation,
        agent,
        kind,
        body,
    )
    assert row is not None, "an insert returns its row"
    waits = InputQueued(time=now_ms(), agent=agent, queued=row[0], kind=kind, text=message.text[:MAX_EVENT_TEXT])
    append_events(tx, conversation, [waits])
    return QueuedMessage(number=row[0], agent=agent, kind=kind, message=message)


def load_queue(tx: Transaction, conversation: int, agent: str) -> list[QueuedMessage]:
    rows = tx.rows(QUEUE, conversation, agent)
    return [
        QueuedMessage(
            number=number, agent=agent, kind=kind, message=decode_row(decode_message, body, f"Queued input {number}")
        )
        for number, kind, body in rows
    ]


def dequeue(tx: Transaction, number: int) -> bool:
    """Remove input from the queue. Return False if it is no longer there."""
    return bool(tx.run("DELETE FROM queue WHERE number = ?", number))


def without_removed_media(tx: Transaction, message: Message) -> Message:
    """Return queued input with a placeholder for media that was removed from the store meanwhile."""

    def replaced(part: AnyPart) -> AnyPart:
        if not isinstance(part, Media) or not part.blob or tx.row("SELECT 1 FROM blob WHERE name = ?", part.blob):
            return part
        return Text(f"[{part.kind}: it was removed from the record]")

    return replace(message, parts=tuple([replaced(part) for part in message.parts]))


# ── trigger states ────────────────────────────────────────────────────────────────────────────────────────────────────


def load_trigger_states(tx: Transaction, conversation: int, agent: str, channel: str = "") -> dict[str, JSONObject]:
    """Return the states of an agent's triggers, and of those that belong to a channel."""
    rows = tx.rows(TRIGGER_STATES, conversation, agent, channel or agent)
    own = [row for row in rows if row[2] == agent]
    return {
        name: decode_row(decode, body, f"State of trigger {name!r}")
        for name, body, _ in [*own, *[row for row in rows if row[2] != agent]]
    }


def save_trigger_states(tx: Transaction, conversation: int, agent: str, states: Mapping[str, JSONObject]) -> None:
    for name, state in states.items():
        tx.send(
            "INSERT INTO trigger_state (conversation, agent, name, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (conversation, agent, name) DO UPDATE SET body = excluded.body",
            conversation,
            agent,
            name,
            encode(state),
        )


# ── fork and delete ───────────────────────────────────────────────────────────────────────────────────────────────────


def copy_trigger_states(tx: Transaction, source: int, target: int) -> None:
    """Copy trigger states to a fork, so that triggers do not repeat a message there."""
    tx.run(
        "INSERT INTO trigger_state (conversation, agent, name, body)"
        " SELECT CAST(? AS BIGINT), agent, name, body FROM trigger_state WHERE conversation = ?",
        target,
        source,
    )


def delete_records(tx: Transaction, conversation: int) -> None:
    """Remove all rows of a deleted conversation."""
    for table in ("turn", "step", "event"):
        low, high = _place(conversation, 0), _place(conversation, SEQ_MASK)
        tx.run(f"DELETE FROM {table} WHERE place BETWEEN ? AND ?", low, high)
    for table in ("queue", "trigger_state", "approval", "turn_request", "worker_turn", "queue_key"):
        tx.run(f"DELETE FROM {table} WHERE conversation = ?", conversation)


# ── events by type ────────────────────────────────────────────────────────────────────────────────────────────────────
# Events of given types, each with the message it follows; used to show user notices in place.
#
# There is no index by type, because events are written far more often than they are filtered by type. Their JSON
# begins with `type`, so the database filters rows by prefix. It reads from the newest and stops at the limit.


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

"""Records of turns: turns, steps, events, queued input, the journal of a reply that arrives, and todos."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._credential_mask import mask_secrets
from contextc._json import JSONObject, decode, encode, fix_surrogates_in_json
from contextc.errors import (
    ContextcError,
    InvalidInput,
    InvalidMessage,
    KeyReused,
    LeaseLost,
    StoreCorrupt,
    UnknownConversation,
)
from contextc.events import (
    AnyEvent,
    ApprovalRequest,
    Event,
    InputDequeued,
    InputQueued,
    ReasoningDelta,
    StepFinish,
    SystemMessageCreated,
    TextDelta,
    ToolCallDelta,
    ToolFailed,
    ToolFinished,
    ToolStart,
    TurnFinish,
    TurnInterrupted,
    TurnStart,
    decode_event,
    encode_event,
)
from contextc.messages import (
    AnyPart,
    Extra,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    decode_message,
    encode_message,
    find_open_calls,
    tool_call,
    validate_message,
)
from contextc.store.message_log import (
    DOCTOR_HINT,
    SEQ_BITS,
    SEQ_MASK,
    Lease,
    check_name,
    decode_readable,
    decode_row,
    decode_rows,
    find_by_name,
    find_tip,
    insert_conversation,
    load_between,
    load_branch_end,
    load_messages,
    load_tip,
    make_place,
    now_ms,
)
from contextc.store.transaction_engine import Row, Transaction
from contextc.tools.todos import Todo, TodoChange, check_count, validated_state, validated_text

# ── turns, steps, events, queue ───────────────────────────────────────────────────────────────────────────────────────
# Turns, steps, events, queued input and trigger states, as functions over a transaction.
#
# All of them belong to a conversation by its number, and are appended under numbers that grow within it. A writer has
# locked the conversation, so turns of different agents never get the same number. A turn that is marked as running
# while its lease has ended was interrupted; recovery records that here.


MAX_EVENT_TEXT = 2_000  # characters of a text that an event includes; its message has the rest
Call = TypeVar("Call")
QueueKind: TypeAlias = Literal["steer", "follow-up", "waiting"]
"""The ways to use queued input: in the running turn, as the next turn, or as a turn of the caller that waits for it."""


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
    cost_is_lower_bound: bool = False
    """True if the turn cost at least `cost`, because a factor of a price is unknown."""
    agent_steps: int = 0
    agent_tool_calls: int = 0
    """Steps and tool calls of the agents that the turn has called. `usage` and `cost` include theirs."""


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
    first_chunk: int | None = None
    """Milliseconds until the first event of the reply."""


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


LAST_TURN = "SELECT body FROM main.turn WHERE place BETWEEN ? AND ? AND agent = ? ORDER BY place DESC LIMIT 1"
QUEUE = "SELECT number, kind, body FROM main.queue WHERE conversation = ? AND agent = ? ORDER BY number"
TRIGGER_STATES = "SELECT name, body, agent FROM main.trigger_state WHERE conversation = ? AND agent IN (?, ?)"


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
        "INSERT INTO main.event (place, body) VALUES (?, ?)",
        [(_place(conversation, event.number), body) for event, body in zip(told, bodies, strict=True)],
    )
    _set_last_number(tx, "event", conversation, told[-1].number)
    return told


def load_events(tx: Transaction, conversation: int, after: int, limit: int | None) -> list[AnyEvent]:
    return decode_rows(decode_event, [row[0] for row in tx.rows(*_select_events(conversation, after, limit))], "Event")


def _select_events(conversation: int, after: int, limit: int | None) -> tuple[str, int, int]:
    sql = "SELECT body FROM main.event WHERE place BETWEEN ? AND ? ORDER BY place" + (
        f" LIMIT {limit:d}" if limit else ""
    )
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
        f"SELECT max(place) FROM main.{table} WHERE place BETWEEN ? AND ?",
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
            "SELECT c.name, c.number, (SELECT max(place) FROM main.event"
            " WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295),"
            " (SELECT max(request) FROM main.lease l WHERE l.conversation = c.name AND l.holder <> '')"
            f" FROM main.conversation c WHERE c.name IN ({', '.join('?' for _ in some)})",
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


def finish_event(turn: TurnRecord) -> TurnFinish:
    """Return the event for a turn that has ended."""
    return TurnFinish(
        finish=turn.finish,
        steps=turn.steps + turn.agent_steps,
        tool_calls=turn.tool_calls + turn.agent_tool_calls,
        usage=turn.usage,
        cost=turn.cost,
        cost_is_lower_bound=turn.cost_is_lower_bound,
        error=turn.error,
    )


# ── turns and steps ───────────────────────────────────────────────────────────────────────────────────────────────────


def insert_turn(tx: Transaction, conversation: int, turn: TurnRecord) -> TurnRecord:
    """Insert a turn under the next number."""
    turn = replace(turn, number=load_last_number(tx, "turn", conversation) + 1)
    tx.send(
        "INSERT INTO main.turn (place, agent, running, body) VALUES (?, ?, 1, ?)",
        _place(conversation, turn.number),
        turn.agent,
        msgspec.json.encode(turn),
    )
    _set_last_number(tx, "turn", conversation, turn.number)
    return turn


def save_turn(tx: Transaction, conversation: int, turn: TurnRecord) -> None:
    tx.send(
        "UPDATE main.turn SET running = ?, body = ? WHERE place = ?",
        int(turn.state == "running"),
        msgspec.json.encode(turn),
        _place(conversation, turn.number),
    )


def load_turns(tx: Transaction, conversation: int, *, last: int | None = None) -> list[TurnRecord]:
    rows = tx.rows(
        "SELECT body FROM main.turn WHERE place BETWEEN ? AND ? ORDER BY place DESC"
        + (f" LIMIT {last:d}" if last else ""),
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
        f"SELECT body FROM main.turn WHERE place IN ({', '.join('?' for _ in numbers)})",
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
        "SELECT place, body FROM main.event WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 200",
        _place(conversation, 0),
        last,
    ):
        last = rows[-1][0] - 1
        for event in decode_rows(decode_event, [body for _, body in rows], "Event"):
            if isinstance(event, StepFinish) and event.turn == turn and event.seq == seq:
                return _count_running(reversed(events))
            if isinstance(event, ToolStart | ToolFinished | ToolFailed | ApprovalRequest) and event.turn == turn:
                events.append(event)
    return None


def _count_running(events: Iterable[AnyEvent]) -> Counter[str]:
    """Return how many calls of each id have started and not ended. A call that was declined ends without a start.

    A call whose server asks a question does not run meanwhile. It starts again with the answer.
    """
    running: Counter[str] = Counter()
    for event in events:
        if isinstance(event, ToolStart):
            running[event.id] += 1
        elif isinstance(event, ToolFinished | ToolFailed) or (isinstance(event, ApprovalRequest) and event.question):
            running[event.id] = max(0, running[event.id] - 1)
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
        "INSERT INTO main.step (place, turn, body) VALUES (?, ?, ?)",
        _place(conversation, step.number),
        step.turn,
        msgspec.json.encode(step),
    )
    _set_last_number(tx, "step", conversation, step.number)
    return step


def save_step(tx: Transaction, conversation: int, step: StepRecord) -> None:
    tx.send(
        "UPDATE main.step SET body = ? WHERE place = ?", msgspec.json.encode(step), _place(conversation, step.number)
    )


def load_steps(tx: Transaction, conversation: int, turn: int | None) -> list[StepRecord]:
    rows = tx.rows(
        "SELECT body FROM main.step WHERE place BETWEEN ? AND ? AND (turn = ? OR ? < 0) ORDER BY place",
        _place(conversation, 0),
        _place(conversation, SEQ_MASK),
        turn or 0,
        -1 if turn is None else 0,
    )
    return decode_rows(_step_from_json, [body for (body,) in rows], "Step")


def load_last_steps(tx: Transaction, conversations: Sequence[int]) -> dict[int, StepRecord]:
    """Return the last step of each conversation, by conversation number. Unreadable ones are left out."""
    rows = tx.rows(
        "SELECT s.place, s.body FROM main.conversation c JOIN main.step s ON s.place = (SELECT max(place)"
        " FROM main.step WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295)"
        f" WHERE c.number IN ({', '.join('?' for _ in conversations)})",
        *conversations,
    )
    return {where >> SEQ_BITS: step for where, step in decode_readable(_step_from_json, rows)}


# ── queued input ──────────────────────────────────────────────────────────────────────────────────────────────────────


SELECT_BETWEEN_STEPS = (
    "SELECT kind, 0, '', '' FROM (SELECT kind FROM main.queue WHERE conversation = ? AND agent = ? AND kind = 'steer'"
    " LIMIT 1) q UNION ALL SELECT request, 0, '', '' FROM main.lease WHERE conversation = ? AND agent = ?"
    " AND request <> '' UNION ALL SELECT '', number, text, state FROM main.todo WHERE conversation = ? AND agent = ?"
)
"""Selects what a turn reads before each step: `steer` if input that steers it is queued, the kind of a request to end
it, and the todos of its agent, without a kind and in any order.
"""


def enqueue_message(
    tx: Transaction,
    conversation: int,
    agent: str,
    kind: QueueKind,
    message: Message,
    *,
    key: str | None = None,
    digest: bytes = b"",
) -> QueuedMessage:
    """Queue input. `key` identifies it, as that of a message, and `digest` its content."""
    try:
        body = encode_message(message)
    except UnicodeEncodeError:
        message = decode_message(body := encode(fix_surrogates_in_json(msgspec.to_builtins(message))))
    row = tx.row(
        "INSERT INTO main.queue (conversation, agent, kind, body) VALUES (?, ?, ?, ?) RETURNING number",
        conversation,
        agent,
        kind,
        body,
    )
    assert row is not None, "an insert returns its row"
    waits = InputQueued(time=now_ms(), agent=agent, queued=row[0], kind=kind, text=message.text[:MAX_EVENT_TEXT])
    append_events(tx, conversation, [waits])
    if key is not None:
        values = conversation, key, row[0], digest
        tx.run("INSERT INTO main.queue_key (conversation, key, queued, digest) VALUES (?, ?, ?, ?)", *values)
    return QueuedMessage(number=row[0], agent=agent, kind=kind, message=message)


def find_queued_by_key(tx: Transaction, conversation: int, name: str, key: str, digest: bytes) -> int:
    """Return the number under which input with a key was queued, 0 if it was not. Raises `KeyReused` as `append`."""
    row = tx.row("SELECT queued, digest FROM main.queue_key WHERE conversation = ? AND key = ?", conversation, key)
    if row is None:
        return 0
    if bytes(row[1]) != digest:
        raise KeyReused(name, key, seq=0)
    return row[0]


def take_queue_key(tx: Transaction, conversation: int, queued: int) -> str | None:
    """Return the key of queued input, if it has one. It becomes that of a message."""
    values = conversation, queued
    row = tx.row("SELECT key FROM main.queue_key WHERE conversation = ? AND queued = ?", *values)
    if row is None:
        return None
    tx.run("DELETE FROM main.queue_key WHERE conversation = ? AND queued = ?", *values)
    return row[0]


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
    return bool(tx.run("DELETE FROM main.queue WHERE number = ?", number))


def without_removed_media(tx: Transaction, message: Message) -> Message:
    """Return queued input with a placeholder for media that was removed from the store meanwhile."""

    def replaced(part: AnyPart) -> AnyPart:
        if not isinstance(part, Media) or not part.blob or tx.row("SELECT 1 FROM main.blob WHERE name = ?", part.blob):
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
            "INSERT INTO main.trigger_state (conversation, agent, name, body) VALUES (?, ?, ?, ?)"
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
        "INSERT INTO main.trigger_state (conversation, agent, name, body)"
        " SELECT CAST(? AS BIGINT), agent, name, body FROM main.trigger_state WHERE conversation = ?",
        target,
        source,
    )


def delete_records(tx: Transaction, conversation: int) -> None:
    """Remove all rows of a deleted conversation."""
    for table in ("turn", "step", "event"):
        low, high = _place(conversation, 0), _place(conversation, SEQ_MASK)
        tx.run(f"DELETE FROM main.{table} WHERE place BETWEEN ? AND ?", low, high)
    tables = "queue", "trigger_state", "approval", "turn_request", "worker_turn", "queue_key", "agent_call"
    for table in (*tables, "tag", "note"):
        tx.run(f"DELETE FROM main.{table} WHERE conversation = ?", conversation)
    tx.run(  # rules of this conversation only, and those that quote it
        "DELETE FROM main.approval_rule WHERE bound = ? OR (conversation = ? AND quotes = 1)",
        conversation,
        conversation,
    )


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
        f" FROM (SELECT place, body FROM main.event WHERE place BETWEEN ? AND ? AND {_between('body', wanted)}"
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
    return f"SELECT s.body FROM main.event s WHERE {which} ORDER BY s.place DESC LIMIT 1"


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


# ── the journal of a reply that arrives ───────────────────────────────────────────────────────────────────────────────
# Journal of partial messages, which are still being written. It is stored outside the chain and survives a crash.
#
# A `Stream` journals its deltas in batches, at most a quarter of a second apart. Ending it appends the message and
# removes the journal in one transaction.


BATCH_SECONDS = 0.25
StreamStatus: TypeAlias = Literal["sent", "error", "cancelled"]
StreamDelta: TypeAlias = Text | Reasoning | ToolCall
Piece: TypeAlias = tuple[str, AnyPart]
"""The uid of a message, and a part of it that was received."""
OPEN_OF_TURN = "SELECT uid FROM main.stream WHERE conversation = ? AND agent = ? AND lease <= ? ORDER BY uid"
EMPTY_REPLY = Message(role="assistant")

_parts_to_json = msgspec.json.Encoder().encode
_parts_from_json = msgspec.json.Decoder(list[AnyPart]).decode


def open_stream(tx: Transaction, lease: Lease, head: Message) -> None:
    """Create the journal of a message that has no parts yet."""
    uid = head.uid
    check_name(uid, "message")
    made = tx.run(
        "INSERT INTO main.stream (uid, conversation, agent, lease, head) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        uid,
        lease.conversation,
        lease.agent,
        lease.number,
        encode_message(head),
    )
    if (not made and not tx.is_retry) or find_by_name(tx, load_tip(tx, lease.conversation).tree, uid):
        raise InvalidMessage(
            f"there is already a message {uid!r}",
            field="uid",
            conversation=lease.conversation,
            fix="Leave uid empty for a new message.",
        )


def save_deltas(tx: Transaction, uid: str, number: int, parts: list[AnyPart]) -> None:
    try:
        body = _parts_to_json(parts)
    except UnicodeEncodeError:
        body = _parts_to_json(fix_surrogates_in_json(msgspec.to_builtins(parts)))
    tx.send(
        "INSERT INTO main.stream_delta (uid, number, parts) VALUES (?, ?, ?)"
        " ON CONFLICT (uid, number) DO UPDATE SET parts = excluded.parts",  # a retry: the same deltas, possibly more
        uid,
        number,
        body,
    )


def list_open_of_turn(tx: Transaction, conversation: str, agent: str, number: int) -> list[str]:
    """Return the uids of open streams of a turn and of earlier turns."""
    return [uid for (uid,) in tx.rows(OPEN_OF_TURN, conversation, agent, number)]


def prefetch_closing(tx: Transaction, lease: Lease) -> None:
    """Announce what is read when a turn ends: its open streams and the queue."""
    tx.prefetch(OPEN_OF_TURN, lease.conversation, lease.agent, lease.number)
    tx.prefetch(QUEUE, lease.root, lease.agent)


def list_open_stream_uids(tx: Transaction, conversation: str) -> set[str]:
    """Return the uids of open streams in a conversation."""
    return {uid for (uid,) in tx.rows("SELECT uid FROM main.stream WHERE conversation = ?", conversation)}


def assemble_message(tx: Transaction, uid: str, final: Message) -> Message | None:
    """Return the complete message: the fields that `final` sets, and the journaled ones otherwise.

    Return None if the stream has already ended.
    """
    row = tx.row("SELECT head FROM main.stream WHERE uid = ?", uid)
    if row is None:
        return None
    begun = decode_row(decode_message, row[0], f"Stream {uid}")
    known = {
        name: value for name in final.__struct_fields__ if (value := getattr(final, name)) != getattr(EMPTY_REPLY, name)
    }
    message = replace(begun, **known | {"uid": uid, "status": final.status, "time": begun.time})
    if not message.parts:
        deltas = tx.rows("SELECT parts FROM main.stream_delta WHERE uid = ? ORDER BY number", uid)
        batches = decode_rows(_parts_from_json, [batch for (batch,) in deltas], f"Stream {uid}")
        message = replace(message, parts=join_deltas(part for batch in batches for part in batch))
    if not message.parts and message.status == "sent" and message.finish is None:
        message = replace(message, finish="stop")  # an empty reply without a finish reason
    return message


def load_partial(tx: Transaction, conversation: str, agent: str) -> Message | None:
    """Return the journaled part of the message that an agent is writing, or None."""
    row = tx.row("SELECT max(uid) FROM main.stream WHERE conversation = ? AND agent = ?", conversation, agent)
    return assemble_message(tx, row[0], replace(EMPTY_REPLY, status="pending")) if row and row[0] is not None else None


def delete_stream(tx: Transaction, uid: str) -> None:
    tx.send("DELETE FROM main.stream_delta WHERE uid = ?", uid)
    tx.send("DELETE FROM main.stream WHERE uid = ?", uid)


def join_deltas(deltas: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Merge deltas into parts: adjacent text and reasoning, and all pieces of the same call."""
    joined: list[AnyPart] = []
    calls: dict[str, int] = {}
    for delta in deltas:
        if isinstance(delta, ToolCall):
            if delta.id in calls:
                joined[calls[delta.id]] = _continued(joined[calls[delta.id]], delta)
                continue
            calls[delta.id] = len(joined)
        elif joined and (merged := _merged(joined[-1], delta)):
            joined[-1] = merged
            continue
        joined.append(delta)
    return tuple(joined)


def split_reply(message: Message) -> list[Message]:
    """Split a reply with tool results into messages: calls, their results, and what follows.

    Such replies come from a provider that runs tools itself; their `finish` is "tool_calls". The status and error of an
    aborted reply go to its last message. Earlier calls are complete and may have run. An incomplete call after
    complete ones cannot have run and is dropped.
    """
    runs: list[list[AnyPart]] = [[]]
    for part in message.parts:
        if runs[-1] and isinstance(part, ToolResult) != isinstance(runs[-1][-1], ToolResult):
            runs.append([])
        runs[-1].append(part)
    whole = replace(message, status="sent", finish="tool_calls", error=None, usage=None)
    messages: list[Message] = []
    for index, run in enumerate(runs):
        uid = message.uid if index == 0 else ""
        if index == len(runs) - 1 and message.status != "sent" and message.finish == "tool_calls":
            run = [*drop_incomplete_call(run)]
        if run and isinstance(run[0], ToolResult):
            messages.append(replace(whole, role="tool", finish=None, parts=tuple(run), uid=uid))
        elif index < len(runs) - 1 or may_have_run(message.finish, run):
            messages.append(replace(whole, parts=tuple(run), uid=uid))
        else:
            finish = None if message.finish == "tool_calls" and message.status != "sent" else message.finish
            messages.append(replace(message, parts=tuple(run), uid=uid, finish=finish))
    return messages


def may_have_run(finish: str | None, parts: Sequence[AnyPart]) -> bool:
    """Return True if an aborted reply ends with calls that its provider may have run."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return finish == "tool_calls" and bool(calls) and not any(_is_incomplete(call) for call in calls)


def drop_incomplete_call(parts: Sequence[AnyPart]) -> Sequence[AnyPart]:
    """Return the parts of an aborted reply, without an incomplete call that follows complete ones."""
    return parts[:-1] if parts and _is_incomplete(parts[-1]) and may_have_run("tool_calls", parts[:-1]) else parts


def _is_incomplete(part: AnyPart) -> bool:
    """Return True for a call whose arguments are incomplete."""
    return isinstance(part, ToolCall) and (part.malformed or (part.raw is not None and not part.raw.strip()))


def _merged(before: AnyPart, delta: AnyPart) -> AnyPart | None:
    match before, delta:
        case Text(), Text() if not before.extra and not delta.extra:
            return Text(before.text + delta.text)
        case Reasoning(), Reasoning() if before.id == delta.id and not (before.signature or before.data or delta.data):
            return replace(
                before,
                text=before.text + delta.text,
                signature=delta.signature,
                provider=delta.provider or before.provider,
                model=delta.model or before.model,
                extra=_both(before.extra, delta.extra),
            )
        case _:
            return None


def _continued(before: AnyPart, piece: ToolCall) -> ToolCall:
    """Return a call extended by a piece of its arguments, or replaced by a complete one."""
    written = before.raw if isinstance(before, ToolCall) else None
    whole = piece if piece.raw is None else tool_call(piece.id, piece.name, (written or "") + piece.raw)
    return replace(whole, extra=_both(before.extra, piece.extra))


def _both(one: Extra | None, other: Extra | None) -> Extra | None:
    return {**(one or {}), **(other or {})} or None


class Stream:
    """A message being written. Use it in a `with`: an exception ends it as `error`, a cancellation as `cancelled`."""

    def __init__(
        self,
        uid: str,
        lease: Lease,
        save: Callable[[int, list[AnyPart]], None],
        close: Callable[[int, list[AnyPart], Message], Message],
    ) -> None:
        self.uid, self.lease = uid, lease
        self.message: Message | None = None
        """The message as it was stored, once the stream has ended."""
        self._save, self._close = save, close
        self._waiting: list[AnyPart] = []
        self._batches = 0
        self._ending = False
        self._lock = threading.Lock()
        """Guards the fields above. It is not held during store writes, so `write` never waits for the disk."""
        self._saving = threading.Lock()
        """Held during store writes: one batch after the other, then the end."""
        self._lost: ContextcError | None = None
        self._pid = os.getpid()
        self.stop_journaling: Callable[[], None] = lambda: None
        """Stops the periodic journaling."""

    def __repr__(self) -> str:
        state = "open" if self.message is None else self.message.status
        return f"<Stream {self.uid} of {self.lease.conversation!r} for {self.lease.agent!r}: {state}>"

    def write(self, delta: StreamDelta | str) -> None:
        """Add text, reasoning or a call. Raises `LeaseLost` after the turn has ended."""
        part = Text(delta) if isinstance(delta, str) else delta
        if not isinstance(part, Text | Reasoning | ToolCall):
            raise InvalidMessage(f"stream.write expects text, Reasoning or a ToolCall, got {type(delta).__name__}.")
        (sound,) = validate_message(Message(role="assistant", parts=(part,), status="error")).message.parts
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if self.message is not None or self._ending:
                raise InvalidInput("This stream has ended", fix="Open another stream for the next message.")
            self._waiting.append(sound)

    def write_call(self, id: str, name: str, piece: str) -> None:
        """Add the next piece of the JSON text of a call's arguments. Pieces of several calls may interleave."""
        self.write(tool_call(id, name, piece))

    def refuse_writes(self) -> None:
        """Refuse further writes, because the turn is over."""
        self.stop_journaling()
        if self.message is None and self._lost is None:
            self._lost = LeaseLost(self.lease.conversation, self.lease.agent, number=self.lease.number)

    def flush(self) -> None:
        """Journal what was written so far. The store calls this four times a second."""
        if self._pid != os.getpid():
            return
        with self._saving:
            with self._lock:
                taken = list(self._waiting)
            if not taken or self.message is not None:
                return
            try:
                self._save(self._batches, list(join_deltas(taken)))
            except LeaseLost as error:
                self._lost = error
                self.stop_journaling()
                raise
            with self._lock:
                self._batches, self._waiting = self._batches + 1, self._waiting[len(taken) :]

    def end(
        self,
        message: Message | None = None,
        *,
        status: StreamStatus | None = None,
        error: str | None = None,
        finish: str | None = None,
        usage: Usage | None = None,
    ) -> Message:
        """Append the message to the chain, with fields that are known only now, such as `finish` and `usage`.

        `message` may set them all at once. Its parts, if any, replace those that were written.
        """
        final = message or EMPTY_REPLY
        final = replace(
            final,
            status=status or final.status,
            error=error or final.error,
            finish=finish or final.finish,
            usage=usage or final.usage,
        )
        with self._saving:
            if self.message is None:
                with self._lock:
                    self._ending, taken = True, list(self._waiting)
                try:
                    self.message = self._close(self._batches, list(join_deltas(taken)), final)
                finally:
                    self._ending = False
                self.stop_journaling()
            return self.message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.message is not None or self._pid != os.getpid():
            return
        if error is None:
            self.end()
        else:
            why = mask_secrets(f"{type(error).__name__}: {error}".removesuffix(": "))
            self.end(status="error" if isinstance(error, Exception) else "cancelled", error=why)


def delta_events(pieces: Sequence[Piece], stored: Sequence[Message] | None = None) -> list[AnyEvent]:
    """Return pieces of a reply as events. A result among them comes from a tool that the provider ran itself.

    `stored` are the messages of a reply that was never journaled. Their uids replace those of the pieces.
    """
    events: list[AnyEvent] = []
    uids = [message.uid for message in stored or () if message.role == "assistant"]
    names = dict(zip(dict.fromkeys(uid for uid, _ in pieces), uids, strict=False))
    for old, part in pieces:
        uid = names.get(old, old)
        match part:
            case Text():
                events.append(TextDelta(uid=uid, text=part.text))
            case Reasoning():
                if part.text:
                    events.append(ReasoningDelta(uid=uid, text=part.text))
            case ToolCall():
                events.append(ToolCallDelta(uid=uid, id=part.id, name=part.name, arguments=_arguments_text(part)))
            case ToolResult():
                kind = ToolFailed if part.is_error else ToolFinished
                events.append(kind(id=part.call_id, name=part.name, text=part.text[:MAX_EVENT_TEXT]))
            case _:
                pass
    return events


def _arguments_text(call: ToolCall) -> str:
    """Return the arguments as the model wrote them, or encoded if the provider sent them as data."""
    if call.raw is None and call.arguments:
        return encode(call.arguments).decode()
    return call.raw or ""


# ── todos ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Todo lists: one per conversation and agent, read and written as a whole or by number.
#
# A writer locks the conversation first, so concurrent additions get different numbers. A fork copies its parent's
# lists as they are now, at whichever message it begins: todos have no history. Rewinding, editing and resetting do not
# change them.


LOAD_TODOS = (
    "SELECT t.number, t.text, t.state FROM main.conversation c"
    " LEFT JOIN main.todo t ON t.conversation = c.name AND t.agent = ? WHERE c.name = ? ORDER BY t.number"
)
"""Returns one row without values if the conversation has no todos, and no row if the conversation does not exist."""


def decode_todos(conversation: str, rows: list[Row]) -> list[Todo]:
    """Return the todos from the rows of LOAD_TODOS."""
    if not rows:
        raise UnknownConversation(conversation)
    return [Todo(number=number, text=text, state=state) for number, text, state in rows if number is not None]


def load_todos(tx: Transaction, conversation: str, agent: str) -> list[Todo]:
    check_name(agent, "agent")
    load_tip(tx, conversation)
    return _rows(tx, conversation, agent)


def add_todo(tx: Transaction, conversation: str, agent: str, text: str) -> Todo:
    """Add a todo. `text` has been validated."""
    _lock_or_create(tx, conversation, agent)
    numbers = tx.row(
        "SELECT count(*), max(number) FROM main.todo WHERE conversation = ? AND agent = ?", conversation, agent
    ) or (0, 0)
    check_count(numbers[0] + 1)
    todo = Todo(number=(numbers[1] or 0) + 1, text=text)
    _insert(tx, conversation, agent, [todo])
    return todo


def replace_todos(tx: Transaction, conversation: str, agent: str, todos: list[Todo]) -> list[Todo]:
    """Replace the list. `todos` have been validated and numbered."""
    _lock_or_create(tx, conversation, agent)
    tx.run("DELETE FROM main.todo WHERE conversation = ? AND agent = ?", conversation, agent)
    _insert(tx, conversation, agent, todos)
    return todos


def change_todos(tx: Transaction, conversation: str, agent: str, changes: list[TodoChange]) -> list[Todo]:
    """Apply all changes, or none. `changes` have been validated."""
    check_name(agent, "agent")
    load_tip(tx, conversation, lock=True)
    for each in changes:
        changed = tx.run(
            "UPDATE main.todo SET state = coalesce(?, state), text = coalesce(?, text)"
            " WHERE conversation = ? AND agent = ? AND number = ?",
            each.state,
            each.text,
            conversation,
            agent,
            each.number,
        )
        if not changed:
            known = ", ".join(str(todo.number) for todo in _rows(tx, conversation, agent))
            raise InvalidInput(
                f"There is no todo {each.number} in the list of {agent!r} in conversation {conversation!r}. "
                + (f"It has {known}." if known else "The list is empty: add it, or write a whole list.")
            )
    return _rows(tx, conversation, agent)


def copy_todos(tx: Transaction, source: str, name: str) -> None:
    """Copy the lists of a conversation to a new one."""
    tx.run(
        "INSERT INTO main.todo (conversation, agent, number, text, state)"
        " SELECT CAST(? AS TEXT), agent, number, text, state FROM main.todo WHERE conversation = ?",
        name,
        source,
    )


def check_changes(changes: Iterable[object]) -> list[TodoChange]:
    found: list[TodoChange] = []
    for each in changes:
        if not isinstance(each, TodoChange):
            raise InvalidInput(f"a {type(each).__name__} is not a change. Write TodoChange(number=1, state=…).")
        if isinstance(each.number, bool) or not isinstance(each.number, int) or not 0 < each.number < 1 << 31:
            raise InvalidInput(f"{each.number!r} is no number of a todo. They count from 1.")
        if each.state is None and each.text is None:
            raise InvalidInput(f"Todo {each.number}: give a state, a text, or both.")
        state = None if each.state is None else validated_state(each.state)
        text = None if each.text is None else validated_text(each.text)
        found.append(TodoChange(number=each.number, state=state, text=text))
    return found


def _lock_or_create(tx: Transaction, conversation: str, agent: str) -> None:
    check_name(agent, "agent")
    if find_tip(tx, conversation, True) is None:
        insert_conversation(tx, conversation)


def _rows(tx: Transaction, conversation: str, agent: str) -> list[Todo]:
    rows = tx.rows(
        "SELECT number, text, state FROM main.todo WHERE conversation = ? AND agent = ? ORDER BY number",
        conversation,
        agent,
    )
    return [Todo(number=number, text=text, state=state) for number, text, state in rows]


def _insert(tx: Transaction, conversation: str, agent: str, todos: list[Todo]) -> None:
    tx.run_many(
        "INSERT INTO main.todo (conversation, agent, number, text, state) VALUES (?, ?, ?, ?, ?)",
        [(conversation, agent, todo.number, todo.text, todo.state) for todo in todos],
    )

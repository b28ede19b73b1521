"""Open, steer and close a turn in the store: lease check, event fields, publishing, and the transactions of its ends.

Events are published to watchers after their transaction was committed, never before. A turn ends in one transaction:
open calls are answered, then queued input opens the next turn or the lease is released.
"""

from collections.abc import Collection, Mapping, Sequence
from time import time
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.events import (
    AnyEvent,
    ErrorKind,
    ErrorOccurred,
    InputDequeued,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFailed,
    ToolFinished,
    TurnFinish,
    TurnStart,
)
from contextc.executor.event_hub import event_hub
from contextc.executor.worker_threads import defer
from contextc.messages import AnyPart, Media, Message, Reasoning, Text, ToolCall, tool_result, validate_message
from contextc.messages import ToolResult as ResultPart
from contextc.messages.pairing import find_open_calls
from contextc.store import Lease, Store, branches, execution_records, leases, message_chain, streams
from contextc.store.branches import load_context_start
from contextc.store.execution_records import MAX_EVENT_TEXT, QueuedMessage, StepRecord, TurnRecord
from contextc.store.message_location import load_base_seq, load_branch_end, load_tip
from contextc.store.types import Transaction

Piece: TypeAlias = tuple[str, AnyPart]
"""The uid of a message, and a part of it that was received."""


def now_ms() -> int:
    return int(time() * 1000)


class TurnWriter:
    """Writes of one turn under one lease. Methods are called one after the other, from any thread."""

    def __init__(
        self,
        store: Store,
        conversation: str,
        agent: str,
        lease: Lease,
        *,
        run: str | None = None,
        channel: str = "",
        channel_triggers: Collection[str] = (),
    ) -> None:
        self.store, self.conversation, self.agent, self.lease, self.run = store, conversation, agent, lease, run
        self.opening_author: str | None = None
        """The author of the message that opened the turn."""
        self.channel, self._channel_triggers = channel, frozenset(channel_triggers)
        """The channel that requests are sent on, and the triggers whose states and messages belong to it."""
        self._hub = event_hub(store)
        self.turn = TurnRecord(number=0, agent=agent)
        self.step: StepRecord | None = None
        self.trigger_states: dict[str, JSONObject] = {}
        self._branch = 0
        """The branch on which the turn's opening message was last found."""
        self.previous_turn: TurnRecord | None = None
        """The turn of this agent before this one."""
        self.running_calls: set[str] = set()
        """Ids of calls whose tool has started and whose result is not stored."""

    def append_events(self, *events: AnyEvent, step: int | None = None) -> None:
        """Store and publish events in a transaction of their own."""

        def work(tx: Transaction) -> list[AnyEvent]:
            return execution_records.append_events(
                tx, self._check_lease(tx), [self._with_turn_fields(event, step=step) for event in events]
            )

        self._publish(self.store.write(work))

    def audience_of(self, trigger: str) -> str:
        """Return the agent or the channel that a trigger's messages are addressed to."""
        return self.channel if trigger in self._channel_triggers else self.agent

    def _read_states(self, tx: Transaction, number: int) -> dict[str, JSONObject]:
        states = execution_records.load_trigger_states(tx, number, self.agent)
        return (
            states | execution_records.load_trigger_states(tx, number, self.channel)
            if self._channel_triggers
            else states
        )

    def _save_states(self, tx: Transaction, number: int, states: Mapping[str, JSONObject]) -> None:
        for name, state in states.items():
            execution_records.save_trigger_states(tx, number, self.audience_of(name), {name: state})

    @property
    def _step_index(self) -> int | None:
        return self.step.index if self.step is not None else None

    def _check_lease(self, tx: Transaction) -> int:
        """Lock the conversation and return its number. Raises `LeaseLost` if the lease has ended."""
        leases.check_lease(tx, self.lease, self.conversation)
        return self.lease.root

    def _entry(self, message: Message) -> message_chain.PendingMessage:
        if self.run is not None and message.role in ("assistant", "tool") and message.author == self.agent:
            message = replace(message, run=message.run or self.run)
        return message_chain.prepare_entry(validate_message(message))

    def _with_turn_fields(
        self, event: AnyEvent, turn: TurnRecord | None = None, *, step: int | None = None
    ) -> AnyEvent:
        index = step if step is not None else (self._step_index or 0)
        return replace(event, time=now_ms(), agent=self.agent, turn=(turn or self.turn).number, step=index)

    def _publish(self, events: Sequence[AnyEvent]) -> None:
        if events:
            defer(lambda: self._hub.publish(self.conversation, events))


def delta_events(pieces: Sequence[Piece]) -> list[AnyEvent]:
    """Return pieces of a reply as events. A result among them comes from a tool that the provider ran itself."""
    events: list[AnyEvent] = []
    for uid, part in pieces:
        match part:
            case Text():
                events.append(TextDelta(uid=uid, text=part.text))
            case Reasoning():
                if part.text:
                    events.append(ReasoningDelta(uid=uid, text=part.text))
            case ToolCall():
                events.append(ToolCallDelta(uid=uid, id=part.id, name=part.name, arguments=_arguments_text(part)))
            case ResultPart():
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


def result_event(message: Message, milliseconds: int) -> AnyEvent:
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


INTERRUPTED_RESULT = (
    "Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; it was not "
    "run again."
)
NOT_RUN_RESULT = "Not run: the turn ended before ({why})."
CANCELLED_REASON, FAILED_REASON = "it was cancelled", "an error"


MAX_SEARCHED_MESSAGES, SEARCH_BATCH = 1_024, 64
"""Number of messages that are searched for one addressed to the agent, and the size of one read."""
INTERRUPTED_REASON = "it was interrupted"


class UnstartedCalls(NamedTuple):
    """The calls of the last reply that were never started, by index, with their reply, results and step."""

    reply: Message
    indexes: list[int]
    results: list[Message]
    step: StepRecord
    calls_before: int
    """Number of calls that the turn had made before this reply."""


class TurnLifecycle(TurnWriter):
    """The transactions that open, steer and close a turn."""

    first_event = 0
    """The number of the turn's TurnStart event."""

    def open(self, input: Sequence[Message], *, resume: bool) -> None:
        """Open a turn with the given or queued input, or resume an interrupted one.

        If there is nothing to do, the turn number stays 0.
        """
        entries = [self._entry(message) for message in input]

        def work(
            tx: Transaction,
        ) -> tuple[TurnRecord | None, TurnRecord | None, list[AnyEvent], list[AnyEvent], dict[str, JSONObject]]:
            number = self._check_lease(tx)
            previous = execution_records.load_last_turn(tx, number, self.agent)
            states = self._read_states(tx, number)
            waiting = execution_records.load_queue(tx, number, self.agent)
            if resume and previous is not None and self._is_resumable(tx, previous):
                turn = replace(previous, state="running", ended=0)
                previous = execution_records.load_last_turn(tx, number, self.agent, before=turn.number)
                execution_records.save_turn(tx, number, turn)
                told = execution_records.append_events(
                    tx, number, [self._with_turn_fields(TurnStart(seq=turn.opened, resumed=True), turn)]
                )
                return turn, previous, [], told, states
            before: list[AnyEvent] = []
            if previous is not None and previous.state == "interrupted":  # not resumed: its open calls are answered
                before = [
                    self._with_turn_fields(result_event(message, 0), previous, step=message.step or 0)
                    for message in self._answer_open_calls(tx, INTERRUPTED_REASON, previous)
                ]
                before = execution_records.append_events(tx, number, before)
            if entries:  # input queued to steer an earlier turn comes before this input
                _, taken = self._take_queued(tx, [each for each in waiting if each.kind == "steer"])
                opened = message_chain.append_messages(tx, self.conversation, entries)[-1].seq
            elif waiting:
                opened, taken = self._take_queued(tx, waiting[:1])
            elif unanswered := self._find_unanswered(tx):
                opened, taken = unanswered, list[AnyEvent]()
            else:
                return None, previous, before, [], states
            turn = self._open_turn(tx, opened)
            events = [TurnStart(seq=turn.opened), *taken]
            told = execution_records.append_events(
                tx, number, [self._with_turn_fields(event, turn) for event in events]
            )
            return turn, previous, before, told, states

        turn, self.previous_turn, before, told, self.trigger_states = self.store.write(work)
        if turn is not None:
            self.turn, self.first_event = turn, told[0].number
        self._publish([*before, *told])

    def close(self, finish: str, *, error: str = "", kind: ErrorKind = "internal", why: str = CANCELLED_REASON) -> bool:
        """End the turn: answer open calls, with `why` as the reason, and release the lease.

        Return True if queued input has opened the next turn. The lease is then kept.
        """

        def work(tx: Transaction) -> tuple[TurnRecord, TurnRecord | None, list[AnyEvent]]:
            number = self.lease.root
            done = (
                execution_records.load_turns_by_number(tx, number, [self.turn.number]).get(self.turn.number)
                if tx.is_retry
                else None
            )
            if done is not None and done.state == "finished":  # the previous attempt was committed
                last, holder, _ = leases.load_lease(tx, self.conversation, self.agent)
                kept = last == self.lease.number and holder
                return done, execution_records.load_last_turn(tx, number, self.agent) if kept else None, []
            self._check_lease(tx)
            events: list[AnyEvent] = []
            for uid in streams.list_open_of_turn(tx, self.conversation, self.agent, self.lease.number):
                leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
            for message in self._answer_open_calls(tx, why, self.turn):
                events.append(result_event(message, 0))
            ended = replace(self.turn, state="finished", finish=finish, error=error, ended=now_ms())
            execution_records.save_turn(tx, number, ended)
            if error:
                events.append(ErrorOccurred(kind=kind, error=error))
            events.append(
                TurnFinish(
                    finish=finish,
                    steps=ended.steps,
                    tool_calls=ended.tool_calls,
                    usage=ended.usage,
                    cost=ended.cost,
                    error=error,
                )
            )
            told = execution_records.append_events(
                tx, number, [self._with_turn_fields(event, ended) for event in events]
            )
            waiting = (
                execution_records.load_queue(tx, number, self.agent) if finish not in ("cancelled", "error") else []
            )
            if not waiting:  # in the same transaction, so that a reader of TurnFinish may start the next turn
                self.store.release_in_transaction(tx, self.lease)
                return ended, None, told
            opened, taken = self._take_queued(tx, waiting[:1])
            following = self._open_turn(tx, opened)
            begins = [self._with_turn_fields(event, following) for event in (TurnStart(seq=opened), *taken)]
            return ended, following, [*told, *execution_records.append_events(tx, number, begins)]

        ended, following, told = self.store.write(work, repeatable=True)
        if following is None:
            self.store.finish_release(self.lease)
        self.previous_turn, self.step, self.running_calls = ended, None, set()
        self.turn = following or ended
        self._publish(told)
        if not told:
            defer(lambda: self._hub.refresh(self.conversation))
        return following is not None

    def load_unstarted_calls(self) -> UnstartedCalls | None:
        """Return the calls of the turn's last reply that were never started, or None."""

        def work(tx: Transaction) -> UnstartedCalls | None:
            written = [
                message
                for message in message_chain.load_messages(tx, self.conversation, after=max(0, self.turn.opened - 1))
                if message.author == self.agent and message.turn == self.turn.number
            ]
            waiting = find_open_calls(written)
            if not waiting:
                return None
            reply = waiting[-1][0]
            started = execution_records.find_started_calls(tx, self.lease.root, self.turn.number, reply.seq)
            steps = execution_records.load_steps(tx, self.lease.root, self.turn.number)
            step = next((each for each in steps if each.seq == reply.seq), None)
            if started is None or step is None:
                return None
            open_now = [call for message, call in waiting if message is reply and call.id not in started]
            calls = [index for index, call in enumerate(reply.tool_calls) if any(call is each for each in open_now)]
            results = [message for message in written if message.role == "tool" and message.seq > reply.seq]
            before = sum([len(each.tool_calls) for each in written if each.seq < reply.seq and each.status == "sent"])
            return UnstartedCalls(reply, calls, results, step, before) if calls else None

        return self.store.read(work)

    def is_on_branch(self, branch: int) -> bool:
        """Return True if the message that opened this turn is on the conversation's current branch."""
        if branch != self._branch and self.store.read(lambda tx: self._is_turn_on_branch(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    def take_steering_input(self) -> list[Message]:
        """Append the queued steering input to the conversation and return its messages."""
        if not self._has_steering_input():
            return []

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            number = self._check_lease(tx)
            waiting = [each for each in execution_records.load_queue(tx, number, self.agent) if each.kind == "steer"]
            before = load_tip(tx, self.conversation).seq
            _, taken = self._take_queued(tx, waiting)
            told = execution_records.append_events(tx, number, [self._with_turn_fields(event) for event in taken])
            return message_chain.load_messages(tx, self.conversation, after=before), told

        messages, told = self.store.write(work)
        self._publish(told)
        return messages

    def _has_steering_input(self) -> bool:
        """Return True if steering input is queued. Runs before every step, as a single statement if possible."""
        asked = execution_records.SELECT_STEERING, self.lease.root, self.agent
        rows = self.store.try_read_statement(*asked)
        return bool(rows if rows is not None else self.store.read(lambda tx: tx.rows(*asked)))

    def _take_queued(self, tx: Transaction, waiting: Sequence[QueuedMessage]) -> tuple[int, list[AnyEvent]]:
        """Move queued input into the conversation. Return the last seq, and the events."""
        events: list[AnyEvent] = []
        seq = 0
        for each in waiting:
            if execution_records.dequeue(tx, each.number):
                stored = message_chain.append_messages(tx, self.conversation, [self._queued_entry(tx, each.message)])[0]
                seq = stored.seq
                events.append(InputDequeued(queued=each.number, seq=seq, uid=stored.uid))
        return seq, events

    def _open_turn(self, tx: Transaction, seq: int) -> TurnRecord:
        """Open a turn for the message `seq`, or for the last message if `seq` is 0."""
        here = load_tip(tx, self.conversation)
        seq = seq or here.seq
        opening = message_chain.load_between(tx, here.branch, seq - 1, seq)[0]
        self.opening_author = None
        self._set_sender(opening)
        turn = TurnRecord(number=0, agent=self.agent, opened=seq, opening=opening.uid, started=now_ms())
        return execution_records.insert_turn(tx, self.lease.root, turn)

    def _is_resumable(self, tx: Transaction, turn: TurnRecord) -> bool:
        """Return True if a turn was interrupted and its opening message is on the current branch."""
        return turn.state == "interrupted" and self._is_turn_on_branch(tx, turn, load_tip(tx, self.conversation).branch)

    def _is_turn_on_branch(self, tx: Transaction, turn: TurnRecord, branch: int) -> bool:
        """Return True if the message that opened a turn is on a branch."""
        if load_branch_end(tx, branch)[0] < turn.opened:
            return False
        found = message_chain.load_between(tx, branch, turn.opened - 1, turn.opened)
        if not found or found[0].uid != turn.opening:
            return False
        self._set_sender(found[0])
        return True

    def _set_sender(self, opening: Message) -> None:
        """Set the sender to the author of the opening message, if the turn answers that message."""
        if opening.role == "user" or opening.is_addressed_to(self.agent):
            self.opening_author = opening.author

    def _queued_entry(self, tx: Transaction, message: Message) -> message_chain.PendingMessage:
        """Return queued input as an entry, renamed or with removed media replaced if necessary."""
        parts = tuple([_removed_media_text(tx, part) or part for part in message.parts])
        return branches.with_free_uid(
            tx, load_tip(tx, self.conversation).tree, self._entry(replace(message, parts=parts))
        )

    def _find_unanswered(self, tx: Transaction) -> int:
        """Return the seq of the message that this agent has not answered, 0 if there is none.

        That is the last message, unless it is a reply of this agent or of another one. Otherwise it is a message that
        another agent addressed to this one since this one's last reply.
        """
        here = load_tip(tx, self.conversation)
        upto, first = here.seq, max(load_context_start(tx, here.branch, here.seq), here.seq - MAX_SEARCHED_MESSAGES)
        while upto > first:
            after = max(first, upto - SEARCH_BATCH)
            for message in reversed(message_chain.load_between(tx, here.branch, after, upto)):
                said = message.role in ("assistant", "tool")
                if said and message.author not in (None, self.agent):
                    if message.is_addressed_to(self.agent) and message.status == "sent":
                        return message.seq
                elif message.seq == here.seq and (message.role != "assistant" or message.status != "sent"):
                    return message.seq
                elif said:
                    return 0
            upto = after
        return 0

    def _answer_open_calls(self, tx: Transaction, why: str, turn: TurnRecord) -> list[Message]:
        """Append error results for the open calls of a turn that is over, started or not, and return them."""
        if not turn.number:
            return []
        here = load_tip(tx, self.conversation)
        start = turn.opened - 1
        if here.branch != leases.check_lease(tx, self.lease, self.conversation)[0]:  # rewound or edited meanwhile
            start = min(start, load_base_seq(tx, here.branch))
        written = message_chain.load_messages(tx, self.conversation, after=max(0, min(start, here.seq)))
        results = [
            tool_result(
                call.id,
                call.name,
                (INTERRUPTED_RESULT if call.id in self.running_calls else NOT_RUN_RESULT).format(why=why),
                is_error=True,
                author=self.agent,
                turn=message.turn,
                step=message.step,
            )
            for message, call in find_open_calls(written)
            if message.author == self.agent and message.turn == turn.number
        ]
        return (
            message_chain.append_messages(tx, self.conversation, [self._entry(result) for result in results])
            if results
            else []
        )


def _removed_media_text(tx: Transaction, part: AnyPart) -> Text | None:
    """Return the placeholder for media that was removed from the store, None if the part is unchanged."""
    if not isinstance(part, Media) or not part.blob or tx.row("SELECT 1 FROM blob WHERE name = ?", part.blob):
        return None
    return Text(f"[{part.kind}: it was removed from the record]")

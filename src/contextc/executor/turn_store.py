"""The record of a turn in the store: everything that a turn reads and writes, under its lease.

Each method is one transaction, after which the turn can be resumed from the store alone. Events are published to
watchers after their transaction was committed, never before. The transaction that ends a turn answers its open calls,
then opens the next turn with queued input, or releases the lease.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc._worker_threads import defer
from contextc.compiler import Compiled
from contextc.events import (
    AnyEvent,
    ErrorOccurred,
    InputDequeued,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    ToolStart,
    TriggerFailed,
    TurnFinish,
    TurnStart,
    UsageReport,
    UserNoticeCreated,
)
from contextc.executor.event_hub import event_hub
from contextc.executor.turn_totals import total_usage
from contextc.messages import AnyPart, Message, ToolCall, Usage, UserNotice, validate_message
from contextc.messages import ToolResult as ResultPart
from contextc.messages.pairing import find_open_calls
from contextc.store import Lease, Store, append_and_load, branches, leases, partial_message_journal
from contextc.store import turn_and_event_records as records
from contextc.store.append_and_load import now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import load_base_seq, load_tip
from contextc.store.partial_message_journal import Piece, delta_events
from contextc.store.turn_and_event_records import QueuedMessage, StepRecord, TurnRecord, UnstartedCalls, result_event
from contextc.triggers import Evaluation, Trigger, TriggerMessage

log = logging.getLogger("contextc.executor")
T = TypeVar("T")
INTERRUPTED_RESULT = (
    "Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; it was not "
    "run again."
)
NOT_RUN_RESULT = "Not run: the turn ended before ({why})."
CANCELLED_REASON, FAILED_REASON, INTERRUPTED_REASON = "it was cancelled", "an error", "it was interrupted"


class TurnStore:
    """The stored record of one turn under one lease. Methods are called one after the other, from any thread."""

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
        self.first_event = 0
        """The number of the turn's TurnStart event."""
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
        self._write(lambda tx: (None, events), step=step)

    # ── begin and end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, input: Sequence[Message], *, resume: bool) -> None:
        """Open a turn with the given or queued input, or resume an interrupted one.

        If there is nothing to do, the turn number stays 0.
        """
        entries, root = [self._entry(message) for message in input], self.lease.root
        owners = self.agent, self.channel if self._channel_triggers else self.agent

        def work(
            tx: Transaction,
        ) -> tuple[TurnRecord | None, TurnRecord | None, list[AnyEvent], list[AnyEvent], dict[str, JSONObject]]:
            records.prefetch_opening(tx, root, *owners)
            leases.check_lease(tx, self.lease, self.conversation)
            previous = records.load_last_turn(tx, root, self.agent)
            states = records.load_trigger_states(tx, root, *owners)
            interrupted = previous if previous is not None and previous.state == "interrupted" else None
            if resume and interrupted is not None and self._is_turn_on_branch(tx, interrupted):
                turn = replace(interrupted, state="running", ended=0)
                previous = records.load_last_turn(tx, root, self.agent, before=turn.number)
                records.save_turn(tx, root, turn)
                told = self._append(tx, [TurnStart(seq=turn.opened, resumed=True)], turn)
                return turn, previous, [], told, states
            before: list[AnyEvent] = []
            if interrupted is not None:  # not resumed: its open calls are answered
                for message in self._answer_open_calls(tx, INTERRUPTED_REASON, interrupted):
                    before += self._append(tx, [result_event(message, 0)], interrupted, step=message.step or 0)
            waiting = records.load_queue(tx, root, self.agent)
            if entries:  # input queued to steer an earlier turn comes before this input
                _, taken = self._take_queued(tx, [each for each in waiting if each.kind == "steer"])
                self._branch = load_tip(tx, self.conversation).branch
                opened = append_and_load.append_messages(tx, self.conversation, entries)[-1]
            elif waiting:
                opened, taken = self._take_queued(tx, waiting[:1])
            elif unanswered := branches.find_unanswered(tx, self.conversation, self.agent):
                opened, taken = unanswered, list[AnyEvent]()
            else:
                return None, previous, before, [], states
            turn = self._open_turn(tx, opened)
            return turn, previous, before, self._append(tx, [TurnStart(seq=turn.opened), *taken], turn), states

        turn, self.previous_turn, before, told, self.trigger_states = self.store.write(work)
        if turn is not None:
            self.turn, self.first_event = turn, told[0].number
        self._publish([*before, *told])

    def close(self, finish: str, *, failed: ErrorOccurred | None = None, why: str = CANCELLED_REASON) -> bool:
        """End the turn: answer open calls, with `why` as the reason, and release the lease.

        `failed` is the error that ended it. Return True if queued input has opened the next turn. The lease is then
        kept.
        """
        root, error = self.lease.root, failed.error if failed else ""

        def work(tx: Transaction) -> tuple[TurnRecord, TurnRecord | None, list[AnyEvent]]:
            if tx.is_retry:
                done = records.load_turns_by_number(tx, root, [self.turn.number]).get(self.turn.number)
                if done is not None and done.state == "finished":  # the previous attempt was committed
                    last, holder, _ = leases.load_lease(tx, self.conversation, self.agent)
                    kept = last == self.lease.number and holder
                    return done, records.load_last_turn(tx, root, self.agent) if kept else None, []
            partial_message_journal.prefetch_closing(tx, self.lease)
            leases.check_lease(tx, self.lease, self.conversation)
            for uid in partial_message_journal.list_open_of_turn(tx, self.conversation, self.agent, self.lease.number):
                leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
            events = [result_event(message, 0) for message in self._answer_open_calls(tx, why, self.turn)]
            end = replace(self.turn, state="finished", finish=finish, error=error, ended=now_ms())
            records.save_turn(tx, root, end)
            if failed:
                events.append(failed)
            finished = TurnFinish(
                finish=finish, steps=end.steps, tool_calls=end.tool_calls, usage=end.usage, cost=end.cost, error=error
            )
            told = self._append(tx, [*events, finished], end)
            waiting = [] if finish in ("cancelled", "error") else records.load_queue(tx, root, self.agent)
            if not waiting:  # in the same transaction, so that a reader of TurnFinish may start the next turn
                leases.release(tx, self.lease, failed=False, is_ended=True)
                return end, None, told
            opened, taken = self._take_queued(tx, waiting[:1])
            following = self._open_turn(tx, opened)
            return end, following, [*told, *self._append(tx, [TurnStart(seq=opened), *taken], following)]

        ended, following, told = self.store.write(work, repeatable=True)
        if following is None:
            self.store.finish_release(self.lease)
        self.previous_turn, self.step, self.running_calls = ended, None, set()
        self.turn = following or ended
        self._publish(told)
        if not told:  # stored by an earlier attempt
            defer(lambda: self._hub.refresh(self.conversation))
        return following is not None

    def load_unstarted_calls(self) -> UnstartedCalls | None:
        """Return the calls of the turn's last reply that were never started, or None."""
        load = records.load_unstarted_calls
        return self.store.read(lambda tx: load(tx, self.conversation, self.lease.root, self.turn))

    def is_on_branch(self, branch: int) -> bool:
        """Return True if the message that opened this turn is on the conversation's current branch."""
        if branch != self._branch and self.store.read(lambda tx: self._is_turn_on_branch(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    # ── input and trigger messages ────────────────────────────────────────────────────────────────────────────────────

    def take_steering_input(self) -> list[Message]:
        """Append the queued steering input to the conversation and return its messages."""
        asked = records.SELECT_STEERING, self.lease.root, self.agent
        rows = self.store.try_read_statement(*asked)  # runs before every step, as a single statement if possible
        if not (rows if rows is not None else self.store.read(lambda tx: tx.rows(*asked))):
            return []

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            waiting = records.load_queue(tx, self.lease.root, self.agent)
            before = load_tip(tx, self.conversation).seq
            _, taken = self._take_queued(tx, [each for each in waiting if each.kind == "steer"])
            return append_and_load.load_messages(tx, self.conversation, after=before), taken

        return self._write(work)

    def store_trigger_messages(
        self, says: Sequence[tuple[Trigger, TriggerMessage]], states: Mapping[str, JSONObject], *, step: int | None
    ) -> None:
        """Store trigger messages and states. `step` is the step that the messages precede, if any.

        Text of kind `system` becomes a message for the model, a `hint` only an event for people.
        """
        spoken = [trigger for trigger, say in says if say.kind == "system"]
        entries = [self._entry(message) for message in self.trigger_messages(says, step=step)]
        hints = [(trigger, say) for trigger, say in says if say.kind == "hint"]

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            stored = append_and_load.append_messages(tx, self.conversation, entries) if entries else []
            self._save_states(tx, states)
            events: list[AnyEvent] = [
                SystemMessageCreated(seq=message.seq, uid=message.uid, text=message.text, trigger=trigger.name)
                for message, trigger in zip(stored, spoken, strict=True)
            ]
            return None, [*events, *_notices(hints)]

        self._write(work, step=step or 0)
        self.trigger_states |= states

    def trigger_messages(
        self, says: Sequence[tuple[Trigger, TriggerMessage]], *, step: int | None = None
    ) -> list[Message]:
        """Return the `system` texts of triggers as messages, without storing them."""
        return [
            say.as_message(trigger.name, audience=self._audience_of(trigger.name), turn=self.turn.number, step=step)
            for trigger, say in says
            if say.kind == "system"
        ]

    def report_failures(self, verdict: Evaluation, *, step: int) -> None:
        """Log failed triggers and store an event for each."""
        for name, failure in verdict.failures:
            log.warning("%s: trigger %s failed: %s", self.conversation, name, failure)
        if verdict.failures:
            self.append_events(*[TriggerFailed(trigger=name, error=why) for name, why in verdict.failures], step=step)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start_step(
        self, compiled: Compiled, index: int, states: Mapping[str, JSONObject]
    ) -> tuple[Callable[[Transaction], None], Callable[[], None]]:
        """Return the write to run with the attempt, before the request is sent, and a callback for after the commit."""
        budget, tries = compiled.budget, list[tuple[StepRecord, list[AnyEvent]]]()
        provider, model, request = compiled.provider.name, compiled.provider.model_id, compiled.record.request

        def also(tx: Transaction) -> None:
            root, turn = self.lease.root, self.turn.number
            if tx.is_retry and tries and tries[-1][0] in records.load_steps(tx, root, turn):
                return  # the previous attempt was committed
            self._save_states(tx, states)
            step = StepRecord(
                number=0, turn=turn, index=index, provider=provider, model=model, request=request, started=now_ms()
            )
            step = records.insert_step(tx, root, step)
            event = StepStart(
                provider=provider,
                model=model,
                request=request,
                mode=compiled.mode,
                epoch=compiled.record.epoch,
                why=compiled.record.why,
                used=budget.input,
                available=budget.room,
                cut=bool(budget.wanted),
            )
            tries.append((step, self._append(tx, [event], step=index)))

        def begun() -> None:
            self.step, told = tries[-1]
            self.trigger_states |= states
            self._publish(told)

        return also, begun

    def finish_step(
        self,
        *,
        rest: Sequence[Piece],
        stream: str,
        compiled: Compiled,
        usage: Usage,
        cost: float | None,
        calls: int,
        starting: Sequence[ToolCall],
    ) -> tuple[Callable[[Transaction, list[Message]], None], Callable[[], None]]:
        """Return the write to run with the reply, and a callback for after the commit.

        The write stores the step, its usage, the remaining deltas and the tools that start.
        """
        assert self.step is not None, "start_step must run before finish_step"
        begun, tries = self.step, list[tuple[StepRecord, TurnRecord, list[AnyEvent]]]()

        def also(tx: Transaction, stored: list[Message]) -> None:
            root, reply, spent = self.lease.root, stored[-1], total_usage(stored)
            finish, took = reply.finish or "", now_ms() - begun.started
            if stream:
                partial_message_journal.delete_stream(tx, stream)
            step = replace(begun, state="finished", finish=finish, usage=spent, seq=reply.seq, milliseconds=took)
            records.save_step(tx, root, step)
            steps, tool_calls = self.turn.steps + 1, self.turn.tool_calls + calls
            turn = replace(self.turn, steps=steps, tool_calls=tool_calls, usage=usage, cost=cost)
            records.save_turn(tx, root, turn)
            events = delta_events(rest, None if stream else stored)
            last = next((message.usage for message in reversed(stored) if message.usage is not None), None)
            if spent is not None and last is not None:
                used = (compiled.measured_input(last) or compiled.budget.input) + last.output
                events.append(UsageReport(usage=spent, used=used, available=compiled.budget.room, cost=cost))
            events.append(StepFinish(finish=finish, uid=reply.uid, seq=reply.seq, usage=spent, milliseconds=took))
            events += [ToolStart(id=call.id, name=call.name) for call in starting]
            tries.append((step, turn, self._append(tx, events, step=begun.index)))

        def ended() -> None:
            self.step, self.turn, told = tries[-1]
            self._publish(told)

        return also, ended

    def append_journal(self, beginning: Message, number: int, pieces: Sequence[Piece]) -> None:
        """Store and publish a batch of parts of a reply that is still being received."""

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            if number == 0:
                partial_message_journal.open_stream(tx, self.lease, beginning)
            partial_message_journal.save_deltas(tx, beginning.uid, number, [part for _, part in pieces])
            return None, delta_events(pieces)

        self._write(work)

    def fail_step(
        self, partial: Sequence[Message], stream: str, error: str, rest: Sequence[Piece] = (), *, kept: int = 0
    ) -> None:
        """Store the received part of an interrupted reply with its status, and publish `rest`, its unpublished parts.

        `kept` is the number under which its request was stored.
        """
        entries = [self._entry(message) for message in partial if message.parts]

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            if stream:
                partial_message_journal.delete_stream(tx, stream)
            stored = append_and_load.append_messages(tx, self.conversation, entries) if entries else []
            if self.step is not None:
                usage, took = total_usage(partial), now_ms() - self.step.started
                failed = replace(self.step, state="failed", error=error, usage=usage, kept=kept, milliseconds=took)
                failed = replace(failed, seq=stored[0].seq, uid=stored[0].uid) if stored else failed
                records.save_step(tx, self.lease.root, failed)
            records.save_turn(tx, self.lease.root, self.turn)
            if not stored:
                return None, []
            last = stored[-1]
            finish = StepFinish(finish=last.status, uid=last.uid, seq=last.seq, usage=last.usage)
            return None, [*delta_events(rest, None if stream else stored), finish]

        self._write(work)

    # ── tool results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def store_result(
        self,
        result: ResultPart,
        milliseconds: int,
        hints: Sequence[tuple[Trigger, TriggerMessage]],
        states: Mapping[str, JSONObject],
    ) -> Message:
        """Store a tool result, with user notices of `mid_step` triggers and their states."""
        entry = self._result_entry(result, *[UserNotice(say.text) for _, say in hints])

        def work(tx: Transaction) -> tuple[Message, list[AnyEvent]]:
            stored = append_and_load.append_messages(tx, self.conversation, [entry])[0]
            self._save_states(tx, states)
            return stored, [result_event(stored, milliseconds), *_notices(hints)]

        stored = self._write(work)
        self.running_calls.discard(result.call_id)
        self.trigger_states |= states
        return stored

    def store_refused_results(self, results: Sequence[ResultPart]) -> list[Message]:
        """Store the results of calls that were not run, in one transaction."""
        entries = [self._result_entry(result) for result in results]

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            stored = append_and_load.append_messages(tx, self.conversation, entries)
            return stored, [result_event(message, 0) for message in stored]

        return self._write(work)

    # ── within a transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, work: Callable[[Transaction], tuple[T, Sequence[AnyEvent]]], *, step: int | None = None) -> T:
        """Run work under the lease, store the events that it returns, and publish them after the commit."""

        def checked(tx: Transaction) -> tuple[T, list[AnyEvent]]:
            leases.check_lease(tx, self.lease, self.conversation)
            value, events = work(tx)
            return value, self._append(tx, events, step=step)

        value, told = self.store.write(checked)
        self._publish(told)
        return value

    def _append(
        self, tx: Transaction, events: Sequence[AnyEvent], turn: TurnRecord | None = None, *, step: int | None = None
    ) -> list[AnyEvent]:
        """Store events of a turn, by default of this one. Return them with their numbers."""
        index = step if step is not None else self.step.index if self.step is not None else 0
        moment, number = now_ms(), (turn or self.turn).number
        told = [replace(event, time=moment, agent=self.agent, turn=number, step=index) for event in events]
        return records.append_events(tx, self.lease.root, told)

    def _publish(self, events: Sequence[AnyEvent]) -> None:
        if events:
            defer(lambda: self._hub.publish(self.conversation, events))

    def _audience_of(self, trigger: str) -> str:
        """Return the agent or the channel that a trigger's messages are addressed to."""
        return self.channel if trigger in self._channel_triggers else self.agent

    def _save_states(self, tx: Transaction, states: Mapping[str, JSONObject]) -> None:
        for name, state in states.items():
            records.save_trigger_states(tx, self.lease.root, self._audience_of(name), {name: state})

    def _entry(self, message: Message) -> append_and_load.PendingMessage:
        if self.run is not None and message.role in ("assistant", "tool") and message.author == self.agent:
            message = replace(message, run=message.run or self.run)
        return append_and_load.prepare_entry(validate_message(message))

    def _result_entry(self, *parts: AnyPart) -> append_and_load.PendingMessage:
        step = self.step.index if self.step is not None else None
        return self._entry(Message(role="tool", parts=parts, author=self.agent, turn=self.turn.number, step=step))

    def _take_queued(self, tx: Transaction, waiting: Sequence[QueuedMessage]) -> tuple[int, list[AnyEvent]]:
        """Move queued input into the conversation. Return the last seq, and the events."""
        events: list[AnyEvent] = []
        seq = 0
        for each in waiting:
            if records.dequeue(tx, each.number):  # its uid may be taken, and its media removed, meanwhile
                entry = self._entry(records.without_removed_media(tx, each.message))
                entry = branches.with_free_uid(tx, load_tip(tx, self.conversation).tree, entry)
                stored = append_and_load.append_messages(tx, self.conversation, [entry])[0]
                seq = stored.seq
                events.append(InputDequeued(queued=each.number, seq=seq, uid=stored.uid))
        return seq, events

    def _open_turn(self, tx: Transaction, at: int | Message) -> TurnRecord:
        """Open a turn for a message, or for the message with a seq; 0 is the last message."""
        if not isinstance(at, Message):
            here = load_tip(tx, self.conversation)
            at = append_and_load.load_between(tx, here.branch, (at or here.seq) - 1, at or here.seq)[0]
        self._set_sender(at)
        turn = TurnRecord(number=0, agent=self.agent, opened=at.seq, opening=at.uid, started=now_ms())
        return records.insert_turn(tx, self.lease.root, turn)

    def _is_turn_on_branch(self, tx: Transaction, turn: TurnRecord, branch: int | None = None) -> bool:
        """Return True if the message that opened a turn is on a branch, by default on the current one."""
        branch = load_tip(tx, self.conversation).branch if branch is None else branch
        opening = records.find_opening_message(tx, branch, turn)
        if opening is not None:
            self._set_sender(opening)
        return opening is not None

    def _set_sender(self, opening: Message) -> None:
        """Set the sender to the author of the opening message, if the turn answers that message."""
        is_input = opening.role == "user" or opening.is_addressed_to(self.agent)
        self.opening_author = opening.author if is_input else None

    def _answer_open_calls(self, tx: Transaction, why: str, turn: TurnRecord) -> list[Message]:
        """Append error results for the open calls of a turn that is over, started or not, and return them."""
        if not turn.number:
            return []
        here = load_tip(tx, self.conversation)
        start = turn.opened - 1
        if here.branch != leases.check_lease(tx, self.lease, self.conversation)[0]:  # rewound or edited meanwhile
            start = min(start, load_base_seq(tx, here.branch))
        written = append_and_load.load_between(tx, here.branch, max(0, min(start, here.seq)), here.seq)
        entries: list[append_and_load.PendingMessage] = []
        for message, call in find_open_calls(written):
            if message.author == self.agent and message.turn == turn.number:
                text = (INTERRUPTED_RESULT if call.id in self.running_calls else NOT_RUN_RESULT).format(why=why)
                entries.append(self._entry(leases.error_result(message, call, text)))
        return append_and_load.append_messages(tx, self.conversation, entries) if entries else []


def _notices(hints: Iterable[tuple[Trigger, TriggerMessage]]) -> list[AnyEvent]:
    return [UserNoticeCreated(text=say.text, trigger=trigger.name) for trigger, say in hints]

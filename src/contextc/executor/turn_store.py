"""The record of a turn in the store: everything that a turn reads and writes, under its lease.

Each method is one transaction, after which the turn can be resumed from the store alone. Events are published to
watchers after their transaction was committed, never before. The transaction that ends a turn answers its open calls,
then opens the next turn with queued input, or releases the lease.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import convert, to_builtins
from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc._worker_threads import defer
from contextc.compiler import Compiled
from contextc.compiler.compaction import CompactionResult, compaction_event, use_summary_in
from contextc.events import (
    AnyEvent,
    ErrorOccurred,
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
from contextc.executor.turn_approvals import TurnApprovals
from contextc.executor.turn_totals import add_usage, total_usage
from contextc.executor.turn_transactions import INTERRUPTED_RESULT
from contextc.messages import Message, ToolCall, Usage, UserNotice
from contextc.messages import ToolResult as ResultPart
from contextc.models import Model, cost
from contextc.store import (
    Approval,
    append_and_load,
    approvals,
    branches,
    leases,
    partial_message_journal,
    turn_controls,
)
from contextc.store import turn_and_event_records as records
from contextc.store.append_and_load import now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import load_tip
from contextc.store.partial_message_journal import Piece, delta_events
from contextc.store.submitted_turns import take_submitted
from contextc.store.turn_and_event_records import StepRecord, TurnRecord, result_event
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.triggers import Evaluation, Trigger, TriggerMessage

__all__ = ["INTERRUPTED_RESULT", "NOT_RUN_RESULT", "TurnStore"]
log = get_logger("contextc.executor")
CANCELLED_REASON, FAILED_REASON, INTERRUPTED_REASON = "it was cancelled", "an error", "it was interrupted"
LATE_USAGE_STATE = "contextc.summary_usage"
"""Name of the state with the usage of summaries that were finished while another process ran their turn."""


class OpenedTurn(NamedTuple):
    """A turn that was opened, if any; the one before it; events before it, and its own; trigger states.

    `waiting` is the turn because of which input was queued instead.
    """

    turn: TurnRecord | None
    previous: TurnRecord | None
    before: list[AnyEvent]
    told: list[AnyEvent]
    states: dict[str, JSONObject]
    waiting: TurnRecord | None = None


class TurnStore(TurnApprovals):
    """The stored record of one turn under one lease. Methods are called one after the other, from any thread."""

    waiting: TurnRecord | None = None
    """The turn that waits for approval, because of which the input was queued."""
    _compacted: Sequence[AnyEvent] = ()
    _is_resumed = False

    # ── begin and end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def open(
        self, input: Sequence[Message], *, resume: bool, ask_again: bool = False, only_submitted: bool = False
    ) -> None:
        """Open a turn with the given or queued input, or resume an interrupted or a waiting one.

        If there is nothing to do, the turn number stays 0. If a turn waits for approval, input is queued, and `waiting`
        is that turn. With `ask_again`, a callback answers its pending approvals. With `only_submitted`, an
        unanswered message opens a turn only if it was submitted: a turn that failed or was cancelled is not repeated.
        """
        entries, root = [self._entry(message) for message in input], self.lease.root
        owners = self.agent, self.channel if self._channel_triggers else self.agent

        def work(tx: Transaction) -> OpenedTurn:
            records.prefetch_opening(tx, root, *owners)
            leases.check_lease(tx, self.lease, self.conversation)
            self._check_run(tx)
            previous, before = records.load_last_turn(tx, root, self.agent), list[AnyEvent]()
            if previous is not None and previous.state == "waiting":
                if self._load_unstarted(tx, previous) is None:  # rewound or edited meanwhile
                    before += self._end_superseded(tx, previous)
                    previous = records.load_last_turn(tx, root, self.agent)
                elif entries:
                    return OpenedTurn(None, previous, [], self._queue_input(tx, input, entries), {}, previous)
                else:
                    self._check_answers(tx, previous, ask_again)
            elif previous is not None and previous.state == "queued":
                if not self._is_turn_on_branch(tx, previous):
                    before += self._end_superseded(tx, previous)
                    previous = records.load_last_turn(tx, root, self.agent)
                elif entries:
                    return OpenedTurn(None, previous, [], self._queue_input(tx, input, entries), {}, previous)
            states = records.load_trigger_states(tx, root, *owners)
            interrupted = previous if previous is not None and previous.state == "interrupted" else None
            continued = previous if previous is not None and previous.state in PROCESS_LESS_STATES else interrupted
            resumes = resume or (continued is not None and continued.state in PROCESS_LESS_STATES)
            if resumes and continued is not None and self._is_turn_on_branch(tx, continued):
                if ask_again:
                    approvals.withdraw(tx, root, continued.number)
                turn = replace(continued, state="running", ended=0)
                previous = records.load_last_turn(tx, root, self.agent, before=turn.number)
                records.save_turn(tx, root, turn)
                told = self._append(tx, [TurnStart(seq=turn.opened, resumed=True)], turn)
                return OpenedTurn(turn, previous, before, told, states)
            if interrupted is not None:  # not resumed: its open calls are answered
                approvals.withdraw(tx, root, interrupted.number)
                for message in self._answer_open_calls(tx, INTERRUPTED_REASON, interrupted):
                    before += self._append(tx, [result_event(message, 0)], interrupted, step=message.step or 0)
            waiting = records.load_queue(tx, root, self.agent)
            if entries:  # input queued to steer an earlier turn comes before this input
                _, taken = self._take_queued(tx, [each for each in waiting if each.kind == "steer"])
                self._branch = load_tip(tx, self.conversation).branch
                opened = append_and_load.append_messages(tx, self.conversation, entries)[-1]
            elif only_submitted and (submitted := take_submitted(tx, self.conversation, self.agent)):
                opened, taken = submitted, list[AnyEvent]()
            elif waiting:
                opened, taken = self._take_queued(tx, waiting[:1])
            elif not only_submitted and (unanswered := branches.find_unanswered(tx, self.conversation, self.author)):
                opened, taken = unanswered, list[AnyEvent]()
            else:
                return OpenedTurn(None, previous, before, [], states)
            turn = self._open_turn(tx, opened)
            started = self._append(tx, [TurnStart(seq=turn.opened), *taken], turn)
            return OpenedTurn(turn, previous, before, started, states)

        turn, self.previous_turn, before, told, self.trigger_states, self.waiting = self.store.write(work)
        if told:
            self.first_event = told[0].number
        if turn is not None:
            self.turn, self.has_approvals = turn, bool(turn.steps)
            self._is_resumed = any(isinstance(event, TurnStart) and event.resumed for event in told)
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
            *_, request = leases.check_lease_and_request(tx, self.lease, self.conversation)
            if request:
                turn_controls.take_requests(tx, self.conversation, root, self.turn)
            if self.has_approvals:
                approvals.withdraw(tx, root, self.turn.number)
            for uid in partial_message_journal.list_open_of_turn(tx, self.conversation, self.agent, self.lease.number):
                leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
            events = [result_event(message, 0) for message in self._answer_open_calls(tx, why, self.turn)]
            end = replace(self.turn, state="finished", finish=finish, error=error, ended=now_ms())
            if self._is_resumed and (late := self._load_late_usage(tx, end)) is not None and late.usage is not None:
                end = _with_usage(end, late.usage, late.cost)
                records.save_trigger_states(tx, root, self.agent, {LATE_USAGE_STATE: {}})
            records.save_turn(tx, root, end)
            if failed:
                events.append(failed)
            finished = TurnFinish(
                finish=finish, steps=end.steps, tool_calls=end.tool_calls, usage=end.usage, cost=end.cost, error=error
            )
            told = self._append(tx, [*events, finished], end)
            is_stopped = finish in ("cancelled", "error") or bool(request)
            waiting = [] if is_stopped else records.load_queue(tx, root, self.agent)
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
        self.turn, self.end_request, self.has_approvals, self._is_resumed = following or ended, "", False, False
        self._publish(told)
        if not told:  # stored by an earlier attempt
            defer(lambda: self._hub.refresh(self.conversation))
        return following is not None

    def hand_over(self, store_continuation: Callable[[Transaction, TurnRecord], None]) -> bool:
        """Release the lease between two steps, so that another process can continue the turn, which is now `queued`.

        `store_continuation` runs in the same transaction. Return False, and change nothing, if the turn shall end.
        """
        root = self.lease.root

        def work(tx: Transaction) -> tuple[TurnRecord | None, str]:
            if tx.is_retry:
                done = records.load_turns_by_number(tx, root, [self.turn.number]).get(self.turn.number)
                if done is not None and done.state == "queued":  # the previous attempt was committed
                    return done, ""
            *_, request = leases.check_lease_and_request(tx, self.lease, self.conversation)
            if request:
                return None, request
            queued = replace(self.turn, state="queued")
            records.save_turn(tx, root, queued)
            store_continuation(tx, queued)
            leases.release(tx, self.lease, failed=False)
            return queued, ""

        queued, request = self.store.write(work, repeatable=True)
        if queued is None:
            self._report_request(request)
            return False
        self.store.finish_release(self.lease)
        self.turn = queued
        return True

    def add_usage(self, number: int, usage: Usage, model: Model) -> None:
        """Add the usage of a summary to the record of a turn that no longer runs here."""
        root, more = self.lease.root, cost(model, usage)

        def work(tx: Transaction) -> None:
            load_tip(tx, self.conversation, lock=True)
            turn = records.load_turns_by_number(tx, root, [number]).get(number)
            if turn is None:
                return
            if turn.state != "running":
                records.save_turn(tx, root, _with_usage(turn, usage, more))
                return
            late = self._load_late_usage(tx, turn)  # another process would overwrite the record, and adds this to it
            late = late or TurnRecord(number=number, agent=self.agent, opening=turn.opening, cost=0.0)
            state: JSONObject = to_builtins(_with_usage(late, usage, more))
            records.save_trigger_states(tx, root, self.agent, {LATE_USAGE_STATE: state})

        self.store.write(work)

    def _load_late_usage(self, tx: Transaction, turn: TurnRecord) -> TurnRecord | None:
        """Return the usage of summaries that other processes have finished while this turn was running."""
        held = records.load_trigger_states(tx, self.lease.root, self.agent).get(LATE_USAGE_STATE) or {}
        return convert(held, TurnRecord) if held.get("opening") == turn.opening else None

    def _open_turn(self, tx: Transaction, at: int | Message) -> TurnRecord:
        """Open a turn for a message, or for the message with a seq; 0 is the last message."""
        if not isinstance(at, Message):
            here = load_tip(tx, self.conversation)
            at = append_and_load.load_between(tx, here.branch, (at or here.seq) - 1, at or here.seq)[0]
        self._set_sender(tx, at)
        turn = TurnRecord(number=0, agent=self.agent, run=self.run, opened=at.seq, opening=at.uid, started=now_ms())
        return records.insert_turn(tx, self.lease.root, turn)

    def is_on_branch(self, branch: int) -> bool:
        """Return True if the message that opened this turn is on the conversation's current branch."""
        if branch != self._branch and self.store.read(lambda tx: self._is_turn_on_branch(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    # ── input and trigger messages ────────────────────────────────────────────────────────────────────────────────────

    def has_steering_input(self) -> bool:
        """Return True if steering input is queued. A request to end the turn is passed on."""
        asked = records.SELECT_STEERING_AND_REQUEST, self.lease.root, self.agent, self.conversation, self.agent
        rows = self.store.try_read_statement(*asked)  # runs before every step, as a single statement if possible
        found = [kind for (kind,) in (rows if rows is not None else self.store.read(lambda tx: tx.rows(*asked)))]
        for kind in found:
            self._report_request("" if kind == "steer" else kind)
        return "steer" in found

    def take_steering_input(self) -> None:
        """Append the queued steering input to the conversation."""
        if self.has_steering_input():
            self._write(lambda tx: (None, self._take_steering(tx)))

    def store_trigger_messages(
        self,
        says: Sequence[tuple[Trigger, TriggerMessage]],
        states: Mapping[str, JSONObject],
        *,
        step: int | None,
        reply: Sequence[Message] = (),
        stream: str = "",
    ) -> tuple[list[Message], list[Message]]:
        """Store trigger messages and states. `step` is the step that the messages precede, if any.

        Text of kind `system` becomes a message for the model, a `hint` only an event for people. `reply` is the part
        of a running reply that comes before them, journaled as `stream`. Then steering input is also stored, as far as
        it is text. Return that part, and the messages after it.
        """
        spoken = [trigger for trigger, say in says if say.kind == "system"]
        parts = [self._entry(message) for message in reply]
        entries = [self._entry(message) for message in self.trigger_messages(says, step=step)]
        hints = [(trigger, say) for trigger, say in says if say.kind == "hint"]

        def work(tx: Transaction) -> tuple[tuple[list[Message], list[Message]], list[AnyEvent]]:
            if stream:
                partial_message_journal.delete_stream(tx, stream)
            before = append_and_load.append_messages(tx, self.conversation, parts) if parts else []
            taken = self._take_steering(tx, only_text=True) if parts else []
            steered = append_and_load.load_messages(tx, self.conversation, after=before[-1].seq) if taken else []
            stored = append_and_load.append_messages(tx, self.conversation, entries) if entries else []
            self._save_states(tx, states)
            events: list[AnyEvent] = [
                SystemMessageCreated(seq=message.seq, uid=message.uid, text=message.text, trigger=trigger.name)
                for message, trigger in zip(stored, spoken, strict=True)
            ]
            return (before, [*steered, *stored]), [*taken, *events, *_notices(hints)]

        stored = self._write(work, step=step or 0)
        self.trigger_states |= states
        return stored

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

    def append_compaction(self, tx: Transaction, done: CompactionResult) -> None:
        """Store the event of a compaction in the transaction that stores its summary, under the lease of the turn."""
        leases.check_lease(tx, self.lease, self.conversation)
        self._compacted = self._append(tx, [compaction_event(done)])

    def publish_compaction(self) -> None:
        """Publish the event of the compaction that was stored last."""
        self._publish(self._compacted)

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
            compacted = use_summary_in(tx, compiled)
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
            events = [event] if compacted is None else [compacted, event]
            tries.append((step, self._append(tx, events, step=index)))

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
        stored_before: int,
    ) -> tuple[Callable[[Transaction, list[Message]], None], Callable[[], None]]:
        """Return the write to run with the reply, and a callback for after the commit.

        The write stores the step, its usage, the remaining deltas and the tools that start. `stored_before` is the
        number of messages of the reply that were stored earlier.
        """
        assert self.step is not None, "start_step must run before finish_step"
        begun, tries = self.step, list[tuple[StepRecord, TurnRecord, list[AnyEvent]]]()

        def also(tx: Transaction, stored: list[Message]) -> None:
            root, spent = self.lease.root, total_usage(stored)
            reply = next(
                (message for message in reversed(stored) if message.role == "assistant"), Message(role="assistant")
            )
            finish, took = reply.finish or "", now_ms() - begun.started
            if stream:
                partial_message_journal.delete_stream(tx, stream)
            step = replace(begun, state="finished", finish=finish, usage=spent, seq=reply.seq, milliseconds=took)
            records.save_step(tx, root, step)
            steps, tool_calls = self.turn.steps + 1, self.turn.tool_calls + calls
            turn = replace(self.turn, steps=steps, tool_calls=tool_calls, usage=usage, cost=cost)
            records.save_turn(tx, root, turn)
            events = delta_events(rest, None if stream else stored[stored_before:])
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
        self,
        partial: Sequence[Message],
        stream: str,
        error: str,
        rest: Sequence[Piece] = (),
        *,
        before: Sequence[Message] = (),
        kept: int = 0,
    ) -> None:
        """Store the received part of an interrupted reply with its status, and publish `rest`, its unpublished parts.

        `before` is the part that was stored earlier, `kept` the number under which the request was stored.
        """
        entries = [self._entry(message) for message in partial if message.parts]

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            if stream:
                partial_message_journal.delete_stream(tx, stream)
            stored = append_and_load.append_messages(tx, self.conversation, entries) if entries else []
            if self.step is not None:
                usage, took = total_usage([*before, *partial]), now_ms() - self.step.started
                failed = replace(self.step, state="failed", error=error, usage=usage, kept=kept, milliseconds=took)
                first = next(iter([*before, *stored]), None)
                failed = replace(failed, seq=first.seq, uid=first.uid) if first is not None else failed
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
        *,
        applied: Approval | None = None,
    ) -> Message:
        """Store a tool result, with user notices of `mid_step` triggers and their states.

        `applied` is the answer of a client that ran the tool itself.
        """
        entry = self._result_entry(result, *[UserNotice(say.text) for _, say in hints])

        def work(tx: Transaction) -> tuple[Message, list[AnyEvent]]:
            stored = append_and_load.append_messages(tx, self.conversation, [entry])[0]
            self._save_states(tx, states)
            if applied is not None:
                approvals.save_started(tx, applied)
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


def _notices(hints: Iterable[tuple[Trigger, TriggerMessage]]) -> list[AnyEvent]:
    return [UserNoticeCreated(text=say.text, trigger=trigger.name) for trigger, say in hints]


def _with_usage(turn: TurnRecord, usage: Usage, more: float | None) -> TurnRecord:
    spent = None if turn.cost is None or more is None else turn.cost + more
    return replace(turn, usage=add_usage(turn.usage or Usage(), usage), cost=spent)

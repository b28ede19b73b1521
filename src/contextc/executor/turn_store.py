"""Store the steps and tool results of a turn. Each method is one transaction under the turn's lease.

Stored events are published to watchers. After every method the turn's number, totals and messages are in the store, so
a turn can be resumed from the store alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.compiler.commit import measured_input
from contextc.events import (
    AnyEvent,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    ToolStart,
    TriggerFailed,
    UsageReport,
    UserNoticeCreated,
)
from contextc.executor.limits import add_usage
from contextc.executor.turn_lifecycle import Piece, TurnLifecycle, delta_events, now_ms, result_event
from contextc.messages import (
    Message,
    ToolCall,
    Usage,
    UserNotice,
    system,
)
from contextc.messages import ToolResult as ResultPart
from contextc.store import execution_records, message_chain, streams
from contextc.store.execution_records import StepRecord, TurnRecord
from contextc.store.types import Transaction
from contextc.triggers import Evaluation, Trigger, TriggerMessage

log = logging.getLogger("contextc.executor")


class TurnStore(TurnLifecycle):
    """The stored record of one turn: its start and end, its steps, and its tool results."""

    def store_trigger_messages(
        self, says: Sequence[tuple[Trigger, TriggerMessage]], states: Mapping[str, JSONObject], *, step: int | None
    ) -> None:
        """Store trigger messages and states. `step` is the step that the messages precede, if any.

        Text of kind `system` becomes a message for the model, a `hint` only an event for people.
        """
        spoken = [(trigger, say) for trigger, say in says if say.kind == "system"]
        entries = [self._entry(message) for message in self.trigger_messages(says, step=step)]

        def work(tx: Transaction) -> list[AnyEvent]:
            number = self._check_lease(tx)
            stored = message_chain.append_messages(tx, self.conversation, entries) if entries else []
            self._save_states(tx, number, states)
            events: list[AnyEvent] = [
                SystemMessageCreated(seq=message.seq, uid=message.uid, text=message.text, trigger=trigger.name)
                for message, (trigger, _) in zip(stored, spoken, strict=True)
            ]
            events += [
                UserNoticeCreated(text=say.text, trigger=trigger.name) for trigger, say in says if say.kind == "hint"
            ]
            return execution_records.append_events(
                tx, number, [self._with_turn_fields(event, step=step or 0) for event in events]
            )

        told = self.store.write(work)
        self.trigger_states |= states
        self._publish(told)

    def trigger_messages(
        self, says: Sequence[tuple[Trigger, TriggerMessage]], *, step: int | None = None
    ) -> list[Message]:
        """Return the `system` texts of triggers as messages, without storing them."""
        return [
            system(
                say.text,
                audience=self.audience_of(trigger.name),
                turn=self.turn.number,
                step=step,
                meta={"trigger": trigger.name, **({"closes": True} if say.closes else {})},
            )
            for trigger, say in says
            if say.kind == "system"
        ]

    def report_failures(self, verdict: Evaluation, *, step: int) -> None:
        """Log failed triggers and store an event for each."""
        for name, failure in verdict.failures:
            log.warning("%s: trigger %s failed: %s", self.conversation, name, failure)
        if verdict.failures:
            self.append_events(
                *[TriggerFailed(trigger=name, error=failure) for name, failure in verdict.failures], step=step
            )

    def start_step(
        self, compiled: Compiled, index: int, states: Mapping[str, JSONObject]
    ) -> tuple[Callable[[Transaction], None], Callable[[], None]]:
        """Return the write to run with the attempt, before the request is sent, and a callback for after the commit."""
        budget, tries = compiled.budget, list[tuple[StepRecord, list[AnyEvent]]]()

        def also(tx: Transaction) -> None:
            number = self.lease.root
            if tx.is_retry and tries and tries[-1][0] in execution_records.load_steps(tx, number, self.turn.number):
                return  # the previous attempt was committed
            self._save_states(tx, number, states)
            step = StepRecord(
                number=0,
                turn=self.turn.number,
                index=index,
                provider=compiled.provider.name,
                model=compiled.provider.model_id,
                request=compiled.record.request,
                started=now_ms(),
            )
            step = execution_records.insert_step(tx, number, step)
            event = StepStart(
                provider=compiled.provider.name,
                model=compiled.provider.model_id,
                request=compiled.record.request,
                mode=compiled.mode,
                epoch=compiled.record.epoch,
                why=compiled.record.why,
                used=budget.input,
                available=budget.room,
                cut=bool(budget.wanted),
            )
            tries.append(
                (step, execution_records.append_events(tx, number, [self._with_turn_fields(event, step=index)]))
            )

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
        assert self.step is not None, "step_begins must run before step_ends"
        begun, tries = self.step, list[tuple[StepRecord, TurnRecord, list[AnyEvent]]]()

        def also(tx: Transaction, stored: list[Message]) -> None:
            number = self.lease.root
            if stream:
                streams.delete_stream(tx, stream)
            reply = stored[-1]
            spent = total_usage(stored)
            took = now_ms() - begun.started
            step = replace(
                begun,
                state="finished",
                finish=reply.finish or "",
                usage=spent,
                seq=reply.seq,
                milliseconds=took,
            )
            execution_records.save_step(tx, number, step)
            turn = replace(
                self.turn,
                steps=self.turn.steps + 1,
                tool_calls=self.turn.tool_calls + calls,
                usage=usage,
                cost=cost,
            )
            execution_records.save_turn(tx, number, turn)
            events = delta_events(rest if stream else _with_stored_uids(rest, stored))
            last = next((message.usage for message in reversed(stored) if message.usage is not None), None)
            if spent is not None and last is not None:
                used = (measured_input(compiled, last) or compiled.budget.input) + last.output
                events.append(UsageReport(usage=spent, used=used, available=compiled.budget.room, cost=cost))
            events.append(
                StepFinish(finish=reply.finish or "", uid=reply.uid, seq=reply.seq, usage=spent, milliseconds=took)
            )
            events += [ToolStart(id=call.id, name=call.name) for call in starting]
            told = execution_records.append_events(
                tx, number, [self._with_turn_fields(event, step=begun.index) for event in events]
            )
            tries.append((step, turn, told))

        def ended() -> None:
            self.step, self.turn, told = tries[-1]
            self._publish(told)

        return also, ended

    def append_journal(self, beginning: Message, number: int, pieces: Sequence[Piece]) -> None:
        """Store and publish a batch of parts of a reply that is still being received."""

        def work(tx: Transaction) -> list[AnyEvent]:
            conversation = self._check_lease(tx)
            if number == 0:
                streams.open_stream(tx, self.lease, beginning)
            streams.save_deltas(tx, beginning.uid, number, [part for _, part in pieces])
            events = [self._with_turn_fields(event) for event in delta_events(pieces)]
            return execution_records.append_events(tx, conversation, events)

        self._publish(self.store.write(work))

    def fail_step(
        self, partial: Sequence[Message], stream: str, error: str, rest: Sequence[Piece] = (), *, kept: int = 0
    ) -> None:
        """Store the received part of an interrupted reply with its status, and publish `rest`, its unpublished parts.

        `kept` is the number under which its request was stored.
        """
        entries = [self._entry(message) for message in partial if message.parts]

        def work(tx: Transaction) -> list[AnyEvent]:
            number = self._check_lease(tx)
            if stream:
                streams.delete_stream(tx, stream)
            stored = message_chain.append_messages(tx, self.conversation, entries) if entries else []
            if self.step is not None:
                usage = total_usage(partial)
                failed = replace(
                    self.step,
                    state="failed",
                    error=error,
                    usage=usage,
                    seq=stored[0].seq if stored else 0,
                    uid=stored[0].uid if stored else "",
                    kept=kept,
                    milliseconds=now_ms() - self.step.started,
                )
                execution_records.save_step(tx, number, failed)
            execution_records.save_turn(tx, number, self.turn)
            events = delta_events(rest if stream else _with_stored_uids(rest, stored)) if stored else []
            events += [
                StepFinish(finish=message.status, uid=message.uid, seq=message.seq, usage=message.usage)
                for message in stored[-1:]
            ]
            return execution_records.append_events(tx, number, [self._with_turn_fields(event) for event in events])

        self._publish(self.store.write(work))

    def store_result(
        self,
        result: ResultPart,
        milliseconds: int,
        hints: Sequence[tuple[Trigger, TriggerMessage]] = (),
        states: Mapping[str, JSONObject] | None = None,
    ) -> Message:
        """Store a tool result, with user notices of `mid_step` triggers and their states."""
        parts = (result, *(UserNotice(say.text) for _, say in hints))
        message = Message(role="tool", parts=parts, author=self.agent, turn=self.turn.number, step=self._step_index)
        entry = self._entry(message)

        def work(tx: Transaction) -> tuple[Message, list[AnyEvent]]:
            number = self._check_lease(tx)
            stored = message_chain.append_messages(tx, self.conversation, [entry])[0]
            self._save_states(tx, number, states or {})
            events: list[AnyEvent] = [result_event(stored, milliseconds)]
            events += [UserNoticeCreated(text=say.text, trigger=trigger.name) for trigger, say in hints]
            return stored, execution_records.append_events(
                tx, number, [self._with_turn_fields(event) for event in events]
            )

        stored, told = self.store.write(work)
        self.running_calls.discard(result.call_id)
        self.trigger_states |= states or {}
        self._publish(told)
        return stored

    def store_refused_results(self, results: Sequence[ResultPart]) -> list[Message]:
        """Store the results of calls that were not run, in one transaction."""
        turn, step = self.turn.number, self._step_index
        entries = [
            self._entry(Message(role="tool", parts=(result,), author=self.agent, turn=turn, step=step))
            for result in results
        ]

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            number = self._check_lease(tx)
            stored = message_chain.append_messages(tx, self.conversation, entries)
            events = [self._with_turn_fields(result_event(message, 0)) for message in stored]
            return stored, execution_records.append_events(tx, number, events)

        stored, told = self.store.write(work)
        self._publish(told)
        return stored


def total_usage(messages: Sequence[Message]) -> Usage | None:
    """Return the usage of a reply, which may be several messages; None if the provider reported none."""
    found = [message.usage for message in messages if message.usage is not None]
    return found[0] if len(found) == 1 else reduce(add_usage, found, Usage()) if found else None


def _with_stored_uids(pieces: Sequence[Piece], stored: Sequence[Message]) -> list[Piece]:
    """Return pieces of replies that were never journaled, with the uids under which the replies were stored."""
    replies = [message.uid for message in stored if message.role == "assistant"]
    uids = list(dict.fromkeys(uid for uid, _ in pieces))
    names = dict(zip(uids, replies, strict=False))
    return [(names.get(uid, uid), part) for uid, part in pieces]

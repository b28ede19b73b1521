"""The approvals of a turn in the store: the turn waits for them without a process, and continues after an answer."""

from collections.abc import Sequence

from msgspec.structs import replace

from contextc._worker_threads import defer
from contextc.errors import TurnWaits
from contextc.events import AnyEvent, ApprovalRequest, ToolStart, TurnWaiting
from contextc.executor.turn_transactions import TurnTransactions
from contextc.messages import Message
from contextc.store import Approval, append_and_load, approvals, leases, turn_controls
from contextc.store import turn_and_event_records as records
from contextc.store.backend_interface import Transaction
from contextc.store.turn_and_event_records import TurnRecord, UnstartedCalls

SUPERSEDED = "superseded"


class TurnApprovals(TurnTransactions):
    """The transactions of a turn that store, read and apply approvals."""

    def load_unstarted_calls(self) -> tuple[UnstartedCalls, dict[int, Approval]] | None:
        """Return the calls of the turn's last reply that were never started, and their approvals by index, or None."""

        def work(tx: Transaction) -> tuple[UnstartedCalls, dict[int, Approval]] | None:
            left = self._load_unstarted(tx, self.turn)
            if left is None:
                return None
            asked = approvals.load_turn_approvals(tx, self.lease.root, self.turn.number)
            seq = left.reply.seq
            return left, {each.index: each for each in asked if each.seq == seq and each.state != "withdrawn"}

        return self.store.read(work)

    def suspend(self, new: Sequence[Approval], kept: Sequence[Approval]) -> bool:
        """Store approvals, and let the turn wait for them and for the `kept` ones. The lease is released.

        Return False, and change nothing, if a kept approval was answered meanwhile, or the turn shall end.
        """
        root = self.lease.root
        asked: list[AnyEvent] = [
            ApprovalRequest(
                id=each.call, name=each.name, arguments=each.arguments, approval=each.id, client=each.client
            )
            for each in new
        ]
        wait = TurnWaiting(approvals=tuple([each.id for each in (*kept, *new)]))

        def work(tx: Transaction) -> tuple[TurnRecord | None, list[AnyEvent], str]:
            if tx.is_retry:
                done = records.load_turns_by_number(tx, root, [self.turn.number]).get(self.turn.number)
                if done is not None and done.state == "waiting":  # the previous attempt was committed
                    return done, [], ""
            *_, request = leases.check_lease_and_request(tx, self.lease, self.conversation)
            approvals.expire_pending(tx, self.conversation)
            states = {each.id: each.state for each in approvals.load_turn_approvals(tx, root, self.turn.number)}
            if request or any(states.get(each.id) != "pending" for each in kept):
                return None, [], request
            approvals.insert_approvals(tx, root, new)
            waiting = replace(self.turn, state="waiting")
            records.save_turn(tx, root, waiting)
            told = self._append(tx, [*asked, wait], waiting)
            leases.release(tx, self.lease, failed=False)
            return waiting, told, ""

        waiting, told, request = self.store.write(work, repeatable=True)
        if waiting is None:
            self._report_request(request)
            return False
        self.store.finish_release(self.lease)
        self.turn = waiting
        self._publish(told)
        if not told:  # stored by an earlier attempt
            defer(lambda: self._hub.refresh(self.conversation))
        return True

    def request_hosted_approval(self, approval: Approval) -> int:
        """Store an approval that a provider asks for in the middle of its reply. Return the last event before."""
        event = ApprovalRequest(
            id=approval.call, name=approval.name, arguments=approval.arguments, approval=approval.id
        )
        numbers: list[int] = []

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            approvals.insert_approvals(tx, self.lease.root, [approval])
            numbers.append(records.load_last_number(tx, "event", self.lease.root))
            return None, [event]

        self.has_approvals = True
        self._write(work)
        return numbers[-1]

    def use_answer(self, approval: Approval, *, starts: bool) -> None:
        """Record that the answer to an approval is applied now, and if so that the tool starts."""

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            approvals.save_started(tx, approval)
            return None, [ToolStart(id=approval.call, name=approval.name)] if starts else []

        self._write(work)

    def _check_answers(self, tx: Transaction, turn: TurnRecord, ask_again: bool) -> None:
        """Raise `TurnWaits` if no approval of a waiting turn has an answer that was not applied yet."""
        approvals.expire_pending(tx, self.conversation)
        asked = approvals.load_turn_approvals(tx, self.lease.root, turn.number)
        pending = [each for each in asked if each.state == "pending"]
        if not pending or ask_again or any(each.state in ("allowed", "denied") and not each.started for each in asked):
            return
        ids, tools = tuple([each.id for each in pending]), ", ".join([each.name for each in pending])
        raise TurnWaits(self.conversation, self.agent, turn=turn.number, approvals=ids, tools=tools)

    def _load_unstarted(self, tx: Transaction, turn: TurnRecord) -> UnstartedCalls | None:
        if not self._is_turn_on_branch(tx, turn):
            return None
        return records.load_unstarted_calls(tx, self.conversation, self.lease.root, turn)

    def _end_superseded(self, tx: Transaction, turn: TurnRecord) -> list[AnyEvent]:
        why = "the conversation was continued from an earlier message"
        return turn_controls.end_waiting_turn(tx, self.conversation, self.lease.root, turn, SUPERSEDED, why)

    def _queue_input(
        self, tx: Transaction, input: Sequence[Message], entries: Sequence[append_and_load.PendingMessage]
    ) -> list[AnyEvent]:
        """Queue the input of a turn that cannot be opened, because another one waits. Return the events.

        `entries` are the same messages after their validation, without the bytes of media.
        """
        root = self.lease.root
        last = records.load_last_number(tx, "event", root)
        for message, entry in zip(input, entries, strict=True):
            append_and_load.check_blobs(tx, self.conversation, entry.admitted.blobs)
            records.enqueue_message(tx, root, self.agent, "follow-up", message)
        return records.load_events(tx, root, last, None)

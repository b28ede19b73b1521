"""Turns of a server that submits them to workers instead of running them. Everything is in the store.

Any number of servers on one store behave alike: each follows, cancels and answers the turns of all workers. A client
that disconnects does not end its turn, because it may go on with another server.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from contextc._worker_threads import run_blocking
from contextc.errors import UnknownConversation
from contextc.events import AnyEvent, ErrorOccurred, InputDequeued, TurnFinish, TurnInterrupted, TurnStart, TurnWaiting
from contextc.executor.agent_config import TurnInput, input_message, input_messages
from contextc.executor.event_hub import event_hub, watch_batches
from contextc.messages import validate_message
from contextc.store import Store, TurnRequest, turn_queue
from contextc.store import turn_records as records
from contextc.store.message_log import check_name, check_new_name, find_tip, load_tip, prepare_entry
from contextc.store.submitted_turns import PARKED, submit_messages, submit_unanswered, take_submitted
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import QueuedMessage, QueueKind, TurnRecord, load_events_of_types
from contextc.web.http_errors import HTTPError
from contextc.web.turn_manager import NOTHING_TO_ANSWER, WHO, ExecutorFactory, RunningTurn, TurnManager
from contextc.worker import create_queue_tables

CONTINUES = ("running", "waiting", "queued", "interrupted")
"""States of a turn that a worker runs, or will continue."""
MAX_STARTS = 50
"""Number of last turn starts of all agents among which that of a turn is searched."""


class QueuedTurn:
    """A turn that a worker runs or will run: a stored one by its number, or the one that certain input will open."""

    def __init__(
        self, store: Store, conversation: str, agent: str, *, turn: int = 0, seq: int = 0, queued: int = 0
    ) -> None:
        self._store, self.conversation, self._agent = store, conversation, agent
        self._turn, self._seq, self._queued = turn, seq, queued
        self.done = False
        """True if the end of the turn was read."""

    def cancel(self) -> None:
        """Do nothing: a client that leaves does not end a turn of a worker."""

    async def wait(self) -> None:
        """Wait until the turn ends, or waits for approval."""
        async with aclosing(self.batches()) as found:
            async for _ in found:
                pass

    async def batches(
        self, *, after: int | None = None, pulse: float | None = None
    ) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """Yield the events of the turn after an event number, to its end or to a pending approval.

        A turn whose worker died continues, so its interruption is not an end.
        """
        start: list[AnyEvent] = []
        found = watch_batches(self._store, self.conversation, after or 0, heartbeat=pulse)
        async with aclosing(found):
            async for events in found:
                own: list[AnyEvent] = []
                for event in events:
                    if event.agent != self._agent:
                        continue
                    if is_parking(event):  # no turn ends
                        own.append(event)
                    elif not self._turn:
                        start = [event] if isinstance(event, TurnStart) else [*start, event]
                        if self._opens(event, start):
                            self._turn = start[0].turn
                            own += start
                    elif event.turn == self._turn and not isinstance(event, TurnInterrupted):
                        own.append(event)
                if own or not events:
                    yield own
                if any(is_end(event) for event in own):
                    self.done = True
                    return

    def _opens(self, event: AnyEvent, since_start: Sequence[AnyEvent]) -> bool:
        """Return True if an event says that the last started turn is this one."""
        if not isinstance(since_start[0], TurnStart):
            return False
        if self._queued:
            return isinstance(event, InputDequeued) and event.queued == self._queued
        return isinstance(event, TurnStart) and event.seq == self._seq


def is_parking(event: AnyEvent) -> bool:
    """Return True if an event says that work of this agent was parked, because no worker has the agent."""
    return isinstance(event, ErrorOccurred) and not event.turn and event.error.startswith(PARKED)


def is_end(event: AnyEvent) -> bool:
    return isinstance(event, TurnFinish | TurnWaiting) or is_parking(event)


class QueuedTurnManager(TurnManager):
    """Submits, follows and cancels the turns that workers run."""

    def __init__(
        self, store: Store, make: ExecutorFactory, *, agent: str, model: str | None, root: Path, queue: str
    ) -> None:
        super().__init__(store, make, agent=agent, model=model, root=root)
        create_queue_tables(store)
        self._queue = queue

    async def start(
        self,
        conversation: str,
        input: TurnInput = None,
        *,
        model: str | None = None,
        resume: bool = False,
        attended: bool = False,
    ) -> RunningTurn:
        """Submit input, or what is left to answer. The model is that of the workers' agent."""
        found = await run_blocking(self._submit, conversation, input, resume)
        event_hub(self.store).note_change(conversation)
        return found

    def _submit(self, conversation: str, input: TurnInput, resume: bool) -> RunningTurn:
        check_name(conversation)
        check_new_name(conversation)
        given = input_messages(input, self.agent)
        entries = [prepare_entry(validate_message(each)) for each in given]
        if entries:
            done = self.store.write(
                lambda tx: submit_messages(tx, conversation, given, entries, agent=self.agent, queue=self._queue),
            )
            turn = QueuedTurn(self.store, conversation, self.agent, seq=done.seq, queued=done.queued)
            return RunningTurn(turn, done.after)
        going = self._find_turn(conversation)
        if going is not None and (resume or going.state != "interrupted"):
            self.store.write(
                lambda tx: turn_queue.submit_work(
                    tx, conversation, load_tip(tx, conversation).conversation, self.agent, self._queue
                )
            )
            return self._follow(conversation, going)
        done = self.store.write(lambda tx: submit_unanswered(tx, conversation, agent=self.agent, queue=self._queue))
        if done is None:
            raise HTTPError(409, NOTHING_TO_ANSWER, "NothingNew")
        turn = QueuedTurn(self.store, conversation, self.agent, seq=done.seq, queued=done.queued)
        return RunningTurn(turn, done.after)

    async def find_running(self, conversation: str) -> RunningTurn | None:
        """Return the turn that a worker runs or will continue, if any."""

        def work() -> RunningTurn | None:
            turn = self._find_turn(conversation)
            return self._follow(conversation, turn) if turn is not None and turn.state != "waiting" else None

        return await run_blocking(work)

    async def check_model(self, conversation: str, model: str | None) -> None:
        """Do nothing: the workers have the models."""

    async def resume_answered(self, conversation: str, *, attended: bool = False) -> RunningTurn | None:
        """Return the turn that continues, because all its approvals are answered. The last answer has submitted it."""

        def work() -> RunningTurn | None:
            turn = self._find_turn(conversation)
            if turn is None or any(each.agent == self.agent for each in self.store.approvals(conversation)):
                return None
            return self._follow(conversation, turn)

        return await run_blocking(work)

    async def resume_abandoned(self) -> None:
        """Do nothing: an answer is stored together with the job that continues the turn."""

    async def cancel_anywhere(self, conversation: str, agent: str) -> TurnRequest:
        """Cancel a turn of a worker, or take submitted input back that no worker has begun to answer."""
        request = await super().cancel_anywhere(conversation, agent)
        if not request.turn and await run_blocking(self._take_back, conversation, agent):
            return TurnRequest(conversation=conversation, agent=agent, kind="cancel", who=WHO, taken=1)
        return request

    def _take_back(self, conversation: str, agent: str) -> bool:
        def work(tx: Transaction) -> bool:
            here, taken = load_tip(tx, conversation, lock=True), take_submitted(tx, conversation, agent)
            parked = turn_queue.load_worker_turn(tx, here.conversation, agent)
            if parked is not None and parked.parked:
                turn_queue.unpark(tx, here.conversation, agent)
                return True
            return bool(taken)

        return self.store.write(work)

    async def queue_input(self, conversation: str, text: str, kind: QueueKind) -> QueuedMessage:
        """Queue input together with a job, which matters if no turn is running. Raises `UnknownConversation`."""
        message = input_message(text, self.agent)

        def work(tx: Transaction) -> QueuedMessage:
            number = load_tip(tx, conversation, lock=True).conversation
            queued = records.enqueue_message(tx, number, self.agent, kind, message)
            turn_queue.submit_work(tx, conversation, number, self.agent, self._queue)
            return queued

        queued = await run_blocking(lambda: self.store.write(work))
        event_hub(self.store).note_change(conversation)
        return queued

    def _find_turn(self, conversation: str) -> TurnRecord | None:
        """Return the last turn of this agent if it goes on. Blocking: reads the store."""

        def work(tx: Transaction) -> TurnRecord | None:
            here = find_tip(tx, conversation, False)
            turn = records.load_last_turn(tx, here.conversation, self.agent) if here is not None else None
            if turn is None or turn.state not in CONTINUES or here is None:
                return None
            is_ours = turn_queue.load_worker_turn(tx, here.conversation, self.agent) is not None
            return turn if is_ours or turn.state != "interrupted" else None

        return self.store.read(work)

    def _follow(self, conversation: str, turn: TurnRecord) -> RunningTurn:
        """Return a turn to follow from its start, or from its last pause. Blocking: reads the store."""

        def work(tx: Transaction) -> int:
            number, kinds = load_tip(tx, conversation).conversation, [TurnStart, TurnWaiting]
            found = [each.event for each in load_events_of_types(tx, number, kinds, limit=MAX_STARTS)]
            last = next((each for each in reversed(found) if each.turn == turn.number), None)
            return 0 if last is None else last.number - isinstance(last, TurnStart)

        try:
            after = self.store.read(work)
        except UnknownConversation:
            after = 0
        return RunningTurn(QueuedTurn(self.store, conversation, self.agent, turn=turn.number), after)

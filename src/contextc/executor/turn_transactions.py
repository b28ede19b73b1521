"""The common parts of all writes of a turn: the check of its lease, its events, and the messages that it appends.

Events are published to watchers after their transaction was committed, never before. A request to end the turn is read
with the check of its lease.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import TypeVar

from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc._worker_threads import defer
from contextc.errors import ConversationBusy
from contextc.events import AnyEvent, InputDequeued
from contextc.executor.client_tools import read_definitions
from contextc.executor.event_hub import event_hub
from contextc.messages import AnyPart, Message, Text, find_open_calls, validate_message
from contextc.store import Lease, Store, append_and_load, branches, leases
from contextc.store import turn_and_event_records as records
from contextc.store.append_and_load import load_between, now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import agent_of, run_name
from contextc.store.message_rows import load_base_seq, load_tip
from contextc.store.turn_and_event_records import QueuedMessage, StepRecord, TurnRecord
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.tools.spec import Tool

log = get_logger("contextc.executor")
T = TypeVar("T")
GOING_STATES = ("running", *PROCESS_LESS_STATES)
MAX_TURNS_SEARCHED = 100
INTERRUPTED_RESULT = (
    "Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; it was not "
    "run again."
)


class TurnTransactions:
    """The state of one turn under one lease, and the parts of its transactions.

    Methods are called one after the other, from any thread.
    """

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
        self.author = agent_of(agent)
        """The agent that writes. `agent` also names the run if it has turns of its own, beside those of its agent."""
        self.opening_author: str | None = None
        """The author of the message that opened the turn, if the turn answers that author."""
        self.reply_to: tuple[str, ...] = ()
        """The agent that asked for the turn's reply."""
        self.client_tools: tuple[Tool, ...] = ()
        """The tools that the client of the turn runs itself."""
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
        self.end_request = ""
        """The kind of the request to end this turn, or an empty string."""
        self.has_approvals = False
        """True if the turn may have stored approvals."""

    def append_events(self, *events: AnyEvent, step: int | None = None) -> None:
        """Store and publish events in a transaction of their own."""
        self._write(lambda tx: (None, events), step=step)

    # ── within a transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, work: Callable[[Transaction], tuple[T, Sequence[AnyEvent]]], *, step: int | None = None) -> T:
        """Run work under the lease, store the events that it returns, and publish them after the commit."""

        def checked(tx: Transaction) -> tuple[T, list[AnyEvent], str]:
            *_, request = leases.check_lease_and_request(tx, self.lease, self.conversation)
            value, events = work(tx)
            return value, self._append(tx, events, step=step), request

        value, told, request = self.store.write(checked)
        self._publish(told)
        self._report_request(request)
        return value

    def _report_request(self, kind: str) -> None:
        """Pass on a request to end this turn."""
        if kind:
            self.store.report_end_request(self.lease, kind)

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
        if self.run is not None and message.role in ("assistant", "tool") and message.author == self.author:
            message = replace(message, run=message.run or self.run)
        return append_and_load.prepare_entry(validate_message(message))

    def _result_entry(self, *parts: AnyPart) -> append_and_load.PendingMessage:
        step = self.step.index if self.step is not None else None
        return self._entry(Message(role="tool", parts=parts, author=self.author, turn=self.turn.number, step=step))

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

    def _take_steering(self, tx: Transaction, *, only_text: bool = False) -> list[AnyEvent]:
        """Move queued steering input into the conversation, with `only_text` up to the first that has other parts."""
        waiting = [each for each in records.load_queue(tx, self.lease.root, self.agent) if each.kind == "steer"]
        if only_text:
            waiting = [*takewhile(lambda each: all(type(part) is Text for part in each.message.parts), waiting)]
        return self._take_queued(tx, waiting)[1]

    def _is_turn_on_branch(self, tx: Transaction, turn: TurnRecord, branch: int | None = None) -> bool:
        """Return True if the message that opened a turn is on a branch, by default on the current one."""
        branch = load_tip(tx, self.conversation).branch if branch is None else branch
        opening = records.find_opening_message(tx, branch, turn)
        if opening is not None:
            self._set_sender(tx, opening)
        return opening is not None

    def _set_sender(self, tx: Transaction, opening: Message) -> None:
        """Set the sender to the author of the opening message, if the turn answers that message, and its tools.

        Another agent that asks gets the reply. The reply of an agent that this one has asked is not answered: otherwise
        two agents would reply to each other without end.
        """
        self.client_tools = read_definitions(opening)
        is_asked = opening.is_addressed_to(self.author) and not self._is_reply(tx, opening)
        self.opening_author = opening.author if opening.role == "user" or is_asked else None
        self.reply_to = (opening.author,) if is_asked and opening.author is not None else ()

    def _is_reply(self, tx: Transaction, message: Message) -> bool:
        """Return True if another agent wrote a message in a turn that a message of this agent opened."""
        if not message.turn:
            return False
        turn = records.load_turns_by_number(tx, self.lease.root, [message.turn]).get(message.turn)
        here = load_tip(tx, self.conversation)
        asked = records.find_opening_message(tx, here.branch, turn) if turn is not None else None
        return asked is not None and asked.author == self.author

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
            if message.author == self.author and message.turn == turn.number:
                text = (INTERRUPTED_RESULT if call.id in self.running_calls else NOT_RUN_RESULT).format(why=why)
                entries.append(self._entry(leases.error_result(message, call, text)))
        return append_and_load.append_messages(tx, self.conversation, entries) if entries else []

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_run(self, tx: Transaction) -> None:
        """Raise `ConversationBusy` if this run has a turn already, under the other one of its two names."""
        if self.run is None:
            return
        other = run_name(self.author, self.run) if self.agent == self.author else self.author
        last = records.load_last_turn(tx, self.lease.root, other)
        if last is not None and last.state == "running" and last.run == self.run:
            number, _, left = leases.load_lease(tx, self.conversation, other)
            raise ConversationBusy(self.conversation, other, number=number, seconds=max(0.0, left))

    def load_running(self) -> frozenset[str] | None:
        """Return the other runs of this agent that are still going; None if this turn belongs to no run.

        For the first request, these are also runs that have ended since the turn was opened: what they wrote must not
        follow the message that this turn answers.
        """
        if self.run is None:
            return None

        def work(tx: Transaction) -> list[str | None]:
            turns = records.load_turns(tx, self.lease.root, last=MAX_TURNS_SEARCHED)
            going = [turn for turn in turns if turn.state in GOING_STATES and agent_of(turn.agent) == self.author]
            here = load_tip(tx, self.conversation)
            later = load_between(tx, here.branch, self.turn.opened, here.seq) if not self.turn.steps else ()
            return [turn.run for turn in going] + [each.run for each in later if each.author == self.author]

        return frozenset(run for run in self.store.read(work) if run is not None and run != self.run)

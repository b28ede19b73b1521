"""The record of a turn in the store: everything that a turn reads and writes, under its lease.

Each method is one transaction, after which the turn can be resumed from the store alone. Events are published to
watchers after their transaction was committed, never before. The transaction that ends a turn answers its open calls,
then opens the next turn with queued input, or releases the lease.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial, reduce
from itertools import takewhile
from secrets import token_hex
from time import monotonic, time
from typing import NamedTuple, TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc._worker_threads import defer
from contextc.compiler import Compiled
from contextc.compiler.compaction import CompactionResult, compaction_event, use_summary_in
from contextc.errors import ConversationBusy, StaleCompile, TurnWaits, UnknownMessage
from contextc.events import (
    AgentCallStart,
    AnyEvent,
    ApprovalRequest,
    ErrorOccurred,
    InputDequeued,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    ToolProgress,
    ToolStart,
    TriggerFailed,
    TurnStart,
    TurnWaiting,
    UsageReport,
    UserNoticeCreated,
)
from contextc.executor.agent_config import read_definitions
from contextc.executor.event_hub import event_hub
from contextc.executor.limits import Limits
from contextc.messages import (
    AnyPart,
    Message,
    Text,
    ToolCall,
    Usage,
    UserNotice,
    add_usage,
    find_open_calls,
    validate_message,
)
from contextc.messages import ToolResult as ResultPart
from contextc.models import Bill, Model, add_bills, bill
from contextc.store import (
    Always,
    Approval,
    Lease,
    Store,
    agent_calls,
    approvals,
    branches,
    leases,
    message_log,
    turn_controls,
    turn_records,
)
from contextc.store import turn_records as records
from contextc.store.agent_calls import AgentCall
from contextc.store.conversation_list import set_directory
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import (
    SEQ_MASK,
    agent_of,
    find_tip,
    load_base_seq,
    load_between,
    load_tip,
    now_ms,
    run_name,
)
from contextc.store.store import engine_of, leases_of
from contextc.store.submitted_turns import take_submitted
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_controls import AGENT_ENDED_RESULT, NOT_RUN_RESULT, QUESTION_ENDED_RESULT
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.store.turn_records import (
    Piece,
    QueuedMessage,
    StepRecord,
    TurnRecord,
    UnstartedCalls,
    delta_events,
    result_event,
)
from contextc.tools.definitions import Tool
from contextc.tools.todos import Todo
from contextc.triggers import Evaluation, ResourceUsage, Trigger, TriggerContext, TriggerMessage, TriggerTime

# ── the result ────────────────────────────────────────────────────────────────────────────────────────────────────────
# The result of a turn.


class TurnResult(Struct, frozen=True, kw_only=True):
    """The result of a turn. `finish` is `stop`, `cancelled`, `error`, a limit, or a trigger's or the model's reason.

    `message` is the last reply. `error` is the exception that ended the turn, if any.
    """

    turn: int
    finish: str
    steps: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    cost_is_lower_bound: bool = False
    """True if the turn cost at least `cost`, because a factor of a price is unknown."""
    message: Message | None = None
    error: Exception | None = None
    model: str = ""
    """The model that was called last."""
    agent: str = ""
    """The agent that answered last: another one after a handoff."""
    request: tuple[Channel, int] | None = None
    """The channel and the number of the last request that this turn sent and that was answered."""

    @property
    def text(self) -> str:
        """The text of the final answer; empty if there is none."""
        return self.message.text if self.message is not None else ""


# ── usage and limits so far ───────────────────────────────────────────────────────────────────────────────────────────
# The running totals of a turn, for triggers and limits. All of them can be restored from the store.


def _add_bill(before: Bill | None, more: Bill | None) -> Bill | None:
    """Return the sum; None if one of both is unknown, because a limit of the cost cannot rely on a part."""
    return add_bills([before, more]) if before is not None and more is not None else None


KEPT_STEPS = 16


class TurnState:
    """Usage, cost and last messages of one turn."""

    def __init__(
        self, turn: TurnRecord, budget: int | None, resources: Callable[[], ResourceUsage], deps: object = None
    ) -> None:
        self._began = monotonic() - (time() - turn.started / 1000 if turn.started else 0.0)
        self.last_messages: list[Message] = []
        self.reply: Message | None = None
        self.usage = turn.usage or Usage()
        self.bill: Bill | None = Bill(turn.cost or 0.0, turn.cost_is_lower_bound)
        self.budget = budget
        self._resources, self._deps = resources, deps
        self.last_request: tuple[Channel, int] | None = None
        self.truncated_replies = 0
        """Number of replies in a row that reached the output limit."""

    def restore(self, store: Store, conversation: str, turn: TurnRecord) -> None:
        """Load the last steps of a turn that is resumed after an interruption."""
        written = store.load(conversation, after=max(0, turn.opened))
        own = [message for message in written if message.turn == turn.number and message.role in ("assistant", "tool")]
        self.add_messages(own)
        self.reply = next((message for message in reversed(own) if message.role == "assistant"), None)

    def add_usage(self, usage: Usage, model: Model) -> None:
        """Add the usage of a call that is not a step, such as a summary."""
        self.bill = _add_bill(self.bill, bill(model, usage))
        self.usage = add_usage(self.usage, usage)

    @property
    def cost(self) -> float | None:
        """The cost so far in dollars; None if a price is unknown."""
        return self.bill.dollars if self.bill is not None else None

    def add_called_turn(self, turn: TurnRecord, called: TurnRecord) -> TurnRecord:
        """Add what an agent has used that the turn has called. Return the record of the turn."""
        turn = agent_calls.add_called_turn(self.stored_in(turn), called)
        self.usage = turn.usage or Usage()
        self.bill = Bill(turn.cost, turn.cost_is_lower_bound) if turn.cost is not None else None
        return turn

    def stored_in(self, turn: TurnRecord) -> TurnRecord:
        """Return the record of a turn with these totals."""
        is_lower_bound = self.bill is not None and self.bill.is_lower_bound
        return replace(turn, usage=self.usage, cost=self.cost, cost_is_lower_bound=is_lower_bound)

    def totals_with(self, messages: Sequence[Message], model: Model) -> tuple[Usage, Bill | None]:
        """Return the turn's usage and cost with one more reply, which may be several messages."""
        usage, spent = self.usage, self.bill
        for message in messages:
            if message.usage is not None:
                usage, spent = add_usage(usage, message.usage), _add_bill(spent, bill(model, message.usage))
        return usage, spent

    def add_reply(self, messages: Sequence[Message], model: Model) -> None:
        """Add the usage and the messages of one reply."""
        self.usage, self.bill = self.totals_with(messages, model)
        self.reply = next((message for message in reversed(messages) if message.role == "assistant"), self.reply)
        self.add_messages(messages)

    def add_messages(self, messages: Sequence[Message]) -> None:
        self.last_messages += messages
        replies = [index for index, message in enumerate(self.last_messages) if message.role == "assistant"]
        if len(replies) > KEPT_STEPS:
            del self.last_messages[: replies[-KEPT_STEPS]]

    def replace_message(self, message: Message, stored: Message) -> None:
        """Replace a message by what is stored of it."""
        self.last_messages = [stored if each is message else each for each in self.last_messages]

    @property
    def finish(self) -> str | None:
        return self.reply.finish if self.reply is not None else None

    def trigger_context(
        self,
        when: TriggerTime,
        compiled: Compiled,
        turn: TurnRecord,
        limits: Limits,
        *,
        step: int,
        todos: Sequence[Todo],
        more: int = 0,
        results: Sequence[Message] = (),
        after_cut: bool = False,
    ) -> TriggerContext:
        """Return the context that triggers are evaluated with.

        `more` is the tokens added after compiling, `results` the tool results of the current step. With `after_cut` the
        usage is that of the trimmed request, otherwise that before trimming.
        """
        budget = compiled.budget
        used = (budget.used if after_cut else budget.wanted or budget.used) + more
        return TriggerContext(
            when=when,
            conversation=compiled.channel.conversation,
            agent=compiled.channel.author,
            turn=turn.number,
            step=step,
            used=used,
            available=budget.available,
            share=used / budget.available if budget.available else 1.0,
            steps=turn.steps + turn.agent_steps,
            tool_calls=turn.tool_calls + turn.agent_tool_calls,
            cost=self.cost,
            seconds=monotonic() - self._began,
            last=(*self.last_messages, *results),
            finish=self.finish,
            now=time(),
            step_limit=limits.steps,
            tool_call_limit=limits.tool_calls,
            cost_limit=limits.cost,
            seconds_limit=limits.seconds,
            todos=tuple(todos),
            resources=cache(self._resources),
            deps=self._deps,
        )


def total_usage(messages: Sequence[Message]) -> Usage | None:
    """Return the usage of a reply, which may be several messages; None if the provider reported none."""
    found = [message.usage for message in messages if message.usage is not None]
    return found[0] if len(found) == 1 else reduce(add_usage, found, Usage()) if found else None


log = get_logger("contextc.executor")
T = TypeVar("T")
GOING_STATES = ("running", *PROCESS_LESS_STATES)
MAX_TURNS_SEARCHED = 100
INTERRUPTED_RESULT = (
    "Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; it was not "
    "run again."
)
SUPERSEDED = "superseded"
CANCELLED_REASON, FAILED_REASON, INTERRUPTED_REASON = "it was cancelled", "an error", "it was interrupted"
LATE_USAGE_STATE = "contextc.summary_usage"
"""Name of the state with the usage of summaries that were finished while another process ran their turn."""


# ── input that waits ──────────────────────────────────────────────────────────────────────────────────────────────────
# Input is stored before it waits for the end of another turn, so that it is not lost if its process dies. Its caller
# opens the turn itself, with its own dependencies. If it has died, a turn without input takes what it left.


class GivenInput(Struct):
    """The input of a turn. `key` identifies it, and `queued` are its numbers in the queue while it waits."""

    messages: list[Message]
    key: str | None = None
    queued: tuple[int, ...] = ()


def store_waiting_input(store: Store, conversation: str, agent: str, given: GivenInput) -> None:
    """Queue input whose caller waits. Input with a key is queued once."""
    given.messages = [replace(each, uid=each.uid or f"waiting-{token_hex(8)}") for each in given.messages]
    entries = [message_log.prepare_entry(validate_message(message)) for message in given.messages]

    def work(tx: Transaction) -> list[int]:
        here = find_tip(tx, conversation, True) or message_log.insert_conversation(tx, conversation)
        for entry in entries:
            message_log.check_blobs(tx, conversation, entry.admitted.blobs)
        if given.key is not None:
            if known := records.find_queued_by_key(tx, here.conversation, conversation, given.key, entries[0].digest):
                return [known]
            if message_log.find_by_key(tx, conversation, given.key, entries[0]) is not None:
                return []
        queue = partial(records.enqueue_message, tx, here.conversation, agent, "waiting", key=given.key)
        both = zip(given.messages, entries, strict=True)
        return [queue(message, digest=entry.digest).number for message, entry in both]

    given.queued = tuple(store.write(work))
    event_hub(store).refresh(conversation)


def withdraw_waiting_input(store: Store, conversation: str, agent: str, given: GivenInput) -> None:
    """Remove input from the queue: its caller no longer waits."""

    def work(tx: Transaction) -> None:
        here = load_tip(tx, conversation, lock=True)
        for number in given.queued:
            if records.dequeue(tx, number):
                records.take_queue_key(tx, here.conversation, number)
                gone = InputDequeued(time=now_ms(), agent=agent, queued=number, seq=0, uid="")
                records.append_events(tx, here.conversation, [gone])

    store.write(work, repeatable=True)
    event_hub(store).refresh(conversation)


class OpenedTurn(NamedTuple):
    """A turn that was opened, if any, and the one before it."""

    previous: TurnRecord | None
    turn: TurnRecord | None = None
    before: Sequence[AnyEvent] = ()
    """Events before those of the turn."""
    events: Sequence[AnyEvent] = ()
    states: Mapping[str, JSONObject] = {}
    """The states of triggers."""
    waiting: TurnRecord | None = None
    """The turn because of which input was queued instead."""
    answered: TurnRecord | None = None
    """The turn that has answered this input before."""
    is_withdrawn: bool = False
    """True if the input was removed from the queue while it waited."""


class ClosedTurn(NamedTuple):
    """A turn that has ended, and the one that queued input has opened, if any."""

    ended: TurnRecord
    following: TurnRecord | None
    events: Sequence[AnyEvent] = ()


class HeldResult(NamedTuple):
    """The last result of a step. It is stored with the next write of its turn: if it can, with the next request."""

    message: Message
    call_id: str
    milliseconds: int
    evaluate: Callable[[], Evaluation]
    """Evaluates the `mid_step` triggers."""
    entry: message_log.PendingMessage | None = None
    """The message as it is stored, once the triggers were evaluated."""
    hints: Sequence[tuple[Trigger, TriggerMessage]] = ()
    states: Mapping[str, JSONObject] = {}


class RunningRuns(NamedTuple):
    """The runs of an agent that are still going, and the number of the last message when they were loaded."""

    names: frozenset[str]
    seq: int


class TurnStore:
    """The stored record of one turn under one lease. Methods are called one after the other, from any thread.

    Only `append_progress` may run beside another one.
    """

    lease: Lease
    """Given, or taken in the transaction that opens the turn."""
    waiting: TurnRecord | None = None
    """The turn that waits for approval, because of which the input was queued."""
    answered: TurnResult | None = None
    """The result of the turn that has answered the same input before, by its key."""
    is_withdrawn = False
    """True if the input was removed from the queue while it waited."""
    _compacted: Sequence[AnyEvent] = ()
    _is_resumed = False
    _has_partial_reply = False
    """True if a part of a reply was stored with an error. Its calls have no results."""

    def __init__(
        self,
        store: Store,
        conversation: str,
        agent: str,
        lease: Lease | None = None,
        *,
        run: str | None = None,
        channel: str = "",
        channel_triggers: Collection[str] = (),
        directory: str = "",
    ) -> None:
        self.store, self.conversation, self.agent, self.run = store, conversation, agent, run
        self._directory = directory
        """The working directory of the agent: the conversation comes from there, unless another one is known."""
        if lease is not None:
            self.lease = lease
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
        self.read_todos: list[Todo] | None = None
        """The todos, while a step is prepared: no tool changes them."""
        """The kind of the request to end this turn, or an empty string."""
        self.has_approvals = False
        """True if the turn may have stored approvals."""
        self.held: HeldResult | None = None
        """A result that is not stored yet."""
        self.has_called_agents = False
        """True if the turn may have called agents as tools."""
        self.counted_agents: set[int] = set()
        """The conversations of called agents of which the record of the turn has what they have used."""

    # ── begin and end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, given: GivenInput, *, resume: bool, ask_again: bool = False, only_submitted: bool = False) -> None:
        """Open a turn under a lease that is held."""
        work, opened = self.opening(given, resume=resume, ask_again=ask_again, only_submitted=only_submitted)
        opened(self.store.write(lambda tx: work(tx, self.lease)))

    def opening(
        self, given: GivenInput, *, resume: bool, ask_again: bool = False, only_submitted: bool = False
    ) -> tuple[Callable[[Transaction, Lease], OpenedTurn], Callable[[OpenedTurn], None]]:
        """Return the write that opens a turn under a lease, and a callback for after the commit.

        It opens a turn with the given or queued input, or resumes an interrupted or a waiting one.
        If there is nothing to do, the turn number stays 0. If a turn waits for approval, input is queued, and `waiting`
        is that turn. If the input was answered before, `answered` is that turn. With `ask_again`, a callback answers
        its pending approvals. With `only_submitted`, an unanswered message opens a turn only if it was submitted: a
        turn that failed or was cancelled is not repeated.
        """
        entries = [self._entry(message) for message in given.messages]
        owners = self.agent, self.channel if self._channel_triggers else self.agent

        def work(tx: Transaction, lease: Lease) -> OpenedTurn:
            self.lease, root = lease, lease.root
            records.prefetch_opening(tx, root, *owners)
            leases.check_lease(tx, lease, self.conversation)
            self._check_run(tx)
            previous, before = records.load_last_turn(tx, root, self.agent), list[AnyEvent]()
            known = self._find_known_input(tx, given, entries)
            known_turn = None if known is None else self._find_turn_of(tx, known)
            going = previous is not None and previous.state in PROCESS_LESS_STATES
            if going and known is not None and known_turn is None:  # the turn that waits will see it
                return OpenedTurn(previous, waiting=previous)
            if previous is not None and previous.state == "waiting":
                if self._load_unstarted(tx, previous) is None:  # rewound or edited meanwhile
                    before += self._end_superseded(tx, previous)
                    previous = records.load_last_turn(tx, root, self.agent)
                elif entries and known is None:
                    return OpenedTurn(previous, events=self._queue_input(tx, given, entries), waiting=previous)
                elif not entries or known_turn == previous:
                    self._check_answers(tx, previous, ask_again)
            elif previous is not None and previous.state == "queued":
                if not self._is_turn_on_branch(tx, previous):
                    before += self._end_superseded(tx, previous)
                    previous = records.load_last_turn(tx, root, self.agent)
                elif entries and known is None:
                    return OpenedTurn(previous, events=self._queue_input(tx, given, entries), waiting=previous)
            states = records.load_trigger_states(tx, root, *owners)
            interrupted = previous if previous is not None and previous.state == "interrupted" else None
            continued = previous if previous is not None and previous.state in PROCESS_LESS_STATES else interrupted
            resumes = resume or (continued is not None and continued.state in PROCESS_LESS_STATES)
            if known_turn is not None:
                resumes = continued is not None and continued.number == known_turn.number
            if resumes and continued is not None and self._is_turn_on_branch(tx, continued):
                if ask_again:
                    approvals.withdraw(tx, root, continued.number, keeps_questions=True)
                turn = replace(continued, state="running", ended=0)
                previous = records.load_last_turn(tx, root, self.agent, before=turn.number)
                records.save_turn(tx, root, turn)
                resumed = self._append(tx, [TurnStart(seq=turn.opened, resumed=True)], turn)
                return OpenedTurn(previous, turn, before, resumed, states)
            is_unanswered = known is not None and (
                known_turn is None or branches.find_unanswered(tx, self.conversation, self.author) == known.seq
            )
            if known_turn is not None and not is_unanswered:
                return OpenedTurn(previous, before=before, states=states, answered=known_turn)
            if interrupted is not None:  # not resumed: its open calls are answered
                asking = approvals.load_asking(tx, root, interrupted.number)
                approvals.withdraw(tx, root, interrupted.number)
                interrupted, called = turn_controls.end_called_agents(tx, root, interrupted, INTERRUPTED_REASON)
                if called:
                    records.save_turn(tx, root, interrupted)
                for message in self._answer_open_calls(tx, INTERRUPTED_REASON, interrupted, called, asking):
                    before += self._append(tx, [result_event(message, 0)], interrupted, step=message.step or 0)
            waiting = records.load_queue(tx, root, self.agent)
            own = [each for each in waiting if each.number in self._find_queued(tx, given, entries)]
            if known is not None:
                opened, taken = known, list[AnyEvent]()
            elif given.queued and not own and given.key is None:
                return OpenedTurn(previous, before=before, states=states, is_withdrawn=True)
            elif entries:  # input queued to steer an earlier turn comes before this input
                steering = [each for each in waiting if each.kind == "steer"]
                opened, taken = self._take_queued(tx, [*steering, *own])
                if not own:
                    self._branch = load_tip(tx, self.conversation).branch
                    opened = message_log.append_messages(tx, self.conversation, entries, key=given.key)[-1]
            elif only_submitted and (submitted := take_submitted(tx, self.conversation, self.agent)):
                opened, taken = submitted, list[AnyEvent]()
            elif waiting:
                opened, taken = self._take_queued(tx, waiting[:1])
            elif not only_submitted and (unanswered := branches.find_unanswered(tx, self.conversation, self.author)):
                opened, taken = unanswered, list[AnyEvent]()
            else:
                return OpenedTurn(previous, before=before, states=states)
            turn = self._open_turn(tx, opened)
            started = self._append(tx, [TurnStart(seq=turn.opened), *taken], turn)
            return OpenedTurn(previous, turn, before, started, states)

        def opened(done: OpenedTurn) -> None:
            self.previous_turn, self.waiting, self.is_withdrawn = done.previous, done.waiting, done.is_withdrawn
            self.trigger_states = {**done.states}
            self.answered = None if done.answered is None else self._load_result(done.answered)
            if done.events:
                self.first_event = done.events[0].number
            if done.turn is not None:
                self.turn, self.has_approvals = done.turn, bool(done.turn.steps)
                self.has_called_agents = self.has_approvals
                self._is_resumed = any(isinstance(event, TurnStart) and event.resumed for event in done.events)
            self._publish([*done.before, *done.events])

        return work, opened

    def _find_known_input(
        self, tx: Transaction, given: GivenInput, entries: Sequence[message_log.PendingMessage]
    ) -> Message | None:
        """Return the message of this input if it is in the conversation already: by its key, or by its own id."""
        if given.key is not None:
            return message_log.find_by_key(tx, self.conversation, given.key, entries[0])
        if not given.queued:
            return None
        with suppress(UnknownMessage):
            here = load_tip(tx, self.conversation)
            found = message_log.find_message(tx, self.conversation, here, given.messages[-1].uid)
            return message_log.load_between(tx, found.branch, found.seq - 1, found.seq)[0]
        return None

    def _find_queued(
        self, tx: Transaction, given: GivenInput, entries: Sequence[message_log.PendingMessage]
    ) -> Collection[int]:
        """Return the numbers of this input in the queue. A caller with the same key may have left it there."""
        if given.key is None or given.queued:
            return given.queued
        return (records.find_queued_by_key(tx, self.lease.root, self.conversation, given.key, entries[0].digest),)

    def _find_turn_of(self, tx: Transaction, opening: Message) -> TurnRecord | None:
        """Return the last turn of this agent that a message has opened."""
        for last in (MAX_TURNS_SEARCHED, None):
            turns = records.load_turns(tx, self.lease.root, last=last)
            for turn in reversed(turns):
                if turn.opening == opening.uid and turn.agent == self.agent:
                    return turn
            if len(turns) < MAX_TURNS_SEARCHED:
                break
        return None

    def close(self, finish: str, *, failed: ErrorOccurred | None = None, why: str = CANCELLED_REASON) -> bool:
        """End the turn: answer open calls, with `why` as the reason, and release the lease.

        `failed` is the error that ended it. Return True if queued input has opened the next turn. The lease is then
        kept.
        """

        self.prepare_held()

        def work(tx: Transaction) -> ClosedTurn:
            if tx.is_retry and (done := self._find_closed(tx)) is not None:
                return done
            return self._close(tx, self.turn, finish, why, failed=failed)

        return self._note_closed(self.store.write(work, repeatable=True))

    def _find_closed(self, tx: Transaction) -> ClosedTurn | None:
        """Return the end of this turn if an earlier try has stored it."""
        root = self.lease.root
        done = records.load_turns_by_number(tx, root, [self.turn.number]).get(self.turn.number)
        if done is None or done.state != "finished":
            return None
        last, holder, _ = leases.load_lease(tx, self.conversation, self.agent)
        kept = last == self.lease.number and holder
        return ClosedTurn(done, records.load_last_turn(tx, root, self.agent) if kept else None)

    def _close(
        self,
        tx: Transaction,
        turn: TurnRecord,
        finish: str,
        why: str,
        *,
        failed: ErrorOccurred | None = None,
        before: Sequence[AnyEvent] = (),
        is_answered: bool = False,
    ) -> ClosedTurn:
        """End this turn, whose record is now `turn`, within a transaction. The events `before` come first.

        `is_answered` is True after a reply without calls: those of the steps before it have their results.
        """
        root, error = self.lease.root, failed.error if failed else ""
        turn_records.prefetch_closing(tx, self.lease)
        *_, request = leases.check_lease_and_end_request(tx, self.lease, self.conversation)
        if request:
            turn_controls.take_requests(tx, self.conversation, root, turn)
        before = [*self._append_held(tx), *before]
        asking = frozenset[str]()
        if self.has_approvals:
            asking = approvals.load_asking(tx, root, turn.number)
            approvals.withdraw(tx, root, turn.number)
        for uid in turn_records.list_open_of_turn(tx, self.conversation, self.agent, self.lease.number):
            leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
        called = frozenset[str]()
        if self.has_called_agents:
            turn, called = turn_controls.end_called_agents(tx, root, turn, why, self.counted_agents)
        has_open_calls = not is_answered or called or self._is_resumed or self._has_partial_reply
        answers = self._answer_open_calls(tx, why, turn, called, asking) if has_open_calls else []
        events = [*before, *[result_event(message, 0) for message in answers]]
        end = replace(turn, state="finished", finish=finish, error=error, ended=now_ms())
        if self._is_resumed and (late := self._load_late_usage(tx, end)) is not None and late.usage is not None:
            more = Bill(late.cost, late.cost_is_lower_bound) if late.cost is not None else None
            end = _with_usage(end, late.usage, more)
            records.save_trigger_states(tx, root, self.agent, {LATE_USAGE_STATE: {}})
        records.save_turn(tx, root, end)
        if failed:
            events.append(failed)
        told = self._append(tx, [*events, records.finish_event(end)], end)
        is_stopped = finish in ("cancelled", "error") or bool(request)
        waiting = [] if is_stopped else records.load_queue(tx, root, self.agent)
        waiting = [each for each in waiting if each.kind != "waiting"]  # their callers open a turn themselves
        if not waiting:  # in the same transaction, so that a reader of TurnFinish may start the next turn
            leases.release(tx, self.lease, failed=False, is_ended=True)
            return ClosedTurn(end, None, told)
        opened, taken = self._take_queued(tx, waiting[:1])
        following = self._open_turn(tx, opened)
        return ClosedTurn(end, following, [*told, *self._append(tx, [TurnStart(seq=opened), *taken], following)])

    def _note_closed(self, done: ClosedTurn) -> bool:
        """Go on with the turn that follows, and publish the events. Return False if there is none."""
        if done.following is None:
            leases_of(self.store).finish_release(self.lease)
        self.previous_turn, self.step, self.running_calls, self.held = done.ended, None, set(), None
        self.turn, self.end_request = done.following or done.ended, ""
        self.has_approvals = self.has_called_agents = self._is_resumed = self._has_partial_reply = False
        self._publish(done.events)
        if not done.events:  # stored by an earlier attempt
            defer(lambda: self._hub.refresh(self.conversation))
        return done.following is not None

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
            *_, request = leases.check_lease_and_end_request(tx, self.lease, self.conversation)
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
        leases_of(self.store).finish_release(self.lease)
        self.turn = queued
        return True

    def add_usage(self, number: int, usage: Usage, model: Model) -> None:
        """Add the usage of a summary to the record of a turn that no longer runs here."""
        root, more = self.lease.root, bill(model, usage)

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
            at = message_log.load_between(tx, here.branch, (at or here.seq) - 1, at or here.seq)[0]
        self._set_sender(tx, at)
        set_directory(tx, self.lease.root, self._directory)
        turn = TurnRecord(number=0, agent=self.agent, run=self.run, opened=at.seq, opening=at.uid, started=now_ms())
        return records.insert_turn(tx, self.lease.root, turn)

    def _load_result(self, turn: TurnRecord) -> TurnResult:
        """Return the result of a turn that has ended before."""

        def work(tx: Transaction) -> list[StepRecord]:
            return records.load_steps(tx, self.lease.root, turn.number)

        written = self.store.load(self.conversation, after=max(0, turn.opened - 1))
        replies = [each for each in written if each.turn == turn.number and each.role == "assistant"]
        reply, steps = replies[-1] if replies else None, self.store.read(work)
        speaker = (reply.meta or {}).get(branches.SPEAKER_META) if reply is not None else None
        return TurnResult(
            turn=turn.number,
            finish=turn.finish or turn.state,
            steps=turn.steps + turn.agent_steps,
            tool_calls=turn.tool_calls + turn.agent_tool_calls,
            usage=turn.usage or Usage(),
            cost=turn.cost,
            cost_is_lower_bound=turn.cost_is_lower_bound,
            message=reply,
            model=steps[-1].model if steps else "",
            agent=str(speaker or self.author),
        )

    def use_channel(self, channel: str, channel_triggers: Collection[str]) -> None:
        """Send later requests on another channel, and load the states of its triggers."""
        self.channel, self._channel_triggers = channel, frozenset(channel_triggers)
        owners = self.agent, channel if self._channel_triggers else self.agent
        self.trigger_states = self.store.read(lambda tx: records.load_trigger_states(tx, self.lease.root, *owners))

    def load_last_speaker(self) -> tuple[str, list[str]]:
        """Return who gave the last reply, and the tools that it called and that have answered."""
        return self.store.read(lambda tx: branches.find_last_speaker(tx, self.conversation, self.author))

    def is_on_branch(self, branch: int) -> bool:
        """Return True if the message that opened this turn is on the conversation's current branch."""
        if branch != self._branch and self.store.read(lambda tx: self._is_turn_on_branch(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    # ── input and trigger messages ────────────────────────────────────────────────────────────────────────────────────

    def has_steering_input(self) -> bool:
        """Return True if steering input is queued. A request to end the turn is passed on."""
        return self._read_between_steps()[0]

    def _read_between_steps(self) -> tuple[bool, list[Todo]]:
        """Return whether steering input is queued, and the todos. A request to end the turn is passed on."""
        sql, asker = records.SELECT_BETWEEN_STEPS, (self.conversation, self.agent)
        values = (self.lease.root, self.agent, *asker, self.conversation, self.author)
        rows = engine_of(self.store).try_read_statement(sql, values)  # before every step, so without a transaction
        found = rows if rows is not None else self.store.read(lambda tx: tx.rows(sql, *values))
        todos = [Todo(number=number, text=text, state=state) for kind, number, text, state in found if not kind]
        kinds = [kind for kind, *_ in found if kind]
        for kind in kinds:
            if kind != "steer":
                self.end_request = kind
                self._report_request(kind)
        return "steer" in kinds, sorted(todos, key=lambda todo: todo.number)

    def load_todos(self) -> list[Todo]:
        """Return the todos as they are now, or as they were read while the next step is prepared."""
        known = self.read_todos
        return self.store.todos(self.conversation, self.author) if known is None else known

    def take_steering_input(self) -> None:
        """Append the queued steering input to the conversation. Keep the todos for the step that is prepared."""
        is_steered, self.read_todos = self._read_between_steps()
        if is_steered:
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
                turn_records.delete_stream(tx, stream)
            before = message_log.append_messages(tx, self.conversation, parts) if parts else []
            taken = self._take_steering(tx, only_text=True) if parts else []
            steered = message_log.load_messages(tx, self.conversation, after=before[-1].seq) if taken else []
            stored = message_log.append_messages(tx, self.conversation, entries) if entries else []
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
            held = self._append(tx, self._append_held(tx, compiled))
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
            tries.append((step, [*held, *self._append(tx, events, step=index)]))

        def begun() -> None:
            self.step, told = tries[-1]
            self._note_held_stored()
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
        cost: Bill | None,
        calls: int,
        starting: Sequence[ToolCall],
        stored_before: int,
        first_chunk: float | None,
        ends_with: str | None = None,
    ) -> tuple[Callable[[Transaction, list[Message]], None], Callable[[], bool]]:
        """Return the write to run with the reply, and a callback for after the commit.

        The write stores the step, its usage, the remaining deltas and the tools that start. `stored_before` is
        the number of messages of the reply that were stored earlier, and `first_chunk` the seconds until its
        first event. With the finish reason `ends_with` it ends the turn, too, and the callback returns True if
        another one follows.
        """
        assert self.step is not None, "start_step must run before finish_step"
        begun, tries = self.step, list[tuple[StepRecord, TurnRecord, list[AnyEvent]] | ClosedTurn]()

        def also(tx: Transaction, stored: list[Message]) -> None:
            root, spent = self.lease.root, total_usage(stored)
            reply = next(
                (message for message in reversed(stored) if message.role == "assistant"), Message(role="assistant")
            )
            finish, took = reply.finish or "", now_ms() - begun.started
            if stream:
                turn_records.delete_stream(tx, stream)
            step = replace(
                begun,
                state="finished",
                finish=finish,
                usage=spent,
                seq=reply.seq,
                milliseconds=took,
                first_chunk=round(first_chunk * 1_000) if first_chunk is not None else None,
            )
            records.save_step(tx, root, step)
            steps, tool_calls = self.turn.steps + 1, self.turn.tool_calls + calls
            dollars, is_lower_bound = cost or (None, False)
            turn = replace(
                self.turn,
                steps=steps,
                tool_calls=tool_calls,
                usage=usage,
                cost=dollars,
                cost_is_lower_bound=is_lower_bound,
            )
            events = delta_events(rest, None if stream else stored[stored_before:])
            last = next((message.usage for message in reversed(stored) if message.usage is not None), None)
            if spent is not None and last is not None:
                used = (compiled.measured_input(last) or compiled.budget.input) + last.output
                events.append(
                    UsageReport(
                        usage=spent,
                        used=used,
                        available=compiled.budget.room,
                        cost=dollars,
                        cost_is_lower_bound=is_lower_bound,
                    )
                )
            events.append(StepFinish(finish=finish, uid=reply.uid, seq=reply.seq, usage=spent, milliseconds=took))
            events += [ToolStart(id=call.id, name=call.name) for call in starting]
            if ends_with is None:
                records.save_turn(tx, root, turn)
                tries.append((step, turn, self._append(tx, events, step=begun.index)))
            else:
                tries.append(self._close(tx, turn, ends_with, ends_with, before=events, is_answered=True))

        def ended() -> bool:
            done = tries[-1]
            if isinstance(done, ClosedTurn):
                return self._note_closed(done)
            self.step, self.turn, told = done
            self._publish(told)
            return False

        return also, ended

    def append_journal(self, beginning: Message, number: int, pieces: Sequence[Piece]) -> None:
        """Store and publish a batch of parts of a reply that is still being received."""

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            if number == 0:
                turn_records.open_stream(tx, self.lease, beginning)
            turn_records.save_deltas(tx, beginning.uid, number, [part for _, part in pieces])
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
                turn_records.delete_stream(tx, stream)
            stored = message_log.append_messages(tx, self.conversation, entries) if entries else []
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

        self._has_partial_reply = self._has_partial_reply or bool(entries or before)
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
        answered: AgentCall | None = None,
    ) -> Message:
        """Store a tool result, with user notices of `mid_step` triggers and their states.

        `applied` is the answer of a client that ran the tool itself. `answered` is the call of an agent; the record of
        this turn already has what that agent has used.
        """
        entry = self._result_entry(result, *[UserNotice(say.text) for _, say in hints])

        def work(tx: Transaction) -> tuple[Message, list[AnyEvent]]:
            stored = message_log.append_messages(tx, self.conversation, [entry])[0]
            self._save_states(tx, states)
            if applied is not None:
                approvals.save_started(tx, applied)
            if answered is not None:
                agent_calls.mark_answered(tx, answered.conversation)
                records.save_turn(tx, self.lease.root, self.turn)
            return stored, [result_event(stored, milliseconds), *_notices(hints)]

        stored = self._write(work)
        self.running_calls.discard(result.call_id)
        self.trigger_states |= states
        return stored

    def hold_result(self, result: ResultPart, milliseconds: int, evaluate: Callable[[], Evaluation]) -> Message:
        """Keep a result for the next write, which is to follow at once. Return it without its place."""
        message = self._result_message(result)
        self.held = HeldResult(message, result.call_id, milliseconds, evaluate)
        return message

    def prepare_held(self) -> HeldResult | None:
        """Return the result that is held, if any, ready to be stored. Not within a transaction: triggers may write."""
        held = self.held
        if held is not None and held.entry is None:
            self.held = None  # a trigger that fails is reported by a write
            verdict = held.evaluate()
            notices = [UserNotice(say.text) for _, say in verdict.messages]
            entry = self._entry(replace(held.message, parts=(*held.message.parts, *notices)))
            self.held = held._replace(entry=entry, hints=verdict.messages, states=verdict.states)
            self.trigger_states |= verdict.states
        return self.held

    def store_held(self) -> None:
        """Store the result that is held, if any, in a transaction of its own."""
        if self.held is not None:
            self._write(lambda tx: (None, ()))

    def _append_held(self, tx: Transaction, compiled: Compiled | None = None) -> list[AnyEvent]:
        """Append the result that is held. Raise `StaleCompile` if a request was compiled with it in another place."""
        if (held := self.held) is None or held.entry is None:
            return []
        stored = message_log.append_messages(tx, self.conversation, [held.entry])[0]
        if compiled is not None and stored.id != compiled.snapshot.tip.id.hex():
            raise StaleCompile(self.conversation, compiled.channel, "a message was added meanwhile")
        self._save_states(tx, held.states)
        return [result_event(stored, held.milliseconds), *_notices(held.hints)]

    def _note_held_stored(self) -> None:
        if self.held is not None and self.held.entry is not None:
            self.running_calls.discard(self.held.call_id)
            self.held = None

    def store_refused_results(self, results: Sequence[ResultPart]) -> list[Message]:
        """Store the results of calls that were not run, in one transaction."""
        entries = [self._result_entry(result) for result in results]

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            stored = message_log.append_messages(tx, self.conversation, entries)
            return stored, [result_event(message, 0) for message in stored]

        return self._write(work)

    # ── agents as tools ───────────────────────────────────────────────────────────────────────────────────────────────

    def open_agent_call(
        self, call: ToolCall, seq: int, position: int, agent: str, *, forks: bool, max_depth: int | None
    ) -> AgentCall | None:
        """Return the conversation that answers a call; create it the first time. None if agents are nested too deep.

        With `forks` it begins with the messages before the reply `seq`, or with all if `seq` is 0.
        """
        self.has_called_agents = True

        def work(tx: Transaction) -> tuple[AgentCall | None, list[AnyEvent]]:
            if forks:
                message_log.lock_tree(tx, self.conversation)
            leases.check_lease(tx, self.lease, self.conversation)
            root, turn = self.lease.root, self.turn.number
            made = agent_calls.find_call(tx, root, turn, seq, position) if seq else None
            if made is None:
                depth = agent_calls.load_depth(tx, root) + 1
                if max_depth is not None and depth > max_depth:
                    return None, []
                name = agent_calls.make_name(self.conversation, call.name)
                if forks:
                    branches.fork(tx, self.conversation, name, seq - 1 if seq else None)
                else:
                    message_log.insert_conversation(tx, name)
                number = load_tip(tx, name).conversation
                made = AgentCall(number, name, root, turn, seq, position, call.id, agent, self.agent, depth)
                agent_calls.insert_agent_call(tx, made)
            last = records.load_last_number(tx, "event", made.conversation)
            event = AgentCallStart(id=call.id, name=call.name, called=agent, conversation=made.name, after=last)
            return made, self._append(tx, [event])

        made, told = self.store.write(work)
        self._publish(told)
        return made

    def end_agent_call(self, call: AgentCall) -> None:
        """Record that a called agent has ended with this turn, and store what it has used."""

        def work(tx: Transaction) -> tuple[None, Sequence[AnyEvent]]:
            agent_calls.mark_answered(tx, call.conversation)
            records.save_turn(tx, self.lease.root, self.turn)
            return None, ()

        self._write(work)

    # ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────

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
        asked: list[AnyEvent] = [_request_event(each) for each in new]

        def work(tx: Transaction) -> tuple[TurnRecord | None, list[AnyEvent], str]:
            if tx.is_retry:
                done = records.load_turns_by_number(tx, root, [self.turn.number]).get(self.turn.number)
                if done is not None and done.state == "waiting":  # the previous attempt was committed
                    return done, [], ""
            *_, request = leases.check_lease_and_end_request(tx, self.lease, self.conversation)
            approvals.expire_pending(tx, self.conversation)
            states = {each.id: each.state for each in approvals.load_turn_approvals(tx, root, self.turn.number)}
            called = agent_calls.load_open_calls(tx, root, self.turn.number) if self.has_called_agents else []
            goes_on = not new and bool(called) and approvals.may_continue(tx, root, self.turn)
            if request or goes_on or any(states.get(each.id) != "pending" for each in kept):
                return None, [], request
            approvals.insert_approvals(tx, root, new)
            waits = approvals.load_pending(tx, self.conversation) if called else (*kept, *new)
            wait = TurnWaiting(approvals=tuple([each.id for each in waits]))
            waiting = replace(self.turn, state="waiting")
            records.save_turn(tx, root, waiting)
            told = self._append(tx, [*asked, wait], waiting)
            leases.release(tx, self.lease, failed=False)
            return waiting, told, ""

        waiting, told, request = self.store.write(work, repeatable=True)
        if waiting is None:
            self._report_request(request)
            return False
        leases_of(self.store).finish_release(self.lease)
        self.turn = waiting
        self._publish(told)
        if not told:  # stored by an earlier attempt
            defer(lambda: self._hub.refresh(self.conversation))
        return True

    def request_now(self, approval: Approval) -> int:
        """Store an approval at once, and return the last event before: a provider asks in the middle of its reply, or
        the server of a tool while its call runs.
        """
        numbers: list[int] = []

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            approvals.insert_approvals(tx, self.lease.root, [approval])
            numbers.append(records.load_last_number(tx, "event", self.lease.root))
            return None, [_request_event(approval)]

        self.has_approvals = True
        self._write(work)
        if approval.question is not None:
            self.running_calls.discard(approval.call)
        return numbers[-1]

    def use_answer(self, approval: Approval, *, starts: bool) -> None:
        """Record that the answer to an approval is applied now, and if so that the tool starts."""

        def work(tx: Transaction) -> tuple[None, list[AnyEvent]]:
            approvals.save_started(tx, approval)
            return None, [ToolStart(id=approval.call, name=approval.name)] if starts else []

        self._write(work)

    def find_ruled(self, asked: Sequence[Approval]) -> list[Approval]:
        """Return those that a rule would answer now."""

        def work(tx: Transaction) -> list[Approval]:
            return [each for each in asked if approvals.find_answering_rule(tx, self.lease.root, each) is not None]

        return self.store.read(work) if asked else []

    def answer_by_rule(self, approval: Approval, *, starts: bool) -> Approval | None:
        """Store the answer of the rule that holds now, and if it allows the call that the tool starts.

        Return the approval with its answer, or None if no rule holds.
        """

        def work(tx: Transaction) -> tuple[Approval | None, list[AnyEvent]]:
            done = approvals.answer_by_rule(tx, self.lease.root, approval)
            if done is None:
                return None, []
            begins = starts and done.state == "allowed"
            return done, [
                approvals.answer_event(done),
                *([ToolStart(id=done.call, name=done.name)] if begins else []),
            ]

        self.has_approvals = True
        return self._write(work)

    def answer_always(self, approval: Approval, always: Always) -> Approval:
        """Store the answer of a callback together with the rule that it makes."""

        def work(tx: Transaction) -> tuple[Approval, list[AnyEvent]]:
            done = approvals.answer_always(tx, self.lease.root, approval, always)
            return done, [approvals.answer_event(done)]

        return self._write(work)

    def _check_answers(self, tx: Transaction, turn: TurnRecord, ask_again: bool) -> None:
        """Raise `TurnWaits` if no approval of a waiting turn has an answer that was not applied yet."""
        approvals.expire_pending(tx, self.conversation)
        asked = approvals.load_turn_approvals(tx, self.lease.root, turn.number)
        pending = [each for each in asked if each.state == "pending"]
        if agent_calls.load_open_calls(tx, self.lease.root, turn.number):
            if approvals.may_continue(tx, self.lease.root, turn):
                return
            pending = approvals.load_pending(tx, self.conversation)
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
        self, tx: Transaction, given: GivenInput, entries: Sequence[message_log.PendingMessage]
    ) -> list[AnyEvent]:
        """Queue the input of a turn that cannot be opened, because another one waits. Return the events.

        `entries` are the same messages after their validation, without the bytes of media.
        """
        root = self.lease.root
        last = records.load_last_number(tx, "event", root)
        digest = entries[0].digest
        if given.queued:
            for number in given.queued:  # the turn that waits takes it when it ends
                tx.run("UPDATE main.queue SET kind = 'follow-up' WHERE number = ?", number)
        elif given.key is None or not records.find_queued_by_key(tx, root, self.conversation, given.key, digest):
            for message, entry in zip(given.messages, entries, strict=True):
                message_log.check_blobs(tx, self.conversation, entry.admitted.blobs)
                records.enqueue_message(tx, root, self.agent, "follow-up", message, key=given.key, digest=digest)
        return records.load_events(tx, root, last, None)

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

    def load_running(self) -> RunningRuns | None:
        """Return the other runs of this agent that are still going; None if this turn belongs to no run.

        For the first request, these are also runs that have ended since the turn was opened: what they wrote must not
        follow the message that this turn answers.
        """
        if self.run is None:
            return None

        def work(tx: Transaction) -> tuple[list[str | None], int]:
            here = load_tip(tx, self.conversation)  # first: the turns of all messages up to it are among those below
            turns = records.load_turns(tx, self.lease.root, last=MAX_TURNS_SEARCHED)
            going = [turn for turn in turns if turn.state in GOING_STATES and agent_of(turn.agent) == self.author]
            later = load_between(tx, here.branch, self.turn.opened, here.seq) if not self.turn.steps else ()
            return [turn.run for turn in going] + [each.run for each in later if each.author == self.author], here.seq

        found, seq = self.store.read(work)
        return RunningRuns(frozenset(run for run in found if run is not None and run != self.run), seq)

    def find_begun_runs(self, compiled: Compiled, running: RunningRuns) -> frozenset[str]:
        """Return the runs of this agent that a request shows, although they began after `running` was loaded."""
        return frozenset(
            message.run
            for where, message in compiled.snapshot.log
            if where & SEQ_MASK > running.seq
            and message.author == self.author
            and message.run is not None
            and message.run != self.run
            and message.run not in running.names
        )

    def append_events(self, *events: AnyEvent, step: int | None = None) -> None:
        """Store and publish events in a transaction of their own."""
        self._write(lambda tx: (None, events), step=step)

    def append_progress(self, event: ToolProgress) -> None:
        """Store and publish what a tool reports. Other methods may run meanwhile, so a result that is held stays so."""
        self._write(lambda tx: (None, [event]), with_held=False)

    # ── within a transaction ──────────────────────────────────────────────────────────────────────────────────────────

    def _write(
        self,
        work: Callable[[Transaction], tuple[T, Sequence[AnyEvent]]],
        *,
        step: int | None = None,
        with_held: bool = True,
    ) -> T:
        """Run work under the lease, store the events that it returns, and publish them after the commit."""
        if with_held:
            self.prepare_held()

        def checked(tx: Transaction) -> tuple[T, list[AnyEvent], str]:
            *_, request = leases.check_lease_and_end_request(tx, self.lease, self.conversation)
            held = self._append(tx, self._append_held(tx)) if with_held else []
            value, events = work(tx)
            return value, [*held, *self._append(tx, events, step=step)], request

        value, told, request = self.store.write(checked)
        if with_held:
            self._note_held_stored()
        self._publish(told)
        self._report_request(request)
        return value

    def _report_request(self, kind: str) -> None:
        """Pass on a request to end this turn."""
        if kind:
            leases_of(self.store).report_end_request(self.lease, kind)

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
            self._hub.announce(self.conversation, events[-1].number)
            defer(lambda: self._hub.publish(self.conversation, events))

    def _audience_of(self, trigger: str) -> str:
        """Return the agent or the channel that a trigger's messages are addressed to."""
        return self.channel if trigger in self._channel_triggers else self.agent

    def _save_states(self, tx: Transaction, states: Mapping[str, JSONObject]) -> None:
        for name, state in states.items():
            records.save_trigger_states(tx, self.lease.root, self._audience_of(name), {name: state})

    def _entry(self, message: Message) -> message_log.PendingMessage:
        if self.run is not None and message.role in ("assistant", "tool") and message.author == self.author:
            message = replace(message, run=message.run or self.run)
        return message_log.prepare_entry(validate_message(message))

    def _result_message(self, *parts: AnyPart) -> Message:
        step = self.step.index if self.step is not None else None
        return Message(role="tool", parts=parts, author=self.author, turn=self.turn.number, step=step)

    def _result_entry(self, *parts: AnyPart) -> message_log.PendingMessage:
        return self._entry(self._result_message(*parts))

    def _take_queued(self, tx: Transaction, waiting: Sequence[QueuedMessage]) -> tuple[int, list[AnyEvent]]:
        """Move queued input into the conversation. Return the last seq, and the events."""
        events: list[AnyEvent] = []
        seq = 0
        for each in waiting:
            if records.dequeue(tx, each.number):  # its uid may be taken, and its media removed, meanwhile
                entry = self._entry(records.without_removed_media(tx, each.message))
                entry = branches.with_free_uid(tx, load_tip(tx, self.conversation).tree, entry)
                key = records.take_queue_key(tx, self.lease.root, each.number)
                stored = message_log.append_messages(tx, self.conversation, [entry], key=key)[0]
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

    def _answer_open_calls(
        self,
        tx: Transaction,
        why: str,
        turn: TurnRecord,
        called: Collection[str] = (),
        asking: Collection[str] = (),
    ) -> list[Message]:
        """Append error results for the open calls of a turn that is over, started or not, and return them.

        `called` are the ids of calls of agents, `asking` those of calls whose servers wait for an answer.
        """
        if not turn.number:
            return []
        here = load_tip(tx, self.conversation)
        start = turn.opened - 1
        if here.branch != leases.check_lease(tx, self.lease, self.conversation)[0]:  # rewound or edited meanwhile
            start = min(start, load_base_seq(tx, here.branch))
        written = message_log.load_between(tx, here.branch, max(0, min(start, here.seq)), here.seq)
        entries: list[message_log.PendingMessage] = []
        for message, call in find_open_calls(written):
            if message.author == self.author and message.turn == turn.number:
                text = INTERRUPTED_RESULT if call.id in self.running_calls else NOT_RUN_RESULT
                text = QUESTION_ENDED_RESULT if call.id in asking else text
                text = (AGENT_ENDED_RESULT if call.id in called else text).format(why=why)
                entries.append(self._entry(leases.error_result(message, call, text)))
        return message_log.append_messages(tx, self.conversation, entries) if entries else []


def _request_event(approval: Approval) -> ApprovalRequest:
    return ApprovalRequest(
        id=approval.call,
        name=approval.name,
        arguments=approval.arguments,
        approval=approval.id,
        client=approval.client,
        question="" if approval.question is None else approval.question.text,
    )


def _notices(hints: Iterable[tuple[Trigger, TriggerMessage]]) -> list[AnyEvent]:
    return [UserNoticeCreated(text=say.text, trigger=trigger.name) for trigger, say in hints]


def _with_usage(turn: TurnRecord, usage: Usage, more: Bill | None) -> TurnRecord:
    before = Bill(turn.cost, turn.cost_is_lower_bound) if turn.cost is not None else None
    dollars, is_lower_bound = _add_bill(before, more) or (None, False)
    used = add_usage(turn.usage or Usage(), usage)
    return replace(turn, usage=used, cost=dollars, cost_is_lower_bound=is_lower_bound)

"""What a turn writes. Each method is one transaction, under the turn's lease; what it stored is handed to watchers.

A turn is resumed from here and from nothing else: its number, what it has counted, and its messages are in the store
after every method.
"""

from collections.abc import Callable, Mapping, Sequence
from time import time

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.draft import Budget
from contextc.events import (
    AnyEvent,
    Failure,
    FailureKind,
    InputTaken,
    ReasoningDelta,
    StepFinish,
    StepStart,
    SystemHint,
    SystemMessageCreated,
    TextDelta,
    ToolCallDelta,
    ToolError,
    ToolResult,
    ToolStart,
    TurnFinish,
    TurnStart,
    UsageReport,
)
from contextc.executor.threads import afterwards
from contextc.executor.watching import hub
from contextc.messages import (
    AnyPart,
    Hint,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    admit,
    system,
    tool_result,
)
from contextc.messages import ToolResult as ResultPart
from contextc.pairing import open_calls
from contextc.store import Lease, Store, branches, chain, leases, streams, turns
from contextc.store.base import Transaction
from contextc.store.places import branch_base, head
from contextc.store.turns import SHORT, Queued, StepRecord, TurnRecord
from contextc.triggers import Say, Trigger

INTERRUPTED = (
    "Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; it was not "
    "run again."
)
NOT_RUN = "Not run: the turn ended before ({why})."
STOPPED, FAILED = "it was cancelled", "an error"


def now() -> int:
    return int(time() * 1000)


class Record:
    """One turn on paper. Methods are called one after the other, from any thread."""

    def __init__(self, store: Store, conversation: str, agent: str, lease: Lease) -> None:
        self.store, self.conversation, self.agent, self.lease = store, conversation, agent, lease
        self._hub = hub(store)
        self.turn = TurnRecord(number=0, agent=agent)
        self.step: StepRecord | None = None
        self.states: dict[str, JSONObject] = {}
        self._branch = 0
        """On which the opening of the turn was last seen."""
        self.previous: TurnRecord | None = None
        """The turn of this agent before this one."""
        self.running: set[str] = set()
        """Calls whose tool has been started, and whose result is not stored yet."""

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, given: Sequence[Message], *, resume: bool) -> bool:
        """Begin a turn with what was given, or with what waits; or go on with one that was interrupted.

        False where there is nothing to do.
        """
        entries = [self._entry(message) for message in given]

        def work(tx: Transaction) -> tuple[TurnRecord | None, list[AnyEvent], dict[str, JSONObject]]:
            number = self._checked(tx)
            self.previous = turns.last_turn(tx, number, self.agent)
            states = turns.trigger_states(tx, number, self.agent)
            waiting = turns.queued(tx, number, self.agent)
            if resume and self.previous is not None and self._is_open(tx, self.previous):
                turn = replace(self.previous, state="running", ended=0)
                self.previous = turns.last_turn(tx, number, self.agent, before=turn.number)
                turns.save_turn(tx, number, turn)
                told = turns.tell(tx, number, [self._stamped(TurnStart(seq=turn.opened, resumed=True), turn)])
                return turn, told, states
            if entries:  # what was to steer a turn that is over was said before this
                _, taken = self._taken(tx, [each for each in waiting if each.kind == "steer"])
                opened = chain.append(tx, self.conversation, entries)[-1].seq
            elif waiting or self._unanswered(tx):
                opened, taken = self._taken(tx, waiting[:1])
            else:
                return None, [], states
            turn = self._opened(tx, opened)
            events = [TurnStart(seq=turn.opened), *taken]
            return turn, turns.tell(tx, number, [self._stamped(event, turn) for event in events]), states

        turn, told, self.states = self.store.write(work)
        if turn is None:
            return False
        self.turn = turn
        self._hand_on(told)
        return True

    def close(self, finish: str, *, error: str = "", kind: FailureKind = "internal", why: str = STOPPED) -> bool:
        """End the turn: open calls are answered, with `why` there is no result, and the lease is given back.

        Returns True where input waits for the next turn; the lease is then kept, and the turn after this one is open.
        """

        def work(tx: Transaction) -> tuple[TurnRecord, TurnRecord | None, list[AnyEvent]]:
            number = self._checked(tx)
            events: list[AnyEvent] = []
            for uid in streams.open_under(tx, self.conversation, self.agent, self.lease.number):
                leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
            for message in self._answers(tx, why):
                events.append(_result_event(message, 0))
            ended = replace(self.turn, state="finished", finish=finish, error=error, ended=now())
            turns.save_turn(tx, number, ended)
            if error:
                events.append(Failure(kind=kind, error=error))
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
            told = turns.tell(tx, number, [self._stamped(event, ended) for event in events])
            waiting = turns.queued(tx, number, self.agent) if finish not in ("cancelled", "error") else []
            if not waiting:
                return ended, None, told
            opened, taken = self._taken(tx, waiting[:1])
            following = self._opened(tx, opened)
            begins = [self._stamped(event, following) for event in (TurnStart(seq=opened), *taken)]
            return ended, following, [*told, *turns.tell(tx, number, begins)]

        ended, following, told = self.store.write(work)
        self.previous, self.step, self.running = ended, None, set()
        self.turn = following or ended
        if following is None:
            self.store.release(self.lease)
        self._hand_on(told)
        return following is not None

    def stands(self, branch: int) -> bool:
        """Whether what opened this turn is still in the conversation, which goes on on this branch now."""
        if branch != self._branch and self.store.read(lambda tx: self._is_on(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    def steer(self) -> list[Message]:
        """Take in what was sent to steer this turn; the messages it became."""
        if not self._is_steered():
            return []

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            number = self._checked(tx)
            waiting = [each for each in turns.queued(tx, number, self.agent) if each.kind == "steer"]
            before = head(tx, self.conversation).seq
            _, taken = self._taken(tx, waiting)
            told = turns.tell(tx, number, [self._stamped(event) for event in taken])
            return chain.load(tx, self.conversation, after=before), told

        messages, told = self.store.write(work)
        self._hand_on(told)
        return messages

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def speak(self, says: Sequence[tuple[Trigger, Say]], states: Mapping[str, JSONObject], *, step: int | None) -> None:
        """Store what triggers say, with what they remember. `step` is the one before which it is said, if any.

        A message for the model, an event alone for people.
        """
        spoken = [(trigger, say) for trigger, say in says if say.kind == "system"]
        entries = [
            self._entry(
                system(say.text, audience=self.agent, turn=self.turn.number, step=step, meta={"trigger": trigger.name})
            )
            for trigger, say in spoken
        ]

        def work(tx: Transaction) -> list[AnyEvent]:
            number = self._checked(tx)
            stored = chain.append(tx, self.conversation, entries) if entries else []
            turns.save_trigger_states(tx, number, self.agent, states)
            events: list[AnyEvent] = [
                SystemMessageCreated(seq=message.seq, uid=message.uid, text=message.text, trigger=trigger.name)
                for message, (trigger, _) in zip(stored, spoken, strict=True)
            ]
            events += [SystemHint(text=say.text, trigger=trigger.name) for trigger, say in says if say.kind == "hint"]
            return turns.tell(tx, number, [self._stamped(event, step=step or 0) for event in events])

        told = self.store.write(work)
        self.states |= states
        self._hand_on(told)

    def step_begins(
        self, compiled: Compiled, index: int, states: Mapping[str, JSONObject]
    ) -> Callable[[Transaction], None]:
        """What is written together with the attempt, before a byte leaves."""
        budget, before = compiled.budget, self.step

        def also(tx: Transaction) -> None:
            number = self.lease.root
            if tx.again and self.step is not before and self.step in turns.steps(tx, number, self.turn.number):
                return  # the try before was stored; only the answer was lost
            turns.save_trigger_states(tx, number, self.agent, states)
            step = StepRecord(
                number=0,
                turn=self.turn.number,
                index=index,
                provider=compiled.provider.name,
                model=compiled.provider.asks_for,
                request=compiled.record.request,
                started=now(),
            )
            self.step = turns.open_step(tx, number, step)
            event = StepStart(
                provider=compiled.provider.name,
                model=compiled.provider.asks_for,
                request=compiled.record.request,
                mode=compiled.mode,
                epoch=compiled.record.epoch,
                why=compiled.record.why,
                used=budget.used,
                available=budget.available,
                cut=bool(budget.wanted),
            )
            self._pending = turns.tell(tx, number, [self._stamped(event, step=index)])

        return also

    def step_begun(self, states: Mapping[str, JSONObject]) -> None:
        self.states |= states
        self.told()

    _pending: Sequence[AnyEvent] = ()

    def told(self) -> None:
        """Hand on what the last transaction of the compiler stored for this turn."""
        pending, self._pending = self._pending, ()
        self._hand_on(pending)

    def step_ends(
        self,
        *,
        rest: Sequence[AnyPart],
        stream: str,
        budget: Budget,
        usage: Usage,
        cost: float | None,
        calls: int,
        starting: Sequence[ToolCall],
    ) -> Callable[[Transaction, list[Message]], None]:
        """What is written together with the reply: its step, usage, the rest of its deltas, the tools that start."""
        assert self.step is not None, "a step that ends has begun"
        begun = self.step

        def also(tx: Transaction, stored: list[Message]) -> None:
            number = self.lease.root
            if stream:
                streams.forget(tx, stream)
            reply = stored[-1]
            took = now() - begun.started
            step = replace(
                begun,
                state="finished",
                finish=reply.finish or "",
                usage=reply.usage,
                seq=reply.seq,
                milliseconds=took,
            )
            turns.save_step(tx, number, step)
            turn = replace(
                self.turn,
                steps=self.turn.steps + 1,
                tool_calls=self.turn.tool_calls + calls,
                usage=usage,
                cost=cost,
            )
            turns.save_turn(tx, number, turn)
            events = deltas(reply.uid, rest)
            if reply.usage is not None:
                used = max(budget.used, reply.usage.input - budget.system - budget.tools) + reply.usage.output
                events.append(UsageReport(usage=reply.usage, used=used, available=budget.available, cost=cost))
            events.append(
                StepFinish(
                    finish=reply.finish or "", uid=reply.uid, seq=reply.seq, usage=reply.usage, milliseconds=took
                )
            )
            events += [ToolStart(id=call.id, name=call.name) for call in starting]
            self._pending = turns.tell(tx, number, [self._stamped(event, step=begun.index) for event in events])
            self._after = step, turn

        return also

    _after: tuple[StepRecord, TurnRecord] | None = None

    def step_ended(self) -> None:
        assert self._after is not None, "a step that has ended was stored"
        self.step, self.turn = self._after
        self.told()

    def journal(self, beginning: Message, number: int, parts: Sequence[AnyPart]) -> None:
        """Store a batch of a reply that is still coming in, and tell of it."""

        def work(tx: Transaction) -> list[AnyEvent]:
            conversation = self._checked(tx)
            if number == 0:
                streams.begin(tx, self.lease, beginning)
            streams.journal(tx, beginning.uid, number, list(parts))
            events = [self._stamped(event) for event in deltas(beginning.uid, parts)]
            return turns.tell(tx, conversation, events)

        self._hand_on(self.store.write(work))

    def step_fails(self, partial: Message | None, stream: str, error: str, rest: Sequence[AnyPart] = ()) -> None:
        """Keep what came of a reply that broke off, with its status, and tell `rest`: what of it was not told yet."""
        entries = [self._entry(partial)] if partial is not None and partial.parts else []

        def work(tx: Transaction) -> list[AnyEvent]:
            number = self._checked(tx)
            if stream:
                streams.forget(tx, stream)
            stored = chain.append(tx, self.conversation, entries) if entries else []
            if self.step is not None:
                usage = partial.usage if partial is not None else None
                took, seq = now() - self.step.started, stored[0].seq if stored else 0
                failed = replace(self.step, state="failed", error=error, usage=usage, seq=seq, milliseconds=took)
                turns.save_step(tx, number, failed)
            turns.save_turn(tx, number, self.turn)
            events: list[AnyEvent] = [event for message in stored for event in deltas(message.uid, rest)]
            events += [
                StepFinish(finish=message.status, uid=message.uid, seq=message.seq, usage=message.usage)
                for message in stored
            ]
            return turns.tell(tx, number, [self._stamped(event) for event in events])

        self._hand_on(self.store.write(work))

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def result(
        self,
        result: ResultPart,
        milliseconds: int,
        hints: Sequence[tuple[Trigger, Say]] = (),
        states: Mapping[str, JSONObject] | None = None,
    ) -> Message:
        """Store the result of a tool, as soon as it is there; hints for people ride along, with what they remember."""
        parts = (result, *(Hint(say.text) for _, say in hints))
        message = Message(role="tool", parts=parts, author=self.agent, turn=self.turn.number, step=self._index)
        entry = self._entry(message)

        def work(tx: Transaction) -> tuple[Message, list[AnyEvent]]:
            number = self._checked(tx)
            stored = chain.append(tx, self.conversation, [entry])[0]
            turns.save_trigger_states(tx, number, self.agent, states or {})
            events: list[AnyEvent] = [_result_event(stored, milliseconds)]
            events += [SystemHint(text=say.text, trigger=trigger.name) for trigger, say in hints]
            return stored, turns.tell(tx, number, [self._stamped(event) for event in events])

        stored, told = self.store.write(work)
        self.running.discard(result.call_id)
        self.states |= states or {}
        self._hand_on(told)
        return stored

    def tell(self, *events: AnyEvent) -> None:
        """Store events that belong to nothing else."""

        def work(tx: Transaction) -> list[AnyEvent]:
            return turns.tell(tx, self._checked(tx), [self._stamped(event) for event in events])

        self._hand_on(self.store.write(work))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _index(self) -> int | None:
        return self.step.index if self.step is not None else None

    def _checked(self, tx: Transaction) -> int:
        """The number of the conversation, which is locked from here on; refused where the lease has ended."""
        leases.check(tx, self.lease, self.conversation)
        return self.lease.root

    def _is_steered(self) -> bool:
        """Asked before every step, so by a single statement where the store can."""
        asked = turns.STEERED, self.lease.root, self.agent
        rows = self.store.read_one(*asked)
        return bool(rows if rows is not None else self.store.read(lambda tx: tx.rows(*asked)))

    def _entry(self, message: Message) -> chain.Entry:
        return chain.entry(admit(message))

    def _taken(self, tx: Transaction, waiting: Sequence[Queued]) -> tuple[int, list[AnyEvent]]:
        """Move input that waits into the chain."""
        events: list[AnyEvent] = []
        seq = 0
        for each in waiting:
            if turns.withdraw(tx, each.number):
                stored = chain.append(tx, self.conversation, [self._waited(tx, each.message)])[0]
                seq = stored.seq
                events.append(InputTaken(queued=each.number, seq=seq, uid=stored.uid))
        return seq, events

    def _opened(self, tx: Transaction, seq: int) -> TurnRecord:
        """A new turn, opened by a message; by the last one where it was not given now."""
        here = head(tx, self.conversation)
        seq = seq or here.seq
        opening = chain.messages_between(tx, here.branch, seq - 1, seq)[0].uid
        turn = TurnRecord(number=0, agent=self.agent, opened=seq, opening=opening, started=now())
        return turns.open_turn(tx, self.lease.root, turn)

    def _is_open(self, tx: Transaction, turn: TurnRecord) -> bool:
        """Whether a turn was interrupted, and what opened it is still there."""
        return turn.state == "interrupted" and self._is_on(tx, turn, head(tx, self.conversation).branch)

    def _is_on(self, tx: Transaction, turn: TurnRecord, branch: int) -> bool:
        """Whether what opened a turn is on the line of a branch."""
        found = chain.messages_between(tx, branch, turn.opened - 1, turn.opened)
        return bool(found) and found[0].uid == turn.opening

    def _waited(self, tx: Transaction, message: Message) -> chain.Entry:
        """Input as the chain takes it, whatever became of its name and its pictures while it waited."""
        parts = tuple([_gone(tx, part) or part for part in message.parts])
        return branches.renamed(tx, head(tx, self.conversation).tree, self._entry(replace(message, parts=parts)))

    def _unanswered(self, tx: Transaction) -> bool:
        """Whether the conversation ends with something that this agent has not answered."""
        last = chain.load(tx, self.conversation, last=1)
        return bool(last) and (last[0].role != "assistant" or last[0].status != "sent")

    def _answers(self, tx: Transaction, why: str) -> list[Message]:
        """Results for the calls of this turn that nobody answers any more: of what had begun, and of what had not."""
        if not self.turn.number:
            return []
        here = head(tx, self.conversation)
        start = self.turn.opened - 1
        if here.branch != leases.check(tx, self.lease, self.conversation)[0]:  # rewound or edited meanwhile
            start = min(start, branch_base(tx, here.branch))
        written = chain.load(tx, self.conversation, after=max(0, min(start, here.seq)))
        results = [
            tool_result(
                call.id,
                call.name,
                (INTERRUPTED if call.id in self.running else NOT_RUN).format(why=why),
                is_error=True,
                author=self.agent,
                turn=message.turn,
                step=message.step,
            )
            for message, call in open_calls(written)
            if message.author == self.agent and message.turn == self.turn.number
        ]
        return chain.append(tx, self.conversation, [self._entry(result) for result in results]) if results else []

    def _stamped(self, event: AnyEvent, turn: TurnRecord | None = None, *, step: int | None = None) -> AnyEvent:
        index = step if step is not None else (self._index or 0)
        return replace(event, time=now(), agent=self.agent, turn=(turn or self.turn).number, step=index)

    def _hand_on(self, events: Sequence[AnyEvent]) -> None:
        if events:
            afterwards(lambda: self._hub.tell(self.conversation, events))


def deltas(uid: str, parts: Sequence[AnyPart]) -> list[AnyEvent]:
    """Pieces of a reply as events."""
    events: list[AnyEvent] = []
    for part in parts:
        match part:
            case Text():
                events.append(TextDelta(uid=uid, text=part.text))
            case Reasoning():
                if part.text:
                    events.append(ReasoningDelta(uid=uid, text=part.text))
            case ToolCall():
                events.append(ToolCallDelta(uid=uid, id=part.id, name=part.name, arguments=part.raw or ""))
            case _:
                pass
    return events


def _gone(tx: Transaction, part: AnyPart) -> Text | None:
    """What stands for a picture that was taken out of the record meanwhile; None where it is there."""
    if not isinstance(part, Media) or not part.blob or tx.row("SELECT 1 FROM blob WHERE name = ?", part.blob):
        return None
    return Text(f"[{part.kind}: it was removed from the record]")


def _result_event(message: Message, milliseconds: int) -> AnyEvent:
    result = message.tool_results[0]
    kind = ToolError if result.is_error else ToolResult
    return kind(
        id=result.call_id,
        name=result.name,
        seq=message.seq,
        uid=message.uid,
        text=result.text[:SHORT],
        milliseconds=milliseconds,
    )

"""Open, steer and close a turn in the store.

A turn ends in one transaction: open calls are answered, then queued input opens the next turn or the lease is released.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.events import (
    AnyEvent,
    ErrorKind,
    ErrorOccurred,
    InputDequeued,
    TurnFinish,
    TurnStart,
)
from contextc.executor.threads import defer
from contextc.executor.writing import TurnWriter, now_ms, result_event
from contextc.messages import AnyPart, Media, Message, Text, tool_result
from contextc.pairing import find_open_calls
from contextc.store import branches, chain, leases, streams, turns
from contextc.store.base import Transaction
from contextc.store.branches import load_context_start
from contextc.store.places import load_base_seq, load_branch_end, load_tip
from contextc.store.turns import QueuedMessage, StepRecord, TurnRecord

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
    calls: list[int]
    results: list[Message]
    step: StepRecord
    before: int
    """Number of calls that the turn had made before this reply."""


class TurnLifecycle(TurnWriter):
    """The transactions that open, steer and close a turn."""

    first_event = 0
    """The number of the turn's TurnStart event."""

    def open(self, given: Sequence[Message], *, resume: bool) -> None:
        """Open a turn with the given or queued input, or resume an interrupted one.

        If there is nothing to do, the turn number stays 0.
        """
        entries = [self._entry(message) for message in given]

        def work(
            tx: Transaction,
        ) -> tuple[TurnRecord | None, TurnRecord | None, list[AnyEvent], list[AnyEvent], dict[str, JSONObject]]:
            number = self._checked(tx)
            previous = turns.load_last_turn(tx, number, self.agent)
            states = self._read_states(tx, number)
            waiting = turns.load_queue(tx, number, self.agent)
            if resume and previous is not None and self._is_open(tx, previous):
                turn = replace(previous, state="running", ended=0)
                previous = turns.load_last_turn(tx, number, self.agent, before=turn.number)
                turns.save_turn(tx, number, turn)
                told = turns.append_events(tx, number, [self._stamped(TurnStart(seq=turn.opened, resumed=True), turn)])
                return turn, previous, [], told, states
            before: list[AnyEvent] = []
            if previous is not None and previous.state == "interrupted":  # not resumed: its open calls are answered
                before = [
                    self._stamped(result_event(message, 0), previous, step=message.step or 0)
                    for message in self._answers(tx, INTERRUPTED_REASON, previous)
                ]
                before = turns.append_events(tx, number, before)
            if entries:  # input queued to steer an earlier turn comes before this input
                _, taken = self._taken(tx, [each for each in waiting if each.kind == "steer"])
                opened = chain.append_messages(tx, self.conversation, entries)[-1].seq
            elif waiting:
                opened, taken = self._taken(tx, waiting[:1])
            elif unanswered := self._unanswered(tx):
                opened, taken = unanswered, list[AnyEvent]()
            else:
                return None, previous, before, [], states
            turn = self._opened(tx, opened)
            events = [TurnStart(seq=turn.opened), *taken]
            told = turns.append_events(tx, number, [self._stamped(event, turn) for event in events])
            return turn, previous, before, told, states

        turn, self.previous, before, told, self.states = self.store.write(work)
        if turn is not None:
            self.turn, self.first_event = turn, told[0].number
        self._hand_on([*before, *told])

    def close(self, finish: str, *, error: str = "", kind: ErrorKind = "internal", why: str = CANCELLED_REASON) -> bool:
        """End the turn: answer open calls, with `why` as the reason, and release the lease.

        Return True if queued input has opened the next turn. The lease is then kept.
        """

        def work(tx: Transaction) -> tuple[TurnRecord, TurnRecord | None, list[AnyEvent]]:
            number = self.lease.root
            done = (
                turns.load_turns_by_number(tx, number, [self.turn.number]).get(self.turn.number) if tx.again else None
            )
            if done is not None and done.state == "finished":  # the previous attempt was committed
                last, holder, _ = leases.load_lease(tx, self.conversation, self.agent)
                kept = last == self.lease.number and holder
                return done, turns.load_last_turn(tx, number, self.agent) if kept else None, []
            self._checked(tx)
            events: list[AnyEvent] = []
            for uid in streams.list_open_of_turn(tx, self.conversation, self.agent, self.lease.number):
                leases.close_stream(tx, self.conversation, uid, Message(role="assistant", status="error", error=error))
            for message in self._answers(tx, why, self.turn):
                events.append(result_event(message, 0))
            ended = replace(self.turn, state="finished", finish=finish, error=error, ended=now_ms())
            turns.save_turn(tx, number, ended)
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
            told = turns.append_events(tx, number, [self._stamped(event, ended) for event in events])
            waiting = turns.load_queue(tx, number, self.agent) if finish not in ("cancelled", "error") else []
            if not waiting:  # in the same transaction, so that a reader of TurnFinish may start the next turn
                self.store.releases(tx, self.lease)
                return ended, None, told
            opened, taken = self._taken(tx, waiting[:1])
            following = self._opened(tx, opened)
            begins = [self._stamped(event, following) for event in (TurnStart(seq=opened), *taken)]
            return ended, following, [*told, *turns.append_events(tx, number, begins)]

        ended, following, told = self.store.write(work, repeatable=True)
        if following is None:
            self.store.released(self.lease)
        self.previous, self.step, self.running = ended, None, set()
        self.turn = following or ended
        self._hand_on(told)
        if not told:
            defer(lambda: self._hub.look(self.conversation))
        return following is not None

    def unstarted(self) -> UnstartedCalls | None:
        """Return the calls of the turn's last reply that were never started, or None."""

        def work(tx: Transaction) -> UnstartedCalls | None:
            written = [
                message
                for message in chain.load_messages(tx, self.conversation, after=max(0, self.turn.opened - 1))
                if message.author == self.agent and message.turn == self.turn.number
            ]
            waiting = find_open_calls(written)
            if not waiting:
                return None
            reply = waiting[-1][0]
            started = turns.find_started_calls(tx, self.lease.root, self.turn.number, reply.seq)
            steps = turns.load_steps(tx, self.lease.root, self.turn.number)
            step = next((each for each in steps if each.seq == reply.seq), None)
            if started is None or step is None:
                return None
            open_now = [call for message, call in waiting if message is reply and call.id not in started]
            calls = [index for index, call in enumerate(reply.tool_calls) if any(call is each for each in open_now)]
            results = [message for message in written if message.role == "tool" and message.seq > reply.seq]
            before = sum([len(each.tool_calls) for each in written if each.seq < reply.seq and each.status == "sent"])
            return UnstartedCalls(reply, calls, results, step, before) if calls else None

        return self.store.read(work)

    def stands(self, branch: int) -> bool:
        """Return True if the message that opened this turn is on the conversation's current branch."""
        if branch != self._branch and self.store.read(lambda tx: self._is_on(tx, self.turn, branch)):
            self._branch = branch
        return branch == self._branch

    def steer(self) -> list[Message]:
        """Append the queued steering input to the conversation and return its messages."""
        if not self._is_steered():
            return []

        def work(tx: Transaction) -> tuple[list[Message], list[AnyEvent]]:
            number = self._checked(tx)
            waiting = [each for each in turns.load_queue(tx, number, self.agent) if each.kind == "steer"]
            before = load_tip(tx, self.conversation).seq
            _, taken = self._taken(tx, waiting)
            told = turns.append_events(tx, number, [self._stamped(event) for event in taken])
            return chain.load_messages(tx, self.conversation, after=before), told

        messages, told = self.store.write(work)
        self._hand_on(told)
        return messages

    def _is_steered(self) -> bool:
        """Return True if steering input is queued. Runs before every step, as a single statement if possible."""
        asked = turns.SELECT_STEERING, self.lease.root, self.agent
        rows = self.store.read_one(*asked)
        return bool(rows if rows is not None else self.store.read(lambda tx: tx.rows(*asked)))

    def _taken(self, tx: Transaction, waiting: Sequence[QueuedMessage]) -> tuple[int, list[AnyEvent]]:
        """Move queued input into the conversation. Return the last seq, and the events."""
        events: list[AnyEvent] = []
        seq = 0
        for each in waiting:
            if turns.dequeue(tx, each.number):
                stored = chain.append_messages(tx, self.conversation, [self._waited(tx, each.message)])[0]
                seq = stored.seq
                events.append(InputDequeued(queued=each.number, seq=seq, uid=stored.uid))
        return seq, events

    def _opened(self, tx: Transaction, seq: int) -> TurnRecord:
        """Open a turn for the message `seq`, or for the last message if `seq` is 0."""
        here = load_tip(tx, self.conversation)
        seq = seq or here.seq
        opening = chain.load_between(tx, here.branch, seq - 1, seq)[0]
        self.sender = None
        self._sent_by(opening)
        turn = TurnRecord(number=0, agent=self.agent, opened=seq, opening=opening.uid, started=now_ms())
        return turns.insert_turn(tx, self.lease.root, turn)

    def _is_open(self, tx: Transaction, turn: TurnRecord) -> bool:
        """Return True if a turn was interrupted and its opening message is on the current branch."""
        return turn.state == "interrupted" and self._is_on(tx, turn, load_tip(tx, self.conversation).branch)

    def _is_on(self, tx: Transaction, turn: TurnRecord, branch: int) -> bool:
        """Return True if the message that opened a turn is on a branch."""
        if load_branch_end(tx, branch)[0] < turn.opened:
            return False
        found = chain.load_between(tx, branch, turn.opened - 1, turn.opened)
        if not found or found[0].uid != turn.opening:
            return False
        self._sent_by(found[0])
        return True

    def _sent_by(self, opening: Message) -> None:
        """Set the sender to the author of the opening message, if the turn answers that message."""
        if opening.role == "user" or opening.is_addressed_to(self.agent):
            self.sender = opening.author

    def _waited(self, tx: Transaction, message: Message) -> chain.PendingMessage:
        """Return queued input as an entry, renamed or with removed media replaced if necessary."""
        parts = tuple([_removed_media_text(tx, part) or part for part in message.parts])
        return branches.with_free_uid(
            tx, load_tip(tx, self.conversation).tree, self._entry(replace(message, parts=parts))
        )

    def _unanswered(self, tx: Transaction) -> int:
        """Return the seq of the message that this agent has not answered, 0 if there is none.

        That is the last message, unless it is a reply of this agent or of another one. Otherwise it is a message that
        another agent addressed to this one since this one's last reply.
        """
        here = load_tip(tx, self.conversation)
        upto, first = here.seq, max(load_context_start(tx, here.branch, here.seq), here.seq - MAX_SEARCHED_MESSAGES)
        while upto > first:
            after = max(first, upto - SEARCH_BATCH)
            for message in reversed(chain.load_between(tx, here.branch, after, upto)):
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

    def _answers(self, tx: Transaction, why: str, turn: TurnRecord) -> list[Message]:
        """Append error results for the open calls of a turn that is over, started or not, and return them."""
        if not turn.number:
            return []
        here = load_tip(tx, self.conversation)
        start = turn.opened - 1
        if here.branch != leases.check_lease(tx, self.lease, self.conversation)[0]:  # rewound or edited meanwhile
            start = min(start, load_base_seq(tx, here.branch))
        written = chain.load_messages(tx, self.conversation, after=max(0, min(start, here.seq)))
        results = [
            tool_result(
                call.id,
                call.name,
                (INTERRUPTED_RESULT if call.id in self.running else NOT_RUN_RESULT).format(why=why),
                is_error=True,
                author=self.agent,
                turn=message.turn,
                step=message.step,
            )
            for message, call in find_open_calls(written)
            if message.author == self.agent and message.turn == turn.number
        ]
        return (
            chain.append_messages(tx, self.conversation, [self._entry(result) for result in results]) if results else []
        )


def _removed_media_text(tx: Transaction, part: AnyPart) -> Text | None:
    """Return the placeholder for media that was removed from the store, None if the part is unchanged."""
    if not isinstance(part, Media) or not part.blob or tx.row("SELECT 1 FROM blob WHERE name = ?", part.blob):
        return None
    return Text(f"[{part.kind}: it was removed from the record]")

"""Approvals of a store, and requests to end its turns: `Store` extends this class."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.errors import InvalidInput
from contextc.events import AnyEvent, TurnFinish
from contextc.messages import Message, find_open_calls, validate_message
from contextc.store import approvals
from contextc.store import turn_records as records
from contextc.store.approvals import Approval
from contextc.store.leases import LeaseManager, error_result
from contextc.store.message_log import (
    DEFAULT_AGENT,
    agent_of,
    append_messages,
    check_name,
    load_messages,
    load_tip,
    now_ms,
    prepare_entry,
)
from contextc.store.transaction_engine import Connection, Transaction
from contextc.store.turn_queue import PROCESS_LESS_STATES, load_worker_turn
from contextc.store.turn_records import TurnRecord

# ── requests to end a turn ────────────────────────────────────────────────────────────────────────────────────────────
# Requests to end a turn, from any process: `cancel` at once, `stop` after its step.
#
# A request is a row, and a mark on the lease of the turn. The process that runs the turn reads the mark with the
# checks of its lease. A turn that waits for approval has no process, so the request itself ends it.


RequestKind: TypeAlias = Literal["cancel", "stop"]
NOT_RUN_RESULT = "Not run: the turn ended before ({why})."
FINISH_REASONS: dict[RequestKind, str] = {"cancel": "cancelled", "stop": "stopped"}
END_REASONS: dict[RequestKind, str] = {"cancel": "it was cancelled", "stop": "it was stopped"}


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A request to end a turn. `taken` is when the turn has ended for it, or 0. Times are Unix milliseconds.

    `turn` is 0 if no turn was running or waiting: then nothing was stored.
    """

    conversation: str
    agent: str
    kind: RequestKind
    turn: int = 0
    who: str = ""
    asked: int = 0
    taken: int = 0


def request_end(tx: Transaction, conversation: str, agent: str, kind: RequestKind, who: str) -> TurnRequest:
    """Request the end of the agent's running turn, or end its waiting turn. Raises `UnknownConversation`."""
    here = load_tip(tx, conversation, lock=True)
    turn = records.load_last_turn(tx, here.conversation, agent)
    nothing = TurnRequest(conversation=conversation, agent=agent, kind=kind)
    continues = turn is not None and (
        turn.state in PROCESS_LESS_STATES
        or (turn.state == "interrupted" and load_worker_turn(tx, here.conversation, agent) is not None)
    )
    if turn is None or not (continues or turn.state == "running"):
        return nothing
    now = now_ms()
    request = replace(nothing, turn=turn.number, who=who, asked=now)
    if continues:  # no process runs it
        end_waiting_turn(tx, conversation, here.conversation, turn, FINISH_REASONS[kind], END_REASONS[kind])
        request = replace(request, taken=now)
    elif not tx.run(
        "UPDATE main.lease SET request = CASE WHEN request = 'cancel' THEN request ELSE ? END"
        " WHERE conversation = ? AND agent = ? AND holder <> ''",
        kind,
        conversation,
        agent,
    ):
        return nothing
    tx.run(
        "INSERT INTO main.turn_request (conversation, turn, kind, who, asked, taken) VALUES (?, ?, ?, ?, ?, ?)",
        here.conversation,
        turn.number,
        kind,
        who,
        now,
        request.taken,
    )
    return request


def load_requests(tx: Transaction, conversation: str, turn: int) -> list[TurnRequest]:
    """Return the requests to end a turn, oldest first."""
    number = load_tip(tx, conversation).conversation
    found = records.load_turns_by_number(tx, number, [turn])
    rows = tx.rows(
        "SELECT kind, who, asked, taken FROM main.turn_request WHERE conversation = ? AND turn = ? ORDER BY number",
        number,
        turn,
    )
    agent = found[turn].agent if turn in found else ""
    return [
        TurnRequest(conversation=conversation, agent=agent, turn=turn, kind=kind, who=who, asked=asked, taken=taken)
        for kind, who, asked, taken in rows
    ]


def take_requests(tx: Transaction, conversation: str, number: int, turn: TurnRecord) -> None:
    """Record that a turn has ended for the requests to end it, and remove the mark from its lease."""
    tx.run(
        "UPDATE main.turn_request SET taken = ? WHERE conversation = ? AND turn = ? AND taken = 0",
        now_ms(),
        number,
        turn.number,
    )
    tx.run("UPDATE main.lease SET request = '' WHERE conversation = ? AND agent = ?", conversation, turn.agent)


def end_waiting_turn(
    tx: Transaction, conversation: str, number: int, turn: TurnRecord, finish: str, why: str
) -> list[AnyEvent]:
    """End a turn that waits for approval or for a worker, and return the events.

    Its open calls get a result that they were not run.
    """
    here = load_tip(tx, conversation)
    written = load_messages(tx, conversation, after=max(0, min(turn.opened - 1, here.seq)))
    results: list[Message] = [
        error_result(message, call, NOT_RUN_RESULT.format(why=why))
        for message, call in find_open_calls(written)
        if message.author == agent_of(turn.agent) and message.turn == turn.number
    ]
    entries = [prepare_entry(validate_message(result)) for result in results]
    stored = append_messages(tx, conversation, entries) if entries else []
    now = now_ms()
    end = replace(turn, state="finished", finish=finish, ended=now)
    records.save_turn(tx, number, end)
    approvals.withdraw(tx, number, turn.number)
    events: list[AnyEvent] = [
        replace(records.result_event(message, 0), time=now, agent=turn.agent, turn=turn.number, step=message.step or 0)
        for message in stored
    ]
    finished = TurnFinish(
        time=now,
        agent=turn.agent,
        turn=turn.number,
        finish=finish,
        steps=end.steps,
        tool_calls=end.tool_calls,
        usage=end.usage,
        cost=end.cost,
        cost_is_lower_bound=end.cost_is_lower_bound,
    )
    return records.append_events(tx, number, [*events, finished])


# ── methods of the store ──────────────────────────────────────────────────────────────────────────────────────────────


MAX_WHO = 200


class TurnControls(LeaseManager[Connection]):
    """Approvals, and requests to end turns. All of them work for turns of any process."""

    def approvals(self, conversation: str | None = None) -> list[Approval]:
        """Return the pending approvals of a conversation, or of the whole store, oldest first.

        Expired ones are answered with their default answer first. Raises `UnknownConversation`.
        """

        def work(tx: Transaction) -> list[Approval]:
            if conversation is not None:
                load_tip(tx, conversation)
            return approvals.load_pending(tx, conversation)

        found, now = self.read(work), now_ms()
        if any(0 < each.expires <= now for each in found):
            self.expire_approvals(conversation)
            found = self.read(work)
        return found

    def turn_approvals(self, conversation: str, turn: int) -> list[Approval]:
        """Return all approvals of a turn, also those that were answered or withdrawn."""
        return self.read(lambda tx: approvals.load_turn_approvals(tx, load_tip(tx, conversation).conversation, turn))

    def answer_approval(
        self,
        id: str,
        allow: bool,
        *,
        reason: str = "",
        who: str = "",
        result: str | None = None,
        failed: bool = False,
        in_transaction: Callable[[Transaction, Approval], None] | None = None,
    ) -> Approval:
        """Answer a pending approval. The model gets the `reason` of a denial. `who` is stored with the answer.

        `result` is what a client's own tool returned, and `failed` is True if it failed. Only approvals with `client`
        have one.

        The first answer counts: a later one raises `AlreadyAnswered`, which names who answered and when. The turn is
        not continued by this; `in_transaction` can submit that in the same transaction. Raises `UnknownApproval`.
        """
        if not isinstance(allow, bool):
            raise InvalidInput("allow must be True or False", got=allow)
        for name, text in (("reason", reason), ("who", who), ("result", result or "")):
            if not isinstance(text, str):
                raise InvalidInput(f"{name} must be a string, got {type(text).__name__}")
        known = self.read(lambda tx: approvals.load_approval(tx, id))
        if known.state == "pending" and 0 < known.expires <= now_ms():
            self.expire_approvals(known.conversation)
        time = now_ms()

        def work(tx: Transaction) -> Approval:
            done = approvals.answer(
                tx, id, allow=allow, reason=reason, who=who[:MAX_WHO], time=time, result=result, failed=failed
            )
            if in_transaction is not None:
                in_transaction(tx, done)
            return done

        return self.write(work, repeatable=in_transaction is None)

    def expire_approvals(self, conversation: str | None = None) -> list[Approval]:
        """Answer expired approvals with their default answer. Return these."""
        if not self.read(lambda tx: approvals.has_expired(tx, conversation)):
            return []
        return self.write(lambda tx: approvals.expire_pending(tx, conversation))

    def answered_turns(self) -> list[tuple[str, str, int]]:
        """Return the turns that wait although all their approvals are answered: conversation, agent and turn."""
        self.expire_approvals()
        return self.read(approvals.load_answered_turns)

    def cancel_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """Cancel an agent's turn, in whichever process it runs. A turn that waits for approval ends at once.

        A running turn notices the request with its next write or step, at the latest when its lease is renewed.
        """
        return self._request_end(conversation, agent, "cancel", who)

    def stop_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """End an agent's turn after its current step, in whichever process it runs. Its finish reason is `stopped`."""
        return self._request_end(conversation, agent, "stop", who)

    def turn_requests(self, conversation: str, turn: int) -> list[TurnRequest]:
        """Return the requests to end a turn, oldest first."""
        return self.read(lambda tx: load_requests(tx, conversation, turn))

    def _request_end(self, conversation: str, agent: str, kind: RequestKind, who: str) -> TurnRequest:
        check_name(agent, "agent")
        if not isinstance(who, str):
            raise InvalidInput(f"who must be a string, got {type(who).__name__}")
        self.recover()  # a turn whose process has ended is interrupted, and not running
        return self.write(lambda tx: request_end(tx, conversation, agent, kind, who[:MAX_WHO]))

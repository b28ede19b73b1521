"""Requests to end turns, from any process, as functions over a transaction."""

from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.events import AnyEvent
from contextc.messages import Message, find_open_calls, validate_message
from contextc.store import agent_calls, approvals
from contextc.store import turn_records as records
from contextc.store.leases import error_result
from contextc.store.message_log import (
    agent_of,
    append_messages,
    load_messages,
    load_tip,
    now_ms,
    prepare_entry,
)
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_queue import PROCESS_LESS_STATES, defer_continuation, load_worker_turn
from contextc.store.turn_records import TurnRecord

# `cancel` ends a turn at once, `stop` after its step.
#
# A request is a row, and a mark on the lease of the turn. The process that runs the turn reads the mark with the
# checks of its lease. A turn that waits for approval has no process, so the request itself ends it.


RequestKind: TypeAlias = Literal["cancel", "stop"]
NOT_RUN_RESULT = "Not run: the turn ended before ({why})."
AGENT_ENDED_RESULT = (
    "Interrupted: the turn ended ({why}) while this agent was working. What it had done by then stays done."
)
QUESTION_ENDED_RESULT = (
    "Not completed: the turn ended ({why}) before the question of the server was answered. What the call had done by "
    "then stays done."
)
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
    turn, called = end_called_agents(tx, number, turn, why)
    texts = dict.fromkeys(approvals.load_asking(tx, number, turn.number), QUESTION_ENDED_RESULT)
    texts |= dict.fromkeys(called, AGENT_ENDED_RESULT)
    results: list[Message] = [
        error_result(message, call, texts.get(call.id, NOT_RUN_RESULT).format(why=why))
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
    finished = replace(records.finish_event(end), time=now, agent=turn.agent, turn=turn.number)
    caller = agent_calls.find_outermost_caller(tx, number, turn.agent)
    if caller != (number, turn.agent):  # it waits for this turn
        defer_continuation(tx, *caller)
    return records.append_events(tx, number, [*events, finished])


def end_called_agents(
    tx: Transaction, conversation: int, turn: TurnRecord, why: str, counted: Collection[int] = ()
) -> tuple[TurnRecord, frozenset[str]]:
    """End the turns of the agents that a turn waits for, because it ends. Return it with what they have used, and the
    ids of their calls. The record has already what those in the conversations `counted` have used.
    """
    open_calls = agent_calls.load_open_calls(tx, conversation, turn.number)
    for each in open_calls:
        agent_calls.mark_answered(tx, each.conversation)
        load_tip(tx, each.name, lock=True)
        called = agent_calls.load_called_turn(tx, each)
        if called is not None and called.state in (*PROCESS_LESS_STATES, "interrupted"):
            end_waiting_turn(tx, each.name, each.conversation, called, FINISH_REASONS["cancel"], why)
            called = agent_calls.load_called_turn(tx, each)
        elif called is not None and called.state == "running":
            request_end(tx, each.name, each.agent, "cancel", "")
        if called is not None and each.conversation not in counted:
            turn = agent_calls.add_called_turn(turn, called)
    return turn, frozenset([each.call for each in open_calls])

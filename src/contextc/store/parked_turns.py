"""Turns that workers gave up on, as functions over a transaction: park, list, resume and cancel.

A parked turn is one of an agent in a conversation. It needs a person: no worker tries it again by itself. New input for
the agent resumes it, too.
"""

from collections.abc import Mapping

from contextc.errors import InvalidInput
from contextc.events import ErrorOccurred
from contextc.store import append_and_load, branches, turn_queue
from contextc.store import turn_and_event_records as records
from contextc.store.append_and_load import now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import find_tip, load_tip
from contextc.store.submitted_input import find_submitted, take_submitted
from contextc.store.turn_queue import SELECT, WorkerTurn

PARKED = "The turn was parked"


def load_parked(tx: Transaction, conversation: str | None = None) -> list[WorkerTurn]:
    """Return the parked turns of a conversation, or of the whole store, oldest first."""
    which, values = (" AND c.name = ?", [conversation]) if conversation is not None else ("", [])
    rows = tx.rows(f"{SELECT} WHERE w.parked > 0{which} ORDER BY w.parked, c.name", *values)
    return [WorkerTurn(*row) for row in rows]


def load_parked_reasons(tx: Transaction) -> Mapping[str, str]:
    """Return why turns are parked, by the name of the conversation."""
    return {each.conversation: each.reason for each in load_parked(tx)}


def park_turn(tx: Transaction, name: str, conversation: int, agent: str, turn: int, reason: str) -> bool:
    """Record that workers gave up on a turn, which has ended. Return False if new input was submitted meanwhile."""
    here = find_tip(tx, name, True)
    if here is None or here.conversation != conversation:
        return False
    last = records.load_last_turn(tx, conversation, agent)
    if last is None or last.number != turn or find_submitted(tx, name, agent):
        return False
    _park(tx, conversation, agent, turn, reason)
    return True


def _park(tx: Transaction, conversation: int, agent: str, turn: int, reason: str) -> None:
    tx.run(
        "UPDATE worker_turn SET turn = ?, parked = ?, reason = ? WHERE conversation = ? AND agent = ?",
        turn,
        now_ms(),
        reason,
        conversation,
        agent,
    )


def park_unknown_agent(tx: Transaction, name: str, conversation: int, agent: str, reason: str) -> bool:
    """Park what an agent has to do that no worker knows. Return False if there is nothing to do.

    The turn is 0 if none was opened. An event states the reason, because no turn ends with it.
    """
    here = find_tip(tx, name, True)
    if here is None or here.conversation != conversation:
        return False
    turn = records.load_last_turn(tx, conversation, agent)
    goes_on = turn is not None and turn.state != "finished"
    if not goes_on and not find_submitted(tx, name, agent) and not records.load_queue(tx, conversation, agent):
        return False
    number = turn.number if turn is not None and goes_on else 0
    _park(tx, conversation, agent, number, reason)
    event = ErrorOccurred(time=now_ms(), agent=agent, kind="internal", error=f"{PARKED}: {reason}")
    records.append_events(tx, conversation, [event])
    return True


def resume_parked(tx: Transaction, name: str, agent: str) -> WorkerTurn:
    """Submit a parked turn to workers again. Its message is answered, or the turn continues where it was.

    Raises `InvalidInput` if no turn of this agent is parked.
    """
    here, parked = load_tip(tx, name, lock=True), _load_one(tx, name, agent)
    turn, uid = records.load_last_turn(tx, here.conversation, agent), ""
    is_over = turn is None or turn.state == "finished"
    if is_over and not find_submitted(tx, name, agent):
        seq = branches.find_unanswered(tx, name, agent)
        uid = append_and_load.load_between(tx, here.branch, seq - 1, seq)[0].uid if seq else ""
    turn_queue.submit_work(tx, name, here.conversation, agent, parked.queue, submitted=uid)
    return parked


def cancel_parked(tx: Transaction, name: str, agent: str) -> WorkerTurn:
    """Give up a parked turn: its input stays in the conversation, unanswered. Raises `InvalidInput` as above."""
    here, parked = load_tip(tx, name, lock=True), _load_one(tx, name, agent)
    take_submitted(tx, name, agent)
    turn_queue.unpark(tx, here.conversation, agent)
    return parked


def _load_one(tx: Transaction, name: str, agent: str) -> WorkerTurn:
    for each in load_parked(tx, name):
        if each.agent == agent:
            return each
    raise InvalidInput(
        f"conversation {name!r}: no turn of agent {agent!r} is parked", fix="List the parked turns to see their agents."
    )

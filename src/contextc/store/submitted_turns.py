"""Turns of workers: their input, and those that workers gave up on, as functions over a transaction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextc.errors import InvalidInput, UnknownMessage
from contextc.events import ErrorOccurred
from contextc.messages import Message
from contextc.store import branches, message_log, turn_queue
from contextc.store import turn_records as records
from contextc.store.message_log import BranchTip, PendingMessage, check_name, find_message, find_tip, load_tip, now_ms
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_queue import SELECT, WorkerTurn

# ── submitted input ───────────────────────────────────────────────────────────────────────────────────────────────────


class SubmittedInput(NamedTuple):
    """Input that was submitted to workers. `seq` is its place in the conversation, 0 if it is still queued.

    `queued` is its number in the queue of the conversation if a turn was running, otherwise 0. `after` is the number of
    the last event before it. `is_new` is False if the key was known: nothing was submitted again.
    """

    conversation: str
    agent: str
    seq: int
    queued: int
    after: int
    is_new: bool


def submit_input(
    tx: Transaction, conversation: str, message: Message, entry: PendingMessage, *, agent: str, key: str, queue: str
) -> SubmittedInput:
    """Append input, or queue it while the agent has other work in this conversation, and insert a job.

    `entry` is the message after its validation. The same key again does nothing. Raises `KeyReused` if it
    was used for other content.
    """
    check_name(key, "key")
    here = find_tip(tx, conversation, True) or message_log.insert_conversation(tx, conversation)
    number = here.conversation
    after = records.load_last_number(tx, "event", number)
    if known := records.find_queued_by_key(tx, number, conversation, key, entry.digest):
        return SubmittedInput(conversation, agent, 0, known, after, False)
    stored = message_log.find_by_key(tx, conversation, key, entry)
    if stored is not None:
        return SubmittedInput(conversation, agent, stored.seq, 0, after, False)
    seq, queued, uid = 0, 0, ""
    if has_unfinished_work(tx, conversation, here, agent):
        message_log.check_blobs(tx, conversation, entry.admitted.blobs)
        queued = records.enqueue_message(tx, number, agent, "follow-up", message, key=key, digest=entry.digest).number
    else:
        appended = message_log.append_messages(tx, conversation, [entry], key=key)[0]
        seq, uid = appended.seq, appended.uid
    turn_queue.submit_work(tx, conversation, number, agent, queue, submitted=uid)
    return SubmittedInput(conversation, agent, seq, queued, after, True)


def submit_messages(
    tx: Transaction,
    conversation: str,
    messages: Sequence[Message],
    entries: Sequence[PendingMessage],
    *,
    agent: str,
    queue: str,
) -> SubmittedInput:
    """Submit several messages as the input of one turn. While the agent has other work, each is queued."""
    here = find_tip(tx, conversation, True) or message_log.insert_conversation(tx, conversation)
    number = here.conversation
    after = records.load_last_number(tx, "event", number)
    seq, queued, uid = 0, 0, ""
    if has_unfinished_work(tx, conversation, here, agent):
        for message, entry in zip(messages, entries, strict=True):
            message_log.check_blobs(tx, conversation, entry.admitted.blobs)
            queued = records.enqueue_message(tx, number, agent, "follow-up", message).number
    else:
        appended = message_log.append_messages(tx, conversation, entries)[-1]
        seq, uid = appended.seq, appended.uid
    turn_queue.submit_work(tx, conversation, number, agent, queue, submitted=uid)
    return SubmittedInput(conversation, agent, seq, queued, after, True)


def submit_unanswered(tx: Transaction, conversation: str, *, agent: str, queue: str) -> SubmittedInput | None:
    """Submit the next queued input, or the last message without an answer. Return None if there is nothing to do."""
    here = load_tip(tx, conversation, lock=True)
    after = records.load_last_number(tx, "event", here.conversation)
    waiting = records.load_queue(tx, here.conversation, agent)
    seq, uid = 0, ""
    if not waiting:
        seq = branches.find_unanswered(tx, conversation, agent)
        if not seq:
            return None
        uid = message_log.load_between(tx, here.branch, seq - 1, seq)[0].uid
    turn_queue.submit_work(tx, conversation, here.conversation, agent, queue, submitted=uid)
    return SubmittedInput(conversation, agent, seq, waiting[0].number if waiting else 0, after, True)


def has_unfinished_work(tx: Transaction, conversation: str, here: BranchTip, agent: str) -> bool:
    """Return True if the agent has to do something before it can answer new input: a turn, or earlier input."""
    turn = records.load_last_turn(tx, here.conversation, agent)
    if turn is not None and turn.state != "finished":
        return True
    if tx.row("SELECT 1 FROM main.lease WHERE conversation = ? AND agent = ? AND holder <> ''", conversation, agent):
        return True
    return bool(records.load_queue(tx, here.conversation, agent)) or find_submitted(tx, conversation, agent) > 0


def find_submitted(tx: Transaction, conversation: str, agent: str) -> int:
    """Return the seq of submitted input that no turn has opened yet, or 0."""
    here = find_tip(tx, conversation, False)
    if here is None:
        return 0
    row = tx.row(
        "SELECT submitted FROM main.worker_turn WHERE conversation = ? AND agent = ?", here.conversation, agent
    )
    if row is None or not row[0]:
        return 0
    try:
        return find_message(tx, conversation, here, row[0]).seq
    except UnknownMessage:  # rewound meanwhile
        return 0


def take_submitted(tx: Transaction, conversation: str, agent: str) -> int:
    """Return the seq of submitted input that no turn has opened yet, or 0. A turn opens it now."""
    seq = find_submitted(tx, conversation, agent)
    here = find_tip(tx, conversation, False)
    if here is not None:
        tx.run(
            "UPDATE main.worker_turn SET submitted = '' WHERE conversation = ? AND agent = ?", here.conversation, agent
        )
    return seq


# ── parked turns ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Turns that workers gave up on, as functions over a transaction: park, list, resume and cancel.
#
# A parked turn is one of an agent in a conversation. It needs a person: no worker tries it again by itself. New input
# for the agent resumes it, too.


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
        "UPDATE main.worker_turn SET turn = ?, parked = ?, reason = ? WHERE conversation = ? AND agent = ?",
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
        uid = message_log.load_between(tx, here.branch, seq - 1, seq)[0].uid if seq else ""
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

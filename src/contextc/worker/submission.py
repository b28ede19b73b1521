"""Submit input to workers: the input and its job are stored in one transaction."""

import uuid

from contextc._worker_threads import run_blocking
from contextc.errors import InvalidInput
from contextc.executor.agent_config import input_message
from contextc.executor.event_hub import event_hub
from contextc.messages import Message, validate_message
from contextc.store import Store
from contextc.store import parked_turns as parking
from contextc.store.append_and_load import prepare_entry
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.message_rows import check_name, check_new_name
from contextc.store.submitted_input import SubmittedInput, submit_input
from contextc.store.turn_queue import DEFAULT_QUEUE, WorkerTurn
from contextc.worker.queue_tables import create_queue_tables

__all__ = [
    "SubmittedInput",
    "WorkerTurn",
    "cancel_parked",
    "parked_turns",
    "resume_parked",
    "submit",
    "submit_sync",
]
MAX_QUEUE_NAME = 100


async def submit(
    store: Store,
    conversation: str,
    message: str | Message,
    *,
    agent: str = DEFAULT_AGENT,
    key: str | None = None,
    queue: str = DEFAULT_QUEUE,
) -> SubmittedInput:
    """Submit input to an agent that workers run. It is stored, together with its job, when this returns.

    The same `key` again submits nothing. While a turn of this agent runs or waits in the conversation, the input is
    queued and opens the next turn. Raises `InvalidSetting` unless the store is PostgreSQL.
    """
    return await run_blocking(lambda: submit_sync(store, conversation, message, agent=agent, key=key, queue=queue))


def submit_sync(
    store: Store,
    conversation: str,
    message: str | Message,
    *,
    agent: str = DEFAULT_AGENT,
    key: str | None = None,
    queue: str = DEFAULT_QUEUE,
) -> SubmittedInput:
    """Submit input as `submit` does, for programs without an event loop."""
    check_name(conversation)
    check_new_name(conversation)
    check_name(agent, "agent")
    check_queue(queue)
    if key is not None:
        check_name(key, "key")
    create_queue_tables(store)
    given = input_message(message, agent)
    entry = prepare_entry(validate_message(given))
    unique = key if key is not None else f"submitted {uuid.uuid4().hex}"  # a repeated attempt finds the first one
    done = store.write(
        lambda tx: submit_input(tx, conversation, given, entry, agent=agent, key=unique, queue=queue), repeatable=True
    )
    event_hub(store).note_change(conversation)
    return done


def parked_turns(store: Store) -> list[WorkerTurn]:
    """Return the turns that workers gave up on, oldest first, with the reason."""
    return store.read(parking.load_parked)


def resume_parked(store: Store, conversation: str, *, agent: str = DEFAULT_AGENT) -> WorkerTurn:
    """Submit a parked turn to workers again, and return what it was parked for. Raises `InvalidInput` if it is not."""
    check_name(conversation)
    return store.write(lambda tx: parking.resume_parked(tx, conversation, agent))


def cancel_parked(store: Store, conversation: str, *, agent: str = DEFAULT_AGENT) -> WorkerTurn:
    """Give up a parked turn, and return what it was parked for. Its input stays, unanswered. Raises as above."""
    check_name(conversation)
    done = store.write(lambda tx: parking.cancel_parked(tx, conversation, agent))
    store.cancel_turn(conversation, agent, who="parked")  # if it had begun
    return done


def check_queue(queue: str) -> None:
    """Raise `InvalidInput` for a name that a queue cannot have."""
    if not isinstance(queue, str) or not queue or len(queue.encode()) > MAX_QUEUE_NAME or not queue.isprintable():
        raise InvalidInput(f"queue must be a name of 1 to {MAX_QUEUE_NAME} bytes", got=queue)

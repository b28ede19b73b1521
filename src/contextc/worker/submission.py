"""Submit input to workers: the input and its job are stored in one transaction."""

import threading
import uuid
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from contextc._installed_packages import importing
from contextc._worker_threads import run_blocking
from contextc.errors import InvalidInput
from contextc.executor.agent_config import input_message
from contextc.executor.event_hub import event_hub
from contextc.messages import Message, validate_message
from contextc.store import Store, submitted_turns, turn_queue
from contextc.store.message_log import DEFAULT_AGENT, check_name, check_new_name, prepare_entry
from contextc.store.store import engine_of
from contextc.store.submitted_turns import SubmittedInput, submit_input
from contextc.store.transaction_engine import Transaction, create_triggers_sql
from contextc.store.turn_queue import DEFAULT_QUEUE, WorkerTurn

if TYPE_CHECKING:
    from contextc.store.postgres import PostgresTransaction


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The tables of the queue: procrastinate's, in the schema of the store, created on first use, and triggers.


QUEUE_LOCK = 0x636F6E7475657565

_prepared: "WeakSet[Store]" = WeakSet()
_lock = threading.Lock()


def create_queue_tables(store: Store) -> None:
    """Create the tables of the queue if they do not exist. Raises `InvalidSetting` unless the store is PostgreSQL."""
    turn_queue.check_backend(store.address, engine_of(store).dialect.name)
    with _lock:
        if store in _prepared:
            return
    if not store.read(turn_queue.has_queue_tables):
        with importing("procrastinate", extra="worker", needed_by="workers"):
            from procrastinate.schema import SchemaManager
        schema = SchemaManager.get_schema()

        def work(tx: Transaction) -> None:
            tx.row("SELECT pg_advisory_xact_lock(?)", QUEUE_LOCK)
            if not turn_queue.has_queue_tables(tx):
                turn_queue.set_search_path(tx)
                script = cast("PostgresTransaction", tx).run_script
                script(schema)
                script(create_triggers_sql(tx.schema))

        store.write(work, repeatable=True)
    with _lock:
        _prepared.add(store)


# ── submitting ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    return store.read(submitted_turns.load_parked)


def resume_parked(store: Store, conversation: str, *, agent: str = DEFAULT_AGENT) -> WorkerTurn:
    """Submit a parked turn to workers again, and return what it was parked for. Raises `InvalidInput` if it is not."""
    check_name(conversation)
    return store.write(lambda tx: submitted_turns.resume_parked(tx, conversation, agent))


def cancel_parked(store: Store, conversation: str, *, agent: str = DEFAULT_AGENT) -> WorkerTurn:
    """Give up a parked turn, and return what it was parked for. Its input stays, unanswered. Raises as above."""
    check_name(conversation)
    done = store.write(lambda tx: submitted_turns.cancel_parked(tx, conversation, agent))
    store.cancel_turn(conversation, agent, who="parked")  # if it had begun
    return done


def check_queue(queue: str) -> None:
    """Raise `InvalidInput` for a name that a queue cannot have."""
    if not isinstance(queue, str) or not queue or len(queue.encode()) > MAX_QUEUE_NAME or not queue.isprintable():
        raise InvalidInput(f"queue must be a name of 1 to {MAX_QUEUE_NAME} bytes", got=queue)

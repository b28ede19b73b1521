"""Turns that workers run: submitted input, jobs, and what went wrong, as functions over a transaction.

Jobs are rows of procrastinate's tables, in the schema of the store. A job names a conversation and an agent; it means
"run what this agent has to do there", so an additional job does no harm. Jobs of one conversation and agent run one
after the other.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from contextc._json import JSONObject, as_object, decode, encode
from contextc.errors import InvalidSetting
from contextc.store import turn_records as records
from contextc.store.message_log import find_tip
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import TurnRecord

DEFAULT_QUEUE = "contextc"
TASK_NAME = "contextc.run_turn"
PROCESS_LESS_STATES = ("waiting", "queued")
"""States of a turn that continues later, and that no process runs now."""
carry_trace: Callable[[], Mapping[str, str]] | None = None
"""Returns the headers of the current trace. `contextc.telemetry` sets it."""


class WorkerTurn(NamedTuple):
    """Failures of the last turn of an agent that workers run. `parked` is 0 unless workers gave up on it."""

    conversation: str
    agent: str
    queue: str
    turn: int = 0
    steps: int = 0
    deaths: int = 0
    failures: int = 0
    parked: int = 0
    reason: str = ""


class QueuedJob(NamedTuple):
    """A job: a conversation by name and number, and an agent. `worker` is the worker that runs it, if any."""

    id: int
    queue: str
    conversation: str
    number: int
    agent: str
    worker: int | None = None


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_backend(store: str, dialect: str) -> None:
    """Raise `InvalidSetting` for a store that has no queue."""
    if dialect != "postgres":
        raise InvalidSetting(
            f"{store}: workers require a PostgreSQL store", fix="Open a store with a postgresql:// address."
        )


def has_queue_tables(tx: Transaction) -> bool:
    row = tx.row(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'procrastinate_jobs'",
        tx.schema,
    )
    return row is not None


def set_search_path(tx: Transaction) -> None:
    """Let procrastinate's functions find its tables until the transaction ends."""
    tx.row("SELECT set_config('search_path', ?, true)", f'"{tx.schema}"')


def defer_job(
    tx: Transaction,
    queue: str,
    conversation: str,
    number: int,
    agent: str,
    *,
    seconds: float = 0,
    continues: bool = False,
    trace: Mapping[str, str] | None = None,
) -> None:
    """Insert a job, which workers see when the transaction is committed. It starts after so many seconds.

    A job that continues a turn is taken before jobs of new input. `trace` are the headers of the trace that its turn
    continues, by default the current one if telemetry is enabled.
    """
    set_search_path(tx)
    found = carry_trace() if trace is None and carry_trace is not None else trace
    carried: JSONObject = {"trace": {**found}} if found else {}
    arguments = encode({"conversation": conversation, "number": number, "agent": agent, **carried}).decode()
    tx.row(
        "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(?::text, ?::text, ?::integer, ?::text, NULL::text, ?::jsonb,"
        " CASE WHEN ?::float8 > 0 THEN now() + ?::float8 * interval '1 second' END)]::procrastinate_job_to_defer_v1[])",
        queue,
        TASK_NAME,
        int(continues),
        f"{number} {agent}",
        arguments,
        seconds,
        seconds,
    )


def submit_work(
    tx: Transaction, conversation: str, number: int, agent: str, queue: str, *, submitted: str = ""
) -> None:
    """Record that workers run the turns of this agent, and insert a job. `submitted` is the uid of new input.

    A parked turn of the agent is no longer parked.
    """
    tx.run(
        "INSERT INTO main.worker_turn (conversation, agent, queue, submitted) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (conversation, agent) DO UPDATE SET queue = excluded.queue,"
        " submitted = CASE WHEN excluded.submitted = '' THEN worker_turn.submitted ELSE excluded.submitted END,"
        " deaths = CASE WHEN worker_turn.parked > 0 THEN 0 ELSE worker_turn.deaths END,"
        " failures = CASE WHEN worker_turn.parked > 0 THEN 0 ELSE worker_turn.failures END, parked = 0, reason = ''",
        number,
        agent,
        queue,
        submitted,
    )
    defer_job(tx, queue, conversation, number, agent)


def defer_continuation(tx: Transaction, conversation: int, agent: str) -> bool:
    """Insert a job if workers run the turns of this agent. Return False if they do not."""
    if tx.dialect.name != "postgres":
        return False
    row = tx.row(
        "SELECT w.queue, c.name FROM main.worker_turn w JOIN main.conversation c ON c.number = w.conversation"
        " WHERE w.conversation = ? AND w.agent = ?",
        conversation,
        agent,
    )
    if row is None:
        return False
    defer_job(tx, row[0], row[1], conversation, agent, continues=True)
    return True


def rescue_job(tx: Transaction, job: int, worker: int | None, *, max_deaths: int) -> bool:
    """Replace the job of a silent worker by a new one, if no lease is held any more. Return False if nothing changed.

    The new job has another id: a worker that comes back cannot end it.
    """
    set_search_path(tx)
    row = tx.row(
        "SELECT queue_name, args::text FROM main.procrastinate_jobs WHERE id = ? AND status = 'doing'"
        " AND worker_id IS NOT DISTINCT FROM ?::bigint FOR UPDATE SKIP LOCKED",
        job,
        worker,
    )
    if row is None:
        return False
    wanted = decode(row[1].encode())
    name, number, agent = str(wanted["conversation"]), int(str(wanted["number"])), str(wanted["agent"])
    if is_lease_held(tx, name, agent):
        return False
    tx.run("DELETE FROM main.procrastinate_jobs WHERE id = ?", job)
    here = find_tip(tx, name, True)
    if here is None or here.conversation != number:
        return True
    turn = records.load_last_turn(tx, number, agent)
    if turn is not None and turn.state in ("running", "interrupted"):
        known = load_worker_turn(tx, number, agent)
        deaths = known.deaths + 1 if known is not None and known.turn == turn.number else 1
        save_trouble(tx, number, turn, deaths=min(deaths, max_deaths))
    trace = cast(dict[str, str], as_object(wanted.get("trace")))
    defer_job(tx, row[0], name, number, agent, continues=True, trace=trace)
    return True


def is_lease_held(tx: Transaction, conversation: str, agent: str) -> bool:
    """Return True while the lease of a turn has neither ended nor been released."""
    row = tx.row(
        "SELECT 1 FROM main.lease"
        f" WHERE conversation = ? AND agent = ? AND holder <> '' AND expires > {tx.dialect.now}",
        conversation,
        agent,
    )
    return row is not None


# ── what went wrong ───────────────────────────────────────────────────────────────────────────────────────────────────


SELECT = (
    "SELECT c.name, w.agent, w.queue, w.turn, w.steps, w.deaths, w.failures, w.parked, w.reason"
    " FROM main.worker_turn w JOIN main.conversation c ON c.number = w.conversation"
)


def load_worker_turn(tx: Transaction, conversation: int, agent: str) -> WorkerTurn | None:
    """Return the row of an agent whose turns workers run, or None."""
    row = tx.row(f"{SELECT} WHERE w.conversation = ? AND w.agent = ?", conversation, agent)
    return WorkerTurn(*row) if row is not None else None


def save_trouble(tx: Transaction, conversation: int, turn: TurnRecord, *, deaths: int = 0, failures: int = 0) -> None:
    """Save how often a turn lost its worker, and how often in a row its provider failed."""
    tx.run(
        "UPDATE main.worker_turn SET turn = ?, steps = ?, deaths = ?, failures = ?, parked = 0, reason = ''"
        " WHERE conversation = ? AND agent = ?",
        turn.number,
        turn.steps,
        deaths,
        failures,
        conversation,
        turn.agent,
    )


def unpark(tx: Transaction, conversation: int, agent: str) -> None:
    """Record that a turn is no longer parked."""
    tx.run(
        "UPDATE main.worker_turn SET parked = 0, reason = '', deaths = 0, failures = 0"
        " WHERE conversation = ? AND agent = ?",
        conversation,
        agent,
    )

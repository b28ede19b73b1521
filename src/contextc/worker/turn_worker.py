"""TurnWorker: take turns from the queue of a PostgreSQL store and run them, until the worker is stopped.

procrastinate distributes the jobs and sends heartbeats. A job resumes what an agent has to do in a conversation. The
job of a silent worker is replaced after the lease of its turn has ended. A worker that stops finishes the steps that
run, and hands their turns over.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from contextc import telemetry
from contextc._credential_mask import get_logger, mask_secrets
from contextc._installed_packages import importing
from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, ConversationBusy, InvalidInput, LeaseLost, ProviderFailed, StoreError
from contextc.executor import AgentExecutor, Suspend
from contextc.providers import Provider
from contextc.store import Store, submitted_turns, turn_queue
from contextc.store.message_log import find_tip
from contextc.store.store import engine_of, expire_approvals
from contextc.store.transaction_engine import Transaction, jitter
from contextc.store.turn_queue import DEFAULT_QUEUE, TASK_NAME, QueuedJob
from contextc.store.turn_records import TurnRecord
from contextc.worker.submission import check_queue, create_queue_tables

if TYPE_CHECKING:
    from procrastinate import App, JobContext
    from procrastinate.worker import Worker

    from contextc.worker.queue_connection import QueueConnection


# ── limits of providers ───────────────────────────────────────────────────────────────────────────────────────────────
# A limit on concurrent model calls per provider, across all workers of a store.
#
# A slot is a row that expires, so that a dead process frees it. A call renews its slot while it runs.


SLOT_SECONDS = 30.0
"""Seconds after which the slot of a dead process is free."""
SLOT_POLL_SECONDS = 0.1


class ProviderSlots:
    """The slots of some providers, by the name of the provider. Other providers have no limit."""

    def __init__(self, store: Store, limits: Mapping[str, int], *, seconds: float = SLOT_SECONDS) -> None:
        self._store, self._limits, self._seconds = store, dict(limits), seconds

    @asynccontextmanager
    async def call(self, provider: str, gives_up: Callable[[], bool]) -> AsyncGenerator[None]:
        """Hold a slot during a model call. Raises `ProviderFailed` if `gives_up` returns True before one is free."""
        limit = self._limits.get(provider)
        if limit is None:
            yield
            return
        holder, is_first = uuid.uuid4().hex, True
        while not await run_blocking(self._take, provider, limit, holder, is_first):
            if gives_up():
                raise ProviderFailed(provider, "rate", "no slot became free before the worker stopped")
            is_first = False
            await asyncio.sleep(SLOT_POLL_SECONDS + jitter(SLOT_POLL_SECONDS))
        renewing = asyncio.create_task(self._renew(provider, holder), name=f"slot of {provider}")
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(ContextcError):  # otherwise it expires
                await run_blocking(self._release, provider, holder)

    def _take(self, provider: str, limit: int, holder: str, is_first: bool) -> bool:
        """Take a slot, if one is free. The first attempt of a call creates slots that do not exist yet."""

        def work(tx: Transaction) -> bool:
            now, skip = tx.dialect.now, tx.dialect.skip_locked
            if is_first:
                tx.run_many(
                    "INSERT INTO main.provider_slot (provider, number) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    [(provider, number) for number in range(limit)],
                )
            return bool(
                tx.run(
                    f"UPDATE main.provider_slot SET holder = ?, expires = {now} + ? WHERE provider = ?"
                    " AND number = (SELECT number FROM main.provider_slot WHERE provider = ? AND number < ?"
                    f" AND (holder = '' OR expires < {now}) ORDER BY number LIMIT 1{skip})",
                    holder,
                    self._seconds,
                    provider,
                    provider,
                    limit,
                )
            )

        return self._store.write(work)

    async def _renew(self, provider: str, holder: str) -> None:
        while True:
            await asyncio.sleep(self._seconds / 3)
            with suppress(ContextcError):
                await run_blocking(self._extend, provider, holder)

    def _extend(self, provider: str, holder: str) -> None:
        self._store.write(
            lambda tx: tx.run(
                f"UPDATE main.provider_slot SET expires = {tx.dialect.now} + ? WHERE provider = ? AND holder = ?",
                self._seconds,
                provider,
                holder,
            )
        )

    def _release(self, provider: str, holder: str) -> None:
        self._store.write(
            lambda tx: tx.run(
                "UPDATE main.provider_slot SET holder = '' WHERE provider = ? AND holder = ?", provider, holder
            ),
            repeatable=True,
        )


# ── the owner of a turn ───────────────────────────────────────────────────────────────────────────────────────────────
# The owner of a turn that a worker runs: hands it over when the worker stops, and retries it when a provider is down.
#
# The continuation is a new job, stored in the transaction that releases the lease of the turn.


class TurnParked(ContextcError):
    """Workers gave up on a turn."""


class RetryRules(NamedTuple):
    """The limits at which workers give up on a turn, and the pauses before they call a provider again, in seconds."""

    max_deaths: int = 5
    max_failures: int = 10
    first_delay: float = 5.0
    longest_delay: float = 600.0
    max_unknown: int = 12
    """Number of attempts at a job whose agent the worker does not have: another one may have it, or may start later."""

    def delay(self, failures: int, error: Exception | None) -> float:
        """Return the seconds until the next attempt after so many failures in a row."""
        wanted = (error.retry_after or 0.0) if isinstance(error, ProviderFailed) else 0.0
        return max(wanted, min(self.longest_delay, self.first_delay * 2 ** (failures - 1)))


class WorkerTurnOwner:
    """The owner of the turns of one job."""

    def __init__(
        self,
        store: Store,
        job: turn_queue.QueuedJob,
        rules: RetryRules,
        slots: ProviderSlots,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store, self._job, self._rules, self._slots, self._is_stopping = store, job, rules, slots, is_stopping
        self._failures = 0
        self.parked: tuple[int, str] | None = None
        """The turn that the worker gave up on, and the reason."""

    def check(self, turn: TurnRecord) -> None:
        """Raise `TurnParked` if too many workers died while they ran this turn."""
        known = self._known(turn)
        if known is not None and known.deaths >= self._rules.max_deaths:
            reason = f"{known.deaths} workers ended while they ran this turn"
            self.parked = turn.number, reason
            raise TurnParked(f"Turn {turn.number} was parked: {reason}", fix="Send the message again to retry.")

    def wants_back(self) -> bool:
        return self._is_stopping()

    def retries(self, turn: TurnRecord, error: Exception) -> bool:
        """Return True for a temporary failure of the provider, up to a number of times in a row."""
        if not isinstance(error, ProviderFailed) or not error.may_retry:
            return False
        if self._is_stopping():
            self._failures = 0
            return True
        known = self._known(turn)
        before = known.failures if known is not None and known.steps == turn.steps else 0
        self._failures = before + 1
        if self._failures <= self._rules.max_failures:
            return True
        self.parked = turn.number, mask_secrets(f"the provider failed {self._failures} times in a row: {error}")
        return False

    def store_continuation(self, tx: Transaction, turn: TurnRecord, error: Exception | None) -> None:
        job, seconds = self._job, 0.0
        if error is not None and self._failures:
            known = turn_queue.load_worker_turn(tx, job.number, job.agent)
            deaths = known.deaths if known is not None and known.turn == turn.number else 0
            turn_queue.save_trouble(tx, job.number, turn, deaths=deaths, failures=self._failures)
            seconds = self._rules.delay(self._failures, error)
        turn_queue.defer_job(tx, job.queue, job.conversation, job.number, job.agent, seconds=seconds, continues=True)

    def model_call(self, provider: Provider) -> AbstractAsyncContextManager[None]:
        return self._slots.call(provider.name, self._is_stopping)

    def _known(self, turn: TurnRecord) -> turn_queue.WorkerTurn | None:
        """Return what is known of earlier attempts at this turn."""
        job = self._job
        known = self._store.read(lambda tx: turn_queue.load_worker_turn(tx, job.number, job.agent))
        return known if known is not None and known.turn == turn.number else None


# ── the worker ────────────────────────────────────────────────────────────────────────────────────────────────────────


log = get_logger(__name__)
SILENT_HEARTBEATS = 3
"""Number of missing heartbeats after which a worker counts as silent."""
POLL_SECONDS = 0.5
"""Interval of the search for jobs that became due, or whose lock was released."""
RESTART_SECONDS = 1.0
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.2, 5.0
"""Seconds until a job is retried that found its conversation busy."""


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of a worker.

    `concurrency` is the number of turns at a time, `heartbeat` the seconds between two signs of life. `slots` limits
    the model calls per provider across all workers of the store.
    """

    queue: str = DEFAULT_QUEUE
    concurrency: int = 10
    heartbeat: float = 5.0
    slots: Mapping[str, int] = {}
    rules: RetryRules = RetryRules()


class JobPostponed(Exception):
    """A job that is retried after so many seconds."""

    def __init__(self, seconds: float, why: object) -> None:
        self.seconds = seconds
        super().__init__(str(why))


class TurnWorker:
    """Runs the turns of some agents, by name. `stop` lets it finish the steps that run."""

    def __init__(self, store: Store, agents: Mapping[str, AgentExecutor], options: WorkerOptions | None = None) -> None:
        self.store, self.options = store, options or WorkerOptions()
        turn_queue.check_backend(store.address, engine_of(store).dialect.name)
        check_queue(self.options.queue)
        if self.options.concurrency < 1:
            raise InvalidInput("concurrency must be at least 1", got=self.options.concurrency)
        if not self.options.heartbeat > 0:
            raise InvalidInput("heartbeat must be above 0 seconds", got=self.options.heartbeat)
        for provider, limit in self.options.slots.items():
            if limit < 1:
                raise InvalidInput(f"slots of provider {provider!r} must be at least 1", got=limit)
        self.agents = {name: _check_agent(name, each, store) for name, each in agents.items()}
        if not self.agents:
            raise InvalidInput("agents must have at least one agent", fix="Pass a mapping from names to executors.")
        self.counts: Counter[str] = Counter()
        """Numbers since the start: `turns`, `handed_over`, `retried`, `rescued`, `parked`, `failed`."""
        self.last_contact = 0.0
        """The time at which the worker last reached the queue, by the monotonic clock."""
        self._slots = ProviderSlots(store, self.options.slots)
        self._running: dict[int, QueuedJob] = {}
        self._is_stopping = False
        self._stopped = asyncio.Event()
        self._worker: Worker | None = None

    @property
    def running(self) -> int:
        """The number of jobs that run now."""
        return len(self._running)

    @property
    def is_stopping(self) -> bool:
        """True if the worker takes no more turns, and ends after the running steps."""
        return self._is_stopping

    def stop(self) -> None:
        """Take no more jobs, finish the steps that run, and hand their turns over. Then `run` returns."""
        self._is_stopping = True
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        """Run turns until `stop` is called."""
        with importing("procrastinate", extra="worker", needed_by="workers"):
            import procrastinate
        from contextc.store.postgres import PostgresEngine
        from contextc.worker.queue_connection import make_queue_connection

        await run_blocking(create_queue_tables, self.store)
        engine = engine_of(self.store)
        assert isinstance(engine, PostgresEngine), "only PostgreSQL stores have a queue"
        connection = make_queue_connection(engine)
        app = procrastinate.App(connector=connection)
        app.task(name=TASK_NAME, queue=self.options.queue, pass_context=True, retry=_retry_strategy())(self._run_job)
        async with app.open_async():
            watching = asyncio.create_task(self._watch_queue(app, connection), name="watch the queue")
            try:
                while not self._is_stopping:
                    await self._run_worker(app)
            finally:
                watching.cancel()
                for each in self.agents.values():
                    await each.close()

    async def _run_worker(self, app: "App") -> None:
        """Run procrastinate's worker until it is stopped, or until it fails."""
        from procrastinate.exceptions import ConnectorException
        from procrastinate.worker import Worker

        options = self.options
        worker = self._worker = Worker(
            app=app,
            queues=[options.queue],
            name="contextc",
            concurrency=options.concurrency,
            fetch_job_polling_interval=POLL_SECONDS,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=options.heartbeat,
            stalled_worker_timeout=options.heartbeat * SILENT_HEARTBEATS,
        )
        try:
            if self._is_stopping:
                return
            await worker.run()
        except ConnectorException as error:  # such as a registration that another worker has removed
            log.warning("the connection to the queue failed: %s", error)
        finally:
            self._worker = None
        if not self._is_stopping:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), RESTART_SECONDS)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_job(
        self,
        context: "JobContext",
        conversation: str,
        number: int,
        agent: str,
        trace: Mapping[str, str] | None = None,
    ) -> None:
        """Run what an agent has to do in a conversation. `trace` are the headers of the trace that it continues."""
        id = context.job.id or 0
        job = self._running[id] = QueuedJob(id, context.job.queue, conversation, number, agent)
        try:
            with telemetry.continuing(trace):
                await self._run_turns(job, context.job.attempts)
        finally:
            del self._running[id]

    async def _run_turns(self, job: QueuedJob, attempts: int) -> None:
        executor = self.agents.get(job.agent)
        if executor is None:
            await self._postpone_or_park(job, attempts)
            return
        try:
            if not await run_blocking(self._exists, job):
                return
            owner = WorkerTurnOwner(self.store, job, self.options.rules, self._slots, lambda: self._is_stopping)
            turn = executor.owned_by(owner).resume(job.conversation, wait=0)
            await turn.wait()
        except StoreError as error:
            raise JobPostponed(LONGEST_RETRY_SECONDS, error) from error
        for result in turn.results:
            self.counts["turns"] += bool(result.turn)
            self.counts["handed_over"] += result.finish == "handed over" and result.error is None
            self.counts["retried"] += result.finish == "handed over" and result.error is not None
            self.counts["failed"] += result.finish == "error"
        if owner.parked is not None:
            self.counts["parked"] += 1
            await run_blocking(self._park, job, *owner.parked)
        error = turn.results[-1].error
        if isinstance(error, ConversationBusy):
            raise JobPostponed(min(LONGEST_RETRY_SECONDS, max(RETRY_SECONDS, error.seconds)), error)
        if isinstance(error, LeaseLost):
            raise JobPostponed(RETRY_SECONDS, error)
        if isinstance(error, StoreError):
            raise JobPostponed(LONGEST_RETRY_SECONDS, error)

    def _exists(self, job: QueuedJob) -> bool:
        """Return False if the conversation of a job was deleted."""
        here = self.store.read(lambda tx: find_tip(tx, job.conversation, False))
        return here is not None and here.conversation == job.number

    async def _postpone_or_park(self, job: QueuedJob, attempts: int) -> None:
        """Leave a job of an unknown agent to other workers. Park its turn if none of them has taken it."""
        log.warning("%s: this worker has no agent %r", job.conversation, job.agent)
        if attempts + 1 < self.options.rules.max_unknown:
            raise JobPostponed(LONGEST_RETRY_SECONDS, f"no agent {job.agent!r} in this worker")
        known = ", ".join([repr(each) for each in self.agents])
        reason = f"no worker of queue {job.queue!r} has the agent {job.agent!r}. This one has {known}"
        is_parked = await run_blocking(self._park_unknown, job, reason)
        self.counts["parked"] += is_parked

    def _park_unknown(self, job: QueuedJob, reason: str) -> bool:
        name, number, agent = job.conversation, job.number, job.agent
        return self.store.write(lambda tx: submitted_turns.park_unknown_agent(tx, name, number, agent, reason))

    def _park(self, job: QueuedJob, turn: int, reason: str) -> None:
        self.store.write(
            lambda tx: submitted_turns.park_turn(tx, job.conversation, job.number, job.agent, turn, reason)
        )

    # ── dead workers and expired approvals ────────────────────────────────────────────────────────────────────────────

    async def _watch_queue(self, app: "App", connection: "QueueConnection") -> None:
        """Replace the jobs of silent workers, and answer expired approvals, from time to time."""
        while True:
            try:
                await self._rescue_jobs(app, connection)
                await run_blocking(expire_approvals, self.store)
                self.last_contact = time.monotonic()
            except Exception as error:
                log.warning("the queue could not be watched: %s", error)
            await asyncio.sleep(self.options.heartbeat / 2)

    async def _rescue_jobs(self, app: "App", connection: "QueueConnection") -> None:
        silent = self.options.heartbeat * SILENT_HEARTBEATS
        found = [
            (job.id, job.worker_id)
            for job in await app.job_manager.get_stalled_jobs(
                queue=self.options.queue, task_name=TASK_NAME, seconds_since_heartbeat=silent
            )
        ]
        own = self._worker.worker_id if self._worker is not None else None
        if connection.has_lost_job and own is not None:
            connection.has_lost_job = False
            mine = await app.job_manager.list_jobs_async(task=TASK_NAME, status="doing", worker_id=own)
            found += [(job.id, own) for job in mine if job.id not in self._running]
        for id, worker in found:
            if id is not None and id not in self._running and await run_blocking(self._rescue, id, worker):
                self.counts["rescued"] += 1
                log.info("job %d of worker %s was taken over", id, worker)

    def _rescue(self, id: int, worker: int | None) -> bool:
        rules = self.options.rules
        return self.store.write(lambda tx: turn_queue.rescue_job(tx, id, worker, max_deaths=rules.max_deaths))


def _retry_strategy() -> Any:
    """Return procrastinate's retry strategy for jobs that are postponed. Other jobs that fail end."""
    from procrastinate import BaseRetryStrategy, RetryDecision
    from procrastinate.jobs import Job
    from procrastinate.utils import utcnow

    class Postponed(BaseRetryStrategy):
        def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
            if not isinstance(exception, JobPostponed):
                return None
            return RetryDecision(retry_at=utcnow() + timedelta(seconds=exception.seconds))

    return Postponed()


def _check_agent(name: str, executor: AgentExecutor, store: Store) -> AgentExecutor:
    """Return the executor of an agent as a worker uses it: its turns are suspended for approvals."""
    if not isinstance(executor, AgentExecutor):
        raise InvalidInput(f"agent {name!r} must be an AgentExecutor, got {type(executor).__name__}")
    if executor.name != name:
        raise InvalidInput(
            f"agent {name!r} has an executor of agent {executor.name!r}", fix=f"Create it with name={name!r}."
        )
    if executor.store is not store:
        raise InvalidInput(f"agent {name!r} uses another store", fix="Create it with the store of the worker.")
    return executor.asking(Suspend()) if executor.approve is None else executor

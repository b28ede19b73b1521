"""The owner of a turn that a worker runs: hands it over when the worker stops, and retries it when a provider is down.

The continuation is a new job, stored in the transaction that releases the lease of the turn.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from contextc._credential_mask import mask_secrets
from contextc.errors import ContextcError, ProviderFailed
from contextc.providers import Provider
from contextc.store import Store, turn_queue
from contextc.store.backend_interface import Transaction
from contextc.store.turn_and_event_records import TurnRecord
from contextc.worker.provider_slots import ProviderSlots


class TurnParked(ContextcError):
    """Workers gave up on a turn."""


class RetryRules(NamedTuple):
    """When workers give up on a turn, and how long they wait before they call a provider again, in seconds."""

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


class JobOwner:
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

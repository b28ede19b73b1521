"""A limit on concurrent model calls per provider, across all workers of a store.

A slot is a row that expires, so that a dead process frees it. A call renews its slot while it runs.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from contextc._worker_threads import run_blocking
from contextc.errors import ContextcError, ProviderFailed
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.transaction_engine import jitter

SLOT_SECONDS = 30.0
"""Seconds after which the slot of a dead process is free."""
POLL_SECONDS = 0.1


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
        holder = uuid.uuid4().hex
        while not await run_blocking(self._take, provider, limit, holder):
            if gives_up():
                raise ProviderFailed(provider, "rate", "no slot became free before the worker stopped")
            await asyncio.sleep(POLL_SECONDS + jitter(POLL_SECONDS))
        renewing = asyncio.create_task(self._renew(provider, holder), name=f"slot of {provider}")
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(ContextcError):  # otherwise it expires
                await run_blocking(self._release, provider, holder)

    def _take(self, provider: str, limit: int, holder: str) -> bool:
        def work(tx: Transaction) -> bool:
            now, skip = tx.dialect.now, tx.dialect.skip_locked
            tx.run_many(
                "INSERT INTO provider_slot (provider, number) VALUES (?, ?) ON CONFLICT DO NOTHING",
                [(provider, number) for number in range(limit)],
            )
            return bool(
                tx.run(
                    f"UPDATE provider_slot SET holder = ?, expires = {now} + ? WHERE provider = ?"
                    " AND number = (SELECT number FROM provider_slot WHERE provider = ? AND number < ?"
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
                f"UPDATE provider_slot SET expires = {tx.dialect.now} + ? WHERE provider = ? AND holder = ?",
                self._seconds,
                provider,
                holder,
            )
        )

    def _release(self, provider: str, holder: str) -> None:
        self._store.write(
            lambda tx: tx.run(
                "UPDATE provider_slot SET holder = '' WHERE provider = ? AND holder = ?", provider, holder
            ),
            repeatable=True,
        )

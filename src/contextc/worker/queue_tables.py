"""The tables of the queue: procrastinate's, in the schema of the store, created on first use, and triggers."""

import threading
from typing import TYPE_CHECKING, LiteralString, cast
from weakref import WeakSet

from contextc._installed_packages import importing
from contextc.store import Store, turn_queue
from contextc.store.backend_interface import Transaction
from contextc.store.change_notifications import create_triggers_sql

if TYPE_CHECKING:
    from contextc.store.postgres_transaction import PostgresTransaction

QUEUE_LOCK = 0x636F6E7475657565

_prepared: "WeakSet[Store]" = WeakSet()
_lock = threading.Lock()


def create_queue_tables(store: Store) -> None:
    """Create the tables of the queue if they do not exist. Raises `InvalidSetting` unless the store is PostgreSQL."""
    turn_queue.check_backend(store.address, store.dialect.name)
    with _lock:
        if store in _prepared:
            return
    if not store.read(turn_queue.has_queue_tables):
        schema = _load_schema()

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


def _load_schema() -> LiteralString:
    with importing("procrastinate", extra="worker", needed_by="workers"):
        from procrastinate.schema import SchemaManager
    return SchemaManager.get_schema()

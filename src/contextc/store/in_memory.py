"""An in-memory store: SQLite without a file, with the behaviour of the durable store except for durability."""

import os
import sqlite3
import threading
from collections.abc import Callable

from contextc.store.sqlite import SQLiteStore
from contextc.store.types import Result, Row, Transaction


class MemoryStore(SQLiteStore):
    """A store on a single connection; transactions run one after the other."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.address, self.path = "memory:", ""
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _connect(self) -> sqlite3.Connection:
        return self._connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            with self._lock:  # another thread may have a transaction open on it
                super()._disconnect(connection)

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], Result], *, writing: bool, again: bool
    ) -> Result:
        with self._lock:
            return super()._run(
                self._checkout(), work, writing=writing, again=again
            )  # it may have been closed meanwhile

    def _execute_single(self, sql: str, values: tuple[object, ...], *, writing: bool) -> tuple[list[Row], int]:
        with self._lock:
            return super()._execute_single(sql, values, writing=writing)

    def _reset_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent process may have held."""
        super()._reset_after_fork()
        self._lock = threading.RLock()

    def _checkin(self, connection: sqlite3.Connection) -> None:
        """Do nothing: the only connection is always available."""

    def _check_file(self) -> None:
        """Do nothing: there is no file."""

    def _record_erasure(self, tx: Transaction) -> None:
        """Do nothing: there is no file."""

    def _erase_removed_content(self) -> None:
        """Do nothing: there is no file."""

    def backup(self, target: str | os.PathLike[str]) -> None:
        with self._lock:
            super().backup(target)

    def close(self) -> None:
        super().close()
        self._disconnect(self._connection)

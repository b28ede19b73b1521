"""A store that lives as long as its process: SQLite without a file, so that it behaves like the durable one in
everything but durability."""

import os
import sqlite3
import threading
from collections.abc import Callable

from contextc.store.base import Row, T, Transaction
from contextc.store.sqlite import SQLiteStore


class MemoryStore(SQLiteStore):
    """One connection holds the whole store, so transactions take turns."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.address, self.path = "memory:", ""
        self._turn = threading.RLock()
        self._only = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)

    def _connect(self) -> sqlite3.Connection:
        return self._only

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            with self._turn:  # another thread may be in a transaction on it
                super()._disconnect(connection)

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], T], *, writing: bool, again: bool
    ) -> T:
        with self._turn:
            return super()._run(self._take(), work, writing=writing, again=again)  # it may have been closed meanwhile

    def _alone(self, sql: str, values: tuple[object, ...], *, writing: bool) -> tuple[list[Row], int]:
        with self._turn:
            return super()._alone(sql, values, writing=writing)

    def _forked(self) -> None:
        """Another thread of the parent may have held the turn; nobody here does."""
        super()._forked()
        self._turn = threading.RLock()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        """There is nothing to keep: the one connection is always at hand."""

    def _look_at_file(self) -> None:
        """There is no file that could go."""

    def _erases(self, tx: Transaction) -> None:
        """There is no file from which content has to go."""

    def _scrub(self) -> None:
        """There is no file that could remember."""

    def backup(self, target: str | os.PathLike[str]) -> None:
        with self._turn:
            super().backup(target)

    def close(self) -> None:
        super().close()
        self._disconnect(self._only)

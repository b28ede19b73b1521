"""Runs work in transactions: connections, retries, migration. What differs between back-ends is added by a subclass.

A transaction has no effect but its own, so one that lost a race, or whose connection was cut, is run again. A
connection serves one transaction at a time and is kept for the next, so a store may be used from many threads; a
forked process makes its own.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from contextc.errors import SchemaTooNew, StoreError, StoreUnavailable
from contextc.store.base import Dialect, Row, T, Transaction
from contextc.store.keeper import Keeper
from contextc.store.migrations import Migration, migrations

TRIES = 8


def jitter(seconds: float) -> float:
    """Somewhere between nothing and that long, so that those who collided do not meet again."""
    return seconds * os.urandom(1)[0] / 255


class Again(Exception):
    """The transaction lost a race and left no trace: run it again."""


class Cut(Exception):
    """The connection broke. `committing` says that the answer to a commit was lost, so its outcome is not known."""

    def __init__(self, *, committing: bool) -> None:
        self.committing = committing


Connection = TypeVar("Connection")


class Engine(ABC, Generic[Connection]):
    dialect: Dialect

    def __init__(self, address: str) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._inherited: list[Connection] = []
        self._keeper = Keeper()
        self._closed = False
        _OPEN.add(self)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run work that changes nothing on one consistent view of the store."""
        return self._attempt(work, writing=False, repeatable=True)

    def write(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> T:
        """Run work in one transaction. Where it loses a race it is run again, so it must have no other effect.

        `repeatable` work looks at `tx.again` and finds what it did before: it may be run again even where the
        connection broke while committing.
        """
        return self._attempt(work, writing=True, repeatable=repeatable)

    def close(self) -> None:
        """Close every connection. Leases that are still held run out by themselves."""
        self._closed = True
        self._keeper.stop()
        while self._idle:
            self._disconnect(self._idle.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """A script that simply ends has closed its store, too."""
        if not getattr(self, "_closed", True):
            with suppress(Exception):
                self.close()

    def migrate(self, steps: tuple[Migration, ...] | None = None) -> None:
        """Bring the schema up to date, or refuse a store that is ahead of us."""
        steps = steps or migrations()
        known = steps[-1].version
        if self.read(self._version) == known:
            return

        def work(tx: Transaction) -> None:
            self._lock_schema(tx)
            version = self._version(tx)
            if version > known:
                raise SchemaTooNew(self.address, found=version, known=known)
            for step in steps[version:]:
                for statement in step.statements:
                    tx.run(tx.dialect.ddl(statement))
            if version == 0:
                tx.run("CREATE TABLE schema_version (version INTEGER NOT NULL)")
                tx.run("INSERT INTO schema_version (version) VALUES (?)", known)
            else:
                tx.run("UPDATE schema_version SET version = ?", known)

        self.write(work)

    def _attempt(self, work: Callable[[Transaction], T], *, writing: bool, repeatable: bool) -> T:
        cut: Cut | None = None
        again = False
        for attempt in range(TRIES):
            try:
                connection = self._take()
            except StoreUnavailable:
                if cut is None or self._closed:
                    raise
                time.sleep(jitter(min(2, 0.1 * 2**attempt)))  # it broke a moment ago, and may be back in another
                continue
            try:
                result = self._run(connection, work, writing=writing, again=again)
            except Again:
                self._give_back(connection)
                time.sleep(jitter(0.001 * 2**attempt))
                continue
            except Cut as error:
                cut = error
                self._drop_all(connection)
                if cut.committing and not repeatable:
                    break
                again = again or cut.committing
                time.sleep(jitter(0.02 * 2**attempt))
                continue
            except StoreError:
                self._drop_all(connection)
                raise
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
            return result
        if cut is not None and (again or cut.committing):
            raise StoreUnavailable(
                f"The connection to {self.address} broke while committing, so whether the last change was stored is "
                "not known. Look before you repeat it."
            ) from cut.__cause__
        raise StoreUnavailable(
            f"{self.address} cut the connection, or refused the transaction, {TRIES} times in a row. Nothing was "
            "stored. Try again when it is back."
        ) from (cut.__cause__ if cut else None)

    def write_one(self, sql: str, *values: object) -> bool:
        """One statement as a transaction of its own, where the back-end has a short way for it; whether it changed a
        row. False where it did not, or has no short way: then do it with `write`.
        """
        return self._run_alone(sql, values)

    def read_one(self, sql: str, *values: object) -> list[Row] | None:
        """The rows of one SELECT as a transaction of its own, where the back-end has a short way for it; None where it
        has none: then use `read`.
        """
        return None

    def _run_alone(self, sql: str, values: tuple[object, ...]) -> bool:
        """Run one statement as a transaction of its own; whether it changed anything. A back-end may decline."""
        return False

    def _take(self) -> Connection:
        if self._closed:
            raise StoreUnavailable(f"The store {self.address} has been closed. Open it again with open_store.")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _give_back(self, connection: Connection) -> None:
        if self._closed or not self._is_clean(connection):
            self._disconnect(connection)
        else:
            self._idle.append(connection)

    def _forked(self) -> None:
        """In a child process: a connection must not be shared with the parent, not even to close it."""
        self._inherited += self._idle
        self._idle, self._keeper = [], Keeper()

    def _drop_all(self, connection: Connection) -> None:
        """After a failure of the store itself no connection is trusted any more."""
        self._disconnect(connection)
        while self._idle:
            self._disconnect(self._idle.pop())

    def _version(self, tx: Transaction) -> int:
        if not self._has_schema(tx):
            return 0
        row = tx.row("SELECT version FROM schema_version")
        return row[0] if row else 0

    @abstractmethod
    def _connect(self) -> Connection: ...

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None: ...

    @abstractmethod
    def _is_clean(self, connection: Connection) -> bool:
        """Whether no transaction was left open on a connection, as a signal at the wrong moment may do."""

    @abstractmethod
    def _run(self, connection: Connection, work: Callable[[Transaction], T], *, writing: bool, again: bool) -> T:
        """Run work in a transaction on a connection, and turn the driver's exceptions into ours, `Again` or `Cut`."""

    @abstractmethod
    def _has_schema(self, tx: Transaction) -> bool: ...

    @abstractmethod
    def _lock_schema(self, tx: Transaction) -> None:
        """Keep other processes from migrating the same store at once."""

    @abstractmethod
    def _scrub(self) -> None:
        """Make removed content unreadable in the files too, as far as the back-end allows."""

    def _erases(self, tx: Transaction) -> None:
        """Note, with the change itself, that it removes content which is still to leave the files."""


_OPEN: "WeakSet[Engine[Any]]" = WeakSet()


def _after_fork() -> None:
    for engine in _OPEN:
        engine._forked()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

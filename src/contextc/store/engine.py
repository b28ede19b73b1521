"""Runs work in transactions: connections, retries, migration. What differs between back-ends is added by a subclass.

A transaction has no effect but its own, so one that lost a race, or whose connection was cut, is run again. While the
server is away the operation waits for it, with growing pauses. Where the answer to a commit was lost, the back-end is
asked what became of it. A connection serves one transaction at a time and is kept for the next, so a store may be used
from many threads; a forked process makes its own.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast
from weakref import WeakSet

from contextc.errors import SchemaTooNew, StoreError, StoreUnavailable
from contextc.store.base import Dialect, Row, T, Transaction
from contextc.store.keeper import Keeper
from contextc.store.migrations import Migration, migrations

TRIES = 8
"""Lost races in a row, until an operation gives up."""
OUTAGE_SECONDS = 60.0
"""Time that an operation waits for a server that is away."""
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to connect. Where connections are made, and then cut, the next one is made sooner."""


def jitter(seconds: float) -> float:
    """Somewhere between nothing and that long, so that those who collided do not meet again."""
    return seconds * os.urandom(1)[0] / 255


class Again(Exception):
    """The transaction lost a race and left no trace: run it again."""


class Cut(Exception):
    """The connection broke, or none could be made for now.

    `committing` says that the answer to a commit was lost. `mark` then identifies the transaction for `_was_stored`,
    and `result` is what its work returned. `error` is raised where the outage does not end.
    """

    def __init__(
        self, *, committing: bool, mark: object = None, result: object = None, error: StoreUnavailable | None = None
    ) -> None:
        self.committing, self.mark, self.result, self.error = committing, mark, result, error


class Patience:
    """Growing pauses between tries, for a limited time from the first one on."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end, self._pause = seconds, 0.0, 0.02

    def pause(self, longest: float) -> bool:
        """Sleep for a moment; False, at once, where the time is over."""
        now = time.monotonic()
        self._end = self._end or now + self._seconds
        if now >= self._end:
            return False
        pause = min(longest, self._pause)
        time.sleep(min(self._end - now, pause / 4 + jitter(pause)))
        self._pause *= 2
        return True


Connection = TypeVar("Connection")


class Engine(ABC, Generic[Connection]):
    dialect: Dialect
    outage_seconds = OUTAGE_SECONDS

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
        connection broke while committing, and the server cannot tell the outcome.
        """
        return self._attempt(work, writing=True, repeatable=repeatable)

    def close(self) -> None:
        """Close every connection. Leases that are still held run out by themselves."""
        self._closed = True
        self._keeper.stop()
        self._drop_idle()

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
        races, again, patience = 0, False, Patience(self.outage_seconds)
        cut: Cut | None = None
        unknown: Cut | None = None  # a commit whose outcome has to be found out
        while races < TRIES:
            connection: Connection | None = None
            try:
                connection = self._take()
                if unknown is not None:
                    stored = self._was_stored(connection, unknown)
                    if stored:
                        self._give_back(connection)
                        return cast(T, unknown.result)
                    if stored is None and not repeatable:
                        self._give_back(connection)
                        break
                    again, unknown = again or stored is None, None
                result = self._run(connection, work, writing=writing, again=again)
            except Again:
                if connection is not None:
                    self._give_back(connection)
                time.sleep(jitter(0.001 * 2**races))
                races += 1
                continue
            except Cut as error:
                cut, unknown = error, error if error.committing else unknown
                self._drop_all(connection)
                if not patience.pause(LONGEST_PAUSE if error.error is not None else LONGEST_PAUSE / 10):
                    break
                continue
            except StoreError as error:
                if connection is not None:
                    self._after_failure(connection, error)
                raise
            except BaseException:
                if connection is not None:
                    self._give_back(connection)
                raise
            self._give_back(connection)
            return result
        if again or unknown is not None:
            raise StoreUnavailable(
                f"The connection to {self.address} broke while committing, so whether the last change was stored is "
                "not known. Look before you repeat it."
            ) from (cut.__cause__ if cut else None)
        if cut is not None and cut.error is not None:
            raise cut.error from cut.__cause__
        raise StoreUnavailable(
            f"{self.address} cut the connection for {self.outage_seconds:g} s, or refused the transaction {TRIES} "
            "times in a row. Nothing was stored. Try again when it is back."
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

    def _drop_all(self, connection: Connection | None) -> None:
        """After a failure of the store itself no connection is trusted any more."""
        if connection is not None:
            self._disconnect(connection)
        self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # other threads take from it, too
            while True:
                self._disconnect(self._idle.pop())

    def _after_failure(self, connection: Connection, error: StoreError) -> None:
        """Decide what becomes of the connection on which an operation failed."""
        self._drop_all(connection)

    def _was_stored(self, connection: Connection, lost: Cut) -> bool | None:
        """Find out whether a transaction was committed whose answer was lost; None where that cannot be known.

        Raises `Cut` where the server has not decided yet.
        """
        return None

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

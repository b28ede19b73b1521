"""Transactions: connections, retries and migration, for all back-ends, and a background scheduler. Subclasses add what
differs.

Work in a transaction has no other effects, so it is retried after a conflict or a broken connection. While the server
is unavailable, the operation waits with growing pauses. If the connection broke during commit, the back-end is asked
for the outcome. A connection runs one transaction at a time and is then reused, so many threads can share a store. A
forked process opens its own connections.

The scheduler has one thread per store, which renews leases and journals streams on time. The thread starts with the
first task and sleeps until the next one is due. A shared task runs once for all its items that are due, and before
other tasks, so leases are renewed on time however many there are. A task that fails is logged and retried at its next
interval.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast
from weakref import WeakSet

from contextc._credential_mask import get_logger
from contextc.errors import SchemaTooNew, StoreError, StoreUnavailable
from contextc.store.backend_interface import Dialect, Result, Row, Transaction
from contextc.store.change_notifications import ChangeListener
from contextc.store.migrations import Migration, migrations

TaskItem = TypeVar("TaskItem")
THREAD_NAME = "contextc-keeper"
"""The name of the thread. A store with a connection limit reserves one connection for it."""


class _Task(NamedTuple):
    due: float
    seconds: float
    shared: bool
    run: Callable[[list[Any]], None]  # items of any type
    thing: Any


class Scheduler:
    def __init__(self) -> None:
        self._tasks: dict[int, _Task] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._count = 0

    def run_every(self, seconds: float, task: Callable[[], None]) -> Callable[[], None]:
        """Call the task periodically. Return a function that stops it."""

        def run(_: list[Any]) -> None:
            task()

        return self._add(_Task(time.monotonic() + seconds, seconds, False, run, None))

    def run_every_for(
        self, seconds: float, item: TaskItem, task: Callable[[list[TaskItem]], None]
    ) -> Callable[[], None]:
        """Call the task periodically with all its items that are due. Return a function that removes `item`."""
        return self._add(_Task(time.monotonic() + seconds, seconds, True, task, item))

    def _add(self, task: _Task) -> Callable[[], None]:
        with self._changed:
            self._count += 1
            number = self._count
            self._tasks[number] = task
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._changed.notify()

        def stop() -> None:
            with self._changed:
                self._tasks.pop(number, None)
                self._changed.notify()

        return stop

    def stop(self) -> None:
        """Remove all tasks."""
        with self._changed:
            self._tasks.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._tasks:
                    self._thread = None
                    return
                now = time.monotonic()
                first = min(self._tasks.values(), key=lambda task: (max(task.due, now), not task.shared, task.due))
                if first.due > now:
                    self._changed.wait(first.due - now)
                    continue
                things: list[Any] = []
                for number, task in self._tasks.items():
                    if task.run == first.run and task.due <= now:
                        things.append(task.thing)
                        self._tasks[number] = task._replace(due=now + task.seconds)
            try:
                first.run(things)
            except Exception as error:
                log_warning(f"background task of the store failed: {error}")


def log_warning(text: str) -> None:

    get_logger("contextc.store").warning(text)


MAX_CONFLICTS = 8
"""Number of consecutive conflicts after which an operation fails."""
OUTAGE_SECONDS = 60.0
"""Time that an operation waits for an unavailable server."""
MAX_PAUSE_SECONDS = 1.0
"""Seconds between two attempts to connect. After a connection that broke, the pause is a tenth of it."""


def jitter(seconds: float) -> float:
    """Return a random duration up to `seconds`, so that conflicting writers do not collide again."""
    return seconds * os.urandom(1)[0] / 255


class RetryTransaction(Exception):
    """A conflict with another transaction. Nothing was stored: retry."""


class ConnectionLost(Exception):
    """The connection broke, or the server accepts none at the moment.

    `during_commit` is True if it broke during commit. `transaction_id` then identifies the transaction for
    `_was_committed`, and
    `result` is the return value of its work. `error` is raised if the outage does not end.
    """

    def __init__(
        self,
        *,
        during_commit: bool,
        transaction_id: object = None,
        result: object = None,
        error: StoreUnavailable | None = None,
    ) -> None:
        self.during_commit, self.transaction_id, self.result, self.error = during_commit, transaction_id, result, error


class Backoff:
    """Growing pauses between retries, for a limited time after the first."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end, self._pause = seconds, 0.0, 0.02

    def pause(self, longest: float) -> bool:
        """Sleep, and return True. Return False at once if the time is over."""
        now = time.monotonic()
        self._end = self._end or now + self._seconds
        if now >= self._end:
            return False
        pause = min(longest, self._pause)
        time.sleep(min(self._end - now, pause / 4 + jitter(pause)))
        self._pause *= 2
        return True


Connection = TypeVar("Connection")


class TransactionEngine(ABC, Generic[Connection]):
    dialect: Dialect
    outage_seconds = OUTAGE_SECONDS

    def __init__(self, address: str) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._inherited: list[Connection] = []
        self._scheduler = Scheduler()
        self._closed = False
        _OPEN.add(self)

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run read-only work on one consistent snapshot of the store."""
        return self._run_with_retries(work, writing=False, repeatable=True)

    def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Run work in one transaction. It is retried after a conflict, so it must have no other effects.

        `repeatable` work checks `tx.is_retry` and finds the changes of an earlier attempt. It is retried even if the
        connection broke during commit and the server does not report the outcome.
        """
        return self._run_with_retries(work, writing=True, repeatable=repeatable)

    def close(self) -> None:
        """Close all connections. Leases that are still held expire."""
        self._closed = True
        self._scheduler.stop()
        self._drop_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Close a store that was not closed explicitly."""
        if not getattr(self, "_closed", True):
            with suppress(Exception):
                self.close()

    def migrate(self, steps: tuple[Migration, ...] | None = None) -> None:
        """Migrate the schema to the current version. Raise `SchemaTooNew` if the store is newer."""
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
                for statement in [tx.dialect.translate_ddl(each) for each in step.statements]:
                    if statement:
                        tx.run(statement.replace("{schema}", tx.schema))
            if version == 0:
                tx.run("CREATE TABLE schema_version (version INTEGER NOT NULL)")
                tx.run("INSERT INTO schema_version (version) VALUES (?)", known)
            else:
                tx.run("UPDATE schema_version SET version = ?", known)

        self.write(work)

    def _run_with_retries(self, work: Callable[[Transaction], Result], *, writing: bool, repeatable: bool) -> Result:
        races, again, patience = 0, False, Backoff(self.outage_seconds)
        cut: ConnectionLost | None = None
        unknown: ConnectionLost | None = None  # a commit whose outcome is unknown
        while races < MAX_CONFLICTS:
            connection: Connection | None = None
            try:
                connection = self._checkout()
                if unknown is not None:
                    stored = self._was_committed(connection, unknown)
                    if stored:
                        self._checkin(connection)
                        return cast(Result, unknown.result)
                    if stored is None and not repeatable:
                        self._checkin(connection)
                        break
                    again, unknown = again or stored is None, None
                result = self._run(connection, work, writing=writing, again=again)
            except RetryTransaction:
                if connection is not None:
                    self._checkin(connection)
                time.sleep(jitter(0.001 * 2**races))
                races += 1
                continue
            except ConnectionLost as error:
                cut, unknown = error, error if error.during_commit else unknown
                self._drop_all(connection)
                if not patience.pause(MAX_PAUSE_SECONDS if error.error is not None else MAX_PAUSE_SECONDS / 10):
                    break
                continue
            except StoreError as error:
                if connection is not None:
                    self._after_failure(connection, error)
                raise
            except BaseException:
                if connection is not None:
                    self._checkin(connection)
                raise
            self._checkin(connection)
            return result
        if again or unknown is not None:
            raise StoreUnavailable(
                f"{self.address}: the connection broke while committing, and it is unknown whether the last change "
                "was stored",
                fix="Load the conversation before you retry.",
            ) from (cut.__cause__ if cut else None)
        if cut is not None and cut.error is not None:
            raise cut.error from cut.__cause__
        raise StoreUnavailable(
            f"{self.address}: the connection broke repeatedly for {self.outage_seconds:g} s, or the transaction "
            f"conflicted with others {MAX_CONFLICTS} times in a row",
            fix="Nothing was stored. Retry later.",
        ) from (cut.__cause__ if cut else None)

    def open_listener(self) -> ChangeListener | None:
        """Return a listener for changes of conversations, or None if the back-end has none. Then poll."""
        return None

    def try_write_statement(self, sql: str, *values: object) -> bool:
        """Run one statement as its own transaction, if the back-end has a fast path. Return True if it changed a row.

        On False (no change, or no fast path) use `write`.
        """
        return self._run_single_statement(sql, values)

    def try_read_statement(self, sql: str, *values: object) -> list[Row] | None:
        """Return the rows of one SELECT as its own transaction, or None if the back-end has no fast path.

        On None use `read`.
        """
        return None

    def _run_single_statement(self, sql: str, values: tuple[object, ...]) -> bool:
        """Run one statement as its own transaction. Return True if it changed a row; the default is unsupported."""
        return False

    def _checkout(self) -> Connection:
        if self._closed:
            raise StoreUnavailable(f"{self.address}: the store has been closed", fix="Open it again with open_store.")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _checkin(self, connection: Connection) -> None:
        if self._closed or not self._is_clean(connection):
            self._disconnect(connection)
        else:
            self._idle.append(connection)

    def _reset_after_fork(self) -> None:
        """Set connections aside in a child process: they belong to the parent and must not even be closed here."""
        self._inherited += self._idle
        self._idle, self._scheduler = [], Scheduler()

    def _drop_all(self, connection: Connection | None) -> None:
        """Close all connections after a failure of the store itself."""
        if connection is not None:
            self._disconnect(connection)
        self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # other threads also take connections
            while True:
                self._disconnect(self._idle.pop())

    def _after_failure(self, connection: Connection, error: StoreError) -> None:
        """Keep or close the connection on which an operation failed."""
        self._drop_all(connection)

    def _was_committed(self, connection: Connection, lost: ConnectionLost) -> bool | None:
        """Return True if the transaction of a broken connection was committed, None if that is unknown.

        Raises `ConnectionLost` if the transaction is still in progress.
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
        """Return True if the connection has no open transaction, as a signal handler may leave one."""

    @abstractmethod
    def _run(
        self, connection: Connection, work: Callable[[Transaction], Result], *, writing: bool, again: bool
    ) -> Result:
        """Run work in a transaction on a connection.

        Map the driver's exceptions to ours, `RetryTransaction` or `ConnectionLost`.
        """

    @abstractmethod
    def _has_schema(self, tx: Transaction) -> bool: ...

    @abstractmethod
    def _lock_schema(self, tx: Transaction) -> None:
        """Lock the store against migration by other processes."""

    @abstractmethod
    def _erase_removed_content(self) -> None:
        """Erase removed content from the files too, as far as the back-end allows."""

    def _record_erasure(self, tx: Transaction) -> None:
        """Record, in the same transaction, that removed content must still be erased from the files."""


_OPEN: "WeakSet[TransactionEngine[Any]]" = WeakSet()


def _after_fork() -> None:
    for engine in _OPEN:
        engine._reset_after_fork()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

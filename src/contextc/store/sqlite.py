"""The SQLite back-end: the embedded default, and the in-memory store.

It uses WAL, so that readers and a writer do not block each other, and full sync, so that a committed transaction
survives a power failure. A writer takes the write lock at its first statement, so a running transaction cannot
conflict. SQLite continues to write to a file that was deleted or moved; this module detects that and raises.

The in-memory store is SQLite without a file. It behaves like the durable one except for durability.
"""

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from threading import get_ident
from time import monotonic, sleep
from typing import Any, Protocol

from contextc.errors import (
    ContextcError,
    InvalidInput,
    InvalidSetting,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from contextc.store import open_for_inspection
from contextc.store.message_log import now_ms
from contextc.store.migrations import migrations
from contextc.store.store import engine_of
from contextc.store.transaction_engine import (
    Dialect,
    LockedRows,
    Result,
    Row,
    Transaction,
    TransactionEngine,
    jitter,
    log_warning,
)

# ── group commit ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Group commit: concurrent writers of one process share a transaction.
#
# A commit costs one disk sync, however much it contains. While one writer waits for the sync, the others queue. The
# first in the queue (the leader) then runs the work of all queued writers in one transaction. Each runs in a
# savepoint, so a failure affects only its own work. If the group cannot be stored, nothing was stored, and each writer
# then runs alone once to get its own error. A single writer does not wait.
#
# Python runs signal handlers on the main thread, which may raise anywhere. The main thread therefore never queues, and
# never shares a transaction. It alternates with the leaders. All its locks are held by `with`, so an interrupt
# releases them.


MAX_GROUP_SIZE = 100
"""Maximum number of writers in one transaction."""


class GroupRunner(Protocol):
    """Runs several pieces of work in one transaction. Returns an outcome for each, or None if nothing was stored."""

    def __call__(self, works: Sequence[Callable[[Transaction], Any]]) -> "list[WorkOutcome] | None": ...


class WorkOutcome:
    """The result of a piece of work: its return value or its exception."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:  # any return type
        self.value, self.error = value, error


class _QueuedWriter:
    """A queued writer. `outcome` is set if a leader ran its work; otherwise the writer leads itself.

    `alone` is True after its group could not be stored: it joins no other group.
    """

    __slots__ = ("_turn", "alone", "outcome", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.alone = False
        self.outcome: WorkOutcome | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        self._turn.acquire()

    def call(self) -> None:
        self._turn.release()


class WriteQueue:
    """The queue of writers of one process."""

    def __init__(self, together: GroupRunner) -> None:
        self._run_group = together
        self._mutex = threading.Lock()
        self._waiting: list[_QueuedWriter] = []
        self._busy = False
        self._inside: set[int] = set()
        """Threads that are writing or queued: a nested write would deadlock."""
        self._disk = threading.Lock()
        """Held by the thread that writes."""
        self._main_thread = threading.Lock()
        """Held by the main thread while it writes or is next: leaders wait meanwhile."""
        self._leader_waits = threading.Lock()
        """Held by a waiting leader: the main thread cannot overtake it twice."""

    def write(self, work: Callable[[Transaction], Result], run_alone: Callable[[], Result]) -> Result:
        """Run work in a group, or by calling `run_alone`."""
        # A signal's handler runs after a call: there is none between the work and the end of `finally` but `discard`.
        me = get_ident()
        self._check_not_nested(me)
        try:
            self._inside.add(me)
            if me == _main_thread:
                return self._write_on_main_thread(run_alone)
            return self._queue_and_run(_QueuedWriter(work), run_alone)
        finally:
            self._inside.discard(me)

    def try_now(self, statement: Callable[[], bool]) -> bool:
        """Run one short statement if no other thread writes. Otherwise return False: queue it with `write`."""
        me = get_ident()
        self._check_not_nested(me)
        try:
            self._inside.add(me)
            return self._write_on_main_thread(statement) if me == _main_thread else self._run_if_free(statement)
        finally:
            self._inside.discard(me)

    def _check_not_nested(self, me: int) -> None:
        """Raise `InvalidInput` if this thread writes already."""
        if me in self._inside:
            raise InvalidInput(
                "A write was started inside another one of the same thread, which would deadlock",
                fix="Use the transaction that the work received, or write after it has returned.",
            )

    def _write_on_main_thread(self, write: Callable[[], Result]) -> Result:
        """Write on the main thread."""
        with self._leader_waits:
            pass
        with self._main_thread, self._disk:
            return write()

    def _run_if_free(self, statement: Callable[[], bool]) -> bool:
        with self._mutex:
            if self._busy:
                return False
            self._busy = True
        return self._lead(statement)

    def _queue_and_run(self, writer: _QueuedWriter, alone: Callable[[], Result]) -> Result:
        with self._mutex:
            leads, self._busy = not self._busy, True
            if not leads:
                self._waiting.append(writer)
        if not leads:
            writer.wait()
        if writer.outcome is None:
            return self._lead(lambda: self._run_queued(writer, alone))
        if writer.outcome.error is not None:
            raise writer.outcome.error
        return writer.outcome.value

    def _lead(self, write: Callable[[], Result]) -> Result:
        """Write when the main thread does not; then make the next writer lead."""
        with self._leader_waits:
            with self._main_thread:
                pass
            self._disk.acquire()
        try:
            return write()
        finally:
            self._disk.release()
            self._wake_next()

    def _run_queued(self, writer: _QueuedWriter, alone: Callable[[], Result]) -> Result:
        """Run the work of all queued writers, or of this one alone if no other is queued."""
        others = [] if writer.alone else self._take_others()
        if not others:
            return alone()
        found: list[WorkOutcome] | None = None
        try:
            found = self._run_group([writer.work, *[other.work for other in others]])
        finally:
            if found is None:  # nothing was stored: each runs alone
                for other in others:
                    other.alone = True
                with self._mutex:
                    self._waiting[:0] = others
            else:
                for other, outcome in zip(others, found[1:], strict=True):
                    other.outcome = outcome
                    other.call()
        if found is None:
            return alone()
        if found[0].error is not None:
            raise found[0].error
        return found[0].value

    def _take_others(self) -> list[_QueuedWriter]:
        with self._mutex:
            others = [each for each in self._waiting if not each.alone][: MAX_GROUP_SIZE - 1]
            taken = set(others)
            self._waiting = [each for each in self._waiting if each not in taken]
        return others

    def _wake_next(self) -> None:
        """Make the next writer lead."""
        with self._mutex:
            after = self._waiting.pop(0) if self._waiting else None
            self._busy = after is not None
        if after is not None:
            after.call()


_main_thread = threading.main_thread().ident
"""The main thread: in a forked process the one that forked it."""


def _find_main_thread() -> None:
    global _main_thread
    _main_thread = threading.main_thread().ident


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_main_thread)


# ── the back-end ──────────────────────────────────────────────────────────────────────────────────────────────────────


SQLITE = Dialect(
    name="sqlite",
    row_lock="",
    now="((julianday('now') - 2440587.5) * 86400.0)",
    integrity_query="PRAGMA integrity_check",
)
BUSY_SECONDS = 60
ERASE_WAIT_SECONDS = 0.2  # how long a redaction waits for readers; other writers wait meanwhile
ERASE_RETRY_SECONDS = 1.0
FILE_CHECK_SECONDS = 0.02  # a check costs as much as a small write, so a burst of writes shares one
MIN_SQLITE_VERSION = (3, 35, 0)
PRIVATE_MODE = 0o600


class SQLiteTransaction:
    """SQL on one connection, between BEGIN and COMMIT."""

    dialect = SQLITE
    schema = ""
    is_retry = False
    locked: LockedRows | None = None
    __slots__ = ("_execute", "_executemany")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute, self._executemany = connection.execute, connection.executemany

    def run(self, sql: str, *values: object) -> int:
        return self._execute(sql, values).rowcount  # pyright: ignore[reportArgumentType]

    def send(self, sql: str, *values: object) -> None:
        self._execute(sql, values)  # pyright: ignore[reportArgumentType]

    def prefetch(self, sql: str, *values: object) -> None:
        """Do nothing: no query waits for a server."""

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._executemany(sql, rows)  # pyright: ignore[reportArgumentType]

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._execute(sql, values).fetchall()  # pyright: ignore[reportArgumentType]

    def row(self, sql: str, *values: object) -> Row | None:
        return self._execute(sql, values).fetchone()  # pyright: ignore[reportArgumentType]


class SQLiteEngine(TransactionEngine[sqlite3.Connection]):
    dialect = SQLITE

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        path = os.path.expanduser(path)
        super().__init__(f"sqlite:///{path}")
        self.path, self.is_read_only = path, read_only
        self._file: tuple[int, int] | None = None
        self._looked = 0.0
        self._write_queue = WriteQueue(self._run_group)
        self._stop_erasing: Callable[[], None] | None = None
        if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
            raise StoreUnavailable(
                "SQLite must be version 3.35 or newer", got=sqlite3.sqlite_version, fix="Use a newer Python."
            )

    def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        alone = partial(self._run_with_retries, work, writing=True, repeatable=repeatable)
        return self._write_queue.write(work, alone)

    def _run_group(self, works: Sequence[Callable[[Transaction], Any]]) -> list[WorkOutcome] | None:
        """Run the work of several writers in one transaction."""

        def all_of_them(tx: Transaction) -> list[WorkOutcome]:
            return [self._run_in_savepoint(tx, work) for work in works]

        try:
            connection = self._checkout()
        except StoreError:
            return None
        try:
            found = self._run(connection, all_of_them, writing=True, again=False)
        except StoreBusy as error:  # all of them have waited for the full time
            self._drop_all(connection)
            return [WorkOutcome(error=error) for _ in works]
        except StoreError:
            self._drop_all(connection)
            return None
        except BaseException:
            self._checkin(connection)
            raise
        self._checkin(connection)
        return found

    def _run_in_savepoint(self, tx: Transaction, work: Callable[[Transaction], Any]) -> WorkOutcome:
        tx.run("SAVEPOINT one")
        try:
            found = WorkOutcome(work(tx))
        except (sqlite3.Error, StoreError):  # a failure of the store affects the whole group
            raise
        except BaseException as error:  # a failure of this writer only
            tx.run("ROLLBACK TO one")
            found = WorkOutcome(error=error)
        tx.run("RELEASE one")
        return found

    def reset_after_fork(self) -> None:
        """Replace the write queue, which another thread of the parent process may have held."""
        super().reset_after_fork()
        self._write_queue = WriteQueue(self._run_group)
        self._stop_erasing = None

    def _connect(self) -> sqlite3.Connection:
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise StoreUnavailable(
                f"{self.address}: folder {folder} not found", fix="Create it, or choose another path."
            )
        if self._file is not None:
            self._check_file()
        try:
            connection = self._open_file()
        except sqlite3.Error as error:
            raise self._map_error(error) from error
        if self._file is None:
            self._file = _file_identity(self.path)
        return connection

    def _open_file(self) -> sqlite3.Connection:
        if not self.is_read_only:
            self._make_private()
            return self._open("mode=rwc", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")
        try:
            return self._open("mode=ro", "schema_version")
        except sqlite3.OperationalError:
            if os.path.exists(f"{self.path}-wal") or not os.path.exists(self.path):
                raise
            # A reader of a WAL file creates a small file beside it, which fails in a read-only folder. Without a log
            # the file is complete and can be opened as immutable.
            return self._open("mode=ro&immutable=1", "schema_version")

    def _make_private(self) -> None:
        """Create a new file that only its owner can read. SQLite uses the same mode for the files beside it."""
        with suppress(OSError):  # it exists, or cannot be created: opening it then raises
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))

    def _open(self, how: str, *pragmas: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{_quote(self.path)}?{how}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for pragma in pragmas:
                _set_pragma(connection, pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            connection.close()

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], Result], *, writing: bool, again: bool
    ) -> Result:
        try:
            try:
                connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                result = work(SQLiteTransaction(connection))
                connection.execute("COMMIT")
                if writing:
                    self._check_file()
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._map_error(error) from error
        return result

    def _is_clean(self, connection: sqlite3.Connection) -> bool:
        return not connection.in_transaction

    def try_read_statement(self, sql: str, values: tuple[object, ...]) -> list[Row] | None:
        return self._execute_single(sql, values, writing=False)[0]

    def try_write_statement(self, sql: str, values: tuple[object, ...]) -> bool:
        return self._write_queue.try_now(lambda: self._execute_single(sql, values, writing=True)[1] == 1)

    def _execute_single(self, sql: str, values: tuple[object, ...], *, writing: bool) -> tuple[list[Row], int]:
        """Run one statement outside a transaction. Return its rows and the number of changed rows."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._checkout()
        try:
            cursor = connection.execute(sql, values)  # pyright: ignore[reportArgumentType]
            rows = cursor.fetchall()
            if writing and monotonic() - self._looked > FILE_CHECK_SECONDS:
                self._check_file()
        except BaseException as error:
            self._drop_all(connection)
            if isinstance(error, sqlite3.Error):
                raise self._map_error(error) from error
            raise
        if self.is_closed:
            self._disconnect(connection)
        else:
            self._idle.append(connection)  # a single statement leaves no transaction open
        return rows, cursor.rowcount

    def _check_file(self) -> None:
        """Raise `StoreUnavailable` if the file was removed or replaced."""
        self._looked = monotonic()
        found = _file_identity(self.path)
        if found != self._file:
            self.is_closed = True
            what = "was replaced by another file" if found else "was removed"
            raise StoreUnavailable(
                f"{self.address} {what} while it was open; later changes are lost",
                fix="Put the file back or restore a backup, then open it again. Opening a path without a file creates "
                "an empty store.",
            )

    def backup(self, target: str | os.PathLike[str]) -> None:
        connection = self._checkout()
        try:
            write_copy(connection, os.fspath(target))
        except sqlite3.Error as error:
            raise self._map_error(error) from error
        finally:
            self._checkin(connection)

    def schema_version(self) -> int:
        """Return the version of the schema, 0 if there is none."""
        return self.read(self._version)

    def initialize(self) -> None:
        if not self.is_read_only:
            super().initialize()
            self.erase_removed_content()  # finish the erasures of a process that ended before the log was truncated
        elif (version := self.read(self._version)) != (known := migrations()[-1].version):
            if version > known:
                raise SchemaTooNew(self.address, found=version, known=known)
            raise StoreReadOnly(
                f"{self.address} has an older schema and was opened read-only", fix="Open it once without ?mode=ro."
            )

    def _has_schema(self, tx: Transaction) -> bool:
        tables = {row[0] for row in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "schema_version" not in tables:
            raise StoreCorrupt(
                f"{self.address} is a SQLite file of another program (it has a table {min(tables)!r})",
                fix="Choose another path. The file was not changed.",
            )
        return bool(tables)

    def _lock_schema(self, tx: Transaction) -> None:
        """Do nothing: BEGIN IMMEDIATE has already taken the only write lock."""

    def record_erasure(self, tx: Transaction) -> None:
        tx.run("INSERT INTO main.erasure (time) VALUES (?)", now_ms())

    def count_pending_erasures(self) -> int:
        return self.read(lambda tx: tx.rows("SELECT count(*) FROM main.erasure")[0][0])

    def erase_removed_content(self) -> None:
        """Truncate the write-ahead log. If a reader still needs it, retry in the background.

        Freed pages of the file itself are zeroed at once.
        """
        if self._truncate_log(ERASE_WAIT_SECONDS) or self._stop_erasing is not None:
            return
        log_warning(
            f"{self.address}: redacted or deleted content stays in the write-ahead log while another connection "
            "reads from it. It is removed when that reader ends."
        )
        self._stop_erasing = self.scheduler.run_every(ERASE_RETRY_SECONDS, self._retry_erasure)

    def _retry_erasure(self) -> None:
        if self._truncate_log(0) and self._stop_erasing is not None:
            self._stop_erasing()
            self._stop_erasing = None

    def _truncate_log(self, wait: float) -> bool:
        """Truncate the log, waiting up to `wait` seconds for readers. Return True if it holds no erased content."""
        connection = self._checkout()
        try:
            ((last,),) = connection.execute("SELECT max(number) FROM main.erasure").fetchall()
            busy = 0
            if last is not None:
                connection.execute(f"PRAGMA busy_timeout = {wait * 1000:.0f}")
                ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        except sqlite3.Error:  # the change is stored, and the erasure is recorded for a retry
            self._drop_all(connection)
            return False
        self._checkin(connection)
        if busy or last is None:
            return not busy
        with suppress(StoreError):  # otherwise the erasure is repeated
            self.write(lambda tx: tx.run("DELETE FROM main.erasure WHERE number <= ?", last))
            return True
        return False

    def _map_error(self, error: sqlite3.Error) -> ContextcError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if self.is_read_only and name.startswith("SQLITE_READONLY"):
            return StoreReadOnly(
                f"{self.address} is read-only: it was opened with ?mode=ro", fix="Open it without ?mode=ro."
            )
        for prefix, kind, advice in ERROR_MAP:
            if name.startswith(prefix):
                return kind(f"{self.address}: {error}", fix=advice)
        return StoreError(f"{self.address}: {error} ({name or type(error).__name__})", fix="Nothing was written.")


ERROR_MAP: tuple[tuple[str, type[StoreError], str], ...] = (
    ("SQLITE_FULL", StoreFull, "Nothing was written. Free disk space and retry."),
    (
        "SQLITE_READONLY",
        StoreReadOnly,
        "Change the permissions of the file and its folder, or copy it.",
    ),
    ("SQLITE_BUSY", StoreBusy, f"Other writers held the lock for {BUSY_SECONDS} s. Nothing was written. Retry."),
    (
        "SQLITE_CORRUPT",
        StoreCorrupt,
        "The file is corrupt. Restore a backup, or recover it with the sqlite3 program.",
    ),
    ("SQLITE_NOTADB", StoreCorrupt, "This is not a SQLite file. Choose another path. The file was not changed."),
    ("SQLITE_CANTOPEN", StoreUnavailable, "Check the path and its permissions."),
    (
        "SQLITE_IOERR",
        StoreUnavailable,
        "Nothing was written. Check the disk and retry.",
    ),
    ("SQLITE_TOOBIG", StoreError, "Split the message, or store its content as Media."),
)


def _set_pragma(connection: sqlite3.Connection, pragma: str) -> None:
    """Set a pragma. Retry while busy: two processes that enable WAL at once get that error without waiting."""
    end = monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}").fetchall()
            return
        except sqlite3.OperationalError as error:
            if not (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY") or monotonic() > end:
                raise
        sleep(0.005 + jitter(0.02))


def _quote(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def write_copy(source: sqlite3.Connection, target: str) -> None:
    """Write the content that a connection sees into a new file, verified and synced, or create no file."""
    if os.path.lexists(target):
        raise InvalidSetting(f"{target}: the file already exists", fix="Choose another name.")
    partial = f"{target}.part"
    try:
        remove_if_exists(partial)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, readable from a read-only folder
            if (found := copy.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                raise StoreCorrupt(f"{target}: the copy is corrupt: {found[0][0]}", fix="Check the store itself.")
            if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'erasure'").fetchall():
                copy.execute("DELETE FROM main.erasure")  # the copy has no log that could hold erased content
        sync_to_disk(partial)
        os.rename(partial, target)
        sync_to_disk(os.path.dirname(os.path.abspath(target)))
    except OSError as error:
        raise StoreUnavailable(f"{target}: cannot write the copy: {error.strerror}", fix="Check the folder.") from error
    finally:
        with suppress(OSError):
            os.remove(partial)


def remove_if_exists(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def sync_to_disk(path: str) -> None:
    """Sync a file or a folder. Windows can sync files alone, and only those that are open for writing."""
    is_folder = os.path.isdir(path)
    if is_folder and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class MemoryEngine(SQLiteEngine):
    """A store on a single connection; transactions run one after the other."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.address, self.path = "memory:", ""
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def initialize(self) -> None:
        """Copy the tables of an empty store, in a tenth of the time that the migrations take."""
        _empty_store()._connection.backup(self._connection)
        super().initialize()

    def _connect(self) -> sqlite3.Connection:
        return self._connection

    def _checkout(self) -> sqlite3.Connection:
        return super()._checkout() if self.is_closed else self._connection  # raises if closed

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        if self.is_closed:
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

    def reset_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent process may have held."""
        super().reset_after_fork()
        self._lock = threading.RLock()

    def _checkin(self, connection: sqlite3.Connection) -> None:
        """Do nothing: the only connection is always available."""

    def _check_file(self) -> None:
        """Do nothing: there is no file."""

    def record_erasure(self, tx: Transaction) -> None:
        """Do nothing: there is no file."""

    def erase_removed_content(self) -> None:
        """Do nothing: there is no file."""

    def backup(self, target: str | os.PathLike[str]) -> None:
        with self._lock:
            super().backup(target)

    def close(self) -> None:
        super().close()
        self._disconnect(self._connection)


@cache
def _empty_store() -> MemoryEngine:
    """Return a store with all tables and no rows. It stays: programs whose tests have a store each open thousands."""
    engine = MemoryEngine()
    engine.migrate()
    return engine


# ── restore from a copy ───────────────────────────────────────────────────────────────────────────────────────────────
# Restore of SQLite stores from copies, which are verified before use. `SQLiteEngine.backup` makes them.
#
# A store in WAL mode is up to three files. Copying one of them alone, or placing a copy beside the log of another
# file, loses or corrupts data. Copies are therefore made with SQLite's backup API: one consistent snapshot in one file
# without a log. Restoring first merges the log of the previous store into its file, or moves both aside together.


SIDE_FILES = ("-wal", "-shm", "-journal")
RESTORE_WAIT_SECONDS = 1.0


def restore(source: str | os.PathLike[str], address: str) -> str | None:
    """Replace the SQLite store at an address with a copy. Return the path of the previous store, or None.

    Raises `StoreBusy` if another process has the store open.
    """
    source = os.fspath(source)
    with open_for_inspection(address) as store:
        engine = engine_of(store)
        path = engine.path if isinstance(engine, SQLiteEngine) else ""
    if not path:
        raise InvalidSetting(
            f"{address}: only a SQLite store can be restored from a file", fix="Use pg_restore or psql."
        )
    check_backup_file(source)
    if os.path.exists(path) and os.path.samefile(source, path):
        raise InvalidSetting(f"{source}: this is the store itself", fix="Give the file of a backup.")
    partial = f"{path}.restoring"
    remove_if_exists(partial)
    try:
        with closing(SQLiteEngine(source, read_only=True)) as copy:
            version, known = copy.schema_version(), migrations()[-1].version
            if version > known:
                raise SchemaTooNew(copy.address, found=version, known=known)
            if version > 0:
                copy.backup(partial)
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{source}: the file is corrupt, or not a SQLite file",
            fix="Give the file of another backup. Nothing was changed.",
        ) from error
    if version == 0:
        raise StoreCorrupt(f"{source}: not a contextc store", fix="Give the file of a backup.")
    try:
        _check_objects(source, partial, version)
        aside = _move_aside(path)
        os.replace(partial, path)
        sync_to_disk(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot write the store: {error.strerror}", fix="Check the folder.") from error
    finally:
        with suppress(OSError):
            os.remove(partial)
    return aside


def _check_objects(source: str, path: str, version: int) -> None:
    """Raise StoreCorrupt if a file has a trigger, a view or a table that no migration made: they could change what is
    stored later. Its tables and indexes must have their own type, its triggers and virtual tables their own text."""
    query = (
        "SELECT type, name, CASE WHEN type = 'trigger' OR sql LIKE 'CREATE VIRTUAL %' THEN sql END"
        " FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    )
    with closing(sqlite3.connect(":memory:")) as own, closing(sqlite3.connect(path)) as copy:
        for statement in [each for step in migrations()[:version] for each in step.statements]:
            own.execute(SQLITE.translate_ddl(statement))
        known = {*own.execute(query).fetchall(), ("table", "schema_version", None)}
        foreign = sorted([row[:2] for row in copy.execute(query) if row not in known])
    if foreign:
        kind, name = foreign[0]
        raise StoreCorrupt(
            f"{source}: {kind} {name!r} is not part of a contextc store",
            fix="Give the file of another backup. Nothing was changed.",
        )


def check_backup_file(source: str) -> None:
    if not os.path.isfile(source):
        raise InvalidSetting(f"{source}: file not found", fix="Give the file of a backup.")


def remove_empty_store(path: str) -> None:
    """Remove the file of a SQLite store that has no rows and that no other process has open."""
    with suppress(StoreError, sqlite3.Error, OSError):
        if not _merge_log(path):
            return
        with closing(sqlite3.connect(path, timeout=RESTORE_WAIT_SECONDS, isolation_level=None)) as store:
            store.execute("BEGIN EXCLUSIVE")  # a process that opens it now waits, and then finds no file
            named = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            others = ("schema_version", "sqlite_sequence", "search_term")  # FTS5 has rows of its own
            tables = [name for (name,) in named if not name.startswith(others)]
            if not any(store.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in tables):
                os.remove(path)


def _move_aside(path: str) -> str | None:
    """Move the previous store with all its files to another name. Return that name, or None if there was no store."""
    aside = _find_free_name(path)
    if os.path.exists(path):
        with suppress(OSError):  # SQLite deletes a log that it cannot read; keep it for recovery tools
            os.link(f"{path}-wal", f"{aside}-wal")
        is_damaged = False
        try:
            is_damaged = not _merge_log(path)
        finally:
            if not is_damaged:
                remove_if_exists(f"{aside}-wal")
        try:
            os.link(path, aside)  # the old name keeps a complete store until the copy replaces it
        except OSError:  # the file system has no hard links
            os.rename(path, aside)
    for each in SIDE_FILES:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{each}", f"{aside}{each}")
    return aside if any(os.path.exists(f"{aside}{each}") for each in ("", *SIDE_FILES)) else None


def _merge_log(path: str) -> bool:
    """Merge the log into the file. Return False if the file is corrupt; raise `StoreBusy` if it is open elsewhere."""
    try:
        with closing(sqlite3.connect(path, timeout=RESTORE_WAIT_SECONDS, isolation_level=None)) as former:
            mode = former.execute("PRAGMA journal_mode = DELETE").fetchall()
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return False
        if not name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreError(f"{path}: {error}", fix="Nothing was changed.") from error
        mode = []
    if mode != [("delete",)]:
        raise StoreBusy(f"{path}: another process has the store open", fix="Stop it and retry. Nothing was changed.")
    return True


def _find_free_name(path: str) -> str:
    number, found = 1, f"{path}.before-restore"
    while any(os.path.lexists(f"{found}{each}") for each in ("", *SIDE_FILES)):
        number += 1
        found = f"{path}.before-restore-{number}"
    return found

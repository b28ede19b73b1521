"""SQLite: the embedded default. WAL, so that readers and a writer do not wait for each other; full sync, so that a
commit that returned survives a power cut.

A writer takes the write lock at its first statement, so a transaction never loses a race half-way. SQLite itself goes
on writing into a file that was deleted or moved away; we look, and refuse.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from contextc.errors import (
    ContextcError,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from contextc.store.backup import PRIVATE, copy_to
from contextc.store.base import Dialect, Row, T, Transaction
from contextc.store.chain import now_ms
from contextc.store.engine import jitter
from contextc.store.group import Line, Outcome
from contextc.store.keeper import warn
from contextc.store.migrations import migrations
from contextc.store.store import Store

SQLITE = Dialect(
    name="sqlite", lock="", now="((julianday('now') - 2440587.5) * 86400.0)", check="PRAGMA integrity_check"
)
BUSY_SECONDS = 60
ERASE_WAIT = 0.2  # who redacts waits as long for readers, and other writers with it
ERASE_SECONDS = 1.0
LOOK_SECONDS = 0.02  # a look costs as much as a small write, so a burst of writes shares one
OLDEST = (3, 35, 0)


class SQLiteTransaction:
    """SQL on one connection, between BEGIN and COMMIT."""

    dialect = SQLITE
    again = False
    __slots__ = ("_execute", "_executemany")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute, self._executemany = connection.execute, connection.executemany

    def run(self, sql: str, *values: object) -> int:
        return self._execute(sql, values).rowcount  # pyright: ignore[reportArgumentType]

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._executemany(sql, rows)  # pyright: ignore[reportArgumentType]

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._execute(sql, values).fetchall()  # pyright: ignore[reportArgumentType]

    def row(self, sql: str, *values: object) -> Row | None:
        return self._execute(sql, values).fetchone()  # pyright: ignore[reportArgumentType]


class SQLiteStore(Store[sqlite3.Connection]):
    dialect = SQLITE

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        path = os.path.expanduser(path)
        super().__init__(f"sqlite:///{path}")
        self.path, self._read_only = path, read_only
        self._file: tuple[int, int] | None = None
        self._looked = 0.0
        self._line = Line(self._together)
        self._stop_erasing: Callable[[], None] | None = None
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreUnavailable(
                f"This Python has SQLite {sqlite3.sqlite_version}; contextc needs 3.35 or newer. Use a newer Python."
            )

    def write(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> T:
        return self._line.write(work, lambda: super(SQLiteStore, self).write(work, repeatable=repeatable))

    def _together(self, works: Sequence[Callable[[Transaction], Any]]) -> list[Outcome] | None:
        """The work of several writers in one transaction."""

        def all_of_them(tx: Transaction) -> list[Outcome]:
            return [self._one_of_them(tx, work) for work in works]

        try:
            connection = self._take()
        except StoreError:
            return None
        try:
            found = self._run(connection, all_of_them, writing=True, again=False)
        except StoreBusy as error:  # all of them have waited for as long as one does
            self._drop_all(connection)
            return [Outcome(error=error) for _ in works]
        except StoreError:
            self._drop_all(connection)
            return None
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return found

    def _one_of_them(self, tx: Transaction, work: Callable[[Transaction], Any]) -> Outcome:
        tx.run("SAVEPOINT one")
        try:
            found = Outcome(work(tx))
        except (sqlite3.Error, StoreError):  # the store itself: nobody's work is brought to it
            raise
        except BaseException as error:  # its own writer's, whoever leads
            tx.run("ROLLBACK TO one")
            found = Outcome(error=error)
        tx.run("RELEASE one")
        return found

    def _forked(self) -> None:
        """Another thread of the parent may have led the writers; nobody here does."""
        super()._forked()
        self._line = Line(self._together)
        self._stop_erasing = None

    def _connect(self) -> sqlite3.Connection:
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise StoreUnavailable(
                f"{self.address}: the folder {folder} does not exist. Make it, or choose another path."
            )
        if self._file is not None:
            self._look_at_file()
        try:
            connection = self._open_file()
        except sqlite3.Error as error:
            raise self._ours(error) from error
        if self._file is None:
            self._file = _identity(self.path)
        return connection

    def _open_file(self) -> sqlite3.Connection:
        if not self._read_only:
            self._make_private()
            return self._open("mode=rwc", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")
        try:
            return self._open("mode=ro", "schema_version")
        except sqlite3.OperationalError:
            if os.path.exists(f"{self.path}-wal") or not os.path.exists(self.path):
                raise
            # A reader of a WAL file makes a small file beside it, which a read-only folder refuses; with no log left to
            # read, the file can be taken as it is.
            return self._open("mode=ro&immutable=1", "schema_version")

    def _make_private(self) -> None:
        """Make a new file that its owner alone can read. SQLite gives the same mode to the files it puts beside it."""
        with suppress(OSError):  # it is there, or cannot be made: then opening it says why
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))

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
                _set(connection, pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            connection.close()

    def _run(
        self, connection: sqlite3.Connection, work: Callable[[Transaction], T], *, writing: bool, again: bool
    ) -> T:
        try:
            try:
                connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                result = work(SQLiteTransaction(connection))
                connection.execute("COMMIT")
                if writing:
                    self._look_at_file()
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._ours(error) from error
        return result

    def _is_clean(self, connection: sqlite3.Connection) -> bool:
        return not connection.in_transaction

    def read_one(self, sql: str, *values: object) -> list[Row] | None:
        return self._alone(sql, values, writing=False)[0]

    def _run_alone(self, sql: str, values: tuple[object, ...]) -> bool:
        return self._line.at_once(lambda: self._alone(sql, values, writing=True)[1] == 1)

    def _alone(self, sql: str, values: tuple[object, ...], *, writing: bool) -> tuple[list[Row], int]:
        """One statement outside of any transaction: its rows, and how many it changed."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._take()
        try:
            cursor = connection.execute(sql, values)  # pyright: ignore[reportArgumentType]
            rows = cursor.fetchall()
            if writing and monotonic() - self._looked > LOOK_SECONDS:
                self._look_at_file()
        except BaseException as error:
            self._drop_all(connection)
            if isinstance(error, sqlite3.Error):
                raise self._ours(error) from error
            raise
        if self._closed:
            self._disconnect(connection)
        else:
            self._idle.append(connection)  # one statement leaves no transaction open
        return rows, cursor.rowcount

    def _look_at_file(self) -> None:
        """Refuse to go on in a file that nobody can open any more."""
        self._looked = monotonic()
        found = _identity(self.path)
        if found != self._file:
            self._closed = True
            what = "was replaced by another file" if found else "was removed"
            raise StoreUnavailable(
                f"{self.address} {what} while it was open, and what was written to it since is gone with it. Put it "
                "back or restore a copy, then open it again; opening a path with no file makes a new, empty store."
            )

    def backup(self, target: str | os.PathLike[str]) -> None:
        connection = self._take()
        try:
            copy_to(connection, os.fspath(target))
        except sqlite3.Error as error:
            raise self._ours(error) from error
        finally:
            self._give_back(connection)

    def schema(self) -> int:
        """The version of the schema; 0 where there is none."""
        return self.read(self._version)

    def ready(self) -> None:
        if not self._read_only:
            super().ready()
            self._scrub()  # what a process left that ended before the log could be emptied
        elif (version := self.read(self._version)) != (known := migrations()[-1].version):
            if version > known:
                raise SchemaTooNew(self.address, found=version, known=known)
            raise StoreReadOnly(
                f"{self.address} has an older schema, and may not be changed. Open it once without ?mode=ro."
            )

    def _has_schema(self, tx: Transaction) -> bool:
        tables = {row[0] for row in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "schema_version" not in tables:
            raise StoreCorrupt(
                f"{self.address} is a SQLite file of something else (it has tables such as {min(tables)!r}). "
                "Choose another path; it was not touched."
            )
        return bool(tables)

    def _lock_schema(self, tx: Transaction) -> None:
        """BEGIN IMMEDIATE has already taken the one write lock there is."""

    def _erases(self, tx: Transaction) -> None:
        tx.run("INSERT INTO erasure (time) VALUES (?)", now_ms())

    @property
    def pending_erasure(self) -> int:
        return self.read(lambda tx: tx.rows("SELECT count(*) FROM erasure")[0][0])

    def _scrub(self) -> None:
        """Empty the log of older pages; where a reader still needs it, try again in the background until it is empty.

        Freed pages of the file itself are zeroed as they are freed.
        """
        if self._erase(ERASE_WAIT) or self._stop_erasing is not None:
            return
        warn(
            f"{self.address}: content that was redacted or deleted stays in the write-ahead log while another "
            "connection reads from it. It is removed as soon as that is over."
        )
        self._stop_erasing = self._keeper.every(ERASE_SECONDS, self._erase_again)

    def _erase_again(self) -> None:
        if self._erase(0) and self._stop_erasing is not None:
            self._stop_erasing()
            self._stop_erasing = None

    def _erase(self, wait: float) -> bool:
        """Empty the log, and wait so many seconds for readers; whether nothing that was erased before is left in it."""
        connection = self._take()
        try:
            ((last,),) = connection.execute("SELECT max(number) FROM erasure").fetchall()
            busy = 0
            if last is not None:
                connection.execute(f"PRAGMA busy_timeout = {wait * 1000:.0f}")
                ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        except sqlite3.Error:  # the change itself is stored; what is left to do is noted, and tried again
            self._drop_all(connection)
            return False
        self._give_back(connection)
        if busy or last is None:
            return not busy
        with suppress(StoreError):  # then it is done once more
            self.write(lambda tx: tx.run("DELETE FROM erasure WHERE number <= ?", last))
            return True
        return False

    def _ours(self, error: sqlite3.Error) -> ContextcError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if self._read_only and name.startswith("SQLITE_READONLY"):
            return StoreReadOnly(f"{self.address} may not be written: it was opened with ?mode=ro.")
        for prefix, kind, advice in ERRORS:
            if name.startswith(prefix):
                return kind(f"{self.address}: {error}. {advice}")
        return StoreError(f"{self.address}: {error} ({name or type(error).__name__}). Nothing was written.")


ERRORS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("SQLITE_FULL", StoreFull, "The disk is full. Nothing was written; make room and try again."),
    (
        "SQLITE_READONLY",
        StoreReadOnly,
        "The file or its folder may not be written. Change its permissions, or copy it.",
    ),
    ("SQLITE_BUSY", StoreBusy, f"Other writers held the lock for {BUSY_SECONDS} s. Nothing was written; try again."),
    (
        "SQLITE_CORRUPT",
        StoreCorrupt,
        "The file is damaged. Restore a backup with `contextc restore`, or recover it with the sqlite3 program.",
    ),
    ("SQLITE_NOTADB", StoreCorrupt, "This is not a SQLite file. Choose another path; it was not touched."),
    ("SQLITE_CANTOPEN", StoreUnavailable, "The file cannot be opened. Check the path and its permissions."),
    (
        "SQLITE_IOERR",
        StoreUnavailable,
        "The disk did not do what was asked. Nothing was written; check it and try again.",
    ),
    ("SQLITE_TOOBIG", StoreError, "The message is too large for SQLite. Split it, or store it as Media."),
)


def _set(connection: sqlite3.Connection, pragma: str) -> None:
    """Two who turn a new file to WAL at once: one is told that it is busy, at once, whatever the time it would wait."""
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


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

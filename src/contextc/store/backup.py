"""Copies of a SQLite store: made while it is in use, checked, and put back.

A store in WAL mode is up to three files. To copy one of them alone, or to put a copy beside the log of another file,
loses or ruins what is in it. So a copy is made by SQLite's own backup, which sees one moment of the whole store, and is
one file without a log. Restoring first takes the log of the former store into its file, or moves both aside together.
"""

import os
import sqlite3
from contextlib import closing, suppress

from contextc.errors import InvalidSetting, SchemaTooNew, StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from contextc.store.migrations import migrations

BESIDE = ("-wal", "-shm", "-journal")
WAIT_SECONDS = 1.0
PRIVATE = 0o600


def copy_to(source: sqlite3.Connection, target: str) -> None:
    """Write what a connection sees into a new file: all of it, checked and on the disk, or nothing."""
    if os.path.lexists(target):
        raise InvalidSetting(f"{target}: the file already exists. Choose another name.")
    partial = f"{target}.part"
    try:
        _remove(partial)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute(
                "PRAGMA journal_mode = DELETE"
            ).fetchall()  # one file, that can be read from a read-only folder
            if (found := copy.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                raise StoreCorrupt(f"{target}: the copy is damaged: {found[0][0]}. Run `contextc doctor` on the store.")
            if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'erasure'").fetchall():
                copy.execute("DELETE FROM erasure")  # it has no log in which erased content could be
        _sync(partial)
        os.rename(partial, target)
        _sync(os.path.dirname(os.path.abspath(target)))
    except OSError as error:
        raise StoreUnavailable(f"{target}: the copy cannot be written: {error.strerror}. Check the folder.") from error
    finally:
        with suppress(OSError):
            os.remove(partial)


def restore(source: str | os.PathLike[str], address: str) -> str | None:
    """Put a copy in the place of the SQLite store at an address; where the former store was moved to, if there was one.

    No other process may have the store open: that is `StoreBusy`.
    """
    from contextc.store import open_to_look
    from contextc.store.sqlite import SQLiteStore

    source = os.fspath(source)
    with open_to_look(address) as store:
        path = store.path if isinstance(store, SQLiteStore) else ""
    if not path:
        raise InvalidSetting(f"{address}: only a SQLite store is restored from a file. Use pg_restore or psql.")
    check_copy(source)
    if os.path.exists(path) and os.path.samefile(source, path):
        raise InvalidSetting(f"{source}: this is the store itself. Give the file that `contextc backup` wrote.")
    partial = f"{path}.restoring"
    _remove(partial)
    try:
        with SQLiteStore(source, read_only=True) as copy:
            version, known = copy.schema(), migrations()[-1].version
            if version > known:
                raise SchemaTooNew(copy.address, found=version, known=known)
            if version > 0:
                copy.backup(partial)
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{source}: the file is damaged, or not a SQLite file. Give another file that `contextc backup` wrote. "
            "Nothing was changed."
        ) from error
    if version == 0:
        raise StoreCorrupt(f"{source}: not a contextc store. Give the file that `contextc backup` wrote.")
    try:
        aside = _put_aside(path)
        os.replace(partial, path)
        _sync(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StoreUnavailable(f"{path}: the copy cannot be put there: {error.strerror}. Check the folder.") from error
    finally:
        with suppress(OSError):
            os.remove(partial)
    return aside


def check_copy(source: str) -> None:
    if not os.path.isfile(source):
        raise InvalidSetting(f"{source}: file not found. Give the file that `contextc backup` wrote.")


def remove_empty(path: str) -> None:
    """Remove the file of a SQLite store that holds nothing and that no other process has open."""
    with suppress(StoreError, sqlite3.Error, OSError):
        if not _close_log(path):
            return
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as store:
            store.execute("BEGIN EXCLUSIVE")  # who opens it now waits, and then finds no file
            named = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            tables = [name for (name,) in named if name not in ("schema_version", "sqlite_sequence")]
            if not any(store.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in tables):
                os.remove(path)


def _put_aside(path: str) -> str | None:
    """Keep the former store under another name, with everything that belongs to it; that name."""
    aside = _free(path)
    if os.path.exists(path):
        with suppress(OSError):  # SQLite removes a log that it cannot read; somebody else may be able to
            os.link(f"{path}-wal", f"{aside}-wal")
        is_damaged = False
        try:
            is_damaged = not _close_log(path)
        finally:
            if not is_damaged:
                _remove(f"{aside}-wal")
        try:
            os.link(path, aside)  # so that there is a whole store under the old name until the copy replaces it
        except OSError:  # a file system without links
            os.rename(path, aside)
    for each in BESIDE:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{each}", f"{aside}{each}")
    return aside if any(os.path.exists(f"{aside}{each}") for each in ("", *BESIDE)) else None


def _close_log(path: str) -> bool:
    """Take the log into the file, and check that no other process has it open. False where the file is damaged."""
    try:
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as former:
            mode = former.execute("PRAGMA journal_mode = DELETE").fetchall()
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return False
        if not name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreError(f"{path}: {error}. Nothing was changed.") from error
        mode = []
    if mode != [("delete",)]:
        raise StoreBusy(f"{path}: another process has the store open. Stop it and retry. Nothing was changed.")
    return True


def _free(path: str) -> str:
    number, found = 1, f"{path}.before-restore"
    while any(os.path.lexists(f"{found}{each}") for each in ("", *BESIDE)):
        number += 1
        found = f"{path}.before-restore-{number}"
    return found


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

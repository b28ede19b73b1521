"""Restore of SQLite stores from copies, which are verified before use. `SQLiteStore.backup` makes them.

A store in WAL mode is up to three files. Copying one of them alone, or placing a copy beside the log of another file,
loses or corrupts data. Copies are therefore made with SQLite's backup API: one consistent snapshot in one file without
a log. Restoring first merges the log of the previous store into its file, or moves both aside together.
"""

import os
import sqlite3
from contextlib import closing, suppress

from contextc.errors import InvalidSetting, SchemaTooNew, StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from contextc.store import open_for_inspection
from contextc.store.migrations import migrations
from contextc.store.sqlite import SQLITE, SQLiteStore, remove_if_exists, sync_to_disk

SIDE_FILES = ("-wal", "-shm", "-journal")
WAIT_SECONDS = 1.0


def restore(source: str | os.PathLike[str], address: str) -> str | None:
    """Replace the SQLite store at an address with a copy. Return the path of the previous store, or None.

    Raises `StoreBusy` if another process has the store open.
    """
    source = os.fspath(source)
    with open_for_inspection(address) as store:
        path = store.path if isinstance(store, SQLiteStore) else ""
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
        with SQLiteStore(source, read_only=True) as copy:
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
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as store:
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
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as former:
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

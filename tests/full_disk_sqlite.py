"""A full disk, for an SQLite store in this process."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress

import contextc as cc
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import engine_of

NO_LIMIT = 1_000_000_000


@contextmanager
def full_disk(store: cc.Store, *, pages: int) -> Generator[None, None, None]:
    """Let the file grow by so many pages at most, whichever connection writes."""
    engine = engine_of(store)
    assert isinstance(engine, SQLiteEngine)
    size = store.read(lambda tx: tx.row("PRAGMA page_count"))
    assert size is not None
    connect, limited = engine._connect, list[sqlite3.Connection]()  # pyright: ignore[reportPrivateUsage]

    def connect_limited() -> sqlite3.Connection:
        connection = connect()
        limited.append(connection)
        connection.execute(f"PRAGMA max_page_count = {size[0] + pages}")
        return connection

    engine._drop_idle()  # pyright: ignore[reportPrivateUsage]
    engine._connect = connect_limited  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        engine._connect = connect  # pyright: ignore[reportPrivateUsage]
        for connection in limited:
            with suppress(sqlite3.ProgrammingError):  # it is closed
                connection.execute(f"PRAGMA max_page_count = {NO_LIMIT}")

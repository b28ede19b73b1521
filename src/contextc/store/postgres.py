"""PostgreSQL: many machines, one truth. The same SQL, over psycopg 3.

Our tables live in a schema of their own (`contextc`), so they may share a database with an application's. A writer
locks its conversation's row first, so writers of one conversation queue up and writers of others do not notice. A
transaction whose connection is cut is run again; if the cut came while committing, the message's uid tells whether it
is there.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import LiteralString, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from contextc.errors import (
    ContextcError,
    InvalidSetting,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from contextc.store.base import Dialect, Row, T, Transaction
from contextc.store.engine import Again, Cut
from contextc.store.store import Store

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg import sql as pg_sql
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise InvalidSetting("A postgresql:// store needs psycopg: pip install 'contextc[postgres]'.") from error

POSTGRES = Dialect(name="postgres", lock=" FOR UPDATE", now="extract(epoch FROM clock_timestamp())::float8", check="")
SCHEMA_LOCK = 0x636F6E7465787463


class PostgresTransaction:
    """SQL on one connection, between BEGIN and COMMIT."""

    dialect = POSTGRES

    def __init__(self, connection: "psycopg.Connection[Row]", again: bool) -> None:
        self.again = again
        self._cursor = connection.cursor(binary=True)

    def run(self, sql: str, *values: object) -> int:
        return self._cursor.execute(_spelled(sql), values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._cursor.executemany(_spelled(sql), rows)

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._cursor.execute(_spelled(sql), values).fetchall()

    def row(self, sql: str, *values: object) -> Row | None:
        return self._cursor.execute(_spelled(sql), values).fetchone()


class PostgresStore(Store["psycopg.Connection[Row]"]):
    dialect = POSTGRES

    def __init__(self, url: str) -> None:
        self._url, self._schema = _take_schema(url)
        super().__init__(_without_password(self._url))

    def _connect(self) -> "psycopg.Connection[Row]":
        try:
            connection = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
            quoted = pg_sql.Identifier(self._schema)
            connection.execute(pg_sql.SQL("SET search_path TO {}").format(quoted))
            connection.execute("SET synchronous_commit TO on")
            return connection
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"{self.address} cannot be reached: {_one_line(error)}. Check that the server runs and the address, "
                "user and password are right."
            ) from error

    def _disconnect(self, connection: "psycopg.Connection[Row]") -> None:
        with suppress(psycopg.Error):
            connection.close()

    def _run(
        self, connection: "psycopg.Connection[Row]", work: Callable[[Transaction], T], *, writing: bool, again: bool
    ) -> T:
        committing = False
        try:
            connection.execute("BEGIN" if writing else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = work(PostgresTransaction(connection, again))
            committing = writing
            connection.execute("COMMIT")
            return result
        except psycopg.Error as error:
            if connection.closed or connection.broken:
                raise Cut(committing=committing) from error
            self._roll_back(connection)
            if isinstance(error, LOST_RACES):
                raise Again from error
            raise self._ours(error) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _is_clean(self, connection: "psycopg.Connection[Row]") -> bool:
        return connection.info.transaction_status == TransactionStatus.IDLE

    def _roll_back(self, connection: "psycopg.Connection[Row]") -> None:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")

    def _has_schema(self, tx: Transaction) -> bool:
        row = tx.row(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'schema_version'",
            self._schema,
        )
        return row is not None

    def _lock_schema(self, tx: Transaction) -> None:
        tx.row("SELECT pg_advisory_xact_lock(?)", SCHEMA_LOCK)
        tx.run(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')

    def _scrub(self) -> None:
        """Old row versions are removed by the server's own vacuum, in its time."""

    def _ours(self, error: psycopg.Error) -> ContextcError:
        for kinds, kind, advice in ERRORS:
            if isinstance(error, kinds):
                return kind(f"{self.address}: {_one_line(error)}. {advice}")
        return StoreError(f"{self.address}: {_one_line(error)} ({error.sqlstate}). Nothing was written.")


LOST_RACES = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)

ERRORS: tuple[tuple[tuple[type[psycopg.Error], ...], type[StoreError], str], ...] = (
    ((pg.DiskFull,), StoreFull, "The server's disk is full. Nothing was written; make room and try again."),
    (
        (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege),
        StoreReadOnly,
        "This user or server may not write here. Grant it the right, or use the primary server.",
    ),
    ((pg.LockNotAvailable, pg.QueryCanceled), StoreBusy, "Nothing was written; try again."),
    (
        (pg.UndefinedTable,),
        StoreCorrupt,
        "Our tables are gone. Restore them, or open the store again to make new ones.",
    ),
    ((pg.DataCorrupted, pg.IndexCorrupted), StoreCorrupt, "The server's files are damaged. Restore a copy."),
)


@cache
def _spelled(sql: str) -> LiteralString:
    """Our SQL with psycopg's placeholders. It is all written in this package; values never become part of it."""
    return cast(LiteralString, sql.replace("%", "%%").replace("?", "%s"))


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _take_schema(url: str) -> tuple[str, str]:
    """Our own `?schema=` taken out of an address; the rest is the driver's business."""
    pieces = urlsplit(url)
    query = dict(parse_qsl(pieces.query, keep_blank_values=True))
    schema = query.pop("schema", "contextc")
    if not schema.replace("_", "").isalnum() or not schema.isascii() or len(schema) > 63:
        raise InvalidSetting(f"schema={schema!r}: use letters, digits and underscores.")
    return urlunsplit(pieces._replace(query=urlencode(query, quote_via=quote))), schema


def _without_password(url: str) -> str:
    pieces = urlsplit(url)
    if pieces.password is None:
        return url
    return urlunsplit(pieces._replace(netloc=pieces.netloc.replace(f":{pieces.password}@", ":***@")))

"""The PostgreSQL back-end, for stores shared by many machines. It runs the same SQL over psycopg 3.

The tables are in their own schema (`contextc`), so they can share a database with an application. A writer locks its
conversation's row first: writers of one conversation queue, and writers of other conversations are not affected.

Nothing depends on the session: every name is qualified with the schema, and every setting is local to its transaction.
Statements are prepared only on a direct connection to the server. Consecutive transactions may therefore run on
different sessions, as behind a pooler in transaction mode. A transaction whose connection breaks is retried. If it
broke during commit, the server is asked whether the transaction was committed.
"""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, LiteralString, NamedTuple, cast
from urllib.parse import unquote

from contextc.config import mask_secrets, split_query
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
from contextc.store.backend_interface import Dialect, Result, Row, Transaction
from contextc.store.change_notifications import ChangeListener, has_triggers
from contextc.store.postgres_connection_limit import ConnectionSlots
from contextc.store.store import Store
from contextc.store.transaction_engine import OUTAGE_SECONDS, THREAD_NAME, ConnectionLost, RetryTransaction

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise InvalidSetting(
        "postgresql:// stores require psycopg, which is not installed", fix="Run pip install 'contextc[postgres]'."
    ) from error

POSTGRES = Dialect(
    name="postgres",
    row_lock=" FOR UPDATE",
    now="extract(epoch FROM clock_timestamp())::float8",
    integrity_query="",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    short_lock_timeout="SET LOCAL lock_timeout = 2000",
)
SCHEMA_LOCK = 0x636F6E7465787463
CONNECTION_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Defaults for the detection of dead connections. Parameters of the address override them."""


PREPARE_THRESHOLD = 5
"""Executions after which a statement is prepared on a direct connection."""


class AddressOptions(NamedTuple):
    """Parameters of a store address that contextc defines. Timeouts are in seconds.

    `prepare` is the number of executions after which a statement is prepared. 0 means PREPARE on direct connections,
    and never behind a pooler.
    """

    schema: str = "contextc"
    pool: int = 10
    prepare: int = 0
    outage_timeout: float = OUTAGE_SECONDS
    lock_timeout: float = 15.0
    idle_timeout: float = 10.0
    statement_timeout: float = 120.0


class TransactionId(NamedTuple):
    """The server's identification of a transaction: its number, and its start by the server's clock."""

    xid: int
    began: float


class PostgresTransaction:
    """SQL on one connection, between BEGIN and COMMIT."""

    dialect = POSTGRES

    def __init__(self, connection: "psycopg.Connection[Row]", schema: str, again: bool) -> None:
        self.is_retry, self.schema = again, schema
        self.connection = connection
        self._cursor = connection.cursor(binary=True)

    def run(self, sql: str, *values: object) -> int:
        return self._cursor.execute(_translate_sql(sql, self.schema), values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._cursor.executemany(_translate_sql(sql, self.schema), rows)

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._cursor.execute(_translate_sql(sql, self.schema), values).fetchall()

    def row(self, sql: str, *values: object) -> Row | None:
        return self._cursor.execute(_translate_sql(sql, self.schema), values).fetchone()


class PostgresStore(Store["psycopg.Connection[Row]"]):
    dialect = POSTGRES

    def __init__(self, url: str) -> None:
        _check_login(url)
        self._url, self._options = _split_options(url)
        super().__init__(mask_secrets(self._url))
        self._schema, self.outage_seconds = self._options.schema, self._options.outage_timeout
        self._slots, self._scheduler_slot = ConnectionSlots(self._options.pool), ConnectionSlots(1)
        self._was_reached = False
        self._begin_statements = _make_begin_statements(self._options)

    def _run_with_retries(self, work: Callable[[Transaction], Result], *, writing: bool, repeatable: bool) -> Result:
        if self._closed:
            self._checkout()  # raises
        # A reserved slot, so that leases are renewed on time while all other operations wait for locks.
        slots = self._scheduler_slot if threading.current_thread().name == THREAD_NAME else self._slots
        with slots.take(self.outage_seconds):
            return super()._run_with_retries(work, writing=writing, repeatable=repeatable)

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._slots, self._scheduler_slot = ConnectionSlots(self._options.pool), ConnectionSlots(1)

    def _connect(self) -> "psycopg.Connection[Row]":
        try:
            given = conninfo_to_dict(self._url)
            settings: dict[str, Any] = {name: value for name, value in CONNECTION_DEFAULTS.items() if name not in given}
            threshold = self._options.prepare or None
            connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=threshold, **settings)
            if not threshold and _is_direct(connection):
                connection.prepare_threshold = PREPARE_THRESHOLD
        except psycopg.Error as error:
            said = _one_line(error)
            failure = StoreUnavailable(
                f"{self.address} cannot be reached: {self._without_secrets(said)}",
                fix="Check that the server runs, and check the address, user and password.",
            )
            if self._was_reached or any(each in said for each in TEMPORARY_FAILURES):
                raise ConnectionLost(during_commit=False, error=failure) from error
            raise failure from error
        self._was_reached = True
        return connection

    def open_listener(self) -> ChangeListener | None:
        """Return a listener if the store has triggers, and if the connection goes to the server directly."""
        try:
            if not self.read(has_triggers):
                return None
            connection = self._connect()
        except (StoreError, ConnectionLost):
            return None
        try:
            if _is_direct(connection):
                return ChangeListener(connection, self._schema)
        except psycopg.Error:
            pass
        self._disconnect(connection)
        return None

    def connection_parameters(self) -> dict[str, Any]:
        """Return libpq parameters for connections of another package, which finds its tables in this schema."""
        given = conninfo_to_dict(self._url)
        options = f'{given.get("options") or ""} -c search_path="{self._schema}"'.strip()
        return {**CONNECTION_DEFAULTS, **given, "options": options}

    def _disconnect(self, connection: "psycopg.Connection[Row]") -> None:
        with suppress(psycopg.Error):
            connection.close()

    def _run(
        self,
        connection: "psycopg.Connection[Row]",
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        mark: TransactionId | None = None
        result: Result | None = None
        committing = False
        try:
            begun = connection.execute(self._begin_statements[writing])
            if writing:
                begun.nextset()
                xid, began, *_ = begun.fetchone() or (0, 0.0)
                mark = TransactionId(xid, began)
            result = work(PostgresTransaction(connection, self._schema, again))
            committing = writing
            ended = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if connection.closed or connection.broken or _is_lost(error):
                raise ConnectionLost(during_commit=committing, transaction_id=mark, result=result) from error
            self._roll_back(connection)
            if isinstance(error, CONFLICTS):
                raise RetryTransaction from error
            raise self._map_error(error) from error
        except BaseException:
            self._roll_back(connection)
            raise
        if ended != "COMMIT":
            raise StoreError(
                f"{self.address}: an earlier statement of the transaction failed", fix="Nothing was written."
            )
        return result

    def _was_committed(self, connection: "psycopg.Connection[Row]", lost: ConnectionLost) -> bool | None:
        """Ask the server for the status of the transaction.

        After a crash the server may reuse the numbers of transactions that left nothing on disk. "committed" is
        therefore trusted only if the server did not crash since; a crash resets the statistics.
        """
        if not isinstance(lost.transaction_id, TransactionId):
            return None
        try:
            row = connection.execute(
                "SELECT txid_status(%s), extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::float8 < %s",
                lost.transaction_id,
            ).fetchone()
        except pg.InvalidParameterValue:  # the number is unused: a crash has lost the transaction
            return False
        except psycopg.Error as error:
            raise ConnectionLost(during_commit=False) from error
        status, is_sure = row or (None, None)
        if status == "in progress":
            raise ConnectionLost(during_commit=False)
        if status == "aborted":
            return False
        return True if status == "committed" and is_sure else None

    def _after_failure(self, connection: "psycopg.Connection[Row]", error: StoreError) -> None:
        if isinstance(error, StoreBusy | StoreReadOnly):
            self._checkin(connection)
        else:
            self._drop_all(connection)

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
        """Wait for a migration by another process, then allow this one unlimited time."""
        tx.run(f"SET LOCAL lock_timeout = {_milliseconds(self.outage_seconds)}")
        tx.row("SELECT pg_advisory_xact_lock(?)", SCHEMA_LOCK)
        tx.run("SET LOCAL statement_timeout = 0")
        tx.run(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')

    def _erase_removed_content(self) -> None:
        """Do nothing: the server's vacuum removes old row versions."""

    def _map_error(self, error: psycopg.Error) -> ContextcError:
        for kinds, kind, advice in ERROR_MAP:
            if isinstance(error, kinds):
                return kind(f"{self.address}: {_one_line(error)}", fix=advice)
        return StoreError(f"{self.address}: {_one_line(error)} ({error.sqlstate})", fix="Nothing was written.")

    def _without_secrets(self, text: str) -> str:
        for secret in _secrets(self._url):
            text = text.replace(secret, "***")
        return text


CONNECTION_LOST_CODES = ("08", "57P", "25P03", "53300")
"""Prefixes of SQLSTATE codes that end a session. pgbouncer reports an unavailable server as 08P01."""

TEMPORARY_FAILURES = (
    "starting up",
    "shutting down",
    "recovery",
    "not yet accepting connections",
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "no more connections allowed",
    "login has been failing",
    "pgbouncer cannot connect",
)
"""Texts of temporary connection failures, which are retried even on the first connection."""

CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)

ERROR_MAP: tuple[tuple[tuple[type[psycopg.Error], ...], type[StoreError], str], ...] = (
    ((pg.DiskFull,), StoreFull, "Nothing was written. Free space on the server's disk and retry."),
    (
        (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege),
        StoreReadOnly,
        "Grant this user write access, or use the primary server.",
    ),
    ((pg.LockNotAvailable, pg.QueryCanceled), StoreBusy, "Nothing was written. Retry."),
    (
        (pg.UndefinedTable,),
        StoreCorrupt,
        "The tables of contextc are missing. Restore them, or open the store again to create new ones.",
    ),
    ((pg.DataCorrupted, pg.IndexCorrupted), StoreCorrupt, "The server's files are corrupt. Restore a backup."),
)


def _is_lost(error: psycopg.Error) -> bool:
    """Return True if the session ended, or if its state is unknown because the server sent no code."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(CONNECTION_LOST_CODES)


TABLE_PATTERN = re.compile(
    r"((?<!\bFOR )(?<!\bDO )(?<!\bDISTINCT )"
    r"\b(?:FROM|JOIN|INTO|UPDATE|USING|TABLE(?: IF(?: NOT)? EXISTS)?|INDEX \w+ ON)\s+)"
    r"([a-z_]\w*\b(?![.(])(?:\s+[a-z_]\w*)?(?:\s*,\s*[a-z_]\w*\b(?![.(])(?:\s+[a-z_]\w*)?)*)"
)
"""Table names in a statement: a keyword, then names separated by commas, each with an optional alias. In this package
keywords are upper case and names are lower case."""
NAME_PATTERN = re.compile(r"(^|,\s*)([a-z_]\w*)")
CTE_PATTERN = re.compile(r"(?:\bWITH(?: RECURSIVE)?|,)\s+([a-z_]\w*)\s*(?:\([^()]*\)\s*)?AS \(")


@cache
def _translate_sql(sql: str, schema: str) -> LiteralString:
    """Return the SQL with psycopg's placeholders and with qualified table names, except for `pg_…` tables.

    All SQL is written in this package; values never become part of it.
    """
    defined = {*CTE_PATTERN.findall(sql)}

    def qualified(match: re.Match[str]) -> str:
        return match[0] if match[2] in defined or match[2].startswith("pg_") else f'{match[1]}"{schema}".{match[2]}'

    named = TABLE_PATTERN.sub(lambda match: match[1] + NAME_PATTERN.sub(qualified, match[2]), sql)
    return cast(LiteralString, named.replace("%", "%%").replace("?", "%s"))


def _make_begin_statements(options: AddressOptions) -> tuple[LiteralString, LiteralString]:
    """Return the statements that begin a reading and a writing transaction, with their settings, in one round trip.

    A reader blocks no writer, so its idle timeout is the statement timeout. A writer gets its number at once, so that
    its outcome can be queried.
    """
    reads, writes = (
        f"set_config('lock_timeout', '{_milliseconds(options.lock_timeout)}', true),"
        f" set_config('statement_timeout', '{_milliseconds(options.statement_timeout)}', true),"
        f" set_config('idle_in_transaction_session_timeout', '{_milliseconds(idle)}', true)"
        for idle in (options.statement_timeout, options.idle_timeout)
    )
    return (
        cast(LiteralString, f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {reads}"),
        cast(
            LiteralString,
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT txid_current(), extract(epoch FROM now())::float8,"
            f" {writes}, set_config('synchronous_commit', 'on', true)",
        ),
    )


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _one_line(error: psycopg.Error) -> str:
    """Return the text of an error as one line, without the question that the client library adds."""
    lines = [line for line in str(error).splitlines() if not line.strip().startswith("Is the server running")]
    return " ".join(" ".join(lines).split()).rstrip(".")


def _is_direct(connection: "psycopg.Connection[Row]") -> bool:
    """Return True for a direct connection to the server. A pooler reports other process numbers."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def _split_options(url: str) -> tuple[str, AddressOptions]:
    """Return the address without our parameters, otherwise unchanged for the driver, and the parameters."""
    address, query = split_query(url)
    ours: dict[str, Any] = {}
    rest: list[str] = []
    for piece in query[1:].split("&"):
        name, _, value = piece.partition("=")
        if name in AddressOptions._fields:
            ours[name] = unquote(value)
        else:
            rest.append(piece)
    schema = ours.get("schema", AddressOptions().schema)
    if not schema.replace("_", "").isalnum() or not schema.isascii() or len(schema) > 63:
        raise InvalidSetting("schema must be letters, digits and underscores, at most 63", got=schema)
    for name, default in AddressOptions()._asdict().items():
        if name != "schema" and name in ours:
            ours[name] = _parse_number(name, ours[name], type(default) is int)
    return f"{address}?{'&'.join(rest)}" if any(rest) else address, AddressOptions(**ours)


def _parse_number(name: str, value: str, is_whole: bool) -> float:
    try:
        number = int(value) if is_whole else float(value)
    except ValueError:
        number = 0
    if not 0 < number <= 1_000_000:  # also false for NaN
        kind = "a whole number" if is_whole else "a number of seconds"
        raise InvalidSetting(f"{name} must be {kind} above 0, up to 1000000", got=value)
    return number


def _check_login(url: str) -> None:
    login, at, _ = split_query(url)[0].partition("://")[2].rpartition("@")
    if at and "/" in login and ":" in login.partition("/")[0]:
        raise InvalidSetting(
            f"{mask_secrets(url)}: the password must not contain a slash", fix="Write the slash as %2F."
        )


def _secrets(url: str) -> list[str]:
    """Return the secrets that `mask_secrets` hides in an address, encoded and decoded, longest first."""
    address, query = split_query(url)
    parameters = [piece.partition("=") for piece in query[1:].split("&")]
    hidden = [value for name, _, value in parameters if mask_secrets(f"?{name}=x") != f"?{name}=x"]
    hidden.append(address.partition("://")[2].rpartition("@")[0].partition(":")[2])
    return sorted({form for each in hidden for form in (each, unquote(each)) if form}, key=len, reverse=True)

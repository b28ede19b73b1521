"""The PostgreSQL back-end, for stores shared by many machines. It runs the same SQL over psycopg 3.

The tables are in their own schema (`contextc`), so they can share a database with an application. A writer locks its
conversation's row first: writers of one conversation queue, and writers of other conversations are not affected.

Nothing depends on the session behind a pooler: every name is qualified with the schema, and every setting is local to
its transaction. Consecutive transactions may therefore run on different sessions, as in transaction mode. On a direct
connection to the server, statements are prepared and settings belong to the session. A transaction whose connection
breaks is retried. If it broke during commit, the server is asked whether the transaction was committed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, cast
from urllib.parse import unquote

from contextc._installed_packages import importing
from contextc.config import mask_secrets, split_query
from contextc.errors import (
    ContextcError,
    InvalidInput,
    InvalidSetting,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from contextc.store.backend_interface import Result, Row, Transaction
from contextc.store.change_notifications import ChangeListener, has_triggers
from contextc.store.postgres_transaction import POSTGRES as POSTGRES
from contextc.store.postgres_transaction import BeginStatements, PipelinedConnection, PostgresTransaction, TransactionId
from contextc.store.store import Store
from contextc.store.transaction_engine import OUTAGE_SECONDS, THREAD_NAME, ConnectionLost, RetryTransaction

# ── limit on connections ──────────────────────────────────────────────────────────────────────────────────────────────
# A limit on the connections of a PostgreSQL store, with a first-in, first-out queue.
#
# A server admits a fixed number of connections (100 by default), shared by all processes. A store therefore uses at
# most a few at once, and further operations wait for a free slot. A slot belongs to an object and is freed when that
# object is collected, so an exception raised by a signal handler cannot leak one.


RECHECK_SECONDS = 1.0


class ConnectionSlots:
    """At most `limit` slots. Waiters get one in the order of their arrival."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._mutex = threading.RLock()  # a slot may be collected, and freed, while this thread holds the lock
        self._held: dict[int, int] = {}
        self._waiting: deque[ConnectionSlot] = deque()

    def take(self, seconds: float) -> "ConnectionSlot":
        """Return a slot within `seconds`, or raise `StoreBusy`."""
        slot = ConnectionSlot(self)
        with self._mutex:
            if slot.thread in self._held.values():
                raise InvalidInput(
                    "A store operation was started inside another one of the same thread, which could deadlock",
                    fix="Use the transaction that the outer operation received, or start it afterwards.",
                )
            self._waiting.append(slot)
            self._serve()
        end = time.monotonic() + seconds
        while not slot.ready.wait(max(0.0, min(RECHECK_SECONDS, end - time.monotonic()))):
            with self._mutex:
                self._serve()  # a holder may have been interrupted between freeing its slot and this call
                if slot.key not in self._held and time.monotonic() >= end:
                    slot.free()
                    raise StoreBusy(
                        f"All {self.limit} connections of this store were in use for {seconds:g} s",
                        fix="Nothing was written. Retry, or raise the limit with ?pool= in the store's address.",
                    )
        return slot

    def free(self, slot: "ConnectionSlot") -> None:
        with self._mutex:
            self._held.pop(slot.key, None)
            if slot in self._waiting:
                self._waiting.remove(slot)
            self._serve()

    def _serve(self) -> None:
        while self._waiting and len(self._held) < self.limit:
            slot = self._waiting.popleft()
            self._held[slot.key] = slot.thread
            slot.ready.set()


class ConnectionSlot:
    """The right to use one connection, until the `with` block ends."""

    def __init__(self, slots: ConnectionSlots) -> None:
        self._slots = slots
        self.key, self.thread = id(self), threading.get_ident()
        self.ready = threading.Event()

    def free(self) -> None:
        self._slots.free(self)

    __del__ = free

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


# ── the back-end ──────────────────────────────────────────────────────────────────────────────────────────────────────


with importing("psycopg", extra="postgres", needed_by="postgresql:// stores"):
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import PipelineStatus, TransactionStatus

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


class StoreConnection(psycopg.Connection[Row]):
    """A connection. `is_direct` is True if no pooler is between it and the server.

    `timeline` changes when a standby server takes over; empty if the server does not tell it.
    """

    is_direct = False
    timeline = ""
    batches: PipelinedConnection


class SingleQuery(NamedTuple):
    """Work that consists of one query. On a direct connection it needs no BEGIN, and behind a pooler one round trip."""

    sql: str
    values: tuple[object, ...]

    def __call__(self, tx: Transaction) -> list[Row]:
        return tx.rows(self.sql, *self.values)


class PostgresStore(Store[StoreConnection]):
    dialect = POSTGRES

    def __init__(self, url: str) -> None:
        _check_login(url)
        if not psycopg.Pipeline.is_supported():
            raise InvalidSetting(
                "postgresql:// stores require libpq 14 or newer", fix="Run pip install 'psycopg[binary]'."
            )
        self._url, self._options = _split_options(url)
        super().__init__(mask_secrets(self._url))
        self._schema, self.outage_seconds = self._options.schema, self._options.outage_timeout
        self._slots, self._scheduler_slot = ConnectionSlots(self._options.pool), ConnectionSlots(1)
        self._was_reached = False
        self._settings = Settings(self._options)

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

    def _connect(self) -> StoreConnection:
        try:
            given = conninfo_to_dict(self._url)
            settings: dict[str, Any] = {name: value for name, value in CONNECTION_DEFAULTS.items() if name not in given}
            connection = StoreConnection.connect(
                self._url, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **settings
            )
            try:
                self._prepare(connection)
            except BaseException:
                self._disconnect(connection)
                raise
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

    def _prepare(self, connection: StoreConnection) -> None:
        """Find out what a new connection leads to, and set it up."""
        prepare_after = self._options.prepare
        connection.timeline = _read_timeline(connection)
        if _check_direct(connection):
            connection.is_direct, prepare_after = True, prepare_after or PREPARE_THRESHOLD
            connection.execute(self._settings.session.encode())
        connection.batches = PipelinedConnection(connection, prepare_after)

    def open_listener(self) -> ChangeListener | None:
        """Return a listener if the store has triggers, and if the connection goes to the server directly."""
        try:
            if not self.read(has_triggers):
                return None
            connection = self._connect()
        except (StoreError, ConnectionLost):
            return None
        try:
            if connection.is_direct:
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

    def _disconnect(self, connection: StoreConnection) -> None:
        with suppress(psycopg.Error):
            connection.close()

    def _run(
        self,
        connection: StoreConnection,
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        is_single = isinstance(work, SingleQuery)
        is_bare = is_single and connection.is_direct
        begin = None if is_bare else self._settings.begin_statements(connection, writing=writing)
        tx = PostgresTransaction(connection.batches, self._schema, again, begin)
        result = cast(Result, None)
        committing = False
        try:
            if is_single:
                return cast(Result, tx.run_single(work.sql, work.values))
            result = work(tx)
            if writing:
                tx.finish_writes()
                committing = True
            committed = self._commit(connection, tx)
        except psycopg.Error as error:
            if connection.closed or connection.broken or _is_lost(error):
                number = tx.id and tx.id._replace(timeline=connection.timeline)
                raise ConnectionLost(during_commit=committing, transaction_id=number, result=result) from error
            self._roll_back(connection)
            if isinstance(error, CONFLICTS):
                raise RetryTransaction from error
            raise self._map_error(error) from error
        except BaseException:
            self._roll_back(connection)
            raise
        if not committed:
            raise StoreError(
                f"{self.address}: an earlier statement of the transaction failed", fix="Nothing was written."
            )
        return result

    def _commit(self, connection: StoreConnection, tx: PostgresTransaction) -> bool:
        return tx.commit()

    def _was_committed(self, connection: StoreConnection, lost: ConnectionLost) -> bool | None:
        """Ask the server for the status of the transaction.

        After a crash the server may reuse the numbers of transactions that left nothing on disk. "committed" is
        therefore trusted only if the server did not crash since; a crash resets the statistics. A standby that took
        over may lack the transaction and reuse its number: then the outcome is unknown.
        """
        if not isinstance(lost.transaction_id, TransactionId) or lost.transaction_id.timeline != connection.timeline:
            return None
        try:
            row = connection.execute(
                "SELECT txid_status(%s), extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::float8 < %s",
                lost.transaction_id[:2],
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

    def _after_failure(self, connection: StoreConnection, error: StoreError) -> None:
        if isinstance(error, StoreBusy | StoreReadOnly):
            self._checkin(connection)
        else:
            self._drop_all(connection)

    def _is_clean(self, connection: StoreConnection) -> bool:
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        return is_idle and connection.pgconn.pipeline_status == PipelineStatus.OFF

    def _roll_back(self, connection: StoreConnection) -> None:
        if connection.info.transaction_status != TransactionStatus.IDLE:  # otherwise nothing was sent
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")

    def try_read_statement(self, sql: str, *values: object) -> list[Row] | None:
        return self.read(SingleQuery(sql, values))

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


READ, WRITE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN ISOLATION LEVEL READ COMMITTED"
NUMBER = ("txid_current()", "extract(epoch FROM now())::float8")
"""The columns of a `TransactionId`. A writer gets its number at once, so that its outcome can be queried."""


class Settings:
    """The settings of transactions, and the statements that begin one.

    On a direct connection the settings belong to the session. Otherwise they are local to each transaction. A reader
    blocks no writer, so its idle timeout is the statement timeout.
    """

    def __init__(self, options: AddressOptions) -> None:
        def column(name: str, value: str | float, *, local: bool) -> str:
            text = value if isinstance(value, str) else _milliseconds(value)
            return f"set_config('{name}', '{text}', {str(local).lower()})"

        def columns(idle: float, *, local: bool) -> tuple[str, ...]:
            return (
                column("lock_timeout", options.lock_timeout, local=local),
                column("statement_timeout", options.statement_timeout, local=local),
                column(IDLE, idle, local=local),
            )

        self.session = (
            f"SELECT {', '.join(columns(options.statement_timeout, local=False))},"
            f" {column('synchronous_commit', 'on', local=False)}"
        )
        write = column(IDLE, options.idle_timeout, local=True)
        self._direct = (
            BeginStatements(READ, (), is_numbered=False, with_lock=False),
            BeginStatements(WRITE, (*NUMBER, write), is_numbered=True, with_lock=True),
        )
        reads, writes = (columns(idle, local=True) for idle in (options.statement_timeout, options.idle_timeout))
        synced = column("synchronous_commit", "on", local=True)
        self._pooled = (
            BeginStatements(READ, reads, is_numbered=False, with_lock=False),
            BeginStatements(WRITE, (*NUMBER, *writes, synced), is_numbered=True, with_lock=False),
        )

    def begin_statements(self, connection: StoreConnection, *, writing: bool) -> BeginStatements:
        return (self._direct if connection.is_direct else self._pooled)[writing]


IDLE = "idle_in_transaction_session_timeout"


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _one_line(error: psycopg.Error) -> str:
    """Return the text of an error as one line, without the question that the client library adds."""
    lines = [line for line in str(error).splitlines() if not line.strip().startswith("Is the server running")]
    return " ".join(" ".join(lines).split()).rstrip(".")


def _check_direct(connection: StoreConnection) -> bool:
    """Return True for a direct connection to the server. A pooler reports other process numbers."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def _read_timeline(connection: StoreConnection) -> str:
    """Return the server's timeline, or an empty string if it does not tell it, as some hosted servers."""
    try:
        row = connection.execute("SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)").fetchone()
    except psycopg.Error:  # also on a standby, which refuses all writes
        if connection.closed:
            raise
        return ""
    return row[0] if row else ""


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

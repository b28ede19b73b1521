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
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, takewhile
from struct import Struct
from struct import error as StructError
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple, Self, TypeAlias, cast
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
from contextc.store.transaction_engine import (
    OUTAGE_SECONDS,
    TABLE_PREFIX,
    THREAD_NAME,
    ChangeListener,
    ConnectionLost,
    Dialect,
    LockedRows,
    Result,
    RetryTransaction,
    Row,
    Transaction,
    TransactionEngine,
    has_triggers,
)

# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────────────────
# A transaction on PostgreSQL that needs few round trips.
#
# Nothing is sent before a result is needed: BEGIN, statements without a needed result, and the statement with one go
# to the server together, in one pipeline. COMMIT goes with the last statements. Consecutive statements that change
# different tables are sent as one statement with several parts (common table expressions).
#
# A writer that has locked a row keeps results until it changes one of their tables, or locks another row. A reader
# keeps them until its end. A repeated query is then answered without the server.


# ── statements, sent together and answered in one round trip ──────────────────────────────────────────────────────────
# It uses psycopg's interface to libpq. A psycopg pipeline writes every statement to the socket by itself, which costs
# the client as much time as a round trip. Here all statements of a batch are written at once. Values are sent in
# binary form with one type for each Python type, so a statement is prepared once.


try:
    from psycopg import Connection, DataError, OperationalError
    from psycopg.adapt import Transformer
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus
    from psycopg.waiting import Ready, Wait
except ImportError:  # `contextc.store.postgres` reports it
    if TYPE_CHECKING:
        raise

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

PREPARED_STATEMENTS = 300
"""Number of prepared statements of a connection after which all are removed, and prepared again when needed."""
SEEN_STATEMENTS = 2_000
BINARY = 1
INT8, FLOAT8, BYTEA, BOOL, UNKNOWN = 20, 701, 17, 16, 0
Statement: TypeAlias = tuple[str, Sequence[object]]
StatementKey: TypeAlias = tuple[str, tuple[int, ...]]

_pack_int, _pack_float = Struct("!q").pack, Struct("!d").pack


class Answer(NamedTuple):
    """The result of a statement: its rows, the number of rows that it returned or changed, and its status."""

    rows: list[Row]
    row_count: int
    status: str


class PipelinedConnection:
    """Sends batches of statements. `prepare_after` is the number of executions before a statement is prepared, or 0."""

    def __init__(self, connection: "Connection[Row]", prepare_after: int) -> None:
        self._connection, self._prepare_after = connection, prepare_after
        self._transformer = Transformer(connection)
        self._executions = Counter[StatementKey]()
        self._prepared: dict[StatementKey, bytes] = {}
        self._count = 0

    def execute(self, statements: Sequence[Statement]) -> list[Answer]:
        """Run statements in one round trip. Return the answer to each. The first error is raised."""
        encoded = [(sql, *_encode(values)) for sql, values in statements]
        pgconn = self._connection.pgconn
        asked: list[StatementKey | None] = []  # the statement that a result prepares; None for the result of one
        pgconn.enter_pipeline_mode()
        try:
            for statement in encoded:
                asked += self._send(pgconn, *statement)
            if len(self._prepared) > PREPARED_STATEMENTS:
                self._prepared.clear()
                pgconn.send_query_params(b"DEALLOCATE ALL", None)
                asked.append(("", ()))
            pgconn.pipeline_sync()
            results = self._connection.wait(_exchange(pgconn, len(asked)))
            pgconn.exit_pipeline_mode()
        except BaseException:
            with suppress(OperationalError):
                pgconn.exit_pipeline_mode()
            if pgconn.pipeline_status:  # results are missing: nothing else can be sent
                self._connection.close()
            raise
        return self._read(asked, results)

    def run_script(self, sql: LiteralString) -> None:
        """Run several statements without values."""
        self._connection.execute(sql)

    def _send(
        self, pgconn: "PGconn", sql: str, encoded: list[bytes | None], types: tuple[int, ...], formats: list[int]
    ) -> list[StatementKey | None]:
        """Write a statement to libpq's buffer. Return what its results are for."""
        key = sql, types
        if (name := self._prepared.get(key)) is not None:
            pgconn.send_query_prepared(name, encoded, formats, BINARY)
            return [None]
        if not self._is_frequent(key):
            pgconn.send_query_params(sql.encode(), encoded, types, formats, BINARY)
            return [None]
        self._count += 1
        name = self._prepared[key] = b"contextc_%d" % self._count
        pgconn.send_prepare(name, sql.encode(), types)
        pgconn.send_query_prepared(name, encoded, formats, BINARY)
        return [key, None]

    def _is_frequent(self, key: StatementKey) -> bool:
        if not self._prepare_after:
            return False
        if len(self._executions) > SEEN_STATEMENTS:
            self._executions.clear()
        self._executions[key] += 1
        return self._executions[key] >= self._prepare_after

    def _read(self, asked: Sequence[StatementKey | None], results: "Sequence[PGresult]") -> list[Answer]:
        answers: list[Answer] = []
        failed: PGresult | None = None
        for key, result in zip(asked, results, strict=True):
            status = result.status
            if status == ExecStatus.FATAL_ERROR:
                failed = failed or result
            if key is not None:
                if status != ExecStatus.COMMAND_OK:
                    self._prepared.pop(key, None)
            elif failed is None:
                rows: list[Row] = []
                if status == ExecStatus.TUPLES_OK and result.ntuples:
                    self._transformer.set_pgresult(result)
                    rows = self._transformer.load_rows(0, result.ntuples, tuple)
                said = (result.command_status or b"").decode()
                answers.append(Answer(rows, result.command_tuples or 0, said))
        if failed is not None:
            raise error_from_result(failed)
        return answers


def _exchange(pgconn: "PGconn", count: int) -> "Generator[Wait, Ready | int, list[PGresult]]":
    """Write what is buffered, and read so many results and the end of the pipeline."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:  # the server may wait until its results are read
            pgconn.consume_input()
    results: list[PGresult] = []
    last: PGresult | None = None
    while True:
        while pgconn.is_busy():
            if (yield Wait.R) & Ready.R:
                pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # the end of the results of one statement
            if last is None:
                raise OperationalError("the connection ended before all results were received")
            results.append(last)
            last = None
        elif result.status == ExecStatus.PIPELINE_SYNC:
            break
        else:
            last = result
    if len(results) != count:
        raise OperationalError(f"expected {count} results, got {len(results)}")
    return results


def _encode_int(value: int) -> bytes:
    try:
        return _pack_int(value)
    except StructError:
        raise DataError(f"integer out of range: {value}") from None


def _encode(values: Sequence[object]) -> tuple[list[bytes | None], tuple[int, ...], list[int]]:
    """Return values in the form of the protocol, their types, and whether they are binary."""
    encoded: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    for value in values:
        kind: Any = type(value)
        if kind is bytes:
            encoded.append(value)  # pyright: ignore[reportArgumentType]
            types.append(BYTEA)
            formats.append(BINARY)
        elif kind is int:
            encoded.append(_encode_int(value))  # pyright: ignore[reportArgumentType]
            types.append(INT8)
            formats.append(BINARY)
        elif value is None:
            encoded.append(None)
            types.append(UNKNOWN)
            formats.append(0)
        elif isinstance(value, str):
            if "\0" in value:
                raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            encoded.append(value.encode())
            types.append(UNKNOWN)
            formats.append(0)
        elif isinstance(value, float):
            encoded.append(_pack_float(value))
            types.append(FLOAT8)
            formats.append(BINARY)
        elif kind is bool:
            encoded.append(b"\1" if value else b"\0")
            types.append(BOOL)
            formats.append(BINARY)
        elif isinstance(value, int):
            encoded.append(_encode_int(int(value)))
            types.append(INT8)
            formats.append(BINARY)
        elif isinstance(value, bytearray):
            encoded.append(bytes(value))
            types.append(BYTEA)
            formats.append(BINARY)
        else:
            raise TypeError(f"expected a number, text or bytes, got {type(value).__name__}")
    return encoded, tuple(types), formats


# ── the transaction ───────────────────────────────────────────────────────────────────────────────────────────────────


POSTGRES = Dialect(
    name="postgres",
    row_lock=" FOR UPDATE",
    now="extract(epoch FROM clock_timestamp())::float8",
    integrity_query="",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    short_lock_timeout="SET LOCAL lock_timeout = 2000",
)
MAX_KEPT_ROWS, MAX_KEPT_RESULTS = 8, 200
"""Results with more rows, and further results, are not kept for a repeated query."""
MAX_WAITING = 200
"""Number of statements after which they are sent, so that an import does not hold all of its rows in memory."""
MAX_PARTS = 12
"""Maximum number of changes that are sent as one statement."""
ROWS_PER_INSERT = (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)
"""Numbers of rows of one INSERT. They are few, because each one is a statement of its own that the server prepares."""
CACHED_STATEMENTS = 2_000

Kind: TypeAlias = Literal["read", "lock", "write", "other"]


class TransactionId(NamedTuple):
    """The server's identification of a transaction: its number, and its start by the server's clock.

    `timeline` is the history of servers that the number belongs to; another server begins a new one when it takes over.
    """

    xid: int
    began: float
    timeline: str = ""


class BeginStatements(NamedTuple):
    """The statements that begin a transaction: BEGIN, and the columns of a query for its number and its settings.

    `is_numbered` is True if the first two columns are a `TransactionId`. `with_lock` is True if the columns may be part
    of the first query that locks a row, because no setting must precede it.
    """

    begin: str
    columns: tuple[str, ...]
    is_numbered: bool
    with_lock: bool


class PostgresTransaction:
    """SQL on one connection, between BEGIN and COMMIT."""

    dialect = POSTGRES

    def __init__(
        self, connection: PipelinedConnection, schema: str, again: bool, begin: BeginStatements | None
    ) -> None:
        self.is_retry = again
        self.locked: LockedRows | None = LockedRows()
        self.id: TransactionId | None = None
        self._connection, self.schema = connection, schema
        self._begin = begin
        self._waiting: list[tuple[str, Sequence[object]]] = []
        self._announced: list[tuple[str, tuple[object, ...]]] = []
        self._keeps = begin is None or not begin.is_numbered
        """True if a repeated query returns the same rows: in a reader, and in a writer that has locked its rows."""
        self._kept: dict[tuple[str, tuple[object, ...]], tuple[Row, ...]] = {}

    def run(self, sql: str, *values: object) -> int:
        self._forget(sql)
        return self._execute(sql, values).row_count

    def send(self, sql: str, *values: object) -> None:
        self._forget(sql)
        self._waiting.append((sql, values))
        if len(self._waiting) > MAX_WAITING:
            self._send_waiting()

    def prefetch(self, sql: str, *values: object) -> None:
        if (sql, values) not in self._kept:
            self._announced.append((sql, values))

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._forget(sql)
        for batch in _batches(rows):
            self._waiting.append((_with_rows(sql, len(batch)), [value for row in batch for value in row]))
            if len(self._waiting) > MAX_WAITING:
                self._send_waiting()

    def rows(self, sql: str, *values: object) -> list[Row]:
        key = sql, values
        if (kept := self._kept.get(key)) is not None:
            if len(kept) > MAX_KEPT_ROWS:  # it was announced
                del self._kept[key]
            return list(kept)
        kind, tables = describe(sql)
        if kind != "read":
            self._forget(sql)
        if key in self._announced:
            self._announced.remove(key)
        found = self._execute(sql, values).rows
        is_small = len(found) <= MAX_KEPT_ROWS and len(self._kept) < MAX_KEPT_RESULTS
        if self._keeps and is_small and tables and kind in ("read", "lock"):
            self._kept[key] = tuple(found)
        return found

    def row(self, sql: str, *values: object) -> Row | None:
        found = self.rows(sql, *values)
        return found[0] if found else None

    def run_single(self, sql: str, values: Sequence[object]) -> list[Row]:
        """Run the only query of a transaction, and end it in the same round trip."""
        statements: list[Statement] = [(translate_sql(sql, self.schema), values)]
        if self._begin is None:
            return self._connection.execute(statements)[0].rows
        statements = [(self._begin.begin, ()), (_select(self._begin.columns), ()), *statements, ("COMMIT", ())]
        return self._connection.execute(statements)[2].rows

    def run_script(self, sql: LiteralString) -> None:
        """Run several statements without values, after those that wait."""
        self._execute("SELECT 1", ())
        self._kept.clear()
        self._connection.run_script(sql)

    # ── the end of a transaction ──────────────────────────────────────────────────────────────────────────────────────

    def finish_writes(self) -> None:
        """Begin the transaction if it has only statements that wait, so that its number is known before its commit."""
        if self._begin is not None and self._waiting:
            self._send_waiting()

    def commit(self) -> bool:
        """Send what is left, and commit. Return False if an earlier statement had failed."""
        if self._begin is not None:  # no statement was sent
            return True
        answers = self._connection.execute([*self._take_waiting(), ("COMMIT", ())])
        return answers[-1].status == "COMMIT"

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _execute(self, sql: str, values: Sequence[object]) -> Answer:
        """Send a statement with all that wait."""
        if self._begin is None and not self._waiting and not self._announced:
            return self._connection.execute([(translate_sql(sql, self.schema), values)])[0]
        self._waiting.append((sql, values))
        return self._send_waiting()

    def _send_waiting(self) -> Answer:
        """Send everything that waits, then the announced queries. Return the answer to the last one that waited."""
        begin, self._begin = self._begin, None
        announced, self._announced = self._announced, []
        is_locking = describe(self._waiting[0][0]).kind == "lock"
        statements = self._take_waiting()
        in_first = begin is not None and begin.with_lock and is_locking
        if begin is not None:
            if in_first:
                statements[0] = _numbered(statements[0][0], begin.columns), statements[0][1]
            elif begin.columns:
                statements.insert(0, (_select(begin.columns), ()))
            statements.insert(0, (begin.begin, ()))
        last = len(statements) - 1
        statements += [(translate_sql(sql, self.schema), values) for sql, values in announced]
        answers = self._connection.execute(statements)
        for key, answer in zip(announced, answers[last + 1 :], strict=True):
            self._kept[key] = tuple(answer.rows)
        if begin is None or not begin.is_numbered:
            return answers[last]
        found, count = answers[1].rows, len(begin.columns)
        self.id = TransactionId(found[0][0], found[0][1])
        if last > 1:
            return answers[last]
        rows = [row[count + 1 :] for row in found if row[count]]
        return Answer(rows, len(rows), "")

    def _take_waiting(self) -> list[Statement]:
        """Return the statements that wait, as few as possible."""
        waiting, self._waiting = self._waiting, []
        found: list[Statement] = []
        group: list[tuple[str, Sequence[object]]] = []
        tables: set[str] = set()

        def close() -> None:
            if group:
                sql = merge_sql(tuple([sql for sql, _ in group]), self.schema)
                found.append((sql, [value for _, values in group for value in values]))
                group.clear()
                tables.clear()

        for sql, values in waiting:
            about = describe(sql)
            if about.kind != "write" or not tables.isdisjoint(about.tables) or len(group) == MAX_PARTS:
                close()
            group.append((sql, values))
            tables |= about.tables
            if about.kind != "write":
                close()
        close()
        return found

    def _forget(self, sql: str) -> None:
        """Remove the kept results that a statement may change."""
        kind, tables = describe(sql)
        self._keeps = self._keeps or kind == "lock"
        if self._kept:
            if kind == "write":
                for key in [key for key in self._kept if not tables.isdisjoint(describe(key[0]).tables)]:
                    del self._kept[key]
            elif kind != "read":  # a lock may wait for another transaction, whose changes are then visible
                self._kept.clear()


# ── SQL ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class StatementKind(NamedTuple):
    kind: Kind
    tables: frozenset[str]


CHANGED_BY_TRIGGERS = {"conversation": "conversation_name", "message": "search_term"}
"""Tables whose changes make a trigger change another table. No foreign key changes one."""


@lru_cache(CACHED_STATEMENTS)
def describe(sql: str) -> StatementKind:
    """Return what a statement does, and the tables of the store that it reads or changes.

    A statement names them with `TABLE_PREFIX`. One that names none, or begins with another word, is of kind "other":
    it is sent by itself, and nothing is kept after it.
    """
    tables = {"".join(takewhile(str.isidentifier, piece)) for piece in sql.split(TABLE_PREFIX)[1:]}
    if tables and sql.startswith(("INSERT ", "UPDATE ", "DELETE ")):
        return StatementKind("write", frozenset(tables | {CHANGED_BY_TRIGGERS.get(each, each) for each in tables}))
    if tables and sql.startswith(("SELECT ", "WITH RECURSIVE ")):
        return StatementKind("lock" if POSTGRES.row_lock in sql else "read", frozenset(tables))
    return StatementKind("other", frozenset(tables))


@lru_cache(CACHED_STATEMENTS)
def merge_sql(statements: tuple[str, ...], schema: str) -> str:
    """Return a statement, or several changes of different tables as one, as PostgreSQL takes it.

    All SQL is written in this package; values never become part of it.
    """
    *others, last = statements
    parts = ", ".join([f"change_{index} AS ({sql})" for index, sql in enumerate(others)])
    merged = f"WITH {parts} {last}" if others else last
    first, *rest = merged.replace(TABLE_PREFIX, f'"{schema}".').split("?")
    return first + "".join([f"${number}{piece}" for number, piece in enumerate(rest, 1)])


@lru_cache(CACHED_STATEMENTS)
def translate_sql(sql: str, schema: str) -> str:
    return merge_sql((sql,), schema)


@lru_cache(CACHED_STATEMENTS)
def _select(columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(columns)}"


@lru_cache(CACHED_STATEMENTS)
def _numbered(sql: str, columns: tuple[str, ...]) -> str:
    """Return a query for these columns and for the rows of another query, or for one row without them."""
    return (
        f"{_select(columns)}, found.* FROM (SELECT 1) AS one"
        f" LEFT JOIN LATERAL (SELECT true, inner_query.* FROM ({sql}) AS inner_query) AS found ON true"
    )


@lru_cache(CACHED_STATEMENTS)
def _with_rows(sql: str, count: int) -> str:
    """Return an INSERT of one row as an INSERT of several rows."""
    before, _, after = sql.partition(" VALUES (")
    row, _, after = after.partition(")")
    return f"{before} VALUES {', '.join([f'({row})'] * count)}{after}"


def _batches(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    """Yield the rows in batches of few different sizes."""
    source = iter(rows)
    while ready := list(islice(source, ROWS_PER_INSERT[0])):
        while ready:
            size = next(size for size in ROWS_PER_INSERT if size <= len(ready))
            yield ready[:size]
            ready = ready[size:]


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

    `prepare` is the number of executions after which a statement is prepared. 0 means `PREPARE_THRESHOLD` on direct
    connections, and never behind a pooler.
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


class PostgresEngine(TransactionEngine[StoreConnection]):
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
        self._settings = TransactionSettings(self._options)

    def _run_with_retries(self, work: Callable[[Transaction], Result], *, writing: bool, repeatable: bool) -> Result:
        if self.is_closed:
            self._checkout()  # raises
        # A reserved slot, so that leases are renewed on time while all other operations wait for locks.
        slots = self._scheduler_slot if threading.current_thread().name == THREAD_NAME else self._slots
        with slots.take(self.outage_seconds):
            return super()._run_with_retries(work, writing=writing, repeatable=repeatable)

    def reset_after_fork(self) -> None:
        super().reset_after_fork()
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

    def try_read_statement(self, sql: str, values: tuple[object, ...]) -> list[Row] | None:
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
        tx.run(f'SET LOCAL search_path = "{self._schema}", pg_temp')  # for the statements of migrations

    def erase_removed_content(self) -> None:
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


class TransactionSettings:
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

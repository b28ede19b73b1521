"""A transaction on PostgreSQL that needs few round trips.

Nothing is sent before a result is needed: BEGIN, statements without a needed result, and the statement with one go to
the server together, in one pipeline. COMMIT goes with the last statements. Consecutive statements that change different
tables are sent as one statement with several parts (common table expressions).

A writer that has locked a row keeps results until it changes one of their tables, or locks another row. A reader keeps
them until its end. A repeated query is then answered without the server.
"""

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple, TypeAlias

from contextc.store.backend_interface import Dialect, LockedRows, Row

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


TABLE_PATTERN = re.compile(
    r"((?<!\bFOR )(?<!\bDO )(?<!\bDISTINCT )"
    r"\b(?:FROM|JOIN|INTO|UPDATE|USING|TABLE(?: IF(?: NOT)? EXISTS)?|INDEX \w+ ON)\s+)"
    r"([a-z_]\w*\b(?![.(])(?:\s+[a-z_]\w*)?(?:\s*,\s*[a-z_]\w*\b(?![.(])(?:\s+[a-z_]\w*)?)*)"
)
"""Table names in a statement: a keyword, then names separated by commas, each with an optional alias. In this package
keywords are upper case and names are lower case."""
NAME_PATTERN = re.compile(r"(^|,\s*)([a-z_]\w*)")
CTE_PATTERN = re.compile(r"(?:\bWITH(?: RECURSIVE)?|,)\s+([a-z_]\w*)\s*(?:\([^()]*\)\s*)?AS \(")
VALUES_PATTERN = re.compile(r"VALUES (\([^()]*\))")


@lru_cache(CACHED_STATEMENTS)
def describe(sql: str) -> StatementKind:
    """Return what a statement does, and the tables it names."""
    first = sql.lstrip().partition(" ")[0]
    names = [name for match in TABLE_PATTERN.finditer(sql) for _, name in NAME_PATTERN.findall(match[2])]
    if first in ("INSERT", "UPDATE", "DELETE"):
        return StatementKind("write", frozenset(names))
    if first not in ("SELECT", "WITH") or "INSERT INTO" in sql or "pg_advisory" in sql:
        return StatementKind("other", frozenset(names))
    return StatementKind("lock" if " FOR UPDATE" in sql else "read", frozenset(names))


@lru_cache(CACHED_STATEMENTS)
def translate_sql(sql: str, schema: str) -> str:
    """Return the SQL with PostgreSQL's placeholders and with qualified table names, except for `pg_…` tables.

    All SQL is written in this package; values never become part of it.
    """
    return _number_placeholders(_qualify_names(sql, schema))


def _number_placeholders(sql: str) -> str:
    first, *rest = sql.split("?")
    return first + "".join([f"${number}{piece}" for number, piece in enumerate(rest, 1)])


@lru_cache(CACHED_STATEMENTS)
def _qualify_names(sql: str, schema: str) -> str:
    defined = {*CTE_PATTERN.findall(sql)}

    def qualified(match: re.Match[str]) -> str:
        return match[0] if match[2] in defined or match[2].startswith("pg_") else f'{match[1]}"{schema}".{match[2]}'

    return TABLE_PATTERN.sub(lambda match: match[1] + NAME_PATTERN.sub(qualified, match[2]), sql)


@lru_cache(CACHED_STATEMENTS)
def merge_sql(statements: tuple[str, ...], schema: str) -> str:
    """Return several changes of different tables as one statement."""
    if len(statements) == 1:
        return translate_sql(statements[0], schema)
    *others, last = [_qualify_names(sql, schema) for sql in statements]
    parts = ", ".join(f"change_{index} AS ({sql})" for index, sql in enumerate(others))
    return _number_placeholders(f"WITH {parts} {last}")


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
    return VALUES_PATTERN.sub(lambda match: "VALUES " + ", ".join([match[1]] * count), sql, count=1)


def _batches(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    """Yield the rows in batches of few different sizes."""
    source = iter(rows)
    while ready := list(islice(source, ROWS_PER_INSERT[0])):
        while ready:
            size = next(size for size in ROWS_PER_INSERT if size <= len(ready))
            yield ready[:size]
            ready = ready[size:]

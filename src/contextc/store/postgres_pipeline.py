"""Statements on a PostgreSQL connection, sent together and answered in one round trip.

It uses psycopg's interface to libpq. A psycopg pipeline writes every statement to the socket by itself, which costs
the client as much time as a round trip. Here all statements of a batch are written at once. Values are sent in binary
form with one type for each Python type, so a statement is prepared once.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, TypeAlias

from contextc.store.backend_interface import Row

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

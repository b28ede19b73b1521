"""A PostgreSQL store that counts what its connections exchange with the server, from the trace of libpq."""

import ctypes
import os
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psycopg

import contextc as cc
from contextc.store.postgres import PostgresEngine, StoreConnection
from contextc.store.store import engine_of, open_with

MESSAGE = re.compile(r"^([FB])\t(\d+)\t(\w+)(?:\t ?([^\n]*))?$", re.MULTILINE)


class Traffic(NamedTuple):
    """Messages between a client and its server.

    A statement is one that the server completed, also BEGIN and COMMIT. A transaction ended if the server is idle. A
    round trip is a request for results: the client sends it, with everything before it, and waits.
    """

    statements: int
    transactions: int
    round_trips: int
    sent: int
    received: int


class CountedPostgres(PostgresEngine):
    """Counts from the first connection on. Open it with `open_counted`."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.server_pids: set[int] = set()
        self._traces: list[str] = []

    def _connect(self) -> StoreConnection:
        connection = super()._connect()
        descriptor, path = tempfile.mkstemp(prefix="contextc-trace-")
        connection.pgconn.trace(descriptor)
        connection.pgconn.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
        self._traces.append(path)
        self.server_pids.add(connection.info.backend_pid)
        return connection

    def reset_traffic(self) -> None:
        flush_traces()
        for path in self._traces:
            os.truncate(path, 0)

    def traffic(self) -> Traffic:
        """Return what was exchanged since the last reset."""
        kinds, sizes, idle, before = Counter[str](), Counter[str](), 0, ""
        for way, size, kind, rest in self.messages():
            if (kind, before) == ("Flush", "Sync"):  # psycopg sends both at the end of a pipeline
                continue
            before = kind
            kinds[way + kind] += 1
            sizes[way] += size + 1
            idle += way + kind == "BReadyForQuery" and rest.startswith("I")
        return Traffic(
            statements=kinds["BCommandComplete"] + kinds["BErrorResponse"],
            transactions=idle,
            round_trips=kinds["FQuery"] + kinds["FSync"] + kinds["FFlush"],
            sent=sizes["F"],
            received=sizes["B"],
        )

    def has_ended_transaction_with(self, text: str) -> bool:
        """Return True if a transaction with this text in a statement was begun and ended since the last reset."""
        return any("ReadyForQuery\t I" in said.partition(text)[2] for said in self._read_traces())

    def messages(self) -> list[tuple[str, int, str, str]]:
        """Return all messages since the last reset: direction (F to the server, B from it), size, kind, content."""
        found = [match for said in self._read_traces() for match in MESSAGE.findall(said)]
        return [(way, int(size), kind, rest) for way, size, kind, rest in found]

    def _read_traces(self) -> list[str]:
        """Return the trace of each connection. It continues where it was before it was emptied."""
        flush_traces()
        return [Path(path).read_text(encoding="utf-8", errors="replace").lstrip("\0") for path in self._traces]

    def close(self) -> None:
        super().close()
        for path in self._traces:
            os.unlink(path)
        self._traces = []


def flush_traces() -> None:
    """Write what libpq has buffered. It keeps the answers to the last request until the next one."""
    ctypes.CDLL(None).fflush(None)


def open_counted(address: str) -> cc.Store:
    return open_with(CountedPostgres(address))


def counter_of(store: cc.Store) -> CountedPostgres:
    """Return what counts the traffic of a store that `open_counted` opened."""
    engine = engine_of(store)
    assert isinstance(engine, CountedPostgres)
    return engine

"""A PostgreSQL store that reports when it waits for its server, and may lose the answer to a commit."""

import threading
from collections.abc import Callable
from typing import Literal

import psycopg

from contextc.store.postgres import PostgresEngine, PostgresTransaction, StoreConnection
from contextc.store.transaction_engine import ConnectionLost


class Watched(PostgresEngine):
    """Sets an event whenever no connection can be made for now."""

    def __init__(self, address: str, refused: threading.Event) -> None:
        super().__init__(address)
        self.refused = refused

    def _connect(self) -> StoreConnection:
        try:
            return super()._connect()
        except ConnectionLost:
            self.refused.set()
            raise


class LosesCommits(PostgresEngine):
    """Cuts the next connection before the server gets a COMMIT, or after it was carried out."""

    lose: Literal["before", "after"] | None = None
    lost: Callable[[], object] = staticmethod(lambda: None)
    """Called when that has happened."""

    def _commit(self, connection: StoreConnection, tx: PostgresTransaction) -> bool:
        if self.lose is None:
            return super()._commit(connection, tx)
        if self.lose == "after":
            super()._commit(connection, tx)
        self.lose = None
        connection.close()
        self.lost()
        raise psycopg.OperationalError("the connection is lost")


class FailsOver(LosesCommits):
    """Loses a commit, and then connects to another server, which has taken over."""

    timeline = ""

    def _connect(self) -> StoreConnection:
        connection = super()._connect()
        connection.timeline = self.timeline or connection.timeline
        return connection

"""A PostgreSQL store that reports when it waits for its server, and may lose the answer to a commit."""

import threading
from collections.abc import Callable
from typing import Any, Literal

import psycopg

from contextc.store.backend_interface import Row
from contextc.store.postgres import PostgresStore
from contextc.store.transaction_engine import ConnectionLost


class Watched(PostgresStore):
    """Sets an event whenever no connection can be made for now."""

    def __init__(self, address: str, refused: threading.Event) -> None:
        super().__init__(address)
        self.refused = refused

    def _connect(self) -> "psycopg.Connection[Row]":
        try:
            return super()._connect()
        except ConnectionLost:
            self.refused.set()
            raise


class LosesCommits(PostgresStore):
    """Cuts the next connection before the server gets a COMMIT, or after it was carried out."""

    lose: Literal["before", "after"] | None = None
    lost: Callable[[], object] = staticmethod(lambda: None)
    """Called when that has happened."""

    def _connect(self) -> "psycopg.Connection[Row]":
        connection = super()._connect()
        execute = connection.execute

        def losing(query: Any, *given: Any, **more: Any) -> "psycopg.Cursor[Row]":
            if query != "COMMIT" or self.lose is None:
                return execute(query, *given, **more)
            if self.lose == "after":
                execute(query)
            self.lose = None
            connection.close()
            self.lost()
            raise psycopg.OperationalError("the connection is lost")

        connection.execute = losing
        return connection

"""The connection of a worker to the queue: procrastinate's connector, which survives restarts of the server."""

import asyncio
from collections.abc import Iterable
from typing import Any

import psycopg
from procrastinate import PsycopgConnector, sql
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException

from contextc._credential_mask import get_logger
from contextc.store.postgres import PostgresEngine

log = get_logger(__name__)
RETRY_SECONDS = 1.0
POOL_SIZE = 3
POOL_TIMEOUT = 10.0
JOB_ENDS = (sql.queries["finish_job"], sql.queries["retry_job"])
"""Statements that fail if another worker has replaced the job."""


def is_outage(error: BaseException | None) -> bool:
    """Return True if a query failed because the server cannot be reached."""
    while error is not None:
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return True
        error = error.__cause__
    return False


class QueueConnection(PsycopgConnector):
    """A connector whose statements without a result are retried during an outage."""

    has_lost_job = False
    """True if a job may have been fetched whose data did not arrive."""

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        while True:
            try:
                return await super().execute_query_async(query, **arguments)
            except ConnectorException as error:
                if query in JOB_ENDS and isinstance(error.__cause__, psycopg.errors.RaiseException):
                    log.info("a job was taken over by another worker: %s", error.__cause__)
                    return None
                if not is_outage(error):
                    raise
                log.info("the queue cannot be reached: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        try:
            return await super().execute_query_one_async(query, **arguments)
        except ConnectorException as error:
            if query != sql.queries["fetch_job"] or not is_outage(error):
                raise
            self.has_lost_job = True
            return {"id": None}

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        while True:
            try:
                await super().listen_notify(on_notification, channels)
            except (ConnectorException, OSError) as error:
                log.info("the queue cannot be reached: %s", error)
            await asyncio.sleep(RETRY_SECONDS)


def make_queue_connection(engine: PostgresEngine) -> QueueConnection:
    """Return a connection to the queue of a store. It is not opened yet."""
    return QueueConnection(
        kwargs={**engine.connection_parameters(), "prepare_threshold": None},
        min_size=1,
        max_size=POOL_SIZE,
        timeout=POOL_TIMEOUT,
    )

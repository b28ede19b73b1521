"""PostgreSQL behind pgbouncer in transaction mode, where consecutive transactions run on different sessions."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

import contextc as cc
from contextc.doctor import scan_store
from tests.conftest import in_schema
from tests.pgbouncer_server import DECOY
from tests.store.test_concurrent_processes import PROCESSES, retry_the_same


@pytest.fixture
def decoy(postgres_server: str) -> Iterator[str]:
    """A store in the schema where bare names would lead, which has to stay empty."""
    cc.open_store(in_schema(postgres_server, DECOY)).close()
    yield DECOY
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {DECOY} CASCADE".encode())


def rows_in(server: str, schema: str) -> dict[str, int]:
    """How many rows each table of a schema has, where there are any."""
    with psycopg.connect(server, autocommit=True) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert len(names) > 20
        counts = {
            name: (connection.execute(f'SELECT count(*) FROM "{schema}".{name}'.encode()).fetchone() or (0,))[0]
            for (name,) in names
            if name != "schema_version"
        }
    return {name: count for name, count in counts.items() if count}


def test_stores_of_several_schemas_share_a_pooler(
    pgbouncer_server: str, postgres_server: str, postgres_address: str, decoy: str
) -> None:
    """A session that another store used before keeps its settings: messages must not land in that store's schema."""
    schema = postgres_address.rpartition("schema=")[2]
    schemas = [f"{schema[:50]}_{name}" for name in "abc"]
    failures: list[BaseException] = []

    def append(schema: str, number: int) -> None:
        try:
            with cc.open_store(in_schema(pgbouncer_server, schema)) as store:
                for _ in range(8):
                    store.append(f"c{number}", cc.user(schema))
        except BaseException as error:
            failures.append(error)

    try:
        threads = [threading.Thread(target=append, args=(name, number)) for number in range(3) for name in schemas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for name in schemas:
            with cc.open_store(in_schema(postgres_server, name)) as store:
                texts = [message.text for each in store.conversations() for message in store.load(each.name)]
                assert texts == [name] * 24
        assert rows_in(postgres_server, decoy) == {}
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            for name in schemas:
                connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def test_no_setting_outlives_its_transaction(pgbouncer_server: str, pooled_address: str) -> None:
    """The next user of a session is another program: our timeouts must not end its statements."""
    with cc.open_store(pooled_address) as store:
        for number in range(8):
            store.append(f"c{number}", cc.user("hello"))
            store.load(f"c{number}")
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
    with ExitStack() as sessions:
        for _ in range(4):  # all there are: each of these transactions keeps its own
            connection = sessions.enter_context(psycopg.connect(pgbouncer_server, prepare_threshold=None))
            found = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
            assert found == [("0",), ("0",), ("0",), ("on",)]


def test_everything_a_conversation_is_made_of_goes_through_a_pooler(
    pooled_address: str, postgres_server: str, decoy: str
) -> None:
    """Branches, leases, streams, todos, pins, redaction and deletion, on as many sessions as there are."""
    with cc.open_store(pooled_address) as store:
        store.extend("demo", [cc.user(str(number)) for number in range(5)])
        store.append("demo", cc.user("once"), key="k")
        store.append("demo", cc.user("once"), key="k")
        store.fork("demo", "other", at=2)
        store.edit("demo", 2, cc.user("changed"))
        store.rewind("demo", 1)
        store.pin("demo", 1)
        store.add_todo("demo", "a todo")
        store.enqueue("demo", cc.user("later"))
        with store.lease("demo") as lease, store.stream(lease) as stream:
            stream.write("streamed ")
            stream.flush()
            stream.write("reply")
        store.redact("other", 1)
        store.delete("other")
        assert [message.text for message in store.load("demo")] == ["", "streamed reply"]
        assert [todo.text for todo in store.todos("demo")] == ["a todo"]
        assert [finding.code for finding in scan_store(store)] == []
        assert [each.name for each in store.overviews(search="streamed").found] == ["demo"]
    assert rows_in(postgres_server, decoy) == {}


def test_processes_that_share_a_pooler_make_one_chain(pooled_address: str) -> None:
    """The same keys from several processes at once are stored once each."""
    cc.open_store(pooled_address).close()
    start = PROCESSES.Barrier(3)
    writers = [PROCESSES.Process(target=retry_the_same, args=(pooled_address, start)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * 3
    with cc.open_store(pooled_address) as store:
        messages = store.load("demo")
        assert [message.seq for message in messages] == list(range(1, 51))
        assert Counter(message.text for message in messages) == Counter(map(str, range(50)))

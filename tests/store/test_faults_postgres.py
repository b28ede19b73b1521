"""Faults of a server: lost connections, no server, missing rights, missing tables."""

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

import contextc as cc
from contextc.store.migrations import migrations
from contextc.store.postgres import PostgresEngine, StoreConnection
from contextc.store.store import open_with
from contextc.store.transaction_engine import ConnectionLost, Result, Transaction


def backend(tx: Transaction) -> int:
    row = tx.row("SELECT pg_backend_pid()")
    assert row is not None
    return int(row[0])


@pytest.fixture
def cut(postgres_server: str) -> Callable[[int], None]:
    """End a connection from the server's side."""

    def terminate(pid: int) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            while connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
                time.sleep(0.01)

    return terminate


def test_a_connection_cut_in_a_transaction_is_taken_up_again(postgres_address: str, cut: Callable[[int], None]) -> None:
    """The server has rolled it back, so it may be run again: once, and completely."""
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("before"))
        tries: list[int] = []

        def work(tx: Transaction) -> None:
            tx.run("INSERT INTO main.edge (place) VALUES (?)", 7)
            tries.append(backend(tx))
            if len(tries) == 1:
                cut(tries[0])
            tx.row("SELECT 1")

        store.write(work)
        assert len(tries) == 2
        assert store.read(lambda tx: tx.rows("SELECT place FROM main.edge")) == [(7,)]
        store.append("demo", cc.user("after"))
        assert [message.text for message in store.load("demo")] == ["before", "after"]


def test_connections_cut_between_calls_are_replaced(postgres_address: str, cut: Callable[[int], None]) -> None:
    """A restart of the server must not raise an error in every open store."""
    with cc.open_store(postgres_address) as store:
        for number in range(5):
            store.append("demo", cc.user(str(number)))
            cut(store.read(backend))
        assert [message.text for message in store.load("demo")] == list("01234")


def test_a_connection_whose_state_the_driver_lost_is_replaced(postgres_address: str) -> None:
    """A pooler that goes away leaves the driver with an error that has no code of the server."""
    with cc.open_store(postgres_address) as store:
        tries: list[int] = []

        def work(tx: Transaction) -> None:
            tries.append(backend(tx))
            if len(tries) == 1:
                raise psycopg.OperationalError("cannot exit pipeline mode while busy")
            tx.run("INSERT INTO main.edge (place) VALUES (?)", 7)

        store.write(work)
        assert len({*tries}) == 2
        assert store.read(lambda tx: tx.rows("SELECT place FROM main.edge")) == [(7,)]


class CutWhileCommitting(PostgresEngine):
    """A store whose connection breaks right after the server has committed, before its answer arrives."""

    cuts = 0
    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    """What others do before the transaction is run again."""

    def _run(
        self,
        connection: StoreConnection,
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        result = super()._run(connection, work, writing=writing, again=again)
        if writing and self.cuts:
            self.cuts -= 1
            connection.close()
            self.meanwhile()
            raise ConnectionLost(during_commit=True)
        return result


def test_an_append_whose_commit_was_cut_is_neither_lost_nor_doubled(postgres_address: str) -> None:
    """The outcome is open then, and the message's uid settles it; what has no such mark is not repeated."""
    cc.open_store(postgres_address).close()
    cutting = CutWhileCommitting(postgres_address)
    with open_with(cutting) as store:
        cutting.cuts = 1
        stored = store.append("demo", cc.user("once"))
        assert (cutting.cuts, store.load("demo")) == (0, [stored])
        cutting.cuts = 2
        assert len(store.extend("demo", [cc.user("a"), cc.user("b", uid="b")])) == 2
        assert [message.text for message in store.load("demo")] == ["once", "a", "b"]
        cutting.cuts = 1
        assert [message.text for message in store.sync("demo", [*store.load("demo"), cc.user("c")])] == ["c"]
        with store.lease("demo") as lease:
            stream = store.stream(lease)
            stream.write("d")
            cutting.cuts = 1
            stream.flush()
            cutting.cuts = 1
            assert stream.end().text == "d"
        assert [message.text for message in store.load("demo")] == ["once", "a", "b", "c", "d"]
        cutting.cuts = 1
        with pytest.raises(
            cc.errors.StoreUnavailable, match=r"broke while committing.*Load the conversation before you retry"
        ):
            store.fork("demo", "other")


def test_an_append_whose_commit_was_cut_is_recognised_wherever_it_is(postgres_address: str) -> None:
    """Another process may have turned the conversation to another branch before the append is run again."""
    cutting = CutWhileCommitting(postgres_address)
    with cc.open_store(postgres_address) as other, open_with(cutting) as store:
        store.extend("demo", [cc.user("one"), cc.user("two")])
        for message in (cc.user("three"), cc.user("four", uid="given")):
            cutting.cuts, cutting.meanwhile = 1, lambda: other.rewind("demo", 1)
            stored = store.append("demo", message)
            assert (stored.text, cutting.cuts) == (message.text, 0)
            texts = [[each.text for each in store.load("demo", branch=line.number)] for line in store.branches("demo")]
            assert sum(each.count(message.text) for each in texts) == 1


def test_connections_cut_under_load_lose_and_double_nothing(postgres_address: str, postgres_server: str) -> None:
    """Forty appends while every connection is ended again and again."""
    done = threading.Event()

    def cut_everything() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            while not done.wait(0.05):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )

    with cc.open_store(postgres_address) as store:
        enemy = threading.Thread(target=cut_everything)
        enemy.start()
        try:
            for number in range(40):
                store.append("demo", cc.user(str(number)))
                time.sleep(0.003)
        finally:
            done.set()
            enemy.join()
        assert [message.text for message in store.load("demo")] == [str(number) for number in range(40)]


SECRETS = [
    "postgresql://ann:hunter2@127.0.0.1:9/none",
    "postgresql://ann:hunter2@127.0.0.1:9,127.0.0.1:19/none",
    "postgresql://127.0.0.1:9/none?user=ann&password=hunter2",
    "postgresql://127.0.0.1:9/none?sslpassword=hunter2",
    "postgresql://127.0.0.1:9/none?passfile=/hunter2",
    "postgresql://ann:hunter2@127.0.0.1:9/none?pool=3&password=hunter2",
]


@pytest.mark.parametrize("address", SECRETS)
def test_a_server_that_is_not_there_is_named_without_the_password(address: str) -> None:
    """Errors are logged and shown; keys are never printed."""
    with pytest.raises(cc.errors.StoreUnavailable, match=r"cannot be reached.*Check that the server runs") as caught:
        cc.open_store(address)
    assert "hunter2" not in str(caught.value)
    assert "?." not in str(caught.value)
    assert "hunter2" not in repr(cc.store.Store(PostgresEngine(address)))


def test_the_text_of_the_driver_are_shown_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq may quote what it was given."""

    def connect(given: str, **options: object) -> None:
        raise psycopg.OperationalError(f"connection failed: {given}")

    monkeypatch.setattr(StoreConnection, "connect", connect)
    with pytest.raises(cc.errors.StoreUnavailable, match=r"connection failed: .*ann:\*\*\*@") as caught:
        cc.open_store("postgresql://ann:hunter2@127.0.0.1:9/none")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresq://ann:hunter2@host/db",
        "postgresql://ann:hunter2/x@host/db",
        "postgresql://ann:hunter2@host/db?pool=0",
        "postgresq://host/db?password=hunter2",
    ],
)
def test_an_invalid_address_is_named_without_the_password(address: str) -> None:
    with pytest.raises(cc.errors.InvalidSetting) as caught:
        cc.open_store(address)
    assert "hunter2" not in str(caught.value)


def test_a_user_without_write_permission_gets_an_error(postgres_address: str) -> None:
    cc.open_store(postgres_address).close()
    read_only = f"{postgres_address}&options=-c%20default_transaction_read_only%3Don"
    with (
        cc.open_store(read_only) as store,
        pytest.raises(cc.errors.StoreReadOnly, match="Grant this user write access"),
    ):
        store.append("demo", cc.user("x"))


def test_tables_that_are_gone_are_reported_as_missing(new_postgres_address: str, postgres_server: str) -> None:
    """The store removed underneath; opening it again makes a new one."""
    with cc.open_store(new_postgres_address) as store:
        store.append("demo", cc.user("x"))
        schema = new_postgres_address.rpartition("schema=")[2]
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
        with pytest.raises(cc.errors.StoreCorrupt, match="The tables of contextc are missing"):
            store.append("demo", cc.user("y"))
    with cc.open_store(new_postgres_address) as store:
        assert store.conversations() == []


def test_a_newer_schema_is_refused(new_postgres_address: str) -> None:
    """Guarantee 3.7."""
    newest = migrations()[-1].version
    with cc.open_store(new_postgres_address) as store:
        store.write(lambda tx: tx.run("UPDATE main.schema_version SET version = ?", newest + 1))
    with pytest.raises(cc.errors.SchemaTooNew, match="Upgrade contextc"):
        cc.open_store(new_postgres_address)


def test_an_invalid_schema_name_is_refused() -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="schema must be letters, digits and underscores"):
        cc.open_store('postgresql://localhost/x?schema=a"; DROP TABLE')

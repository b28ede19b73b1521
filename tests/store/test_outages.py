"""PostgreSQL outages, and processes that stop during a transaction."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest

import contextc as cc
from contextc.store.postgres import POSTGRES, PostgresTransaction
from contextc.store.store import engine_of, open_with
from tests.store.observed_postgres import FailsOver, LosesCommits, Watched


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The name of a database of its own, which can be closed without touching others."""
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield name
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_every_thread_waits_for_a_server_that_is_away(postgres_server: str, database: str) -> None:
    """A restart ends all connections and refuses new ones for a while; no operation may fail because of it."""
    address = postgres_server.replace("/postgres?", f"/{database}?")
    assert address != postgres_server
    refused, failures = threading.Event(), list[BaseException]()
    with open_with(Watched(address, refused)) as store, psycopg.connect(postgres_server, autocommit=True) as admin:
        closed = threading.Event()

        def work(number: int) -> None:
            try:
                while not closed.is_set():
                    store.append(f"c{number}", cc.user("x"))
                with store.lease(f"c{number}"):
                    store.append(f"c{number}", cc.user("after"))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        while len(store.conversations()) < 12:
            pass
        refused.clear()
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false".encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))
        assert refused.wait(60)
        closed.set()
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true".encode())
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert [store.load(f"c{number}")[-1].text for number in range(12)] == ["after"] * 12


def test_a_server_that_stays_away_is_an_error_after_the_time_in_the_address(
    postgres_server: str, database: str
) -> None:
    address = f"{postgres_server.replace('/postgres?', f'/{database}?')}&outage_timeout=0.2"
    with cc.open_store(address) as store, psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false".encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))
        with pytest.raises(cc.errors.StoreUnavailable, match="cannot be reached"):
            store.append("demo", cc.user("x"))
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true".encode())
        assert store.append("demo", cc.user("x")).seq == 1


def test_closing_does_not_wait_long_for_a_server_that_is_away(
    postgres_server: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that shuts down has turns that it cannot end; their leases expire."""
    monkeypatch.setattr("contextc.store.leases.CLOSING_SECONDS", 0.1)
    store = cc.open_store(postgres_server.replace("/postgres?", f"/{database}?"))
    for name in "abc":
        store.acquire(name)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false".encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_server_reports_whether_a_commit_took_place(postgres_address: str, when: str) -> None:
    """A write that cannot be recognised afterwards is run again where it was not stored, and only then."""
    cc.open_store(postgres_address).close()
    engine = LosesCommits(postgres_address)
    with open_with(engine) as store:
        store.append("demo", cc.user("x"))
        for write, count in CASES:
            engine.lose = "before" if when == "before" else "after"
            write(store)
            assert engine.lose is None
            assert count(store) == 1


CASES: list[tuple[Callable[[cc.Store], object], Callable[[cc.Store], int]]] = [
    (lambda store: store.fork("demo", "other"), lambda store: len(store.conversations()) - 1),
    (lambda store: store.enqueue("demo", cc.user("y")), lambda store: len(store.queued("demo"))),
    (lambda store: store.add_todo("demo", "z"), lambda store: len(store.todos("demo"))),
    (lambda store: store.begin("empty"), lambda store: len(store.conversations()) - 2),
    (lambda store: store.release(store.acquire("demo")), lambda store: _took_a_lease(store)),
]


def _took_a_lease(store: cc.Store) -> int:
    store.release(store.acquire("demo"))  # a lease that was taken twice would be held still
    return 1


def test_an_outcome_from_before_a_crash_is_not_trusted(postgres_address: str, postgres_server: str) -> None:
    """A crash may lose transaction numbers and give them out again: another transaction may have committed under ours.

    A crash resets the server's statistics, which is done here without one.
    """

    def reset() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            admin.execute("SELECT pg_stat_reset_shared('bgwriter')")

    cc.open_store(postgres_address).close()
    engine = LosesCommits(postgres_address)
    with open_with(engine) as store:
        store.append("demo", cc.user("x"))
        engine.lost, engine.lose = reset, "after"
        with pytest.raises(
            cc.errors.StoreUnavailable, match=r"broke while committing.*Load the conversation before you retry"
        ):
            store.fork("demo", "other")
        assert len(store.conversations()) == 2
        engine.lose = "after"
        store.append("demo", cc.user("y"))  # known by its uid
        assert [message.text for message in store.load("demo")] == ["x", "y"]


FROZEN = """
import os, signal, sys
import contextc as cc
from contextc.store import leases
store = cc.open_store(sys.argv[1])
store.append("frozen", cc.user("x"))
lease = store.acquire("frozen", ttl=0.2)
def work(tx):
    leases.check_lease(tx, lease, "frozen")
    tx.row("SELECT 1 FROM pg_sleep(0.3)")
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
store.write(work)
"""


def test_a_process_frozen_in_a_write_does_not_keep_others_out(postgres_address: str) -> None:
    """SIGSTOP, a paused virtual machine, a pulled cable: the server ends the idle transaction and its locks."""
    cc.open_store(postgres_address).close()
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN, f"{postgres_address}&idle_timeout=2"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "frozen\n"
        recovered: list[str] = []

        def write() -> None:
            with cc.open_store(postgres_address) as store:
                store.append("frozen", cc.user("y"))
                with store.lease("frozen"):
                    recovered.extend(each.conversation for each in store.recovered)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        thread.join(60)
        assert recovered == ["frozen"]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_dead_turn_that_is_locked_does_not_block_opening(
    new_postgres_address: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of an administrator has no time limits of ours; the others are recovered, that one later."""
    schema = new_postgres_address.rpartition("schema=")[2]
    with cc.open_store(new_postgres_address) as store:
        for name in ("a", "b", "c"):
            store.append(name, cc.user("x"))
            store.write(
                lambda tx, name=name: tx.run(
                    "INSERT INTO main.lease (conversation, agent, number, holder, expires, branch, seq)"
                    " VALUES (?, 'assistant', 1, 'x 1 1', 0, 1, 1)",
                    name,
                )
            )
    monkeypatch.setattr(
        PostgresTransaction, "dialect", POSTGRES._replace(short_lock_timeout="SET LOCAL lock_timeout = 50")
    )
    with psycopg.connect(postgres_server) as other:
        other.execute(f"SELECT 1 FROM {schema}.conversation WHERE name = 'a' FOR UPDATE".encode())
        with cc.open_store(new_postgres_address) as store:
            assert [each.conversation for each in store.recovered] == ["b", "c"]
    with cc.open_store(new_postgres_address) as store:
        assert [each.conversation for each in store.recovered] == ["a"]


def test_opening_a_store_has_a_timeout_for_migrations(new_postgres_address: str, postgres_server: str) -> None:
    """The lock on the schema may be held by a session that never ends."""
    with psycopg.connect(postgres_server) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (0x636F6E7465787463,))
        with pytest.raises(cc.errors.StoreBusy, match="lock timeout"):
            cc.open_store(f"{new_postgres_address}&outage_timeout=0.1")


@pytest.mark.parametrize("given", ["pool=0", "pool=1.5", "pool=many", "lock_timeout=-1", "outage_timeout=nan"])
def test_an_option_that_is_not_a_number_is_refused(given: str) -> None:
    with pytest.raises(cc.errors.InvalidSetting, match=f"^{given.partition('=')[0]} must be a .*number"):
        cc.open_store(f"postgresql://localhost/x?{given}")


def test_what_belongs_to_the_driver_reaches_it_as_it_was_written(postgres_address: str) -> None:
    """Settings of the connection have defaults; those in the address win, and nothing is decoded twice."""
    with cc.open_store(f"{postgres_address}&tcp_user_timeout=1234&application_name=a+b%26c") as store:
        connection = engine_of(store)._checkout()  # pyright: ignore[reportPrivateUsage]
        found = connection.info.get_parameters()
        connection.close()
    assert (found["tcp_user_timeout"], found["application_name"], found["keepalives_idle"]) == ("1234", "a+b&c", "15")


@pytest.mark.parametrize("address", ["postgres_address", "pooled_address"])
def test_statements_are_prepared_only_on_direct_connections(request: pytest.FixtureRequest, address: str) -> None:
    """A prepared statement belongs to its session, which a pooler gives to others."""
    with cc.open_store(str(request.getfixturevalue(address))) as store:
        for _ in range(10):
            store.append("demo", cc.user("x"))
        rows = store.read(lambda tx: tx.rows("SELECT count(*) FROM pg_prepared_statements"))
    assert (rows[0][0] > 0) == (address == "postgres_address")


def test_waiting_for_a_locked_row_has_a_timeout(postgres_server: str, postgres_address: str) -> None:
    """The wait for a lock has an end of its own, which the address may set."""
    schema = postgres_address.rpartition("schema=")[2]
    with cc.open_store(f"{postgres_address}&lock_timeout=0.2&statement_timeout=20") as store:
        store.append("demo", cc.user("hello"))
        with psycopg.connect(postgres_server) as other:
            other.execute(f'SELECT 1 FROM "{schema}".conversation FOR UPDATE'.encode())
            with pytest.raises(cc.errors.StoreBusy, match="lock timeout"):
                store.rewind("demo", 0)
        assert store.rewind("demo", 0).length == 0


def test_a_server_that_took_over_is_not_trusted_about_a_number_of_the_one_before(postgres_address: str) -> None:
    """Guarantee 2.1: it may lack the transaction and have given its number to another one."""
    engine = FailsOver(postgres_address)
    with open_with(engine) as store:
        stored = store.append("demo", cc.user("hello"))
        engine.lose, engine.lost = "after", lambda: setattr(engine, "timeline", "0000000A")
        with pytest.raises(cc.errors.StoreUnavailable, match="it is unknown whether the last change was stored"):
            store.fork("demo", "copy")
        engine.lose, engine.lost = "after", lambda: setattr(engine, "timeline", "0000000B")
        again = store.append("demo", cc.user("once"))
        assert store.load("demo") == [stored, again]

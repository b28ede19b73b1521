"""The limit on connections: waiting order, timeouts, and what frees a connection."""

import threading
from contextlib import closing, suppress

import psycopg
import pytest

import contextc as cc
from contextc.store.postgres import ConnectionSlots
from contextc.store.sqlite import MemoryEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Transaction
from tests.store.observed_postgres import Watched


def test_waiters_are_served_in_the_order_they_came() -> None:
    """Under load an operation must not be overtaken again and again until its time is over."""
    slots, order, threads = ConnectionSlots(1), list[int](), list[threading.Thread]()

    def wait(number: int) -> None:
        with slots.take(60):
            order.append(number)

    with slots.take(0):
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            while len(slots._waiting) <= number:  # pyright: ignore[reportPrivateUsage]
                threads[-1].join(0.001)
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3, 4]


def test_a_wait_has_an_end_and_leaves_nothing_behind() -> None:
    slots, errors = ConnectionSlots(1), list[cc.errors.StoreBusy]()

    def wait() -> None:
        try:
            slots.take(0)
        except cc.errors.StoreBusy as error:
            errors.append(error)

    with slots.take(0):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(60)
    assert "All 1 connections of this store were in use for 0 s" in str(errors[0])
    with slots.take(0):
        pass


def test_a_slot_whose_owner_was_interrupted_is_free_again() -> None:
    """A signal may strike between taking a slot and the block that uses it."""
    slots = ConnectionSlots(1)
    for _ in range(3):
        with suppress(KeyboardInterrupt):
            _interrupted(slots)
    with slots.take(0):
        pass


def _interrupted(slots: ConnectionSlots) -> None:
    _held = slots.take(0)
    raise KeyboardInterrupt


def test_an_operation_inside_another_one_is_refused(postgres_address: str) -> None:
    """It would wait for itself where all connections are taken by operations that do the same."""
    with (
        cc.open_store(postgres_address) as store,
        pytest.raises(cc.errors.InvalidInput, match="started inside another one of the same thread"),
    ):
        store.read(lambda _: store.conversations())


def test_many_threads_share_few_connections(postgres_address: str, postgres_server: str) -> None:
    """Forty turns at once on a server that admits a hundred connections leave room for other processes."""
    counts: list[int] = []
    failures: list[BaseException] = []
    with cc.open_store(f"{postgres_address}&pool=2&application_name=few") as store:

        def count(tx: Transaction) -> None:
            row = tx.row("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'few'")
            counts.append(row[0] if row else 0)

        def work(number: int) -> None:
            try:
                for _ in range(3):
                    store.append(f"c{number}", cc.user("x"))
                    store.read(count)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert (len(counts), max(counts)) == (60, 2)
        assert [each.length for each in store.conversations()] == [3] * 20


def test_leases_are_renewed_while_every_connection_waits(postgres_address: str) -> None:
    """Writers that wait for one locked row use up the connections; the leases of all others must not run out."""
    with cc.open_store(f"{postgres_address}&pool=1") as store:
        store.acquire("demo", ttl=0.6)
        renewed = "SELECT 1 FROM main.lease WHERE conversation = 'demo' AND expires - ? > ?"
        began = store.read(lambda tx: tx.rows("SELECT expires FROM main.lease"))[0][0]

        def wait(tx: Transaction) -> None:
            for _ in range(1_200):
                if tx.row(renewed, began, 0.0):
                    return
                tx.row("SELECT pg_sleep(0.05)")
            raise AssertionError("the lease was not renewed")

        store.write(wait)


def test_a_server_with_no_connection_left_is_waited_for(postgres_address: str, postgres_server: str) -> None:
    """Other clients may use up the server's limit for a moment; that must not end a turn, nor an opening."""
    schema = postgres_address.rpartition("schema=")[2]
    role = f"r{schema[5:20]}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1".encode())
        try:
            cc.open_store(postgres_address).close()
            admin.execute(f"GRANT ALL ON SCHEMA {schema} TO {role}".encode())
            admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}".encode())
            admin.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}".encode())
            address = postgres_address.replace("postgres:@", f"{role}@")
            assert address != postgres_address
            other = psycopg.connect(postgres_server.replace("postgres:@", f"{role}@"), autocommit=True)
            refused = threading.Event()
            done: list[cc.Message] = []

            def append() -> None:
                with open_with(Watched(address, refused)) as store:
                    done.append(store.append("demo", cc.user("x")))

            thread = threading.Thread(target=append)
            thread.start()
            assert refused.wait(60)
            assert done == []
            other.close()
            thread.join(60)
            assert len(done) == 1
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


def test_connections_that_another_thread_took_meanwhile_are_not_an_error() -> None:
    """Two threads that drop idle connections at once: the list may become empty between a look and the next step."""

    class Emptied(list[object]):
        def __len__(self) -> int:
            return 1

    with closing(MemoryEngine()) as store:
        store._idle = Emptied()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        store._drop_all(store._connect())  # pyright: ignore[reportPrivateUsage]
        store._idle = []  # pyright: ignore[reportPrivateUsage]


def test_a_store_in_memory_is_closed_when_its_transaction_is_over() -> None:
    """It has one connection: to close that while another thread works on it would crash the process."""
    store, began, go_on, found = cc.open_store("memory:"), threading.Event(), threading.Event(), list[object]()

    def work(tx: Transaction) -> object:
        began.set()
        go_on.wait(60)
        return tx.row("SELECT 1")

    reader = threading.Thread(target=lambda: found.append(store.read(work)))
    closer = threading.Thread(target=store.close)
    reader.start()
    began.wait(60)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive()
    go_on.set()
    for thread in (reader, closer):
        thread.join(60)
    assert found == [(1,)]
    with pytest.raises(cc.errors.StoreUnavailable, match="has been closed"):
        store.read(work)

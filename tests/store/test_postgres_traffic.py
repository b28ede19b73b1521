"""How much a PostgreSQL store exchanges with its server, and that less of it weakens no guarantee."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

import contextc as cc
from contextc.store import leases
from contextc.store.message_log import make_place
from contextc.store.postgres import CHANGED_BY_TRIGGERS, describe, merge_sql
from contextc.store.transaction_engine import TRIGGER_NAME, Transaction
from tests.executor.scripted_provider import SONNET, Scripted, add, call, run_turn, says
from tests.store.counted_postgres import Traffic, counter_of, open_counted

ENDLESS = 86_400.0
Value = TypeVar("Value")


@pytest.fixture(autouse=True)
def no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing because time has passed: no batches of a reply that arrives slowly, no renewals of leases, and no
    polls for events of other processes. A turn on a busy machine would send a poll every quarter of a second: a query
    that behind a pooler has its own BEGIN, settings and COMMIT, possibly on a second connection.
    """
    monkeypatch.setattr("contextc.executor.model_call.FIRST_BATCH_SECONDS", ENDLESS)
    monkeypatch.setattr("contextc.executor.event_hub.POLL_SECONDS", ENDLESS)


def traffic_of_turn(store: cc.Store, conversation: str, steps: int) -> Traffic:
    """Run a turn whose steps call one tool each, except for the last, and return its traffic.

    No two calls are equal: a trigger would end the turn.
    """
    script = [*[says(call(number, a=number, b=1)) for number in range(1, steps)], says("done")]
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[add],
        endpoint=Scripted(*script),
        triggers=cc.default_triggers(),
        lease_seconds=ENDLESS,
    )
    counter_of(store).reset_traffic()
    run_turn(executor, conversation=conversation)
    return counter_of(store).traffic()


def warm_up(store: cc.Store) -> None:
    """Connect, prepare what every turn repeats, and wait until the thread that polls has looked for triggers once."""
    traffic_of_turn(store, "first", 2)
    while not counter_of(store).has_ended_transaction_with("pg_trigger"):
        pass


def test_a_turn_takes_few_statements_and_round_trips(postgres_address: str) -> None:
    """A turn of two steps and one tool took 178 statements in 16 transactions, with 156 round trips."""
    with open_counted(postgres_address) as store:
        warm_up(store)
        short = traffic_of_turn(store, "new", 2)
        again = traffic_of_turn(store, "new", 2)
        long = traffic_of_turn(store, "new", 10)
    assert short[:3] == (53, 9, 26)
    assert again[:3] == (48, 9, 21)
    assert (long.statements - again.statements) / 8 <= 15  # each further step, with its tool
    assert (long.round_trips - again.round_trips) / 8 <= 6  # two writes of two each, and two reads


def test_a_turn_behind_a_pooler_takes_as_few_round_trips_for_its_writes(pooled_address: str) -> None:
    """Every transaction begins with its settings. A read of one query has its own BEGIN and COMMIT."""
    with open_counted(pooled_address) as store:
        warm_up(store)
        short = traffic_of_turn(store, "new", 2)
    assert short[:3] == (68, 9, 26)


def test_each_part_of_a_step_takes_one_round_trip_beside_its_commit(postgres_address: str) -> None:
    """Guarantee 9.2: what a handle remembers makes a step cheaper. What is locked is read in the same round trip."""
    with open_counted(postgres_address) as store:
        compiler = cc.MessageCompiler(store, cc.provider(SONNET))
        counter, found = counter_of(store), dict[str, tuple[int, ...]]()

        def count(part: str, work: Callable[[], Value]) -> Value:
            counter.reset_traffic()
            result = work()
            found[part] = counter.traffic()[:3]
            return result

        store.append("demo", cc.user("hello"))
        for number in range(3):
            compiled = count("compile", lambda: compiler.compile("demo"))
            count("begin", lambda compiled=compiled: compiler.begin(compiled))
            count("commit", lambda compiled=compiled: compiler.commit(compiled, cc.assistant("Yes.")))
            count("append", lambda number=number: store.append("demo", cc.user(f"And {number}?")))
            assert store.load("demo")[-1].text == f"And {number}?"
    statements = {part: each[0] for part, each in found.items()}
    assert {part: each[1:] for part, each in found.items()} == {
        "compile": (1, 1),
        "begin": (1, 2),
        "commit": (1, 2),
        "append": (1, 2),
    }
    assert statements["compile"] == 1
    assert sum(statements.values()) <= 17  # one more in a new second


def test_reads_of_one_statement_need_no_transaction(postgres_address: str) -> None:
    with open_counted(postgres_address) as store:
        store.append("demo", cc.user("hello"))
        counter_of(store).reset_traffic()
        assert store.todos("demo") == []
        assert counter_of(store).traffic()[:3] == (1, 1, 1)
        counter_of(store).reset_traffic()
        store.write(lambda tx: None)
        store.read(lambda tx: None)
        assert counter_of(store).traffic() == (0, 0, 0, 0, 0)


def is_waiting(store: cc.Store) -> bool:
    return bool(store.read(lambda tx: tx.rows("SELECT 1 FROM pg_locks WHERE NOT granted")))


def test_a_writer_that_waits_for_a_takeover_has_lost_its_lease(postgres_address: str) -> None:
    """Guarantee 3.5: the lease is checked as it is after the wait, not as it was when the statement began."""
    handles = [cc.open_store(postgres_address) for _ in range(3)]
    with handles[0] as store, handles[1] as other, handles[2] as watcher:
        lease = store.acquire("demo", "coder")
        failed: list[BaseException] = []

        def append() -> None:
            try:
                store.append("demo", cc.assistant("late", author="coder"), lease=lease)
            except BaseException as error:
                failed.append(error)

        writer = threading.Thread(target=append)

        def take_over(tx: Transaction) -> None:
            leases.find_tip(tx, "demo", True)
            tx.run("UPDATE main.lease SET number = number + 1 WHERE conversation = 'demo'")
            writer.start()
            while not is_waiting(watcher):
                pass

        other.write(take_over)
        writer.join()
        assert [type(error) for error in failed] == [cc.errors.LeaseLost]
        assert store.load("demo") == []


def test_a_failed_statement_that_was_not_waited_for_undoes_its_transaction(postgres_address: str) -> None:
    """Guarantee 2.1: the error is raised at the latest by the commit, and nothing is stored."""
    with cc.open_store(postgres_address) as store:
        stored = store.append("demo", cc.user("hello"))

        def work(tx: Transaction) -> None:
            tx.send("UPDATE main.conversation SET title = 'changed' WHERE name = 'demo'")
            tx.send("INSERT INTO main.edge (place) VALUES (?)", "no number")

        with pytest.raises(cc.errors.StoreError, match="invalid input syntax"):
            store.write(work)
        assert store.overview("demo").title == "hello"
        assert store.load("demo") == [stored]


@pytest.mark.parametrize("repeats", [1, 4, 12])
def test_a_prepared_statement_that_fails_can_be_used_again(postgres_address: str, repeats: int) -> None:
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("hello"))
        for _ in range(repeats):
            with pytest.raises(cc.errors.StoreError, match="division by zero"):
                store.write(lambda tx: tx.rows("SELECT 1 / ? FROM main.conversation", 0))
        assert store.write(lambda tx: tx.rows("SELECT 6 / ? FROM main.conversation", 2)) == [(3,)]


def test_more_statements_than_are_kept_prepared_are_run(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextc.store.postgres.PREPARED_STATEMENTS", 3)
    with cc.open_store(f"{postgres_address}&prepare=1") as store:
        store.append("demo", cc.user("hello"))
        for number in [*range(8), *range(8)]:
            sql = f"SELECT name, {number} FROM main.conversation WHERE number > ?"
            assert store.read(lambda tx, sql=sql: tx.rows(sql, 0)) == [("demo", number)]


def test_values_come_back_as_they_were_written(postgres_address: str) -> None:
    values = (-(1 << 63), 0.1, "ä\n'", b"\0\xff", None)
    sql = "SELECT ?::bigint, ?::float8, ?::text, ?::bytea, ?::text, c.created FROM main.conversation c"
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("hello"))
        assert store.read(lambda tx: tx.rows(sql, *values))[0][:5] == values
        with pytest.raises(cc.errors.StoreError, match="NUL"):
            store.read(lambda tx: tx.rows("SELECT 1 FROM main.conversation WHERE name = ?", "a\0b"))


def test_names_are_stored_in_the_encoding_of_the_database(postgres_server: str) -> None:
    """A name that the database cannot store is refused, and no other one is stored instead."""
    parts = urlsplit(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            with cc.open_store(urlunsplit(parts._replace(path="/latin"))) as store:
                store.append("GRÜN", cc.user("日本"))
                assert [each.name for each in store.conversations()] == ["GRÜN"]
                assert store.load("GRÜN")[0].text == "日本"
                assert [each.name for each in store.overviews(search="grün").found] == ["GRÜN"]
                with pytest.raises(cc.errors.StoreError, match="LATIN1"):
                    store.append("日本", cc.user("hello"))
        finally:
            connection.execute("DROP DATABASE latin WITH (FORCE)")


def count_round_trips(store: cc.Store, work: Callable[[Transaction], object]) -> int:
    counter_of(store).reset_traffic()
    store.write(work)
    return counter_of(store).traffic().round_trips


def test_a_repeated_query_is_answered_once_until_its_table_changes(postgres_address: str) -> None:
    """A writer that has locked a conversation reads it once. Before that, others may change what it reads."""
    query = "SELECT title FROM main.conversation WHERE name = 'demo'"
    lock = "SELECT 1 FROM main.conversation WHERE name = 'demo' FOR UPDATE"

    def read_twice(tx: Transaction) -> None:
        tx.rows(query)
        tx.rows(query)

    def lock_and_read(tx: Transaction) -> None:
        tx.rows(lock)
        read_twice(tx)

    def change_between(tx: Transaction) -> None:
        tx.rows(lock)
        assert tx.rows(query) == [("",)]
        tx.send("UPDATE main.conversation SET title = 'new' WHERE name = 'demo'")
        assert tx.rows(query) == [("new",)]

    with open_counted(postgres_address) as store:
        store.append("demo", cc.user("hello"))
        assert count_round_trips(store, read_twice) == 3
        assert count_round_trips(store, lock_and_read) == 3
        assert count_round_trips(store, change_between) == 4


def test_a_result_is_read_again_after_a_trigger_may_have_changed_it(postgres_address: str) -> None:
    """The server's triggers change tables that a statement does not name."""
    name, term = "SELECT parts FROM main.conversation_name", "SELECT count(*) FROM main.search_term"

    def work(tx: Transaction) -> None:
        tx.rows("SELECT 1 FROM main.conversation WHERE name = 'demo' FOR UPDATE")
        before = tx.rows(name)
        tx.send("UPDATE main.conversation SET title = 'xyz'")
        assert set(tx.rows(name)[0][0]) - set(before[0][0]) == {"xyz"}
        assert tx.rows(term) == [(1,)]
        tx.send("DELETE FROM main.message")
        assert tx.rows(term) == [(0,)]

    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("hello"))
        place = make_place(1, 1)
        store.write(lambda tx: tx.run("INSERT INTO main.search_term VALUES (?, '')", (place >> 32 << 32) + (1 << 8)))
        store.write(work)


def test_all_triggers_that_change_tables_are_declared(postgres_address: str) -> None:
    triggers = (
        "SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ?"  # foreign keys are triggers, too
    )
    with cc.open_store(postgres_address) as store:
        found = store.read(lambda tx: tx.rows(triggers, tx.schema))
    assert {table for table, name in found if name != TRIGGER_NAME} == set(CHANGED_BY_TRIGGERS)


def test_a_statement_that_names_no_table_is_sent_alone_and_keeps_nothing() -> None:
    """It may call a function that locks or changes anything."""
    for sql in ("SET LOCAL lock_timeout = 5", "SELECT pg_advisory_xact_lock(1)", "DELETE FROM lease", "SELECT now()"):
        assert describe(sql) == ("other", set())


def test_every_statement_names_the_tables_of_the_store_with_their_prefix(tmp_path: Path) -> None:
    """A table without the prefix would be unknown to PostgreSQL, and results from it could be kept too long.

    Modules for files of other programs read other tables.
    """
    with cc.open_store(tmp_path / "store.db") as store:
        tables = store.read(
            lambda tx: [name for (name,) in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        )
    bare = re.compile(rf"\b(?:FROM|JOIN|INTO|(?<!DO )UPDATE)\s+(?:main\.\w+(?: [a-z]\w*)?, )*({'|'.join(tables)}|{{)\b")
    modules = [path for path in Path(cc.__file__).parent.rglob("*.py") if not {"sources", "providers"} & {*path.parts}]
    assert [(path.name, match[0]) for path in modules for match in bare.finditer(path.read_text())] == []


def test_changes_of_different_tables_become_one_statement() -> None:
    first = "UPDATE main.turn SET body = ? WHERE place = ?"
    second = "INSERT INTO main.event (place, body) VALUES (?, ?)"
    assert merge_sql((first, second), "s") == (
        'WITH change_0 AS (UPDATE "s".turn SET body = $1 WHERE place = $2)'
        ' INSERT INTO "s".event (place, body) VALUES ($3, $4)'
    )
    assert merge_sql((first,), "s") == 'UPDATE "s".turn SET body = $1 WHERE place = $2'
    assert describe("UPDATE main.lease SET seq = 1 WHERE EXISTS (SELECT 1 FROM main.step)") == (
        "write",
        {"lease", "step"},
    )
    assert describe("SELECT 1 FROM main.lease l, main.conversation c FOR UPDATE") == ("lock", {"lease", "conversation"})


def test_several_changes_of_one_table_stay_in_order(postgres_address: str) -> None:
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("hello"))

        def work(tx: Transaction) -> None:
            for title in ("one", "two", "three"):
                tx.send("UPDATE main.conversation SET title = title || ? WHERE name = 'demo'", title)
                tx.run_many("INSERT INTO main.edge (place) VALUES (?)", [(len(title),), (len(title) + 10,)])
                tx.send("DELETE FROM main.edge WHERE place < ?", 20)
            tx.run_many("INSERT INTO main.edge (place) VALUES (?)", [(number,) for number in range(100, 207)])

        store.write(work)
        assert store.read(lambda tx: tx.rows("SELECT title FROM main.conversation")) == [("onetwothree",)]
        assert store.read(lambda tx: tx.rows("SELECT count(*), min(place), max(place) FROM main.edge")) == [
            (107, 100, 206)
        ]

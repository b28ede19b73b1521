"""Schemas move forward, one numbered step after the other, or not at all."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.store.migrations import Migration, migrations
from contextc.store.sqlite import SQLITE
from contextc.store.store import engine_of
from tests.golden import store_content
from tests.golden.json_compare import assert_same

NEXT = migrations()[-1].version + 1
ADDS = Migration(NEXT, "adds", ("CREATE TABLE mood (place INTEGER PRIMARY KEY, text BLOB)",))
CHANGES = Migration(
    NEXT,
    "changes",
    (
        "ALTER TABLE conversation ADD COLUMN mood TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX message_time ON message (time)",
    ),
)
FAILS = Migration(NEXT + 1, "fails", ("CREATE TABLE later (x INTEGER)", "CREATE TABLE mood (x INTEGER)"))


@pytest.fixture(params=("sqlite", "postgres"))
def shared_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of its own, because its tables are changed."""
    if request.param == "postgres":
        return str(request.getfixturevalue("new_postgres_address"))
    return f"sqlite:///{tmp_path}/chat.db"


def version(store: cc.Store) -> int:
    row = store.read(lambda tx: tx.row("SELECT version FROM main.schema_version"))
    return row[0] if row else 0


def test_steps_are_numbered_without_a_gap_and_give_the_reason() -> None:
    """A schema change is a numbered migration with its reason above it."""
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))
    assert all(step.statements for step in migrations())


def test_an_older_store_is_brought_forward_and_keeps_what_it_has(shared_address: str) -> None:
    """Guarantee 3.7."""
    with cc.open_store(shared_address) as store:
        kept = store.append("demo", cc.user("hi"))
        engine_of(store).migrate((*migrations(), ADDS))
        assert version(store) == NEXT
        store.write(lambda tx: tx.run("INSERT INTO main.mood (place, text) VALUES (1, ?)", b"good"))
        engine_of(store).migrate((*migrations(), ADDS))
        assert store.load("demo") == [kept]
    with pytest.raises(cc.errors.SchemaTooNew):
        cc.open_store(shared_address)


def test_a_step_that_fails_leaves_the_store_where_it_was(shared_address: str) -> None:
    """Guarantees 3.7, 15.1: all steps in one transaction."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("hi"))
        with pytest.raises(cc.errors.StoreError):
            engine_of(store).migrate((*migrations(), ADDS, FAILS))
        assert version(store) == NEXT - 1
    with cc.open_store(shared_address) as store:
        engine_of(store).migrate((*migrations(), ADDS))
        assert len(store.load("demo")) == 1


def test_writers_of_an_open_store_wait_for_a_migration_and_go_on(shared_address: str) -> None:
    """Guarantee 3.7: a process with the older version stores every message, before and after the tables change."""
    with cc.open_store(shared_address) as store, cc.open_store(shared_address) as newer:
        begun, migrated = threading.Barrier(4), threading.Event()
        stored: dict[str, list[cc.Message]] = {f"c{number}": [] for number in range(3)}
        failures: list[BaseException] = []

        def write(name: str) -> None:
            try:
                with store.lease(name) as lease:
                    stored[name].append(store.append(name, cc.user("first"), lease=lease))
                    begun.wait(60)
                    while not migrated.is_set():
                        stored[name].append(store.append(name, cc.user("while"), lease=lease))
                    stored[name].append(store.append(name, cc.user("after"), lease=lease))
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(name,)) for name in stored]
        for writer in writers:
            writer.start()
        begun.wait(60)
        try:
            engine_of(newer).migrate((*migrations(), CHANGES))
        finally:
            migrated.set()
            for writer in writers:
                writer.join()
        assert failures == []
        assert version(newer) == NEXT
        for name, messages in stored.items():
            assert store.load(name) == messages


@pytest.mark.parametrize("version", range(store_content.SCHEMA, migrations()[-1].version + 1))
def test_a_store_of_any_earlier_version_opens_and_has_the_same_content(version: int, tmp_path: Path) -> None:
    """Guarantee 3.7: a user may have stopped at any version. The recorded store has rows of every kind.

    Stores of the versions before the recorded one are in `tests/compiler/test_old_ledgers.py`.
    """
    file = store_content.unpack(tmp_path)
    with closing(sqlite3.connect(file)) as connection, connection:
        for step in migrations()[store_content.SCHEMA : version]:
            for statement in step.statements:
                connection.execute(SQLITE.translate_ddl(statement).replace("{schema}", "main") or "SELECT 1")
        connection.execute("UPDATE schema_version SET version = ?", (version,))
    with cc.open_store(file) as store:
        assert_same(store_content.read("stored.json"), store_content.stored(store), f"a store of version {version}")
        assert [each.code for each in scan_store(store)] == []
        tip = store.append(store.conversations()[0].name, cc.user("And now?"))
        assert store.load(store.conversations()[0].name)[-1].id == tip.id

"""Schemas move forward, one numbered step after the other, or not at all."""

from pathlib import Path

import pytest

import contextc as cc
from contextc.store.migrations import Migration, migrations

NEXT = migrations()[-1].version + 1
ADDS = Migration(NEXT, "adds", ("CREATE TABLE mood (place INTEGER PRIMARY KEY, text BLOB)",))
FAILS = Migration(NEXT + 1, "fails", ("CREATE TABLE later (x INTEGER)", "CREATE TABLE mood (x INTEGER)"))


@pytest.fixture(params=("sqlite", "postgres"))
def shared_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of its own, because its tables are changed."""
    if request.param == "postgres":
        return str(request.getfixturevalue("new_postgres_address"))
    return f"sqlite:///{tmp_path}/chat.db"


def version(store: cc.Store) -> int:
    row = store.read(lambda tx: tx.row("SELECT version FROM schema_version"))
    return row[0] if row else 0


def test_steps_are_numbered_without_a_gap_and_give_the_reason() -> None:
    """A schema change is a numbered migration with its reason above it."""
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))
    assert all(step.statements for step in migrations())


def test_an_older_store_is_brought_forward_and_keeps_what_it_has(shared_address: str) -> None:
    """Guarantee 3.7."""
    with cc.open_store(shared_address) as store:
        kept = store.append("demo", cc.user("hi"))
        store.migrate((*migrations(), ADDS))
        assert version(store) == NEXT
        store.write(lambda tx: tx.run("INSERT INTO mood (place, text) VALUES (1, ?)", b"good"))
        store.migrate((*migrations(), ADDS))
        assert store.load("demo") == [kept]
    with pytest.raises(cc.errors.SchemaTooNew):
        cc.open_store(shared_address)


def test_a_step_that_fails_leaves_the_store_where_it_was(shared_address: str) -> None:
    """Guarantees 3.7, 15.1: all steps in one transaction."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("hi"))
        with pytest.raises(cc.errors.StoreError):
            store.migrate((*migrations(), ADDS, FAILS))
        assert version(store) == NEXT - 1
    with cc.open_store(shared_address) as store:
        store.migrate((*migrations(), ADDS))
        assert len(store.load("demo")) == 1

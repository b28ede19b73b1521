"""Copies of a SQLite store, made while it is in use and restored; and permissions of its files."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.errors import InvalidSetting, SchemaTooNew
from contextc.store.sqlite import remove_empty_store, restore


def texts(path: Path, conversation: str = "demo") -> list[str]:
    with cc.open_store(path) as store:
        assert list(scan_store(store)) == []
        return [message.text for message in store.load(conversation)]


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def copy(tmp_path: Path, path: Path) -> Path:
    """A backup with two messages, of a store that went on and was killed: its log was never taken into its file."""
    target = tmp_path / "copy.db"
    child = os.fork()
    if child == 0:
        store = cc.open_store(path)
        store.extend("demo", [cc.user("early 1"), cc.user("early 2")])
        store.backup(target)
        for number in range(200):
            store.append("demo", cc.user(f"late {number} " + "y" * 300))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert Path(f"{path}-wal").stat().st_size > 0
    return target


@pytest.mark.usefixtures("umask")
def test_files_of_a_store_can_be_read_by_their_owner_alone(path: Path, tmp_path: Path) -> None:
    """Conversations are private; what SQLite puts beside the file holds them, too."""
    with cc.open_store(path) as store:
        store.append("demo", cc.user("hi"))
        store.backup(tmp_path / "copy.db")
        found = sorted(os.listdir(tmp_path))
        assert found == ["copy.db", "store.db", "store.db-shm", "store.db-wal"]
        assert {mode(tmp_path / name) for name in found} == {0o600}
    path.chmod(0o640)
    cc.open_store(path).close()
    assert mode(path) == 0o640, "what somebody chose is left alone"


def test_a_backup_is_one_moment_in_one_file(path: Path, tmp_path: Path) -> None:
    """While others read and write, and with nothing beside it that it needs."""
    with cc.open_store(path) as store, closing(sqlite3.connect(path)) as reader:
        store.append("demo", cc.user("one"))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        store.append("demo", cc.user("two"))
        store.backup(tmp_path / "copy.db")
        store.append("demo", cc.user("three"))
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store.db"]
    assert texts(tmp_path / "copy.db") == ["one", "two"]
    with cc.open_store("memory:") as store, cc.open_store(path) as other:
        store.append("demo", cc.user("kept"))
        store.backup(tmp_path / "memory.db")
        with pytest.raises(InvalidSetting, match="already exists"):
            other.backup(tmp_path / "memory.db")
    assert texts(tmp_path / "memory.db") == ["kept"]


def test_a_backup_of_a_damaged_store_is_refused(path: Path, tmp_path: Path) -> None:
    """A copy that is damaged, too, would be found out when it is needed."""
    with cc.open_store(path) as store:
        store.extend("demo", [cc.user("x" * 3000) for _ in range(50)])
    data = bytearray(path.read_bytes())
    place = len(data) * 3 // 4  # after the first pages of all tables, which are read when it is opened
    data[place : place + 4096] = bytes(4096)
    path.write_bytes(data)
    with cc.open_store(path) as store, pytest.raises(cc.errors.StoreCorrupt):
        store.backup(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    assert not (tmp_path / "copy.db.part").exists()


def test_restoring_beside_the_log_of_a_killed_process_is_safe(path: Path, copy: Path) -> None:
    """The log of the former file, read with the copy, would ruin it. The former store is kept, whole."""
    aside = restore(copy, f"sqlite:///{path}")
    assert texts(path) == ["early 1", "early 2"]
    assert aside is not None
    assert len(texts(Path(aside))) == 202
    assert texts(copy) == ["early 1", "early 2"]
    assert restore(copy, f"sqlite:///{path}") != aside, "an earlier one is not overwritten"


def test_restoring_in_the_place_of_a_damaged_file_keeps_the_damaged_one_with_its_log(path: Path, copy: Path) -> None:
    """Data may still be recovered from them."""
    path.write_bytes(b"no database at all" * 500)
    log = bytes(32) + Path(f"{path}-wal").read_bytes()[32:]
    Path(f"{path}-wal").write_bytes(log)
    aside = restore(copy, f"sqlite:///{path}")
    assert texts(path) == ["early 1", "early 2"]
    assert Path(f"{aside}").read_bytes().startswith(b"no database")
    assert Path(f"{aside}-wal").read_bytes() == log


def test_restoring_beside_a_log_without_its_file_is_safe(path: Path, copy: Path) -> None:
    """The file was removed manually, its log was left."""
    path.unlink()
    restore(copy, f"sqlite:///{path}")
    assert texts(path) == ["early 1", "early 2"]


def test_a_store_that_is_open_is_not_replaced(path: Path, copy: Path) -> None:
    """What that process writes next would go to a file that is not there any more."""
    with cc.open_store(path) as store:
        length = store.conversation("demo").length
        with pytest.raises(cc.errors.StoreBusy, match="open"):
            restore(copy, f"sqlite:///{path}")
        assert store.append("demo", cc.user("goes on")).seq == length + 1
    assert sorted(os.listdir(path.parent)) == ["copy.db", "store.db"]


def test_an_invalid_backup_is_refused_and_changes_nothing(path: Path, copy: Path, tmp_path: Path) -> None:
    other, newer, none = tmp_path / "other.db", tmp_path / "newer.db", tmp_path / "none.db"
    empty = tmp_path / "empty.db"
    empty.touch()
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE mood (text)")
    shutil.copyfile(copy, newer)
    with closing(sqlite3.connect(newer)) as file:
        file.execute("UPDATE schema_version SET version = 99")
        file.commit()
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    for source, kind in (
        (other, cc.errors.StoreCorrupt),
        (empty, cc.errors.StoreCorrupt),
        (newer, SchemaTooNew),
        (none, InvalidSetting),
        (path, InvalidSetting),
    ):
        with pytest.raises(kind):
            restore(source, f"sqlite:///{path}")
    for address in ("memory:", "postgresql://nobody@nowhere/none"):
        with pytest.raises(InvalidSetting, match="only a SQLite store"):
            restore(copy, address)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before


def test_a_postgresql_store_reports_what_to_use(postgres_address: str, tmp_path: Path) -> None:
    with cc.open_store(postgres_address) as store, pytest.raises(InvalidSetting, match="pg_dump"):
        store.backup(tmp_path / "copy.db")


def test_only_a_store_without_any_row_is_removed_as_empty(path: Path) -> None:
    """A store may hold transcripts, blobs or todos of programs that have no conversation in it."""
    cc.open_store(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO blob (name, data) VALUES ('name', 'data')")
    remove_empty_store(str(path))
    assert path.exists()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM blob")
    remove_empty_store(str(path))
    assert not path.exists()


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TRIGGER evil AFTER INSERT ON message BEGIN UPDATE message SET body = x'00'; END;",
        "ALTER TABLE todo RENAME TO kept; CREATE VIEW todo AS SELECT * FROM kept;",
        "CREATE VIEW more AS SELECT * FROM message;",
        "CREATE TABLE mine (text);",
    ],
)
def test_a_backup_with_objects_that_are_not_ours_is_refused(path: Path, copy: Path, script: str) -> None:
    """A trigger in a file from elsewhere would change what is stored later."""
    with closing(sqlite3.connect(copy)) as file:
        file.executescript(script)
    before = path.read_bytes()
    with pytest.raises(cc.errors.StoreCorrupt, match="is not part of a contextc store"):
        restore(copy, f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.restoring"))

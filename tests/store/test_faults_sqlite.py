"""Faults of a file: a full disk, no permission, deletion, a file of another program, damage."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc.store.migrations import migrations
from tests.conftest import give_up


def fill(path: Path, count: int = 20) -> None:
    with cc.open_store(f"sqlite:///{path}") as store:
        for number in range(count):
            store.append("demo", cc.user(f"m{number}"))


def append_for_ever(store: cc.Store, stored: list[cc.Message]) -> None:
    for _ in range(10_000):
        stored.append(store.append("demo", cc.user("x" * 5_000)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        give_up(f"a full disk needs the right to mount a small one: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing_that_returned(small_disk: Path) -> None:
    """Guarantee 15.1: a clear error, nothing half-written, and once there is room the same handle goes on."""
    with cc.open_store(f"sqlite:///{small_disk}/chat.db") as store:
        stored: list[cc.Message] = []
        with pytest.raises(
            cc.errors.StoreFull, match=r"disk is full\. Nothing was written\. Free disk space and retry"
        ):
            append_for_ever(store, stored)
        assert len(stored) > 20
        assert store.load("demo") == stored
        with pytest.raises(cc.errors.StoreFull):
            store.extend("demo", [cc.user("y" * 5_000)] * 200)
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        stored.append(store.append("demo", cc.user("room again")))
    with cc.open_store(f"sqlite:///{small_disk}/chat.db") as store:
        assert store.load("demo") == stored


def test_a_store_opened_read_only_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    fill(path)
    with cc.open_store(f"sqlite:///{path}?mode=ro") as store:
        assert len(store.load("demo")) == 20
        with pytest.raises(cc.errors.StoreReadOnly, match=r"is read-only: it was opened with \?mode=ro"):
            store.append("demo", cc.user("x"))
        assert len(store.load("demo")) == 20
    with pytest.raises(cc.errors.StoreUnavailable):
        cc.open_store(f"sqlite:///{tmp_path}/none.db?mode=ro")
    assert not (tmp_path / "none.db").exists()


AS_NOBODY = """
import os, sys, contextc as cc
from contextc.store import sqlite
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    cc.open_store(sys.argv[1]).append("demo", cc.user("x"))
except cc.errors.StoreReadOnly as error:
    print("read only:", error)
print("messages:", len(cc.open_store(sys.argv[1] + "?mode=ro").load("demo")))
"""


def test_a_file_that_may_not_be_written_is_reported(tmp_path: Path) -> None:
    """By the permissions of the file itself, as another user."""
    path = tmp_path / "chat.db"
    fill(path)
    for name in (path, tmp_path):
        name.chmod(0o444 if name == path else 0o555)
    for folder in tmp_path.parents:
        if os.stat(folder).st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    try:
        result = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, f"sqlite:///{path}"], capture_output=True, text=True, check=False
        )
    finally:
        tmp_path.chmod(0o755)
        path.chmod(0o644)
    assert "Change the permissions of the file and its folder" in result.stdout, result.stderr
    assert "messages: 20" in result.stdout, result.stderr
    with cc.open_store(f"sqlite:///{path}") as store:
        assert len(store.load("demo")) == 20


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_a_store_that_goes_away_underneath_is_noticed(tmp_path: Path, way: str) -> None:
    """SQLite itself continues to write into a deleted file."""
    path = tmp_path / "chat.db"
    fill(path)
    with cc.open_store(f"sqlite:///{path}") as store:
        store.append("demo", cc.user("x"))
        for file in tmp_path.iterdir():
            file.unlink()
        if way == "replaced":
            sqlite3.connect(path).close()
            path.touch()
        with pytest.raises(cc.errors.StoreUnavailable, match=f"was {way}.*Put the file back or restore a backup"):
            append_for_ever(store, [])
    with cc.open_store(f"sqlite:///{path}") as store:
        store.append("demo", cc.user("a new one"))
        assert len(store.load("demo")) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(cc.errors.StoreUnavailable, match=r"folder .*/no/such not found. Create it"):
        cc.open_store(f"sqlite:///{tmp_path}/no/such/chat.db")


def test_a_file_that_is_not_a_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n" * 500)
    with pytest.raises(cc.errors.StoreCorrupt, match=r"not a SQLite file. Choose another path"):
        cc.open_store(f"sqlite:///{path}")
    assert path.read_text() == "dear diary\n" * 500


def test_a_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    with pytest.raises(cc.errors.StoreCorrupt, match=r"a SQLite file of another program .*'cookies'"):
        cc.open_store(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("cookies",)]
    connection.close()


def test_a_damaged_file_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    fill(path, 500)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    with (
        pytest.raises(cc.errors.StoreCorrupt, match=r"The file is corrupt"),
        cc.open_store(f"sqlite:///{path}") as store,
    ):
        store.load("demo")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Guarantee 3.7."""
    path, newest = tmp_path / "chat.db", migrations()[-1].version
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = ?", (newest + 1,))
    connection.close()
    for address in (f"sqlite:///{path}", f"sqlite:///{path}?mode=ro"):
        with pytest.raises(cc.errors.SchemaTooNew, match=rf"schema version {newest + 1}.*Upgrade contextc"):
            cc.open_store(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "chat.db",
        "sqlite:///:memory:",
        None,
        "mysql://x",
        "sqlite:",
        "sqlite:///",
        "sqlite://host/x.db",
        "sqlite:///x.db?mode=rw",
        "sqlite3:x",
    ],
)
def test_an_invalid_address_is_refused_with_the_right_form(address: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidSetting, match=r"sqlite:///|mode=ro"):
        cc.open_store(address)


def test_a_path_opens_a_file(tmp_path: Path) -> None:
    odd = tmp_path / "what? 100% #1.db"
    with cc.open_store(odd) as store:
        store.append("demo", cc.user("hi"))
    assert odd.exists()

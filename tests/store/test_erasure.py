"""Redacted or deleted content leaves the files of a SQLite store, and the store reports pending removal."""

import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.store import sqlite
from contextc.store.full_text_index import list_terms, update_index
from contextc.store.sqlite import SQLiteEngine
from contextc.store.store import engine_of

SECRET = "card 4242 4242 4242 4242"
ERASING: dict[str, Callable[[cc.Store], object]] = {
    "redact": lambda store: store.redact("demo", 1),
    "delete": lambda store: store.delete("demo"),
    "expire": lambda store: store.expire(timedelta(microseconds=1)),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Another program that has begun to read, and has not ended."""
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM main.message").fetchall()
        yield


def is_on_disk(path: Path) -> bool:
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal")]
    return any(SECRET.encode() in file.read_bytes() for file in files if file.exists())


def indexed_terms(path: Path) -> set[str]:
    """The terms in the full-text index, those that were only marked as deleted included, if its pages have them."""
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("CREATE VIRTUAL TABLE temp.indexed USING fts5vocab('main', 'search_term', 'row')")
        found = {term for (term,) in reader.execute("SELECT term FROM indexed")}
        pages = b"".join([body for (body,) in reader.execute("SELECT block FROM search_term_data")])
    return found | {term for term in list_terms(SECRET) if term.encode() in pages}


@pytest.mark.parametrize("erase", ERASING)
def test_content_leaves_the_files_at_once_without_readers(path: Path, erase: str) -> None:
    with cc.open_store(path) as store:
        store.append("demo", cc.user(SECRET, time=1000))
        assert is_on_disk(path)
        assert update_index(store, "demo")
        assert {*list_terms(SECRET)} <= indexed_terms(path)
        ERASING[erase](store)
        assert (is_on_disk(path), indexed_terms(path), store.pending_erasure) == (False, set(), 0)


@pytest.mark.parametrize("erase", ERASING)
def test_content_that_a_reader_keeps_in_the_log_is_pending_until_it_is_gone(
    path: Path, erase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A success that is reported while the content can still be read is a false one."""
    gone = threading.Event()
    original = SQLiteEngine._retry_erasure  # pyright: ignore[reportPrivateUsage]

    def erase_again(engine: SQLiteEngine) -> None:
        original(engine)
        if not engine.count_pending_erasures():
            gone.set()

    monkeypatch.setattr(SQLiteEngine, "_retry_erasure", erase_again)
    monkeypatch.setattr(sqlite, "ERASE_RETRY_SECONDS", 0.01)
    with cc.open_store(path) as store:
        store.append("demo", cc.user(SECRET, time=1000))
        with reading(path):
            began = monotonic()
            ERASING[erase](store)
            assert monotonic() - began < sqlite.BUSY_SECONDS / 2, "the caller does not wait for the reader"
            assert (is_on_disk(path), store.pending_erasure) == (True, 1)
            assert [(each.kind, each.code) for each in scan_store(store)] == [("note", "pending-erasure")]
            with cc.open_store(path) as other:
                assert other.pending_erasure == 1, "another process is told, too"
                other.append("other", cc.user("writers go on"))
        assert gone.wait(60)
        assert (is_on_disk(path), store.pending_erasure, list(scan_store(store))) == (False, 0, [])


def test_what_a_killed_process_left_is_erased_when_the_store_is_opened(path: Path) -> None:
    """The marker is stored with the redaction, so that it survives the process."""
    child = os.fork()
    if child == 0:
        store = cc.open_store(path)
        store.append("demo", cc.user(SECRET))
        engine_of(store).erase_removed_content = lambda: os._exit(0)
        store.redact("demo", 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_on_disk(path)
    with cc.open_store(path) as store:
        assert (is_on_disk(path), store.pending_erasure) == (False, 0)


def test_freed_pages_are_overwritten(path: Path) -> None:
    """Content of a removed row must not stay in the free space of the file."""
    with cc.open_store(path) as store:
        store.extend("demo", [cc.user(f"{SECRET} {number}" + "x" * 5000) for number in range(50)])
        store.delete("demo")
        assert not is_on_disk(path)
        assert store.read(lambda tx: tx.rows("PRAGMA secure_delete")) == [(1,)]

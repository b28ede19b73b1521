"""A commit that returned is on the disk: checked by counting syncs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

import contextc as cc
from tests.conftest import give_up

APPENDS = 100

WRITER = """
import os, sys, contextc as cc
store = cc.open_store(sys.argv[1])
log = int(os.environ["SYNC_LOG"])
store.append("demo", cc.user("warm up"))
for number in range(int(sys.argv[2])):
    os.write(log, b"(")
    if number % 3 == 0:
        store.append("demo", cc.user(str(number)))
    elif number % 3 == 1:
        store.extend("demo", [cc.user("a"), cc.user("b")])
    else:
        store.append("demo", cc.user(str(number)), key=str(number))
    os.write(log, b")")
"""


def test_sqlite_syncs_once_per_commit_before_it_returns(tmp_path: Path) -> None:
    """Guarantee 3.2: durable when it returns, and not twice as slow as it must be."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        give_up("counting syncs needs Linux and a C compiler")
        return
    shim = tmp_path / "sync_log.so"
    source = Path(__file__).with_name("sync_log.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    with (tmp_path / "log").open("w+b", buffering=0) as log:
        subprocess.run(
            [sys.executable, "-c", WRITER, f"sqlite:///{tmp_path}/chat.db", str(APPENDS)],
            env={**os.environ, "LD_PRELOAD": str(shim), "SYNC_LOG": str(log.fileno())},
            pass_fds=[log.fileno()],
            check=True,
        )
        log.seek(0)
        marks = log.read().decode()
    assert marks[marks.index("(") :].rstrip("S") == "(S)" * APPENDS


def wal_syncs(store: cc.Store) -> int:
    """How often the server has flushed its log to disk, as far as its statistics have come."""
    version = store.read(lambda tx: tx.row("SELECT current_setting('server_version_num')::int"))
    assert version is not None
    query = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
    row = store.read(lambda tx: tx.row(query if version[0] >= 180000 else "SELECT wal_sync FROM pg_stat_wal"))
    return int(row[0] or 0) if row else 0


@pytest.fixture
def syncing(postgres_server: str) -> Iterator[None]:
    """Have the server of the tests sync its log as it would anywhere else."""
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        if admin.execute("SHOW fsync").fetchone() == ("on",):
            yield
            return
        _set_fsync(admin, "on")
        yield
        _set_fsync(admin, "off")


def _set_fsync(admin: "psycopg.Connection[Any]", value: Literal["on", "off"]) -> None:
    admin.execute(f"ALTER SYSTEM SET fsync = {value}")
    admin.execute("SELECT pg_reload_conf()")
    while admin.execute("SHOW fsync").fetchone() != (value,):
        time.sleep(0.01)


@pytest.mark.usefixtures("syncing")
def test_postgres_syncs_at_least_once_per_commit(postgres_address: str) -> None:
    """Guarantee 3.2: no asynchronous commit, whatever the server's default is."""
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("warm up"))
        time.sleep(1)
        before = wal_syncs(store)
        for number in range(APPENDS):
            store.append("demo", cc.user(str(number)))
        deadline = time.monotonic() + 60
        while (syncs := wal_syncs(store) - before) < APPENDS and time.monotonic() < deadline:
            time.sleep(0.5)
        assert syncs >= APPENDS
        assert store.read(lambda tx: tx.row("SHOW synchronous_commit")) == ("on",)


@pytest.mark.parametrize("length", [10, 20_000])
def test_bytes_written_per_append_do_not_grow_with_the_history(tmp_path: Path, length: int) -> None:
    """Guarantee 3.3: the same bound at ten messages and at twenty thousand."""
    if not Path("/proc/self/io").exists():
        give_up("counting written bytes needs /proc/self/io")
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        store.extend("demo", [cc.user("x" * 200) for _ in range(length)])
        before = written()
        for _ in range(200):
            store.append("demo", cc.user("x" * 200))
        assert (written() - before) / 200 < 12_000


def written() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])

"""A recorder that fails on purpose: requests pass with the same bytes, the delay or the gap is shown, and afterwards
each exchange is in the store once (Guarantees 16.12 and 16.13).

The recorder is another process. It is stopped and killed with signals, its disk is full because the system refuses
every write of that process, and its store is locked by this process.
"""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import contextc as cc
from contextc.cli.proxy import print_gaps
from contextc.errors import StoreFull
from contextc.proxy.proxy_server import MAX_LATEST, ProxyServer, RecorderSupervisor, listen
from contextc.proxy.proxy_status import ProxyStatus, read_statuses
from contextc.proxy.recorder_process import RecordedExchange, RecorderEvent, RecorderSettings, SpoolRecorder
from contextc.proxy.spool import SPOOL_FULL, ExchangeStart, GapLog, ResponseStart, Spool, SpoolLimits
from contextc.proxy.upstreams import parse_upstream
from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.full_disk_sqlite import full_disk
from tests.proxy.test_sdk_clients import stored_bodies

SECONDS = 120.0
POLL_SECONDS = 0.01
MODEL = "claude-opus-4-5"
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
UNLIMITED = resource.RLIM_INFINITY


def body_of(number: int, size: int = 0) -> bytes:
    text = f"Question {number}" + " and more" * (size // 9)
    messages = [{"role": "user", "content": text}]
    return json.dumps(
        {"model": MODEL, "max_tokens": 100, "messages": messages, "stream": bool(number % 2)}
    ).encode()  # fmt: skip


def fake_vendors() -> FakeVendors:
    return FakeVendors(lambda ask: Reply(f"Answer to {len(ask.raw)} bytes"), strict=False)


def wait_until(condition: Callable[[], Any]) -> Any:
    """Return the first true value of the condition. Fail after a long time."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(POLL_SECONDS)
    return found


class Setting:
    """A proxy between a client and fake vendors, with equal fake vendors beside it that are called directly."""

    def __init__(self, folder: Path, limits: SpoolLimits | None) -> None:
        self.folder, self.store = folder, f"sqlite:///{folder}/store.db"
        self.client, self.direct, self.fake = httpx2.Client(timeout=SECONDS), fake_vendors(), fake_vendors()
        self.limits, self.sent, self.url = limits, list[bytes](), ""

    def start(self) -> ProxyServer:
        self.proxy = ProxyServer(
            self.store,
            {"anthropic": parse_upstream("anthropic", self.fake.url())},
            folder=self.folder / "spool",
            limits=self.limits,
        )
        return self.proxy

    def send(self, *numbers: int, size: int = 0) -> None:
        """Send requests, whole and streamed, directly and through the proxy. Status, headers and bytes are equal."""
        for number in numbers:
            body = body_of(number, size)
            replies: list[tuple[int, dict[str, str], bytes]] = []
            for url in (self.direct.url(), f"{self.url}/anthropic"):
                with self.client.stream("POST", f"{url}/v1/messages", content=body, headers=HEADERS) as reply:
                    replies.append((reply.status_code, dict(reply.headers), b"".join(reply.iter_raw())))
            assert replies[0] == replies[1]
            assert replies[0][0] == 200
            self.sent.append(body)

    @property
    def status(self) -> dict[str, Any]:
        return self.client.get(f"{self.url}/contextc/status").json()

    @property
    def pid(self) -> int:
        return wait_until(lambda: self.proxy.recorder.pid)

    def stored(self) -> list[bytes]:
        """Return the bodies in the store."""
        with cc.open_store(self.store) as store:
            names = [row[0] for row in store.read(lambda tx: tx.rows("SELECT name FROM main.conversation"))]
            return [raw for name in names for raw in stored_bodies(store, name)]


@contextmanager
def running(folder: Path, limits: SpoolLimits | None = None) -> Generator[Setting]:
    """Run a proxy whose recorder has recorded one exchange."""
    setting = Setting(folder, limits)
    with setting.client, setting.direct, setting.fake:
        proxy = setting.start()
        try:
            with listen("127.0.0.1", 0) as listening, proxy.running(listening) as setting.url:
                setting.send(0)
                assert proxy.recorder.wait_for(1, SECONDS)
                yield setting
        finally:
            proxy.close(0)


# ── ways to fail ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def disk_full(setting: Setting) -> Generator[None]:
    """Let every write of the recorder to a file fail, until it is repaired."""
    pid = setting.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, UNLIMITED))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


@contextmanager
def store_locked(setting: Setting) -> Generator[None]:
    """Hold the lock of all writers of the store."""
    path = setting.store.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def recorder_stopped(setting: Setting) -> Generator[None]:
    pid = setting.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def find_written_status(store: str, requests: int) -> ProxyStatus | None:
    """Return the status with an error that was written after so many requests."""
    return next((each for each in read_statuses(store) if each.error and each.requests == requests), None)


def test_requests_pass_while_the_recorder_fails_and_are_recorded_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, with the same recorder. The status file is what `watch --attach` and the web UI read."""

    def find_spool_folder(store: str, *, in_memory: bool) -> Path:
        return tmp_path / "spool"

    monkeypatch.setattr("contextc.proxy.proxy_status.find_spool_folder", find_spool_folder)
    with running(tmp_path) as setting:
        for fault in (disk_full, store_locked, recorder_stopped):
            before = len(setting.sent)
            with fault(setting):
                setting.send(*range(before, before + 6))
                wait_until(lambda: setting.proxy.spool.queued_bytes == 0)
                status, count = setting.status, before + 6
                assert (status["requests"], status["recorded"], status["spooled"]) == (count, before, count)
                assert (status["open"], status["gaps"]["count"]) == (0, 0)
                if fault is disk_full:
                    assert "disk" in wait_until(lambda: setting.status["recorder"]["error"])
                    shown = wait_until(partial(find_written_status, setting.store, count))
                    assert (shown.recorded, shown.gaps) == (before, {})
            assert setting.proxy.recorder.wait_for(count, SECONDS)
            status = setting.status
            assert (status["recorded"], status["recorder"], status["gaps"]["count"]) == (
                count,
                {"restarts": 0, "error": ""},
                0,
            )
        assert setting.proxy.close()
        assert setting.proxy.summary.requests == len(setting.sent) == 19
    assert sorted(setting.stored()) == sorted(setting.sent)


@pytest.mark.parametrize("fault", [disk_full, recorder_stopped], ids=lambda each: each.__name__)
def test_a_proxy_that_ends_while_the_recorder_fails_says_so_and_nothing_is_lost(
    tmp_path: Path, fault: Callable[[Setting], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The recorder is left to itself, and ends when everything is recorded."""
    with running(tmp_path) as setting:
        with fault(setting):
            setting.send(1, 2)
            if fault is disk_full:
                wait_until(lambda: setting.proxy.recorder.error)
            is_recorded = setting.proxy.close(0)
            print_gaps(setting.proxy, is_recorded)
        printed = " ".join(capsys.readouterr().err.split())
        assert not is_recorded
        assert "warning: some requests are not recorded yet" in printed
        assert "the next proxy with this store records them" in printed
        assert ("disk" in printed) is (fault is disk_full)
        wait_until(lambda: not list((tmp_path / "spool").iterdir()))
    assert sorted(setting.stored()) == sorted(setting.sent)


def test_a_recorder_that_is_killed_within_its_work_is_shown_and_records_once(tmp_path: Path) -> None:
    """It is killed while it waits for the store, so that it has read exchanges and recorded none."""
    with running(tmp_path) as setting:
        with store_locked(setting):
            setting.send(1, 2)
            wait_until(lambda: setting.proxy.recorder._reading)  # pyright: ignore[reportPrivateUsage]
            os.kill(setting.pid, signal.SIGKILL)
            assert wait_until(lambda: setting.status["recorder"]["restarts"]) == 1
            setting.send(3, 4)
            assert setting.status["recorded"] == 1
        assert setting.proxy.recorder.wait_for(5, SECONDS)
        assert setting.status["gaps"]["count"] == 0
        assert setting.proxy.close()
    assert sorted(setting.stored()) == sorted(setting.sent)


def test_what_a_slow_recorder_leaves_no_room_for_is_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests pass, the gap is counted once and shown everywhere, and everything else is recorded."""
    with running(tmp_path, SpoolLimits(folder=30_000, segment=5_000)) as setting:
        with recorder_stopped(setting):
            setting.send(1, 2)
            setting.send(3, size=40_000)
            wait_until(lambda: setting.proxy.gaps.count)
            gaps = setting.status["gaps"]
            assert (gaps["count"], gaps["reasons"], gaps["last"][0][1]) == (1, {SPOOL_FULL: 1}, SPOOL_FULL)
            assert setting.status["recorded"] == 1
        wait_until(lambda: setting.status["recorded"] == 3)
        setting.send(4)
        wait_until(lambda: setting.status["recorded"] == 4)
        assert (setting.status["requests"], setting.status["gaps"]["count"]) == (5, 1)
        is_recorded = setting.proxy.close()
    print_gaps(setting.proxy, is_recorded)
    assert is_recorded
    assert capsys.readouterr().err == f"warning: 1 request not recorded: {SPOOL_FULL}\n"
    del setting.sent[3]
    assert sorted(setting.stored()) == sorted(setting.sent)


def test_a_full_store_loses_nothing_and_records_once(tmp_path: Path) -> None:
    """Without a process: the file of the store cannot grow, and each exchange is read again until it can."""
    spool = Spool(tmp_path / "run", GapLog())
    for number in range(3):
        record = spool.begin(ExchangeStart(upstream="anthropic", url="http://a/v1/messages", format="anthropic"))
        record.request(body_of(2 * number, size=200_000))
        record.sent()
        record.response(ResponseStart(status=200))
        record.end("complete")
    spool.close()
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = SpoolRecorder(tmp_path / "run", store)
        with full_disk(store, pages=2):
            for _ in range(3):
                with pytest.raises(StoreFull):
                    list(recorder.record_ended())
                recorder = recorder.restart()
        done = [each for _, each in recorder.record_rest() if each is not None]
        assert [each.problem for each in done] == ["", "", ""]
        assert len(store.read(lambda tx: tx.rows("SELECT * FROM main.manifest"))) == 3
    assert not (tmp_path / "run").exists()


def test_a_recorder_gives_up_if_proxy_and_store_are_gone(tmp_path: Path) -> None:
    """Guarantee 16.12: no process is left that waits for a deleted folder; the spool keeps the exchanges."""
    (tmp_path / "not-a-folder").write_text("")
    settings = RecorderSettings(store=f"sqlite:///{tmp_path}/not-a-folder/store.db", folder=str(tmp_path), run="1")
    command = [sys.executable, "-m", "contextc.proxy.recorder_process"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdout as lines:
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
        assert "error" in json.loads(lines.readline())
        assert process.poll() is None  # it waits for the store
        process.stdin.close()
        process.stdin = None
        assert process.wait(SECONDS) == 1


def test_an_exchange_that_is_read_again_counts_once_and_only_the_latest_are_remembered(tmp_path: Path) -> None:
    """A recorder that is started again reads at most the last one again. A proxy runs for months."""
    recorded: list[RecordedExchange] = []
    settings = RecorderSettings(store="memory:", folder=str(tmp_path), run="run")
    supervisor = RecorderSupervisor(settings, GapLog(), recorded.append)
    handle = supervisor._handle  # pyright: ignore[reportPrivateUsage]
    for number in range(MAX_LATEST + 50):
        for _ in range(2):
            handle(RecorderEvent(done=RecordedExchange(exchange=f"run-{number}", time=0)))
    assert len(recorded) == supervisor.recorded == MAX_LATEST + 50
    assert supervisor.wait_for(MAX_LATEST + 50, 0)
    assert not supervisor.wait_for(MAX_LATEST + 51, 0)
    assert len(supervisor._latest) == MAX_LATEST  # pyright: ignore[reportPrivateUsage]

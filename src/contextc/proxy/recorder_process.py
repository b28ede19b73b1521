"""The recorder: a process of its own that reads the spool and writes to the store.

It may be killed at any moment; the next one continues. The first line on its standard input is its configuration, each
further one announces new frames. It ends after the proxy has ended and everything is recorded. Results go to standard
output, one JSON object per line.
"""

import os
import queue
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec
from msgspec import Struct

from contextc._file_lock import hold_lock
from contextc.errors import StoreError
from contextc.proxy.spool_frames import LOCK_FILE
from contextc.proxy.spool_recording import RecordedExchange, SpoolRecorder, other_runs
from contextc.store import Store, open_store

POLL_SECONDS = 1.0
LOCK_SECONDS = 5.0
RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)
"""Pauses after errors of the store; the last one repeats."""


class RecorderSettings(Struct, frozen=True, kw_only=True):
    """The store, the folder of all spools, and the run to record. Exchanges in `skip` are not read again.

    With `lints`, the record of a request has what its provider would refuse.
    """

    store: str
    folder: str
    run: str
    redact: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    lints: bool = False


class RecorderEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the recorder's output: the exchange that it reads, one that it has read, or an error of the store."""

    reading: str = ""
    done: RecordedExchange | None = None
    error: str = ""


def main() -> None:
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the observed program
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=RecorderSettings)
    announced: queue.SimpleQueue[bool] = queue.SimpleQueue()
    Thread(target=_read_input, args=(announced,), daemon=True).start()
    with _open(settings) as store:
        record_run(store, settings, announced)
    os._exit(0)  # the thread waits for input


def _open(settings: RecorderSettings) -> Store:
    attempt = 0
    while True:
        try:
            return open_store(settings.store)
        except StoreError as error:
            _report(RecorderEvent(error=str(error)))
            _pause(attempt)
            attempt += 1


def record_run(store: Store, settings: RecorderSettings, announced: "queue.SimpleQueue[bool]") -> None:
    """Record what other runs have left, then this run until its end."""
    folder = Path(settings.folder)
    for path in other_runs(folder, settings.run):
        with suppress(TimeoutError, FileNotFoundError), hold_lock(path / LOCK_FILE, 0):
            _work(_recorder(path, store, settings), is_over=True)
    recorder = _recorder(folder / settings.run, store, settings)
    is_there = True
    while is_there and not recorder.reader.is_closed:
        recorder = _work(recorder, is_over=False)
        is_there = recorder.reader.is_closed or _wait(announced)
    with suppress(TimeoutError, FileNotFoundError), hold_lock(folder / settings.run / LOCK_FILE, LOCK_SECONDS):
        _work(recorder, is_over=True)  # unless another recorder has found the run


def _recorder(folder: Path, store: Store, settings: RecorderSettings) -> SpoolRecorder:
    return SpoolRecorder(folder, store, settings.redact, settings.skip, lints=settings.lints)


def _work(recorder: SpoolRecorder, *, is_over: bool) -> SpoolRecorder:
    """Record what is there. After an error of the store, try again: the spool keeps what is not recorded."""
    attempt = 0
    while True:
        try:
            _report_all(recorder.record_rest() if is_over else recorder.record_ended())
        except StoreError as error:
            _report(RecorderEvent(error=str(error)))
            _pause(attempt)
            attempt += 1
            recorder = recorder.restart()
        else:
            return recorder


def _pause(attempt: int) -> None:
    time.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])


def _report_all(results: Iterator[tuple[str, RecordedExchange | None]]) -> None:
    for id, done in results:
        _report(RecorderEvent(reading=id) if done is None else RecorderEvent(done=done))


def _report(event: RecorderEvent) -> None:
    with suppress(OSError):  # the proxy may be gone; its exchanges are recorded nevertheless
        os.write(sys.stdout.fileno(), msgspec.json.encode(event) + b"\n")


def _read_input(announced: "queue.SimpleQueue[bool]") -> None:
    while sys.stdin.buffer.readline():
        announced.put(True)
    announced.put(False)


def _wait(announced: "queue.SimpleQueue[bool]") -> bool:
    """Wait for new frames. Return False if the proxy is gone."""
    try:
        is_there = announced.get(timeout=POLL_SECONDS)
        while not announced.empty():
            is_there = announced.get() and is_there
    except queue.Empty:
        return True
    return is_there


if __name__ == "__main__":
    main()

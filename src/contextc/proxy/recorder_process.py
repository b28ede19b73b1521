"""The recorder: a process of its own that reads the spool and writes to the store.

It may be killed at any moment; the next one continues. The first line on its standard input is its configuration, each
further one announces new frames. It ends after the proxy has ended and everything is recorded. If the store cannot be
written then, the spool keeps the rest for the next proxy. Results go to standard output, one JSON object per line.
"""

import os
import queue
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

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
    """A line of the recorder's output: the exchange that it reads, one that it has read, or an error of the store.

    An empty one says that the store is open.
    """

    reading: str = ""
    done: RecordedExchange | None = None
    error: str = ""


class ProxyInput:
    """Standard input: the proxy announces new frames there, and closes it when it ends."""

    def __init__(self) -> None:
        self._announced: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_gone = Event()
        self._tries_alone = 0
        Thread(target=self._read, daemon=True).start()

    def wait(self) -> bool:
        """Wait for new frames. Return False if the proxy is gone."""
        with suppress(queue.Empty):
            self._announced.get(timeout=POLL_SECONDS)
            while True:
                self._announced.get_nowait()
        return not self._is_gone.is_set()

    def pause(self, error: StoreError, attempt: int) -> None:
        """Report an error of the store, and wait. Raise it after the last try without a proxy."""
        _report(RecorderEvent(error=str(error)))
        if self._is_gone.is_set():
            if self._tries_alone == len(RETRY_SECONDS):
                raise error
            time.sleep(RETRY_SECONDS[self._tries_alone])
            self._tries_alone += 1
        else:
            self._is_gone.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])

    def _read(self) -> None:
        while sys.stdin.buffer.readline():
            self._announced.put(None)
        self._is_gone.set()
        self._announced.put(None)


def main() -> None:
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the observed program
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=RecorderSettings)
    proxy = ProxyInput()
    try:
        with _open(settings, proxy) as store:
            record_run(store, settings, proxy)
    except StoreError:
        os._exit(1)  # reported; the spool keeps what is not recorded
    os._exit(0)  # the thread waits for input


def _open(settings: RecorderSettings, proxy: ProxyInput) -> Store:
    for attempt in count():
        try:
            store = open_store(settings.store)
        except StoreError as error:
            proxy.pause(error, attempt)
        else:
            _report(RecorderEvent())
            return store
    raise AssertionError


def record_run(store: Store, settings: RecorderSettings, proxy: ProxyInput) -> None:
    """Record what other runs have left, then this run until its end."""
    folder = Path(settings.folder)
    for path in other_runs(folder, settings.run):
        with suppress(TimeoutError, FileNotFoundError), hold_lock(path / LOCK_FILE, 0):
            _work(_recorder(path, store, settings), proxy, is_over=True)
    recorder = _recorder(folder / settings.run, store, settings)
    is_there = True
    while is_there and not recorder.reader.is_closed:
        recorder = _work(recorder, proxy, is_over=False)
        is_there = recorder.reader.is_closed or proxy.wait()
    with suppress(TimeoutError, FileNotFoundError), hold_lock(folder / settings.run / LOCK_FILE, LOCK_SECONDS):
        _work(recorder, proxy, is_over=True)  # unless another recorder has found the run


def _recorder(folder: Path, store: Store, settings: RecorderSettings) -> SpoolRecorder:
    return SpoolRecorder(folder, store, settings.redact, settings.skip, lints=settings.lints)


def _work(recorder: SpoolRecorder, proxy: ProxyInput, *, is_over: bool) -> SpoolRecorder:
    """Record what is there. After an error of the store, try again: the spool keeps what is not recorded."""
    for attempt in count():
        try:
            _report_all(recorder.record_rest() if is_over else recorder.record_ended())
            break
        except StoreError as error:
            proxy.pause(error, attempt)
            recorder = recorder.restart()
    return recorder


def _report_all(results: Iterator[tuple[str, RecordedExchange | None]]) -> None:
    for id, done in results:
        _report(RecorderEvent(reading=id) if done is None else RecorderEvent(done=done))


def _report(event: RecorderEvent) -> None:
    with suppress(OSError):  # the proxy may be gone; its exchanges are recorded nevertheless
        os.write(sys.stdout.fileno(), msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    main()

"""Starts the recorder process, and starts it again with growing pauses if it ends early."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread

import msgspec
from msgspec.structs import replace

from contextc.proxy.gap_log import GapLog
from contextc.proxy.recorder_process import RecorderEvent, RecorderSettings
from contextc.proxy.spool_recording import RecordedExchange

BACK_OFF = (0.1, 0.5, 2.0, 10.0, 30.0)
HEALTHY_SECONDS = 60.0
"""Seconds after which a recorder counts as healthy, so that it is started again at once. So does one that recorded."""
MAX_CRASHES = 3
"""Crashes on the same exchange after which it is left out."""
_decode = msgspec.json.Decoder(RecorderEvent).decode


class RecorderSupervisor:
    """The recorder of one proxy. `on_recorded` is called once per exchange, on a thread of the supervisor."""

    def __init__(
        self, settings: RecorderSettings, gaps: GapLog, on_recorded: Callable[[RecordedExchange], None]
    ) -> None:
        self.settings, self.gaps, self.on_recorded = settings, gaps, on_recorded
        self.restarts, self.recorded, self.error = 0, 0, ""
        self._seen: set[str] = set()
        self._reading, self._crashes = "", dict[str, int]()
        self._changed = Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = self._is_finished = False
        self._thread = Thread(target=self._run, name="contextc-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def wake(self) -> None:
        """Tell the recorder that there are new frames. It looks for itself after a second, so this may fail."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):
                process.stdin.write(b"\n")

    def wait_for(self, exchanges: int, seconds: float) -> bool:
        """Wait until so many exchanges were read by the recorder. Return False after the time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._seen) >= exchanges, seconds)

    def close(self, seconds: float) -> bool:
        """Wait until everything is recorded; the spool must be closed. Return False if it takes longer.

        Then the recorder is left to itself: it finishes, or the next proxy with this store does.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self.wake()
        self._thread.join(seconds)
        if self._thread.is_alive() and (process := self._process) is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        return self._is_finished

    # ── the supervisor's thread ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        attempt = 0
        while True:
            began, seen = time.monotonic(), len(self._seen)
            code = self._run_process()
            if code == 0:
                self._is_finished = True
                return
            self.error = self.error or f"The recorder ended with exit code {code}"
            if self._reading:
                crashes = self._crashes[self._reading] = self._crashes.get(self._reading, 0) + 1
                if crashes >= MAX_CRASHES:
                    self.settings = replace(self.settings, skip=(*self.settings.skip, self._reading))
            if len(self._seen) > seen or time.monotonic() - began > HEALTHY_SECONDS:
                attempt = 0
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, BACK_OFF[min(attempt, len(BACK_OFF) - 1)])
                if self._is_closing and attempt >= MAX_CRASHES:
                    return
            attempt += 1
            self.restarts += 1

    def _run_process(self) -> int:
        """Run a recorder until it ends, and return its exit code."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "contextc.proxy.recorder_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # signals of the terminal are for the observed program
            )
        except OSError as error:
            self.error = f"The recorder cannot be started: {error}"
            return 1
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(msgspec.json.encode(self.settings) + b"\n")
            os.set_blocking(process.stdin.fileno(), False)  # the spool never waits for a recorder that does not read
        self._process, self._reading = process, ""
        with process.stdout as lines:
            for line in iter(lines.readline, b""):
                with suppress(msgspec.DecodeError):  # a line that a killed process did not finish
                    self._handle(_decode(line))
        code = process.wait()
        self._process = None
        with suppress(OSError):
            process.stdin.close()
        return code

    def _handle(self, event: RecorderEvent) -> None:
        if event.reading:
            self._reading = event.reading  # it may be another try: an error stays until something was recorded
        else:
            self.error = event.error
        if event.done is None:
            return
        self._reading = ""
        done = event.done
        with self._changed:
            if done.exchange in self._seen:
                return
            self._seen.add(done.exchange)
        if done.problem:
            if done.is_gap:
                self.gaps.add(done.time, done.problem)
        else:
            self.recorded += 1
            self.on_recorded(done)
        with self._changed:
            self._changed.notify_all()

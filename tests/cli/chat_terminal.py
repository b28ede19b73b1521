"""Helpers for tests of `contextc chat`: recorded answers and a pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from contextc._json import JSONObject
from tests.executor.scripted_provider import Say
from tests.forked_commands import CommandProcess

PATIENCE = 180.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def home(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment with an empty home directory and without settings.

    Temporary files are there, too: a process that is killed does not delete them.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CONTEXTC_", "XDG_")) and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    return {**kept, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONUTF8": "1", **more}


def refuses(status: int, message: str, code: str = "") -> JSONObject:
    return {"error": {"status": status, "body": {"error": {"message": message, "code": code}}}}


def recorded(path: Path, *replies: Say | JSONObject) -> str:
    """The model that gives these replies, as `--model` takes it."""
    events = [reply.recording() if isinstance(reply, Say) else reply for reply in replies]
    path.write_text("\n".join([json.dumps(each) for each in events]))
    return f"replay:{path}"


class Terminal:
    """`contextc chat` on a pseudo-terminal. `seen` is everything that was printed, to the byte."""

    def __init__(
        self, folder: Path, *arguments: str, columns: int = 100, more: Mapping[str, str] | None = None
    ) -> None:
        self.seen = ""
        self._at = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = CommandProcess(
            "chat",
            *arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=home(folder, TERM="xterm-256color", **(more or {})),
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def wait_for(self, text: str) -> str:
        """Read until this is printed, after what was waited for last; what came until then, without colours."""
        end = time.monotonic() + PATIENCE
        while True:
            new = ESCAPES.sub("", self.seen)[self._at :]
            if text in new:
                found = new[: new.index(text) + len(text)]
                self._at += len(found)
                return found
            assert time.monotonic() < end, f"{text!r} was not printed. There was: {self.seen!r}"
            if not self._read(0.2):
                assert self.process.poll() is None, f"it ended without {text!r}. There was: {self.seen!r}"

    def type(self, line: str) -> None:
        self.press(line + "\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once it waits. Python's prompt is printed a little before it listens to signals."""
        looks = 0
        while looks < 3:
            looks = looks + 1 if self._is_waiting() else 0
            time.sleep(0.01)
        os.killpg(self.process.pid, signal.SIGINT)  # as a terminal does: whatever it has started hears it too

    def _is_waiting(self) -> bool:
        """Whether its main thread has nothing to do; one that is ready to run, but not let, has."""
        state = Path(f"/proc/{self.process.pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "S"

    def leave(self) -> int:
        """Wait for the end; the exit code."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end. There was: {self.seen!r}"
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.wait()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._master, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.seen += self._decoder.decode(piece)
        return bool(piece)

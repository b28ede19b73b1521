"""Search with the regular expression of a user, for a limited time. This file is also run as a program.

Such an expression may take quadratic or exponential time on the text of a tool result, and Python's `re` can
neither be interrupted nor run beside other threads. So a process of its own searches, and the system ends it when it
has used its processor time. This file therefore imports only the standard library. The process reads texts as lines
of JSON, and writes the places of the matches. Short texts, and all where no process can be started, are searched here.
"""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import IO, TypeAlias, cast

Span: TypeAlias = tuple[int, int]
SECONDS = 1.0
"""Processor time of one search. A usual expression needs some milliseconds for a megabyte."""
WALL_SECONDS = 60.0
"""Time of one search on systems that cannot limit the processor time."""
SHORT_TEXT = 20
"""Texts of so many characters are searched here: even an exponential expression ends."""
MAX_PROCESSES = 4
GROUP = "secret"


class SearchTooSlow(Exception):
    """The search took longer than its limit."""


def find_spans(pattern: re.Pattern[str], text: str) -> list[Span]:
    """Return the places of all matches, or of their group `secret`. Raise SearchTooSlow after the time limit."""
    if len(text) <= SHORT_TEXT:
        return _search(pattern, text)
    with _lock:
        process = _process_of(pattern)
        if process is None:
            return _search(pattern, text)
        try:
            return process.search(text)
        except (OSError, ValueError):  # the process has ended
            _processes.pop((os.getpid(), pattern), None)
            process.close()
            raise SearchTooSlow from None


def _search(pattern: re.Pattern[str], text: str) -> list[Span]:
    group: str | int = GROUP if GROUP in pattern.groupindex else 0
    return [match.span(group) for match in pattern.finditer(text)]


class _SearchProcess:
    """A process that searches with one expression."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        command = [sys.executable, "-I", "-S", "-X", "utf8", __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._stdin, self._stdout = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._write([pattern.pattern, pattern.flags & ~re.DEBUG])

    def search(self, text: str) -> list[Span]:
        """Return the places of the matches. Raise OSError or ValueError if the process has ended."""
        limit = None if hasattr(signal, "setitimer") else threading.Timer(WALL_SECONDS, self._process.kill)
        if limit is not None:
            limit.start()
        try:
            self._write(text)
            return [(start, end) for start, end in json.loads(self._stdout.readline())]
        finally:
            if limit is not None:
                limit.cancel()

    def close(self) -> None:
        self._process.kill()
        with suppress(OSError):  # what it did not read
            self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def _write(self, value: object) -> None:
        self._stdin.write(json.dumps(value).encode() + b"\n")
        self._stdin.flush()


_lock = threading.Lock()
_processes: OrderedDict[tuple[int, re.Pattern[str]], _SearchProcess] = OrderedDict()
"""Processes by the process that started them: one that was forked starts its own."""


def _process_of(pattern: re.Pattern[str]) -> _SearchProcess | None:
    key = (os.getpid(), pattern)
    if key not in _processes:
        try:
            _processes[key] = _SearchProcess(pattern)
        except OSError:
            return None
        while len(_processes) > MAX_PROCESSES:
            (owner, _), former = _processes.popitem(last=False)
            if owner == key[0]:
                former.close()
    _processes.move_to_end(key)
    return _processes[key]


@atexit.register
def _close_all() -> None:
    for (owner, _), process in _processes.items():
        if owner == os.getpid():
            process.close()
    _processes.clear()


def main() -> None:
    source, flags = json.loads(sys.stdin.buffer.readline())
    pattern = re.compile(source, flags)
    for line in sys.stdin.buffer:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process
        found = _search(pattern, json.loads(line))
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

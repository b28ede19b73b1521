"""Terminal input: a line at the prompt, a line during a turn, an answer to a question, Ctrl-C.

At the prompt nothing else runs, so `input` reads the line, with its editing and history. During a turn, the terminal
collects a line, and the event loop reads it. A pending question gets the next line; otherwise it goes to the turn.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

PROMPT, MORE = "> ", "… "


class TerminalInput:
    """Input of an interactive terminal."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[str] | None = None
        self._rest = b""
        self._ended = False
        with suppress(ImportError):
            import readline  # pyright: ignore[reportUnusedImport]  # noqa: F401  # `input` then edits lines

    def read_prompt(self) -> str:
        """Read a line at the prompt. A backslash at its end continues it. Raise KeyboardInterrupt and EOFError."""
        with _python_interrupts():
            line = input(PROMPT)
            while line.endswith("\\"):
                line = line[:-1] + "\n" + input(MORE)
            return line

    @contextmanager
    def reading_lines(self, on_line: Callable[[str], None]) -> Generator[None]:
        """Pass each typed line to `on_line`, until the context ends."""
        loop, place = asyncio.get_running_loop(), sys.stdin.fileno()
        self._ended = False

        def readable() -> None:
            try:
                piece = os.read(place, 1 << 14)
            except OSError:
                piece = b""
            if not piece:  # Ctrl-D: no more input in this turn
                loop.remove_reader(place)
                self._ended = True
                self._dispatch("", on_line)
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._dispatch(line.decode(errors="replace").strip(), on_line)

        try:
            loop.add_reader(place, readable)
        except (NotImplementedError, OSError):  # not supported on this system
            yield
            return
        try:
            yield
        finally:
            loop.remove_reader(place)

    def flush_input(self) -> None:
        """Drop unread input, which is not an answer to a new question."""
        with suppress(ImportError, OSError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._rest = b""

    async def read_answer(self) -> str:
        """Return the next line during a turn; "" after Ctrl-D."""
        if self._ended:
            return ""
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _dispatch(self, line: str, on_line: Callable[[str], None]) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line:
            on_line(line)


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` on Ctrl-C, until the context ends."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # then Ctrl-C ends the program, and the store recovers the turn
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def read_line() -> str | None:
    """Read a line of standard input that is not a terminal; None at its end."""
    with _python_interrupts():
        line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


@contextmanager
def _python_interrupts() -> Generator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, as without an event loop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

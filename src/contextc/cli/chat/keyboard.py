"""What a person types: a line at the prompt, a line while a turn runs, an answer to a question, Ctrl-C.

At the prompt nothing else runs, so the line is read right there, with the editing and the history that Python's `input`
has. While a turn runs, the terminal itself collects a line, and the event loop is told when there is one; whoever asks
a question gets the next line, and otherwise it goes to the turn.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

PROMPT, MORE = "> ", "… "


class Keyboard:
    """A terminal that somebody sits at."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[str] | None = None
        self._rest = b""
        self._ended = False
        with suppress(ImportError):
            import readline  # pyright: ignore[reportUnusedImport]  # noqa: F401  # `input` then edits lines

    def ask(self) -> str:
        """A line at the prompt; one that ends with a backslash goes on. Raises KeyboardInterrupt and EOFError."""
        with _python_interrupts():
            line = input(PROMPT)
            while line.endswith("\\"):
                line = line[:-1] + "\n" + input(MORE)
            return line

    @contextmanager
    def listening(self, heard: Callable[[str], None]) -> Generator[None]:
        """Give what is typed from now on to `heard`, line by line."""
        loop, place = asyncio.get_running_loop(), sys.stdin.fileno()
        self._ended = False

        def readable() -> None:
            try:
                piece = os.read(place, 1 << 14)
            except OSError:
                piece = b""
            if not piece:  # Ctrl-D: nothing more is said in this turn
                loop.remove_reader(place)
                self._ended = True
                self._take("", heard)
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace").strip(), heard)

        try:
            loop.add_reader(place, readable)
        except (NotImplementedError, OSError):  # this system cannot wait for a terminal so
            yield
            return
        try:
            yield
        finally:
            loop.remove_reader(place)

    def forget(self) -> None:
        """Drop what was typed and not read yet: it is no answer to a question that is asked now."""
        with suppress(ImportError, OSError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._rest = b""

    async def answer(self) -> str:
        """The next line, while a turn runs. Whoever has typed Ctrl-D answers with an empty one."""
        if self._ended:
            return ""
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _take(self, line: str, heard: Callable[[str], None]) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line:
            heard(line)


@contextmanager
def interrupts(stop: Callable[[], object]) -> Generator[None]:
    """Have Ctrl-C call this."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):  # then it ends the program, and the store knows the rest
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def read_line() -> str | None:
    """A line of standard input that is no terminal; None at its end."""
    with _python_interrupts():
        line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


@contextmanager
def _python_interrupts() -> Generator[None]:
    """Ctrl-C raises KeyboardInterrupt here, as it does without an event loop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

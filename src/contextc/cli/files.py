"""Files that commands read and write; `-` is standard input or output."""

import os
import sys
from collections.abc import Callable

from contextc.cli.terminal import count, err
from contextc.errors import InvalidSetting
from contextc.wire.files import Requests, read_requests, session_format


def read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as source:
            return source.read()
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror}.") from error


def requests_in(
    file: str, format: str | None, option: str = "--format", *, data: bytes | None = None
) -> tuple[Requests, str]:
    """What is in a file, and its format: the one that is given by an option, or that of the program whose session it
    is. `data` is what is in it, where it was read already.
    """
    data = read(file) if data is None else data
    known = format or session_format(data, option)
    found = read_requests(data, known)
    if found.unread:
        err.print(f"left out: {count(found.unread, 'line')} that cannot be read", soft_wrap=True)
    return found, known


def private(path: str, flags: int) -> int:
    """An `opener` for a new file that its owner alone can read."""
    return os.open(path, flags, 0o600)


def write(file: str, data: bytes, *, opener: Callable[[str, int], int] | None = None) -> None:
    """All of it or nothing: a file of that name is always a whole one."""
    if file == "-":
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader has seen enough, and that is no failure
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    partial = f"{file}.part"
    try:
        with open(partial, "wb", opener=opener) as target:
            target.write(data)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)

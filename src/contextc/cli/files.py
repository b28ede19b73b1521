"""Files that commands read and write; `-` is standard input or output."""

import os
import sys

from contextc.errors import InvalidSetting


def read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as source:
            return source.read()
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror}.") from error


def write(file: str, data: bytes) -> None:
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
        with open(partial, "wb") as target:
            target.write(data)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)

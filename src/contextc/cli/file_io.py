"""Reading and writing of files by commands. `-` is standard input or output."""

import os
import sys
from contextlib import suppress

from contextc.cli.console import err, escape_at_terminal, to_one_line
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats import format_names
from contextc.interchange.open_any import detect_format, is_request_log
from contextc.linting.request_reading import (
    RequestFile,
    describe_unreadable_lines,
    detect_session_format,
    read_requests,
)


def read_input(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as source:
            return source.read()
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror}.") from error


def load_requests(
    file: str, format: str | None, option: str = "--format", *, data: bytes | None = None
) -> tuple[RequestFile, str]:
    """Return the requests in a file, and their format: the given one, or else the recognised one.

    `data` is the content of the file, if it was read already.
    """
    data = read_input(file) if data is None else data
    try:
        known = format or _detect_format(data, option)
        if not known and is_request_log(data):
            raise InvalidSetting(
                f"{_display_name(file)} is a log of requests, and this command needs the requests alone",
                fix="Check the log with `contextc lint`, or import it with `contextc import`.",
            )
        if not known:
            raise InvalidSetting(
                f"{_display_name(file)}: the format cannot be recognised",
                fix=f"Pass {option}, one of {', '.join(format_names())}.",
            )
        found = read_requests(data, known)
    except InvalidRequest as error:
        raise InvalidRequest(
            error.problem, path=", ".join(filter(None, [_display_name(file), error.path])), fix=error.fix
        ) from error
    if found.unreadable_lines:
        err.print(f"left out: {describe_unreadable_lines(found.unreadable_lines)}", soft_wrap=True)
    return found, known


def _detect_format(data: bytes, option: str) -> str:
    """Return the format of a program's session, or of the requests in a file; "" if it cannot be recognised."""
    with suppress(InvalidSetting):
        return detect_session_format(data)
    bodies = read_requests(data).bodies
    try:
        formats = {detect_format(body) for body in bodies}
    except InvalidRequest:
        return ""
    if len(formats) != 1:
        return ""
    (found,) = formats
    err.print(f"format: {found} (recognised; override it with {option})", soft_wrap=True)
    return found


def _display_name(file: str) -> str:
    return "standard input" if file == "-" else file


def open_private(path: str, flags: int) -> int:
    """Open a new file that only its owner can read. For the parameter `opener` of `open`."""
    return os.open(path, flags, 0o600)


def write_output(file: str, data: bytes) -> None:
    """Write a file completely or not at all. Only its owner can read it."""
    if file == "-":
        try:
            sys.stdout.buffer.write(escape_at_terminal(data))
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader closed the pipe, which is not an error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    partial = f"{file}.part"
    try:
        with open(partial, "wb", opener=open_private) as target:
            target.write(data)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def read_system_prompt(option: str | None) -> str | None:
    """Return the text, or the content of the file that @ names."""
    if option is None or not option.startswith("@"):
        return option
    try:
        return read_input(option[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{to_one_line(option[1:])} is not UTF-8 text.") from error

"""Read and write files of requests: one JSON request, a bare list of messages, or JSON Lines.

Each line of JSON Lines is a request, a list of messages or a message. In session files of programs such as Claude Code,
all lines are one conversation. The program may have been killed while writing a line, so lines that are not JSON are
skipped, and their numbers are returned.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, encode, fix_surrogates_in_json, json_type_name
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.linting.tolerant_decoding import check_request

NEWLINE = b"\n"
MAX_NAMED_LINES = 5
FileLayout: TypeAlias = Literal["whole", "lines", "messages", "session"]


class RequestFile(NamedTuple):
    """The requests in a file, and the layout of the file.

    `layout` is "whole" (one JSON value), "lines" (one request per line), "messages" (one message per line) or
    "session".
    `unreadable_lines` are the numbers of the lines that are not JSON.
    """

    bodies: list[JSONObject]  # or lists of messages
    layout: FileLayout
    unreadable_lines: tuple[int, ...] = ()

    def position_label(self, index: int) -> str:
        """Return the position of a request in its file; empty if it is the only one."""
        return f"line {index + 1}" if self.layout == "lines" else ""

    def by_name(self, name: str) -> dict[str, JSONObject]:
        """Return the requests by names derived from `name`."""
        if len(self.bodies) == 1:
            return {name: self.bodies[0]}
        return {f"{name}-{number}": body for number, body in enumerate(self.bodies, 1)}


def read_requests(data: bytes, format: str | None = None) -> RequestFile:
    """Return the requests in the bytes of a file. If the lines of `format` form a session, return that one session.

    Raise `InvalidRequest` if the bytes are neither JSON nor JSON Lines, or hold neither an object nor a list.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    form = formatter(format) if format else None
    if not data.strip():
        raise InvalidRequest("the file is empty", fix="Give JSON or JSON Lines.")
    try:
        whole = _decode_json(data)
    except InvalidRequest:
        raise
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        problem = error
    else:
        check_request(whole)
        one_line = form is not None and _is_session_line(form, whole)
        return RequestFile([cast(JSONObject, [whole])], "session") if one_line else RequestFile([whole], "whole")
    if form is not None and form.session_line_fields and (found := _as_session(lines, form)) is not None:
        return found
    if len(lines) < 2 or not (_is_json(lines[0][1]) or _is_json(lines[1][1])):  # so these are not JSON Lines
        raise _json_error(data, problem) from problem
    values = [_decode_line(number, line) for number, line in lines]
    if all(isinstance(value, dict) and "role" in value for value in values):
        return RequestFile([cast(JSONObject, values)], "messages")
    return RequestFile(values, "lines")


def detect_session_format(data: bytes) -> str:
    """Return the format of a program's session file. Raise `InvalidSetting` if it cannot be detected."""
    values = [value for line in data.splitlines() if (value := _object_or_none(line)) is not None]
    forms = [form for form in map(formatter, format_names()) if any(_is_session_line(form, value) for value in values)]
    strange = {form.name: len(form.rules.parse(values).malformed) for form in forms}
    least = min(strange.values(), default=0)
    fitting = [name for name, count in strange.items() if count == least and 2 * count < len(values)]
    if len(fitting) != 1:
        raise InvalidSetting("the format cannot be detected", fix=f"Give one of {', '.join(format_names())}.")
    return fitting[0]


def describe_unreadable_lines(numbers: Sequence[int]) -> str:
    """Return the note for lines that are left out, with the numbers of the first ones."""
    if len(numbers) == 1:
        return f"1 line that cannot be read: line {numbers[0]}"
    more = f" and {len(numbers) - MAX_NAMED_LINES:,} more" if len(numbers) > MAX_NAMED_LINES else ""
    named = ", ".join(map(str, numbers[:MAX_NAMED_LINES]))
    return f"{len(numbers):,} lines that cannot be read: lines {named}{more}"


def layout_for(layout: FileLayout, format: str) -> FileLayout:
    """Return the layout for writing in another format: a session stays lines only if that format has sessions too."""
    return "whole" if layout == "session" and not formatter(format).session_line_fields else layout


def _as_session(lines: list[tuple[int, bytes]], form: Formatter) -> RequestFile | None:
    """Return the lines as one conversation; None if each line is a request of its own."""
    found = [(number, _object_or_none(line)) for number, line in lines]
    values = [value for _, value in found if value is not None]
    if not any(_is_session_line(form, value) for value in values):
        return None
    unreadable = tuple([number for number, value in found if value is None])
    return RequestFile([cast(JSONObject, values)], "session", unreadable)


def _is_session_line(form: Formatter, value: JSON) -> bool:
    return (
        isinstance(value, dict)
        and form.messages_key not in value
        and any(mark in value for mark in form.session_line_fields)
    )


def write_requests(bodies: Sequence[JSON], layout: FileLayout) -> bytes:
    """Return the bytes of a file that holds these requests in this layout."""
    if layout == "whole":
        return msgspec.json.format(encode(bodies[0]), indent=2) + b"\n"
    given: JSON = bodies[0]
    one = layout in ("messages", "session") and isinstance(given, list)
    lines = cast(Sequence[JSON], given if one else bodies)
    return b"".join(encode(line) + b"\n" for line in lines)


def _decode_json(data: bytes) -> JSON:
    """Decode JSON, including lone surrogates, which the json module accepts and msgspec does not. Raise ValueError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as problem:
        if b"\\ud" not in data.lower():
            raise ValueError(str(problem)) from problem
        return fix_surrogates_in_json(json.loads(data))
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply.") from None


BYTE_POSITION = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")


def _json_error(data: bytes, error: ValueError, line: int = 1) -> InvalidRequest:
    """Return the error for bytes that are not JSON, with the reason and the position. `line` is their first line."""
    problem, at = str(error), len(data)
    if (found := BYTE_POSITION.fullmatch(problem)) is not None:
        problem, at = found[1], int(found[2])
    elif isinstance(error, json.JSONDecodeError):
        problem, at = error.msg, len(error.doc[: error.pos].encode(errors="replace"))
    elif isinstance(error, UnicodeDecodeError):
        problem, at = "not UTF-8 text", _first_undecodable(data)
    elif "truncated" in problem:
        problem = "it is truncated"
    before = data[:at]
    column = len(before) - before.rfind(b"\n")
    return InvalidRequest(f"this is not JSON: {problem}.", path=f"line {line + before.count(NEWLINE)}, column {column}")


def _first_undecodable(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _is_json(line: bytes) -> bool:
    try:
        _decode_json(line)
    except ValueError as error:
        return isinstance(error, InvalidRequest)
    return True


def _object_or_none(line: bytes) -> JSON:
    """Return the JSON object in a line; None if the line holds none."""
    try:
        value = _decode_json(line)
    except ValueError:
        return None
    return cast(JSONObject, value) if isinstance(value, dict) else None


def _decode_line(number: int, line: bytes) -> JSONObject:
    try:
        value = _decode_json(line)
    except InvalidRequest as error:
        raise InvalidRequest(error.problem, path=f"line {number}", fix=error.fix) from error
    except ValueError as error:
        raise _json_error(line, error, number) from error
    if isinstance(value, dict | list):
        return cast(JSONObject, value)
    raise InvalidRequest(
        f"expected a request, a list of messages or a message, got {json_type_name(value)}.", path=f"line {number}"
    )

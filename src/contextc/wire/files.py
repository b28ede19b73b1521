"""Requests in files: one as JSON, or a bare list of messages, or JSON Lines of requests, of lists or of messages."""

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, encode, well_formed_json
from contextc.errors import InvalidRequest

Shape: TypeAlias = Literal["whole", "lines", "messages"]


class Requests(NamedTuple):
    """What a file holds, and how it is written down: whole, a request a line, or a message a line."""

    bodies: list[JSONObject]  # or lists of messages
    shape: Shape

    def label(self, index: int) -> str:
        """Where a request stands in its file; nothing where it is the only one."""
        return f"line {index + 1}" if self.shape == "lines" else ""

    def named(self, name: str) -> dict[str, JSONObject]:
        """The requests by names made of this one."""
        if len(self.bodies) == 1:
            return {name: self.bodies[0]}
        return {f"{name}-{number}": body for number, body in enumerate(self.bodies, 1)}


def read_requests(data: bytes) -> Requests:
    """The requests in the bytes of a file. Raises `InvalidRequest` where they are neither JSON nor JSON Lines."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return Requests([_decoded(data)], "whole")
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise InvalidRequest(f"this is not JSON: {error}.") from error
    values = [_value(number, line) for number, line in lines]
    if all(isinstance(value, dict) and "role" in value for value in values):
        return Requests([cast(JSONObject, values)], "messages")
    return Requests(values, "lines")


def write_requests(bodies: Sequence[JSON], shape: Shape) -> bytes:
    """The same in the shape they were read from."""
    if shape == "whole":
        return msgspec.json.format(encode(bodies[0]), indent=2) + b"\n"
    given: JSON = bodies[0]
    lines = cast(Sequence[JSON], given if shape == "messages" and isinstance(given, list) else bodies)
    return b"".join(encode(line) + b"\n" for line in lines)


def _decoded(data: bytes) -> JSON:
    """JSON, also where an emoji was cut in two, which is JSON to everybody but our decoder. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as problem:
        if b"\\ud" not in data.lower():
            raise ValueError(str(problem)) from problem
        return well_formed_json(json.loads(data))
    except RecursionError:
        raise InvalidRequest("this is nested too deep to be a request.") from None


def _value(number: int, line: bytes) -> JSONObject:
    try:
        value = _decoded(line)
    except ValueError as error:
        raise InvalidRequest(f"this is not JSON: {error}.", path=f"line {number}") from error
    if isinstance(value, dict | list):
        return cast(JSONObject, value)
    raise InvalidRequest("a line holds a request, a list of messages or a message.", path=f"line {number}")

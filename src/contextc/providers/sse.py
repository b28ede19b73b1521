"""Server-sent events as JSON, from bytes that come in any pieces. No I/O.

All three vendors stream this way. Only `data` is read; the names of events stand in the data as well, but for the
`error` of some servers. `[DONE]`, OpenAI's last word, is no event; `done` says that it was heard.
"""

import json
from typing import cast

from msgspec import DecodeError

from contextc._json import JSONObject, decode, parse_object


class MalformedEvent(ValueError):
    """What came is no event: the stream was cut off, or it is something else."""


class Events:
    """Takes bytes as they come, and gives events as soon as they are complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """The events that are complete with these bytes."""
        if b"\n" not in chunk and b"\r" not in chunk and not self._held_return():
            self._pieces.append(chunk)
            return []
        lines = b"".join([*self._pieces, chunk]).splitlines(keepends=True)
        # A return may be half of a line's end; whether it is, only the next byte says.
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """What is left when nothing more comes; some servers leave out the last empty line."""
        lines, self._pieces = b"".join(self._pieces).splitlines(keepends=True), []
        return self._read([*lines, b"\n"])

    def _held_return(self) -> bool:
        return bool(self._pieces) and self._pieces[-1].endswith(b"\r")

    def _read(self, lines: list[bytes]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for line in lines:
            field, _, value = line.rstrip(b"\r\n").partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.strip()
            elif not field and not value and self._data and (event := self._event()) is not None:
                found.append(event)
        return found

    def _event(self) -> JSONObject | None:
        data, name = b"\n".join(self._data), self._name
        self._data, self._name = [], b""
        if data.startswith(b"[DONE]"):
            self.done = True
        if self.done or not data.strip():
            return None
        event = parsed(data, halves=True)
        return {"error": event} if name == b"error" and "error" not in event and "type" not in event else event


def parsed(data: bytes, *, halves: bool = False) -> JSONObject:
    """One JSON object; half of an emoji in it does no harm. `halves` stay as they are: the next event has the other."""
    try:
        value = decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        text = data.decode("utf-8", "replace")
        value = parse_object(text)
        if halves and value is not None:
            value = json.loads(text)
    if not isinstance(value, dict):
        raise MalformedEvent(f"no JSON object: {data[:80]!r}")
    return cast(JSONObject, value)

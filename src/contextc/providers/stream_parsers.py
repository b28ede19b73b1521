"""Parsers for streams of JSON from chunks of any size: server-sent events and newline-delimited JSON. No I/O.

OpenAI, Anthropic and Google stream server-sent events. Only `data` is parsed, because it repeats the event name. The
one exception is the event `error` of some servers. `[DONE]`, which ends an OpenAI stream, is not an event: it sets
`done`.

Ollama streams newline-delimited JSON, one event per line. A line with `done: true` is the last one of its reply.
"""

import json
from typing import cast

from msgspec import DecodeError

from contextc._json import JSONObject, decode, parse_object


class MalformedEvent(ValueError):
    """The received bytes are not an event: the stream was truncated, or has another format."""


class SSEParser:
    """Incremental parser that returns each event as soon as it is complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        if b"\n" not in chunk and b"\r" not in chunk and not self._held_return():
            self._pieces.append(chunk)
            return []
        lines = b"".join([*self._pieces, chunk]).splitlines(keepends=True)
        # A carriage return may be the first half of a line ending. The next byte decides.
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """Return the remaining events at the end of the stream. Some servers omit the last empty line."""
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
        event = parse_json_object(data, keep_surrogates=True)
        return {"error": event} if name == b"error" and "error" not in event and "type" not in event else event


def parse_json_object(data: bytes, *, keep_surrogates: bool = False) -> JSONObject:
    """Parse one JSON object that may contain lone surrogates.

    With `keep_surrogates`, lone surrogates are kept, because the next event may contain the other half of the
    character.
    """
    try:
        value = decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        text = data.decode("utf-8", "replace")
        value = parse_object(text)
        if keep_surrogates and value is not None:
            value = json.loads(text)
    if not isinstance(value, dict):
        raise MalformedEvent(f"expected a JSON object, got {data[:80]!r}")
    return cast(JSONObject, value)


class NDJSONParser:
    """Incremental parser that returns each event as soon as its line is complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        lines, self._pieces = b"".join([*self._pieces, whole]), [rest] if rest else []
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """Return the remaining events at the end of the stream. Some servers omit the last newline."""
        lines, self._pieces = b"".join(self._pieces), []
        return self._read(lines)

    def _read(self, lines: bytes) -> list[JSONObject]:
        found: list[JSONObject] = []
        for line in lines.split(b"\n"):
            if self.done or not line.strip():
                continue
            event = parse_json_object(line, keep_surrogates=True)
            self.done = event.get("done") is True
            found.append(event)
        return found

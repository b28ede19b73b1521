"""Parser for newline-delimited JSON (one event per line) from chunks of any size. No I/O.

Ollama streams in this form. A line with `done: true` is the last one of its reply.
"""

from contextc._json import JSONObject
from contextc.providers.sse import parse_json_object


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
            event = parse_json_object(line, halves=True)
            self.done = event.get("done") is True
            found.append(event)
        return found

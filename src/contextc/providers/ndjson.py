"""Lines of JSON, one event a line, from bytes that come in any pieces. No I/O.

Ollama streams this way. A line that says `done` is the last of its reply.
"""

from contextc._json import JSONObject
from contextc.providers.sse import parsed


class Lines:
    """Takes bytes as they come, and gives events as soon as their lines are complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """The events that are complete with these bytes."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        lines, self._pieces = b"".join([*self._pieces, whole]), [rest] if rest else []
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """What is left when nothing more comes; some servers leave out the last newline."""
        lines, self._pieces = b"".join(self._pieces), []
        return self._read(lines)

    def _read(self, lines: bytes) -> list[JSONObject]:
        found: list[JSONObject] = []
        for line in lines.split(b"\n"):
            if self.done or not line.strip():
                continue
            event = parsed(line, halves=True)
            self.done = event.get("done") is True
            found.append(event)
        return found

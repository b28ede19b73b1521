"""AWS's event streams as JSON, from bytes that come in any pieces: frames with headers, a payload and checksums.

botocore takes them apart. An event is given as boto3 gives it, under its own name (`{"messageStop": {…}}`), and an
exception as an error. `p` is padding, so that nobody can tell from its length what an event says.
"""

from contextc._json import JSONObject
from contextc.providers.bedrock.sdk import botocore
from contextc.providers.sse import MalformedEvent, parsed

PADDING = "p"


class EventFrames:
    """Takes bytes as they come, and gives events as soon as they are complete."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = botocore("eventstream").EventStreamBuffer()
        self._held = 0

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """The events that are complete with these bytes."""
        self._held += len(chunk)
        self._buffer.add_data(chunk)
        found: list[JSONObject] = []
        try:
            for message in self._buffer:
                self._held -= message.prelude.total_length
                found.append(event_of(message.headers, message.payload))
        except botocore("eventstream").ParserError as error:
            raise MalformedEvent(f"no event: {error}") from error
        return found

    def end(self) -> list[JSONObject]:
        """Nothing, unless the stream ended in the middle of an event."""
        if self._held:
            raise MalformedEvent("an event that was cut off")
        return []


def event_of(headers: dict[str, str], payload: bytes) -> JSONObject:
    said = parsed(payload, halves=True) if payload else {}
    match headers.get(":message-type"):
        case "exception":
            name = headers.get(":exception-type", "")
            return {"error": {"message": "", **said, "type": name[:1].upper() + name[1:]}}
        case "error":
            return {"error": {"type": headers.get(":error-code", ""), "message": headers.get(":error-message", "")}}
        case _:
            told = {name: value for name, value in said.items() if name != PADDING}
            return {headers.get(":event-type", "unknown"): told}

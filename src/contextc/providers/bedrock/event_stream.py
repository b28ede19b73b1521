"""Parser for AWS event streams (frames with headers, payload and checksums) from chunks of any size.

botocore parses the frames. An event has the form that boto3 returns, under its own name (`{"messageStop": {…}}`). An
exception becomes an error. `p` is padding that hides the length of an event, and is dropped.
botocore, which has no types, is imported on first use.
"""

from importlib import import_module
from typing import Any

from contextc._json import JSONObject
from contextc.providers.stream_parsers import MalformedEvent, parse_json_object

PADDING = "p"


class EventStreamParser:
    """Incremental parser that returns each event as soon as it is complete."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = import_botocore("eventstream").EventStreamBuffer()
        self._held = 0

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        self._held += len(chunk)
        self._buffer.add_data(chunk)
        found: list[JSONObject] = []
        try:
            for message in self._buffer:
                self._held -= message.prelude.total_length
                found.append(decode_event(message.headers, message.payload))
        except import_botocore("eventstream").ParserError as error:
            raise MalformedEvent(f"malformed event frame: {error}") from error
        return found

    def end(self) -> list[JSONObject]:
        """Return no events. Raise MalformedEvent if the stream ended inside an event."""
        if self._held:
            raise MalformedEvent("truncated event")
        return []


def decode_event(headers: dict[str, str], payload: bytes) -> JSONObject:
    fields = parse_json_object(payload, keep_surrogates=True) if payload else {}
    match headers.get(":message-type"):
        case "exception":
            name = headers.get(":exception-type", "")
            return {"error": {"message": "", **fields, "type": name[:1].upper() + name[1:]}}
        case "error":
            return {"error": {"type": headers.get(":error-code", ""), "message": headers.get(":error-message", "")}}
        case _:
            content = {name: value for name, value in fields.items() if name != PADDING}
            return {headers.get(":event-type", "unknown"): content}


def import_botocore(module: str) -> Any:
    return import_module(f"botocore.{module}")

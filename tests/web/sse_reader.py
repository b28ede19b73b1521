"""A reader of server-sent events, as strict as a browser, frame by frame."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple, cast

import httpx

from contextc._json import JSONObject

PATIENCE = 120.0


class Frame(NamedTuple):
    """One event. `id` is None where it has none; `data` is its text."""

    data: str
    id: str | None = None
    event: str = ""

    @property
    def json(self) -> JSONObject:
        return cast(JSONObject, json.loads(self.data))


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    """The events of a stream; comments are passed over, and anything that is not a field is refused.

    A stream that brings comments and nothing else for too long is given up.
    """
    data, id, event = "", None, ""
    since = monotonic()
    for line in lines:
        field, colon, value = line.partition(": ")
        assert monotonic() - since < PATIENCE, "no event came"
        if not line:
            if data:
                yield Frame(data, id, event)
                since = monotonic()
            data, id, event = "", None, ""
        elif field == "data":
            data = f"{data}\n{value}" if data else value
        elif field == "id":
            id = value
        elif field == "event":
            event = value
        else:
            assert line.startswith(":"), f"{line!r} with {colon!r} is no line of an event"


@contextmanager
def listening(url: str, **options: Any) -> Generator[Iterator[Frame]]:
    """A stream that is open for the block. Options are httpx's own."""
    with httpx.stream("GET", url, timeout=PATIENCE, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield frames(response.iter_lines())


def until(stream: Iterator[Frame], last: Callable[[Frame], bool]) -> list[Frame]:
    """What comes, up to and with the frame that is waited for."""
    found: list[Frame] = []
    for frame in stream:
        found.append(frame)
        if last(frame):
            return found
    raise AssertionError(f"The stream ended before: {found[-3:]}")


def read_events(url: str, name: str, *, after: int = 0, last: str = "turn-finish") -> list[JSONObject]:
    """Our own events, up to the first of a kind."""
    with listening(f"{url}/api/conversations/{name}/events?vocabulary=contextc&after={after}") as stream:
        return [frame.json for frame in until(stream, lambda frame: frame.event == last)]


def kinds(events: list[JSONObject]) -> list[str]:
    return [cast(str, event["type"]) for event in events]

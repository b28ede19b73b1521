"""A provider that answers from recordings, for tests, demonstrations and pages; and what makes recordings.

A recording is a line of JSON: `{"reply": …}`, a whole reply; `{"events": […]}`, a stream; `{"error": {"status": 529,
"body": …}}`, a refusal, also after events. One that has a `request`, the SHA-256 of a body, answers that body alone;
the others answer in their order. Neither headers nor keys are ever in a recording.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import cast

from contextc._json import JSON, JSONObject, decode, encode, well_formed_json
from contextc.errors import InvalidReply, InvalidSetting, ProviderFailed
from contextc.formats.reading import is_error
from contextc.providers.endpoint import Call, Endpoint
from contextc.providers.failures import Table, failure, masked
from contextc.providers.named import Provider, client_of
from contextc.providers.sse import MalformedEvent, parsed

KINDS = ("reply", "events", "error")


def open(provider: Provider, **options: object) -> "Replay":
    """The line of a provider whose `client` is `replay`; its `url` may be the path of the recordings."""
    recordings = options.get("recordings") or provider.url.removeprefix("file://")
    if not recordings:
        raise InvalidSetting(
            'There is nothing to replay. Give recordings: endpoint(provider, recordings="answers.jsonl").'
        )
    seconds = options.get("seconds") or 0.0
    return Replay(cast(str | Path | Iterable[JSONObject], recordings), seconds=float(cast(float, seconds)))


class Replay(Endpoint):
    """Answers from a file, or from a list, of recordings. `seconds` is the time between two events."""

    def __init__(self, recordings: str | Path | Iterable[JSONObject], *, seconds: float = 0.0) -> None:
        given = read(recordings) if isinstance(recordings, str | Path) else list(recordings)
        for number, recording in enumerate(given, 1):
            _check(number, recording)
        self.seconds = seconds
        self.calls: list[Call] = []
        """The calls that were made, as they came."""
        numbered = list(enumerate(given, 1))
        self._ordered = [(number, each) for number, each in numbered if "request" not in each]
        self._named = [(number, each) for number, each in numbered if "request" in each]
        self._last: tuple[bytes, int, ProviderFailed | None] = b"", 0, None

    async def stream(self, call: Call) -> AsyncGenerator[JSONObject, None]:
        self.calls.append(call)
        number, recording = self._taken(call)
        self._last = call.body, number, None
        try:
            async with aclosing(self._played(call, number, recording)) as events:
                async for event in events:
                    yield event
        except ProviderFailed as error:
            self._last = call.body, number, error
            raise

    async def _played(self, call: Call, number: int, recording: JSONObject) -> AsyncGenerator[JSONObject, None]:
        table = _table(call.provider)
        whole: list[JSONObject] = [recording["reply"]] if "reply" in recording else []
        if whole and not is_error(whole[0]):
            try:
                call.provider.formatter.decode_reply(whole[0])
            except InvalidReply as error:
                raise ProviderFailed(
                    call.provider.name, "invalid", f"recording {number}: {error}", way_out="Record it anew."
                ) from None
        for event in cast(list[JSONObject], recording.get("events") or whole):
            await asyncio.sleep(self.seconds)
            yield event
            if is_error(event):
                raise failure(call.provider.name, table, event)
        if (error := cast(JSONObject | None, recording.get("error"))) is not None:
            headers: dict[str, str] = {"retry-after": str(error["retry_after"])} if error.get("retry_after") else {}
            raise failure(call.provider.name, table, error.get("body"), status=error.get("status"), headers=headers)

    def _taken(self, call: Call) -> tuple[int, JSONObject]:
        name = request_name(call.body)
        found = next(((number, each) for number, each in self._named if each["request"] == name), None)
        if found is not None:
            self._named.remove(found)
            return found
        if self._ordered:
            return self._ordered.pop(0)
        body, number, error = self._last
        if body == call.body and error is not None:  # the same request again, and it fails as it did
            raise error
        answered = f", which recording {number} has answered before" if body == call.body and number else ""
        raise ProviderFailed(
            call.provider.name,
            "invalid",
            f"no recording is left for the request {name[:12]}{answered}",
            way_out="Record it with `Recorder`, or give more recordings.",
        )


class Recorder(Endpoint):
    """Passes everything on, and writes down what came: one line a call, also of one that failed or was given up."""

    def __init__(self, endpoint: Endpoint, path: str | Path, *, by_request: bool = False) -> None:
        self.endpoint, self.path, self.by_request = endpoint, Path(path), by_request

    async def stream(self, call: Call) -> AsyncGenerator[JSONObject, None]:
        events: list[JSONObject] = []
        refused: JSONObject = {}
        inner = self.endpoint.stream(call)
        try:
            async for event in inner:
                events.append(_clean(event))
                yield event
        except ProviderFailed as error:
            if not (events and is_error(events[-1])):
                refused = {"error": _told(error)}
            raise
        finally:
            await inner.aclose()
            self._write(call, events, refused)

    def _write(self, call: Call, events: list[JSONObject], refused: JSONObject) -> None:
        line: JSONObject = {"request": request_name(call.body)} if self.by_request else {}
        if not call.stream and len(events) == 1 and not refused:
            line["reply"] = events[0]
        elif events or not refused:
            line["events"] = events
        with self.path.open("ab") as file:
            file.write(encode(well_formed_json(line | refused)) + b"\n")

    async def close(self) -> None:
        await self.endpoint.close()


def read(path: str | Path) -> list[JSONObject]:
    """The recordings in a file. What else it may hold is not told, because it may be anybody's."""
    found: list[JSONObject] = []
    for number, line in enumerate(_bytes(Path(path)).splitlines(), 1):
        if line.strip():
            try:
                found.append(parsed(line))
            except MalformedEvent:
                raise InvalidSetting(f"{path}: line {number} is no JSON object.") from None
    return found


def _bytes(path: Path) -> bytes:
    try:
        if path.is_file() or not path.exists():
            return path.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"The recordings cannot be read: {error}.") from None
    raise InvalidSetting(f"The recordings cannot be read: {path} is no file.")  # a pipe or a device may never end


def _check(number: int, recording: object) -> None:
    """Refuse what is no recording, and say which one it is."""

    def wrong(what: str) -> InvalidSetting:
        return InvalidSetting(f"recording {number} {what}.")

    if not isinstance(recording, dict):
        raise wrong(f"is a {type(recording).__name__}, and no JSON object")
    found = cast(JSONObject, recording)
    if not any(kind in found for kind in KINDS):
        raise wrong("has no `reply`, `events` or `error`")
    if "reply" in found and not (isinstance(found["reply"], dict) and found["reply"]):
        raise wrong("has a `reply` that is no JSON object, or an empty one")
    events: JSON = found.get("events", [])
    if not isinstance(events, list) or not all(isinstance(each, dict) for each in cast(list[JSON], events)):
        raise wrong("has `events` that are no list of JSON objects")
    error: JSON = found.get("error")
    if "error" in found and not (isinstance(error, dict) and ("status" in error or "body" in error)):
        raise wrong("has an `error` without `status` and `body`")


def request_name(body: bytes) -> str:
    """By which a recording knows the request it answers."""
    return sha256(body).hexdigest()


def _table(provider: Provider) -> Table:
    client = client_of(provider.format)
    return import_module(f"contextc.providers.{client}").TABLE if client else Table()


def _clean(event: JSONObject) -> JSONObject:
    """The event; where it is an error, without a key that the provider may have repeated in it."""
    return cast(JSONObject, decode(masked(encode(well_formed_json(event)).decode()))) if is_error(event) else event


def _told(error: ProviderFailed) -> JSONObject:
    body: JSONObject = {"error": {"code": error.code, "message": error.said}}
    told: JSONObject = {"status": error.status, "body": body, "retry_after": error.retry_after}
    return {name: value for name, value in told.items() if value is not None}

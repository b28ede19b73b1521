"""Client that replays recorded replies, for tests and demonstrations, and a recorder that creates recordings.

A recording is one line of JSON:
- `{"reply": …}`: a complete reply
- `{"events": […]}`: a stream
- `{"error": {"status": 529, "body": …}}`: an error, also after events

A recording with a `request`, the SHA-256 of a body, answers only that body. The others are used in their order.
Recordings never contain headers or keys.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import cast

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject, encode, fix_surrogates, fix_surrogates_in_json, map_strings
from contextc.errors import InvalidReply, InvalidSetting, ProviderFailed
from contextc.formats.streams import is_error
from contextc.providers.client import Endpoint, ProviderCall
from contextc.providers.error_mapping import event_failure, find_error_table, map_error
from contextc.providers.http_client import MalformedEvent, parse_json_object
from contextc.providers.registry import Provider

RECORDING_KEYS = ("reply", "events", "error")


def open(provider: Provider, **options: object) -> "Replay":
    """Open the client of a provider whose `client` is `replay`. Its `url` may be the path of the recordings."""
    recordings = options.get("recordings") or provider.url.removeprefix("file://")
    if not recordings:
        raise InvalidSetting(
            "recordings: must be a path or a list of recordings",
            got=recordings,
            fix='Pass them: endpoint(provider, recordings="answers.jsonl").',
        )
    seconds = options.get("seconds") or 0.0
    return Replay(cast(str | Path | Iterable[JSONObject], recordings), seconds=float(cast(float, seconds)))


class Replay(Endpoint):
    """Client that answers from a file or a list of recordings. `seconds` is the delay before each event."""

    def __init__(self, recordings: str | Path | Iterable[JSONObject], *, seconds: float = 0.0) -> None:
        given = read_recordings(recordings) if isinstance(recordings, str | Path) else list(recordings)
        for number, recording in enumerate(given, 1):
            _check(number, recording)
        self.seconds = seconds
        self.calls: list[ProviderCall] = []
        """The calls, in their order."""
        numbered = list(enumerate(given, 1))
        self._ordered = [(number, each) for number, each in numbered if "request" not in each]
        self._named = [(number, each) for number, each in numbered if "request" in each]
        self._last: tuple[bytes, int, ProviderFailed | None] = b"", 0, None

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
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

    async def _played(self, call: ProviderCall, number: int, recording: JSONObject) -> AsyncGenerator[JSONObject, None]:
        whole: list[JSONObject] = [recording["reply"]] if "reply" in recording else []
        if whole and not is_error(whole[0]):
            try:
                call.provider.formatter.decode_reply(whole[0])
            except InvalidReply as error:
                raise ProviderFailed(
                    call.provider.name, "invalid", f"recording {number}: {error}", way_out="Record it again."
                ) from None
        for event in cast(list[JSONObject], recording.get("events") or whole):
            await asyncio.sleep(self.seconds)
            yield event
            if is_error(event):
                raise event_failure(call.provider, event)
        if (error := cast(JSONObject | None, recording.get("error"))) is not None:
            headers: dict[str, str] = {"retry-after": str(error["retry_after"])} if error.get("retry_after") else {}
            table, body = find_error_table(call.provider), error.get("body")
            raise map_error(call.provider.name, table, body, status=error.get("status"), headers=headers)

    def _taken(self, call: ProviderCall) -> tuple[int, JSONObject]:
        name = request_hash(call.body)
        found = next(((number, each) for number, each in self._named if each["request"] == name), None)
        if found is not None:
            self._named.remove(found)
            return found
        if self._ordered:
            return self._ordered.pop(0)
        body, number, error = self._last
        if body == call.body and error is not None:  # a retry of the last request fails in the same way
            raise error
        answered = f" (recording {number} already answered it)" if body == call.body and number else ""
        raise ProviderFailed(
            call.provider.name,
            "invalid",
            f"no recording left for request {name[:12]}{answered}",
            way_out="Record it with `Recorder`, or add recordings.",
        )


class Recorder(Endpoint):
    """Client that forwards calls and records the replies: one line per call, also for failed or cancelled calls."""

    def __init__(self, endpoint: Endpoint, path: str | Path, *, by_request: bool = False) -> None:
        self.endpoint, self.path, self.by_request = endpoint, Path(path), by_request

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        events: list[JSONObject] = []
        refused: JSONObject = {}
        inner = self.endpoint.stream(call)
        try:
            async for event in inner:
                events.append(_clean(event))
                yield event
        except ProviderFailed as error:
            if not (events and is_error(events[-1])):
                body: JSONObject = {"error": {"code": error.code, "message": error.said}}
                fields: JSONObject = {"status": error.status, "body": body, "retry_after": error.retry_after}
                refused = {"error": {name: value for name, value in fields.items() if value is not None}}
            raise
        finally:
            await inner.aclose()
            self._write(call, events, refused)

    def _write(self, call: ProviderCall, events: list[JSONObject], refused: JSONObject) -> None:
        line: JSONObject = {"request": request_hash(call.body)} if self.by_request else {}
        if not call.stream and len(events) == 1 and not refused:
            line["reply"] = events[0]
        elif events or not refused:
            line["events"] = events
        with self.path.open("ab") as file:
            file.write(encode(fix_surrogates_in_json(line | refused)) + b"\n")

    async def close(self) -> None:
        await self.endpoint.close()


def read_recordings(path: str | Path) -> list[JSONObject]:
    """Return the recordings in a file. Errors do not quote its content, which may be private."""
    found: list[JSONObject] = []
    for number, line in enumerate(_bytes(Path(path)).splitlines(), 1):
        if line.strip():
            try:
                found.append(parse_json_object(line))
            except MalformedEvent:
                raise InvalidSetting(f"{path}: line {number}: expected a JSON object.") from None
    return found


def _bytes(path: Path) -> bytes:
    try:
        if path.is_file() or not path.exists():
            return path.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"recordings: cannot read the file: {error}.") from None
    raise InvalidSetting(f"recordings: {path} must be a regular file.")  # a pipe or a device may never end


def _check(number: int, recording: object) -> None:
    """Raise InvalidSetting if a recording is malformed."""

    def wrong(what: str) -> InvalidSetting:
        return InvalidSetting(f"recording {number}: {what}.")

    if not isinstance(recording, dict):
        raise wrong(f"expected a JSON object, got {type(recording).__name__}")
    found = cast(JSONObject, recording)
    if not any(kind in found for kind in RECORDING_KEYS):
        raise wrong("must have `reply`, `events` or `error`")
    if "reply" in found and not (isinstance(found["reply"], dict) and found["reply"]):
        raise wrong("`reply` must be a non-empty JSON object")
    events: JSON = found.get("events", [])
    if not isinstance(events, list) or not all(isinstance(each, dict) for each in cast(list[JSON], events)):
        raise wrong("`events` must be a list of JSON objects")
    error: JSON = found.get("error")
    if "error" in found and not (isinstance(error, dict) and ("status" in error or "body" in error)):
        raise wrong("`error` must have `status` or `body`")


def request_hash(body: bytes) -> str:
    """Return the SHA-256 of a body, which identifies a request in a recording."""
    return sha256(body).hexdigest()


def _clean(event: JSONObject) -> JSONObject:
    """Return the event. In an error event, keys that the provider may have repeated are masked."""
    if not is_error(event):
        return event
    return cast(JSONObject, map_strings(event, lambda text: mask_secrets(fix_surrogates(text))))

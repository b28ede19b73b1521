"""HAR recordings of a browser or a proxy. Model calls are recorded, other requests are ignored."""

import base64
import binascii
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import LoggedExchange, StoredRequest, first_chunk_time, parse_exchange
from contextc.interchange.spans import find_path
from contextc.observation.exchange_redaction import find_credentials, mask_value

OWN_FIELD = "_contextc"
ABOUT = "HAR recordings of a browser or a proxy"


def matches(sample: FileSample) -> bool:
    return sample.shape == "object" and bool(_entries(sample.objects[0]))


def read_log(given: ImportInput) -> Iterator[tuple[str, LoggedExchange | None]]:
    for file in given.files:
        for placed in file.values():
            for number, entry in enumerate(_entries(placed.value), 1):
                if (found := _exchange(entry)) is not None:
                    yield f"{file.name}, entry {number}", found


def read_exchanges(value: JSON) -> list[LoggedExchange]:
    """Return the model calls in a recording, each with its address and whether it failed."""
    return [found for entry in _entries(value) if (found := _exchange(entry)) is not None]


def _exchange(entry: JSONObject) -> LoggedExchange | None:
    found = parse_exchange(_as_log_entry(entry))
    if found is None:
        return None
    request, response = as_object(entry.get("request")), as_object(entry.get("response"))
    took: JSON = entry.get("time")
    status: JSON = response.get("status")
    stored_as = read_stored_request(entry.get(OWN_FIELD))
    if stored_as is not None:
        found = with_origin(found, stored_as)
    ended = found.time + int(took) if isinstance(took, int | float) and took > 0 and found.time else 0
    found = replace(
        found,
        ended=ended,
        first_chunk=first_chunk_time(ended, find_path(entry, "timings.receive")),
        status=status if isinstance(status, int) else 0,
        headers=read_headers(request),
    )
    data = _read_body(entry)
    if data is None:
        return replace(found, reply=None, note="a reply with invalid base64")
    if not data and not found.failed:
        return replace(found, reply=None, note="")
    if stored_as is not None:  # contextc wrote this reply itself, from messages
        return found
    credentials = find_credentials(found.headers.items(), urlsplit(found.address).query)
    return replace(found, raw=cast(bytes, mask_value(data, credentials)))


def read_headers(request: JSONObject) -> dict[str, str]:
    """Return the headers of a request. They are read for the ids of the client, and not stored."""
    pairs = [(each.get("name"), each.get("value")) for each in as_objects(request.get("headers"))]
    return {name: value for name, value in pairs if isinstance(name, str) and isinstance(value, str)}


def with_origin(exchange: LoggedExchange, origin: StoredRequest) -> LoggedExchange:
    """Return an exchange that was exported from a store, with the facts that are known there."""
    return replace(
        exchange,
        stored_as=origin,
        format=origin.format,
        provider=origin.provider,
        model=origin.model,
        inexact=origin.inexact,
    )


def read_stored_request(value: JSON) -> StoredRequest | None:
    """Return the request in a store that an entry was exported from."""
    try:
        return msgspec.convert(value, StoredRequest) if isinstance(value, dict) else None
    except msgspec.ValidationError:
        return None


def _entries(value: JSON) -> list[JSONObject]:
    return as_objects(as_object(as_object(value).get("log")).get("entries"))


def _as_log_entry(entry: JSONObject) -> JSONObject:
    """Return an entry in the form of a request log."""
    request, response = as_object(entry.get("request")), as_object(entry.get("response"))
    return {
        "timestamp": entry.get("startedDateTime"),
        "request": {"url": request.get("url"), "body": as_object(request.get("postData")).get("text")},
        "response": {"status": response.get("status"), "body": (_read_body(entry) or b"").decode("utf-8", "replace")},
    }


def _read_body(entry: JSONObject) -> bytes | None:
    """Return the body of the reply; None if its base64 is invalid."""
    content = as_object(as_object(entry.get("response")).get("content"))
    text = str(content.get("text") or "")
    if content.get("encoding") != "base64":
        return text.encode("utf-8", "replace")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None

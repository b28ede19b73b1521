"""HAR recordings of a browser or a proxy. Model calls become conversations, other requests are ignored."""

import base64
import binascii
from collections.abc import Iterator

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.interchange import log_import
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_entries import Exchange, parse_exchange

ABOUT = "HAR recordings of a browser or a proxy"


def matches(sample: FileSample) -> bool:
    return sample.shape == "object" and bool(_entries(sample.objects[0]))


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    return log_import.read_conversations(_logged(given), format=given.format)


def _logged(given: ImportInput) -> Iterator[tuple[str, Exchange | None]]:
    for file in given.files:
        for placed in file.values():
            for number, entry in enumerate(_entries(placed.value), 1):
                if (found := _exchange(entry)) is not None:
                    yield f"{file.name}, entry {number}", found


def read_exchanges(value: JSON) -> list[Exchange]:
    """Return the model calls in a recording, each with its address and whether it failed."""
    return [found for entry in _entries(value) if (found := _exchange(entry)) is not None]


def _exchange(entry: JSONObject) -> Exchange | None:
    found = parse_exchange(_as_log_entry(entry))
    is_broken = found is not None and _text(_content(entry)) is None
    return replace(found, reply=None, note="a reply with invalid base64") if found and is_broken else found


def _entries(value: JSON) -> list[JSONObject]:
    return as_objects(as_object(as_object(value).get("log")).get("entries"))


def _as_log_entry(entry: JSONObject) -> JSONObject:
    """Return an entry in the form of a request log."""
    request, response = as_object(entry.get("request")), as_object(entry.get("response"))
    return {
        "timestamp": entry.get("startedDateTime"),
        "request": {"url": request.get("url"), "body": as_object(request.get("postData")).get("text")},
        "response": {"status": response.get("status"), "body": _text(_content(entry))},
    }


def _content(entry: JSONObject) -> JSONObject:
    return as_object(as_object(entry.get("response")).get("content"))


def _text(content: JSONObject) -> str | None:
    """Return the body of the reply; None if its base64 is invalid."""
    text = str(content.get("text") or "")
    if content.get("encoding") != "base64":
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None

"""Calls and results of requests in Google's format, where ids may be missing. It uses nothing of the decoder."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

# Any: the JSON of a request.


def list_gemini_calls(contents: Sequence[dict[str, Any]]) -> Iterator[tuple[Literal["call", "result"], str]]:
    """Return the calls and results of a request. Each call is named by its place, and its result has the same name.

    A result belongs to the first open call of its id, or without one of its name, in the contents of the model before.
    """
    waiting: dict[str, list[str]] = {}
    before = ""
    for at, content in enumerate(contents):
        if content.get("role") == "model" != before:
            waiting = {}
        before = content.get("role", "user")
        for number, part in enumerate(content.get("parts") or ()):
            place = f"{at}.{number}"
            if call := part.get("functionCall"):
                waiting.setdefault(call.get("id") or call["name"], []).append(place)
                yield "call", place
            elif result := part.get("functionResponse"):
                found = waiting.get(result.get("id") or result["name"])
                yield "result", found.pop(0) if found else place

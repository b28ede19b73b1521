"""The provider's diagnosis of a cache miss in a reply, if the request asked for it.

Anthropic answers in `diagnostics.cache_miss_reason` of a message, OpenAI in `prompt_cache_diagnostics` of a response.
In a stream, both are part of an event that contains the message or response.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.observation.reply_decoding import LINE_END, parse_events

FIELDS = re.compile(r'"(?:prompt_cache_)?diagnostics"\s*:\s*\{')
CONTAINERS = ("message", "response", "delta")
"""Fields of an event that contain a message or response."""
REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
MISS = "cache_miss"


class CacheDiagnosis(NamedTuple):
    """The provider's reason for a cache miss in its own word, and the tokens that were not read.

    `reason` can also be `cache_hit`, or the reason why the provider made no diagnosis. It is "" if the reply has none.
    """

    reason: str = ""
    missed: int = 0


NO_DIAGNOSIS = CacheDiagnosis()


def read_cache_diagnosis(reply: JSON) -> CacheDiagnosis:
    """Return the diagnosis in a reply: whole, as a list of events, or as the text of a stream."""
    found = NO_DIAGNOSIS
    for each in _iter_objects(reply):
        found = _read_anthropic(each) or _read_openai(each) or found
    return found


def _iter_objects(reply: JSON) -> Iterator[JSONObject]:
    """Return all objects that can be a message or a response."""
    if isinstance(reply, dict):
        yield cast(JSONObject, reply)
        return
    if isinstance(reply, str):
        events = _events_of_text([reply])
    else:
        given = cast(list[JSON], reply) if isinstance(reply, list) else []
        events = as_objects(given) or _events_of_text([each for each in given if isinstance(each, str)])
    for event in events:
        yield event
        yield from [value for name in CONTAINERS if (value := as_object(event.get(name)))]


def _events_of_text(texts: Iterable[str]) -> list[JSONObject]:
    """Return the few events of a stream that can contain a diagnosis. Others are not decoded."""
    lines = [
        line for text in texts if FIELDS.search(text) for line in LINE_END.split(text) if FIELDS.search(line)
    ]  # fmt: skip
    return parse_events("\n\n".join(lines)).events if lines else []


def _read_anthropic(reply: JSONObject) -> CacheDiagnosis | None:
    reason = as_object(as_object(reply.get("diagnostics")).get("cache_miss_reason"))
    return _make(reason.get("type"), reason.get("cache_missed_input_tokens"))


def _read_openai(reply: JSONObject) -> CacheDiagnosis | None:
    found = as_object(reply.get("prompt_cache_diagnostics"))
    kind: JSON = found.get("type")
    return _make(found.get("reason") if kind == MISS else kind, found.get("cache_missed_tokens"))


def _make(reason: JSON, missed: JSON) -> CacheDiagnosis | None:
    """Return a diagnosis; None if the reason does not look like a code, such as `tools_changed`."""
    if not isinstance(reason, str) or not REASON.fullmatch(reason):
        return None
    return CacheDiagnosis(reason, max(0, missed) if isinstance(missed, int) else 0)

"""What a source finds: conversations, each with its messages, on one line or on several that share their beginning."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.messages import Message

SECONDS = 100_000_000_000  # a number below is seconds since 1970, above milliseconds
LONGEST_NAME = 80
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NEWER_UUID = "7"  # begins with the time, so that the first eight characters say little


class Found(Struct, frozen=True, kw_only=True):
    """A conversation as its source has it. `id` is the source's own name for it, `title` what people call it there.

    Lines that have messages in common have the same objects; the last line is the one that goes on. `left_out` is what
    could not be taken, and why.
    """

    id: str
    title: str = ""
    lines: Sequence[Sequence[Message]]
    left_out: Sequence[str] = ()


def object_in(value: JSON) -> JSONObject:
    """The object that stands here; an empty one where there is none."""
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def objects_in(value: JSON) -> list[JSONObject]:
    """The objects in the list that stands here."""
    held = cast(list[JSON], value) if isinstance(value, list) else []
    return [cast(JSONObject, each) for each in held if isinstance(each, dict)]


def short(session: str) -> str:
    """As much of an id as tells it from others, for people."""
    return session[:13] if session[14:15] == NEWER_UUID else session[:8]


def as_name(text: str) -> str:
    """An id as a part of a conversation's name."""
    if UUID.fullmatch(text):
        return short(text)
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return "-".join(plain.split())[:LONGEST_NAME]


def moment(value: JSON) -> int:
    """A time in milliseconds since 1970, from a number or a date; 0 where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = value if value >= SECONDS else value * 1000
        return int(found) if 0 < found < 1 << 53 else 0
    if not isinstance(value, str) or not value:
        return 0
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return 0
    found = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000
    return int(found) if found > 0 else 0

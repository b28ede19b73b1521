"""What a source finds: conversations, each with its messages, on one line or on several that share their beginning."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError
from contextc.messages import Message

SECONDS = 100_000_000_000  # a number below is seconds since 1970, above milliseconds
LONGEST_NAME = 80
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NAMELESS = "session"
IMPORTED = "imported"
"""The name in the `meta` of a conversation's first message under which it says where it came from."""
ODD = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)
"""How a reader stumbles over what it does not expect."""
NEWER_UUID = "7"  # begins with the time, so that the first eight characters say little


class Found(Struct, frozen=True, kw_only=True):
    """A conversation as its source has it. `id` is the source's own name for it, unless it `is_made_up`: then it was
    made from what was said, or is the name of a file, and others may have the same. `title` is what people call it.

    Lines that have messages in common have the same objects; the last line is the one that goes on. `left_out` is what
    could not be taken, and why; `error`, why nothing of it can be.
    """

    id: str
    title: str = ""
    lines: Sequence[Sequence[Message]]
    left_out: Sequence[str] = ()
    is_made_up: bool = False
    error: str = ""


class Origin(Struct, frozen=True):
    """Where a conversation came from: a source, and its id there. `is_name` says that no other one has that id."""

    source: str
    id: str
    is_name: bool = True

    @property
    def short(self) -> str:
        return as_name(self.id) or NAMELESS


def origin_of(source: str, found: Found) -> Origin:
    return Origin(source, found.id, not found.is_made_up and bool(found.id))


def origin_in(message: Message) -> Origin | None:
    """What the first message of an imported conversation says of where it came from."""
    held: object = (message.meta or {}).get(IMPORTED)
    about = object_in(cast(JSON, held))
    source, id = about.get("from"), about.get("id")
    if not isinstance(source, str) or not isinstance(id, str):
        return None
    return Origin(source, id, not about.get("made_up"))


def noted(origin: Origin, title: str) -> JSONObject:
    """The same, as `meta` has it."""
    more: JSONObject = {**({"title": title} if title else {}), **({} if origin.is_name else {"made_up": True})}
    return {IMPORTED: {"from": origin.source, "id": origin.id, **more}}


def attempt(id: str, make: Callable[[], Found]) -> Found:
    """What a source finds; where it stumbles over a conversation that is not as its program writes them, that."""
    try:
        return make()
    except ContextcError as error:
        return Found(id=id, lines=(), error=str(error))
    except ODD as error:
        why = f"{type(error).__name__}: {error}"
        return Found(
            id=id,
            lines=(),
            error=f"The conversation does not have the structure that its program writes: {why.rstrip('.')}.",
        )


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

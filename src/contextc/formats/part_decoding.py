"""Functions that the decoders of several formats use."""

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import extra_of, own_extra
from contextc.formats.message_groups import APART_KEY
from contextc.messages import AnyPart, Media, Message, Text, ToolResult
from contextc.tools.spec import Tool

UNKNOWN_TOOL = "unknown"
Decoded = TypeVar("Decoded", bound=AnyPart | Message | Tool)


def generated_id(number: int) -> str:
    """Return the generated id for a call that has none."""
    return f"call_{number}"


def with_extra(decoded: Decoded, wire: JSONObject, ours: JSONObject, provider: str) -> Decoded:
    """Return a part, message or tool with the fields of `wire` that our encoding of it would not reproduce."""
    extra = extra_of(wire, ours, provider)
    return replace(decoded, extra=extra) if extra else decoded


def mark_apart(message: Message, provider: str, apart: bool = True) -> Message:
    """Mark whether a message keeps its position, although it is next to one of the same role, or first."""
    return replace(message, extra={provider: {**own_extra(message.extra, provider), APART_KEY: apart}})


def other_fields(body: JSONObject, *decoded: str) -> JSONObject:
    """Return the settings of a request: all fields but those decoded. An empty list is kept, to be sent again."""
    return {name: value for name, value in body.items() if name not in decoded or value == []}


def split_at_results(parts: Iterable[AnyPart]) -> list[list[AnyPart]]:
    """Split the parts of a message where tool results begin and end."""
    groups: list[list[AnyPart]] = []
    for part in parts:
        if groups and isinstance(part, ToolResult) == isinstance(groups[-1][-1], ToolResult):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def result_content(content: JSON, parts: Callable[[JSON], Iterable[AnyPart]]) -> str | tuple[Text | Media, ...]:
    """Return the content of a result: its parts if all of them are text or media, else its text."""
    inner = tuple(parts(content)) if isinstance(content, list) else ()
    if inner and all(isinstance(part, Text | Media) for part in inner):
        return cast(tuple[Text | Media, ...], inner)
    return as_text(content)


def as_text(value: JSON) -> str:
    """Return a value as text: a string as it is, null as an empty text, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value).decode()

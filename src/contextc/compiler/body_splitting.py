"""Split the bytes of a request into its head and the elements of its conversation, and join them again to the byte.

The head is everything but the conversation, with a placeholder where the conversation was. Leading system messages are
part of it. A body that cannot be split so that joining gives the same bytes is stored whole.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import msgspec
from msgspec import Raw

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler.compiled import MESSAGES_PLACEHOLDER

PLACEHOLDER = encode(MESSAGES_PLACEHOLDER)
SYSTEM_ROLES = ("system", "developer")
WHITE = b" \t\n\r"
COMMON_GAPS = (b",", b", ")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
MARK_FIELDS = ("cache_control", "prompt_cache_breakpoint")
"""Fields that are cache breakpoints, in the formats of Anthropic and OpenAI."""
MARK_BLOCK = "cachePoint"
"""The block that is a cache breakpoint, in the format of Bedrock."""
MARK_NAMES = tuple([f'"{name}"'.encode() for name in (*MARK_FIELDS, MARK_BLOCK)])
_MARKS = (
    re.compile(rb',\s*"(?:cache_control|prompt_cache_breakpoint)"\s*:\s*(?:\{[^{}]*\}|null)'),
    re.compile(rb'"(?:cache_control|prompt_cache_breakpoint)"\s*:\s*(?:\{[^{}]*\}|null)\s*,\s*'),
    re.compile(rb',\s*\{\s*"cachePoint"\s*:\s*\{[^{}]*\}\s*\}'),
)
MARKED_FIELDS = ("content", "toolResult", "toolSpec", "output", "parts")
"""Fields whose values may have cache breakpoints inside."""
TEXT_TYPES = ("text", "input_text")


class BodyParts(NamedTuple):
    """The parts of a body. `gaps` are the separators of the elements: none if all are commas, one if all are equal."""

    head: bytes
    elements: list[bytes]
    gaps: tuple[str, ...] = ()


class Element(NamedTuple):
    """One element of a conversation: its bytes without cache breakpoints, and the breakpoints with their offsets."""

    base: bytes
    marks: tuple[tuple[int, str], ...] = ()


def split_body(body: bytes, key: str) -> BodyParts | None:
    """Return the parts of a body whose conversation is the field `key`; None if it cannot be split."""
    try:
        span = _find_field(body, key)
        if span is None:
            return None
        parts = _split_at(body, *span)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    return parts if join_body(parts.head, parts.elements, parts.gaps) == body else None


def join_body(head: bytes, elements: Sequence[bytes], gaps: Sequence[str] = ()) -> bytes:
    """Return the bytes of a request. This reverses `split_body`."""
    before, _, after = head.partition(PLACEHOLDER)
    if not elements:
        return before.removesuffix(b",") + after
    if len(gaps) <= 1:
        return before + (gaps[0].encode() if gaps else b",").join(elements) + after
    joined = b"".join(
        [part for pair in zip(elements, [*gaps, ""], strict=True) for part in (pair[0], pair[1].encode())]
    )
    return before + joined + after


def split_elements(chunk: bytes) -> list[bytes]:
    """Return the elements of a row, whose bytes are joined by commas."""
    return [bytes(raw) for raw in _decode_elements(b"[%b]" % chunk)]


def strip_marks(raw: bytes) -> Element:
    """Return an element without its cache breakpoints, which move with every request and are not content."""
    if not any(name in raw for name in MARK_NAMES):
        return Element(raw)
    found: list[tuple[int, int]] = []
    for pattern in _MARKS:
        for match in pattern.finditer(raw):
            if all(match.end() <= start or match.start() >= end for start, end in found):
                found.append(match.span())
    base, marks, at = bytearray(), list[tuple[int, str]](), 0
    for start, end in sorted(found):
        base += raw[at:start]
        marks.append((len(base), raw[start:end].decode("utf-8", "replace")))
        at = end
    base += raw[at:]
    stripped = bytes(base)
    if not marks or comparable_bytes(stripped) != comparable_bytes(raw) or insert_marks(stripped, marks) != raw:
        return Element(raw)
    return Element(stripped, tuple(marks))


def insert_marks(base: bytes, marks: Sequence[tuple[int, str]]) -> bytes:
    """Return an element with its cache breakpoints. This reverses `strip_marks`."""
    for offset, text in reversed(marks):
        base = base[:offset] + text.encode() + base[offset:]
    return base


def comparable_bytes(raw: bytes) -> bytes:
    """Return an element in the form in which prefixes are compared: compact, without cache breakpoints.

    A list of one plain text equals the text: clients switch between the two when they move a breakpoint.
    """
    try:
        return encode(comparable(decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return raw


def comparable(value: JSON) -> JSON:
    """Return a message, a tool or a system prompt without cache breakpoints, with a list of one text as that text."""
    if isinstance(value, list):
        blocks = [comparable(each) for each in cast(list[JSON], value) if not _is_mark_block(each)]
        only = as_object(blocks[0]) if len(blocks) == 1 else {}
        return only["text"] if only.keys() == {"type", "text"} and only["type"] in TEXT_TYPES else blocks
    return _without_mark_fields(value, comparable)


def without_marks(value: JSON) -> JSON:
    """Return JSON without cache breakpoints, at any depth where a provider accepts them."""
    if isinstance(value, list):
        return [without_marks(each) for each in cast(list[JSON], value) if not _is_mark_block(each)]
    return _without_mark_fields(value, without_marks)


def head_without_marks(head: JSONObject, messages_key: str) -> JSONObject:
    """Return a head without cache breakpoints. Its conversation consists of the leading system messages."""
    around = head.get(messages_key)
    lead = [comparable(each) for each in cast(list[JSON], around)[:-1]] if isinstance(around, list) else []
    return {
        name: lead if name == messages_key else without_marks(value) if isinstance(value, list) else value
        for name, value in {**head, messages_key: lead}.items()
        if name not in MARK_FIELDS
    }


def _without_mark_fields(value: JSON, inner: Callable[[JSON], JSON]) -> JSON:
    if not isinstance(value, dict):
        return value
    return {
        name: inner(each) if name in MARKED_FIELDS else each
        for name, each in cast(JSONObject, value).items()
        if name not in MARK_FIELDS
    }


def _is_mark_block(value: JSON) -> bool:
    return as_object(value).keys() == {MARK_BLOCK}


def _find_field(body: bytes, key: str) -> tuple[int, int] | None:
    """Return the span of the value of a top-level field. A field that occurs twice makes the scan fail."""
    at = _skip(body, 0)
    for name, raw in _decode_fields(body).items():
        at = _skip(body, at + 1)  # after "{" or ","
        end = _string_end(body, at)
        if body[at : at + 1] != b'"' or decode(body[at:end]) != name:
            raise ValueError(name)
        at = _skip(body, _skip(body, end) + 1)
        if not body.startswith(raw, at):
            raise ValueError(name)
        if name == key:
            return at, at + len(memoryview(raw))
        at = _skip(body, at + len(memoryview(raw)))
    return None


def _skip(body: bytes, at: int) -> int:
    while body[at : at + 1] and body[at] in WHITE:
        at += 1
    return at


def _string_end(body: bytes, at: int) -> int:
    """Return the position after the string that begins at a position."""
    end = at + 1
    while True:
        end = body.index(b'"', end)
        slashes = 0
        while body[end - 1 - slashes : end - slashes] == b"\\":
            slashes += 1
        end += 1
        if not slashes % 2:
            return end


def _split_at(body: bytes, start: int, end: int) -> BodyParts:
    if body[start : start + 1] != b"[":  # a plain text, or one object
        return BodyParts(body[:start] + PLACEHOLDER + body[end:], [body[start:end]])
    elements = [bytes(raw) for raw in _decode_elements(body[start:end])]
    first = next((number for number, each in enumerate(elements) if not _is_system(each)), len(elements))
    at = _skip(body, start + 1)
    for each in elements[:first]:
        if not body.startswith(each, at):
            raise ValueError
        at = _skip(body, at + len(each))
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    rest = elements[first:]
    if not rest:
        return BodyParts(body[:at] + (b"," if first else b"") + PLACEHOLDER + body[at:], [])
    for gap in COMMON_GAPS:
        joined = gap.join(rest)
        if body.startswith(joined, at):
            gaps = () if gap == b"," else (gap.decode(),)
            return BodyParts(body[:at] + PLACEHOLDER + body[at + len(joined) :], rest, gaps)
    found: list[str] = []
    cursor = at
    for each in rest:
        begin = _skip(body, cursor)
        if begin > cursor or found or cursor > at:
            begin = _skip(body, begin + 1) if body[begin : begin + 1] == b"," else begin
            found.append(body[cursor:begin].decode())
        if not body.startswith(each, begin):
            raise ValueError
        cursor = begin + len(each)
    gaps = (found[0],) if len(set(found)) == 1 else tuple(found)
    return BodyParts(body[:at] + PLACEHOLDER + body[cursor:], rest, gaps)


def _is_system(raw: bytes) -> bool:
    return any(role in raw for role in (b'"system"', b'"developer"')) and _role(raw) in SYSTEM_ROLES


def _role(raw: bytes) -> str:
    return str(as_object(decode(raw)).get("role"))

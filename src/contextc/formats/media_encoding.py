"""Encoding and decoding of media bytes: base64, data URLs, and text files as text."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from mimetypes import guess_type
from typing import TypeAlias

from msgspec.structs import replace

from contextc.messages import AnyPart, Media, Message, Text, ToolResult, escape_markers, escaped_line, read_text_file

ShortenFile: TypeAlias = Callable[[str, int], str]
"""Shortens the text of a file. The number is that of the media part in its message, from 1; 0 inside a tool result."""
FENCE = re.compile(r"`{3,}")


def guess_media_type(url: str, default: str) -> str:
    """Return the media type that the file name in a URL suggests, or `default`."""
    return guess_type(url.partition("?")[0])[0] or default


def media_from_url(url: str, default: str, name: str | None = None) -> Media:
    """Return the media of a URL or data URL. `default` is its media type if the URL suggests none."""
    return from_data_url(url, name) or Media(mime_type=guess_media_type(url, default), url=url, name=name)


def encode_base64(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """Return the bytes of a part as base64, or None if they are not available."""
    data = bytes_of(part, blobs)
    return base64.b64encode(data).decode() if data else None


def decode_base64(text: str, *, urlsafe: bool = False) -> bytes | None:
    """Return the bytes of a base64 text, or None if it is invalid.

    `urlsafe` accepts both alphabets, with or without padding.
    """
    if urlsafe:
        text = text.replace("-", "+").replace("_", "/")
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def to_data_url(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """Return the bytes of a part as a data URL, or None if they are not available."""
    text = encode_base64(part, blobs)
    return f"data:{part.mime_type};base64,{text}" if text is not None else None


def from_data_url(url: str, name: str | None = None) -> Media | None:
    """Return the part that a data URL contains, or None if this is no data URL."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    mime_type, data = head.removeprefix("data:").removesuffix(";base64"), decode_base64(text)
    return Media(mime_type=mime_type, data=data, name=name) if data is not None and "/" in mime_type else None


def bytes_of(part: Media, blobs: Mapping[str, bytes]) -> bytes | None:
    """Return the bytes of a part, or None if they are not available."""
    return part.data if part.data is not None else blobs.get(part.blob or "")


def matches_type(mime_type: str, patterns: Sequence[str]) -> bool:
    """Return True if a media type matches one of the patterns, such as `image/*`."""
    return any(fnmatch(mime_type.partition(";")[0].strip().lower(), pattern) for pattern in patterns)


def with_text_files(
    message: Message, blobs: Mapping[str, bytes], native: Sequence[str], shorten: ShortenFile, *, describe_others: bool
) -> tuple[Message, list[Media]]:
    """Return the message with its text files as text, and these files.

    A file whose type is among the patterns of `native` stays a document. It is then UTF-8, as all providers expect.
    """
    written: list[Media] = []

    def encode_file(part: Media, number: int) -> Text | Media:
        text = read_text_file(part, bytes_of(part, blobs))
        if text is None:
            return Text(describe_media(part)) if describe_others else part
        safe = escape_markers(shorten(text, number))
        if safe and matches_type(part.mime_type, native):
            return replace(part, data=safe.encode(errors="replace"), blob=None)
        written.append(part)
        return Text(describe_text_file(part, safe))

    parts: list[AnyPart] = []
    number = 0
    for part in message.parts:
        if type(part) is Media:
            number += 1
            parts.append(encode_file(part, number))
        elif type(part) is ToolResult and type(part.content) is not str:
            content = tuple([encode_file(each, 0) if type(each) is Media else each for each in part.content])
            parts.append(replace(part, content=content))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)), written


def describe_text_file(part: Media, text: str) -> str:
    """Return a text file as text for a model: its name, and its content between fences that it does not contain."""
    fence = max(["``", *FENCE.findall(text)], key=len) + "`"
    name = f'"{escaped_line(part.name)}"' if part.name else f"of type {part.mime_type}"
    end = "" if text.endswith("\n") else "\n"
    return f"[Attached file {name}]\n{fence}\n{text}{end}{fence}\n[End of the attached file {name}]"


def describe_media(media: Media) -> str:
    """Return one line of text that replaces media whose bytes cannot be sent."""
    name = f" {media.name!r}" if media.name else ""
    size = f", {media.size:,} bytes" if media.size else ""
    where = f", {media.url}" if media.url else ""
    return f"[{media.kind}{name}: {media.mime_type}{size}{where}; not shown]"

"""Encoding and decoding of media bytes: base64 and data URLs."""

import base64
import binascii
from collections.abc import Mapping
from mimetypes import guess_type

from contextc.messages import Media


def guess_media_type(url: str, default: str) -> str:
    """Return the media type that the file name in a URL suggests, or `default`."""
    return guess_type(url.partition("?")[0])[0] or default


def media_from_url(url: str, default: str, name: str | None = None) -> Media:
    """Return the media of a URL or data URL. `default` is its media type if the URL suggests none."""
    return from_data_url(url, name) or Media(mime_type=guess_media_type(url, default), url=url, name=name)


def encode_base64(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """Return the bytes of a part as base64, or None if they are not available."""
    data = part.data if part.data is not None else blobs.get(part.blob or "")
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

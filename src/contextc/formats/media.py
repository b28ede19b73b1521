"""Media on the wire: bytes as base64 and as data URLs, and back."""

import base64
import binascii
from collections.abc import Mapping
from mimetypes import guess_type

from contextc.messages import Media


def guessed(url: str, default: str) -> str:
    """What kind of thing an address probably leads to."""
    return guess_type(url.partition("?")[0])[0] or default


def packed(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """The bytes of a part as base64, wherever they are; None where nobody here has them."""
    data = part.data if part.data is not None else blobs.get(part.blob or "")
    return base64.b64encode(data).decode() if data else None


def unpacked(text: str, *, urlsafe: bool = False) -> bytes | None:
    """The bytes that a text is base64 of; None where it is not. `urlsafe` takes both alphabets, padded or not."""
    if urlsafe:
        text = text.replace("-", "+").replace("_", "/")
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def data_url(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """The bytes of a part as a URL; None where nobody here has them."""
    text = packed(part, blobs)
    return f"data:{part.mime_type};base64,{text}" if text is not None else None


def from_data_url(url: str, name: str | None = None) -> Media | None:
    """The part that a URL holds; None where it only says where something is."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    mime_type, data = head.removeprefix("data:").removesuffix(";base64"), unpacked(text)
    return Media(mime_type=mime_type, data=data, name=name) if data is not None and "/" in mime_type else None

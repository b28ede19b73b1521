"""Attached text files: which media are text, and what their text is.

Programs and browsers name the type of a source file in many ways, or not at all: `.ts` is a video for some, `.py` has
no type for others. So the bytes decide. A type that is text by name may have any usual encoding. Any other type counts
as text only if its bytes are valid UTF-8 without control characters.
"""

import codecs
import re

from contextc.messages.message import Media

TEXT_TYPES = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "yaml", "x-yaml", "toml", "sql", "javascript", "x-sh", "x-httpd-php", "x-ndjson")
)
BINARY_DOCUMENTS = frozenset(("application/pdf", "application/postscript"))
"""Documents that may consist of ASCII characters only, although nobody reads them as text."""
MISTAKEN_TYPES = frozenset(("image/svg+xml", "video/mp2t", "video/vnd.dlna.mpeg-tts"))
"""Types outside of `text` and `application` that text files have: SVG, and TypeScript by its file extension."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL_BYTES = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)


def may_be_text(media: Media) -> bool:
    """Return True if the type of a file allows that its bytes are text."""
    mime_type = _plain_type(media)
    return mime_type in MISTAKEN_TYPES or (media.kind == "document" and mime_type not in BINARY_DOCUMENTS)


def read_text_file(media: Media, data: bytes | None) -> str | None:
    """Return the text of a file, or None if it is not text or its bytes are not available."""
    if data is None or not may_be_text(media):
        return None
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode(data, encoding)
    mime_type = _plain_type(media)
    if not (mime_type.startswith("text/") or mime_type in TEXT_TYPES or mime_type.endswith(("+json", "+xml"))):
        return None if CONTROL_BYTES.search(data) else _decode(data, "utf-8")
    named = CHARSET.search(media.mime_type)
    guesses = [named[1]] if named else []
    if b"\x00" in data:  # UTF-16 without a mark: every second byte of Latin letters is zero
        if data.count(b"\x00", 0, 2000) * 3 < len(data[:2000]):
            return None
        guesses.append("utf-16-be" if data[:1] == b"\x00" else "utf-16-le")
    else:
        guesses += ["utf-8", "cp1252", "latin-1"]
    return next((text for encoding in guesses if (text := _decode(data, encoding)) is not None), None)


def _plain_type(media: Media) -> str:
    return media.mime_type.partition(";")[0].strip().lower()


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None

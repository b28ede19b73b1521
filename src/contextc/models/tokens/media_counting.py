"""Token counts of images, audio, video and documents, by kind and size, never by the length of their base64.

The rules are those that providers publish. Dimensions are read from the first bytes of PNG, JPEG, GIF and WebP; without
the bytes a typical size is used. Seconds and pages are estimated from the file size.
"""

from math import ceil
from typing import Literal, TypeAlias

from contextc.messages import Media

ImageRule: TypeAlias = Literal["area", "tiles", "patches", "frames"]
Dimensions: TypeAlias = tuple[int, int]

TYPICAL_PIXELS = (1024, 1024)
PAGE_BYTES, PAGE_TOKENS, MAX_PAGES = 60_000, 1_500, 600
SOUND_BYTES_A_SECOND, SOUND_TOKENS_A_SECOND, TYPICAL_SOUND = 16_000, 32, 1_000
FILM_BYTES_A_SECOND, FILM_TOKENS_A_SECOND, TYPICAL_FILM = 250_000, 300, 10_000
TEXT_BYTES_A_TOKEN, TYPICAL_TEXT = 3, 2_000
TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")


def count_media_tokens(media: Media, rule: ImageRule, data: bytes | None = None) -> int:
    """Return the tokens of a media part. `data` are its bytes, if available."""
    data = data if data is not None else media.data
    size = len(data) if data is not None else media.size
    match media.kind:
        case "image":
            return count_image_tokens(read_dimensions(data) if data else None, rule)
        case "audio":
            return _by_time(size, SOUND_BYTES_A_SECOND, SOUND_TOKENS_A_SECOND, TYPICAL_SOUND)
        case "video":
            return _by_time(size, FILM_BYTES_A_SECOND, FILM_TOKENS_A_SECOND, TYPICAL_FILM)
        case "document":
            if media.mime_type.startswith("text/") or media.mime_type in TEXTUAL:
                return TYPICAL_TEXT if size is None else ceil(size / TEXT_BYTES_A_TOKEN)
            return _pages(data, size) * PAGE_TOKENS


def _by_time(size: int | None, bytes_a_second: int, tokens_a_second: int, typical: int) -> int:
    return typical if size is None else max(ceil(size / bytes_a_second), 1) * tokens_a_second


def _pages(data: bytes | None, size: int | None) -> int:
    """Return the number of pages of a PDF, from its page objects or else from its size."""
    if data is not None:
        found = data.count(b"/Type /Page") + data.count(b"/Type/Page")
        found -= data.count(b"/Type /Pages") + data.count(b"/Type/Pages")
        if found > 0:
            return min(found, MAX_PAGES)
    return min(max(ceil((size or PAGE_BYTES) / PAGE_BYTES), 1), MAX_PAGES)


def count_image_tokens(size: Dimensions | None, rule: ImageRule) -> int:
    width, height = size or TYPICAL_PIXELS
    match rule:
        case "area":  # Anthropic: at most 1,568 pixels a side, and a token for 750 of them
            shrink = min(1, 1568 / max(width, height))
            return min(ceil(width * shrink * height * shrink / 750), 1_600) + 4
        case "tiles":  # OpenAI, high detail: the short side 768, tiles of 512
            shrink = min(1, 2048 / max(width, height))
            shrink = min(shrink, 768 / min(width, height))
            return 85 + 170 * ceil(width * shrink / 512) * ceil(height * shrink / 512)
        case "patches":  # OpenAI's smaller and newer models: patches of 32, at most 1,536
            return min(ceil(width / 32) * ceil(height / 32), 1_536) + 70
        case "frames":  # Gemini: a fixed figure since version 3, fewer before
            return 1_120


def read_dimensions(data: bytes) -> Dimensions | None:
    """Return width and height of an image from its first bytes, or None for an unknown format."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return _sane(int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return _sane(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp(data)
    return None


def _sane(width: int, height: int) -> Dimensions | None:
    return (width, height) if width > 0 and height > 0 else None


def _jpeg(data: bytes) -> Dimensions | None:
    """Read the size from the first frame header, skipping the segments before it."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _sane(int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7]))
        place += 1 if marker == 0xFF else 2 + max(int.from_bytes(data[place + 2 : place + 4]), 2)
    return None


def _webp(data: bytes) -> Dimensions | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return _sane(width & 0x3FFF, height & 0x3FFF)
    return None

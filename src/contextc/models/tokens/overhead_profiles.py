"""Token overhead by model family: of requests, messages, calls and tool definitions.

The figures were fitted to recorded requests with the counts that providers reported (`benchmarks/tokens.py` prints the
errors). A new vendor is a new row. An unknown model gets the figures of its vendor's newest models, which are higher.
"""

import re
from math import ceil
from re import Pattern
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.messages import Media

# ── media ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Token counts of images, audio, video and documents, by kind and size, never by the length of their base64.
#
# The rules are those that providers publish. Dimensions are read from the first bytes of PNG, JPEG, GIF and WebP;
# without the bytes a typical size is used. Seconds and pages are estimated from the file size.


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
            return _count_by_time(size, SOUND_BYTES_A_SECOND, SOUND_TOKENS_A_SECOND, TYPICAL_SOUND)
        case "video":
            return _count_by_time(size, FILM_BYTES_A_SECOND, FILM_TOKENS_A_SECOND, TYPICAL_FILM)
        case "document":
            if media.mime_type.startswith("text/") or media.mime_type in TEXTUAL:
                return TYPICAL_TEXT if size is None else ceil(size / TEXT_BYTES_A_TOKEN)
            return _count_pages(data, size) * PAGE_TOKENS


def _count_by_time(size: int | None, bytes_a_second: int, tokens_a_second: int, typical: int) -> int:
    return typical if size is None else max(ceil(size / bytes_a_second), 1) * tokens_a_second


def _count_pages(data: bytes | None, size: int | None) -> int:
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
        return _sane_dimensions(int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return _sane_dimensions(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
    if data.startswith(b"\xff\xd8"):
        return _jpeg_dimensions(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_dimensions(data)
    return None


def _sane_dimensions(width: int, height: int) -> Dimensions | None:
    return (width, height) if width > 0 and height > 0 else None


def _jpeg_dimensions(data: bytes) -> Dimensions | None:
    """Read the size from the first frame header, skipping the segments before it."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _sane_dimensions(
                int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7])
            )
        place += 1 if marker == 0xFF else 2 + max(int.from_bytes(data[place + 2 : place + 4]), 2)
    return None


def _webp_dimensions(data: bytes) -> Dimensions | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return _sane_dimensions(width & 0x3FFF, height & 0x3FFF)
    return None


# ── overhead by model family ──────────────────────────────────────────────────────────────────────────────────────────


ReasoningRetention: TypeAlias = Literal["always", "turn", "never"]
"""When returned reasoning counts as input: always, until the next user message, or never."""
SAME_AS_TOKENIZER = "itself"
"""As a vocabulary: use the one with the name of the tokenizer."""
VERSION = 1
"""Part of the name under which counts are stored. Raise it with every changed formula to ignore old counts."""


class OverheadProfile(Struct, frozen=True, kw_only=True):
    """The figures of one model family, in tokens unless stated otherwise."""

    name: str
    vocabulary: str | None = None
    """The vocabulary that counts text; None for the estimate."""
    factor: float
    """The factor for the estimate of a text without a vocabulary, rounded up."""
    request: int
    message: int
    system: int
    reply: int = 0
    """Additional tokens for a text that the model wrote."""
    call: int
    parallel: int = 0
    """Additional tokens for each call if a message has several."""
    result: int
    result_names: bool = False
    """True if a result repeats the name of its tool."""
    tools: int
    """Tokens that the first tool adds once."""
    tool: int = 0
    tool_with_parameters: int = 0
    tool_form: Literal["typescript", "json", "properties", "names"]
    choice: int = 0
    """Additional tokens if the model must call a tool."""
    thinking: int = 0
    """Additional tokens if reasoning is enabled."""
    schema: int = 0
    """Additional tokens for a response schema, besides the schema itself."""
    keeps_reasoning: ReasoningRetention
    sealed_frame: int = 350
    sealed_characters: float = 3.0
    """Encrypted reasoning: characters of the wrapper, and characters per token of the rest."""
    image_rule: ImageRule


OPENAI = OverheadProfile(
    name="gpt-5",
    vocabulary="o200k_base",
    factor=1.05,
    request=2,
    message=4,
    system=4,
    reply=2,
    call=6,
    parallel=4,
    result=5,
    result_names=True,
    tools=84,
    tool_form="typescript",
    schema=8,
    keeps_reasoning="turn",
    sealed_frame=1_000,
    sealed_characters=6.2,
    image_rule="tiles",
)
OPENAI_RESPONSES = replace(OPENAI, name="gpt-5-responses", tools=2)
OPENAI_OLDER = replace(
    OPENAI,
    name="gpt-4",
    request=3,
    reply=0,
    call=4,
    parallel=9,
    result=1,
    tools=3,
    tool_with_parameters=-1,
    schema=0,
)
OPENAI_OLDER_RESPONSES = replace(OPENAI_OLDER, name="gpt-4-responses", tools=1, tool_with_parameters=-5)
GPT_OSS = replace(OPENAI, name="gpt-oss", vocabulary="o200k_harmony", request=67, tools=20)
CLAUDE = OverheadProfile(
    name="claude-4",
    factor=1.1,
    request=3,
    message=4,
    system=0,
    call=36,
    result=18,
    tools=497,
    tool_form="json",
    choice=92,
    thinking=29,
    schema=130,
    keeps_reasoning="turn",
    image_rule="area",
)
CLAUDE_5 = replace(CLAUDE, name="claude-5", factor=1.5, keeps_reasoning="always")
GEMINI = OverheadProfile(
    name="gemini-3",
    vocabulary="gemma4",  # same counts as gemma3, which is Gemini's vocabulary, and ten times as fast
    factor=1.1,
    request=1,
    message=0,
    system=0,
    call=8,
    result=8,
    result_names=True,
    tools=0,
    tool=13,
    tool_with_parameters=15,
    tool_form="properties",
    keeps_reasoning="always",
    sealed_frame=90,
    sealed_characters=4.7,
    image_rule="frames",
)
GEMINI_OLDER = replace(GEMINI, name="gemini-2", tool=18, tool_with_parameters=2, keeps_reasoning="never")
VERTEX = replace(
    GEMINI,
    name="vertex",
    request=0,
    call=0,
    result=0,
    tool=0,
    tool_with_parameters=0,
    tool_form="names",
    keeps_reasoning="never",
)
OPEN = OverheadProfile(
    name="open",
    vocabulary=SAME_AS_TOKENIZER,
    factor=1.2,
    request=5,
    message=5,
    system=5,
    call=20,
    result=8,
    tools=80,
    tool=10,
    tool_form="json",
    keeps_reasoning="always",
    image_rule="tiles",
)

MISTRAL = replace(OPEN, name="mistral", request=1, message=2, system=2, call=6, result=4, tools=0, tool=12)
LLAMA = replace(OPEN, name="llama", request=30)

RESPONSES = r"openai|openai_responses|azure"
OLDER_GPT = r"(.*\W)?(chat)?gpt-[34].*"
OLDER_CLAUDE = r"|.*claude-(3.*|[a-z]+-[34]([-.@:][0-6])?([-.@:]\d{8}.*|[-.@:]\D.*)?)"
ANY = r".*"
PROFILES: tuple[tuple[Pattern[str], Pattern[str], Pattern[str], OverheadProfile], ...] = tuple(
    (re.compile(tokenizer, re.DOTALL), re.compile(provider, re.DOTALL), re.compile(model, re.DOTALL), profile)
    for tokenizer, provider, model, profile in (
        (r"o200k_harmony|gpt[-_]oss", ANY, ANY, GPT_OSS),
        (r"cl100k_base", ANY, ANY, replace(OPENAI_OLDER, vocabulary="cl100k_base")),
        (r"o200k_base", ANY, r".*gpt-oss.*", GPT_OSS),
        (r"o200k_base", RESPONSES, OLDER_GPT, OPENAI_OLDER_RESPONSES),
        (r"o200k_base", ANY, OLDER_GPT, OPENAI_OLDER),
        (r"o200k_base", RESPONSES, ANY, OPENAI_RESPONSES),
        (r"o200k_base", ANY, ANY, OPENAI),
        (r"claude", ANY, OLDER_CLAUDE, CLAUDE),
        (r"claude", ANY, ANY, CLAUDE_5),
        (r"gemini|gemma.*", r".*vertex.*", ANY, VERTEX),
        (r"gemini|gemma.*", ANY, r".*gemini-[12]\D.*", GEMINI_OLDER),
        (r"gemini|gemma.*", ANY, ANY, GEMINI),
        (r"mistral.*", ANY, ANY, MISTRAL),
        (r"llama.*", ANY, ANY, LLAMA),
        (ANY, ANY, ANY, OPEN),
    )
)
"""Patterns of tokenizer, provider and model with their profile. The first matching row applies."""


def find_profile(tokenizer: str, provider: str, model: str) -> OverheadProfile:
    """Return the profile for the names of a tokenizer, a provider and a model."""
    found = next(
        found
        for tokenizers, providers, models, found in PROFILES
        if tokenizers.fullmatch(tokenizer) and providers.fullmatch(provider) and models.fullmatch(model)
    )
    return replace(found, vocabulary=tokenizer) if found.vocabulary == SAME_AS_TOKENIZER else found

"""Token counts of messages, tools and texts for one model.

A counter has no side effects, and caches only the counts of short texts such as tool names. One counter per tokenizer,
provider and model is shared by all threads. It counts only what is sent: no user notices, reasoning only for the
provider that it came from, and media by their dimensions.

The text counts are exact with the vocabularies of splintr, else an estimate.

The estimate takes byte counts in a few passes that run in C. Modern vocabularies agree on what costs a token: a run of
letters (more for a long one), a change from lower to upper case inside a word (as in base64 and identifiers), digits,
punctuation, line ends, and a fixed share of each character of another script. The weights were fitted against
o200k_base on prose in eleven languages, code, Markdown, JSON, tables, logs, hexadecimal and base64. The median error is
below 5 %, and no kind of text as a whole is off by more than 17 %. Vocabularies of other vendors are a multiple of it.

A vocabulary is loaded once, on first use, which takes a tenth of a second. Without splintr, or for an unknown name, the
estimate is used. Special tokens in a text count as plain text and cannot be forged.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from math import ceil
from re import Pattern
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, punctuation
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast, final

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, fix_surrogates
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    read_text_file,
)

# ── what a provider adds ──────────────────────────────────────────────────────────────────────────────────────────────
# Token overhead by model family: of requests, messages, calls and tool definitions.
#
# The figures were fitted to recorded requests with the counts that providers reported (`benchmarks/tokens.py` prints
# the errors). A new vendor is a new row. An unknown model gets the figures of its vendor's newest models, which are
# higher.


# ── media ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Token counts of images, audio, video and documents, by kind and size, never by the length of their base64.
#
# The rules are those that providers publish. Dimensions are read from the first bytes of PNG, JPEG, GIF and WebP;
# without the bytes a typical size is used. Seconds and pages are estimated from the file size.


ImageRule: TypeAlias = Literal["area", "tiles", "patches", "crops", "frames", "fixed", "nova"]
Dimensions: TypeAlias = tuple[int, int]

TYPICAL_PIXELS = (1024, 1024)
PAGE_BYTES, MAX_PAGES = 60_000, 600
PAGE_TOKENS: Mapping[ImageRule, int] = {
    "area": 1_500,
    "tiles": 950,
    "patches": 950,
    "crops": 258,
    "frames": 560,
    "fixed": 258,
    "nova": 2_600,
}
"""Tokens of a page of a PDF. Google publishes its figures; those of the others are from recorded requests."""
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
            return _count_pages(data, size) * PAGE_TOKENS[rule]


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
        case "patches":  # OpenAI's smaller models: patches of 32, at most 1,536
            return ceil(min(ceil(width / 32) * ceil(height / 32), 1_536) * 1.2) + 2
        case "crops":  # Gemini 2.0: a small image is one tile; crops of a larger one, and one of the whole
            if max(width, height) <= 384:
                return 258
            unit = (
                min(max(min(width, height) // 1.5, 256), 768) if min(width, height) > 384 else min(width, height) / 1.5
            )
            return 258 * (ceil(width / unit) * ceil(height / unit) + 1)
        case "fixed":  # Gemini 2.5
            return 258
        case "nova":
            return 1_825
        case "frames":  # Gemini 3
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
"""The time for which returned reasoning counts as input: always, until the next user message, or never."""
SAME_AS_TOKENIZER = "itself"
"""As a vocabulary: use the one with the name of the tokenizer."""
VERSION = 2
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
    result_links: bool = True
    """False if the model does not see a file in a result that is a link and not its bytes."""
    tools: int
    """Tokens that the first tool adds once."""
    tool: int = 0
    tool_with_parameters: int = 0
    tool_form: Literal["typescript", "json", "properties", "texts", "names"]
    """The parts of a definition that are read: all, parameters with name and description, these two, or the name."""
    choice: int = 0
    """Additional tokens if the model must call a tool."""
    server_tools: Mapping[str, int] = {}
    """Tokens of tools that the provider runs itself, by the beginning of their type; else `SERVER_TOOL_TOKENS`."""
    thinking: int = 0
    """Additional tokens if reasoning is enabled with a budget or an effort; adaptive reasoning costs nothing."""
    task_budget: int = 0
    """Additional tokens if the request has a task budget."""
    schema: int = 0
    """Additional tokens for a response schema, besides the schema itself."""
    schema_form: Literal["json", "compact", "tool", "none"] = "json"
    """The form of a response schema: JSON, JSON without what constrains it, a tool that must be called if the request
    is in a foreign format, or not read at all.
    """
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
    server_tools={"tool_search": 50, "mcp": 390},
    schema=7,
    schema_form="compact",
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
)
OPENAI_OLDER_RESPONSES = replace(OPENAI_OLDER, name="gpt-4-responses", tools=1, tool_with_parameters=-5)
GPT_OSS = replace(OPENAI, name="gpt-oss", vocabulary="o200k_harmony", request=67, tools=20)
OPENAI_SMALL = replace(OPENAI, name="gpt-5-mini", image_rule="patches")
OPENAI_SMALL_RESPONSES = replace(OPENAI_RESPONSES, name="gpt-5-mini-responses", image_rule="patches")

# The tokens of Claude's tools are those that Anthropic publishes for its tool instructions, by model:
# platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing. They are 496 and 588 for most of version 4.
CLAUDE = OverheadProfile(
    name="claude-4",
    factor=1.1,
    request=3,
    message=4,
    system=0,
    call=36,
    result=18,
    tools=496,
    tool_form="json",
    choice=92,
    server_tools={
        "advisor": 650,
        "bash": 245,
        "code_execution": 1_760,
        "computer": 1_200,
        "memory": 1_050,
        "text_editor": 700,
        "tool_search": 100,
        "web_": 1_100,
    },
    thinking=29,
    task_budget=40,
    schema=117,
    schema_form="tool",
    keeps_reasoning="turn",
    image_rule="area",
)
CLAUDE_4_0 = replace(CLAUDE, name="claude-4-0", tools=313, choice=2)
CLAUDE_3 = replace(CLAUDE, name="claude-3", tools=346, choice=-33)
CLAUDE_3_HAIKU = replace(CLAUDE, name="claude-3-haiku", tools=264, choice=91)
CLAUDE_5 = replace(CLAUDE, name="claude-5", factor=1.5, tools=354, choice=120, keeps_reasoning="always")
CLAUDE_4_8 = replace(CLAUDE_5, name="claude-4-8", tools=290)
CLAUDE_4_7 = replace(CLAUDE_5, name="claude-4-7", tools=675, choice=129)
GEMINI = OverheadProfile(
    name="gemini-3.5",
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
    server_tools={"": 100},
    schema_form="none",
    result_links=False,
    keeps_reasoning="always",
    sealed_frame=90,
    sealed_characters=4.7,
    image_rule="frames",
)
GEMINI_3 = replace(GEMINI, name="gemini-3", keeps_reasoning="turn")
GEMINI_2_5 = replace(
    GEMINI, name="gemini-2.5", tool=18, tool_with_parameters=2, keeps_reasoning="never", image_rule="fixed"
)
GEMINI_OLDER = replace(
    GEMINI_2_5, name="gemini-2", tool=2, tool_with_parameters=0, tool_form="texts", image_rule="crops"
)
VERTEX = replace(
    GEMINI,
    name="vertex",
    result_links=True,
    request=0,
    call=0,
    result=0,
    tool=0,
    tool_with_parameters=0,
    tool_form="names",
    keeps_reasoning="never",
)
VERTEX_OLDER = replace(VERTEX, name="vertex-2", image_rule="fixed")
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
LLAMA_4 = replace(OPEN, name="llama-4", request=10, tools=620)
DEEPSEEK_4 = replace(OPEN, name="deepseek-4", request=77, tools=190)
NOVA = replace(OPEN, name="nova", request=0, message=0, system=0, tools=810, image_rule="nova")
NOVA_MICRO = replace(NOVA, name="nova-micro", tools=330)
BEDROCK = replace(
    OPEN, name="bedrock", request=4, message=3, system=0, tools=470, schema_form="none", image_rule="area"
)

RESPONSES = r"openai|openai_responses|azure"
OLDER_GPT = r"(.*\W)?(chat)?gpt-[34].*"
SMALL_GPT = r".*gpt-\d[\d.]*-(mini|nano).*|.*o4-mini.*"
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
        (r"o200k_base", RESPONSES, SMALL_GPT, OPENAI_SMALL_RESPONSES),
        (r"o200k_base", ANY, SMALL_GPT, OPENAI_SMALL),
        (r"o200k_base", RESPONSES, ANY, OPENAI_RESPONSES),
        (r"o200k_base", ANY, ANY, OPENAI),
        (r"claude", ANY, r".*claude-(3[-.]5-haiku|haiku-3|3-haiku).*", CLAUDE_3_HAIKU),
        (r"claude", ANY, r".*claude-(3|[a-z]+-3).*", CLAUDE_3),
        (r"claude", ANY, r".*claude-(opus|sonnet)-4(?![-.@:][2-9](\D|$)).*", CLAUDE_4_0),
        (r"claude", ANY, r".*claude-opus-4[-.@:]7.*", CLAUDE_4_7),
        (r"claude", ANY, r".*claude-opus-4[-.@:]8.*", CLAUDE_4_8),
        (r"claude", ANY, OLDER_CLAUDE, CLAUDE),
        (r"claude", ANY, ANY, CLAUDE_5),
        (r"gemini|gemma.*", r".*vertex.*", r".*gemini-[12]\D.*", VERTEX_OLDER),
        (r"gemini|gemma.*", r".*vertex.*", ANY, VERTEX),
        (r"gemini|gemma.*", ANY, r".*gemini-2\.5.*", GEMINI_2_5),
        (r"gemini|gemma.*", ANY, r".*gemini-3(\.[0-4])?(-.*)?", GEMINI_3),
        (r"gemini|gemma.*", ANY, r".*gemini-[12]\D.*", GEMINI_OLDER),
        (r"gemini|gemma.*", ANY, ANY, GEMINI),
        (r"mistral.*", ANY, ANY, MISTRAL),
        (r"llama.*|meta", ANY, r".*llama-?4.*", LLAMA_4),
        (r"llama.*", ANY, ANY, LLAMA),
        (r"deepseek.*", ANY, r".*deepseek-v4.*", DEEPSEEK_4),
        (r"amazon", ANY, r".*nova-micro.*", NOVA_MICRO),
        (r"amazon", ANY, ANY, NOVA),
        (r"unknown", r"bedrock", ANY, BEDROCK),
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


# ── tool definitions as a model reads them ────────────────────────────────────────────────────────────────────────────
# Tool definitions in the form that a model reads, which differs from the form that is sent.
#
# OpenAI renders a TypeScript namespace, Anthropic the JSON itself, and Gemini counts names, descriptions and
# parameters. All vendors' definitions have a name, a description and a JSON Schema.


MAX_DEPTH = 20
HEAD = "# Tools\n\n## functions\n\nnamespace functions {\n\n"
TAIL = "} // namespace functions"
SCHEMA_PLACES = ("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema", "inputSchema")


class ToolFunction(NamedTuple):
    name: str
    description: str
    parameters: JSONObject


def split_functions(tools: Sequence[JSONObject]) -> tuple[list[ToolFunction], list[JSONObject]]:
    """Return the functions among tool definitions of any vendor, and the others, which the provider runs itself."""
    found: list[ToolFunction] = []
    others: list[JSONObject] = []
    for tool in tools:
        inside = list(_functions_in(tool))
        found += [_as_function(each) for each in inside]
        if not inside:
            others.append(tool)
    return found, others


def _functions_in(tool: JSONObject) -> Iterator[JSONObject]:
    for place in ("functionDeclarations", "function_declarations"):
        if isinstance(tool.get(place), list):
            yield from (each for each in cast(list[JSON], tool[place]) if isinstance(each, dict))
            return
    for place in ("function", "toolSpec"):
        if isinstance(tool.get(place), dict):
            yield cast(JSONObject, tool[place])
            return
    if isinstance(tool.get("name"), str) and (
        tool.get("type") in (None, "function", "custom") or any(place in tool for place in SCHEMA_PLACES)
    ):
        yield tool


def _as_function(tool: JSONObject) -> ToolFunction:
    found = [cast(JSONObject, tool[place]) for place in SCHEMA_PLACES if isinstance(tool.get(place), dict)]
    schema = found[0] if found else {}
    if isinstance(schema.get("json"), dict) and "type" not in schema:
        schema = schema["json"]  # Bedrock's wrapping
    return ToolFunction(str(tool.get("name") or ""), str(tool.get("description") or ""), schema)


def dump_json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def get_properties(schema: JSONObject) -> JSONObject:
    found = schema.get("properties")
    return cast(JSONObject, found) if isinstance(found, dict) else {}


def _render_declaration(function: ToolFunction) -> str:
    comment = f"// {function.description}\n" if function.description else ""
    fields = _render_fields(function.parameters, function.parameters.get("$defs"), 0)
    takes = f"(_: {{\n{fields}}})" if fields else "()"
    return f"{comment}type {function.name} = {takes} => any;\n\n"


def _render_fields(schema: JSONObject, definitions: JSON, depth: int) -> str:
    needed = schema.get("required")
    needed = cast(list[JSON], needed) if isinstance(needed, list) else []
    lines: list[str] = []
    for name, field in get_properties(schema).items():
        field = cast(JSONObject, field) if isinstance(field, dict) else {}
        if description := field.get("description"):
            lines.append(f"// {description}\n")
        default = f" // default: {dump_json(field['default'])}" if "default" in field else ""
        lines.append(
            f"{name}{'' if name in needed else '?'}: {_render_type(field, definitions, depth + 1)},{default}\n"
        )
    return "".join(lines)


def _render_type(schema: JSON, definitions: JSON, depth: int) -> str:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return "any"
    schema = cast(JSONObject, schema)
    if isinstance(reference := schema.get("$ref"), str) and isinstance(definitions, dict):
        return _render_type(cast(JSONObject, definitions).get(reference.rpartition("/")[2]), definitions, depth + 1)
    if isinstance(schema.get("enum"), list):
        return " | ".join([dump_json(each) for each in schema["enum"]])
    if "const" in schema:
        return dump_json(schema["const"])
    for place in ("anyOf", "oneOf"):
        if isinstance(schema.get(place), list):
            return " | ".join([_render_type(each, definitions, depth + 1) for each in schema[place]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(
            [_render_type({**schema, "type": each}, definitions, depth + 1) for each in cast(list[JSON], kind)]
        )
    match kind:
        case "integer" | "number":
            return "number"
        case "array":
            return _render_type(schema.get("items"), definitions, depth + 1) + "[]"
        case "object":
            fields = _render_fields(schema, definitions, depth)
            return f"{{\n{fields}}}" if fields else "object"
        case _:
            return str(kind or "any")


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


WORD = 0.578
LETTER = 0.098
CAPITAL_INSIDE = 2.18
DIGIT = 0.655
PUNCTUATION = 0.669
PUNCTUATION_AGAIN = -0.449
LINE = 1.075
BLANKS = 1 / 64  # a vocabulary has tokens for long runs of blanks
MANY = 24
RULES = tuple(sign.encode() * 8 for sign in "-=*#_~.+")  # horizontal rules and table borders
EIGHT_ALIKE = 3.3  # tokens saved per run of eight: a vocabulary has tokens for long runs
SCRIPTS = (
    (bytes(range(0xC0, 0xD0)), 1.57),  # accented Latin letters, Greek
    (bytes(range(0xD0, 0xE0)), 0.33),  # Cyrillic, Hebrew, Arabic
    (b"\xe0", 0.40),  # the scripts of India, Thai
    (bytes((0xE1, 0xE2, 0xEE, 0xEF)), 0.9),  # typographic punctuation, full-width forms
    (bytes(range(0xE3, 0xEA)), 0.68),  # Chinese, Japanese
    (bytes(range(0xEA, 0xEE)), 0.67),  # Korean
    (bytes(range(0xF0, 0xF8)), 1.9),  # emoji
)
"""The first UTF-8 byte of a character, and the tokens per character."""


def _make_table(*classes: tuple[str, str]) -> bytes:
    table = bytearray(b" " * 256)
    for name, members in classes:
        for byte in members.encode():
            table[byte] = ord(name)
    return bytes(table)


KINDS = _make_table(("a", ascii_lowercase), ("A", ascii_uppercase), (".", punctuation))
WORDS = _make_table(("a", ascii_letters))
LETTERS, DIGITS = ascii_letters.encode(), digits.encode()
UNSEEN = bytes((*range(0x21), 0x7F))  # blanks, line ends, control characters
BEYOND_ASCII = bytes(range(0x80, 0x100))


def estimate_tokens(text: str) -> float:
    """Return the estimated tokens of a text in a vocabulary like o200k_base."""
    data = text.encode("utf-8", "surrogatepass")
    words, rest = data.translate(WORDS), data.translate(None, LETTERS)
    plain = rest.translate(None, DIGITS)
    lines = plain.count(b"\n")
    shown = plain.translate(None, UNSEEN)
    has_capitals, has_signs = not data.islower(), len(shown) > 1
    kinds = data.translate(KINDS) if has_capitals or has_signs else b""
    tokens = (
        WORD * (words.count(b" a") + words.startswith(b"a"))
        + LETTER * (len(data) - len(rest))
        + CAPITAL_INSIDE * (has_capitals and kinds.count(b"aA"))
        + DIGIT * (len(rest) - len(plain))
        + PUNCTUATION_AGAIN * (has_signs and kinds.count(b".."))
        + LINE * lines
        + BLANKS * (len(plain) - len(shown) - lines)
    )
    if len(data) != len(text):
        for first_bytes, cost in SCRIPTS:
            others = shown.translate(None, first_bytes)
            tokens += cost * (len(shown) - len(others))
            shown = others
        shown = shown.translate(None, BEYOND_ASCII)
    if len(shown) >= MANY:
        tokens -= EIGHT_ALIKE * sum([data.count(rule) for rule in RULES])
    return tokens + PUNCTUATION * len(shown)


_loading = Lock()


def load_vocabulary(name: str) -> Callable[[str], int] | None:
    """Return a function that counts the tokens of a text, or None if there is no such vocabulary."""
    with _loading:
        return _load_vocabulary(name)


@cache
def _load_vocabulary(name: str) -> Callable[[str], int] | None:
    try:
        from splintr import Tokenizer
    except ImportError:
        return None
    try:
        encode = Tokenizer.from_pretrained(name).encode_ordinary
    except ValueError:
        return None

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:  # a lone surrogate
            return len(encode(fix_surrogates(text)))

    return count


FOREIGN_BLOCK_TOKENS = 12  # the line that replaces another provider's block
SHORT, SHORT_KEPT = 32, 4_096
TEXT_FILE_TOKENS = 24  # the lines around a text file, with its name
SERVER_TOOL_TOKENS = 200  # a tool that the provider runs itself; the size of its definition is not published
FORCED_TOOL_TOKENS = 30  # name and description of a tool that a gateway makes from a response schema
LOADED_TOOL_TOKENS = 75  # a tool that a tool search has found, above its reference; its definition is elsewhere
CACHED_CONTENT_TOKENS = 4_096  # content that the provider holds: the least that most models take
FILE_IN_BLOCK = 2_000  # characters of a text in a provider's block that is longer than this and has no blanks: a file
SEALED_FIELDS = ("encrypted_content", "signature", "thoughtSignature")
COMPACTION_CHARACTERS = 7.2  # characters per token of an encrypted summary, less than reasoning has
TOOL_REFERENCE = '"tool_reference"'
UNREAD_KEYWORDS = ("additionalProperties", "required", "strict")


@final
class TokenCounter:
    """Token counter of one model. `exact` is True if text is counted by the model's vocabulary.

    The overhead of messages, calls and tools is always an empirical figure.
    """

    __slots__ = ("_profile", "count_text", "exact", "overhead", "provider", "tokenizer")

    count_text: Callable[[str], int]
    """Returns the tokens of a text, without message overhead."""
    tokenizer: str
    """The name under which counts are stored. It contains everything that affects a count."""
    exact: bool
    overhead: int
    """Tokens that every request adds."""

    def __init__(self, tokenizer: str, provider: str, figures: OverheadProfile) -> None:
        counted = load_vocabulary(figures.vocabulary) if figures.vocabulary else None
        self.exact = counted is not None
        self.count_text = counted or _make_estimator(figures.factor)
        self.provider = provider
        self.overhead = figures.request
        self.tokenizer = f"{tokenizer}{'' if counted else '~'}/{figures.name}/{provider}/{VERSION}"
        self._profile = figures

    def __repr__(self) -> str:
        return f"Counter({self.tokenizer!r}, exact={self.exact})"

    def count_message(self, message: Message, *, blobs: Mapping[str, bytes] = {}) -> int:
        """Return the tokens of a message as sent, 0 if nothing of it is. `blobs` may have the bytes of its media."""
        parts = message.parts
        if len(parts) == 1:
            part = parts[0]
            if type(part) is Text and part.extra is None:
                return self.count_text(part.text) + self._frame(message, True)
            if type(part) is ToolResult:
                return self._result(part, blobs) + self._frame(message, True)
        counts = [count for part in parts if (count := self._part(part, blobs)) is not None]
        if not counts:
            return 0
        calls = sum([type(part) is ToolCall for part in parts])
        several = self._profile.parallel * calls if calls > 1 else 0
        return sum(counts) + several + self._frame(message, not calls)

    def _frame(self, message: Message, only_text: bool) -> int:
        figures = self._profile
        if message.role == "assistant" and only_text:
            return figures.message + figures.reply
        return 0 if message.role == "tool" else figures.message

    def _part(self, part: AnyPart, blobs: Mapping[str, bytes]) -> int | None:
        """Return the tokens of a part, None if it is not sent. Comparing types is faster than `isinstance`."""
        kind = type(part)
        if kind is Text:
            part = cast(Text, part)
            return self.count_text(part.text) + (self._signature(part) if part.extra else 0)
        if kind is ToolCall:
            return self._call(cast(ToolCall, part))
        if kind is ToolResult:
            return self._result(cast(ToolResult, part), blobs)
        if kind is Reasoning:
            return self._reasoning(cast(Reasoning, part))
        if kind is Media:
            return self._media(cast(Media, part), blobs)
        if kind is ProviderBlock:
            part = cast(ProviderBlock, part)
            return self._block(part.data) if part.provider == self.provider else FOREIGN_BLOCK_TOKENS
        return None

    def _block(self, data: JSONObject) -> int:
        """Return the tokens of a provider's block: its text, without what is encrypted in it or a file."""
        apart = 0
        characters = COMPACTION_CHARACTERS if data.get("type") == "compaction" else self._profile.sealed_characters

        def readable(value: JSON, name: str) -> JSON:
            nonlocal apart
            if isinstance(value, dict):
                return {key: readable(each, key) for key, each in cast(JSONObject, value).items()}
            if isinstance(value, list):
                return [readable(each, name) for each in cast(list[JSON], value)]
            if isinstance(value, str) and name in SEALED_FIELDS:
                apart += max(ceil((len(value) - self._profile.sealed_frame) / characters), 0)
                return ""
            if isinstance(value, str) and len(value) > FILE_IN_BLOCK and not (" " in value or "\n" in value):
                apart += PAGE_TOKENS[self._profile.image_rule]
                return ""
            return value

        text = dump_json(readable(data, ""))
        return self.count_text(text) + apart + LOADED_TOOL_TOKENS * text.count(TOOL_REFERENCE)

    def _call(self, call: ToolCall) -> int:
        arguments = call.raw if call.raw is not None else encode(call.arguments).decode()
        signature = self._signature(call) if call.extra else 0
        return self._profile.call + self.count_text(call.name) + self.count_text(arguments) + signature

    def _result(self, result: ToolResult, blobs: Mapping[str, bytes]) -> int:
        figures, content = self._profile, result.content
        tokens = 0
        if type(content) is str:
            tokens = self.count_text(content)
            if result.extra and TOOL_REFERENCE in content:
                tokens += LOADED_TOOL_TOKENS * content.count(TOOL_REFERENCE)
        if type(content) is tuple:
            tokens = sum(
                [
                    self.count_text(each.text)
                    if isinstance(each, Text)
                    else self._media(each, blobs) * (figures.result_links or not _is_link(each))
                    for each in content
                ]
            )
        name = self.count_text(result.name) if figures.result_names else 0
        return figures.message + figures.result + name + tokens

    def _reasoning(self, reasoning: Reasoning) -> int | None:
        if reasoning.provider != self.provider:
            return None
        if self._profile.keeps_reasoning == "never":
            return 0
        if reasoning.data:
            return self._sealed(reasoning.data)
        if reasoning.text:
            return self.count_text(reasoning.text)
        return self._sealed(reasoning.signature or "")

    def _media(self, media: Media, blobs: Mapping[str, bytes]) -> int:
        data = blobs.get(media.blob) if media.blob else media.data
        if (text := read_text_file(media, data)) is not None:
            return self.count_text(text) + TEXT_FILE_TOKENS
        return count_media_tokens(media, self._profile.image_rule, data)

    def _signature(self, part: Text | ToolCall) -> int:
        """Return the tokens of a thought signature, which Gemini attaches to the part after its thoughts."""
        if self._profile.keeps_reasoning == "never":
            return 0
        signature = (part.extra or {}).get(self.provider, {}).get("thoughtSignature")
        return self._sealed(signature) if isinstance(signature, str) else 0

    def _sealed(self, data: str) -> int:
        """Return the tokens of encrypted reasoning, estimated from its length without the wrapper."""
        return max(ceil((len(data) - self._profile.sealed_frame) / self._profile.sealed_characters), 0)

    @property
    def keeps_reasoning(self) -> ReasoningRetention:
        """The time for which returned reasoning counts as input."""
        return self._profile.keeps_reasoning

    def count_reasoning(self, message: Message) -> int:
        """Return the reasoning tokens in `message()`, which some providers drop at the next user message."""
        found = 0
        for part in message.parts:
            if type(part) is Reasoning:
                found += self._reasoning(part) or 0
            elif type(part) is Text or type(part) is ToolCall:
                found += self._signature(part) if part.extra else 0
        return found

    def count_replayed(self, reply: Message, *, same_turn: bool = True) -> int:
        """Return the output tokens of a reply that the next request sends back, from its usage if that is complete."""
        usage, thoughts = reply.usage, self.count_reasoning(reply)
        keeps = self.keeps_reasoning
        back = thoughts > 0 and (keeps == "always" or (keeps == "turn" and same_turn))
        if usage is None or not usage.output or (not back and thoughts > 0 and not usage.reasoning):
            return self.count_message(reply) - (0 if back else thoughts)
        return usage.output if back else max(usage.output - usage.reasoning, 0)

    def count_system(self, text: str) -> int:
        """Return the tokens of the system prompt, 0 if it is blank."""
        return self.count_text(text) + self._profile.system if text and not text.isspace() else 0

    def count_tools(self, tools: Sequence[JSONObject]) -> int:
        """Return the tokens of tool definitions. A deferred tool costs nothing until a search has found it."""
        figures = self._profile
        if not tools:
            return 0
        found, others = split_functions(list(iter_loaded_tools(tools)))
        tokens = figures.tools + sum([self._server_tool(each) for each in others])
        with_parameters = sum([bool(get_properties(each.parameters)) for each in found])
        tokens += figures.tool * len(found) + figures.tool_with_parameters * with_parameters
        match figures.tool_form:
            case "typescript":
                return tokens + self.count_text(HEAD + "".join([_render_declaration(each) for each in found]) + TAIL)
            case "json":
                return tokens + sum([self.count_text(dump_json(each._asdict())) for each in found])
            case "properties":
                taken = [get_properties(each.parameters) for each in found]
                parameters = sum([self.count_text(dump_json(each)) for each in taken if each])
                return (
                    tokens
                    + parameters
                    + sum([self.count_text(each.name) + self.count_text(each.description) for each in found])
                )
            case "texts":
                return tokens + sum([self.count_text(each.name) + self.count_text(each.description) for each in found])
            case "names":
                return tokens + sum([self.count_text(each.name) for each in found])

    def _server_tool(self, tool: JSONObject) -> int:
        kind = tool.get("type")
        name = kind if isinstance(kind, str) else next(iter(tool), "")
        if name.startswith("openrouter:"):  # run by the gateway, which does not name it to the model
            return 0
        known = [tokens for start, tokens in self._profile.server_tools.items() if name.startswith(start)]
        return known[0] if known else self.count_text(dump_json(tool)) + SERVER_TOOL_TOKENS

    def count_settings(self, settings: JSONObject, *, has_tools: bool = False) -> int:
        """Return the tokens of other request settings in any format: a schema, a tool choice, reasoning.

        `has_tools` is True if the request has tools, whose instructions `count_tools` counts.
        """
        figures = self._profile
        tokens = self._schema(settings, has_tools)
        if _has_reasoning(settings):
            tokens += figures.thinking
        if _must_call(settings):
            tokens += figures.choice
        if _look_up(settings, ("output_config", "task_budget")):
            tokens += figures.task_budget
        if settings.get("cachedContent"):
            tokens += CACHED_CONTENT_TOKENS
        return tokens

    def reads_schema(self, settings: JSONObject) -> bool:
        """Return True if the settings have a response schema that counts as input."""
        return self._profile.schema_form != "none" and bool(settings) and _output_schema(settings) is not None

    def _schema(self, settings: JSONObject, has_tools: bool) -> int:
        figures, schema = self._profile, _output_schema(settings)
        if schema is None or figures.schema_form == "none":
            return 0
        if figures.schema_form == "compact":
            return (
                self.count_text(json.dumps(_without_constraints(schema), ensure_ascii=False, separators=(",", ":")))
                + figures.schema
            )
        tokens = self.count_text(dump_json(schema))
        if figures.schema_form == "tool" and "response_format" in settings:
            return tokens + FORCED_TOOL_TOKENS + figures.choice + (0 if has_tools else figures.tools)
        return tokens + figures.schema


def _is_link(media: Media) -> bool:
    return media.data is None and media.blob is None


def iter_loaded_tools(tools: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield the tools that are not deferred, also those of a namespace."""
    for tool in tools:
        if any(_look_up(tool, (*place, "defer_loading")) is True for place in ((), ("function",), ("default_config",))):
            continue
        inside = tool.get("tools")
        if tool.get("type") == "namespace" and isinstance(inside, list):
            yield from iter_loaded_tools(
                cast(JSONObject, each) for each in cast(list[JSON], inside) if isinstance(each, dict)
            )
        else:
            yield tool


def _look_up(settings: JSONObject, path: Sequence[str]) -> JSON:
    value: JSON = settings
    for name in path:
        value = cast(JSONObject, value).get(name) if isinstance(value, dict) else None
    return value


def _asks_to_reason(settings: JSONObject) -> bool:
    """Return True if the settings of any format turn reasoning on, also if the model decides how much."""
    adaptive = _look_up(settings, ("thinking", "type")) == "adaptive"
    return adaptive or bool(_look_up(settings, ("generationConfig", "thinkingConfig"))) or _has_reasoning(settings)


def _has_reasoning(settings: JSONObject) -> bool:
    """Return True if the settings of any format turn reasoning on, and the model does not decide itself."""
    for path in (("thinking",), ("additionalModelRequestFields", "thinking")):
        if (thinking := _look_up(settings, (*path, "type"))) is not None:
            return thinking == "enabled"
    reasoning = settings.get("reasoning")
    if isinstance(reasoning, dict):
        chosen = cast(JSONObject, reasoning)
        return chosen.get("enabled") is not False and chosen.get("effort") != "none"
    return settings.get("reasoning_effort") not in (None, "none")


def _must_call(settings: JSONObject) -> bool:
    """Return True if the settings of any format make the model call a tool."""
    choice = settings.get("tool_choice")
    if isinstance(choice, dict):
        return cast(JSONObject, choice).get("type") in ("any", "tool", "function")
    forced = _look_up(settings, ("toolConfig", "toolChoice"))
    return choice in ("required", "any") or (isinstance(forced, dict) and ("any" in forced or "tool" in forced))


def _without_constraints(schema: JSON, *, named: bool = False) -> JSON:
    """Return a schema without the keywords that only constrain what is generated. `named` is True for properties."""
    if isinstance(schema, dict):
        return {
            name: _without_constraints(each, named=name in ("properties", "$defs") and not named)
            for name, each in cast(JSONObject, schema).items()
            if named or name not in UNREAD_KEYWORDS
        }
    if isinstance(schema, list):
        return [_without_constraints(each) for each in cast(list[JSON], schema)]
    return schema


def _output_schema(settings: JSONObject) -> JSON:
    """Return the response schema from the settings of any format."""
    for path in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
        ("outputConfig", "textFormat", "structure", "jsonSchema", "schema"),
        ("generationConfig", "responseJsonSchema"),
        ("generationConfig", "responseSchema"),
    ):
        value = _look_up(settings, path)
        if isinstance(value, str):  # Bedrock takes it as text
            try:
                value = json.loads(value)
            except ValueError:
                continue
        if isinstance(value, dict):
            return cast(JSON, value)
    return None


def _make_estimator(factor: float) -> Callable[[str], int]:
    @lru_cache(SHORT_KEPT)
    def short(text: str) -> int:
        return ceil(estimate_tokens(text) * factor)

    def count(text: str) -> int:
        return short(text) if len(text) <= SHORT else ceil(estimate_tokens(text) * factor)

    return count


@cache
def get_counter(tokenizer: str, *, provider: str = "", model: str = "") -> TokenCounter:
    """Return the counter of a model. `provider` selects whose reasoning is sent back, `model` the overhead figures."""
    return TokenCounter(tokenizer, provider, find_profile(tokenizer, provider, model))


# ── counts that are stored ────────────────────────────────────────────────────────────────────────────────────────────
# Stored token counts, by content hash and tokenizer name, and the calibration of estimates.
#
# A stored count never changes: another formula has another name (`Counter.tokenizer`). The functions take a
# transaction; the SQL works on SQLite and PostgreSQL.
#
# The calibration factor of a model is learned from the usage that its provider reports, for each kind of request by
# itself: an error in the count of tools, a schema or reasoning says nothing about requests without them. Early samples
# change it quickly, later ones slowly. It stays between 0.5 and 2; larger differences are overhead of the channel and
# counted there. Small requests are ignored, because overhead dominates them.


MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
MIN_TOKENS = 50
MIN_WEIGHT = 0.05  # the weight of a new sample after many


class Calibration(Struct, frozen=True, gc=False):
    """The correction factor for the estimates of one model, and the number of samples."""

    factor: float = 1.0
    samples: int = 0

    def with_sample(self, estimated: int, real: int) -> "Calibration":
        """Return the calibration after one more request: its uncorrected estimate and its real count."""
        if estimated < MIN_TOKENS or real < MIN_TOKENS:
            return self
        share = max(1 / (self.samples + 1), MIN_WEIGHT)
        seen = min(max(real / estimated, MIN_FACTOR), MAX_FACTOR)
        return Calibration(self.factor + (seen - self.factor) * share, self.samples + 1)

    def apply(self, estimated: int) -> int:
        return round(estimated * self.factor)


def request_kind(counter: TokenCounter, settings: JSONObject, *, has_tools: bool) -> str:
    """Return what a request has besides messages, as the part of a calibration's name after the model.

    It is empty for plain messages, and `+tools+schema+reasoning` for a request with all three.
    """
    has = (has_tools, counter.reads_schema(settings), bool(settings) and _asks_to_reason(settings))
    return "".join([name for name, here in zip(REQUEST_KINDS, has, strict=True) if here])


REQUEST_KINDS = ("+tools", "+schema", "+reasoning")


def estimate_next_input(last_input: int, replayed_output: int, new_estimate: int) -> int:
    """Return the tokens of the next request, from the real count of the last one.

    `last_input` is the provider's count including cache reads and writes. `replayed_output` is the part of the reply
    that is sent back. `new_estimate` is the estimate of everything after it.
    """
    return last_input + replayed_output + new_estimate


HASHES_PER_QUERY = 500


class DialectLike(Protocol):
    @property
    def skip_locked(self) -> str: ...


class TransactionLike(Protocol):
    """The part of a store's transaction that this module needs."""

    @property
    def dialect(self) -> DialectLike: ...

    def send(self, sql: str, *values: object) -> None: ...

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None: ...

    # drivers do not type the values; the schema determines them
    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...


def load_counts(tx: TransactionLike, tokenizer: str, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """Return the stored counts of these content hashes."""
    found: dict[bytes, int] = {}
    for start in range(0, len(hashes), HASHES_PER_QUERY):
        some = hashes[start : start + HASHES_PER_QUERY]
        marks = ", ".join("?" * len(some))
        rows = tx.rows(
            f"SELECT hash, tokens FROM main.token_count WHERE tokenizer = ? AND hash IN ({marks})", tokenizer, *some
        )
        found.update((bytes(name), tokens) for name, tokens in rows)
    return found


def save_counts(tx: TransactionLike, tokenizer: str, counts: Mapping[bytes, int]) -> None:
    """Store counts. Existing ones are not changed."""
    if counts:
        tx.run_many(
            "INSERT INTO main.token_count (hash, tokenizer, tokens) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(name, tokenizer, tokens) for name, tokens in counts.items()],
        )


def load_calibrations(tx: TransactionLike, model: str) -> dict[str, Calibration]:
    """Return the stored calibrations of a model by kind of request."""
    names = ["".join(kinds) for kinds in product(*[("", kind) for kind in REQUEST_KINDS])]
    marks = ", ".join("?" * len(names))
    rows = tx.rows(
        f"SELECT model, factor, samples FROM main.calibration WHERE model IN ({marks})",
        *[model + name for name in names],
    )
    return {name.removeprefix(model): Calibration(factor, samples) for name, factor, samples in rows}


def save_calibration(tx: TransactionLike, model: str, calibration: Calibration, *, is_stored: bool = False) -> None:
    """Store a calibration under the name of a model and a kind of request. `is_stored`: one is known to be stored.

    All conversations share the row. It is skipped while another transaction changes it, so that a writer never waits
    for others that use the model.
    """
    learned = calibration.factor, calibration.samples
    if is_stored or tx.rows("SELECT 1 FROM main.calibration WHERE model = ?", model):
        tx.send(
            "UPDATE main.calibration SET factor = ?, samples = ? WHERE model IN"
            f" (SELECT model FROM main.calibration WHERE model = ?{tx.dialect.skip_locked})",
            *learned,
            model,
        )
    else:
        tx.send(
            "INSERT INTO main.calibration (model, factor, samples) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            model,
            *learned,
        )

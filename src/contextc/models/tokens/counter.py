"""Token counts of messages, tools and texts for one model.

A counter has no side effects, and caches only the counts of short texts such as tool names. One counter per tokenizer,
provider and model is shared by all threads. It counts only what is sent: no user notices, reasoning only for the
provider that it came from, and media by their dimensions.

The text counts are exact with the vocabularies of splintr, else an estimate.

The estimate takes byte counts in a few passes that run in C. Modern vocabularies agree on what costs a token: a run of
letters (more for a long one), a change from lower to upper case inside a word (as in base64 and identifiers), digits,
punctuation, line ends, and a fixed share of each character of another script. The weights were fitted against
o200k_base on prose in eleven languages, code, Markdown, JSON, tables, logs, hexadecimal and base64. The median error is
below 5 %, and no kind of text as a whole is off by more than 17 %. Vocabularies of other vendors are a multiple of it
(`overhead_profiles.py`).

A vocabulary is loaded once, on first use, which takes a tenth of a second. Without splintr, or for an unknown name, the
estimate is used. Special tokens in a text count as plain text and cannot be forged.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import ceil
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, punctuation
from threading import Lock
from typing import NamedTuple, cast, final

from contextc._json import JSON, JSONObject, encode, fix_surrogates
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import read_text_file
from contextc.models.tokens.overhead_profiles import (
    VERSION,
    OverheadProfile,
    ReasoningRetention,
    count_media_tokens,
    find_profile,
)

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


def render_typescript(found: Sequence[ToolFunction]) -> str:
    """Return the TypeScript namespace that OpenAI's models read."""
    return HEAD + "".join([_render_declaration(each) for each in found]) + TAIL


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
    kinds, words = data.translate(KINDS), data.translate(WORDS)
    rest = data.translate(None, LETTERS)
    plain = rest.translate(None, DIGITS)
    lines = plain.count(b"\n")
    shown = plain.translate(None, UNSEEN)
    tokens = (
        WORD * (words.count(b" a") + words.startswith(b"a"))
        + LETTER * (len(data) - len(rest))
        + CAPITAL_INSIDE * kinds.count(b"aA")
        + DIGIT * (len(rest) - len(plain))
        + PUNCTUATION_AGAIN * kinds.count(b"..")
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
        if len(parts) == 1 and type(part := parts[0]) is Text and part.extra is None:
            return self.count_text(part.text) + self._frame(message, True)
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
            return self.count_text(dump_json(part.data)) if part.provider == self.provider else FOREIGN_BLOCK_TOKENS
        return None

    def _call(self, call: ToolCall) -> int:
        arguments = call.raw if call.raw is not None else encode(call.arguments).decode()
        signature = self._signature(call) if call.extra else 0
        return self._profile.call + self.count_text(call.name) + self.count_text(arguments) + signature

    def _result(self, result: ToolResult, blobs: Mapping[str, bytes]) -> int:
        figures, content = self._profile, result.content
        tokens = self.count_text(content) if type(content) is str else 0
        if type(content) is tuple:
            tokens = sum(
                [self.count_text(each.text) if isinstance(each, Text) else self._media(each, blobs) for each in content]
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
        """When returned reasoning counts as input: always, until the next user message, or never."""
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
        """Return the tokens of tool definitions."""
        figures = self._profile
        if not tools:
            return 0
        found, others = split_functions(tools)
        tokens = figures.tools + sum([self.count_text(dump_json(each)) + SERVER_TOOL_TOKENS for each in others])
        with_parameters = sum([bool(get_properties(each.parameters)) for each in found])
        tokens += figures.tool * len(found) + figures.tool_with_parameters * with_parameters
        match figures.tool_form:
            case "typescript":
                return tokens + self.count_text(render_typescript(found))
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
            case "names":
                return tokens + sum([self.count_text(each.name) for each in found])

    def count_settings(self, settings: JSONObject) -> int:
        """Return the tokens of other request settings in any format: a schema, a tool choice, reasoning."""
        figures = self._profile
        schema = _output_schema(settings)
        tokens = 0 if schema is None else self.count_text(dump_json(schema)) + figures.schema
        thinking = settings.get("thinking")
        if isinstance(thinking, dict) and cast(JSONObject, thinking).get("type") in ("enabled", "adaptive"):
            tokens += figures.thinking
        choice = settings.get("tool_choice")
        if isinstance(choice, dict) and cast(JSONObject, choice).get("type") in ("any", "tool"):
            tokens += figures.choice
        return tokens


def _output_schema(settings: JSONObject) -> JSON:
    """Return the response schema from the settings of any format."""
    for path in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
        ("generationConfig", "responseJsonSchema"),
        ("generationConfig", "responseSchema"),
    ):
        value: JSON = settings
        for name in path:
            value = cast(JSONObject, value).get(name) if isinstance(value, dict) else None
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

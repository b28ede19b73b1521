"""The elements of a request: its tools, the blocks of its system prompt, and the content blocks of its messages.

An element has no position: requests share elements and sections. A section is a part of a request whose elements never
change: the head, or one row of the ledger. Cache breakpoints are not content, so they are removed.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler.body_splitting import MARK_FIELDS, MARK_NAMES, without_marks
from contextc.inspection.line_details import PART_SIZE

ElementKind: TypeAlias = Literal["tool", "system", "message"]
BlockType: TypeAlias = Literal["tool", "text", "tool_call", "tool_result", "reasoning", "media", "compaction", "other"]
SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
CONTENT_FIELDS = ("content", "parts")
IDENTITY_FIELDS = ("role", "type", "id", "status", "tool_call_id", "call_id", "tool_name", "phase")
"""Fields of a message that are no content of their own. Those that a model sees are part of the key of its content."""
UNSEEN_FIELDS = ("id", "status")
"""Fields of an item that no model sees."""
MEDIA_WEIGHT = 6_000
"""The weight of media in bytes, whose size has nothing to do with their tokens."""
MEDIA_TYPES = (
    *("image", "document", "image_url", "input_image", "input_audio", "input_file", "file", "inlineData", "fileData"),
    *("inline_data", "file_data", "video", "audio", "media"),
)
REASONING_TYPES = ("thinking", "redacted_thinking", "reasoning", "reasoningContent", "thought")
CALL_TYPES = ("tool_use", "toolUse", "functionCall", "function_call", "custom_tool_call", "server_tool_use", "function")
RESULT_TYPES = ("tool_result", "toolResult", "functionResponse", "function_response")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class Element(Struct, frozen=True, eq=False, gc=False):
    """One tool, system block or content block, in the order in which a provider caches them.

    `type` is what it is in any format. `name` is the name of the tool that is defined, called, or whose result it is;
    "" if it is not known. `call` is the id of the call. `key` identifies its content: JSON that a provider reads alike
    has the same key, whatever its spacing. `raw` are its bytes without cache breakpoints. `suffix` is its path within
    its message. `ttl` is that of a cache breakpoint which all requests with this element have; None if there is none.
    """

    kind: ElementKind
    type: BlockType
    role: str
    name: str
    call: str
    key: bytes
    raw: bytes
    suffix: str
    ttl: str | None = None

    @property
    def value(self) -> JSON:
        """The element as JSON."""
        return decode(self.raw)

    @property
    def text(self) -> str:
        """The text of the element: what a model reads, or else its JSON."""
        return text_of(self.value)


class Section(Struct, frozen=True, eq=False, gc=False):
    """A part of a request that other requests have too. `tokens` has the tokens of each element by our own count.

    `messages` has the index of the message of each element within the section. `ends` has the end of each element in
    the bytes of the section.
    """

    elements: tuple[Element, ...]
    tokens: tuple[int, ...]
    messages: tuple[int, ...]
    ends: tuple[int, ...]
    count: int
    """The number of messages."""
    total: int
    """Tokens of all elements."""
    is_marked: bool = False
    """True if one of its elements has a cache breakpoint in all requests."""
    has_media: bool = False
    raw: bytes = b""
    """The bytes of its messages, joined by commas; empty for a part of a row."""

    def without_last(self, drop: int) -> "Section":
        """Return the section without its last messages."""
        kept = bisect_left(self.messages, self.count - drop)
        return Section(
            self.elements[:kept],
            self.tokens[:kept],
            self.messages[:kept],
            self.ends[:kept],
            self.count - drop,
            sum(self.tokens[:kept]),
            self.is_marked,
            any([each.type == "media" for each in self.elements[:kept]]),
        )

    def index_at(self, offset: int) -> int:
        """Return the index of the element that a cache breakpoint at an offset belongs to."""
        return min(bisect_left(self.ends, offset), len(self.ends) - 1)


class Rows(Struct, frozen=True, eq=False):
    """The messages of a request as sections. `ends`, `totals` and `messages` have the number of elements, tokens and
    messages up to the end of each section. `marked` are the sections with cache breakpoints in all requests.
    """

    sections: tuple[Section, ...] = ()
    ends: tuple[int, ...] = ()
    totals: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    media: int | None = None
    """The first section with media; None if there is none."""

    def extended(self, added: Sequence[Section]) -> "Rows":
        """Return these rows and further ones."""
        if not added:
            return self
        size = len(self.sections)
        return Rows(
            (*self.sections, *added),
            (*self.ends, *_sums(self.ends, [len(each.elements) for each in added])),
            (*self.totals, *_sums(self.totals, [each.total for each in added])),
            (*self.messages, *_sums(self.messages, [each.count for each in added])),
            (*self.marked, *[size + index for index, each in enumerate(added) if each.is_marked]),
            next((size + index for index, each in enumerate(added) if each.has_media), None)
            if self.media is None
            else self.media,
        )

    def without_last(self, drop: int, shorten: "Callable[[Section, int], Section]") -> "Rows":
        """Return these rows without their last messages. `shorten` returns a section without some."""
        kept = list(self.sections)
        while drop and kept:
            last = kept.pop()
            if last.count > drop:
                kept.append(shorten(last, drop))
            drop = max(0, drop - last.count)
        return Rows().extended(kept)

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.ends[-1] if self.ends else 0


def _sums(before: Sequence[int], values: Sequence[int]) -> list[int]:
    return list(accumulate(values, initial=before[-1] if before else 0))[1:]


class Head(Struct, frozen=True, eq=False):
    """Everything of a request but its messages. `tools`, `system` and `leading` (system messages at the start) are
    sections; their tokens differ by request. `settings` are all other fields.
    """

    tools: Section
    system: Section
    leading: Section
    settings: JSONObject
    messages_key: str
    raw: bytes


def make_element(
    kind: ElementKind,
    type: BlockType | None,
    role: str,
    raw: bytes,
    suffix: str,
    *,
    call: str = "",
    ttl: str | None = None,
) -> Element:
    """Return an element from its bytes. Without `type`, its type is read from its JSON."""
    value: JSON = decode(raw)
    if any(name in raw for name in MARK_NAMES):
        ttl = _find_ttl(value) if ttl is None else ttl
        value = without_marks(value)
        raw = encode(value)
    fields = as_object(value)
    block_type = type or classify(str(fields.get("type") or next(iter(fields), "text")), fields)
    name, id = _tool_of(fields) if fields else ("", "")
    if kind == "tool":
        name = name or _text(fields.get("type")) or next(iter(fields), "")
    return Element(
        kind,
        block_type,
        role,
        name,
        call or id,
        _key(kind, block_type, role, call, value),
        raw,
        suffix,
        ttl,
    )


def classify(type: str, fields: JSONObject) -> BlockType:
    """Return the type of a block in any format. `type` is its own type, or the name of its first field."""
    if fields.get("thought") is True or type in REASONING_TYPES:
        return "reasoning"
    if type in ("text", "input_text", "output_text", "summary_text", "message", ""):
        return "text"
    names = (type, *fields) if fields else (type,)
    for name in names:
        if name in RESULT_TYPES or name.endswith(("_output", "_tool_result")):
            return "tool_result"
        if name in CALL_TYPES or name.endswith(("_call", "_use")):
            return "tool_call"
        if name in MEDIA_TYPES:
            return "media"
        if name.startswith("compaction"):
            return "compaction"
    return "other"


def text_of(value: JSON) -> str:
    """Return the text of a block, of a list of blocks, or of a result; for everything else its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join([text_of(each) for each in cast(list[JSON], value)])
    fields = as_object(value)
    for name in ("text", "thinking", "content", "output", "toolResult"):
        if name in fields and isinstance(fields[name], str | list | dict):
            return text_of(fields[name])
    return encode(value).decode()


def _key(kind: ElementKind, type: BlockType, role: str, call: str, value: JSON) -> bytes:
    fields = as_object(value)
    text = value if isinstance(value, str) else None
    if fields.keys() == {"type", "text"} or fields.keys() == {"text"}:
        text = fields["text"]  # a list of one plain text equals the text
    if isinstance(text, str):
        content = text.encode("utf-8", "surrogatepass")
    else:
        content = encode(
            {name: each for name, each in fields.items() if name not in UNSEEN_FIELDS} if fields else value
        )
        if kind == "message" and "id" in fields and type in ("tool_call", "tool_result"):
            content += str(fields["id"]).encode() if "call_id" not in fields else b""
    label = f"{kind}\0{role}\0{call}\0{'' if isinstance(text, str) else type}\0"
    return blake2b(label.encode("utf-8", "surrogatepass") + content, digest_size=12).digest()


def weigh(element: Element) -> int:
    """Return the weight by which the tokens of a section are distributed: bytes, but less for media."""
    size = len(element.raw) + PART_SIZE
    return min(size, MEDIA_WEIGHT) if element.type == "media" else size


def _tool_of(fields: JSONObject) -> tuple[str, str]:
    """Return the name of the tool in a definition, a call or a result, and the id of the call."""
    for name in ("function", "toolSpec", "toolUse", "toolResult", "functionCall", "functionResponse"):
        inner = as_object(fields.get(name))
        if inner:
            id = inner.get("toolUseId") or inner.get("id") or fields.get("id")
            return _text(inner.get("name")), _text(id)
    id = fields.get("tool_use_id") or fields.get("call_id") or fields.get("id")
    return _text(fields.get("name")), _text(id)


def _find_ttl(value: JSON) -> str | None:
    """Return the ttl of the last cache breakpoint in an element; "" if it has the default one."""
    fields = as_object(value)
    for name in MARK_FIELDS:
        if as_object(fields.get(name)):
            return _text(as_object(fields[name]).get("ttl"))
    inside = [fields[name] for name in ("content", "output", "parts") if isinstance(fields.get(name), list)]
    found = [_find_ttl(each) for blocks in inside for each in cast(list[JSON], blocks)]
    return next((each for each in reversed(found) if each is not None), None)


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""

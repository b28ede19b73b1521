"""The requests of a conversation as elements in cache order, for everything that analyses them.

Each row of the ledger and each head is read and parsed once. Requests share sections, so prefixes are compared by
identity. Text is decoded only where it is asked for.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, groupby, takewhile
from typing import Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler.draft import Budget, distribute
from contextc.compiler.head_parts import PART_SIZE, weigh_definition
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import MARK_BLOCK, MARK_FIELDS, MARK_NAMES, without_marks
from contextc.compiler.step import MESSAGES_PLACEHOLDER
from contextc.inspection.request_timeline import KeepsResults, SentRequest
from contextc.messages import Usage
from contextc.models import Model, Price
from contextc.models.billing import apply_price
from contextc.store.conversation_list import ObservedSource
from contextc.store.ledger_schema import Channel, Item
from contextc.store.turn_records import StepRecord

# ── elements ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# The elements of a request: its tools, the blocks of its system prompt, and the content blocks of its messages.
#
# An element has no position: requests share elements and sections. A section is a part of a request whose elements
# never change: the head, or one row of the ledger. Cache breakpoints are not content, so they are removed.


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
ADDED_TOOLS = "additional_tools"
"""The type of an item that defines tools in the middle of a conversation."""
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
        name = name or _string(fields.get("type")) or next(iter(fields), "")
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
    if type == "tool_addition" and _added_definition(fields):
        return "tool"
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
    """Return the weight by which the tokens of a section are distributed: bytes, but less for media, and nothing for
    tools whose loading is deferred.
    """
    if element.kind == "tool":
        return weigh_definition(element.raw)
    size = len(element.raw) + PART_SIZE
    return min(size, MEDIA_WEIGHT) if element.type == "media" else size


def _tool_of(fields: JSONObject) -> tuple[str, str]:
    """Return the name of the tool in a definition, a call or a result, and the id of the call."""
    if definition := _added_definition(fields):
        return _string(definition.get("name")), ""
    for name in ("function", "toolSpec", "toolUse", "toolResult", "functionCall", "functionResponse"):
        inner = as_object(fields.get(name))
        if inner:
            id = inner.get("toolUseId") or inner.get("id") or fields.get("id")
            return _string(inner.get("name")), _string(id)
    id = fields.get("tool_use_id") or fields.get("call_id") or fields.get("id")
    return _string(fields.get("name")), _string(id)


def _added_definition(fields: JSONObject) -> JSONObject:
    """Return the definition of a tool in a block that adds it in the middle of a conversation; empty otherwise."""
    return as_object(as_object(fields.get("tool")).get("definition"))


def _find_ttl(value: JSON) -> str | None:
    """Return the ttl of the last cache breakpoint in an element; "" if it has the default one."""
    fields = as_object(value)
    for name in MARK_FIELDS:
        if as_object(fields.get(name)):
            return _string(as_object(fields[name]).get("ttl"))
    inside = [fields[name] for name in ("content", "output", "parts") if isinstance(fields.get(name), list)]
    found = [_find_ttl(each) for blocks in inside for each in cast(list[JSON], blocks)]
    return next((each for each in reversed(found) if each is not None), None)


def _string(value: JSON) -> str:
    return value if isinstance(value, str) else ""


# ── elements and items of the ledger ──────────────────────────────────────────────────────────────────────────────────
# Align the elements of a section with the items of the ledger that they were made from: both have the same tokens.
#
# The inspector lists items, and findings and compositions are about elements. The tokens of the elements of an item
# add up to those of the item.


ROLES = {
    "user": "user", "assistant": "assistant", "model": "assistant", "system": "system", "developer": "system",
    "tool": "tool", "function": "tool",
}  # fmt: skip


def align_items(section: Section, items: Sequence[Item]) -> list[int | None]:
    """Return the index of the item of each element of a section; None if it is not certain.

    Items and elements are compared by role, in their order. Several items may be one message, and one item several
    elements.
    """
    if len(items) <= 1:
        return [0 if items else None] * len(section.elements)
    runs = [(role, list(some)) for role, some in groupby(range(len(items)), lambda index: _item_role(items[index]))]
    found: list[int | None] = []
    at = 0
    elements = list(zip(section.elements, section.messages, strict=True))
    for role, group in groupby(elements, lambda each: _element_role(each[0])):
        some = list(group)
        while at < len(runs) and runs[at][0] != role:
            at += 1
        places = (
            [index for index in runs[at][1] for _ in range(_count_elements(items[index]))] if at < len(runs) else []
        )
        found += _match_places(some, places)
        at += 1
    return found


def split_count_elements(section: Section, items: Sequence[Item]) -> tuple[int, ...]:
    """Return the tokens of each element of a section: those of its item, by size if the item has several elements.

    The tokens of the section itself are returned if it is not certain which elements belong to an item.
    """
    places: dict[int, list[int]] = {}
    for number, place in enumerate(align_items(section, items)):
        if place is None:
            return section.tokens
        places.setdefault(place, []).append(number)
    if any([item.tokens and index not in places for index, item in enumerate(items)]):
        return section.tokens
    found = [0] * len(section.elements)
    for index, numbers in places.items():
        shares = distribute(items[index].tokens, [weigh(section.elements[number]) for number in numbers])
        for number, tokens in zip(numbers, shares, strict=True):
            found[number] = tokens
    return tuple(found)


def _match_places(elements: Sequence[tuple[Element, int]], places: Sequence[int]) -> list[int | None]:
    """Return the place of each element of one role."""
    if not places:
        return [None] * len(elements)
    if len({*places}) == 1:
        return [places[0]] * len(elements)
    for keys in (
        [element.call if element.type == "tool_result" else index for index, (element, _) in enumerate(elements)],
        [message for _, message in elements],
    ):
        order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(order) == len(places):
            return [places[order[key]] for key in keys]
    return [None] * len(elements)


def _item_role(item: Item) -> str:
    return "user" if item.role == "system" else item.role


def _element_role(element: Element) -> str:
    role = "tool" if element.type == "tool_result" else ROLES.get(element.role, "user")
    return "user" if role == "system" else role


def _count_elements(item: Item) -> int:
    return max(1, len(item.only) or item.results) if item.role == "tool" else 1


# ── parsing of stored bytes ───────────────────────────────────────────────────────────────────────────────────────────
# Parse the stored bytes of requests into elements and sections.


class _Block(NamedTuple):
    """A block of a message, with its end in the bytes of the message."""

    element: Element
    end: int


class ElementParser:
    """Parses bytes into elements and sections. What has the same bytes is the same object."""

    def __init__(self) -> None:
        self._messages: dict[tuple[bytes, bool], tuple[_Block, ...]] = {}
        self._sections: dict[tuple[bytes, int, tuple[int, ...]], Section] = {}
        self._blocks: dict[tuple[object, ...], Element] = {}
        self._sized: dict[tuple[int, int], Section] = {}
        self._shortened: dict[tuple[int, int], tuple[Section, Section]] = {}
        self._heads: dict[tuple[bytes, str], Head] = {}
        self._tools_sections: dict[tuple[tuple[str, bytes], ...], Section] = {}

    # ── sections ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def section(self, chunk: bytes, tokens: int, items: Sequence[Item] = ()) -> Section:
        """Return the section of a row: wire messages, joined by commas. `items` are those that it was made from: their
        elements have their tokens.
        """
        sizes = tuple([each.tokens for each in items]) if len(items) > 1 else ()
        key = (chunk, tokens, sizes)
        if (found := self._sections.get(key)) is None:
            found = msgspec.structs.replace(self._section(_split_list(b"[%b]" % chunk), tokens), raw=chunk)
            if sizes and sum(sizes) == tokens:
                found = msgspec.structs.replace(found, tokens=split_count_elements(found, items))
            self._sections[key] = found
        return found

    def redacted(self, place: int, tokens: int) -> Section:
        """Return the section of a row whose content was removed. It is equal to itself only."""
        key = (b"%d" % place, -tokens, ())
        if (found := self._sections.get(key)) is None:
            element = Element("message", "other", "", "", "", key[0], b'""', "")
            found = self._sections[key] = _make_section([(0, _Block(element, 0))], 1, tokens)
        return found

    def sized(self, section: Section, tokens: int) -> Section:
        """Return a section of a head with its tokens. The head must be kept as long as this parser."""
        key = (id(section), tokens)
        if (found := self._sized.get(key)) is None:
            shares = tuple(distribute(tokens, [weigh(each) for each in section.elements]))
            found = msgspec.structs.replace(section, tokens=shares, total=tokens if shares else 0)
            self._sized[key] = found
        return found

    def shortened(self, section: Section, drop: int) -> Section:
        """Return a section without its last messages."""
        key = (id(section), drop)
        if (found := self._shortened.get(key)) is None:
            found = self._shortened[key] = section, section.without_last(drop)
        return found[1]

    def head(self, raw: bytes, messages_key: str) -> Head:
        """Return the head of a request, whose conversation is a placeholder."""
        if (found := self._heads.get((raw, messages_key))) is None:
            found = self._heads[raw, messages_key] = self._read_head(raw, messages_key)
        return found

    def _read_head(self, raw: bytes, messages_key: str) -> Head:
        try:
            fields = _decode_fields(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            fields = {}
        settings: JSONObject = {}
        tools: dict[str, bytes] = {}
        system: list[_Block] = []
        leading: list[bytes] = []
        for name, value in fields.items():
            data = bytes(value)
            if name == "tools":
                tools["tools"] = data
            elif name == "toolConfig":
                config = _fields_of(data)
                tools["toolConfig.tools"] = config.pop("tools", b"[]")
                settings |= {f"toolConfig.{each}": decode(rest) for each, rest in config.items()}
            elif name in SYSTEM_FIELDS:
                system += self._system(name, data)
            elif name == messages_key:
                leading = list(takewhile(lambda each: decode(each) != MESSAGES_PLACEHOLDER, _split_list(data)))
            else:
                settings[name] = decode(data)
        return Head(
            self._tools_section(tuple(tools.items())),
            _make_section([(0, each) for each in system], 0, 0),
            self._section(leading, 0, kind="system"),
            settings,
            messages_key,
            raw,
        )

    def _tools_section(self, lists: tuple[tuple[str, bytes], ...]) -> Section:
        if (found := self._tools_sections.get(lists)) is None:
            blocks = [each for path, data in lists for each in self._tools(_split_list(data), path)]
            found = self._tools_sections[lists] = _make_section([(0, each) for each in blocks], 0, 0)
        return found

    def _section(self, messages: Sequence[bytes], tokens: int, kind: ElementKind = "message") -> Section:
        found: list[tuple[int, _Block]] = []
        start = 0
        for index, raw in enumerate(messages):
            blocks = self._message(raw, kind)
            found += [(index, each._replace(end=start + each.end)) for each in blocks]
            start += len(raw) + 1
        return _make_section(found, len(messages), tokens)

    # ── elements ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tools(self, tools: Sequence[bytes], path: str) -> Iterator[_Block]:
        for index, raw in enumerate(tools):
            value = as_object(decode(raw))
            if value.keys() == {MARK_BLOCK}:
                continue
            declarations = value.get("functionDeclarations") or value.get("function_declarations")
            if isinstance(declarations, list):
                name = "functionDeclarations" if "functionDeclarations" in value else "function_declarations"
                for number, each in enumerate(_split_list(_fields_of(raw).get(name, b"[]"))):
                    yield _Block(self._element("tool", "tool", "", each, f"{path}[{index}].{name}[{number}]"), 0)
                continue
            yield _Block(self._element("tool", "tool", "", raw, f"{path}[{index}]", ttl=_ttl_after(tools, index)), 0)

    def _system(self, name: str, raw: bytes) -> Iterator[_Block]:
        if raw[:1] == b"{":  # Gemini
            parts = _fields_of(raw).get("parts", b"[]")
            raw, name = parts if parts[:1] == b"[" else b"[%b]" % parts, f"{name}.parts"
        if raw[:1] != b"[":
            if raw != b"null":
                yield _Block(self._element("system", "text", "system", raw, name), 0)
            return
        blocks = _split_list(raw)
        for index, each in enumerate(blocks):
            if _is_mark_block(each):
                continue
            ttl = _ttl_after(blocks, index)
            yield _Block(self._element("system", "text", "system", each, f"{name}[{index}]", ttl=ttl), 0)

    def _message(self, raw: bytes, kind: ElementKind) -> tuple[_Block, ...]:
        key = (raw, kind == "system")
        if (found := self._messages.get(key)) is None:
            found = tuple(self._read_message(raw, kind))
            if found:  # a breakpoint after the last block belongs to it
                found = (*found[:-1], found[-1]._replace(end=len(raw)))
            self._messages[key] = found
        return found

    def _read_message(self, raw: bytes, kind: ElementKind) -> Iterator[_Block]:
        if raw[:1] != b"{":
            yield _Block(self._element(kind, "text", "user", raw, ""), len(raw))
            return
        fields = _decode_fields(raw)
        facts = {name: decode(fields[name]) for name in IDENTITY_FIELDS if name in fields}
        role, item_type = str(facts.get("role") or ""), str(facts.get("type") or "")
        content = next((name for name in CONTENT_FIELDS if name in fields), "")
        is_addition = item_type == ADDED_TOOLS
        if not (role or is_addition or (item_type == "message" and content)):  # an item of the Responses API
            yield _Block(self._element(kind, classify(item_type, {}), _role_of(item_type), raw, ""), len(raw))
            return
        call = str(facts.get("tool_call_id") or "")
        is_result = role == "tool" or bool(call)
        at = 0
        for name, value in fields.items():
            data = bytes(value)
            at = raw.find(data, at)
            end = at + len(data)
            if name == content:
                whole = data
                if whole[:1] != b"[":
                    if whole not in (b"null", b'""'):
                        element = self._element(
                            kind, "tool_result" if is_result else "text", role, whole, f".{name}", call=call
                        )
                        yield _Block(element, end)
                    at = end
                    continue
                inside, blocks = at, _split_list(whole)
                for index, block in enumerate(blocks):
                    inside = raw.find(block, inside) + len(block)
                    if _is_mark_block(block):
                        continue
                    type: BlockType | None = "tool_result" if is_result else None
                    ttl = _ttl_after(blocks, index)
                    element = self._element(kind, type, role, block, f".{name}[{index}]", call=call, ttl=ttl)
                    yield _Block(element, inside)
            elif is_addition and name == "tools":
                inside = at
                for index, each in enumerate(_split_list(data)):
                    inside = raw.find(each, inside) + len(each)
                    yield _Block(self._element(kind, "tool", role, each, f".{name}[{index}]"), inside)
            elif name == "tool_calls" and data[:1] == b"[":
                inside = at
                for index, each in enumerate(_split_list(data)):
                    inside = raw.find(each, inside) + len(each)
                    yield _Block(self._element(kind, "tool_call", role, each, f".{name}[{index}]"), inside)
            elif name not in IDENTITY_FIELDS and name not in MARK_FIELDS and data not in (b"null", b'""', b"[]"):
                type = "reasoning" if "reasoning" in name or "think" in name else "other"
                yield _Block(self._element(kind, type, role, data, f".{name}"), end)
            at = end

    def _element(
        self,
        kind: ElementKind,
        type: BlockType | None,
        role: str,
        raw: bytes,
        suffix: str,
        *,
        call: str = "",
        ttl: str | None = None,
    ) -> Element:
        known = (kind, type, role, raw, suffix, call, ttl)
        if (found := self._blocks.get(known)) is None:
            found = self._blocks[known] = make_element(kind, type, role, raw, suffix, call=call, ttl=ttl)
        return found


def _make_section(blocks: Sequence[tuple[int, _Block]], count: int, tokens: int) -> Section:
    elements = tuple([block.element for _, block in blocks])
    return Section(
        elements,
        tuple(distribute(tokens, [weigh(each) for each in elements])),
        tuple([index for index, _ in blocks]),
        tuple(accumulate([block.end for _, block in blocks], max)),
        count,
        tokens if elements else 0,
        any([each.ttl is not None for each in elements]),
        any([each.type == "media" or b'"image' in each.raw for each in elements]),
    )


def _role_of(type: str) -> str:
    return "tool" if type.endswith("_output") else "assistant"


def _ttl_after(blocks: Sequence[bytes], index: int) -> str | None:
    """Return the ttl of the cache breakpoint that is the next block; None if it is none."""
    if index + 1 >= len(blocks) or not _is_mark_block(blocks[index + 1]):
        return None
    return _string(as_object(as_object(decode(blocks[index + 1])).get(MARK_BLOCK)).get("ttl"))


def _is_mark_block(raw: bytes) -> bool:
    return b'"cachePoint"' in raw[:32] and as_object(decode(raw)).keys() == {MARK_BLOCK}


def _split_list(raw: bytes) -> list[bytes]:
    try:
        return [bytes(each) for each in _decode_list(raw)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _fields_of(raw: bytes) -> dict[str, bytes]:
    try:
        return {name: bytes(value) for name, value in _decode_fields(raw).items()}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


# ── kept results ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Results that are kept with what they were computed from, to be continued when requests are added to it.


T = TypeVar("T")


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


NO_USAGE = Usage()
MAX_SCALE = 3
UNCERTAIN_TOKENS = 2_000
LONG_TTLS = ("1h", "12h")
"""The times of cache breakpoints that are kept longer than by default, for a higher price."""


HeadPart: TypeAlias = Literal["tools", "system"]


class PlacedElement(NamedTuple):
    """An element of one request: its position in cache order, its path in the body, and its tokens as the inspector
    lists them.
    """

    position: int
    element: Element
    path: str
    tokens: int


class BudgetShare(NamedTuple):
    """A part of the budget of a request: the weights of its elements, by which its tokens are distributed."""

    weights: list[int]
    tokens: int


class RequestView(SentRequest):
    """A request with its content in cache order. `is_replaced` is True if the body was replaced before it was sent, so
    that it is stored whole.
    """

    def __init__(
        self,
        *,
        channel: "ChannelFacts",
        number: int,
        record: RequestRecord,
        head: Head,
        rows: Rows,
        parser: ElementParser,
        step: StepRecord | None = None,
        is_replaced: bool = False,
    ) -> None:
        super().__init__(channel.channel, number, record, step, channel.model)
        self._facts, self.head, self.rows, self.is_replaced = channel, head, rows, is_replaced
        system, leading = _split_tokens(record.budget.system, head)
        self.tools = parser.sized(head.tools, record.budget.tools)
        self.system = parser.sized(head.system, system)
        self.leading = parser.sized(head.leading, leading)

    def __repr__(self) -> str:
        return f"<request {self.number} of {self.channel}: {self.input:,} tokens, {self.status}>"

    def followed_by(self, record: RequestRecord, rows: Rows, parser: ElementParser) -> "RequestView":
        """Return another request of the same channel with the same head."""
        return RequestView(
            channel=self._facts, number=record.request, record=record, head=self.head, rows=rows, parser=parser
        )

    # ── facts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def channel_id(self) -> str:
        """The short id of the channel."""
        return self._facts.id

    @property
    def channel_number(self) -> int:
        """The number of the channel in its store. Channels that were recorded later have larger numbers."""
        return self._facts.number

    @property
    def format(self) -> str:
        """The name of the wire format."""
        return self._facts.format

    @cached_property
    def price(self) -> Price | None:
        """The price at which this request was billed; None if it is unknown. Without usage it is the list price."""
        if self.model is None:
            return None
        applied = apply_price(self.model, self.usage or Usage(input=self.input))
        return applied.price if applied is not None else None

    @property
    def settings(self) -> JSONObject:
        """All fields of the body but messages, system prompt and tools."""
        return self.head.settings

    @cached_property
    def usage(self) -> Usage | None:
        """The usage as the provider reported it; None if it reported none. If it does not say how long it keeps what it
        wrote, the breakpoints do.
        """
        usage = super().usage
        if usage is None or usage == NO_USAGE:
            return None
        return with_long_writes(usage, self.marks) if usage.cache_write and not usage.cache_write_long else usage

    @cached_property
    def input(self) -> int:
        """Input tokens: as the provider counted them, or else as estimated."""
        return self._budget.input

    @property
    def estimated(self) -> int:
        """Input tokens by our own count."""
        return self.record.budget.input

    @cached_property
    def scale(self) -> float:
        """The factor from our own count to the provider's; 1 if that includes what the request does not contain, such
        as results of tools that the provider ran. Our own count is that of all elements: the budget of a request of our
        own is calibrated, and its rows are not.
        """
        counted, charged = self.tokens_before(self.count) or self.estimated, self.input - self.overhead
        factor = charged / counted if counted else 1.0
        is_likely = 1 / MAX_SCALE <= factor <= MAX_SCALE or abs(charged - counted) < UNCERTAIN_TOKENS
        return factor if is_likely else 1.0

    @cached_property
    def overhead(self) -> int:
        """The tokens before the first element that the provider counted, and that the request does not contain."""
        return min(self.record.counted_budget.overhead, self.input)

    def charged_before(self, index: int) -> int:
        """Return the tokens before an element as the provider counts them, with the overhead."""
        return self.overhead + round(self.tokens_before(index) * self.scale) if index else 0

    def tokens_in_budget(self, start: int, tokens: int) -> int:
        """Return the tokens of a part of the messages as the inspector lists them: its share of the budget.

        `start` are the tokens of the messages before it, by our own count. Parts add up to what they are parts of.
        """
        first, last = self.tokens_before_ends([start, start + tokens])
        return last - first

    def tokens_before_ends(self, ends: Sequence[int]) -> list[int]:
        """Return the tokens of the messages up to some ends, likewise."""
        whole, total = self.rows.totals[-1] if self.rows.totals else 0, self._budget.messages
        return [total * end // whole for end in ends] if whole else [0] * len(ends)

    @cached_property
    def _head_shares(self) -> list["BudgetShare"]:
        budget = self._budget
        if not self._facts.caches_system_first:
            parts = [((self.tools,), budget.tools), ((self.system, self.leading), budget.system)]
        else:
            system, leading = _split_tokens(budget.system, self.head)
            parts = [((self.system,), system), ((self.tools,), budget.tools), ((self.leading,), leading)]
        return [
            BudgetShare([weigh(each) for section in sections for each in section.elements], tokens)
            for sections, tokens in parts
        ]

    @property
    def budget_shares(self) -> list["BudgetShare"]:
        """The parts of the budget in cache order: tools, system prompt, messages; and the weights of their elements."""
        whole = self.rows.totals[-1] if self.rows.totals else 0
        rows = BudgetShare(self.tokens(self.head_ends[2]), self._budget.messages if whole else 0)
        return [each for each in (*self._head_shares, rows) if each.weights]

    @cached_property
    def head_tokens(self) -> list[int]:
        """The tokens of each element before the messages, likewise."""
        return [tokens for each in self._head_shares for tokens in distribute(each.tokens, each.weights)]

    @property
    def tool_tokens(self) -> list[int]:
        """The tokens of each tool definition, likewise."""
        start = self.head_start("tools")
        return self.head_tokens[start : start + len(self.tools.elements)]

    @property
    def listed_tokens(self) -> list[int]:
        """The tokens of all elements in cache order, likewise."""
        return [tokens for each in self.budget_shares for tokens in distribute(each.tokens, each.weights)]

    @cached_property
    def _budget(self) -> Budget:
        return self.record.corrected_budget

    # ── elements ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def head_parts(self) -> tuple[HeadPart, HeadPart, HeadPart]:
        """The part of the request that each of `head_sections` belongs to."""
        return ("system", "tools", "system") if self._facts.caches_system_first else ("tools", "system", "system")

    @property
    def head_sections(self) -> tuple[Section, Section, Section]:
        """Tools, system prompt, and leading system messages, in cache order: Gemini has the system prompt first."""
        if self._facts.caches_system_first:
            return self.system, self.tools, self.leading
        return self.tools, self.system, self.leading

    @cached_property
    def head_ends(self) -> tuple[int, int, int]:
        """The number of elements up to the end of each of `head_sections`."""
        first, second, leading = [len(each.elements) for each in self.head_sections]
        return first, first + second, first + second + leading

    @cached_property
    def head_totals(self) -> tuple[int, int, int]:
        """The same in tokens, by our own count."""
        first, second, leading = [each.total for each in self.head_sections]
        return first, first + second, first + second + leading

    def head_start(self, part: HeadPart) -> int:
        """Return the number of elements before the tools, or before the system prompt."""
        return self.head_ends[0] if self.head_parts[1] == part else 0

    def head_tokens_before(self, part: HeadPart) -> int:
        """Return the same in tokens, by our own count."""
        return self.head_totals[0] if self.head_parts[1] == part else 0

    def head_part_at(self, index: int) -> HeadPart | None:
        """Return the part of the head that an element belongs to; None for messages."""
        return next((part for part, end in zip(self.head_parts, self.head_ends, strict=True) if index < end), None)

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections in cache order: those of the head, then rows."""
        return (*self.head_sections, *self.rows.sections)

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.head_ends[2] + self.rows.count

    def elements(self, start: int = 0) -> list[Element]:
        """Return the elements in cache order, from one on."""
        if start >= self.head_ends[2]:
            first, skip = self._find_row(start)
            found = list(chain.from_iterable([each.elements for each in self.rows.sections[first:]]))
            return found[skip:] if skip else found
        return list(chain.from_iterable([each.elements for each in self.sections]))[start:]

    def tokens(self, start: int = 0) -> list[int]:
        """Return the tokens of the elements by our own count. Multiply by `scale` for the provider's count."""
        if start >= self.head_ends[2]:
            first, skip = self._find_row(start)
            found = list(chain.from_iterable([each.tokens for each in self.rows.sections[first:]]))
            return found[skip:] if skip else found
        return list(chain.from_iterable([each.tokens for each in self.sections]))[start:]

    def tokens_before(self, index: int) -> int:
        """Return the tokens of the elements before one, by our own count."""
        if index >= self.head_ends[2]:
            row, skip = self._find_row(index)
            before = self.head_totals[2] + (self.rows.totals[row - 1] if row else 0)
            return before + (sum(self.rows.sections[row].tokens[:skip]) if skip else 0)
        return sum([tokens for section in self.head_sections for tokens in section.tokens][:index])

    def placed(self, start: int = 0) -> Iterator[PlacedElement]:
        """Return the elements with their paths and tokens, from one on."""
        _, head, leading = self.head_ends
        if start < head:
            fixed = [each for section in self.head_sections[:2] for each in section.elements]
            for index, element in enumerate(fixed[start:], start):
                yield PlacedElement(index, element, element.suffix, self.head_tokens[index])
        first, skip = self._find_row(max(start, leading))
        sections = self.rows.sections[first:]
        at, messages = leading + (self.rows.ends[first - 1] if first else 0), self._messages_before(first)
        if start < leading:
            sections, at, messages, skip = (self.leading, *self.rows.sections), head, 0, max(0, start - head)
        counted = self.tokens_before(max(start, leading)) - self.head_totals[2]
        for section in sections:
            for offset in range(skip, len(section.elements)):
                element, tokens, position = section.elements[offset], section.tokens[offset], at + offset
                path = f"{self.head.messages_key}[{messages + section.messages[offset]}]{element.suffix}"
                if position < leading:
                    yield PlacedElement(position, element, path, self.head_tokens[position])
                else:
                    yield PlacedElement(position, element, path, self.tokens_in_budget(counted, tokens))
                    counted += tokens
            at, messages, skip = at + len(section.elements), messages + section.count, 0

    def at(self, index: int) -> PlacedElement:
        """Return one element. A negative index counts from the end."""
        return next(self.placed(index if index >= 0 else self.count + index))

    def message_of(self, index: int) -> int:
        """Return the index of the message of an element; -1 for tools, the system prompt, and beyond the end."""
        _, head, leading = self.head_ends
        if index < leading:
            return self.leading.messages[index - head] if index >= head else -1
        row, inside = self._find_row(index)
        if row >= len(self.rows.sections):
            return -1
        return self._messages_before(row) + self.rows.sections[row].messages[inside]

    @property
    def message_count(self) -> int:
        """The number of messages, with leading system messages."""
        return self._messages_before(len(self.rows.sections))

    def _find_row(self, index: int) -> tuple[int, int]:
        """Return the row of an element, and the index of the element in it."""
        inside = index - self.head_ends[2]
        row = bisect_right(self.rows.ends, inside)
        return row, inside - (self.rows.ends[row - 1] if row else 0)

    def _messages_before(self, row: int) -> int:
        return self.leading.count + (self.rows.messages[row - 1] if row else 0)

    @cached_property
    def marks(self) -> dict[int, str]:
        """The cache breakpoints: the index of the last element before each, with its ttl ("" is the default)."""
        found: dict[int, str] = {}
        at = 0
        for section in self.head_sections:
            if section.is_marked:
                found |= {at + n: each.ttl for n, each in enumerate(section.elements) if each.ttl is not None}
            at += len(section.elements)
        facts, own, sections = self.record.observed, self.record.marks, self.rows.sections
        ends = self.rows.ends

        def start(row: int) -> int:
            return at + (ends[row - 1] if row else 0)

        for row in self.rows.marked:
            elements = sections[row].elements
            found |= {start(row) + n: each.ttl for n, each in enumerate(elements) if each.ttl is not None}
        if facts is not None:
            for row, marks in facts.marks.items():
                if row < len(sections) and sections[row].elements:
                    found |= {start(row) + sections[row].index_at(where): _ttl_of_mark(text) for where, text in marks}
        elif own:
            rows = {"end": len(sections), "previous": len(sections) - self.record.added}
            found |= {start(rows[each]) - 1: self.record.ttl for each in own if rows.get(each, 0) > 0}
        automatic = as_object(self.settings.get("cache_control"))
        if automatic and self.count:
            found[self.count - 1] = str(automatic.get("ttl") or "")
        return dict(sorted(found.items()))


class ChannelFacts(Struct, frozen=True):
    """The facts that all requests of a channel have in common."""

    channel: Channel
    number: int
    id: str
    format: str
    messages_key: str
    caches_system_first: bool
    model: Model | None


class ConversationView(KeepsResults):
    """All requests of a conversation, in the order in which they began.

    `source` is the client of an observed conversation, with its kind (main, agent or side) and its parent; None for a
    conversation of our own. `overlapping` are requests of other conversations that were still being answered when the
    first request of one of its channels began. `continued` is a request of another conversation whose messages the
    first request has: the client has no ids, and changed an earlier message, so that it was recorded as a new
    conversation.
    """

    def __init__(
        self,
        name: str,
        requests: Sequence[RequestView] = (),
    ) -> None:
        super().__init__()
        self.name, self.requests = name, list(requests)
        self.source: ObservedSource | None = None
        self.overlapping: list[RequestView] = []
        self.continued: RequestView | None = None


def _split_tokens(tokens: int, head: Head) -> tuple[int, int]:
    """Return the tokens of the system prompt and of the leading system messages."""
    if not head.leading.elements or not head.system.elements:
        return (0, tokens) if head.leading.elements else (tokens, 0)
    sizes = [sum([len(each.raw) for each in section.elements]) for section in (head.system, head.leading)]
    system = tokens * sizes[0] // max(1, sum(sizes))
    return system, tokens - system


def with_long_writes(usage: Usage, marks: Mapping[int, str]) -> Usage:
    """Return usage whose cache writes are long ones, if all breakpoints of the request ask for that."""
    is_long = bool(marks) and all([ttl in LONG_TTLS for ttl in marks.values()])
    return replace(usage, cache_write_long=usage.cache_write) if is_long else usage


def _ttl_of_mark(text: str) -> str:
    """Return the ttl in the text of a cache breakpoint; "" if it has the default one."""
    _, found, rest = text.partition('"ttl"')
    return rest.split('"')[1] if found and rest.count('"') > 1 else ""

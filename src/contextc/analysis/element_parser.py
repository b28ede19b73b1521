"""Parse the stored bytes of requests into elements and sections."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec import Raw

from contextc._json import JSON, JSONObject, as_object, decode
from contextc.analysis.line_alignment import split_item_tokens
from contextc.analysis.request_elements import (
    CONTENT_FIELDS,
    IDENTITY_FIELDS,
    SYSTEM_FIELDS,
    BlockType,
    Element,
    ElementKind,
    Head,
    Section,
    classify,
    make_element,
    weigh,
)
from contextc.compiler.body_splitting import MARK_BLOCK, MARK_FIELDS
from contextc.compiler.compiled import MESSAGES_PLACEHOLDER
from contextc.compiler.options import distribute
from contextc.store.ledger_schema import Item

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


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
                found = msgspec.structs.replace(found, tokens=split_item_tokens(found, items))
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
                leading = [each for each in _split_list(data) if as_object(decode(each)) != MESSAGES_PLACEHOLDER]
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
        if not role and not (item_type == "message" and content):  # an item of the Responses API
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
    return _text(as_object(as_object(decode(blocks[index + 1])).get(MARK_BLOCK)).get("ttl"))


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


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""

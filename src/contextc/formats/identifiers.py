"""Call ids and tool names in the characters that a provider accepts.

An accepted text is not changed. Elsewhere, each character that is not allowed is written as its code point:
`files.read` becomes `files_x2E_read`, and decoding reverses it. A text that would become too long ends in a hash, and
is read back only with the original at hand (`NameCodec.restore_names`). The encoding is deterministic, so a call and
its result always match.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc.messages import Message, ToolCall, ToolResult
from contextc.tools.spec import NativeTool, Tool

CACHE_SIZE = 65_536
ESCAPE = re.compile(r"_x([0-9A-F]{2,6})_")
CallOrResult: TypeAlias = ToolCall | ToolResult


class IdentifierCodec:
    """The allowed form of an id or a name: `characters`, `first_characters` and `max_length` for encoding, `accepted`
    for acceptance.

    The two differ if a provider accepts more than it documents: an id of its own is sent back unchanged.
    """

    def __init__(
        self, characters: str, max_length: int, *, first_characters: str | None = None, accepted: str | None = None
    ) -> None:
        self._letter, self._longest = re.compile(f"[{characters}]"), max_length
        self._sound = re.compile(f"[{first_characters or characters}][{characters}]{{0,{max_length - 1}}}")
        self._taken = re.compile(accepted, re.DOTALL) if accepted else self._sound
        self._respell = lru_cache(4096)(self._reencode)
        self.known_unchanged: set[str] = set()
        """Texts known to need no encoding. Every request checks the same ids and names again."""

    def is_unchanged(self, text: str) -> bool:
        """Return True if encoding would not change this text."""
        return self._sound.fullmatch(text) is not None and ("_x" not in text or self.decode(text) == text)

    def remember_unchanged(self, text: str) -> bool:
        """Return the result of `is_unchanged`, and cache it if it is True."""
        if not self.is_unchanged(text):
            return False
        if len(self.known_unchanged) >= CACHE_SIZE:
            self.known_unchanged.clear()
        self.known_unchanged.add(text)
        return True

    def decode(self, text: str) -> str:
        """Return the text before encoding. A text that encoding cannot produce is returned unchanged."""
        if "_x" not in text:
            return text
        original = ESCAPE.sub(_unescape, text)
        return original if original != text and self._respell(original) == text else text

    def accepts(self, text: str) -> bool:
        """Return True if the provider accepts this text."""
        return self._taken.fullmatch(text) is not None

    def encode(self, text: str) -> str:
        return text if self.is_unchanged(text) else self._respell(text)

    def _escape_lookalike(self, found: re.Match[str]) -> str:
        """Escape a text that looks like an escaped character but is none."""
        return found[0] if self._letter.fullmatch(_unescape(found)) else "_x5F_" + found[0][1:]

    def _reencode(self, text: str) -> str:
        escaped = ESCAPE.sub(self._escape_lookalike, text)
        written = "".join(letter if self._letter.fullmatch(letter) else f"_x{ord(letter):02X}_" for letter in escaped)
        if self._sound.fullmatch(written):
            return written
        digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        stem = "".join(letter if self._letter.fullmatch(letter) else "_" for letter in text)[: self._longest - 17]
        return f"{stem}_{digest}" if stem and self._sound.fullmatch(stem) else f"x_{digest}"


ANY_TEXT = IdentifierCodec("\\s\\S", 1 << 20)


def _unescape(found: re.Match[str]) -> str:
    number = int(found[1], 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else found[0]


class NameCodec(NamedTuple):
    """The encoding of call ids and tool names in a format. `format` is the name under which a call keeps its own id."""

    format: str
    ids: IdentifierCodec | None = None
    names: IdentifierCodec | None = None

    def encode_id(self, text: str) -> str:
        """Return the encoded id of a call."""
        return text if self.ids is None or text in self.ids.known_unchanged else self.ids.encode(text)

    def encode(self, segment: Sequence[Message]) -> Sequence[Message]:
        """Return the segment with ids and names encoded for this provider. Ids of its own are not changed."""
        ids, names = self.ids, self.names
        if (ids is None and names is None) or self._is_encoded(segment):
            return segment
        own = {call.id for message in segment for call in message.tool_calls if self.own_id_key in (call.extra or ())}

        def spelled(part: CallOrResult) -> CallOrResult:
            call_id = part.id if isinstance(part, ToolCall) else part.call_id
            part = part if names is None else _with_name(part, names.encode(part.name))
            return part if ids is None or call_id in own else _with_id(part, ids.encode(call_id))

        return [_with_changed_parts(message, spelled) for message in segment]

    def _is_encoded(self, segment: Sequence[Message]) -> bool:
        """Return True if nothing in the segment needs encoding, which is the usual case."""
        ids, names = self.ids or ANY_TEXT, self.names or ANY_TEXT
        known_ids, known_names = ids.known_unchanged, names.known_unchanged
        for message in segment:
            for part in message.parts:
                if type(part) is ToolCall:
                    call_id = part.id
                elif type(part) is ToolResult:
                    call_id = part.call_id
                else:
                    continue
                if call_id not in known_ids and not ids.remember_unchanged(call_id):
                    return False
                if part.name not in known_names and not names.remember_unchanged(part.name):
                    return False
        return True

    def encode_tool(self, tool: Tool) -> Tool:
        return (
            tool
            if self.names is None or self.names.is_unchanged(tool.name)
            else replace(tool, name=self.names.encode(tool.name))
        )

    def decode(self, message: Message) -> Message:
        """Return the message with ids and names decoded."""
        return _with_changed_parts(message, self._decode_part)

    def decode_tool(self, tool: Tool | NativeTool) -> Tool | NativeTool:
        if isinstance(tool, NativeTool) or self.names is None or (name := self.names.decode(tool.name)) == tool.name:
            return tool
        return replace(tool, name=name)

    def restore_names(self, reply: Message, tools: Iterable[Tool | NativeTool]) -> Message:
        """Return a reply whose calls have the original names of these tools, where names were too long to decode."""
        if self.names is None:
            return reply
        names = {self.names.encode(tool.name): tool.name for tool in tools if isinstance(tool, Tool)}
        return _with_changed_parts(reply, lambda part: _with_name(part, names.get(part.name, part.name)))

    @property
    def own_id_key(self) -> str:
        """The key in a call's `extra` that marks its id as the provider's own, not one of our encoding."""
        return f"{self.format} id"

    def _decode_part(self, part: CallOrResult) -> CallOrResult:
        if self.names is not None:
            part = _with_name(part, self.names.decode(part.name))
        call_id = part.id if isinstance(part, ToolCall) else part.call_id
        if self.ids is None or self.ids.is_unchanged(call_id):
            return part
        if (read := self.ids.decode(call_id)) != call_id:
            return _with_id(part, read)
        return replace(part, extra={**(part.extra or {}), self.own_id_key: {}}) if self.ids.accepts(call_id) else part


def _with_changed_parts(message: Message, change: Callable[[CallOrResult], CallOrResult]) -> Message:
    """Return the message with its calls and results changed, or the same message if nothing changes."""
    parts = [change(part) if isinstance(part, ToolCall | ToolResult) else part for part in message.parts]
    if all(now is before for now, before in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=tuple(parts))


def _with_name(part: CallOrResult, name: str) -> CallOrResult:
    return part if name == part.name else replace(part, name=name)


def _with_id(part: CallOrResult, call_id: str) -> CallOrResult:
    if isinstance(part, ToolCall):
        return part if call_id == part.id else replace(part, id=call_id)
    return part if call_id == part.call_id else replace(part, call_id=call_id)

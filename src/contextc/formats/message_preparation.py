"""Messages on their way into a format and back: media, reasoning, groups and identifiers."""

import base64
import binascii
import re
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from mimetypes import guess_type
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from contextc.messages import (
    PLACED_KEY,
    AnyPart,
    Media,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    escape_markers,
    escaped_line,
    read_text_file,
)
from contextc.tools.definitions import NativeTool, Tool

# ── media ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding and decoding of media bytes: base64, data URLs, and text files as text.


ShortenFile: TypeAlias = Callable[[str, int], str]
"""Shortens the text of a file. The number is that of the media part in its message, from 1; 0 inside a tool result."""
FENCE = re.compile(r"`{3,}")


def guess_media_type(url: str, default: str) -> str:
    """Return the media type that the file name in a URL suggests, or `default`."""
    return guess_type(url.partition("?")[0])[0] or default


def media_from_url(url: str, default: str, name: str | None = None) -> Media:
    """Return the media of a URL or data URL. `default` is its media type if the URL suggests none."""
    return from_data_url(url, name) or Media(mime_type=guess_media_type(url, default), url=url, name=name)


def encode_base64(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """Return the bytes of a part as base64, or None if they are not available."""
    data = bytes_of(part, blobs)
    return base64.b64encode(data).decode() if data else None


def decode_base64(text: str, *, urlsafe: bool = False) -> bytes | None:
    """Return the bytes of a base64 text, or None if it is invalid.

    `urlsafe` accepts both alphabets, with or without padding.
    """
    if urlsafe:
        text = text.replace("-", "+").replace("_", "/")
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def to_data_url(part: Media, blobs: Mapping[str, bytes]) -> str | None:
    """Return the bytes of a part as a data URL, or None if they are not available."""
    text = encode_base64(part, blobs)
    return f"data:{part.mime_type};base64,{text}" if text is not None else None


def from_data_url(url: str, name: str | None = None) -> Media | None:
    """Return the part that a data URL contains, or None if this is no data URL."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    mime_type, data = head.removeprefix("data:").removesuffix(";base64"), decode_base64(text)
    return Media(mime_type=mime_type, data=data, name=name) if data is not None and "/" in mime_type else None


def bytes_of(part: Media, blobs: Mapping[str, bytes]) -> bytes | None:
    """Return the bytes of a part, or None if they are not available."""
    return part.data if part.data is not None else blobs.get(part.blob or "")


def matches_type(mime_type: str, patterns: Sequence[str]) -> bool:
    """Return True if a media type matches one of the patterns, such as `image/*`."""
    return any(fnmatch(mime_type.partition(";")[0].strip().lower(), pattern) for pattern in patterns)


def with_text_files(
    message: Message, blobs: Mapping[str, bytes], native: Sequence[str], shorten: ShortenFile, *, describe_others: bool
) -> tuple[Message, list[Media]]:
    """Return the message with its text files as text, and these files.

    A file whose type is among the patterns of `native` stays a document. It is then UTF-8, as all providers expect.
    """
    written: list[Media] = []

    def encode_file(part: Media, number: int) -> Text | Media:
        text = read_text_file(part, bytes_of(part, blobs))
        if text is None:
            return Text(describe_media(part)) if describe_others else part
        safe = escape_markers(shorten(text, number))
        if safe and matches_type(part.mime_type, native):
            return replace(part, data=safe.encode(errors="replace"), blob=None)
        written.append(part)
        return Text(describe_text_file(part, safe))

    parts: list[AnyPart] = []
    number = 0
    for part in message.parts:
        if type(part) is Media:
            number += 1
            parts.append(encode_file(part, number))
        elif type(part) is ToolResult and type(part.content) is not str:
            content = tuple([encode_file(each, 0) if type(each) is Media else each for each in part.content])
            parts.append(replace(part, content=content))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)), written


def describe_text_file(part: Media, text: str) -> str:
    """Return a text file as text for a model: its name, and its content between fences that it does not contain."""
    fence = max(["``", *FENCE.findall(text)], key=len) + "`"
    name = f'"{escaped_line(part.name)}"' if part.name else f"of type {part.mime_type}"
    end = "" if text.endswith("\n") else "\n"
    return f"[Attached file {name}]\n{fence}\n{text}{end}{fence}\n[End of the attached file {name}]"


def describe_media(media: Media) -> str:
    """Return one line of text that replaces media whose bytes cannot be sent."""
    name = f" {media.name!r}" if media.name else ""
    size = f", {media.size:,} bytes" if media.size else ""
    where = f", {media.url}" if media.url else ""
    return f"[{media.kind}{name}: {media.mime_type}{size}{where}; not shown]"


# ── reasoning of other models ─────────────────────────────────────────────────────────────────────────────────────────
# The treatment of a model's reasoning when a history is sent again.
#
# `native` sends each provider its own reasoning as it requires, and no other. `inline` joins reasoning into the text
# around it, in the order of the parts. `drop` leaves it out.


ReasoningPolicy: TypeAlias = Literal["native", "inline", "drop"]
REASONING_FIELDS = {"reasoning_content", "reasoning", "reasoning_details"}


def apply_policy(
    segment: Sequence[Message], policy: ReasoningPolicy, replacement: Callable[[Reasoning], tuple[AnyPart, ...]]
) -> Sequence[Message]:
    """Return the segment with a policy applied. `replacement` returns the parts that replace a reasoning part."""
    return segment if policy == "native" else [_replayed(message, policy, replacement) for message in segment]


def apply_policy_to_message(message: Message, policy: ReasoningPolicy) -> Message:
    """Return one message with a policy applied, for any provider.

    Reasoning with an id leaves an empty part, so that the items after it stay valid.
    """
    return _replayed(message, policy, lambda part: (Reasoning(provider=part.provider),) if part.id else ())


def contains_reasoning(message: Message) -> bool:
    """Return True if a policy changes this message."""
    fields = any(REASONING_FIELDS & said.keys() for said in message.extra.values()) if message.extra else False
    return fields or any(type(part) is Reasoning for part in message.parts)


def _replayed(
    message: Message, policy: ReasoningPolicy, instead: Callable[[Reasoning], tuple[AnyPart, ...]]
) -> Message:
    message = _without_fields(message)
    if not any(isinstance(part, Reasoning) for part in message.parts):
        return message
    parts: list[AnyPart] = []
    words: list[str] = []  # pieces of the next text
    for part in message.parts:
        if isinstance(part, Reasoning) and (others := instead(part)):
            _flush_text(parts, words)
            parts += others
        if policy == "inline" and isinstance(part, Reasoning | Text):
            words.append(part.text)
        elif not isinstance(part, Reasoning):
            _flush_text(parts, words)
            parts.append(part)
    _flush_text(parts, words)
    return replace(message, parts=tuple(parts))


def _without_fields(message: Message) -> Message:
    """Return the message without reasoning that its endpoint sends in fields next to the content."""
    if not any(REASONING_FIELDS & said.keys() for said in (message.extra or {}).values()):
        return message
    extra = {
        provider: {name: value for name, value in said.items() if name not in REASONING_FIELDS}
        for provider, said in (message.extra or {}).items()
    }
    return replace(message, extra={provider: said for provider, said in extra.items() if said} or None)


def _flush_text(parts: list[AnyPart], words: list[str]) -> None:
    """Append the collected text as one part."""
    if text := "".join(words):
        parts.append(Text(text))
    words.clear()


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Checks of reasoning signatures without the key: base64, in most cases of a protocol buffers message.
#
# Only the outermost fields are parsed. That detects a signature that was truncated or padded, but not a changed byte.
# Providers also accept signatures of other kinds. Nothing is known about their bytes, so these pass.


MIN_LENGTH = 64
"""Shorter values are placeholders for a signature, in tests and replays."""
FERNET_FRAME, FERNET_BLOCK = 57, 16
LENGTH_PREFIXED = (b"\x0a", b"\x12")
"""First bytes of messages that begin with field 1 or 2 and its length, as most signatures of Google do."""
CIPHERTEXT = b"\x01"
"""First byte of a ciphertext that names its key, which Google sends with or without a message around it."""


def is_valid_signature(signature: object) -> bool:
    """Return True if this may be a signature of Anthropic."""
    if not isinstance(signature, str) or not signature.strip():
        return False
    if len(signature) < MIN_LENGTH:
        return True
    data = decode_base64(signature)
    return data is not None and is_protobuf_message(data)


def is_intact_google_signature(text: str) -> bool:
    """Return True if this may be a whole signature of Google, in either alphabet of base64, with or without padding.

    Only what has the frame of a message is known to be incomplete. Text in the standard alphabet has one, or names its
    key; URL-safe text may be anything.
    """
    data = decode_base64(text, urlsafe=True)
    if data is None or is_protobuf_message(data):
        return data is not None
    is_urlsafe = len(text) % 4 != 0 or "-" in text or "_" in text
    return not data.startswith(LENGTH_PREFIXED) and (is_urlsafe or data.startswith(CIPHERTEXT))


def is_fernet_token(data: bytes) -> bool:
    """Return True if the bytes have the frame of a Fernet token, with which OpenAI encrypts."""
    return data[:1] == b"\x80" and (len(data) - FERNET_FRAME) % FERNET_BLOCK == 0


def is_protobuf_message(data: bytes) -> bool:
    """Return True if the bytes are a sequence of complete fields."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        if tag >> 3 == 0:
            return False
        if tag & 7 == 0:
            _, place = _read_varint(data, place)
        elif tag & 7 == 2:
            length, place = _read_varint(data, place)
            place += length
        else:
            place += {1: 8, 5: 4}.get(tag & 7, len(data) + 1)
    return place == len(data)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data):
        byte = data[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
    return 0, len(data) + 1


# ── groups and segments ───────────────────────────────────────────────────────────────────────────────────────────────
# Groups of messages: segments of a history, and tool results in the order of their calls.


APART_KEY = "apart"
"""Key in the `extra` of a message: it was read next to a message of the same role, or as the first message."""
OUT_OF_ORDER = sys.maxsize
"""Position of a result that is out of order. No other position is greater."""


def merge_unordered_results(messages: list[Message]) -> list[Message]:
    """Return the messages of a request, with results that are out of call order merged into one message.

    Results in separate messages are sent in the order of their calls. Results of one message keep their own order.
    Messages marked `APART_KEY` are not merged.
    """
    found: list[Message] = []
    run: list[Message] = []  # the messages with results after the last other one
    for message in messages:
        if message.role == "tool":
            run.append(message)
            continue
        found += _merge_run(found, run) if len(run) > 1 else run
        found.append(message)
        run = []
    return found + (_merge_run(found, run) if len(run) > 1 else run)


def _merge_run(before: Sequence[Message], run: Sequence[Message]) -> list[Message]:
    """Return consecutive messages with results, which follow those of `before`, merged where they are out of order."""
    calls = before[-1].tool_calls if before and before[-1].role == "assistant" else ()
    asked = len(calls)
    places: dict[str, list[int]] = {}  # call id -> indexes of calls in the reply, the first one at the end
    for index in range(asked - 1, -1, -1):
        places.setdefault(calls[index].id, []).append(index)
    groups: list[list[Message]] = []
    size, place, known = 0, OUT_OF_ORDER, False  # last group: number of parts, last position, all ids known
    for message in run:
        ids = [result.call_id for result in message.tool_results]
        found = [places[each].pop() if places.get(each) else OUT_OF_ORDER for each in ids]
        all_asked = all(each in places for each in ids)
        disordered = asked > 1 and known and all_asked and size < asked and _last_in_order(found, place) == OUT_OF_ORDER
        if disordered and not is_apart(message):
            groups[-1].append(message)
            size, place = size + len(message.parts), OUT_OF_ORDER
        else:
            groups.append([message])
            size, place, known = len(message.parts), _last_in_order(found, -1), all_asked
    return [merge_messages(group) for group in groups]


def mark_positions(messages: Sequence[Message], extra_key: str) -> list[Message]:
    """Return the messages of a request, with `PLACED_KEY` on those that pairing would change.

    These are tool messages that it would move or merge, and replies that use the id of an answered call again.
    """
    found: list[Message] = []
    asked_before: set[str] = set()
    answered: set[str] = set()
    for is_tool, group in groupby(messages, lambda message: message.role == "tool"):
        run = list(group)
        if is_tool:
            asked = [call.id for call in found[-1].tool_calls] if found else []
            ids = [result.call_id for message in run for result in message.tool_results]
            in_order = ids == asked and not any(map(is_apart, run[1:]))
            if not (in_order or (len(run) == 1 and sorted(ids) == sorted(asked))):
                run = [_with_mark(message, extra_key) for message in run]
        for message in run:
            ids = {call.id for call in message.tool_calls}
            again = ids & asked_before
            found.append(_with_mark(message, extra_key) if again and again <= answered else message)
            asked_before |= ids
            answered -= ids
            answered.update([result.call_id for result in message.tool_results])
    return found


def _with_mark(message: Message, extra_key: str) -> Message:
    extra = message.extra or {}
    return replace(message, extra={**extra, extra_key: {**extra.get(extra_key, {}), PLACED_KEY: True}})


def is_apart(message: Message) -> bool:
    return message.extra is not None and any(said.get(APART_KEY) for said in message.extra.values())


def _last_in_order(places: list[int], before: int) -> int:
    """Return the last of these positions if they ascend from `before`, else `OUT_OF_ORDER`."""
    for place in places:
        if place <= before or place == OUT_OF_ORDER:
            return OUT_OF_ORDER
        before = place
    return before


def merge_messages(group: Sequence[Message]) -> Message:
    """Return the first of these messages with the parts of all of them."""
    first = group[0]
    return first if len(group) == 1 else replace(first, parts=tuple([part for each in group for part in each.parts]))


def merge_neighbours(messages: Iterable[Message], role: Role) -> list[Message]:
    """Return the messages with neighbours of one role merged."""
    groups: list[list[Message]] = []
    for message in messages:
        if groups and groups[-1][0].role == message.role == role:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [merge_messages(group) for group in groups]


def split_segments(history: Sequence[Message]) -> Iterator[list[Message]]:
    """Split a paired history before each reply of the model."""
    segment: list[Message] = []
    for message in history:
        if message.role == "assistant" and segment:
            yield segment
            segment = []
        segment.append(message)
    if segment:
        yield segment


# ── calls that wait for a result ──────────────────────────────────────────────────────────────────────────────────────
# Calls without results, indexed by what a result may identify them with: an id, a name, or their order.


T = TypeVar("T")


class _Entry(Generic[T]):
    __slots__ = ("is_open", "number", "value")

    def __init__(self, number: int, value: T) -> None:
        self.number, self.value, self.is_open = number, value, True


class OpenCalls(Generic[T]):
    """Values in insertion order, each under several keys, until they are taken."""

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._queues: dict[Hashable, deque[_Entry[T]]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._entries) - self._taken

    def add(self, value: T, *keys: Hashable) -> None:
        entry = _Entry(len(self._entries), value)
        self._entries.append(entry)
        for key in keys:
            self._queues.setdefault(key, deque()).append(entry)

    def pop(self, *keys: Hashable) -> T | None:
        """Remove and return the first remaining value with one of these keys, or None."""
        first: _Entry[T] | None = None
        for key in keys:
            queue = self._queues.get(key)
            while queue and not queue[0].is_open:
                queue.popleft()
            if queue and (first is None or queue[0].number < first.number):
                first = queue[0]
        if first is None:
            return None
        first.is_open = False
        self._taken += 1
        return first.value

    def remaining(self) -> Iterable[T]:
        """Return the values that were not taken, in order."""
        return [entry.value for entry in self._entries if entry.is_open]


# ── names and ids ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Call ids and tool names in the characters that a provider accepts.
#
# An accepted text is not changed. Elsewhere, each character that is not allowed is written as its code point:
# `files.read` becomes `files_x2E_read`, and decoding reverses it. A text that would become too long ends in a hash,
# and is read back only with the original at hand (`NameCodec.restore_names`). The encoding is deterministic, so a call
# and its result always match.


CACHE_SIZE = 8_192
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
        ids = self.ids
        if ids is None or text in ids.known_unchanged or ids.remember_unchanged(text):
            return text
        return ids.encode(text)

    def encode_name(self, text: str) -> str:
        """Return the encoded name of a tool."""
        return text if self.names is None else self.names.encode(text)

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
        for part in message.parts:
            if (type(part) is ToolCall or type(part) is ToolResult) and self._decode_part(part) is not part:
                return _with_changed_parts(message, self._decode_part)
        return message

    def decode_tool(self, tool: Tool | NativeTool) -> Tool | NativeTool:
        if isinstance(tool, NativeTool) or self.names is None or (name := self.names.decode(tool.name)) == tool.name:
            return tool
        return replace(tool, name=name)

    def restore_names(self, reply: Message, tools: Iterable[Tool | NativeTool]) -> Message:
        """Return a reply whose calls have the original names of these tools, where names were too long to decode."""
        if self.names is None or not any([type(part) in (ToolCall, ToolResult) for part in reply.parts]):
            return reply
        known = self.names.known_unchanged
        spelled = [tool.name for tool in tools if isinstance(tool, Tool) and tool.name not in known]
        names = {self.names.encode(name): name for name in spelled if not self.names.remember_unchanged(name)}
        if not names:
            return reply
        return _with_changed_parts(reply, lambda part: _with_name(part, names.get(part.name, part.name)))

    @property
    def own_id_key(self) -> str:
        """The key in a call's `extra` that marks its id as the provider's own, not one of our encoding."""
        return f"{self.format} id"

    def _decode_part(self, part: CallOrResult) -> CallOrResult:
        if self.names is not None:
            part = _with_name(part, self.names.decode(part.name))
        call_id = part.id if isinstance(part, ToolCall) else part.call_id
        if self.ids is None or call_id in self.ids.known_unchanged or self.ids.remember_unchanged(call_id):
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

"""The treatment of a model's reasoning when a history is sent again.

`native` sends each provider its own reasoning as it requires, and no other. `inline` joins reasoning into the text
around it, in the order of the parts. `drop` leaves it out.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from contextc.formats.media_encoding import decode_base64
from contextc.messages import AnyPart, Message, Reasoning, Text

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

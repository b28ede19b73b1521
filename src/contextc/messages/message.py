"""The message: one entry of a conversation.

The `id` is a hash of the content (`role`, `parts`, `author`, `recipients`) and of the id of the previous message, so
equal ids mean equal histories. All other fields are metadata outside the hash. A message that is not stored yet has no
`uid`, `id` or `seq`; a store returns a copy with them.
"""

import os
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from contextc._json import JSONObject, encode, encode_canonical
from contextc.messages.parts import AnyPart, Extra, Media, Text, ToolCall, ToolResult

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal["pending", "sent", "error", "cancelled"]

DEPTH_BYTES = 4
HASH_BYTES = 16


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Tokens of one model call. `input` includes cache reads and writes; `output` includes reasoning."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One entry of a conversation: a role, parts, and metadata (docs/messages.md describes every field)."""

    role: Role
    parts: tuple[AnyPart, ...] = ()
    author: str | None = None
    recipients: tuple[str, ...] = ()

    uid: str = ""
    id: str = ""
    seq: int = 0

    audience: str | None = None
    as_role: Role | None = None
    run: str | None = None
    turn: int | None = None
    step: int | None = None
    status: Status = "sent"
    error: str | None = None
    finish: str | None = None
    time: int = 0
    usage: Usage | None = None
    meta: JSONObject | None = None
    extra: Extra | None = None
    redacted: bool = False

    @property
    def text(self) -> str:
        """The text of all Text parts, without reasoning, calls and notices."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if type(part) is ToolResult])

    def is_addressed_to(self, agent: str) -> bool:
        """Return True if this is a message from another agent to this agent, which counts as input."""
        return (
            self.role == "assistant"
            and self.author is not None
            and self.author != agent
            and agent in self.recipients
            and any([isinstance(part, Media) or (isinstance(part, Text) and part.text.strip()) for part in self.parts])
        )

    @property
    def at(self) -> datetime:
        """The time of the append. `time` is the same as a Unix timestamp in milliseconds."""
        return datetime.fromtimestamp(self.time / 1000, UTC)


def canonical_content(message: Message) -> bytes:
    """Return the canonical form of the content, independent of the position in a conversation."""
    return encode_canonical((message.role, message.parts, message.author, message.recipients))


def hash_content(message: Message) -> bytes:
    return blake2b(canonical_content(message), digest_size=HASH_BYTES, person=b"contextc content").digest()


def make_chain_id(parent_id: bytes, content: bytes) -> bytes:
    """Return the id of a message with this canonical content after `parent_id`, a message's id or the root.

    It begins with the depth in the chain (four bytes), so that a message is found by its id without an index. The rest
    is the hash. The ids of a chain sort in its order.
    """
    depth = int.from_bytes(parent_id[:DEPTH_BYTES]) + 1
    named = blake2b(parent_id + content, digest_size=HASH_BYTES, person=b"contextc message")
    return depth.to_bytes(DEPTH_BYTES) + named.digest()


def make_root_id() -> bytes:
    """Return a new root: depth 0 and random, so that conversations with equal content have different ids."""
    return bytes(DEPTH_BYTES) + os.urandom(HASH_BYTES)


encode_message = msgspec.json.Encoder().encode
decode_message = msgspec.json.Decoder(Message).decode


REDACTED_TEXT = "[removed]"


def to_plain_text(message: Message | None) -> str:
    """Return a message's text, its calls with their arguments, and its results, without reasoning and user notices."""
    if message is None:
        return ""
    if message.redacted:
        return REDACTED_TEXT
    texts = [message.text, *(_part_text(part) for part in message.parts if not isinstance(part, Text))]
    return " ".join(each for each in texts if each)


def _part_text(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"calls {part.name}({encode(part.arguments).decode()})"
    return f"{part.name}: {part.text}" if isinstance(part, ToolResult) else ""

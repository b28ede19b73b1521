"""One entry of a conversation, as its author meant it.

The content (`role`, `parts`, `author`, `recipients`) and the id of the message before it make its `id`, so equal ids
mean equal histories. Everything else is circumstance and stands outside the hash. A message that is in no chain yet
has no `uid`, `id` or `seq`; a store returns a copy that has them.
"""

import os
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from contextc._json import JSONObject, canonical
from contextc.messages.parts import AnyPart, Extra, Media, Text, ToolCall, ToolResult

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal["pending", "sent", "error", "cancelled"]

DEPTH_BYTES = 4
HASH_BYTES = 16


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Tokens of one model call. `input` counts cache reads and writes too; `output` counts reasoning too."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One entry of a conversation: a role, parts, and the circumstances (docs/messages.md names them all)."""

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
        """What was said, without reasoning, calls and hints."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if type(part) is ToolResult])

    def is_addressed_to(self, agent: str) -> bool:
        """Whether this is another agent's message to this agent: input, that is answered."""
        return (
            self.role == "assistant"
            and self.author is not None
            and self.author != agent
            and agent in self.recipients
            and any([isinstance(part, Media) or (isinstance(part, Text) and part.text.strip()) for part in self.parts])
        )

    @property
    def at(self) -> datetime:
        """When it was appended. `time` is the same in milliseconds since 1970."""
        return datetime.fromtimestamp(self.time / 1000, UTC)


def content_of(message: Message) -> bytes:
    """The canonical form of what was said and by whom; where in a conversation does not matter."""
    return canonical((message.role, message.parts, message.author, message.recipients))


def content_hash(message: Message) -> bytes:
    return blake2b(content_of(message), digest_size=HASH_BYTES, person=b"contextc content").digest()


def chain_id(parent: bytes, content: bytes) -> bytes:
    """The id of a message with this canonical content after `parent`, a message's id or the conversation's root.

    It begins with the depth in the chain, four bytes, so that a message is found by its id without an index; the rest
    is the hash. Ids of a chain sort in its order.
    """
    depth = int.from_bytes(parent[:DEPTH_BYTES]) + 1
    named = blake2b(parent + content, digest_size=HASH_BYTES, person=b"contextc message")
    return depth.to_bytes(DEPTH_BYTES) + named.digest()


def new_root() -> bytes:
    """Where a conversation begins: depth 0, and random, so that two that say the same are still two."""
    return bytes(DEPTH_BYTES) + os.urandom(HASH_BYTES)


to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder(Message).decode

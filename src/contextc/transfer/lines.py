"""Conversations as JSON Lines: what the lines of a file are.

The first line is a header: the conversation, its root, its branches. Then come the todo lists of its agents, one a
line, and its messages, one a line, in the order of their branches, and before the first message that uses a blob, that
blob. Version 2 has todos and pins; a file without any says version 1, and whoever reads that can read it.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from contextc.messages import Media, Message, ToolResult
from contextc.todos import Todo

VERSION, PLAIN = 2, 1
CHUNK = 1000
Progress = Callable[[int, int], None]
"""Called now and then with how many messages are done, of how many."""


class BranchLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A branch, or as much of another conversation's branch as ours stand on."""

    number: int
    parent: int | None = None
    base: int = 0
    own: bool = True
    edges: tuple[int, ...] = ()
    pins: tuple[int, ...] = ()


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="contextc"):
    """The first line. `branch` is the current one; a branch of another conversation is here as far as ours stands on
    it.
    """

    version: int
    conversation: str
    root: str
    branch: int
    branches: tuple[BranchLine, ...]
    messages: int


class MessageLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="message"
):
    branch: int
    message: Message
    key: str | None = None


class BlobLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="blob"):
    name: str
    data: str


class TodosLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="todos"):
    """The whole list of one agent."""

    agent: str
    todos: tuple[Todo, ...]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a header as every version has."""

    version: int = 0


Line: TypeAlias = Header | MessageLine | BlobLine | TodosLine

encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(Line).decode
decode_version = msgspec.json.Decoder(Version).decode


def blob_names(message: Message) -> Iterator[str]:
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) and not isinstance(part.content, str) else (part,)
        for each in inner:
            if isinstance(each, Media) and each.blob:
                yield each.blob

"""JSON Lines format of conversations: the types of the lines of a file.

The first line is a header: the conversation, its root, its branches. Todo lists follow, one line per agent. Then come
the messages, one per line, in the order of their branches. A blob precedes the first message that uses it. Version 2
has todos and pins. A file without them has version 1, so that older readers accept it.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from contextc.messages import Media, Message, ToolResult
from contextc.tools.todos import Todo

VERSION, VERSION_WITHOUT_TODOS = 2, 1
CHUNK = 1000
Progress = Callable[[int, int], None]
"""A callback with the number of messages done, and the total."""


class BranchLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A branch of the conversation, or the part of another conversation's branch that it is based on."""

    number: int
    parent: int | None = None
    base: int = 0
    own: bool = True
    edges: tuple[int, ...] = ()
    pins: tuple[int, ...] = ()


class HeaderLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="contextc"):
    """The first line. `branch` is the current branch."""

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
    """The whole todo list of one agent."""

    agent: str
    todos: tuple[Todo, ...]


class HeaderVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a header that every version has."""

    version: int = 0


AnyLine: TypeAlias = HeaderLine | MessageLine | BlobLine | TodosLine

encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(AnyLine).decode
decode_version = msgspec.json.Decoder(HeaderVersion).decode


def blob_names(message: Message) -> Iterator[str]:
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) and not isinstance(part.content, str) else (part,)
        for each in inner:
            if isinstance(each, Media) and each.blob:
                yield each.blob

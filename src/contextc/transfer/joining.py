"""Requests that each hold the whole history again, joined into the conversations they are of.

Requests go into a tree, a message a step; what a request has in common with others is there already, and only what is
new takes room. Two requests are of one conversation where one holds all of the other, or both hold all of a third;
where they part, a conversation has branches. Few-shot examples and a system prompt that many share join nothing.

Messages are the same where they say the same, or call the same, or answer the same calls: a reply and its echo in the
next request differ in what else stands in them, and old results are often shortened. Of both, the reply is kept. System
prompts that differ in figures alone (a date, a clock) are the same prompt.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from contextc._json import canonical
from contextc.messages import Media, Message, Native
from contextc.transfer.found import Found

FIGURES = re.compile(r"\d+")


class Node:
    """One message at one place. `asked` says that a request ended here, `touched` when it was last seen."""

    __slots__ = ("after", "asked", "message", "names", "replied", "touched")

    def __init__(self, message: Message | None) -> None:
        self.message = message
        self.after: dict[bytes, Node] = {}
        self.asked = self.replied = False
        self.touched = 0
        self.names: list[str] = []


class Joined:
    """A tree that grows by one request at a time."""

    def __init__(self) -> None:
        self._root = Node(None)
        self._count = 0
        self._apart: dict[str, Node] = {}

    def begin(self, system: Message | None, apart: str = "") -> Node:
        """Where requests with this system prompt begin. What is said `apart` is never joined with what is said
        elsewhere.
        """
        self._count += 1
        root = self._apart.setdefault(apart, Node(None)) if apart else self._root
        return self._step(root, b"" if system is None else _key(system), system)

    def ask(self, node: Node, messages: Iterable[Message], *, name: str = "") -> Node:
        """Put in a request whose messages go on from a place; `name` is what the log calls it."""
        for message in messages:
            node = self._step(node, _key(message), message)
        node.asked = True
        if name and name not in node.names:
            node.names.append(name)
        return node

    def reply(self, node: Node, reply: Message | None) -> None:
        """What the model said to a request that was put in."""
        if reply is None:
            return
        after = self._step(node, _key(reply), reply)
        if not after.replied:
            after.message, after.replied = reply, True

    def conversations(self) -> Iterator[Found]:
        """What the requests are of, in the order in which they began."""
        for apart, root in (("", self._root), *self._apart.items()):
            yield from _below(root, apart)

    def _step(self, node: Node, key: bytes, message: Message | None) -> Node:
        after = node.after.get(key)
        if after is None:
            node.after[key] = after = Node(message)
        after.touched = self._count
        return after


def _below(root: Node, apart: str) -> Iterator[Found]:
    """A conversation for each topmost place at which a request ended."""
    open_nodes = [(root, (), b"")]
    while open_nodes:
        node, before, path = open_nodes.pop()
        here = (*before, node.message) if node.message is not None else before
        if node.asked:
            yield _found(node, before, path, apart)
            continue
        open_nodes += [(after, here, path + key) for key, after in reversed(node.after.items())]


def _found(top: Node, before: tuple[Message, ...], path: bytes, apart: str) -> Found:
    lines: list[tuple[int, list[Message]]] = []
    names: list[str] = []
    open_nodes = [(top, list(before))]
    while open_nodes:
        node, line = open_nodes.pop()
        names += node.names
        if node.message is not None:
            line.append(node.message)
        if not node.after:
            lines.append((node.touched, line))
        following = list(node.after.values())
        open_nodes += [(after, line if number == 0 else list(line)) for number, after in enumerate(following)][::-1]
    ordered = [line for _, line in sorted(lines, key=lambda each: each[0])]
    known = apart or next(iter(names), "")
    return Found(id=known or blake2b(path, digest_size=6).hexdigest(), lines=ordered)


def _key(message: Message) -> bytes:
    calls = [call.id for call in message.tool_calls] + [result.call_id for result in message.tool_results]
    said = "" if message.role == "tool" else message.text.strip()
    if message.role == "system":
        said = FIGURES.sub("0", said)
    speaks = bool(calls) or (message.role == "assistant" and bool(said))  # then what else is in it is often left out
    shown = [] if speaks else [_shown(part) for part in message.parts if isinstance(part, Media | Native)]
    return blake2b(canonical((message.role, message.author, said, calls, shown)), digest_size=16).digest()


def _shown(part: Media | Native) -> object:
    if isinstance(part, Native):
        return part.data
    data = blake2b(part.data, digest_size=16).hexdigest() if part.data is not None else None
    return data or part.blob or part.url or part.file_id

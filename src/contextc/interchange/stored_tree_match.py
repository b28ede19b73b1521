"""Tree of the stored messages of a conversation, and the match of an imported line with it.

Every message is read once, also with many branches. Each step considers only the following messages, so that a match
takes time proportional to the line. Messages are equal if their uid, their text, their calls or their answered calls
are. A redacted or unreadable message is identified by its id. If a branch was repaired, the match continues on the
repaired branch.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import TypeAlias

from msgspec import MsgspecError
from msgspec.structs import replace

from contextc._json import encode_canonical
from contextc.messages import Media, Message, ProviderBlock, ToolCall, canonical_content, decode_message, make_chain_id
from contextc.observation.truncated_results import longer_results
from contextc.store import message_rows
from contextc.store.backend_interface import Transaction
from contextc.store.history_comparison import original_uid
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK
from contextc.store.redaction import get_repair_note

DIGITS = re.compile(r"\d+")
GENERATED_ID = re.compile(r"call_\d+")
"""Generated ids of calls that came without one. The numbers start again in each request, so they identify nothing."""
MessageKey: TypeAlias = str | bytes
"""A uid, or a hash of the content of a message."""


class StoredNode:
    """A message at its position; None if it is unreadable. `ending_branches` are the branches that end with it."""

    __slots__ = ("branch", "by_key", "children", "ending_branches", "id", "message", "parent", "seq", "unreadable")

    def __init__(self, branch: int, seq: int, id: bytes, message: Message | None, parent: "StoredNode | None") -> None:
        self.branch, self.seq, self.id, self.message, self.parent = branch, seq, id, message, parent
        self.children: list[StoredNode] = []
        self.by_key: dict[MessageKey, list[StoredNode]] = {}
        self.unreadable: list[StoredNode] = []
        self.ending_branches: list[int] = []


class StoredTree:
    """The branches of one conversation, which may not exist yet."""

    def __init__(self, tx: Transaction, name: str, *, lock: bool = True) -> None:
        self.name = name
        self.root = StoredNode(0, 0, b"", None, None)
        self.repaired: set[int] = set()
        self.copies: set[int] = set()
        self.current: list[StoredNode] = []
        self._places: dict[int, int] = {}
        self._named: dict[MessageKey, list[StoredNode]] = {}
        self._instead: dict[int, StoredNode] = {}
        head = message_rows.find_tip(tx, name, lock)
        self.is_new = head is None
        self.branch = head.branch if head is not None else 0
        if head is not None:
            self.root.id = message_rows.load_root(tx, head.tree)
            self._load(tx, head.tree)

    def find_next(self, node: StoredNode, message: Message) -> list[StoredNode]:
        """Return the nodes that may be this message, after a node; others may be in between."""
        wanted = message.uid or content_key(message)
        found = [each for each in node.by_key.get(wanted, ()) if _is_same_message(each, message)]
        found += [each for each in node.unreadable if each not in found and _matches_id(each, node, message)]
        if not found:
            after = (each for each in self._named.get(wanted, ()) if each.seq > node.seq + 1)
            found = [
                each
                for each in after
                if _is_same_message(each, message) and _may_be_missing_between(node, each, message)
            ]
        instead = [self._instead[id(each)] for each in found if id(each) in self._instead]
        kept = [each for each in found if id(each) not in self._instead or each.children]
        return list({id(each): each for each in [*instead, *kept]}.values())

    def find_ends(self, node: StoredNode, first: Message | None) -> list[tuple[int, StoredNode]]:
        """Return the branches that end with a node, or continue only with messages that a new one would not replace."""
        found: list[tuple[int, StoredNode]] = []
        waiting = [node]
        while waiting:
            each = waiting.pop()
            found += [(branch, each) for branch in each.ending_branches if branch not in self.repaired]
            if first is not None:
                waiting += [after for after in each.children if not _is_replaced(after.message, first)]
        return found

    def divergence(self, node: StoredNode) -> tuple[StoredNode, StoredNode | None]:
        """Return the last common node of the current branch and a node's chain, and the branch's next node."""
        while id(node) not in self._places and node.parent is not None:
            node = node.parent
        place = self._places.get(id(node), 0) + 1
        return node, self.current[place] if place < len(self.current) else None

    def is_current(self, node: StoredNode) -> bool:
        return id(node) in self._places

    def add_message(self, node: StoredNode, branch: int, message: Message) -> StoredNode:
        if branch in node.ending_branches:
            node.ending_branches.remove(branch)
        made = self._put(node, StoredNode(branch, message.seq, bytes.fromhex(message.id), message, node))
        made.ending_branches.append(branch)
        return made

    def any_branch(self, node: StoredNode) -> int:
        """Return a branch of this conversation that contains a node."""
        while not node.ending_branches:
            node = node.children[-1]
        return node.ending_branches[-1]

    def path_hashes(self) -> Iterator[tuple[bytes, bool]]:
        """Return a hash of the path to each message, and whether a branch ends there."""
        waiting = [(self.root, b"")]
        while waiting:
            node, path = waiting.pop()
            for each in node.children:
                if each.message is not None and not each.message.redacted:
                    way = extend_path(path, each.message)
                    yield way, bool(each.ending_branches)
                    waiting.append((each, way))

    def _load(self, tx: Transaction, tree: int) -> None:
        rows = tx.rows("SELECT number, parent, base_seq, conversation FROM branch WHERE tree = ? ORDER BY number", tree)
        table = {number: (parent, base, owner) for number, parent, base, owner in rows}
        upto = {number: SEQ_MASK for number, (_, _, owner) in table.items() if owner == self.name}
        for number in sorted(table, reverse=True):
            parent, base, _ = table[number]
            if number in upto and parent is not None:
                upto[parent] = max(upto.get(parent, 0), base)
        last: dict[int, StoredNode] = {}
        nodes: dict[int, StoredNode] = {}
        for number in sorted(upto):
            node = self._base(table, nodes, number)
            node = self._read(tx, nodes, number, upto[number], node)
            last[number] = node
            if table[number][2] == self.name:
                node.ending_branches.append(number)
        self._map_repaired(last)
        node = last[self.branch]
        while node.parent is not None:
            self.current.append(node)
            node = node.parent
        self.current = [self.root, *reversed(self.current)]
        self._places = {id(each): place for place, each in enumerate(self.current)}

    def _base(
        self, table: dict[int, tuple[int | None, int, str | None]], nodes: dict[int, StoredNode], number: int
    ) -> StoredNode:
        """Return the message after which a branch starts; if it is missing, the last one before."""
        parent, seq, _ = table[number]
        while parent is not None and seq > 0:
            if (found := nodes.get(message_rows.make_place(parent, seq))) is not None:
                return found
            above, base, _ = table[parent]
            parent, seq = (parent, seq - 1) if seq - 1 > base else (above, min(seq, base))
        return self.root

    def _read(
        self, tx: Transaction, nodes: dict[int, StoredNode], number: int, upto: int, node: StoredNode
    ) -> StoredNode:
        low, high = message_rows.make_place(number, 0), message_rows.make_place(number, upto)
        for where, identity, body in tx.rows(
            "SELECT place, id, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", low, high
        ):
            message = _read(body)
            node = self._put(node, StoredNode(where >> SEQ_BITS, where & SEQ_MASK, bytes(identity), message, node))
            nodes[where] = node
        return node

    def _put(self, parent: StoredNode, node: StoredNode) -> StoredNode:
        parent.children.append(node)
        if self.is_new:  # no lookups in a new conversation
            return node
        message = node.message
        if message is None or message.redacted:
            parent.unreadable.append(node)
        names: list[MessageKey] = []
        if message is not None:
            names += [original_uid(message.uid)] if message.uid else []
            names += [] if message.redacted else [content_key(message)]
        for name in names:
            parent.by_key.setdefault(name, []).append(node)
            self._named.setdefault(name, []).append(node)
        return node

    def _map_repaired(self, last: dict[int, StoredNode]) -> None:
        """Map the end of each repaired branch to the end of its replacement."""
        for number, end in list(last.items()):
            line: list[StoredNode] = []
            while end.parent is not None and end.branch == number:
                line.append(end)
                end = end.parent
            note = get_repair_note(line[-1].message) if line and line[-1].message is not None else {}
            old = note.get("branch")
            if not isinstance(old, int) or old not in last:
                continue
            before = last[old]
            while before.parent is not None and before.id.hex() != note.get("tip"):
                before = before.parent
            copied = line[::-1]
            count = next((at for at, each in enumerate(copied) if not _is_copy(each.message)), len(copied))
            self.copies.update(id(each) for each in copied[:count])
            if before.parent is not None and count:
                self._instead[id(before)] = copied[count - 1]
                if not before.children:
                    self.repaired.add(old)


def content_key(message: Message) -> bytes:
    """Return a hash of the content of a message. System prompts that differ only in digits (a date) are equal."""
    calls: list[object] = [_call_key(call) for call in message.tool_calls]
    calls += ["" if GENERATED_ID.fullmatch(result.call_id) else result.call_id for result in message.tool_results]
    text = "" if message.role == "tool" else message.text.strip()
    if message.role == "system":
        text = DIGITS.sub("0", text)
    shown = [] if message.role == "tool" else _media_keys(message)
    return blake2b(encode_canonical((message.role, text, calls, shown)), digest_size=16).digest()


def extend_path(path: bytes, message: Message) -> bytes:
    """Return the hash of the path to a message, from the hash of the path before it."""
    return blake2b(path + content_key(message), digest_size=16).digest()


def has_other_version(node: StoredNode, message: Message) -> bool:
    """Return True if the tree has another version of this message: a reply that was stored incomplete, or a placeholder
    result.
    """
    if message.role == "tool":
        alike = (each.message for each in node.by_key.get(content_key(message), ()))
        if any(each is not None and get_repair_note(each) for each in alike):
            return True
    return message.role != "user" and bool(message.uid) and message.uid in node.by_key


def _read(body: bytes) -> Message | None:
    try:
        return decode_message(body)
    except MsgspecError:
        return None


def _media_keys(message: Message) -> list[object]:
    media = [part for part in message.parts if isinstance(part, Media | ProviderBlock)]
    return [
        part.data if isinstance(part, ProviderBlock) else part.blob or part.url or part.file_id or "" for part in media
    ]


def _is_same_message(node: StoredNode, theirs: Message) -> bool:
    """Return True if a node with the same uid or hash is the same message."""
    ours = node.message
    if ours is None or ours.role != theirs.role or not _may_share_author(ours, theirs):
        return False
    if ours.redacted:
        return bool(theirs.uid)
    if content_key(ours) != content_key(theirs) or (theirs.uid and ours.status != "sent" == theirs.status):
        return False  # another message, or a reply that was not complete
    if theirs.role == "tool":
        return bool(theirs.uid and node.children) or longer_results(ours, theirs) is not None
    return not theirs.uid or _call_contents(ours) == _call_contents(theirs)


def _call_contents(message: Message) -> list[object]:
    return [(call.id, call.name, call.raw or call.arguments) for call in message.tool_calls]


def _call_key(call: ToolCall) -> object:
    return (call.name, call.raw or call.arguments) if GENERATED_ID.fullmatch(call.id) else call.id


def _matches_id(node: StoredNode, parent: StoredNode, theirs: Message) -> bool:
    """Return True if a redacted or unreadable message was this one, by its id. It must not be imported again.

    A message without an author matches any author.
    """
    authors = {theirs.author, node.message.author if node.message is not None else None}
    versions = (replace(theirs, author=author) for author in authors)
    return any(make_chain_id(parent.id, canonical_content(version)) == node.id for version in versions)


def _may_be_missing_between(node: StoredNode, found: StoredNode, theirs: Message) -> bool:
    """Return True if the messages between two nodes may be missing in a client's history."""
    each = found.parent
    while each is not None and each.seq > node.seq:
        if each.message is not None and each.message.role == "user" and _may_share_author(each.message, theirs):
            return False
        each = each.parent
    return each is node


def _may_share_author(one: Message, other: Message) -> bool:
    """Return True if two messages may have the same author. A missing author matches any."""
    return one.author is None or other.author is None or one.author == other.author


def _is_replaced(passed: Message | None, first: Message) -> bool:
    """Return True if a new message would replace this one, instead of following it."""
    if passed is None or passed.role == "user":
        return passed is None or _may_share_author(passed, first)
    return passed.role == first.role == "assistant" or (
        passed.role == "tool" and content_key(passed) == content_key(first)
    )


def _is_copy(message: Message | None) -> bool:
    return message is not None and (bool(get_repair_note(message)) or original_uid(message.uid) != message.uid)

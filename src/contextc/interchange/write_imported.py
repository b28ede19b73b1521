"""Writes an imported conversation to a store: in one transaction, and only the messages that the store does not have.

The conversation of the store is found by the source and its id there; if the source has no id, by its messages. Lines
that diverge become branches, and so does a reply whose content changed. If the conversation was continued in the store
in the meantime, or has a running turn, the import is refused. Another name for the conversation solves that.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from msgspec import MsgspecError
from msgspec.structs import replace

from contextc.errors import Conflict, ConversationExists, InvalidInput
from contextc.interchange.contextc_jsonl import CHUNK, Progress
from contextc.interchange.found_conversation import Origin, read_origin
from contextc.messages import (
    Message,
    decode_message,
    validate_message,
)
from contextc.store import Branch, Conversation, Store, branches, message_log
from contextc.store.leases import holds_none, may_take
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, PendingMessage, original_uid
from contextc.store.message_matching import (
    IMPORTED,
    IMPORTED_BY_ID,
    MessageKey,
    call_content,
    had_content_of,
    is_same,
    may_share_author,
    message_key,
)
from contextc.store.redaction import get_repair_note
from contextc.store.transaction_engine import Transaction

# ── what the store has already ────────────────────────────────────────────────────────────────────────────────────────
# Tree of the stored messages of a conversation, and the match of an imported line with it.
#
# Every message is read once, also with many branches. Each step considers only the following messages, so that a match
# takes time proportional to the line. Messages are equal if their uid, their text, their calls or their answered calls
# are. A redacted or unreadable message is identified by its id. If a branch was repaired, the match continues on the
# repaired branch.


NodeKey: TypeAlias = str | MessageKey
"""A uid, or the key of a message."""


class StoredNode:
    """A message at its position; None if it is unreadable. `ending_branches` are the branches that end with it."""

    __slots__ = ("branch", "by_key", "children", "ending_branches", "id", "message", "parent", "seq", "unreadable")

    def __init__(self, branch: int, seq: int, id: bytes, message: Message | None, parent: "StoredNode | None") -> None:
        self.branch, self.seq, self.id, self.message, self.parent = branch, seq, id, message, parent
        self.children: list[StoredNode] = []
        self.by_key: dict[NodeKey, list[StoredNode]] = {}
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
        self._named: dict[NodeKey, list[StoredNode]] = {}
        self._instead: dict[int, StoredNode] = {}
        head = message_log.find_tip(tx, name, lock)
        self.is_new = head is None
        self.branch = head.branch if head is not None else 0
        if head is not None:
            self.root.id = message_log.load_root(tx, head.tree)
            self._load(tx, head.tree)

    def find_next(self, node: StoredNode, message: Message) -> list[StoredNode]:
        """Return the nodes that may be this message, after a node; others may be in between."""
        wanted = message.uid or message_key(message, IMPORTED)
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
        rows = tx.rows(
            "SELECT number, parent, base_seq, conversation FROM main.branch WHERE tree = ? ORDER BY number", tree
        )
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
            if (found := nodes.get(message_log.make_place(parent, seq))) is not None:
                return found
            above, base, _ = table[parent]
            parent, seq = (parent, seq - 1) if seq - 1 > base else (above, min(seq, base))
        return self.root

    def _read(
        self, tx: Transaction, nodes: dict[int, StoredNode], number: int, upto: int, node: StoredNode
    ) -> StoredNode:
        low, high = message_log.make_place(number, 0), message_log.make_place(number, upto)
        for where, identity, body in tx.rows(
            "SELECT place, id, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place", low, high
        ):
            message = _decode_or_none(body)
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
        names: list[NodeKey] = []
        if message is not None:
            names += [original_uid(message.uid)] if message.uid else []
            names += [] if message.redacted else [message_key(message, IMPORTED)]
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


def extend_path(path: bytes, message: Message) -> bytes:
    """Return the hash of the path to a message, from the hash of the path before it."""
    return blake2b(path + repr(message_key(message, IMPORTED)).encode(errors="replace"), digest_size=16).digest()


def has_other_version(node: StoredNode, message: Message) -> bool:
    """Return True if the tree has another version of this message: a reply that was stored incomplete, or a placeholder
    result.
    """
    if message.role == "tool":
        alike = (each.message for each in node.by_key.get(message_key(message, IMPORTED), ()))
        if any(each is not None and get_repair_note(each) for each in alike):
            return True
    return message.role != "user" and bool(message.uid) and message.uid in node.by_key


def _decode_or_none(body: bytes) -> Message | None:
    try:
        return decode_message(body)
    except MsgspecError:
        return None


def _is_same_message(node: StoredNode, theirs: Message) -> bool:
    """Return True if a node with the same uid or hash is the same message."""
    ours = node.message
    if ours is None:
        return False
    if ours.redacted:
        return bool(theirs.uid) and ours.role == theirs.role and may_share_author(ours, theirs)
    if theirs.uid and ours.status != "sent" == theirs.status:
        return False  # a reply that was not complete
    if not is_same(ours, theirs, IMPORTED_BY_ID if theirs.uid and node.children else IMPORTED):
        return False
    return not theirs.uid or theirs.role == "tool" or _call_contents(ours) == _call_contents(theirs)


def _call_contents(message: Message) -> list[object]:
    return [(call.id, call_content(call)) for call in message.tool_calls]


def _matches_id(node: StoredNode, parent: StoredNode, theirs: Message) -> bool:
    """Return True if a redacted or unreadable message was this one. It must not be imported again."""
    return had_content_of(node.id, parent.id, node.message.author if node.message is not None else None, theirs)


def _may_be_missing_between(node: StoredNode, found: StoredNode, theirs: Message) -> bool:
    """Return True if the messages between two nodes may be missing in a client's history."""
    each = found.parent
    while each is not None and each.seq > node.seq:
        if each.message is not None and each.message.role == "user" and may_share_author(each.message, theirs):
            return False
        each = each.parent
    return each is node


def _is_replaced(passed: Message | None, first: Message) -> bool:
    """Return True if a new message would replace this one, instead of following it."""
    if passed is None or passed.role == "user":
        return passed is None or may_share_author(passed, first)
    return passed.role == first.role == "assistant" or (
        passed.role == "tool" and message_key(passed, IMPORTED) == message_key(first, IMPORTED)
    )


def _is_copy(message: Message | None) -> bool:
    return message is not None and (bool(get_repair_note(message)) or original_uid(message.uid) != message.uid)


# ── conversations that begin alike ────────────────────────────────────────────────────────────────────────────────────
# Stored conversations with the same prefix as an imported one without an id: a log may be cut, rotated or extended.
#
# Only conversations with the same first message are read, each once per import.


class PrefixIndex:
    """The stored conversations of one source that have no id there."""

    def __init__(self, store: Store, source: str) -> None:
        self.store, self.source = store, source
        self._by_beginning: dict[bytes, list[str]] | None = None
        self._read: set[str] = set()
        self._by_path: dict[bytes, dict[str, bool]] = {}

    def find_names(self, lines: Sequence[Sequence[PendingMessage]]) -> list[str]:
        """Return the conversations that contain a line or are contained in one, the longest match first."""
        if self._by_beginning is None:
            self._by_beginning = self.store.read(self._beginnings)
        found: dict[str, int] = {}
        for line in lines if self._by_beginning else ():
            ways = _path_hashes([entry.admitted.message for entry in line])
            self._load({name for way in ways[:2] for name in self._by_beginning.get(way, ())})
            for length, way in enumerate(ways, 1):
                for name, is_end in self._by_path.get(way, {}).items():
                    if is_end or length == len(line):
                        found[name] = max(found.get(name, 0), length)
        return sorted(found, key=lambda name: -found[name])

    def _load(self, names: set[str]) -> None:
        """Read the conversations that were not read yet."""
        for name in sorted(names - self._read):
            self._read.add(name)
            for way, is_end in self.store.read(
                lambda tx, name=name: list(StoredTree(tx, name, lock=False).path_hashes())
            ):
                known = self._by_path.setdefault(way, {})
                known[name] = known.get(name, False) or is_end

    def _beginnings(self, tx: Transaction) -> dict[bytes, list[str]]:
        """Return the conversations by their first message; after a system prompt, by the first two."""
        first: dict[str, Message] = {}
        found: dict[bytes, list[str]] = {}
        for name, place, body in tx.rows(
            "SELECT c.name, m.place, m.body FROM main.conversation c"
            " JOIN main.branch b ON b.conversation = c.name AND b.tree = c.tree AND b.base_seq < 2"
            " JOIN main.message m ON m.place BETWEEN b.number * 4294967296 + 1 AND b.number * 4294967296 + 2"
            " ORDER BY m.place"
        ):
            try:
                message = decode_message(body)
            except MsgspecError:
                continue
            if place & SEQ_MASK == 1 and not message.redacted and self._is_nameless(message):
                first[name] = message
                found.setdefault(extend_path(b"", message), []).append(name)
            elif place & SEQ_MASK == 2 and name in first and first[name].role == "system":
                found.setdefault(extend_path(extend_path(b"", first[name]), message), []).append(name)
        alone = {extend_path(b"", message) for message in first.values() if message.role == "system"}
        return {way: names for way, names in found.items() if way not in alone}

    def _is_nameless(self, message: Message) -> bool:
        origin = read_origin(message)
        return origin is not None and origin.source == self.source and not origin.is_unique


def _path_hashes(messages: Sequence[Message]) -> list[bytes]:
    path, found = b"", list[bytes]()
    for message in messages:
        path = extend_path(path, message)
        found.append(path)
    return found


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


MIN_UNIQUE_ID = 10  # characters; a shorter id may be a counter
LONG_CONVERSATION = 5 * CHUNK  # messages; progress within a longer conversation is reported
EntryLine = list[PendingMessage]


class WriteResult(NamedTuple):
    conversation: Conversation
    added: int
    branches: int
    messages: int
    """The number of messages on all branches."""
    places: Sequence[tuple[int, ...]] = ()
    """The places of the messages of each line."""


class NameChoice(NamedTuple):
    """The names that a conversation may get.

    `is_required`: the caller chose `default`. Names in `taken` are excluded.
    """

    default: str
    is_required: bool = False
    taken: frozenset[str] = frozenset()

    def candidates(self, id: str) -> Iterator[str]:
        """Return the candidate names for an id, in a stable order."""
        if self.default not in self.taken:
            yield self.default
        plain = f"{self.default}-{blake2b(id.encode(errors='replace'), digest_size=4).hexdigest()}"
        number = 1
        while True:
            name = plain if number == 1 else f"{plain}-{number}"
            if name not in self.taken:
                yield name
            number += 1


class _TreePosition:
    """A position in the stored tree that imported lines reach: the candidate nodes, and the positions after it."""

    __slots__ = ("next", "nodes")

    def __init__(self, at: list[StoredNode]) -> None:
        self.nodes = at
        self.next: dict[int, _TreePosition] = {}


def write_conversation(
    store: Store,
    name_choice: NameChoice,
    origin: Origin,
    lines: Sequence[Sequence[Message]],
    *,
    similar: PrefixIndex | None = None,
    progress: Progress | None = None,
) -> WriteResult:
    """Store the new messages of these lines, in their conversation or in a new one: completely, or not at all."""
    entries = _prepare_lines(lines)
    alike = (
        similar.find_names(entries)
        if similar is not None and not name_choice.is_required and not origin.is_unique
        else []
    )

    def work(tx: Transaction) -> WriteResult:
        placing = _find_target(tx, name_choice, origin, entries, alike)
        added = placing.write(tx, progress)
        name = placing.name
        found = branches.list_branches(tx, name)
        total, places = count_messages(found), [placing.places(line) for line in entries]
        return WriteResult(branches.load_conversation(tx, name), added, len(found), total, places)

    return store.write(work, repeatable=True)


def count_messages(found: Sequence[Branch]) -> int:
    """Return the number of messages on these branches, each counted once."""
    return sum(branch.length - branch.base for branch in found)


def _prepare_lines(lines: Sequence[Sequence[Message]]) -> list[EntryLine]:
    """Validate each message once. Messages that lines share stay the same object. A uid is used once."""
    made: dict[int, PendingMessage] = {}
    uids: set[str] = set()
    for message in (message for line in lines for message in line):
        if id(message) not in made:
            taken = bool(message.uid) and message.uid in uids
            uids.add(message.uid)
            made[id(message)] = message_log.prepare_entry(
                validate_message(replace(message, uid="") if taken else message)
            )
    return [[made[id(message)] for message in line] for line in lines]


# ── which conversation it is ──────────────────────────────────────────────────────────────────────────────────────────


def _find_target(
    tx: Transaction, name_choice: NameChoice, origin: Origin, lines: Sequence[EntryLine], similar: Sequence[str]
) -> "_ImportTarget":
    if name_choice.is_required:
        return _find_named_target(tx, name_choice, origin, lines)
    if not origin.is_unique:
        plain = next(name_choice.candidates(origin.id))
        likely = [plain, *similar] if _may_have_origin(tx, plain, origin) else similar
        for name in dict.fromkeys(each for each in likely if each not in name_choice.taken):
            placing = _ImportTarget(tx, name, lines)
            if placing.is_same_conversation():
                return placing
        return _ImportTarget(
            tx, next(name for name in name_choice.candidates(origin.id) if _is_free_name(tx, name)), lines
        )
    for name in name_choice.candidates(origin.id):
        if _is_free_name(tx, name) or _may_have_origin(tx, name, origin):
            return _ImportTarget(tx, name, lines)
    raise AssertionError("there are always more names")


def _find_named_target(
    tx: Transaction, name_choice: NameChoice, origin: Origin, lines: Sequence[EntryLine]
) -> "_ImportTarget":
    """Return the conversation of the chosen name; if that is another one, an earlier import beside it."""
    whatever = origin if origin.is_unique else replace(origin, id="")
    if _is_free_name(tx, name_choice.default) or _may_have_origin(tx, name_choice.default, whatever):
        return _ImportTarget(tx, name_choice.default, lines)
    beside = f"{name_choice.default}-{origin.short_id}"
    if origin.is_unique and not _is_free_name(tx, beside) and _may_have_origin(tx, beside, origin):
        return _ImportTarget(tx, beside, lines)
    raise ConversationExists(name_choice.default)


def _is_free_name(tx: Transaction, name: str) -> bool:
    return message_log.find_tip(tx, name, lock=True) is None


def _may_have_origin(tx: Transaction, name: str, origin: Origin) -> bool:
    """Return True if a conversation may have this origin: it names the same one, or none."""
    row = tx.row(
        "SELECT m.body FROM main.conversation c JOIN main.message m ON m.place = c.tree * 4294967296 + 1"
        " WHERE c.name = ?",
        name,
    )
    try:
        known = read_origin(decode_message(row[0])) if row is not None else None
    except MsgspecError:
        known = None
    return known is None or (known.source == origin.source and origin.id in ("", known.id))


# ── what is new in it ─────────────────────────────────────────────────────────────────────────────────────────────────


class _ImportTarget:
    """The lines of a source, compared with the stored conversation of a name."""

    def __init__(self, tx: Transaction, name: str, lines: Sequence[EntryLine]) -> None:
        self.name, self.lines = name, lines
        self.stored = StoredTree(tx, name)
        self.start = _TreePosition([self.stored.root])
        self.covered: set[int] = {*self.stored.copies}
        self.added = 0
        for line in lines:
            self._match(line)

    def is_same_conversation(self) -> bool:
        """Return True if a line contains a whole stored chain, or a stored chain the whole line.

        A common prefix alone is not enough, unless one of its messages has a unique id.
        """
        if self.stored.is_new:
            return False
        for line in self.lines:
            way, matched = self._match(line)
            if matched and (matched == len(line) or self._ends(way, line[matched].admitted.message)):
                return True
            if any(len(entry.admitted.message.uid) >= MIN_UNIQUE_ID for entry in line[:matched]):
                return True
        return False

    def write(self, tx: Transaction, progress: Progress | None) -> int:
        """Add the new messages. The current branch stays current, unless its last reply was replaced."""
        current, fresh = self.stored.branch, self.stored.is_new
        total = sum(map(len, self.lines))
        for line in self.lines:
            way, matched = self._match(line)
            if matched == len(line):
                continue
            if not fresh:
                self._check_no_turn(tx)
            is_newer = self._switch_for(tx, way, line, matched, fresh=fresh)
            self._append(tx, way, line[matched:], progress if total > LONG_CONVERSATION else None, total)
            current = message_log.load_tip(tx, self.name).branch if is_newer else current
        if fresh:
            way, _ = self._match(self.lines[-1])
            current = self.stored.any_branch(way.nodes[0])
        if self.added:
            branches.switch(tx, self.name, current)
        return self.added

    def places(self, line: EntryLine) -> tuple[int, ...]:
        """Return the places of the messages of a line that was written."""
        found: list[int] = []
        way = self.start
        for entry in line:
            if (after := way.next.get(id(entry))) is None:
                return ()
            way = after
            node = max(way.nodes, key=lambda each: (self.stored.is_current(each), each.branch))
            found.append(message_log.make_place(node.branch, node.seq))
        return tuple(found)

    def _match(self, line: EntryLine) -> tuple[_TreePosition, int]:
        """Return the last stored position of a line, and the number of its messages up to there."""
        way = self.start
        for place, entry in enumerate(line):
            after = way.next.get(id(entry))
            if after is None:  # in a new conversation, only the same objects are stored
                nodes = [] if self.stored.is_new else way.nodes
                found = [each for node in nodes for each in self.stored.find_next(node, entry.admitted.message)]
                if not found:
                    return way, place
                after = way.next[id(entry)] = _TreePosition(list({id(each): each for each in found}.values()))
                self.covered.update(map(id, found))
            way = after
        return way, len(line)

    def _ends(self, way: _TreePosition, first: Message) -> list[tuple[int, StoredNode]]:
        """Return the branches that a message may continue; if the source diverges here, those that end here."""
        found = [each for node in way.nodes for each in self.stored.find_ends(node, None if way.next else first)]
        return sorted(found, key=lambda each: (each[0] == self.stored.branch, each[0]), reverse=True)

    def _switch_for(self, tx: Transaction, way: _TreePosition, line: EntryLine, matched: int, *, fresh: bool) -> bool:
        """Switch to where the rest of a line belongs. Return True if it replaces the existing messages."""
        if fresh and not self.added:
            return False
        first = line[matched].admitted.message
        if way is self.start and not self.start.next:
            raise ConversationExists(self.name)
        if way is not self.start and (ends := self._ends(way, first)):
            branch, end = ends[0]
            if not fresh:
                self._check_not_left(branch, end)
            branches.switch(tx, self.name, branch)
            way.nodes = [end]
            return False
        node = max(way.nodes, key=lambda each: (self.stored.is_current(each), each.branch))
        is_changed = has_other_version(node, first)
        if not fresh and not way.next and not is_changed:
            raise InvalidInput(
                f"Conversation {self.name!r} and this session differ after message {node.seq}",
                fix="Import the session under another name.",
                case="diverged",
            )
        is_newer = is_changed and not fresh and self._replaces_current(node, line)
        branches.switch(tx, self.name, self.stored.any_branch(node))
        branches.rewind(tx, self.name, node.seq)
        way.nodes = [node]
        return is_newer

    def _check_not_left(self, branch: int, end: StoredNode) -> None:
        """Raise InvalidInput if a branch was left in the store: by an edit or a rewind."""
        parted, after = self.stored.divergence(end)
        if (after is None and parted is end) or branch == self.stored.branch:
            return
        uid = after.message.uid if after is not None and after.message is not None else ""
        versions = parted.by_key.get(uid, ()) if uid else ()
        if after is None or not (id(after) in self.covered or any(id(each) in self.covered for each in versions)):
            raise InvalidInput(
                f"Conversation {self.name!r} was continued after message {parted.seq}, but the new messages of its "
                f"source belong to branch {branch}, which is not the current one",
                fix=f"Switch to branch {branch} first, or import the session under another name.",
                case="left-branch",
                detail=str(branch),
            )

    def _replaces_current(self, node: StoredNode, line: EntryLine) -> bool:
        """Return True if all messages after a node on the current branch are older versions of the source's."""
        if not self.stored.is_current(node):
            return False
        theirs = {entry.admitted.message.uid or message_key(entry.admitted.message, IMPORTED) for entry in line}
        behind = [each.message for each in self.stored.current if each.seq > node.seq]
        return all(each is not None and ({each.uid, message_key(each, IMPORTED)} & theirs) for each in behind)

    def _append(
        self, tx: Transaction, way: _TreePosition, rest: EntryLine, progress: Progress | None, total: int
    ) -> None:
        node = way.nodes[0]
        for start in range(0, len(rest), CHUNK):
            batch = rest[start : start + CHUNK]
            stored = message_log.append_messages(tx, self.name, [self._free(tx, entry) for entry in batch])
            branch = message_log.load_tip(tx, self.name).branch
            for entry, message in zip(batch, stored, strict=True):
                node = self.stored.add_message(node, branch, message)
                way.next[id(entry)] = way = _TreePosition([node])
            self.added += len(batch)
            if progress:
                progress(min(self.added, total), total)

    def _free(self, tx: Transaction, entry: PendingMessage) -> PendingMessage:
        if self.stored.is_new or not entry.admitted.message.uid:
            return entry
        return branches.with_free_uid(tx, message_log.load_tip(tx, self.name).tree, entry)

    def _check_no_turn(self, tx: Transaction) -> None:
        """Raise Conflict if a turn is running: it has exclusive access to the conversation."""
        left = f"expires - {tx.dialect.now}"
        for agent, number, holder, seconds in tx.rows(
            f"SELECT agent, number, holder, {left} FROM main.lease WHERE conversation = ? AND holder <> ''", self.name
        ):
            if not may_take((self.name, agent, number), holder, seconds, holds_none, requested=False):
                raise Conflict(
                    f"A turn of agent {agent!r} is running in conversation {self.name!r}. Nothing was imported",
                    fix="Import it again when the turn has ended.",
                )

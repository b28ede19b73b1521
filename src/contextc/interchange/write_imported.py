"""Writes an imported conversation to a store: in one transaction, and only the messages that the store does not have.

The conversation of the store is found by the source and its id there; if the source has no id, by its messages. Lines
that diverge become branches, and so does a reply whose content changed. If the conversation was continued in the store
in the meantime, or has a running turn, the import is refused. Another name for the conversation solves that.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import MsgspecError
from msgspec.structs import replace

from contextc.errors import Conflict, ConversationExists, InvalidInput
from contextc.interchange.contextc_jsonl_lines import CHUNK, Progress
from contextc.interchange.found_conversation import Origin, read_origin
from contextc.interchange.prefix_match import PrefixIndex
from contextc.interchange.stored_tree_match import StoredNode, StoredTree, content_key, has_other_version
from contextc.messages import Message, decode_message, validate_message
from contextc.store import Branch, Conversation, Store, append_and_load, branches, message_rows
from contextc.store.append_and_load import PendingMessage
from contextc.store.backend_interface import Transaction
from contextc.store.leases import holds_none, may_take

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
    entries = _entries(lines)
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


def _entries(lines: Sequence[Sequence[Message]]) -> list[EntryLine]:
    """Validate each message once. Messages that lines share stay the same object. A uid is used once."""
    made: dict[int, PendingMessage] = {}
    uids: set[str] = set()
    for message in (message for line in lines for message in line):
        if id(message) not in made:
            taken = bool(message.uid) and message.uid in uids
            uids.add(message.uid)
            made[id(message)] = append_and_load.prepare_entry(
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
        return _ImportTarget(tx, next(name for name in name_choice.candidates(origin.id) if _is_free(tx, name)), lines)
    for name in name_choice.candidates(origin.id):
        if _is_free(tx, name) or _may_have_origin(tx, name, origin):
            return _ImportTarget(tx, name, lines)
    raise AssertionError("there are always more names")


def _find_named_target(
    tx: Transaction, name_choice: NameChoice, origin: Origin, lines: Sequence[EntryLine]
) -> "_ImportTarget":
    """Return the conversation of the chosen name; if that is another one, an earlier import beside it."""
    whatever = origin if origin.is_unique else replace(origin, id="")
    if _is_free(tx, name_choice.default) or _may_have_origin(tx, name_choice.default, whatever):
        return _ImportTarget(tx, name_choice.default, lines)
    beside = f"{name_choice.default}-{origin.short_id}"
    if origin.is_unique and not _is_free(tx, beside) and _may_have_origin(tx, beside, origin):
        return _ImportTarget(tx, beside, lines)
    raise ConversationExists(name_choice.default)


def _is_free(tx: Transaction, name: str) -> bool:
    return message_rows.find_tip(tx, name, lock=True) is None


def _may_have_origin(tx: Transaction, name: str, origin: Origin) -> bool:
    """Return True if a conversation may have this origin: it names the same one, or none."""
    row = tx.row(
        "SELECT m.body FROM conversation c JOIN message m ON m.place = c.tree * 4294967296 + 1 WHERE c.name = ?", name
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
            current = message_rows.load_tip(tx, self.name).branch if is_newer else current
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
            found.append(message_rows.make_place(node.branch, node.seq))
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
        theirs = {entry.admitted.message.uid or content_key(entry.admitted.message) for entry in line}
        behind = [each.message for each in self.stored.current if each.seq > node.seq]
        return all(each is not None and ({each.uid, content_key(each)} & theirs) for each in behind)

    def _append(
        self, tx: Transaction, way: _TreePosition, rest: EntryLine, progress: Progress | None, total: int
    ) -> None:
        node = way.nodes[0]
        for start in range(0, len(rest), CHUNK):
            batch = rest[start : start + CHUNK]
            stored = append_and_load.append_messages(tx, self.name, [self._free(tx, entry) for entry in batch])
            branch = message_rows.load_tip(tx, self.name).branch
            for entry, message in zip(batch, stored, strict=True):
                node = self.stored.add_message(node, branch, message)
                way.next[id(entry)] = way = _TreePosition([node])
            self.added += len(batch)
            if progress:
                progress(min(self.added, total), total)

    def _free(self, tx: Transaction, entry: PendingMessage) -> PendingMessage:
        if self.stored.is_new or not entry.admitted.message.uid:
            return entry
        return branches.with_free_uid(tx, message_rows.load_tip(tx, self.name).tree, entry)

    def _check_no_turn(self, tx: Transaction) -> None:
        """Raise Conflict if a turn is running: it has exclusive access to the conversation."""
        left = f"expires - {tx.dialect.now}"
        for agent, number, holder, seconds in tx.rows(
            f"SELECT agent, number, holder, {left} FROM lease WHERE conversation = ? AND holder <> ''", self.name
        ):
            if not may_take((self.name, agent, number), holder, seconds, holds_none, requested=False):
                raise Conflict(
                    f"A turn of agent {agent!r} is running in conversation {self.name!r}. Nothing was imported",
                    fix="Import it again when the turn has ended.",
                )

"""A found conversation put into a store: in one transaction, and only what the store does not have.

Lines that part become branches. A conversation that is imported again gets what is new in its source; where it has gone
on by itself in the meantime nothing is mixed: that is refused, and another name is the way out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.errors import ConversationExists, InvalidInput
from contextc.messages import Message, admit
from contextc.store import Conversation, Store, branches, chain, places
from contextc.store.base import Transaction
from contextc.store.chain import Entry
from contextc.store.sync import Difference, compare
from contextc.transfer.lines import CHUNK, Progress

LONG = 5 * CHUNK  # messages of one conversation that are told one by one
Line = list[Entry]


class Placed(NamedTuple):
    conversation: Conversation
    added: int
    branches: int


class _Node:
    """A message on its way, with the branch of the store it stands on, and what follows it."""

    __slots__ = ("after", "branch")

    def __init__(self, branch: int) -> None:
        self.branch = branch
        self.after: dict[int, _Node] = {}


def place(store: Store, name: str, lines: Sequence[Sequence[Message]], *, progress: Progress | None = None) -> Placed:
    """Store what is new in these lines as the conversation of this name: all of it, or nothing."""
    entries = _entries(lines)

    def work(tx: Transaction) -> Placed:
        is_there = places.find_head(tx, name, True) is not None
        added = _go_on(tx, name, entries) if is_there else _begin(tx, name, entries, progress)
        return Placed(branches.describe(tx, name), added, len(branches.branches(tx, name)))

    return store.write(work, repeatable=True)


def _entries(lines: Sequence[Sequence[Message]]) -> list[Line]:
    """The messages admitted, each once: what several lines share stays the same object. A uid is given out once."""
    made: dict[int, Entry] = {}
    uids: set[str] = set()
    for message in (message for line in lines for message in line):
        if id(message) not in made:
            taken = bool(message.uid) and message.uid in uids
            uids.add(message.uid)
            made[id(message)] = chain.entry(admit(replace(message, uid="") if taken else message))
    return [[made[id(message)] for message in line] for line in lines]


def _begin(tx: Transaction, name: str, lines: Sequence[Line], progress: Progress | None) -> int:
    root, added, total = _Node(0), 0, sum(map(len, lines))
    for line in lines:
        node, shared = root, 0
        while shared < len(line) and (after := node.after.get(id(line[shared]))) is not None:
            node, shared = after, shared + 1
        if root.after:
            _turn_to(tx, name, (node if shared else next(iter(root.after.values()))).branch, shared, len(line))
        for start in range(shared, len(line), CHUNK):
            chain.append(tx, name, line[start : start + CHUNK])
            if progress and total > LONG:
                progress(min(added + start + CHUNK - shared, total), total)
        branch = places.head(tx, name).branch
        for entry in line[shared:]:
            node.after[id(entry)] = node = _Node(branch)
        added += len(line) - shared
    return added


def _turn_to(tx: Transaction, name: str, branch: int, shared: int, length: int) -> None:
    """Go to a branch that has the first messages of a line, and back to the last of those where others follow."""
    branches.switch(tx, name, branch)
    if shared < length:
        branches.rewind(tx, name, shared)


def _go_on(tx: Transaction, name: str, lines: Sequence[Line]) -> int:
    """Add what is new. The branch that was the current one stays it."""
    current, added = places.head(tx, name).branch, 0
    for number, line in enumerate(lines):
        difference, branch = _nearest(tx, name, current, [entry.admitted.message for entry in line])
        if not difference.tail:
            continue
        matched = len(line) - difference.tail
        if not matched and not number:
            raise ConversationExists(name)
        parts = difference.rewrites or not matched
        after = difference.after if matched else 0
        if parts and not _is_told(tx, name, current, line[:matched], [*lines[:number], *lines[number + 1 :]]):
            raise InvalidInput(
                f"Conversation {name!r} and this session went on differently after message {after}. "
                "Import the session under another name (--as)."
            )
        branches.switch(tx, name, branch)
        if parts:  # as the source itself says
            branches.rewind(tx, name, after)
        tree = places.head(tx, name).tree
        new = [branches.renamed(tx, tree, entry) if entry.admitted.message.uid else entry for entry in line[matched:]]
        chain.append(tx, name, new)
        added += len(new)
        branches.switch(tx, name, current)
    return added


def _is_told(tx: Transaction, name: str, current: int, shared: Line, others: Sequence[Line]) -> bool:
    """Whether the source itself says that a line goes another way here: by another line, which the store has."""
    for other in others:
        if other[: len(shared)] == shared:
            difference, _ = _nearest(tx, name, current, [entry.admitted.message for entry in other])
            if len(other) - difference.tail > len(shared):
                return True
    return False


def _nearest(tx: Transaction, name: str, current: int, theirs: Sequence[Message]) -> tuple[Difference, int]:
    """What a line adds to the branch that has most of it, and which that is: the current one, where it has as much."""
    there = sorted(branches.branches(tx, name), key=lambda each: (each.number != current, -each.number))
    found: list[tuple[Difference, int]] = []
    for branch in there:
        difference = compare(chain.messages_between(tx, branch.number, 0, branch.length), theirs)
        found.append((difference, branch.number))
        if not difference.tail:
            break
    return min(found, key=lambda each: (each[0].tail, each[0].rewrites))

"""Where messages are, and how they are found: by number, uid or id, along the lines a chain runs through.

A branch holds a run of messages; `place` is its number and a message's seq in one. A chain is read along its lineage:
the branch itself, then the part of its parent up to where it begins, and so on to the root. No name needs an index:
an id begins with its seq, and a uid of ours holds its place.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from contextc.errors import InvalidInput, StoreCorrupt, UnknownBranch, UnknownConversation, UnknownMessage
from contextc.messages import Message
from contextc.store.base import Reference, Transaction
from contextc.store.reading import LOOK, SEQ_BITS, SEQ_MASK, as_id, read_message

MAX_NAME = 512
FOLDERS = (".", "..")
UNANSWERED = 1 << 30
"""Rows and manifests of a channel with a higher number are of requests that were not answered."""
UID = re.compile("([0-9a-f]{1,8})-([0-9a-f]{1,8})-[0-9a-f]{16}")
ID = re.compile("([0-9a-f]{8})[0-9a-f]{4,32}")


class Head(Struct, frozen=True, gc=False):
    """Where a conversation's current branch ends: its last message, or the root."""

    conversation: int
    tree: int
    branch: int
    revision: int
    seq: int
    id: bytes
    spoken: int = 0
    """The second that the conversation's row has as the one it was last spoken in; 0 where that is not known."""


class Spot(Struct, frozen=True, gc=False):
    """A message found: the branch that holds it, its seq and its id. Seq 0 is the root."""

    branch: int
    seq: int
    id: bytes


def place(branch: int, seq: int) -> int:
    return branch << SEQ_BITS | seq


def check_name(name: object, what: str = "conversation") -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        shown = (
            f"a {type(name).__name__}" if not isinstance(name, str) else repr(name) if len(name) < 80 else "this text"
        )
        raise InvalidInput(f"{shown} cannot name a {what}: use 1 to {MAX_NAME} printable characters.")


def check_new_name(name: str) -> None:
    """Refuse names under which a conversation could not be asked for: in an address these two are folders."""
    if name in FOLDERS:
        raise InvalidInput(f"{name!r} cannot name a new conversation: a browser takes it for a folder.")


def head(tx: Transaction, conversation: str, *, lock: bool = False) -> Head:
    """The conversation's end. With `lock`, nobody else may move it before this transaction is over."""
    found = find_head(tx, conversation, lock)
    if found is None:
        raise UnknownConversation(conversation)
    return found


def find_head(tx: Transaction, conversation: str, lock: bool) -> Head | None:
    """`head`, or None where there is no such conversation."""
    check_name(conversation)
    if lock and tx.dialect.lock:
        tx.row(f"SELECT 1 FROM conversation WHERE name = ?{tx.dialect.lock}", conversation)
    row = tx.row(
        "SELECT c.number, c.tree, c.branch, c.revision, c.spoken, b.base_seq, b.base_id, m.place, m.id"
        " FROM conversation c"
        " LEFT JOIN branch b ON b.number = c.branch AND b.tree = c.tree AND b.conversation = c.name"
        " LEFT JOIN message m ON m.place = (SELECT max(place) FROM message"
        " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
        " WHERE c.name = ?",
        conversation,
    )
    if row is None:
        return None
    number, tree, branch, revision, spoken, base, root_id, last, tip = row
    if not isinstance(base, int):
        raise StoreCorrupt(f"{conversation!r} goes on with branch {branch}, which is not there, or not its own. {LOOK}")
    if last is None:
        return Head(number, tree, branch, revision, base, as_id(root_id), spoken)
    if last & SEQ_MASK <= base:
        raise StoreCorrupt(f"Branch {branch} of {conversation!r} ends before it begins, at {base}. {LOOK}")
    return Head(number, tree, branch, revision, last & SEQ_MASK, as_id(tip), spoken)


LAST_SPOKEN = (
    "COALESCE((SELECT time FROM message WHERE place = (SELECT max(place) FROM message"
    " WHERE place BETWEEN branch * 4294967296 AND branch * 4294967296 + 4294967295)), created) / 1000"
)


def turned(tx: Transaction, conversation: str) -> None:
    """Set when a conversation was last spoken in, after it was turned to another branch."""
    tx.run(f"UPDATE conversation SET spoken = {LAST_SPOKEN} WHERE name = ?", conversation)


def spoken_at(tx: Transaction, at: Head, time: int) -> None:
    """Set when a conversation was last spoken in, after a message was put at its end; `time` is in milliseconds."""
    if (second := time // 1000) != at.spoken:
        sql = "UPDATE conversation SET spoken = ? WHERE number = ? AND branch = ? AND spoken <> ?"
        tx.run(sql, second, at.conversation, at.branch, second)


def lock_tree(tx: Transaction, conversation: str) -> None:
    """Keep others from removing or redacting anything in a conversation's tree. Comes before its own lock."""
    row = tx.row("SELECT tree FROM conversation WHERE name = ?", conversation) if tx.dialect.lock else None
    if row is not None:
        tx.row(f"SELECT 1 FROM branch WHERE number = ?{tx.dialect.lock}", row[0])


def branch_end(tx: Transaction, branch: int) -> tuple[int, bytes]:
    last = tx.row(
        "SELECT place, id FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        place(branch, 0),
        place(branch, SEQ_MASK),
    )
    return (last[0] & SEQ_MASK, as_id(last[1])) if last is not None else base_of(tx, branch)


def branch_base(tx: Transaction, branch: int) -> int:
    return base_of(tx, branch)[0]


def base_of(tx: Transaction, branch: int) -> tuple[int, bytes]:
    """The seq and the id after which a branch begins."""
    row = tx.row("SELECT base_seq, base_id FROM branch WHERE number = ?", branch)
    if row is None:
        raise StoreCorrupt(f"Branch {branch} is not there, and others stand on it. {LOOK}")
    return row[0], as_id(row[1])


def lineage(tx: Transaction, branch: int) -> list[tuple[int, int]]:
    """The branches a chain runs through, newest first, each with the seq after which it begins.

    A parent is always the older one, so nobody is led in a circle, whatever the rows say.
    """
    rows = tx.rows(
        "WITH RECURSIVE line (number, parent, base_seq, depth) AS ("
        " SELECT number, parent, base_seq, 0 FROM branch WHERE number = ?"
        " UNION ALL"
        " SELECT b.number, b.parent, b.base_seq, line.depth + 1 FROM branch b JOIN line ON b.number = line.parent"
        " WHERE b.number < line.number"
        ") SELECT number, base_seq, parent FROM line ORDER BY depth",
        branch,
    )
    if not rows:
        raise StoreCorrupt(f"Branch {branch} is not there, and others stand on it. {LOOK}")
    if strange := [number for number, base, _ in rows if not isinstance(base, int)]:
        raise StoreCorrupt(f"Where branch {strange[0]} begins is no number. {LOOK}")
    if rows and rows[-1][2] is not None and rows[-1][1] != 0:
        raise StoreCorrupt(
            f"Branch {rows[-1][0]} begins on branch {rows[-1][2]}, which is not there, or not older. {LOOK}"
        )
    return [(number, base) for number, base, _ in rows]


def stretches(line: Sequence[tuple[int, int]], after: int, upto: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a lineage that hold the messages after `after` up to `upto`, oldest first: branch, first, last."""
    found: list[tuple[int, int, int]] = []
    for number, base in line:
        if base < upto and after < upto:
            found.append((number, max(base, after) + 1, upto))
        upto = min(upto, base)
    return reversed(found)


def find(tx: Transaction, conversation: str, at: Head, reference: Reference, *, anywhere: bool = False) -> Spot:
    """The message a caller means. `anywhere` also finds those that are on other branches of the conversation's tree."""
    if isinstance(reference, bool) or not isinstance(reference, int | str | Message):
        raise UnknownMessage(conversation, reference)
    if isinstance(reference, int):
        if not 0 <= reference <= at.seq:
            raise UnknownMessage(conversation, reference, hint=f"It has messages 1 to {at.seq}.")
        return _by_seq(tx, conversation, at, reference)
    wanted = reference.uid if isinstance(reference, Message) else reference
    spots = by_name(tx, at.tree, wanted)
    here = list(stretches(lineage(tx, at.branch), 0, at.seq)) if spots else []
    for spot in spots:
        if any(spot.branch == branch and first <= spot.seq <= last for branch, first, last in here):
            return spot
    if spots and anywhere:
        return spots[0]
    hint = f"It is on branch {spots[0].branch}: `switch` to that, or fork there." if spots else ""
    raise UnknownMessage(conversation, wanted, hint=hint)


def _by_seq(tx: Transaction, conversation: str, at: Head, seq: int) -> Spot:
    if seq == 0:
        return Spot(at.tree, 0, root(tx, at.tree))
    for branch, first, _ in stretches(lineage(tx, at.branch), seq - 1, seq):
        row = tx.row("SELECT id FROM message WHERE place = ?", place(branch, first))
        if row is not None:
            return Spot(branch, seq, as_id(row[0]))
    raise missing(conversation, seq)


def missing(conversation: str | None, seq: int) -> StoreCorrupt:
    """The error for a row that must be there, and is not."""
    return StoreCorrupt(f"Conversation {conversation!r}: message {seq} is missing from the store. {LOOK}")


def gap_in(tx: Transaction, branch: int, there: Sequence[int], first: int, last: int) -> StoreCorrupt:
    """The error for the first row from `first` to `last` of a branch that is not among those `there`."""
    found = {where & SEQ_MASK for where in there}
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    return missing(row[0] if row else None, next(seq for seq in range(first, last + 1) if seq not in found))


def by_name(tx: Transaction, tree: int, name: str) -> list[Spot]:
    """The messages of a tree with this uid, or whose id begins so."""
    found: list[Spot] = []
    for where in _possible_places(tx, tree, name):
        row = tx.row(
            "SELECT m.id, m.body FROM message m JOIN branch b ON b.number = ? WHERE m.place = ? AND b.tree = ?",
            where >> SEQ_BITS,
            where,
            tree,
        )
        if row is not None and (as_id(row[0]).hex().startswith(name) or read_message(tx, where, row[1]).uid == name):
            found.append(Spot(where >> SEQ_BITS, where & SEQ_MASK, as_id(row[0])))
    return found


def _possible_places(tx: Transaction, tree: int, name: str) -> list[int]:
    if not name.isprintable():
        return []
    early = tx.rows(
        "SELECT e.place, m.place FROM early_uid e LEFT JOIN message m ON m.place = e.place"
        " WHERE e.tree = ? AND e.uid = ?",
        tree,
        name,
    )
    if any(there is None for _, there in early):
        raise StoreCorrupt(f"Message {name!r} is missing from the store. {LOOK}")
    found: list[int] = [where for where, _ in early]
    if match := UID.fullmatch(name):
        branch = int(match[1], 16)
        found += [place(branch, int(match[2], 16))] if branch < 1 << (SEQ_BITS - 1) else []
    elif match := ID.fullmatch(name):
        found += [
            row[0]
            for row in tx.rows(
                "SELECT m.place FROM branch b JOIN message m ON m.place = b.number * 4294967296 + ? WHERE b.tree = ?",
                int(match[1], 16),
                tree,
            )
        ]
    return found


def root(tx: Transaction, tree: int) -> bytes:
    return base_of(tx, tree)[1]


def on_branch(tx: Transaction, conversation: str, at: Head, branch: int) -> Head:
    """The same conversation seen from another of its branches."""
    can_be = type(branch) is int and 0 < branch < 1 << (SEQ_BITS - 1)  # beyond that no store can be asked
    row = tx.row("SELECT 1 FROM branch WHERE number = ? AND conversation = ?", branch, conversation) if can_be else None
    if row is None:
        raise UnknownBranch(conversation, branch)
    seq, tip = branch_end(tx, branch)
    return Head(at.conversation, at.tree, branch, at.revision, seq, tip)

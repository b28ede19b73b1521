"""The rows of the branch table, read without believing them: where each branch begins, and what is wrong with that.

A branch begins after a message of an older branch of its tree. Where its row says something else, the message is looked
for by its id, which says what stood before it; so a wrong parent or number costs nothing but a new branch. Only where
that message is nowhere is what came before lost.
"""

from contextc.doctor.links import Branch
from contextc.store.base import Row, Transaction
from contextc.store.places import SEQ_MASK, place
from contextc.store.reading import as_id

DEPTH_BYTES = 4
COLUMNS = "SELECT b.number, b.tree, b.parent, b.base_seq, b.base_id, b.conversation, m.place FROM branch b"
BASE = " LEFT JOIN message m ON m.place = b.parent * 4294967296 + b.base_seq AND m.id = b.base_id"


def branch_table(tx: Transaction, tree: int | None = None) -> list[Branch]:
    """All branches, or those of a tree, in the order of trees and numbers: a parent before what begins on it."""
    which, values = ("", ()) if tree is None else (" WHERE b.tree = ?", (tree,))
    rows = tx.rows(f"{COLUMNS}{BASE}{which}", *values)
    read = {row[0]: (_read(row), row[-1] is not None) for row in rows}
    table = [_looked_at(tx, branch, found, read) for branch, found in read.values()]
    return sorted(table, key=lambda each: (each.tree, each.number))


def _read(row: Row) -> Branch:
    number, tree, parent, base, base_id, conversation, _ = row
    owner, begins_on = None if conversation is None else str(conversation), None if parent is None else _number(parent)
    return Branch(number, _number(tree), begins_on, _number(base), as_id(base_id), owner)


def _number(value: object) -> int:
    """-1, which is no number of anything, where a row holds something else than a number."""
    return value if isinstance(value, int) else -1


def _looked_at(tx: Transaction, branch: Branch, found: bool, read: dict[int, tuple[Branch, bool]]) -> Branch:
    if branch.number == branch.tree:
        if branch.parent is None and branch.base == 0:
            return branch
        return branch._replace(parent=None, base=0, wrong="It is the first of its tree, and begins on another branch.")
    wrong = _wrong(branch, found, read)
    return _followed(tx, branch._replace(wrong=wrong)) if wrong else branch


def _wrong(branch: Branch, found: bool, read: dict[int, tuple[Branch, bool]]) -> str:
    parent, _ = read.get(branch.parent or 0, (None, False))
    if branch.parent == branch.number:
        return "It begins on itself."
    if branch.parent is None:
        return "It begins on no branch, and is not the first of its tree."
    if parent is None:
        return f"Branch {branch.parent}, on which it begins, is not there."
    if parent.tree != branch.tree:
        return f"Branch {parent.number}, on which it begins, is of another tree."
    if parent.number > branch.number:
        return f"Branch {parent.number}, on which it begins, is younger."
    if branch.base and not found:
        return f"Message {branch.base} of branch {parent.number}, after which it begins, is not there."
    return ""


def _followed(tx: Transaction, branch: Branch) -> Branch:
    """The branch with the parent and the base its messages have, as far as that can be told."""
    seq = int.from_bytes(branch.base_id[:DEPTH_BYTES])
    row = tx.row(
        "SELECT b.number FROM branch b JOIN message m ON m.place = b.number * 4294967296 + ?"
        " WHERE b.tree = ? AND b.number < ? AND m.id = ?",
        seq,
        branch.tree,
        branch.number,
        branch.base_id,
    )
    if row is not None:
        return branch._replace(parent=row[0], base=seq)
    low, high = place(branch.number, 1), place(branch.number, SEQ_MASK)
    first = tx.row("SELECT min(place) FROM message WHERE place BETWEEN ? AND ?", low, high)
    bases = [branch.base, *[(where & SEQ_MASK) - 1 for where in first or () if where is not None]]
    return branch._replace(base=max(0, min(bases)))

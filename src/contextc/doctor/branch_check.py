"""Check of the rows of the branch table: the start of each branch, and what is wrong with it.

A branch starts after a message of an older branch of its tree. If its row is wrong, that message is searched by its id,
which depends on all messages before it. So a wrong parent or number costs only a new branch. The earlier messages are
lost only if that message is missing.
"""

from contextc.doctor.hash_check import BranchRow
from contextc.store.backend_interface import Row, Transaction
from contextc.store.message_rows import SEQ_MASK, make_place, to_id

DEPTH_BYTES = 4
COLUMNS = "SELECT b.number, b.tree, b.parent, b.base_seq, b.base_id, b.conversation, m.place FROM branch b"
BASE = " LEFT JOIN message m ON m.place = b.parent * 4294967296 + b.base_seq AND m.id = b.base_id"


def load_branches(tx: Transaction, tree: int | None = None) -> list[BranchRow]:
    """Return all branches, or those of a tree, ordered by tree and number. A parent comes before its children."""
    which, values = ("", ()) if tree is None else (" WHERE b.tree = ?", (tree,))
    rows = tx.rows(f"{COLUMNS}{BASE}{which}", *values)
    read = {row[0]: (_read(row), row[-1] is not None) for row in rows}
    table = [_checked(tx, branch, found, read) for branch, found in read.values()]
    return sorted(table, key=lambda each: (each.tree, each.number))


def _read(row: Row) -> BranchRow:
    number, tree, parent, base, base_id, conversation, _ = row
    owner, begins_on = None if conversation is None else str(conversation), None if parent is None else _number(parent)
    return BranchRow(number, _number(tree), begins_on, _number(base), to_id(base_id), owner)


def _number(value: object) -> int:
    """Return the number in a row; -1, which is never valid, if the value is not a number."""
    return value if isinstance(value, int) else -1


def _checked(tx: Transaction, branch: BranchRow, found: bool, read: dict[int, tuple[BranchRow, bool]]) -> BranchRow:
    if branch.number == branch.tree:
        if branch.parent is None and branch.base == 0:
            return branch
        return branch._replace(parent=None, base=0, problem="It is the first branch of its tree, but has a parent.")
    wrong = _problem(branch, found, read)
    return _with_actual_base(tx, branch._replace(problem=wrong)) if wrong else branch


def _problem(branch: BranchRow, found: bool, read: dict[int, tuple[BranchRow, bool]]) -> str:
    parent, _ = read.get(branch.parent or 0, (None, False))
    if branch.parent == branch.number:
        return "Its parent is the branch itself."
    if branch.parent is None:
        return "It has no parent, but is not the first branch of its tree."
    if parent is None:
        return f"Its parent, branch {branch.parent}, is missing."
    if parent.tree != branch.tree:
        return f"Its parent, branch {parent.number}, belongs to another tree."
    if parent.number > branch.number:
        return f"Its parent, branch {parent.number}, is newer."
    if branch.base and not found:
        return f"It starts after message {branch.base} of branch {parent.number}, which is missing."
    return ""


def _with_actual_base(tx: Transaction, branch: BranchRow) -> BranchRow:
    """Return the branch with the parent and the base that its messages show, as far as they show them."""
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
    low, high = make_place(branch.number, 1), make_place(branch.number, SEQ_MASK)
    first = tx.row("SELECT min(place) FROM message WHERE place BETWEEN ? AND ?", low, high)
    bases = [branch.base, *[(where & SEQ_MASK) - 1 for where in first or () if where is not None]]
    return branch._replace(base=max(0, min(bases)))

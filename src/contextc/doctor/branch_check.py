"""Check of the rows of the branch table: the start of each branch, and what is wrong with it.

A branch starts after a message of an older branch of its tree. If its row is wrong, that message is searched by its id,
which depends on all messages before it. So a wrong parent or number costs only a new branch. The earlier messages are
lost only if that message is missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from contextc.doctor.findings import Finding, pluralize
from contextc.errors import StoreCorrupt
from contextc.store.leases import find_dead_turns
from contextc.store.message_log import SEQ_MASK, make_place, to_id, update_last_active
from contextc.store.transaction_engine import Row, Transaction

DEPTH_BYTES = 4
COLUMNS = "SELECT b.number, b.tree, b.parent, b.base_seq, b.base_id, b.conversation, m.place FROM main.branch b"
BASE = " LEFT JOIN main.message m ON m.place = b.parent * 4294967296 + b.base_seq AND m.id = b.base_id"


class BranchRow(NamedTuple):
    """A row of the branch table."""

    number: int
    tree: int
    parent: int | None
    base: int
    base_id: bytes
    conversation: str | None
    problem: str = ""
    """The problem of its parent or base. `parent` and `base` are then the ones that its messages show, if any."""


def branch_lineage(branches: dict[int, BranchRow], number: int) -> list[tuple[int, int]]:
    """Return the branches of a chain, newest first, each with the seq after which it starts."""
    found: list[tuple[int, int]] = []
    at = branches.get(number)
    while at is not None:
        found.append((at.number, at.base))
        at = branches.get(at.parent) if at.parent is not None and at.parent < at.number else None
    return found


def load_branches(tx: Transaction, tree: int | None = None) -> list[BranchRow]:
    """Return all branches, or those of a tree, ordered by tree and number. A parent comes before its children."""
    which, values = ("", ()) if tree is None else (" WHERE b.tree = ?", (tree,))
    rows = tx.rows(f"{COLUMNS}{BASE}{which}", *values)
    read = {row[0]: (_read_branch_row(row), row[-1] is not None) for row in rows}
    table = [_check_branch(tx, branch, found, read) for branch, found in read.values()]
    return sorted(table, key=lambda each: (each.tree, each.number))


def _read_branch_row(row: Row) -> BranchRow:
    number, tree, parent, base, base_id, conversation, _ = row
    owner, begins_on = (
        None if conversation is None else str(conversation),
        None if parent is None else _number_or_invalid(parent),
    )
    return BranchRow(number, _number_or_invalid(tree), begins_on, _number_or_invalid(base), to_id(base_id), owner)


def _number_or_invalid(value: object) -> int:
    """Return the number in a row; -1, which is never valid, if the value is not a number."""
    return value if isinstance(value, int) else -1


def _check_branch(
    tx: Transaction, branch: BranchRow, found: bool, read: dict[int, tuple[BranchRow, bool]]
) -> BranchRow:
    if branch.number == branch.tree:
        if branch.parent is None and branch.base == 0:
            return branch
        return branch._replace(parent=None, base=0, problem="It is the first branch of its tree, but has a parent.")
    wrong = _branch_problem(branch, found, read)
    return _with_actual_base(tx, branch._replace(problem=wrong)) if wrong else branch


def _branch_problem(branch: BranchRow, found: bool, read: dict[int, tuple[BranchRow, bool]]) -> str:
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
        "SELECT b.number FROM main.branch b JOIN main.message m ON m.place = b.number * 4294967296 + ?"
        " WHERE b.tree = ? AND b.number < ? AND m.id = ?",
        seq,
        branch.tree,
        branch.number,
        branch.base_id,
    )
    if row is not None:
        return branch._replace(parent=row[0], base=seq)
    low, high = make_place(branch.number, 1), make_place(branch.number, SEQ_MASK)
    first = tx.row("SELECT min(place) FROM main.message WHERE place BETWEEN ? AND ?", low, high)
    bases = [branch.base, *[(where & SEQ_MASK) - 1 for where in first or () if where is not None]]
    return branch._replace(base=max(0, min(bases)))


# ── the current branch of each conversation ───────────────────────────────────────────────────────────────────────────
# The current branch of a conversation belongs to it and to its tree. If its row is wrong or missing, a repair switches
# to the newest branch that belongs to it. Messages on a missing branch belong to no conversation.


NO_REPAIR = "cannot be repaired: {why}. Restore a backup of the store"


class CurrentBranch(NamedTuple):
    """The tree and the current branch of a conversation, or the one to switch to; 0 is none. `fault` is the problem."""

    name: str
    tree: int
    branch: int
    fault: Finding | None = None


def load_current_branches(tx: Transaction, table: Iterable[BranchRow]) -> dict[str, CurrentBranch]:
    """Return every conversation that has a row or a branch, by name."""
    branches = {branch.number: branch for branch in table}
    own: dict[str, list[BranchRow]] = {}
    for branch in branches.values():
        if branch.conversation is not None:
            own.setdefault(branch.conversation, []).append(branch)
    rows = {
        str(name): (tree, branch) for name, tree, branch in tx.rows("SELECT name, tree, branch FROM main.conversation")
    }
    return {name: _current_branch(name, rows.get(name), own.get(name, []), branches) for name in sorted({*rows, *own})}


def repair_current_branch(tx: Transaction, name: str, branches: Iterable[BranchRow]) -> CurrentBranch:
    """Switch a conversation to a branch of its own. Nothing changes if its row is valid."""
    current = load_current_branches(tx, branches)[name]
    if current.fault is None:
        return current
    if not current.branch:
        raise StoreCorrupt(f"{current.fault.text} It {current.fault.would}.")
    tx.run(
        "INSERT INTO main.conversation (name, tree, branch, created) SELECT ?, ?, ?, created FROM main.branch"
        " WHERE number = ? ON CONFLICT (name) DO UPDATE SET tree = excluded.tree, branch = excluded.branch,"
        " revision = conversation.revision + 1",
        name,
        current.tree,
        current.branch,
        current.branch,
    )
    update_last_active(tx, name)
    return current


def conversations_with_running_turn(tx: Transaction) -> set[str]:
    """Return the conversations with a running turn. A turn whose process died counts as ended."""
    held = {tuple(row) for row in tx.rows("SELECT conversation, agent, number FROM main.lease WHERE holder <> ''")}
    return {name for name, _, _ in held.difference(find_dead_turns(tx))} if held else set()


def find_lost_messages(tx: Transaction) -> Iterator[Finding]:
    """Return findings for messages on missing branches."""
    rows = tx.rows(
        "SELECT place / 4294967296, count(*) FROM main.message WHERE place / 4294967296 NOT IN (SELECT number"
        " FROM main.branch) GROUP BY place / 4294967296 ORDER BY 1"
    )
    for number, count in rows:
        yield Finding(
            kind="fault",
            code="lost-messages",
            conversation=None,
            where=f"branch {number}",
            text=f"{pluralize(count, 'message')} on branch {number}, which is missing.",
            why="They belong to no conversation.",
            would=NO_REPAIR.format(why="the start of the branch is not known"),
        )


def _current_branch(
    name: str, row: tuple[object, object] | None, own: list[BranchRow], branches: Mapping[int, BranchRow]
) -> CurrentBranch:
    there = branches.get(row[1]) if row is not None and isinstance(row[1], int) else None
    if row is not None and there is not None and there.conversation == name and there.tree == row[0]:
        return CurrentBranch(name, there.tree, there.number)
    usable = [branch for branch in own if branch.tree in branches]
    best = there if there in usable else max(usable, key=lambda branch: branch.number, default=None)
    tree, branch = (best.tree, best.number) if best is not None else (0, 0)
    return CurrentBranch(name, tree, branch, _describe_fault(name, row, there, own, branch))


def _describe_fault(
    name: str, row: tuple[object, object] | None, there: BranchRow | None, own: list[BranchRow], branch: int
) -> Finding:
    if row is None:
        numbers = ", ".join([str(each.number) for each in own])
        code, where = "lost-conversation", f"branch {numbers}"
        text, why = f"Its row is missing, but branch {numbers} belongs to it.", "It cannot be opened."
        how = f"would restore it on branch {branch}, its newest"
    else:
        code, where = "lost-branch", f"branch {row[1]}"
        text = f"Its current branch {row[1]} {_describe_branch(name, there)}."
        why = "Nothing of it can be loaded or sent."
        how = f"would switch to branch {branch}, {'its own' if there and there.number == branch else 'its newest'}"
    missing = "the root of its tree is missing" if own else "no branch belongs to it"
    return Finding(
        kind="fault",
        code=code,
        conversation=name,
        where=where,
        text=text,
        why=why,
        would=how if branch else NO_REPAIR.format(why=missing),
        healing="row" if branch else "none",
        branches=(branch,) if branch else (),
    )


def _describe_branch(name: str, there: BranchRow | None) -> str:
    if there is None:
        return "is missing"
    if there.conversation != name:
        return f"belongs to {there.conversation!r}" if there.conversation is not None else "belongs to no conversation"
    return "belongs to another tree"

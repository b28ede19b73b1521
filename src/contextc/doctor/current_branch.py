"""Current branch of each conversation, read from the rows themselves, and the problems of these rows.

The current branch of a conversation belongs to it and to its tree. If its row is wrong or missing, a repair switches it
to the newest branch that belongs to it. Messages on a missing branch belong to no conversation.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from contextc.doctor.findings import Finding, pluralize
from contextc.doctor.hash_check import BranchRow
from contextc.errors import StoreCorrupt
from contextc.store.backend_interface import Transaction
from contextc.store.leases import find_dead_turns
from contextc.store.message_rows import update_last_active

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
    rows = {str(name): (tree, branch) for name, tree, branch in tx.rows("SELECT name, tree, branch FROM conversation")}
    return {name: _current_branch(name, rows.get(name), own.get(name, []), branches) for name in sorted({*rows, *own})}


def repair_current_branch(tx: Transaction, name: str, branches: Iterable[BranchRow]) -> CurrentBranch:
    """Switch a conversation to a branch of its own. Nothing changes if its row is valid."""
    current = load_current_branches(tx, branches)[name]
    if current.fault is None:
        return current
    if not current.branch:
        raise StoreCorrupt(f"{current.fault.text} It {current.fault.would}.")
    tx.run(
        "INSERT INTO conversation (name, tree, branch, created) SELECT ?, ?, ?, created FROM branch WHERE number = ?"
        " ON CONFLICT (name) DO UPDATE SET tree = excluded.tree, branch = excluded.branch,"
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
    held = {tuple(row) for row in tx.rows("SELECT conversation, agent, number FROM lease WHERE holder <> ''")}
    return {name for name, _, _ in held.difference(find_dead_turns(tx))} if held else set()


def find_lost_messages(tx: Transaction) -> Iterator[Finding]:
    """Return findings for messages on missing branches."""
    rows = tx.rows(
        "SELECT place / 4294967296, count(*) FROM message WHERE place / 4294967296 NOT IN (SELECT number FROM branch)"
        " GROUP BY place / 4294967296 ORDER BY 1"
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

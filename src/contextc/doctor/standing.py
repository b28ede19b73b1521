"""Which branch each conversation goes on with, read from the rows themselves, and what is wrong there.

A conversation stands on a branch of its own, in its tree. Where its row says something else, or is gone, it can still
stand on the newest branch that says it is its own: healing turns it there. Messages on a branch that is not there, or
that are in no tree, belong to nobody who could be asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from contextc.doctor.findings import Finding, counted
from contextc.doctor.links import Branch
from contextc.errors import StoreCorrupt
from contextc.store.base import Transaction
from contextc.store.leases import ended
from contextc.store.places import turned

RESTORE = "cannot be healed: {why}. Restore a copy of the store"


class Standing(NamedTuple):
    """The tree and the branch that a conversation goes on with, or can; branch 0 is none. `fault` is what is wrong."""

    name: str
    tree: int
    branch: int
    fault: Finding | None = None


def standings(tx: Transaction, table: Iterable[Branch]) -> dict[str, Standing]:
    """Every conversation that has a row, or a branch, by name."""
    branches = {branch.number: branch for branch in table}
    own: dict[str, list[Branch]] = {}
    for branch in branches.values():
        if branch.conversation is not None:
            own.setdefault(branch.conversation, []).append(branch)
    rows = {str(name): (tree, branch) for name, tree, branch in tx.rows("SELECT name, tree, branch FROM conversation")}
    return {name: _standing(name, rows.get(name), own.get(name, []), branches) for name in sorted({*rows, *own})}


def put_right(tx: Transaction, name: str, branches: Iterable[Branch]) -> Standing:
    """Have a conversation go on with a branch of its own, as its standing says; where it does already, nothing is
    changed.
    """
    standing = standings(tx, branches)[name]
    if standing.fault is None:
        return standing
    if not standing.branch:
        raise StoreCorrupt(f"{standing.fault.text} It {standing.fault.would}.")
    tx.run(
        "INSERT INTO conversation (name, tree, branch, created) SELECT ?, ?, ?, created FROM branch WHERE number = ?"
        " ON CONFLICT (name) DO UPDATE SET tree = excluded.tree, branch = excluded.branch,"
        " revision = conversation.revision + 1",
        name,
        standing.tree,
        standing.branch,
        standing.branch,
    )
    turned(tx, name)
    return standing


def running_in(tx: Transaction) -> set[str]:
    """The conversations in which a turn is running. One whose process died is over, though nobody could end it yet."""
    held = {tuple(row) for row in tx.rows("SELECT conversation, agent, number FROM lease WHERE holder <> ''")}
    return {name for name, _, _ in held.difference(ended(tx))} if held else set()


def lost_messages(tx: Transaction) -> Iterator[Finding]:
    """Messages that no branch leads to."""
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
            text=f"{counted(count, 'message')} stand on branch {number}, which is not there.",
            why="No conversation leads to them.",
            would=RESTORE.format(why="where the branch began is not known"),
        )


def _standing(
    name: str, row: tuple[object, object] | None, own: list[Branch], branches: Mapping[int, Branch]
) -> Standing:
    there = branches.get(row[1]) if row is not None and isinstance(row[1], int) else None
    if row is not None and there is not None and there.conversation == name and there.tree == row[0]:
        return Standing(name, there.tree, there.number)
    usable = [branch for branch in own if branch.tree in branches]
    best = there if there in usable else max(usable, key=lambda branch: branch.number, default=None)
    tree, branch = (best.tree, best.number) if best is not None else (0, 0)
    return Standing(name, tree, branch, _fault(name, row, there, own, branch))


def _fault(
    name: str, row: tuple[object, object] | None, there: Branch | None, own: list[Branch], branch: int
) -> Finding:
    if row is None:
        numbers = ", ".join([str(each.number) for each in own])
        code, where = "lost-conversation", f"branch {numbers}"
        text, why = f"It is in no list, though branch {numbers} belongs to it.", "Nobody can open it."
        how = f"would put it back, on branch {branch}, the newest it has"
    else:
        code, where = "lost-branch", f"branch {row[1]}"
        text = f"It goes on with branch {row[1]}, which is {_of(name, there)}."
        why = "Nothing of it can be loaded or sent."
        how = f"would go on with branch {branch}, {'its own' if there and there.number == branch else 'its newest'}"
    missing = "the root of its tree is gone" if own else "no branch belongs to it"
    return Finding(
        kind="fault",
        code=code,
        conversation=name,
        where=where,
        text=text,
        why=why,
        would=how if branch else RESTORE.format(why=missing),
        healing="row" if branch else "none",
        branches=(branch,) if branch else (),
    )


def _of(name: str, there: Branch | None) -> str:
    if there is None:
        return "not there"
    if there.conversation != name:
        return f"a branch of {there.conversation!r}" if there.conversation is not None else "a branch of nobody"
    return "of another tree"

"""Check of one chain, from the root to the tip of a branch: all problems that a repair fixes, and where it starts.

The chain is read in one transaction. So a dry run reports exactly what a repair does, unless there is a write in
between.
"""

from collections.abc import Iterator
from typing import NamedTuple

from contextc.doctor.findings import DAMAGE_CODES, ChainProblem
from contextc.doctor.hash_check import (
    BlobCheck,
    BranchRow,
    ChainRow,
    branch_lineage,
    fetch_blob,
    read_rows,
    verify_rows,
)
from contextc.doctor.tool_pair_check import OpenCall, PairState
from contextc.errors import StoreCorrupt
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import SEQ_MASK, MessageLocation, make_place, split_by_branch, to_id


class ChainCheck(NamedTuple):
    """The problems of a chain. A repair starts a branch after `base`, the last message that can stay in place."""

    branch: int
    end: int
    problems: list[ChainProblem]
    open_calls: list[OpenCall]
    base: MessageLocation | None

    @property
    def is_damaged(self) -> bool:
        return any(trouble.code in DAMAGE_CODES for trouble in self.problems)

    @property
    def messages_after_base(self) -> int:
        """The number of messages after the base."""
        return self.end - self.base.seq if self.base is not None else 0


def check_chain(tx: Transaction, branches: dict[int, BranchRow], number: int) -> ChainCheck:
    """Check the chain that ends on a branch. Unreadable messages count as lost, as in a repair."""
    end = last_seq(tx, branches[number])
    edges = context_starts(tx, number)
    edge = edges[-1] if edges else 0
    pairs, blobs = PairState(), BlobCheck(lambda name: fetch_blob(tx, name))
    through = [each for each, _, _ in split_by_branch(branch_lineage(branches, number), 0, end)]
    found = [lost for each in dict.fromkeys([*through, number]) if (lost := base_problem(branches[each])) is not None]
    for row in chain_rows(tx, branches, number, 0, end):
        while edges and edges[0] < row.seq:
            pairs.clear_context()
            edges.pop(0)
        found += find_problems(row, pairs, blobs)
    found = [each for each in found if is_relevant(each, edge)]
    first = min([each.first_change for each in found], default=None)
    base = None if first is None else _locate(tx, branches, number, first - 1)
    return ChainCheck(number, end, found, [each for each in pairs.open_calls if each.seq > edge], base)


def last_seq(tx: Transaction, branch: BranchRow) -> int:
    """Return the seq of the last message of a branch; if it has none of its own, the seq it starts after."""
    low, high = make_place(branch.number, 0), make_place(branch.number, SEQ_MASK)
    row = tx.row("SELECT max(place) FROM message WHERE place BETWEEN ? AND ?", low, high)
    return row[0] & SEQ_MASK if row is not None and row[0] is not None else branch.base


def context_starts(tx: Transaction, branch: int, after: int = 0) -> list[int]:
    """Return the seqs of a branch after which the context was cleared."""
    low, high = make_place(branch, after), make_place(branch, SEQ_MASK)
    rows = tx.rows("SELECT place FROM edge WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    return [where & SEQ_MASK for (where,) in rows]


def chain_rows(
    tx: Transaction, branches: dict[int, BranchRow], number: int, after: int, until: int
) -> Iterator[ChainRow]:
    """Return the messages of a chain after a seq, verified against their ids."""
    line = branch_lineage(branches, number)
    before = _locate(tx, branches, number, after).id
    return verify_rows(read_rows(lambda work: work(tx), line, after, until), before, after, until)


def find_problems(row: ChainRow, pairs: PairState, blobs: BlobCheck) -> list[ChainProblem]:
    """Return the problems of one message, alone and in relation to those before it."""
    found = [row.problem] if row.problem is not None else []
    if row.message is None:
        return found
    for index, name, code in blobs.find_problems(row.message):
        what = "is missing" if code == "missing-blob" else "has bytes that do not match its name"
        found.append(ChainProblem(code, row.seq, f"Blob {name} {what}.", index, name=name))
    return found + pairs.add_message(row.seq, row.message)


def is_relevant(problem: ChainProblem, edge: int) -> bool:
    """Return True if it is damage, or part of the context of requests: after the last reset."""
    return problem.code in DAMAGE_CODES or problem.seq > edge


def base_problem(branch: BranchRow) -> ChainProblem | None:
    """Return the problem of a branch whose parent or base is invalid."""
    return ChainProblem("lost-base", branch.base + 1, branch.problem) if branch.problem else None


def _locate(tx: Transaction, branches: dict[int, BranchRow], number: int, seq: int) -> MessageLocation:
    for branch, _, _ in split_by_branch(branch_lineage(branches, number), seq - 1, seq):
        row = tx.row("SELECT id FROM message WHERE place = ?", make_place(branch, seq))
        if row is not None:
            return MessageLocation(branch, seq, to_id(row[0]))
    root = branches.get(branches[number].tree)
    if root is None:
        raise StoreCorrupt(f"Branch {branches[number].tree}, the root of its tree, is missing", fix="Restore a backup.")
    return MessageLocation(root.number, 0, root.base_id)

"""Marker of a repaired branch: the `meta` of its first message names the branch it was made from.

With it, a scan skips the problems of the old branch. The marker is valid while the old branch has the same tip.
"""

from collections.abc import Iterator

from contextc._json import JSONObject
from contextc.doctor.hash_check import BranchRow
from contextc.messages import decode_message
from contextc.store.message_rows import DECODE_ERRORS, load_branch_end, make_place
from contextc.store.redaction import get_repair_note
from contextc.store.types import Transaction


def make_marker(tx: Transaction, branch: int) -> JSONObject:
    return {"branch": branch, "tip": load_branch_end(tx, branch)[1].hex()}


def repaired_branches(tx: Transaction, branches: dict[int, BranchRow]) -> Iterator[int]:
    """Return the branches that were repaired in their current state: another branch holds their messages."""
    for branch in branches.values():
        row = tx.row("SELECT body FROM message WHERE place = ?", make_place(branch.number, branch.base + 1))
        said = _note_of(row[0]) if row is not None else {}
        old = said.get("branch")
        if isinstance(old, int) and old in branches and said.get("tip") == load_branch_end(tx, old)[1].hex():
            yield old


def _note_of(body: bytes) -> JSONObject:
    try:
        return get_repair_note(decode_message(body))
    except DECODE_ERRORS:
        return {}

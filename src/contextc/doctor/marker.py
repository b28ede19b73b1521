"""Marker of a repaired branch: the `meta` of its first message names the branch it was made from.

With it, a scan skips the problems of the old branch. The marker is valid while the old branch has the same tip.
"""

from collections.abc import Iterator

from contextc._json import JSONObject
from contextc.doctor.links import Branch
from contextc.messages import from_json
from contextc.store.base import Transaction
from contextc.store.places import branch_end, place
from contextc.store.reading import UNREADABLE
from contextc.store.redaction import healed_note


def marker(tx: Transaction, line: int) -> JSONObject:
    return {"branch": line, "tip": branch_end(tx, line)[1].hex()}


def healed_lines(tx: Transaction, branches: dict[int, Branch]) -> Iterator[int]:
    """Return the branches that were repaired in their current state: another branch holds their messages."""
    for branch in branches.values():
        row = tx.row("SELECT body FROM message WHERE place = ?", place(branch.number, branch.base + 1))
        said = _said(row[0]) if row is not None else {}
        old = said.get("branch")
        if isinstance(old, int) and old in branches and said.get("tip") == branch_end(tx, old)[1].hex():
            yield old


def _said(body: bytes) -> JSONObject:
    try:
        return healed_note(from_json(body))
    except UNREADABLE:
        return {}

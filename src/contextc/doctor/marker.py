"""How a healed branch says what it was made from: in the `meta` of its first message.

By that a doctor knows that what is wrong with the old branch has been seen to. It counts as long as the old branch ends
where it ended then.
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
    """The branches that were healed as they stand, so that another one holds what is on them."""
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

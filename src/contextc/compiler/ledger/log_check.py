"""Compare the ledger of a channel with the messages of its conversation.

Nothing here deletes a message that was sent. Other programs can: rows are deleted manually, or a backup is restored in
part. New messages then get the numbers of the lost ones, so numbers alone prove nothing. The id of a message depends on
all messages before it. So the id of the last message that a channel knows shows, with one row, whether its log still
ends or continues there. The full check looks up every message of the epoch; it runs when the rows are read anyway.
"""

from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from contextc.errors import StoreCorrupt
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import ChannelState, LedgerRow
from contextc.store.message_rows import (
    DOCTOR_HINT,
    BranchTip,
    load_lineage,
    make_place,
    split_by_branch,
    to_id,
)

LOG_LOST = "messages that were sent are missing from the conversation"
PARENT_DELETED = "the conversation it was forked from was deleted"
LEAD_MOVED = "stored system messages keep their place"
CURSOR_VOID = "the conversation changed after the cursor of the session was set"
PLACES_PER_QUERY = 512
SEQ_BYTES = 4  # an id begins with the seq


def is_tip_lost(tx: Transaction, standing: ChannelState, at: BranchTip) -> bool:
    """Return True if the last message that a channel knows is missing, or another one is in its place.

    `at` is the end of the conversation. States of older versions have no id, so only a shorter log is noticed.
    """
    if not standing.branch or not (standing.requests or standing.held):
        return False
    if not standing.tip:
        return standing.branch == at.branch and at.seq < standing.seen
    return is_message_lost(tx, standing.branch, bytes.fromhex(standing.tip), at)


def is_message_lost(tx: Transaction, branch: int, identity: bytes, at: BranchTip) -> bool:
    """Return True if the chain that ends on a branch does not contain a message any more."""
    seq = int.from_bytes(identity[:SEQ_BYTES])
    if seq == 0:
        return False
    if branch == at.branch and seq >= at.seq:
        return seq > at.seq or at.id != identity
    row = tx.row("SELECT id FROM message WHERE place = ?", make_place(branch, seq))
    if row is None:  # on a parent of the branch
        for parent, _, _ in split_by_branch(load_lineage(tx, branch), seq - 1, seq):
            row = tx.row("SELECT id FROM message WHERE place = ?", make_place(parent, seq))
    return row is None or to_id(row[0]) != identity


def is_cursor_void(standing: ChannelState, at: BranchTip) -> bool:
    """Return True if a cursor was set, and the messages up to it may be others now, or end before it."""
    there = (standing.branch, standing.revision)
    return standing.held > at.seq or bool(standing.held and there != (at.branch, at.revision))


def has_lost_messages(tx: Transaction, rows: Iterable[LedgerRow]) -> bool:
    """Return True if a message of these rows is missing from the store."""
    places = list({item.place for row in rows for item in row.items if item.place})
    for start in range(0, len(places), PLACES_PER_QUERY):
        some = places[start : start + PLACES_PER_QUERY]
        found = tx.row(f"SELECT count(*) FROM message WHERE place IN ({', '.join('?' * len(some))})", *some)
        if found is None or found[0] < len(some):
            return True
    return False


def check_bases(tx: Transaction, at: BranchTip) -> None:
    """Raise `StoreCorrupt` if a branch of a conversation does not begin after the message it was created after.

    What precedes such a branch is the history of another conversation.
    """
    if at.branch == at.tree:
        return
    lineage = load_lineage(tx, at.branch)
    for (branch, base), (parent, _) in pairwise(lineage):
        row = tx.row(
            "SELECT m.id, b.base_id FROM branch b JOIN message m ON m.place = ? WHERE b.number = ?",
            make_place(parent, base),
            branch,
        )
        if row is not None and to_id(row[0]) != to_id(row[1]):
            raise StoreCorrupt(
                f"Branch {branch} begins after message {base} of branch {parent}, which is another message now",
                fix=DOCTOR_HINT,
            )


def without_rows(standing: ChannelState, lost: str) -> ChannelState:
    """Return the state of a channel whose ledger is gone: everything is sent again, in a new session."""
    return replace(
        ChannelState(),
        requests=standing.requests,
        rows=standing.rows,
        epoch=standing.epoch,
        head=standing.head,
        tools=standing.tools,
        overhead=standing.overhead,
        lost=lost,
    )

"""Summaries in the store.

A summary replaces everything that an agent sees up to one message, its anchor. It is written once, if there is none at
that anchor. It applies to every branch that contains the anchor, and all messages that it was written from. So a fork
has it too, and an edit before the anchor makes it inapplicable. One that was undone stays stored, and is not used.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from contextc.compiler.compaction_receipt import Receipt
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import BranchTip, decode_row, load_lineage, make_place, split_by_branch, to_id


class Summary(NamedTuple):
    """A stored summary of everything that an agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int
    humans: tuple[str, ...] = ()
    """Authors of the user messages up to the anchor."""
    opening: int | None = 0
    """Place of the message that opened the turn in progress at the anchor; 0 if there was none, None if unknown."""
    waits: bool = False
    """True if it is used only where the context is trimmed next."""
    missing: tuple[str, ...] = ()
    """What the request lacked with it. The index names this first."""


class StoredSummary(Struct, frozen=True, kw_only=True):
    """The stored form of a summary, with what the next one needs from the messages before it."""

    text: str
    made_by: str = ""
    time: int = 0
    humans: tuple[str, ...] = ()
    opening: int | None = None
    anchor_id: str | UnsetType = UNSET
    """Id of the message at the anchor; unset in summaries of older versions."""
    undone: tuple[tuple[int, int, int], ...] | UnsetType = UNSET
    """Where it was taken out of use: conversation, branch, and number of the last message at that time."""
    seen: int | UnsetType = UNSET
    """Place of the last message that the summarizer was sent, if that is after the anchor."""
    receipt: Receipt | UnsetType = UNSET
    missing: tuple[str, ...] | UnsetType = UNSET
    """What the request lacked before the index named it."""
    waits: bool | UnsetType = UNSET
    """True if it is used only where the context is trimmed next."""
    before: int | UnsetType = UNSET
    """Tokens of what a summary that waits replaces."""


_encode_summary = Encoder().encode
_decode_summary = Decoder(StoredSummary).decode


LAST_SUMMARY = (
    "SELECT o.anchor, o.body, m.id FROM overlay o LEFT JOIN message m ON m.place = o.anchor"
    " WHERE o.tree = ? AND o.agent = ? AND o.anchor BETWEEN ? AND ? ORDER BY o.anchor DESC LIMIT 1"
)


RAISE_REVISIONS = "UPDATE conversation SET revision = revision + 1 WHERE tree = ?"


def load_latest_summary(tx: Transaction, agent: str, at: BranchTip, count: Callable[[str], int]) -> Summary | None:
    """Return the newest summary on the current branch that was not undone, and whose messages are still there."""
    for anchor, stored in load_summaries(tx, agent, at):
        waits = stored.waits is True
        tokens, missing = count(stored.text), stored.missing or ()
        return Summary(anchor, stored.text, tokens, stored.humans, stored.opening, waits, missing)
    return None


def load_summaries(tx: Transaction, agent: str, at: BranchTip) -> Iterator[tuple[int, StoredSummary]]:
    """Yield the summaries that are in use on the current branch, newest first, each with its anchor."""
    ranges = [*split_by_branch(load_lineage(tx, at.branch), 0, at.seq)]
    for branch, first, last in reversed(ranges):
        low, high = make_place(branch, first), make_place(branch, last)
        while (row := tx.row(LAST_SUMMARY, at.tree, agent, low, high)) is not None:
            stored, high = decode_row(_decode_summary, row[1], "A summary"), row[0] - 1
            if _is_anchored(stored, row[2]) and _is_seen(stored, ranges) and not _is_undone(stored, at, ranges):
                yield row[0], stored


def _is_seen(stored: StoredSummary, ranges: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if the branch has all messages that a summary was written from."""
    seen = stored.seen or 0
    return not seen or any(
        make_place(branch, first) <= seen <= make_place(branch, last) for branch, first, last in ranges
    )


def find_undone(tx: Transaction, agent: str, at: BranchTip, anchors: Iterable[int]) -> set[int]:
    """Return those of these anchors whose summaries were undone on the current branch."""
    ranges = [*split_by_branch(load_lineage(tx, at.branch), 0, at.seq)]
    found = [(anchor, load_summary(tx, at.tree, agent, anchor)) for anchor in anchors]
    return {anchor for anchor, stored in found if stored is not None and _is_undone(stored, at, ranges)}


def use_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int, stored: StoredSummary) -> None:
    """Let requests begin with a summary that waits."""
    _write_summary(tx, at.tree, agent, anchor, replace(stored, waits=UNSET))


def delete_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int) -> None:
    """Delete a summary that no request has used."""
    tx.run("DELETE FROM overlay WHERE tree = ? AND agent = ? AND anchor = ?", at.tree, agent, anchor)
    tx.run(RAISE_REVISIONS, at.tree)


def undo_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int) -> None:
    """Take a summary out of use on the current branch, and on branches that continue it."""
    stored = load_summary(tx, at.tree, agent, anchor)
    if stored is not None:
        _write_summary(
            tx,
            at.tree,
            agent,
            anchor,
            replace(stored, undone=(*(stored.undone or ()), (at.conversation, at.branch, at.seq))),
        )


def _is_undone(stored: StoredSummary, at: BranchTip, ranges: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if a summary was undone in this conversation, or in the one it was forked from, before the fork."""
    if not stored.undone:
        return False
    ends = {branch: last for branch, _, last in ranges}
    return any(
        conversation == at.conversation or ends.get(branch, -1) >= seq for conversation, branch, seq in stored.undone
    )


def load_summary(tx: Transaction, tree: int, agent: str, anchor: int) -> StoredSummary | None:
    """Return the summary at an anchor, in use or not."""
    row = tx.row("SELECT body FROM overlay WHERE tree = ? AND agent = ? AND anchor = ?", tree, agent, anchor)
    return decode_row(_decode_summary, row[0], "A summary") if row else None


def _write_summary(tx: Transaction, tree: int, agent: str, anchor: int, stored: StoredSummary) -> None:
    body = _encode_summary(stored)
    tx.run("UPDATE overlay SET body = ? WHERE tree = ? AND agent = ? AND anchor = ?", body, tree, agent, anchor)
    tx.run(RAISE_REVISIONS, tree)


def is_summary_lost(body: bytes, identity: object) -> bool:
    """Return True if a stored summary ends at another message than this one. None is a missing message."""
    return not _is_anchored(decode_row(_decode_summary, body, "A summary"), identity)


def _is_anchored(stored: StoredSummary, identity: object) -> bool:
    return identity is not None and stored.anchor_id in (UNSET, to_id(identity).hex())


def count_redacted(tx: Transaction, at: BranchTip) -> int:
    """Return the number of redacted messages on a branch."""
    counted = 0
    for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq):
        places = make_place(branch, first), make_place(branch, last)
        row = tx.row("SELECT count(*) FROM message WHERE place BETWEEN ? AND ? AND redacted <> 0", *places)
        counted += row[0] if row else 0
    return counted


def save_summary(
    tx: Transaction, at: BranchTip, agent: str, anchor: int, overlay: StoredSummary, redacted: int
) -> bool | None:
    """Store a summary of a branch that had so many redacted messages when it was read.

    Returns False if there is one at that anchor already, unless it was undone; None if the conversation was deleted, or
    a message redacted, while the summary was written.
    """
    tx.run(RAISE_REVISIONS, at.tree)  # a redaction does the same first, so that one of the two waits for the other
    row = tx.row("SELECT id FROM message WHERE place = ?", anchor)
    if row is None or count_redacted(tx, at) != redacted:
        return None
    overlay = replace(overlay, anchor_id=to_id(row[0]).hex())
    made = tx.run(
        "INSERT INTO overlay (tree, agent, anchor, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        at.tree,
        agent,
        anchor,
        _encode_summary(overlay),
    )
    if not made and find_undone(tx, agent, at, [anchor]):
        _write_summary(tx, at.tree, agent, anchor, overlay)
        made = 1
    return made == 1

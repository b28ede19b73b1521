"""Summaries in the store. Each replaces everything that an agent sees up to one message, its anchor.

A summary is written once, if there is none at that anchor. It applies to every branch that contains the anchor. So a
fork has it too, and an edit before the anchor makes it inapplicable.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from contextc.store.base import Transaction
from contextc.store.places import BranchTip, load_lineage, make_place, split_by_branch
from contextc.store.reading import decode_row


class Summary(NamedTuple):
    """A stored summary of everything that an agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int
    humans: tuple[str, ...] = ()
    """Authors of the user messages up to the anchor."""
    opening: int | None = 0
    """Place of the message that opened the turn in progress at the anchor; 0 if there was none, None if unknown."""


class StoredSummary(Struct, frozen=True, kw_only=True):
    """The stored form of a summary, with what the next one needs from the messages before it."""

    text: str
    made_by: str = ""
    time: int = 0
    humans: tuple[str, ...] = ()
    opening: int | None = None


_encode_summary = Encoder().encode
_decode_summary = Decoder(StoredSummary).decode


def load_latest_summary(tx: Transaction, agent: str, at: BranchTip, count: Callable[[str], int]) -> Summary | None:
    """Return the newest summary whose anchor is on the current branch."""
    for branch, first, last in reversed([*split_by_branch(load_lineage(tx, at.branch), 0, at.seq)]):
        row = tx.row(
            "SELECT anchor, body FROM overlay WHERE tree = ? AND agent = ? AND anchor BETWEEN ? AND ?"
            " ORDER BY anchor DESC LIMIT 1",
            at.tree,
            agent,
            make_place(branch, first),
            make_place(branch, last),
        )
        if row is not None:
            stored = decode_row(_decode_summary, row[1], "A summary")
            return Summary(row[0], stored.text, count(stored.text), stored.humans, stored.opening)
    return None


def save_summary(tx: Transaction, at: BranchTip, agent: str, anchor: int, overlay: StoredSummary) -> bool:
    """Store a summary. Returns False if there is one at that anchor already."""
    made = tx.run(
        "INSERT INTO overlay (tree, agent, anchor, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        at.tree,
        agent,
        anchor,
        _encode_summary(overlay),
    )
    if made:
        tx.run("UPDATE conversation SET revision = revision + 1 WHERE tree = ?", at.tree)
    return made == 1

"""Summaries in the store. Each replaces everything that an agent sees up to one message, its anchor.

A summary is written once, if there is none at that anchor. It applies to every branch that contains the anchor. So a
fork has it too, and an edit before the anchor makes it inapplicable.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from contextc.store.base import Transaction
from contextc.store.places import Head, lineage, place, stretches
from contextc.store.reading import read_as


class Summary(NamedTuple):
    """A stored summary of everything that an agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int
    humans: tuple[str, ...] = ()
    """Authors of the user messages up to the anchor."""
    opening: int | None = 0
    """Place of the message that opened the turn in progress at the anchor; 0 if there was none, None if unknown."""


class Overlay(Struct, frozen=True, kw_only=True):
    """The stored form of a summary, with what the next one needs from the messages before it."""

    text: str
    made_by: str = ""
    time: int = 0
    humans: tuple[str, ...] = ()
    opening: int | None = None


_encode = Encoder().encode
_decode = Decoder(Overlay).decode


def latest(tx: Transaction, agent: str, at: Head, count: Callable[[str], int]) -> Summary | None:
    """Return the newest summary whose anchor is on the current branch."""
    for branch, first, last in reversed([*stretches(lineage(tx, at.branch), 0, at.seq)]):
        row = tx.row(
            "SELECT anchor, body FROM overlay WHERE tree = ? AND agent = ? AND anchor BETWEEN ? AND ?"
            " ORDER BY anchor DESC LIMIT 1",
            at.tree,
            agent,
            place(branch, first),
            place(branch, last),
        )
        if row is not None:
            stored = read_as(_decode, row[1], "A summary")
            return Summary(row[0], stored.text, count(stored.text), stored.humans, stored.opening)
    return None


def keep(tx: Transaction, at: Head, agent: str, anchor: int, overlay: Overlay) -> bool:
    """Store a summary. Returns False if there is one at that anchor already."""
    made = tx.run(
        "INSERT INTO overlay (tree, agent, anchor, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        at.tree,
        agent,
        anchor,
        _encode(overlay),
    )
    if made:
        tx.run("UPDATE conversation SET revision = revision + 1 WHERE tree = ?", at.tree)
    return made == 1

"""Summaries in the store: each stands for everything an agent sees up to one message, its anchor.

A summary is written once, and only where none stands at that anchor yet. It holds on every line that runs through the
anchor, so a fork has it too, and an edit before it leaves it behind.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from contextc.store.base import Transaction
from contextc.store.places import Head, lineage, place, stretches
from contextc.store.reading import read_as


class Summary(NamedTuple):
    """A summary that stands ready: in the place of everything this agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int
    humans: tuple[str, ...] = ()
    """The authors of what people said up to the anchor."""
    opening: int | None = 0
    """The place of the message that opened the turn which was still going at the anchor; 0 where none was, None where
    that is not known.
    """


class Overlay(Struct, frozen=True, kw_only=True):
    """A summary as it is stored, with what the next one must know of the messages before it without reading them."""

    text: str
    made_by: str = ""
    time: int = 0
    humans: tuple[str, ...] = ()
    opening: int | None = None


_encode = Encoder().encode
_decode = Decoder(Overlay).decode


def latest(tx: Transaction, agent: str, at: Head, count: Callable[[str], int]) -> Summary | None:
    """The newest summary whose anchor is on the current line."""
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
    """Write a summary; False where one stands at that anchor already."""
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

"""Summaries in the store: each stands for everything an agent sees up to one message, its anchor.

A summary is written once, and only where none stands at that anchor yet. It holds on every line that runs through the
anchor, so a fork has it too, and an edit before it leaves it behind.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, Head, lineage, stretches
from contextc.store.reading import read_as


class Summary(NamedTuple):
    """A summary that stands ready: in the place of everything this agent sees up to the place `anchor`."""

    anchor: int
    text: str
    tokens: int


class Overlay(Struct, frozen=True, kw_only=True):
    text: str
    made_by: str = ""
    time: int = 0


_encode = Encoder().encode
_decode = Decoder(Overlay).decode


def latest(tx: Transaction, agent: str, at: Head, count: Callable[[str], int]) -> Summary | None:
    """The newest summary whose anchor is on the current line."""
    rows = tx.rows("SELECT anchor, body FROM overlay WHERE tree = ? AND agent = ?", at.tree, agent)
    if not rows:
        return None
    line = {branch: (first, last) for branch, first, last in stretches(lineage(tx, at.branch), 0, at.seq)}
    best: Summary | None = None
    for anchor, body in rows:
        first, last = line.get(anchor >> SEQ_BITS, (1, 0))
        seq = anchor & SEQ_MASK
        if first <= seq <= last and (best is None or seq > best.anchor & SEQ_MASK):
            text = read_as(_decode, body, "A summary").text
            best = Summary(anchor, text, count(text))
    return best


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

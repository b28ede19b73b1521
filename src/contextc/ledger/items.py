"""What was shown: one item for each message or inserted text, with how it was rendered.

An item says all that is needed to show the same thing again: whose words, under which role and prefix, how much of a
long result, with or without media and reasoning. What becomes true later (a second person joins, a limit changes) makes
new items look otherwise, and never those that were shown. Items are stored with every request, so they are small.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc.messages import Role

Kind: TypeAlias = Literal["message", "dynamic", "update", "summary", "notice", "late"]
"""A message of the log; or what was inserted: a dynamic fragment, a changed system prompt where
a session keeps its old one, a summary of what came before, a line that says
what was left out, a result that came after another had been made up in its place."""


class Item(Struct, frozen=True, omit_defaults=True, gc=False, rename={
    "kind": "k", "place": "p", "role": "r", "tokens": "t", "opens": "o", "prefix": "x", "text": "w", "limit": "l",
    "decayed": "d", "bare": "b", "blind": "n", "failed": "f", "signed": "s", "media": "m",
    "only": "y", "inline": "i", "results": "c", "fragment": "g", "hash": "h",
}):  # fmt: skip
    """One thing shown. `place` is the message's; 0 where it is none."""

    place: int = 0
    role: Role = "user"
    tokens: int = 0
    kind: Kind = "message"
    opens: bool = False
    """A person speaks, and a turn begins."""
    prefix: str = ""
    text: str = ""
    limit: int = 0
    """Results longer than this are shown by their head and their tail."""
    decayed: bool = False
    """Results are shown as a line that says how to fetch them."""
    bare: bool = False
    """Shown without its reasoning."""
    blind: bool = False
    """Shown with a line in place of each picture."""
    failed: bool = False
    """The message was cut off, and says so."""
    signed: bool = False
    """It holds reasoning that its provider vouches for."""
    media: bool = False
    """It holds pictures, sounds or documents."""
    only: tuple[str, ...] = ()
    """Of several results, those for these calls; the others stand elsewhere, or nowhere."""
    inline: bool = False
    """Shown with its reasoning joined into the text."""
    results: int = 1
    """How many results it holds, where it holds any."""
    fragment: str = ""
    """The id of the dynamic fragment that this is a copy of. Blocks of older versions hold several, and name none."""
    hash: str = ""
    """The hash of that fragment's text; empty where the fragment is withdrawn."""


class Copy(NamedTuple):
    """The latest copy of a dynamic fragment in an epoch: the hash of its text, and the tokens shown before it."""

    hash: str
    at: int


def latest_copies(items: Iterable[Item]) -> dict[str, Copy]:
    """Return the latest copy of each dynamic fragment among the items of an epoch, without withdrawn ones."""
    found: dict[str, Copy] = {}
    at = 0
    for item in items:
        if item.fragment and item.hash:
            found[item.fragment] = Copy(item.hash, at)
        elif item.fragment:
            found.pop(item.fragment, None)
        at += item.tokens
    return found


class Row(Struct, frozen=True, omit_defaults=True, gc=False):
    """A segment of the ledger: its items, and what must be known of its wire form.

    `drop` says how many wire messages before it were replaced when it was joined on. `ids` are the ids of its calls, as
    they were written; `open` those of them that got a result of ours, with the tool's name. `end` is the role of its
    last wire message. `held`: a session knew some of it already, so that its wire form does not say all of it.
    """

    items: tuple[Item, ...]
    tokens: int = 0
    drop: int = 0
    ids: tuple[str, ...] = ()
    open: dict[str, str] = {}
    end: str = ""
    held: bool = False
    gone: bool = False
    """Words in it were redacted, so its wire form was taken away."""

"""The items of a ledger: one per message or inserted text, with how it was rendered.

An item has everything that is needed to render the same text again: role, prefix, how much of a long result, with or
without media and reasoning. Later changes (a second person joins, a limit changes) affect new items only. Items are
stored with every request, so they are small.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc.messages import Role

ItemKind: TypeAlias = Literal["message", "dynamic", "update", "summary", "notice", "late"]
"""A message of the log, or inserted text: a dynamic fragment; a changed system prompt in a session that keeps its old
one; a summary; a notice about what was left out; a result that arrived after a placeholder had been sent.
"""


class Item(Struct, frozen=True, omit_defaults=True, gc=False, rename={
    "kind": "k", "place": "p", "role": "r", "tokens": "t", "opens": "o", "prefix": "x", "text": "w", "limit": "l",
    "decayed": "d", "bare": "b", "blind": "n", "failed": "f", "signed": "s", "media": "m",
    "only": "y", "inline": "i", "results": "c", "fragment": "g", "hash": "h",
}):  # fmt: skip
    """One message or inserted text of a request. `place` is the message's place; 0 if there is none."""

    place: int = 0
    role: Role = "user"
    tokens: int = 0
    kind: ItemKind = "message"
    opens: bool = False
    """True if a person speaks and a turn begins."""
    prefix: str = ""
    text: str = ""
    limit: int = 0
    """Results longer than this are shortened to their head and tail."""
    decayed: bool = False
    """True if results are replaced by a stub that tells how to fetch them."""
    bare: bool = False
    """True if sent without its reasoning."""
    blind: bool = False
    """True if each media part is replaced by a description."""
    failed: bool = False
    """True if the message is incomplete, and its text states that."""
    signed: bool = False
    """True if it contains reasoning that its provider signed."""
    media: bool = False
    """True if it contains images, audio, video or documents."""
    only: tuple[str, ...] = ()
    """If set, only the results for these call ids are included."""
    inline: bool = False
    """True if its reasoning is joined into the text."""
    results: int = 1
    """Number of tool results, if it has any."""
    fragment: str = ""
    """Id of the dynamic fragment that this is a copy of. Blocks of older versions contain several fragments and have no
    id.
    """
    hash: str = ""
    """Hash of the fragment's text; empty if the fragment is withdrawn."""


class FragmentCopy(NamedTuple):
    """The latest copy of a dynamic fragment in an epoch: the hash of its text, and the number of tokens before it."""

    hash: str
    at: int


def find_latest_copies(items: Iterable[Item]) -> dict[str, FragmentCopy]:
    """Return the latest copy of each dynamic fragment among the items of an epoch, without withdrawn ones."""
    found: dict[str, FragmentCopy] = {}
    at = 0
    for item in items:
        if item.fragment and item.hash:
            found[item.fragment] = FragmentCopy(item.hash, at)
        elif item.fragment:
            found.pop(item.fragment, None)
        at += item.tokens
    return found


class LedgerRow(Struct, frozen=True, omit_defaults=True, gc=False):
    """A segment of the ledger: its items, and facts about its wire form.

    `drop` is the number of preceding wire messages that it replaced. `ids` are the ids of its calls as they were sent;
    `open` are those that got a placeholder result, with the tool's name. `end` is the role of its last wire message.
    `held`: a session had some of it already, so its wire form is incomplete.
    """

    items: tuple[Item, ...]
    tokens: int = 0
    drop: int = 0
    ids: tuple[str, ...] = ()
    open: dict[str, str] = {}
    end: str = ""
    held: bool = False
    gone: bool = False
    """True if some of its content was redacted, so its wire form was removed."""

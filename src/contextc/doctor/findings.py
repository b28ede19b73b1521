"""Findings of a scan: the problem, its consequence, and the repair.

A `fault` cannot be sent, read or trusted. With a `note`, every request is valid without a repair, because calls and
results are paired whenever a request is compiled. A repair never changes a message. It appends messages, or it starts a
branch with the repaired messages and keeps the old branch. If the current branch of a conversation belongs to another
conversation, a repair changes the row that names it. If the ledger of a channel names lost messages, or cannot be read,
a repair empties it.
"""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Severity: TypeAlias = Literal["fault", "note"]
RepairKind: TypeAlias = Literal["append", "branch", "row", "ledger", "none"]
"""The repair: append messages, start a branch, change the row that names the current branch, send the whole context
again, or none.
"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in a store, its consequence, and what a repair would do. `would` is the fix if there is no repair."""

    kind: Severity
    code: str
    conversation: str | None
    where: str
    text: str
    why: str = ""
    would: str = ""
    healing: RepairKind = "none"
    branches: tuple[int, ...] = ()
    """The branches of the conversation that it affects."""


class ChainProblem(msgspec.Struct, frozen=True):
    """A problem of a message, of a part of it, or of the link to the message before it."""

    code: str
    seq: int
    text: str
    index: int = 0  # of the part
    call_seq: int = 0  # message of the call, if the result does not follow it
    name: str = ""  # new id, or name of the blob

    @property
    def first_change(self) -> int:
        """The first position that a repair of this changes."""
        return self.call_seq + 1 if self.call_seq else self.seq


class CodeFacts(NamedTuple):
    """Facts about a code: its severity, its consequence, and the form of the repaired branch."""

    kind: Severity
    consequence: str
    repaired_form: str


CODES: dict[str, CodeFacts] = {
    "lost-base": CodeFacts("fault", "The messages before the branch are not those it was started after.", "rechained"),
    "gap": CodeFacts(
        "fault", "The missing messages are lost.", "rechained, with a note that names the missing messages"
    ),
    "unreadable": CodeFacts(
        "fault",
        "No history that contains it can be loaded or sent.",
        "rechained, with a note in its place",
    ),
    "broken-link": CodeFacts(
        "fault", "It was changed outside of the store, and cannot be trusted.", "rechained with their current content"
    ),
    "missing-blob": CodeFacts("fault", "Its bytes cannot be read or sent.", "with a text in its place"),
    "changed-blob": CodeFacts("fault", "Models receive other bytes than were stored.", "with a text in its place"),
    "stray-result": CodeFacts(
        "note", "Requests leave it out, so no model sees it.", "with it as a text that names its tool"
    ),
    "second-result": CodeFacts(
        "note", "Requests contain only the first one.", "with it as a text, or without it if both are equal"
    ),
    "parted-result": CodeFacts("note", "Every request moves it to its call.", "with it directly after its call"),
    "reused-id": CodeFacts(
        "note",
        "Requests distinguish the two by their order only.",
        "with another id for the second call and its result",
    ),
    "blank-message": CodeFacts("note", "No provider accepts it, so requests leave it out.", "without it"),
}
DAMAGE_CODES = ("lost-base", "gap", "unreadable", "broken-link", "missing-blob", "changed-blob")
OPEN_CALL = CodeFacts("note", "Every request gets a placeholder result for it.", "")


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

"""What a doctor says: a finding, why it matters, and what healing would do about it.

A `fault` cannot be sent, read or trusted. With a `note` every request is valid as it is: calls and results are paired
when a request is made, whatever the record holds. Healing never changes a message. It appends, or it begins a branch
that holds the repaired messages; the old branch stays. Only where a conversation goes on with a branch that is not its
own is the row changed that says so.
"""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Kind: TypeAlias = Literal["fault", "note"]
Healing: TypeAlias = Literal["append", "branch", "row", "none"]
"""What healing does: it appends, begins a branch, has a conversation go on with a branch of its own; or nothing."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about, why, and what healing would do; where that is nothing, the way out."""

    kind: Kind
    code: str
    conversation: str | None
    where: str
    text: str
    why: str = ""
    would: str = ""
    healing: Healing = "none"
    branches: tuple[int, ...] = ()
    """The lines of the conversation that it stands on."""


class Trouble(msgspec.Struct, frozen=True):
    """Something wrong with a message, a part of it, or the link to the one before it."""

    code: str
    seq: int
    text: str
    index: int = 0  # the part
    call_seq: int = 0  # the message of the call, where a result stands apart from it
    name: str = ""  # a new id, or the blob

    @property
    def changes(self) -> int:
        """The first place on the line that is another one when this is healed."""
        return self.call_seq + 1 if self.call_seq else self.seq


class About(NamedTuple):
    """What is the same for all findings of a code: how grave it is, why, and how the healed branch has it."""

    kind: Kind
    why: str
    how: str


CODES: dict[str, About] = {
    "lost-base": About("fault", "What stands before the branch is not what it was begun after.", "rechained"),
    "gap": About("fault", "What was said there is lost.", "rechained, with a line that says what is missing"),
    "unreadable": About(
        "fault",
        "Nothing can be loaded or sent that runs through it.",
        "rechained, with a line in its place that says so",
    ),
    "broken-link": About(
        "fault", "It was changed behind the store's back, and cannot be trusted.", "rechained as they stand now"
    ),
    "missing-blob": About("fault", "Its bytes cannot be read or sent.", "with a line of text in its place"),
    "changed-blob": About("fault", "Models are sent other bytes than were stored.", "with a line of text in its place"),
    "stray-result": About(
        "note", "Requests leave it out, so no model sees it.", "with it as a text that says whose result it is"
    ),
    "second-result": About(
        "note", "Requests hold the first one alone.", "with it as a text, or without it where both say the same"
    ),
    "parted-result": About("note", "Every request brings it to its call.", "with it right behind its call"),
    "reused-id": About(
        "note",
        "Requests tell the two apart by their order alone.",
        "with another id for the second call and its result",
    ),
    "blank-message": About("note", "No provider takes one, so requests leave it out.", "without it"),
}
DAMAGE = ("lost-base", "gap", "unreadable", "broken-link", "missing-blob", "changed-blob")
OPEN_CALL = About("note", "Every request has a result made up for it.", "")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

"""What a client's resent history adds to ours.

Pages and stateless clients send everything they have with every request. What they have may lack entries they were
never given (system messages, tool calls, an answer whose connection broke), so it is matched as a thread through our
chain: by uid where the client sends one, else by role, author, text, media and, where it knows them, call ids. What
is left over at its end is new.

A person's own messages are never passed over: where one is missing or says something else, under its old uid too, the
client rewrote the past, and the new tail belongs on a new branch, after the last message both agree on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.messages import Media, Message, Native, chain_id, content_of

EDITED = "~"  # an edit that kept its uid is stored as `uid~2`, `uid~3` …


class Difference(NamedTuple):
    """`tail` messages at the end of theirs are new, and follow message `after` of our chain. `rewrites` says that other
    messages follow there today."""

    tail: int
    after: int
    rewrites: bool


def compare(ours: Sequence[Message], theirs: Sequence[Message]) -> Difference:
    matched, cursor = 0, 0
    for message in theirs:
        found = _find(ours, cursor, message)
        if found is None:
            break
        matched, cursor = matched + 1, found + 1
    if matched == len(theirs):
        return Difference(0, len(ours), False)
    first = theirs[matched]
    rewrites = any(_replaced(message, first) for message in ours[cursor:])
    return Difference(len(theirs) - matched, cursor if rewrites else len(ours), rewrites)


def original_uid(uid: str) -> str:
    """The uid under which a client knows a message, of which it may have sent several versions."""
    before, _, version = uid.rpartition(EDITED)
    return before if before and version.isdigit() else uid


def _find(ours: Sequence[Message], start: int, wanted: Message) -> int | None:
    for index in range(start, len(ours)):
        if _same(ours[index], wanted) or (ours[index].redacted and _was(ours, index, wanted)):
            return index
        if ours[index].role == "user" and _by_the_same(ours[index], wanted):
            return None
    return None


def _same(ours: Message, theirs: Message) -> bool:
    if theirs.uid:
        known = ours.uid == theirs.uid or original_uid(ours.uid) == theirs.uid
        return known and (ours.role != "user" or ours.redacted or _says(ours) == _says(theirs))
    calls = _calls(theirs)
    return (
        not ours.redacted
        and ours.role == theirs.role
        and _by_the_same(ours, theirs)
        and (not calls or calls == _calls(ours))
        and (theirs.role == "tool" or _says(ours) == _says(theirs))
    )


def _was(ours: Sequence[Message], index: int, theirs: Message) -> bool:
    """Whether a redacted message said this: its words are gone, its id is not. They must not come back as new ones.

    A client that leaves the author out is given the benefit of the doubt.
    """
    gone = ours[index]
    before = bytes.fromhex(ours[index - 1].id) if index else None
    versions = [replace(theirs, author=author) for author in (theirs.author, gone.author)]
    return gone.role == theirs.role and (
        before is None or any(chain_id(before, content_of(version)).hex() == gone.id for version in versions)
    )


def _says(message: Message) -> tuple[str, list[object]]:
    media = [part for part in message.parts if isinstance(part, Media | Native)]
    return message.text.strip(), [
        part.data if isinstance(part, Native) else part.blob or part.url or part.file_id or "" for part in media
    ]


def _calls(message: Message) -> list[str]:
    asked = [call.id for call in message.tool_calls]
    return asked + [result.call_id for result in message.tool_results]


def _by_the_same(one: Message, other: Message) -> bool:
    """Whether two messages may be one person's; who gives no author may be anybody."""
    return one.author is None or other.author is None or one.author == other.author


def _replaced(passed: Message, first_new: Message) -> bool:
    """Whether the client must have had `passed`, so that leaving it out was meant."""
    if passed.role == "user":
        return _by_the_same(passed, first_new)
    return passed.role == "assistant" and first_new.role == "assistant"

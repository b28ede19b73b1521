"""Comparison of a client's complete history with the stored chain.

Stateless clients send their whole history with every request. It may lack entries that they never received (system
messages, tool calls, a reply whose connection broke). It is therefore matched as a subsequence of the stored chain: by
uid if the client sends one, otherwise by role, author, text, media and call ids. The unmatched end is new.

User messages are never skipped. If one is missing or has other content, even under the same uid, the client edited its
history. The new tail then goes to a new branch after the last common message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.messages import Media, Message, Native, chain_id, content_of

EDITED = "~"  # an edit under the same uid is stored as `uid~2`, `uid~3` …


class Difference(NamedTuple):
    """The result of a comparison: the last `tail` messages of the client are new and follow message `after`.

    `rewrites` is True if other messages follow there in the stored chain.
    """

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
    """Return the uid that the client uses for a message, without the version suffix."""
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
    """Return True if a redacted message had this content, judged by its id: it must not be stored again as new.

    A message without an author matches any author.
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
    """Return True if two messages may have the same author. A message without an author matches any."""
    return one.author is None or other.author is None or one.author == other.author


def _replaced(passed: Message, first_new: Message) -> bool:
    """Return True if the client must have received `passed`, so that it was omitted on purpose."""
    if passed.role == "user":
        return _by_the_same(passed, first_new)
    return passed.role == "assistant" and first_new.role == "assistant"

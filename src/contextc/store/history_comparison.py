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

from contextc.messages import Media, Message, ProviderBlock, canonical_content, make_chain_id

VERSION_SEPARATOR = "~"  # an edit under the same uid is stored as `uid~2`, `uid~3` …


class HistoryDifference(NamedTuple):
    """The result of a comparison: the last `new_count` messages of the client are new and follow message `after`.

    `rewrites` is True if other messages follow there in the stored chain.
    """

    new_count: int
    after: int
    rewrites: bool


def compare_histories(stored: Sequence[Message], client_messages: Sequence[Message]) -> HistoryDifference:
    matched, cursor = 0, 0
    for message in client_messages:
        found = _find(stored, cursor, message)
        if found is None:
            break
        matched, cursor = matched + 1, found + 1
    if matched == len(client_messages):
        return HistoryDifference(0, len(stored), False)
    first = client_messages[matched]
    rewrites = any(_was_omitted(message, first) for message in stored[cursor:])
    return HistoryDifference(len(client_messages) - matched, cursor if rewrites else len(stored), rewrites)


def original_uid(uid: str) -> str:
    """Return the uid that the client uses for a message, without the version suffix."""
    before, _, version = uid.rpartition(VERSION_SEPARATOR)
    return before if before and version.isdigit() else uid


def _find(ours: Sequence[Message], start: int, wanted: Message) -> int | None:
    for index in range(start, len(ours)):
        if _same(ours[index], wanted) or (ours[index].redacted and _was_redacted_as(ours, index, wanted)):
            return index
        if ours[index].role == "user" and _may_share_author(ours[index], wanted):
            return None
    return None


def _same(ours: Message, theirs: Message) -> bool:
    if theirs.uid:
        known = ours.uid == theirs.uid or original_uid(ours.uid) == theirs.uid
        return known and (
            ours.role != "user" or ours.redacted or _comparable_content(ours) == _comparable_content(theirs)
        )
    calls = _call_ids(theirs)
    return (
        not ours.redacted
        and ours.role == theirs.role
        and _may_share_author(ours, theirs)
        and (not calls or calls == _call_ids(ours))
        and (theirs.role == "tool" or _comparable_content(ours) == _comparable_content(theirs))
    )


def _was_redacted_as(ours: Sequence[Message], index: int, theirs: Message) -> bool:
    """Return True if a redacted message had this content, judged by its id: it must not be stored again as new.

    A message without an author matches any author.
    """
    gone = ours[index]
    before = bytes.fromhex(ours[index - 1].id) if index else None
    versions = [replace(theirs, author=author) for author in (theirs.author, gone.author)]
    return gone.role == theirs.role and (
        before is None
        or any(make_chain_id(before, canonical_content(version)).hex() == gone.id for version in versions)
    )


def _comparable_content(message: Message) -> tuple[str, list[object]]:
    media = [part for part in message.parts if isinstance(part, Media | ProviderBlock)]
    return message.text.strip(), [
        part.data if isinstance(part, ProviderBlock) else part.blob or part.url or part.file_id or "" for part in media
    ]


def _call_ids(message: Message) -> list[str]:
    asked = [call.id for call in message.tool_calls]
    return asked + [result.call_id for result in message.tool_results]


def _may_share_author(one: Message, other: Message) -> bool:
    """Return True if two messages may have the same author. A message without an author matches any."""
    return one.author is None or other.author is None or one.author == other.author


def _was_omitted(passed: Message, first_new: Message) -> bool:
    """Return True if the client must have received `passed`, so that it was omitted on purpose."""
    if passed.role == "user":
        return _may_share_author(passed, first_new)
    return passed.role == "assistant" and first_new.role == "assistant"

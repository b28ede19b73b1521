"""What a client's resent history adds to ours.

Pages and stateless clients send everything they have with every request. What they have may lack entries they were
never given (system messages, an answer whose connection broke), so it is matched as a thread through our chain: by
uid where the client sends one, else by role, text and call ids. What is left over at its end is new.

Where the new tail takes the place of something the client itself must have had (a message of the same author, or an
answer where it brings another answer), it rewrote the past: the tail then belongs on a new branch, after the last
message both agree on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from contextc.messages import Message


class Difference(NamedTuple):
    """`tail` is new, and follows message `after` of our chain; `rewrites` says that other messages follow there
    today.
    """

    tail: list[Message]
    after: int
    rewrites: bool


def compare(ours: Sequence[Message], theirs: Sequence[Message]) -> Difference:
    matched, cursor = 0, 0
    for message in theirs:
        found = _find(ours, cursor, message)
        if found is None:
            break
        matched, cursor = matched + 1, found + 1
    tail = list(theirs[matched:])
    rewrites = bool(tail) and any(_replaced(message, tail[0]) for message in ours[cursor:])
    return Difference(tail, cursor if rewrites else len(ours), rewrites)


def _find(ours: Sequence[Message], start: int, wanted: Message) -> int | None:
    for index in range(start, len(ours)):
        if _same(ours[index], wanted):
            return index
    return None


def _same(ours: Message, theirs: Message) -> bool:
    if theirs.uid:
        return ours.uid == theirs.uid
    if ours.redacted:  # the client may still have the words; they must not come back as something new
        return ours.role == theirs.role
    return ours.role == theirs.role and _calls(ours) == _calls(theirs) and ours.text.strip() == theirs.text.strip()


def _calls(message: Message) -> list[str]:
    asked = [call.id for call in message.tool_calls]
    return asked + [result.call_id for result in message.tool_results]


def _replaced(passed: Message, first_new: Message) -> bool:
    """Whether the client must have had `passed`, so that leaving it out was meant."""
    if passed.role == "user":
        return passed.author == first_new.author or first_new.role != "user"
    return passed.role == "assistant" and first_new.role == "assistant"

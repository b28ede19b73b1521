"""Tool results that a client truncated later: cleared, cut off, or without the middle.

A text is a truncated form of another only if it shows that: it is a note in brackets, or it has the other's text with a
mark for the missing part. A text that merely differs is the result of another run of the tool.
"""

import re

from msgspec.structs import replace

from contextc.messages import Media, Message, ToolResult

TRUNCATION_WORDS = r"clear|omit|remov|truncat|elid|elis|prun|compact|trimm|shorten|redact|dropp|not shown|no longer"
TRUNCATION_NOTE = re.compile(rf"\s*[\[(<{{](?=[^\n]*(?:{TRUNCATION_WORDS}))[^\n]*[\])>}}]\s*", re.IGNORECASE)
TRUNCATION_MARK = re.compile(rf"\.\.\.|…|{TRUNCATION_WORDS}|chars|more|too long", re.IGNORECASE)
MAX_NOTE_LENGTH = 200
MIN_COMMON_PREFIX = 100  # characters; an equal prefix of this length is not a coincidence


def longer_results(one: Message, other: Message) -> Message | None:
    """Return the results of equal calls, each in the longer form; None if the results differ."""
    ours, theirs = one.tool_results, other.tool_results
    if len(ours) != len(theirs):
        return None
    kept: dict[int, ToolResult] = {}
    for mine, yours in zip(ours, theirs, strict=True):
        if _has_all_media(mine, yours) and (mine.text == yours.text or is_truncated(yours.text, mine.text)):
            continue
        if not (_has_all_media(yours, mine) and (mine.text == yours.text or is_truncated(mine.text, yours.text))):
            return None
        kept[id(mine)] = yours
    return replace(one, parts=tuple(kept.get(id(part), part) for part in one.parts)) if kept else one


def is_same_result(stored: Message, sent: Message) -> bool:
    """Return True if the results of a message have the texts of those of a stored one, perhaps truncated."""
    ours, theirs = stored.tool_results, sent.tool_results
    return len(ours) == len(theirs) and all(
        mine.text == yours.text or is_truncated(yours.text, mine.text) or is_truncated(mine.text, yours.text)
        for mine, yours in zip(ours, theirs, strict=True)
    )


def is_truncated(short: str, long: str) -> bool:
    """Return True if a text is a truncated form of another."""
    if _is_note(short):
        return not _is_note(long)
    if len(short) >= len(long):
        return False
    head = _common_prefix_length(short, long)
    tail = _common_prefix_length(short[head:][::-1], long[head:][::-1])
    rest = short[head : len(short) - tail]
    if not rest:
        return len(short) >= MIN_COMMON_PREFIX
    return head + tail > 0 and len(rest) <= MAX_NOTE_LENGTH and TRUNCATION_MARK.search(rest) is not None


def _is_note(text: str) -> bool:
    """Return True if a text is only a note that content was removed."""
    return len(text) <= MAX_NOTE_LENGTH and TRUNCATION_NOTE.fullmatch(text) is not None


def _has_all_media(one: ToolResult, other: ToolResult) -> bool:
    """Return True if one result has all media of the other."""
    return all(part in _media(one) for part in _media(other))


def _media(result: ToolResult) -> list[Media]:
    return [part for part in result.content if isinstance(part, Media)] if isinstance(result.content, tuple) else []


def _common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low

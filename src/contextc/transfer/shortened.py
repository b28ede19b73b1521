"""Tool results that a client truncated later: cleared, cut off, or without the middle.

A text is a truncated form of another only if it shows that: it is a note in brackets, or it has the other's text with a
mark for the missing part. A text that merely differs is the result of another run of the tool.
"""

import re

from msgspec.structs import replace

from contextc.messages import Media, Message, ToolResult

WORDS = r"clear|omit|remov|truncat|elid|elis|prun|compact|trimm|shorten|redact|dropp|not shown|no longer"
NOTE = re.compile(rf"\s*[\[(<{{][^\n]*({WORDS})[^\n]*[\])>}}]\s*", re.IGNORECASE)
MARK = re.compile(rf"\.\.\.|…|{WORDS}|chars|more|too long", re.IGNORECASE)
LONGEST_NOTE = 200
LONG = 100  # characters; an equal prefix of this length is not a coincidence


def longer(one: Message, other: Message) -> Message | None:
    """Return the results of equal calls, each in the longer form; None if the results differ."""
    ours, theirs = one.tool_results, other.tool_results
    if len(ours) != len(theirs):
        return None
    kept: dict[int, ToolResult] = {}
    for mine, yours in zip(ours, theirs, strict=True):
        if _shows_all(mine, yours) and (mine.text == yours.text or is_shortened(yours.text, mine.text)):
            continue
        if not (_shows_all(yours, mine) and (mine.text == yours.text or is_shortened(mine.text, yours.text))):
            return None
        kept[id(mine)] = yours
    return replace(one, parts=tuple(kept.get(id(part), part) for part in one.parts)) if kept else one


def is_shortened(short: str, long: str) -> bool:
    """Return True if a text is a truncated form of another."""
    if _is_note(short):
        return not _is_note(long)
    if len(short) >= len(long):
        return False
    head = _shared(short, long)
    tail = _shared(short[head:][::-1], long[head:][::-1])
    rest = short[head : len(short) - tail]
    if not rest:
        return len(short) >= LONG
    return head + tail > 0 and len(rest) <= LONGEST_NOTE and MARK.search(rest) is not None


def _is_note(text: str) -> bool:
    """Return True if a text is only a note that content was removed."""
    return len(text) <= LONGEST_NOTE and NOTE.fullmatch(text) is not None


def _shows_all(one: ToolResult, other: ToolResult) -> bool:
    """Return True if one result has all media of the other."""
    return all(part in _media(one) for part in _media(other))


def _media(result: ToolResult) -> list[Media]:
    return [part for part in result.content if isinstance(part, Media)] if isinstance(result.content, tuple) else []


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low

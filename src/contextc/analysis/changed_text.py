"""Recognise what changed between two versions of a text: a clock, a date, a counter, a random id and so on.

The change itself is examined, not its place. So a clock is found in a system prompt, in a tool and in a message alike.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSON, JSONObject, decode, encode_canonical
from contextc.analysis.finding import shorten

CONTEXT = 24
ATTRIBUTION = re.compile(
    r"x-anthropic-billing-header|\bcch=|\bcc_version=|x-[a-z-]*(?:billing|attribution)[a-z-]*:", re.I
)
CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
DATE = re.compile(
    r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b|"
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|"
    r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b|"
    r"\b\d{1,2}\.?\s+(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*",
    re.I,
)
EPOCH = re.compile(r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b")
NUMBER = re.compile(r"\d[\d,.]*")
RANDOM = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{13,}|[0-9a-fA-F]{5,}|[A-Za-z0-9_-]{10,}|0?\.\d{6,}")
SHORTENED = re.compile(r"truncat|omitted|cleared|elided|removed|too long|shortened|\[…|\[\.\.\.|pruned|compacted", re.I)
SHORT_SHARE = 0.8


class TextChange(NamedTuple):
    """A recognised change: its kind, and the words before and after it."""

    kind: str
    before: str
    after: str


DESCRIPTIONS = {
    "attribution": ("an attribution line changes", "Turn the attribution line off, or keep its value constant."),
    "clock": ("it contains the time", "Move the time to the end of the conversation, or leave it out."),
    "date": ("it contains the date", "Move the date to the end of the conversation, or fix it when a session begins."),
    "counter": ("it contains a counter", "Move the counter to the end of the conversation."),
    "random_id": ("it contains a random id", "Use an id that stays the same, or leave it out."),
    "key_order": ("the keys of its JSON have another order", "Write JSON with a fixed order of keys."),
    "reencoded": ("the same text is encoded differently", "Send earlier content again with exactly the same bytes."),
    "shortened": ("it was shortened", "Shorten results before they are first sent, and then leave them as they are."),
    "text": ("its text changed", "Keep what was sent before unchanged, and add what is new at the end."),
}
"""What a change of each kind is, and its fix."""


def recognise(before: str, after: str) -> TextChange:
    """Return what changed between two texts."""
    if is_reordered(before, after):
        return TextChange("key_order", shorten(before), shorten(after))
    old, new, start = cut_common(before, after)
    words = _words(before, after)
    if is_reencoded(*words):
        return TextChange("reencoded", shorten(old), shorten(new))
    near = before[max(0, start - 3 * CONTEXT) : start] + old
    line = _line_at(before, start) + "\n" + _line_at(after, start)
    kind = _kind(before, after, *words, near, line)
    return TextChange(kind, shorten(_in_context(before, old, start)), shorten(_in_context(after, new, start)))


def _kind(before: str, after: str, old: str, new: str, near: str, line: str) -> str:
    if ATTRIBUTION.search(near) or ATTRIBUTION.search(line):
        return "attribution"
    both = old, new
    if all(map(CLOCK.search, both)) or all(map(EPOCH.search, both)):
        return "clock"
    if all(map(DATE.search, both)):
        return "date"
    if len(after) < len(before) * SHORT_SHARE and (SHORTENED.search(new) or before.startswith(after.rstrip(". …"))):
        return "shortened"
    if SHORTENED.search(new) and not SHORTENED.search(old) and len(new) < len(old):
        return "shortened"
    numbers = [NUMBER.fullmatch(each.strip(" ()[]{}#%\"'.,:;$/")) for each in both]
    if all(numbers):
        return "random_id" if min(map(len, both)) >= 10 else "counter"
    if all([RANDOM.search(each) and _looks_random(each) for each in both]) and max(map(len, both)) < 200:
        return "random_id"
    if all(map(NUMBER.search, both)) and NUMBER.sub("#", old) == NUMBER.sub("#", new):
        return "counter"
    return "text"


def _looks_random(text: str) -> bool:
    """Return True if each word mixes letters with digits, as an id does and prose does not."""
    words = [word for word in re.findall(r"[A-Za-z0-9_-]{5,}", text)]
    return bool(words) and all(re.search(r"\d", word) for word in words)


def count_common(one: str, other: str) -> int:
    """Return the number of characters that both texts begin with. Texts are compared in halves, without a loop."""
    low, high = 0, min(len(one), len(other)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def cut_common(before: str, after: str) -> tuple[str, str, int]:
    """Return two texts without their common beginning and end, and the length of the beginning."""
    start = count_common(before, after)
    size = min(len(before), len(after)) - start
    end = count_common(before[::-1][:size], after[::-1][:size])
    return before[start : len(before) - end], after[start : len(after) - end], start


def _words(before: str, after: str) -> tuple[str, str]:
    """Return the parts that differ, extended to whole words."""
    _, _, start = cut_common(before, after)
    while start and not before[start - 1].isspace() and before[start - 1] not in "\"'`=<>()[]{};,|":
        start -= 1
    size = min(len(before), len(after)) - start
    end = count_common(before[::-1][:size], after[::-1][:size])
    while end and not before[len(before) - end].isspace() and before[len(before) - end] not in "\"'`=<>()[]{};,|":
        end -= 1
    return before[start : len(before) - end], after[start : len(after) - end]


def _in_context(text: str, changed: str, start: int) -> str:
    """Return the changed words with a few characters around them."""
    first = max(0, start - CONTEXT)
    return text[first : start + len(changed) + CONTEXT] if len(changed) < 4 * CONTEXT else changed


def _line_at(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : (text.find("\n", at) + 1 or len(text) + 1) - 1][:500]


def is_reordered(before: str, after: str) -> bool:
    """Return True if both are JSON with the same content, and only the order of keys differs."""
    if before == after or before[:1] not in "{[" or after[:1] not in "{[":
        return False
    try:
        return encode_canonical(decode(before.encode())) == encode_canonical(decode(after.encode()))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def is_reencoded(before: str, after: str) -> bool:
    """Return True if both are the same text in another encoding: normal forms, white space, entities, escapes."""
    if before == after or abs(len(before) - len(after)) > max(len(before), len(after)) // 2:
        return False
    return any(set(map(form, (before, after))).__len__() == 1 for form in _FORMS)


def _unescape(text: str) -> str:
    try:
        return cast(str, decode(b'"%b"' % text.replace('"', '\\"').replace("\n", "\\n").encode()))
    except (msgspec.DecodeError, UnicodeError):
        return text


_FORMS = (
    lambda text: unicodedata.normalize("NFKC", cast(str, text)),
    lambda text: " ".join(cast(str, text).split()),
    lambda text: html.unescape(cast(str, text)),
    lambda text: _unescape(cast(str, text)),
    lambda text: re.sub(r"\s+", "", cast(str, text)),
)


class LeafChange(NamedTuple):
    """The first value that differs in two JSON values: its path, and both values; None where there is none."""

    path: str
    before: JSON
    after: JSON


def find_leaf(before: JSON, after: JSON, path: str = "") -> LeafChange:
    """Return the first difference of two JSON values in their own order."""
    if isinstance(before, dict) and isinstance(after, dict):
        one, other = cast(JSONObject, before), cast(JSONObject, after)
        for name in _names(one, other):
            if name not in one or name not in other:
                return LeafChange(f"{path}.{name}", one.get(name), other.get(name))
            if one[name] != other[name] or not _same_order(one[name], other[name]):
                return find_leaf(one[name], other[name], f"{path}.{name}")
        return LeafChange(path, before, after)  # only the order of its keys
    if isinstance(before, list) and isinstance(after, list):
        many, others = cast(list[JSON], before), cast(list[JSON], after)
        for index, (each, now) in enumerate(zip(many, others, strict=False)):
            if each != now or not _same_order(each, now):
                return find_leaf(each, now, f"{path}[{index}]")
        size = min(len(many), len(others))
        return LeafChange(
            f"{path}[{size}]", many[size] if len(many) > size else None, others[size] if len(others) > size else None
        )
    return LeafChange(path, before, after)


def _names(one: JSONObject, other: JSONObject) -> Iterator[str]:
    yield from one
    yield from [name for name in other if name not in one]


def _same_order(one: JSON, other: JSON) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)

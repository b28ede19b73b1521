"""Recognise what changed between two requests: in a text, by a move of a block, or in the tools."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from contextc._json import JSON, JSONObject, decode, encode, encode_canonical
from contextc._sequence_comparison import count_common_ends, count_common_prefix
from contextc.analysis.element_costs import tool_name
from contextc.analysis.finding import shorten
from contextc.analysis.request_elements import Element, RequestView
from contextc.messages import extend_to_words

# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Recognise what changed between two versions of a text: a clock, a date, a counter, a random id and so on.
#
# The change itself is examined, not its place. So a clock is found in a system prompt, in a tool and in a message
# alike.


CONTEXT = 24
REENCODED = 64
MAX_ADDED = 160
"""Characters of a text with a clock that is new."""
ATTRIBUTION = re.compile(
    r"x-anthropic-billing-header|\bcch=|\bcc_version=|"
    r"(?<![a-z-])x-(?:(?!billing|attribution)[a-z-])*+(?:billing|attribution)[a-z-]*+:",
    re.I,
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
SPACE = re.compile(r"\s+")
SEPARATORS = " \t\r\n\"'`=<>()[]{};,|"


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
    "media": ("its data changed", "Encode an image or a document once, and send the same bytes again."),
    "text": ("its text changed", "Keep what was sent before unchanged, and add what is new at the end."),
}
"""The kinds of changes: a description, and a fix."""


def recognise(before: str, after: str) -> TextChange:
    """Return what changed between two texts."""
    if is_reordered(before, after):
        return TextChange("key_order", shorten(before), shorten(after))
    start, end = count_common_ends(before, after)
    old, new = (text[start : len(text) - end] for text in (before, after))
    words = _extend_to_words(before, after, start, end)
    if is_reencoded(*words):
        escaped = (
            _in_context(text, part, start).encode("unicode_escape").decode()
            for text, part in ((before, old), (after, new))
        )
        return TextChange("reencoded", *map(shorten, escaped))
    kind = _text_change_kind(before, after, *words, start)
    return TextChange(kind, shorten(_in_context(before, old, start)), shorten(_in_context(after, new, start)))


def _text_change_kind(before: str, after: str, old: str, new: str, start: int) -> str:
    if any(ATTRIBUTION.search(_line_at(text, start)) for text in (before, after)):
        return "attribution"
    both = old, new

    def touches(pattern: re.Pattern[str]) -> bool:
        return all(_touches(pattern, text, start, len(part)) for text, part in ((before, old), (after, new)))

    if touches(CLOCK) or touches(EPOCH):
        return "clock"
    if touches(DATE):
        return "date"
    if len(new) < MAX_ADDED and CLOCK.search(new) and not CLOCK.search(old):
        return "clock"
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


def _touches(pattern: re.Pattern[str], text: str, start: int, size: int) -> bool:
    """Return True if a match of a pattern has one of the changed characters."""
    first = max(0, start - CONTEXT)
    window = text[first : start + size + CONTEXT]
    return any(first + found.start() <= start <= first + found.end() for found in pattern.finditer(window))


def _looks_random(text: str) -> bool:
    """Return True if each word mixes letters with digits, as an id does and prose does not."""
    words = re.findall(r"[A-Za-z0-9_-]{5,}", text)
    return bool(words) and all(re.search(r"\d", word) for word in words)


def _extend_to_words(before: str, after: str, start: int, end: int) -> tuple[str, str]:
    """Return the parts that differ, extended to whole words."""
    while start and before[start - 1] not in SEPARATORS:
        start -= 1
    while end and before[len(before) - end] not in SEPARATORS:
        end -= 1
    return before[start : len(before) - end], after[start : len(after) - end]


def _in_context(text: str, changed: str, start: int) -> str:
    """Return the changed words with a few characters around them."""
    if len(changed) < 4 * CONTEXT:
        first, last = extend_to_words(text, start - CONTEXT, start + len(changed) + CONTEXT)
    else:
        first, last = extend_to_words(text, start, start + len(changed))
    return text[first:last]


def _line_at(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : (text.find("\n", at) + 1 or len(text) + 1) - 1][:500]


def is_reordered(before: str, after: str) -> bool:
    """Return True if both are JSON with the same content, and only the order of keys differs."""
    if before == after or before[:1] not in "{[" or after[:1] not in "{[":
        return False
    try:
        one, other = decode(before.encode()), decode(after.encode())
        return encode_canonical(one) == encode_canonical(other) and encode(one) != encode(other)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def is_reencoded(before: str, after: str) -> bool:
    """Return True if both are the same text in another encoding: normal forms, white space, entities, escapes."""
    if before == after or abs(len(before) - len(after)) > max(REENCODED, len(before) // 2, len(after) // 2):
        return False
    return any(form(before) == form(after) for form in _FORMS)


def _unescape(text: str) -> str:
    try:
        return cast(str, decode(b'"%b"' % text.replace('"', '\\"').replace("\n", "\\n").encode()))
    except (msgspec.DecodeError, UnicodeError):
        return text


_FORMS: tuple[Callable[[str], str], ...] = (
    partial(unicodedata.normalize, "NFKC"), partial(SPACE.sub, ""), html.unescape, _unescape,
)  # fmt: skip


class LeafChange(NamedTuple):
    """The first value that differs in two JSON values: its path, and both values; None where there is none."""

    path: str
    before: JSON
    after: JSON


def find_leaf(before: JSON, after: JSON, path: str = "") -> LeafChange:
    """Return the first difference of two JSON values in their own order."""
    if isinstance(before, dict) and isinstance(after, dict):
        one, other = cast(JSONObject, before), cast(JSONObject, after)
        for name in dict.fromkeys([*one, *other]):
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


def _same_order(one: JSON, other: JSON) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


# ── moved blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Recognise a block that left its place for a later one, such as a reminder that each request has at its end.


REMINDER = re.compile(r"remind|<system|<env", re.IGNORECASE)
OPENING_TAG = re.compile(r"\s*<[^>]{1,60}>\s*")
SAME_START, SAME_START_IN_TAG = 12, 4
"""Characters that two versions of a reminder begin with, and those after an opening tag that both have."""
MODEL_ROLES = ("assistant", "model")
MESSAGE_NUMBER = re.compile(r"\[(\d+)\]")
MOVED_NAMES = {"reminder": "A reminder", "text": "A text", "media": "Media", "tool_result": "A tool result"}
MOVED_FIX = (
    "Leave it where it was first sent, or set the cache breakpoint before it, so that it is not part of the prefix."
)


class Move(NamedTuple):
    """A block that moved: its new place, counted from the old one. `is_same` is False if its text changed too."""

    offset: int
    is_same: bool


def is_reminder(element: Element) -> bool:
    """Return True if an element is a text that a client adds, such as `<system-reminder>`."""
    return element.type == "text" and bool(REMINDER.search(element.text[:200]))


def find_move(old: Sequence[Element], new: Sequence[Element]) -> Move | None:
    """Return where the first of the earlier elements went; None if it did not move to a later place.

    Both begin with the first difference. A block has moved if what followed it now comes before it, or, if nothing
    followed it, if the reply to the earlier request took its place. Otherwise something was inserted before it.
    """
    if not old or not new or old[0].kind != "message" or _is_of_model(old[0]) or old[0].type not in MOVED_NAMES:
        return None
    first, known = old[0], {each.key for each in old[1:]}
    if first.key in known:
        return None  # the same text was sent several times
    at = next((index for index, each in enumerate(new) if each.key == first.key), None)
    is_same = at is not None
    if at is None and is_reminder(first):
        at = next(
            (index for index, each in enumerate(new) if each.key not in known and _is_new_version(first, each)), None
        )
    if not at:
        return None
    size = count_common_prefix([each.key for each in old], [each.key for each in new[at:]]) if is_same else 1
    if size < len(old):
        has_moved = old[size].key in {each.key for each in new[:at]}
    else:
        has_moved = _is_of_model(new[0]) and not any(map(_is_of_model, old))
    return Move(at, is_same) if has_moved else None


def _is_of_model(element: Element) -> bool:
    return element.role in MODEL_ROLES or element.type in ("tool_call", "reasoning")


def _is_new_version(old: Element, new: Element) -> bool:
    """Return True if two reminders begin alike."""
    if not is_reminder(new) or old.role != new.role:
        return False
    tag = OPENING_TAG.match(old.text)
    least = tag.end() + SAME_START_IN_TAG if tag else SAME_START
    return count_common_prefix(old.text, new.text) >= min(least, len(old.text), len(new.text))


def name_block(element: Element) -> str:
    """Return the name of a block that moved, for the beginning of a sentence."""
    return MOVED_NAMES.get("reminder" if is_reminder(element) else element.type, "A block")


def describe_way(before: str, after: str, *, is_same: bool) -> str:
    """Return the way between two paths, such as "from message 4 to message 8"."""
    start, end = (_message_number(path) for path in (before, after))
    way = f"from message {start} to message {end}" if start != end else f"within message {start}"
    return way if is_same else f"{way}, and its text changed"


def _message_number(path: str) -> str:
    found = MESSAGE_NUMBER.search(path)
    return found[1] if found else path


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The tools that two requests do not have in common: added, removed, or defined differently.


ToolChangeKind: TypeAlias = Literal["added", "removed", "changed"]
T = TypeVar("T")


class ToolChange(NamedTuple):
    """A tool that differs. `before` and `after` are its definitions; None where only one request has it."""

    name: str
    before: Element | None
    after: Element | None

    @property
    def kind(self) -> ToolChangeKind:
        return "added" if self.before is None else "removed" if self.after is None else "changed"

    @property
    def path(self) -> str:
        """The path of the tool in the later request. If it was removed, this is the path of the list of tools."""
        if self.after is not None:
            return self.after.suffix
        return self.before.suffix.rpartition("[")[0] if self.before is not None else ""


def find_tool_changes(before: RequestView, now: RequestView) -> list[ToolChange]:
    """Return the tools that differ, in the order of their places. Tools of one name are versions of each other."""
    sides = before.tools.elements, now.tools.elements
    same = {each.key for each in sides[0]} & {each.key for each in sides[1]}
    old, new = (
        number_by_name(
            [(index, each) for index, each in enumerate(side) if each.key not in same],
            lambda place: tool_name(place[1]),
        )
        for side in sides
    )
    found = [(index, 0, ToolChange(key[0], each, None)) for key, (index, each) in old.items() if key not in new]
    found += [
        (index, 1, ToolChange(key[0], old[key][1] if key in old else None, each)) for key, (index, each) in new.items()
    ]
    return [change for *_, change in sorted(found, key=lambda each: each[:2])]


def number_by_name(tools: Iterable[T], name_of: Callable[[T], str]) -> dict[tuple[str, int], T]:
    """Return tools by name and number: those of one name are numbered, such as MCP servers, which have only a type."""
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], T] = {}
    for tool in tools:
        name = name_of(tool)
        found[name, seen[name]] = tool
        seen[name] += 1
    return found


def summarize_tool_changes(changes: list[ToolChange]) -> str:
    """Return numbers and names, such as "1 added: fetch; 2 removed: read, write"."""
    kinds: tuple[ToolChangeKind, ...] = ("added", "removed", "changed")
    names = {kind: [each.name for each in changes if each.kind == kind] for kind in kinds}
    return "; ".join(
        [f"{len(some)} {kind}: {shorten(', '.join(sorted(some)), 80)}" for kind, some in names.items() if some]
    )

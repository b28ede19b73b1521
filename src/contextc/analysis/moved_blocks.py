"""Recognise a block that left its place for a later one, such as a reminder that each request has at its end."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from contextc._common_prefix import count_common_prefix
from contextc.analysis.request_elements import Element

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
        at = next((index for index, each in enumerate(new) if each.key not in known and _is_version(first, each)), None)
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


def _is_version(old: Element, new: Element) -> bool:
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

"""Differences between two texts, word by word. Line breaks are kept, and long unchanged stretches are folded.

Lines are aligned first, then the words of lines that differ. The time is linear in the lengths of the texts.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc.inspection.sequence_alignment import align

SegmentKind: TypeAlias = Literal["same", "removed", "added", "folded", "cut"]
CONTEXT = 160
"""Unchanged characters that are kept on each side of a change."""
MIN_FOLD = 80
"""Shorter stretches are not folded."""
MAX_CHANGE = 6_000
"""Characters of one removed or added stretch that are kept."""
MAX_WORDS = 20_000
"""Words of a changed stretch that are compared; longer ones are shown whole."""
MAX_MATCHED = 10_000
"""The product of word counts up to which words without a unique one among them are compared one by one."""
MIN_COMMON = 0.2
"""The share of common words below which two stretches count as different texts."""
MAX_SEGMENTS = 400
WORDS = re.compile(r"\n|[^\S\n]+|\w+|[^\w\s]")
HAS_WORD = re.compile(r"\w")


class Segment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of two compared texts.

    "folded" are unchanged characters, and "cut" changed ones, that are left out here: `count` is their number. For all
    others, `text` is the text and `count` is 0.
    """

    kind: SegmentKind
    text: str = ""
    count: int = 0


class _Piece(Struct):
    """A stretch while texts are compared: what the first text has, and what the second one has instead."""

    before: str
    after: str

    @property
    def is_same(self) -> bool:
        return self.before == self.after


def diff_texts(before: str, after: str) -> list[Segment]:
    """Return the differences of two texts as segments in order."""
    pieces = _join(_compare_lines(before, after))
    found: list[Segment] = []
    for index, piece in enumerate(pieces):
        if piece.is_same:
            found += _fold(piece.after, is_first=index == 0, is_last=index == len(pieces) - 1)
        else:
            found += [*show_text("removed", piece.before), *show_text("added", piece.after)]
    if len(found) > MAX_SEGMENTS:
        rest = found[MAX_SEGMENTS:]
        found[MAX_SEGMENTS:] = [Segment(kind="cut", count=sum([len(each.text) + each.count for each in rest]))]
    return found


def show_text(kind: Literal["removed", "added", "same"], text: str) -> list[Segment]:
    """Return a whole text as removed, added or unchanged. A long one is cut."""
    if not text:
        return []
    shown = [Segment(kind=kind, text=text[:MAX_CHANGE])]
    return [*shown, Segment(kind="cut", count=len(text) - MAX_CHANGE)] if len(text) > MAX_CHANGE else shown


def _compare_lines(before: str, after: str) -> Iterator[_Piece]:
    start = count_common_prefix(before, after)
    start = max(before.rfind("\n", 0, start), before.rfind(" ", 0, start)) + 1
    yield _Piece(before[:start], before[:start])
    old, new = before[start:].splitlines(keepends=True), after[start:].splitlines(keepends=True)
    done = at = 0
    for first, second, length in [*align(old, new), (len(old), len(new), 0)]:
        yield from _compare_words("".join(old[done:first]), "".join(new[at:second]))
        same = "".join(new[second : second + length])
        yield _Piece(same, same)
        done, at = first + length, second + length


def _compare_words(before: str, after: str) -> list[_Piece]:
    """Return the differences of two stretches; as one if they have little in common."""
    if not before or not after:
        return [_Piece(before, after)]
    old, new = WORDS.findall(before), WORDS.findall(after)
    if max(len(old), len(new)) > MAX_WORDS:
        return [_Piece(before, after)]
    pieces = list(_align_words(old, new))
    common = sum([len(each.after) for each in pieces if each.is_same and HAS_WORD.search(each.after)])
    return pieces if common >= MIN_COMMON * min(len(before), len(after)) else [_Piece(before, after)]


def _align_words(old: Sequence[str], new: Sequence[str]) -> Iterator[_Piece]:
    done = at = 0
    for first, second, length in [*align(old, new), (len(old), len(new), 0)]:
        yield from _match_words(old[done:first], new[at:second])
        same = "".join(new[second : second + length])
        yield _Piece(same, same)
        done, at = first + length, second + length


def _match_words(old: Sequence[str], new: Sequence[str]) -> Iterator[_Piece]:
    if not old or not new or len(old) * len(new) > MAX_MATCHED:
        yield _Piece("".join(old), "".join(new))
        return
    for _, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield _Piece("".join(old[first:last]), "".join(new[start:end]))


def _join(pieces: Iterator[_Piece]) -> list[_Piece]:
    """Return the pieces with neighbours of one kind joined. Unchanged white space or punctuation between two changes
    counts as changed, because single equal characters make a change hard to read.
    """
    found: list[_Piece] = []
    some = [each for each in pieces if each.before or each.after]
    for index, piece in enumerate(some):
        is_between = 0 < index < len(some) - 1 and not some[index - 1].is_same and not some[index + 1].is_same
        is_same = piece.is_same and not (is_between and len(piece.after) < 3 and not HAS_WORD.search(piece.after))
        if found and (found[-1].is_same == is_same or (piece.is_same and not is_same)):
            found[-1] = _Piece(found[-1].before + piece.before, found[-1].after + piece.after)
        else:
            found.append(piece)
    return found


def _fold(text: str, *, is_first: bool, is_last: bool) -> list[Segment]:
    """Return unchanged text with its middle folded; at an end of the text, with all but the side at the change."""
    head, tail = 0 if is_first else CONTEXT, 0 if is_last else CONTEXT
    if len(text) <= head + tail + MIN_FOLD:
        return [Segment(kind="same", text=text)]
    end = len(text) - tail
    shown = (
        Segment(kind="same", text=text[:head]),
        Segment(kind="folded", count=end - head),
        Segment(kind="same", text=text[end:]),
    )
    return [each for each in shown if each.text or each.count]

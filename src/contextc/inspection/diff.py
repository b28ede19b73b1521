"""Differences between two texts, word by word, and between two requests, field by field."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from contextc._sequence_comparison import align, count_common_prefix, find_common_runs, split_at_runs
from contextc.errors import InvalidRequest

# ── two texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Differences between two texts, word by word. Line breaks are kept, and long unchanged stretches are folded.
#
# Lines are aligned first, then the words of lines that differ. The time is linear in the lengths of the texts.


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
    pieces = _join_pieces(_compare_lines(before, after))
    found: list[Segment] = []
    for index, piece in enumerate(pieces):
        if piece.is_same:
            found += _fold_unchanged(piece.after, is_first=index == 0, is_last=index == len(pieces) - 1)
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
    lines = before[start:].splitlines(keepends=True), after[start:].splitlines(keepends=True)
    yield from _compare_aligned(*lines, lambda old, new: _compare_words("".join(old), "".join(new)))


def _compare_aligned(
    old: Sequence[str], new: Sequence[str], compare: Callable[[Sequence[str], Sequence[str]], Iterable[_Piece]]
) -> Iterator[_Piece]:
    """Yield the pieces of two lists of lines or words: what both have, and in between what `compare` finds."""
    for gone, come, _, run in split_at_runs(old, new, align(old, new)):
        yield from compare(gone, come)
        same = "".join(run)
        yield _Piece(same, same)


def _compare_words(before: str, after: str) -> list[_Piece]:
    """Return the differences of two stretches; as one if they have little in common."""
    if not before or not after:
        return [_Piece(before, after)]
    old, new = WORDS.findall(before), WORDS.findall(after)
    if max(len(old), len(new)) > MAX_WORDS:
        return [_Piece(before, after)]
    pieces = list(_compare_aligned(old, new, _match_words))
    common = sum([len(each.after) for each in pieces if each.is_same and HAS_WORD.search(each.after)])
    return pieces if common >= MIN_COMMON * min(len(before), len(after)) else [_Piece(before, after)]


def _match_words(old: Sequence[str], new: Sequence[str]) -> Iterator[_Piece]:
    if not old or not new or len(old) * len(new) > MAX_MATCHED:
        yield _Piece("".join(old), "".join(new))
        return
    for _, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield _Piece("".join(old[first:last]), "".join(new[start:end]))


def _join_pieces(pieces: Iterator[_Piece]) -> list[_Piece]:
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


def _fold_unchanged(text: str, *, is_first: bool, is_last: bool) -> list[Segment]:
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


# ── two requests ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The differences between two requests, field by field and message by message.
#
# A run of equal messages is folded into one hunk. Messages are compared as bytes; those that differ are formatted as
# JSON and compared line by line. Long output is truncated, and `cut` reports that.


HunkKind: TypeAlias = Literal["same", "added", "removed"]
MAX_LINES = 4_000  # lines of all hunks
MAX_COMPARED_LINES = 2_000  # lines of one message; longer ones are not compared line by line
MAX_LINE_LENGTH = 4_000  # characters per line
CONTEXT_LINES = 3
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode


class Hunk(Struct, frozen=True, kw_only=True):
    """A run of lines or messages of one kind. `path` is its position in the request. `count` is its length; equal lines
    are omitted except for some context around a change.
    """

    kind: HunkKind
    path: str
    lines: list[str]
    count: int


class RequestDiff(Struct, frozen=True, kw_only=True):
    """`before` is the number of the compared request, None if there is none or it is not known. `unchanged_bytes` are
    those that both requests have. `cut` is True if hunks are missing.
    """

    before: int | None
    unchanged_bytes: int
    hunks: list[Hunk]
    cut: bool


def diff_requests(before: bytes, after: bytes, number: int | None = None) -> RequestDiff:
    """Return the differences between two requests. `number` is that of the earlier one. Raises `InvalidRequest` if one
    of them is not a JSON object.
    """
    try:
        old, new = _decode_fields(before), _decode_fields(after)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"request must be a JSON object: {error}", fix="Pass a whole request.") from None
    telling = _HunkCollector()
    for name in dict.fromkeys([*new, *old]):
        telling.field(name, old.get(name), new.get(name))
    return RequestDiff(before=number, unchanged_bytes=telling.unchanged, hunks=telling.hunks, cut=telling.cut)


class _HunkCollector:
    """Collects hunks in order, up to a maximum number of lines."""

    def __init__(self) -> None:
        self.hunks: list[Hunk] = []
        self.unchanged = self.shown_lines = 0
        self.cut = False

    def field(self, name: str, old: Raw | None, new: Raw | None) -> None:
        before, after = (None if each is None else bytes(each) for each in (old, new))
        lists = [
            [bytes(element) for element in _decode_elements(each or b"[]")] if (each or b"[")[:1] == b"[" else None
            for each in (before, after)
        ]
        if before == after:
            self._same(name, [after or b""])
        elif lists[0] is not None and lists[1] is not None:
            self._lists(name, lists[0], lists[1])
        else:
            self._changed(name, before, after)

    def _lists(self, name: str, before: list[bytes], after: list[bytes]) -> None:
        done = at = 0
        for start, other, length in [*find_common_runs(before, after), (len(before), len(after), 0)]:
            gone, come = before[done:start], after[at:other]
            if len(gone) == len(come):
                for index, (one, two) in enumerate(zip(gone, come, strict=True), at):
                    self._changed(f"{name}[{index}]", one, two)
            else:
                for index, one in enumerate(gone, done):
                    self._changed(f"{name}[{index}]", one, None)
                for index, two in enumerate(come, at):
                    self._changed(f"{name}[{index}]", None, two)
            if length:
                path = f"{name}[{other}]" if length == 1 else f"{name}[{other}…{other + length - 1}]"
                self._same(path, after[other : other + length])
            done, at = start + length, other + length

    def _same(self, path: str, values: Sequence[bytes]) -> None:
        self.unchanged += sum(map(len, values))
        self.hunks.append(Hunk(kind="same", path=path, lines=[], count=len(values)))

    def _changed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        if self.shown_lines >= MAX_LINES:
            self.cut = True
            return
        old, new = (
            None if each is None else msgspec.json.format(each, indent=2).decode("utf-8", "replace").split("\n")
            for each in (before, after)
        )
        if old is None or new is None or max(len(old), len(new)) > MAX_COMPARED_LINES:
            self._add_hunk("removed", path, old or [])
            self._add_hunk("added", path, new or [])
            return
        for tag, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                self._around(path, old[first:last])
            else:
                self._add_hunk("removed", path, old[first:last])
                self._add_hunk("added", path, new[start:end])

    def _around(self, path: str, lines: list[str]) -> None:
        """Add unchanged lines: those next to a change, and a fold between them."""
        shown = lines if len(lines) <= 2 * CONTEXT_LINES + 1 else [*lines[:CONTEXT_LINES], "…", *lines[-CONTEXT_LINES:]]
        self.shown_lines += len(shown)
        self.hunks.append(Hunk(kind="same", path=path, lines=shown, count=len(lines)))

    def _add_hunk(self, kind: HunkKind, path: str, lines: list[str]) -> None:
        if not lines:
            return
        room = max(0, MAX_LINES - self.shown_lines)
        shown = [line if len(line) <= MAX_LINE_LENGTH else line[:MAX_LINE_LENGTH] + "…" for line in lines[:room]]
        self.cut = self.cut or len(shown) < len(lines) or any(len(line) > MAX_LINE_LENGTH for line in lines[:room])
        self.shown_lines += len(shown)
        if shown:
            self.hunks.append(Hunk(kind=kind, path=path, lines=shown, count=len(lines)))

"""The differences between two requests, field by field and message by message.

A run of equal messages is folded into one hunk. Messages are compared as bytes; those that differ are formatted as JSON
and compared line by line. Long output is truncated, and `cut` reports that.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct

from contextc.errors import InvalidRequest
from contextc.inspection.sequence_alignment import find_common_runs

HunkKind: TypeAlias = Literal["same", "added", "removed"]
MAX_LINES = 4_000  # lines of all hunks
MAX_COMPARED_LINES = 2_000  # lines of one message; longer ones are not compared line by line
MAX_LINE_LENGTH = 4_000  # characters per line
CONTEXT_LINES = 3
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode


class Hunk(Struct, frozen=True, kw_only=True):
    """A run of lines or messages of one kind. `path` is its position in the request. `count` is its length; equal lines
    are omitted except for some context around a change.
    """

    kind: HunkKind
    path: str
    lines: list[str]
    count: int


class RequestDiff(NamedTuple):
    """`unchanged` is the number of bytes that both requests have. `cut` is True if the output was truncated."""

    hunks: list[Hunk]
    unchanged: int
    cut: bool


def diff_requests(before: bytes, after: bytes) -> RequestDiff:
    """Return the differences between two requests. Raises `InvalidRequest` if one of them is not a JSON object."""
    try:
        old, new = _fields(before), _fields(after)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"request must be a JSON object: {error}", fix="Pass a whole request.") from None
    telling = _HunkCollector()
    for name in dict.fromkeys([*new, *old]):
        telling.field(name, old.get(name), new.get(name))
    return RequestDiff(telling.hunks, telling.unchanged, telling.cut)


class _HunkCollector:
    """Collects hunks in order, up to a maximum number of lines."""

    def __init__(self) -> None:
        self.hunks: list[Hunk] = []
        self.unchanged = self.shown_lines = 0
        self.cut = False

    def field(self, name: str, old: Raw | None, new: Raw | None) -> None:
        before, after = (None if each is None else bytes(each) for each in (old, new))
        lists = [_list_in(each or b"[]") for each in (before, after)]
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
        old, new = (None if each is None else _printed(each) for each in (before, after))
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


def _list_in(value: bytes) -> list[bytes] | None:
    return [bytes(each) for each in _elements(value)] if value[:1] == b"[" else None


def _printed(value: bytes) -> list[str]:
    return msgspec.json.format(value, indent=2).decode("utf-8", "replace").split("\n")

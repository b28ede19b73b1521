"""Sanitize text of models and tools for display: it is untrusted, and must not style or control the terminal or page.

`sanitize` is for reading: unprintable characters become a replacement character. `spell_out_invisible` is for
approvals: every invisible character is spelled out, as ⟨U+3164⟩, and a long run of spaces is counted.
"""

import re
from collections.abc import Iterable
from itertools import groupby

TAB_SPACES = "    "
REPLACEMENT = "\ufffd"
OPEN, CLOSE = "⟨", "⟩"
_RANGES = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x13441, 0x13442))
_SINGLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u2d7f\u3164\uffa0\ufffc\U00016fe4\U0001d159"
INVISIBLE = frozenset(_SINGLE) | {chr(number) for first, last in _RANGES for number in range(first, last + 1)}
"""Printable characters, according to Unicode, that are invisible: fillers, blanks, variation selectors, joiners."""
LONG_SPACES = re.compile(" {40,}")
"""Spaces that could push the text after them out of view."""
MIN_COUNTED_BLANK_LINES = 4
"""Number of blank lines in a row from which on they are replaced by a count."""


def sanitize(text: str) -> str:
    """Return text for reading: line ends stay, tabs become spaces, other unprintable characters become U+FFFD."""
    plain = text.replace("\r\n", "\n").replace("\t", TAB_SPACES)
    return "".join([each if each.isprintable() or each == "\n" else REPLACEMENT for each in plain])


def spell_out_invisible(text: str) -> str:
    """Return text for approvals: line ends stay, every other invisible character is spelled out.

    An opening bracket ⟨ in the text is spelled out too, so that no text can imitate a spelled-out character.
    """
    spelled = "".join([each if _is_visible(each) or each == "\n" else _spell_out(each) for each in text])
    return LONG_SPACES.sub(lambda run: f"{OPEN}{len(run[0]):,} spaces{CLOSE}", spelled)


def spell_out_line(text: str) -> str:
    """Return `spell_out_invisible` text on a single line, with line ends spelled out."""
    return spell_out_invisible(text).replace("\n", _spell_out("\n"))


def count_blank_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines with each long run of blank lines, also of added or removed ones, replaced by a count."""
    found: list[str] = []
    for sign, group in groupby(lines, lambda line: blank if (blank := line.strip(" ")) in ("", "+", "-") else None):
        run = list(group)
        is_long = sign is not None and len(run) >= MIN_COUNTED_BLANK_LINES
        found += [f"{sign}{OPEN}{len(run):,} blank lines{CLOSE}"] if is_long else run
    return found


def _is_visible(character: str) -> bool:
    return character.isprintable() and character not in INVISIBLE and character != OPEN


def _spell_out(character: str) -> str:
    return f"{OPEN}U+{ord(character):04X}{CLOSE}"

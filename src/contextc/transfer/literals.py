"""What Python prints of a list of messages, as JSON: people copy it from a terminal, with single quotes and None.

It is read as a literal and never run. What is read is bounded before a parser sees it: in length, in depth, and to what
a print of plain values can hold, because a parser may be brought to its knees by nesting and by long chains of signs.
"""

import ast
import re
from typing import cast

from contextc._json import JSON, encode

LONGEST = 4_000_000
DEEPEST = 60
STRING = re.compile(r"""'(?:\\.|[^'\\\n])*+'|"(?:\\.|[^"\\\n])*+"|['"]""", re.DOTALL)
"""A string, or a quote that begins none."""
PLAIN = re.compile(r"(?:[\[\]{}(),:\s]|True\b|False\b|None\b|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)*+")
CHAIN = re.compile(r"[\w\])}]\s*[-\[({]")
"""Something that is called, taken from or subtracted from: of no printed value."""


def as_json(text: str) -> str | None:
    """The JSON of a list or an object that Python printed; None where it is something else."""
    text = text.strip()
    if text[:1] not in ("[", "{") or len(text) > LONGEST:
        return None
    around = _around(text)
    if around is None or PLAIN.fullmatch(around) is None or CHAIN.search(around) or _depth(around) > DEEPEST:
        return None
    try:
        return encode(_plain(ast.literal_eval(text))).decode()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _around(text: str) -> str | None:
    """The text with a 0 for each string; None where a quote is left."""
    pieces: list[str] = []
    at = 0
    for found in STRING.finditer(text):
        if len(found[0]) == 1:
            return None
        pieces += [text[at : found.start()], "0"]
        at = found.end()
    return "".join([*pieces, text[at:]])


def _depth(around: str) -> int:
    deepest = depth = 0
    for letter in re.findall(r"[\[{()}\]]", around):
        depth += (letter in "[{(") - (letter in "]})")
        deepest = max(deepest, depth)
    return deepest


def _plain(value: object) -> JSON:
    """A value as JSON has it. Raises ValueError where JSON has none."""
    if isinstance(value, dict):
        held = cast(dict[object, object], value)
        if not all(isinstance(name, str) for name in held):
            raise ValueError("a key must be text")
        return {str(name): _plain(each) for name, each in held.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast(list[object], value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"{type(value).__name__} has no JSON equivalent")

"""Python's printed form of a list of messages, converted to JSON: text copied from a terminal, with single quotes.

It is parsed as a literal and never run. Its length, depth and characters are limited first, because deep nesting
and long chains of operators can exhaust a parser.
"""

import ast
import re
from typing import cast

from contextc._json import JSON, encode

MAX_LENGTH = 4_000_000
MAX_DEPTH = 60
STRING = re.compile(r"""'(?:\\.|[^'\\\n])*+'|"(?:\\.|[^"\\\n])*+"|(['"]).*""", re.DOTALL)
"""A string, or all after a single quote that starts none."""
PLAIN = re.compile(r"(?:[\[\]{}(),:\s]|True\b|False\b|None\b|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)*+")
OPERATOR = re.compile(r"[\w\])}]\s*[-\[({]")
"""A call, a subscript or a subtraction, which no printed value contains."""


def repr_to_json(text: str) -> str | None:
    """Return the JSON of a list or an object that Python printed; None for any other text."""
    text = text.strip()
    if text[:1] not in ("[", "{") or len(text) > MAX_LENGTH:
        return None
    around = _without_strings(text)
    if around is None or PLAIN.fullmatch(around) is None or OPERATOR.search(around) or _depth(around) > MAX_DEPTH:
        return None
    try:
        return encode(_to_json_value(ast.literal_eval(text))).decode()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _without_strings(text: str) -> str | None:
    """Return the text with a 0 in place of each string; None if a quote is left."""
    pieces: list[str] = []
    at = 0
    for found in STRING.finditer(text):
        if found[1]:
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


def _to_json_value(value: object) -> JSON:
    """Return the JSON form of a value. Raise ValueError if it has none."""
    if isinstance(value, dict):
        held = cast(dict[object, object], value)
        if not all(isinstance(name, str) for name in held):
            raise ValueError("a key must be text")
        return {str(name): _to_json_value(each) for name, each in held.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(each) for each in cast(list[object], value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"{type(value).__name__} has no JSON equivalent")

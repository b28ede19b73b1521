"""Parse the descriptions of a function and of its parameters from a docstring.

The first paragraph describes the function. Descriptions of parameters may be an `Args:` section, `:param path:` lines,
NumPy's underlined section, or plain `path: …` lines. Only names of parameters are matched, so a sentence with a colon
is not taken for a description.
"""

import inspect
import re
from collections.abc import Collection, Mapping

from msgspec import Struct

PARAMETER_LINE = re.compile(
    r"(?P<indent>\s*)(?::param\s+(?:[^:\s]+\s+)?|[-*]\s+)?`?(?P<name>\w+)`?(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)"
)
SECTION_HEADING = re.compile(
    r"(args|arguments|parameters|params|attributes|returns?|raises|yields?|examples?|notes?)(:|\s*$)", re.I
)
FIELD_LINE = re.compile(r":(param|type|returns?|rtype|raises?)\b")


class ParsedDocstring(Struct, frozen=True):
    """A parsed docstring."""

    text: str = ""
    parameters: Mapping[str, str] = {}


def parse_docstring(written: str | None, names: Collection[str]) -> ParsedDocstring:
    """Return the first paragraph and the descriptions of the parameters `names`."""
    lines = inspect.cleandoc(written or "").splitlines()
    return ParsedDocstring(_first_paragraph(lines, names), _parameters(lines, names))


def _first_paragraph(lines: list[str], names: Collection[str]) -> str:
    found: list[str] = []
    for line in lines:
        if not line.strip() or FIELD_LINE.match(line) or _is_section(line) or _named(line, names):
            break
        found.append(line.strip())
    return " ".join(found)


def _is_section(line: str) -> bool:
    match = SECTION_HEADING.match(line)
    return match is not None and not line[match.end() :].strip()


def _named(line: str, names: Collection[str]) -> re.Match[str] | None:
    match = PARAMETER_LINE.fullmatch(line)
    return match if match is not None and match["name"] in names else None


def _parameters(lines: list[str], names: Collection[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current, indent, underlined = "", 0, False
    for number, line in enumerate(lines):
        if set(line.strip()) == {"-"} and number and _is_section(lines[number - 1]):
            underlined = True
        match = _named(line, names)
        if match is not None and match["name"] not in found:
            current, indent = match["name"], len(match["indent"])
            found[current] = [] if underlined else [match["text"]]
        elif current and line.strip() and len(line) - len(line.lstrip()) > indent:
            found[current].append(line.strip())
        else:
            current = ""
    return {name: " ".join(filter(None, texts)) for name, texts in found.items() if any(texts)}

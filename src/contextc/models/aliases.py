"""Aliases of models: match the names that providers use to the entries of a table.

One model has many names: dated (`gpt-4.1-2025-04-14`), with a vendor prefix (`anthropic/claude-sonnet-4.5`,
`us.anthropic.claude-opus-4-5-20251101-v1:0`), with a path (`models/gemini-2.5-pro`), with a tag (`gpt-oss:20b`,
`…:free`). Dots, colons and similar signs compare as dashes. An entry matches a name that continues only with dates,
versions, sizes and tags; the longest entry wins. `claude-opus-5-7` therefore does not match `claude-opus-5`: a wrong
window is worse than none. If the table has a dated alias of an entry (`mistral-large-2512` for `mistral-large`), the
entry matches no other month (`mistral-large-2402`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping

_SEPARATORS = re.compile(r"[._:@\s]+")
_REGION = re.compile(r"(?:us-gov|us|eu|apac|global|jp|au|ca|sa)-")
_SUFFIXES = tuple(
    re.compile(rf"-(?:{each})(?![^-])")
    for each in (
        r"\d{8}|\d{3,4}"  # 20251101, 0613, 001
        r"|v\d+|latest|preview|beta|exp|experimental"
        r"|\d+[bm]|instruct|it|fp\d+|bf16|awq|cloud"  # sizes and packings
        r"|free|thinking|extended|nitro|floor|online|exacto",  # a router's tags
        r"\d\d-\d\d(?:\d\d)?|v\d+-\d+|\d+-\d+[bm]",  # 05-20, 09-2025
        r"\d{4}-\d\d-\d\d",  # 2025-04-14
        r"q\d[a-z0-9-]*",
    )
)
"""What may follow the name of an entry: one, two or three words, and one with all that follows."""
MAX_LENGTH = 200
"""No name of a model is longer. Names come from requests of other programs, too."""
_MONTH = re.compile(r"-\d{4}(?![^-])")


def normalize_name(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().lower())


def iter_name_variants(name: str, vendors: Iterable[str]) -> Iterator[str]:
    """Yield the name without its path, then without its vendor prefix."""
    whole = normalize_name(name.rsplit("/", 1)[-1])
    yield whole
    bare = _REGION.sub("", whole, count=1) if _REGION.match(whole) else whole
    for vendor in vendors:
        if bare.startswith(f"{vendor}-"):
            yield bare[len(vendor) + 1 :]


def match_entry(name: str, entries: Mapping[str, object], vendors: Iterable[str] = ()) -> str | None:
    """Return the longest entry, in dashed form, that matches this name."""
    if len(name) > MAX_LENGTH:
        return None
    for spelling in iter_name_variants(name, vendors):
        end = len(spelling)
        while end > 0:
            if spelling[:end] in entries and _has_suffixes_only(spelling, end):
                return None if _is_of_another_month(spelling, end, entries) else spelling[:end]
            end = spelling.rfind("-", 0, end)
    return None


def _has_suffixes_only(spelling: str, start: int) -> bool:
    """Return True if all words from a position on are suffixes. Each position is examined once."""
    reached = {start}
    while start not in (-1, len(spelling)):
        if start in reached:
            reached |= {match.end() for each in _SUFFIXES if (match := each.match(spelling, start))}
        start = spelling.find("-", start + 1)
    return len(spelling) in reached


def _is_of_another_month(spelling: str, end: int, entries: Mapping[str, object]) -> bool:
    """Return True if a name has another month than the dated alias of the entry in the table."""
    if not _MONTH.match(spelling, end):
        return False
    found = entries[spelling[:end]]
    dated = (each for each in entries if each.startswith(spelling[:end]) and _MONTH.fullmatch(each, end))
    return any(entries[each] is found for each in dated)

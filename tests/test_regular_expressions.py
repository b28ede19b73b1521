"""Regular expressions take a time that grows with the length of the text, whatever the text is.

Python's `re` tries one way after the other, and holds the interpreter's lock: an expression that is slow on hostile
text would stop the recorder, the proxy or the server. Tool results and web pages can be such texts.
"""

import re
from functools import cache

import pytest

from tests.conftest import often
from tests.hostile_runs import grows_too_fast, hostile_runs
from tests.project_patterns import Used, project_patterns

SLOW = {
    "two repetitions of the same letters": (r"a+b?a+c", "match"),
    "a start at every letter": (r"[a-z.]+@", "search"),
    "one in another": (r"(?:a+)+b", "match"),
    "an end far away": (r"<a>.*?</a>", "search"),
    "a date in two ways": (r"(?:-(?:\d{4}-\d\d|\d{4}|\d\d))*", "fullmatch"),
}

patterns = cache(project_patterns)


def _slow(used: Used, count: int) -> list[str]:
    runs = hostile_runs(used.pattern.pattern, used.pattern.flags, count=count)
    slow = next((run for run in runs if grows_too_fast(used.pattern, used.method, run)), None)
    return [f"{used.where}: {used.method} with {used.pattern.pattern!r} on {slow}"] if slow else []


@pytest.mark.parametrize("name", SLOW)
def test_runs_derived_from_an_expression_find_slow_ones(name: str) -> None:
    """The check itself finds what it is made for."""
    pattern, method = SLOW[name]
    assert _slow(Used(name, re.compile(pattern), method), 100)


def test_every_expression_is_linear_on_hostile_runs() -> None:
    """A tool result of a megabyte must not hold the process for minutes. One test: to find them all takes seconds."""
    found = {each.where.partition(":")[0] for each in patterns()}
    assert {"contextc._credential_mask", "contextc.observation.client_ids"} <= found, "functions and data"
    assert {"contextc.analysis.changed_content.DATE", "web/static/app/markdown.js"} <= found, "modules and scripts"
    assert len(patterns()) > 250
    assert [each for used in patterns() for each in _slow(used, often(5, 700))] == []

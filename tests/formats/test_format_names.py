"""What a format is like is an attribute of it, so that another format needs no other file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contextc.formats import format_names

SOURCES = Path(__file__).parent.parent.parent / "src" / "contextc"
KNOWN = {
    ("analysis/cache_model.py", "openai_chat"),
    ("compiler/history.py", "openai_chat"),
    ("web/api/events.py", "vercel"),
}
"""Modules that ask for a name: the models of many vendors are behind Chat Completions, and one protocol has the name
of a format.
"""


def compared_texts(tree: ast.AST) -> Iterator[object]:
    """The constants that something is compared with, also as one of several and as a case."""
    for node in ast.walk(tree):
        values = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        values += [node.value] if isinstance(node, ast.MatchValue) else []
        for value in values:
            for each in value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]:
                if isinstance(each, ast.Constant):
                    yield each.value


def test_no_module_outside_the_formats_asks_which_format_it_has() -> None:
    quoted = re.compile(rf"""["'](?:{"|".join(format_names())})["']""")
    sources = {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py")}
    found = {
        (name, text)
        for name, source in sources.items()
        if not name.startswith("formats/") and quoted.search(source)  # to parse all of them takes seconds
        for text in compared_texts(ast.parse(source))
        if text in format_names()
    }
    assert found == KNOWN

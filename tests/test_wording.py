"""One vocabulary: words that the glossary replaces do not come back into docs, errors or docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parent.parent
UNWANTED = re.compile(
    r"\b(nobody|somebody|whoever|whom|foul weather|deeds?|mends?|mended|mending|houses?|by hand|anew)\b", re.IGNORECASE
)
"""Use the words of docs/glossary.md: model, client, caller; repair or fix; vendor; manually; again."""
OPENINGS = re.compile(r"(What|Who|Where|How|Whether|Which|Whose|Whom)\b")
"""A docstring starts with a verb or with the noun it defines."""
OPENING_DOCSTRING = re.compile(rf'"""{OPENINGS.pattern}')
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
MODULES = sorted((ROOT / "src" / "contextc").rglob("*.py"))
CODE = re.compile(r"```.*?```|`[^`]*`|<!--.*?-->", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_docs_use_the_text_of_the_glossary(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    assert sorted({found[0] for found in UNWANTED.finditer(text)}) == []


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the module and its statements, not their expressions: that takes a tenth of the time of `ast.walk`."""
    yield tree
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        children: object = getattr(tree, block, None)
        for child in cast(list[ast.AST], children) if isinstance(children, list) else []:
            yield from _statements(child)


def _raised(statements: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the texts in `raise` statements, with their lines."""
    for node in statements:
        if isinstance(node, ast.Raise):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.lineno, each.value


def _docstrings(statements: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in statements:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def test_errors_and_docstrings_use_the_text_of_the_glossary() -> None:
    """A docstring starts with a verb or a noun, and every module has one."""
    wrong: list[str] = []
    for path in MODULES:
        text, name = path.read_text(), path.relative_to(ROOT)
        if text.startswith('"""') and not UNWANTED.search(text) and not OPENING_DOCSTRING.search(text):
            continue  # to parse all of them takes seconds
        tree = ast.parse(text)
        statements = [*_statements(tree)]
        wrong += [f"{name}:{line}: {text}" for line, text in _raised(statements) if UNWANTED.search(text)]
        wrong += [
            f"{name}:{line}: {text.splitlines()[0]}"
            for line, text in _docstrings(statements)
            if OPENINGS.match(text) or UNWANTED.search(text.split("Example:")[0])
        ]
        if ast.get_docstring(tree) is None and path.name != "__main__.py":
            wrong.append(f"{name} has no docstring")
    assert wrong == []

"""The requirements of the design documents A to D, each with the tests that prove it.

A table per document lists them in the order of the document. A requirement names its tests by file, or by file and
function. If contextc does something else, `different` says why, and `option` how to get what the document asks for.
"""

import ast
import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct, convert

from contextc.compiler.draft import CompilerOptions

TESTS = Path(__file__).parent.parent
CASES = TESTS / "data" / "cases"
TABLES = sorted(Path(__file__).parent.glob("*.toml"))


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a table."""

    id: str
    section: str
    text: str
    tests: list[str]
    different: str = ""
    option: str = ""


def read_requirements(table: Path) -> list[Requirement]:
    return convert(tomllib.loads(table.read_text())["requirement"], list[Requirement])


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """Return the names of the tests that pytest collects from a file, or of the cases in a file of data."""
    if path.parent == CASES:
        return frozenset(json.loads(path.read_text()))
    functions = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_each_document_has_a_table() -> None:
    """A document without one would have no requirement that is checked."""
    assert [table.stem[0] for table in TABLES] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_requirements_are_numbered_and_said_in_a_sentence(table: Path) -> None:
    """A reader understands them without the document, and finds the next one."""
    rows = read_requirements(table)
    assert [row.id for row in rows] == [f"{table.stem[0].upper()}{number}" for number in range(1, len(rows) + 1)]
    for row in rows:
        assert row.section, row.id
        for text in (row.text, row.different or ".", row.option or "."):
            assert re.fullmatch(r".*\S.*\.|\.", text), f"{row.id} must be sentences, got {text!r}"
        assert row.different or not row.option, f"{row.id}: an option needs the reason for which it exists"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_requirement_has_tests_that_exist(table: Path) -> None:
    """A test that was renamed or deleted must not leave a requirement without a proof."""
    for row in read_requirements(table):
        assert row.tests, f"{row.id} must name a test"
        for test in row.tests:
            file, _, name = test.partition("::")
            path = TESTS / file
            collected = path.parent == CASES or path.name.startswith("test_")
            assert collected, f"{row.id}: {test} must be in a file that pytest collects"
            assert path.is_file(), f"{row.id}: {file} must exist"
            assert name in names_of_tests(path) if name else names_of_tests(path), f"{row.id}: {test} must exist"


def test_options_that_offer_what_a_document_asks_for_exist() -> None:
    """An option that was renamed would leave its author without what was asked for."""
    texts = [row.option for table in TABLES for row in read_requirements(table)]
    named = [name for text in texts for name in re.findall(r"MessageCompiler\(…, (\w+)=", text)]
    assert len(named) > 4
    assert {*named} <= {*CompilerOptions.__struct_fields__}

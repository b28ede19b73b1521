"""The numbered guarantees of docs/guarantees.md, and the tests, sources and pages that cite them."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
SUFFIXES = {".py", ".md", ".js", ".mjs", ".html", ".css", ".sql", ".toml"}
CASES = Path("tests", "data", "cases")
NUMBER = r"\d+(?:\.\d+[a-z]?)?"
CITATION = re.compile(rf"\bGuarantees? ({NUMBER}(?:(?:, and |, | and | to ){NUMBER})*)")
UNPUBLISHED = re.compile(r"\b(?:SPEC|WIRE|FOUND)(?:\.md|:? §?[A-Z]?\d)|\bFIELD[-]BUGS\b|\b(?:by|as|of|in) SPEC\b")


def read_files() -> Iterator[tuple[Path, str]]:
    """Yield each file that people write, with line breaks inside sentences taken out."""
    for folder in ("tests", "src", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            inside = path.relative_to(ROOT)
            written = path.suffix in SUFFIXES and not {"data", "golden", "node_modules"} & set(inside.parts)
            if written or inside.parent == CASES:
                yield inside, re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text())


def read_numbers() -> list[str]:
    return re.findall(r'^\| <a id="g([\d.]+a?)"></a>\1 \| ', PAGE.read_text(), re.M)


def order(number: str) -> tuple[int, int, str]:
    section, item = number.split(".")
    return int(section), int(item.rstrip("a")), item.lstrip("0123456789")


def test_every_row_of_the_page_is_a_numbered_guarantee() -> None:
    """A row without an anchor could be cited and not be found."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and line != "| | |"]
    assert len(rows) == len(read_numbers()) > 80


def test_numbers_are_unique_and_in_order() -> None:
    """Readers look a number up by its place, so each is there once, behind the one before it."""
    assert all(order(first) < order(second) for first, second in pairwise(read_numbers()))


def test_every_guarantee_is_used_its_section() -> None:
    """The first part of a number is the section's number, and sections are in order."""
    pieces = re.split(r"^## (\d+)\. .*$", PAGE.read_text(), flags=re.M)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    assert [*sections] == sorted(sections, key=int)
    for section, text in sections.items():
        found = re.findall(r'<a id="g(\d+)\.', text)
        assert {*found} == {section}


def test_every_cited_guarantee_exists() -> None:
    """A citation leads a reader from a test to what it checks."""
    known, cited = set(read_numbers()), 0
    for path, text in read_files():
        for match in CITATION.finditer(text):
            unknown = set(re.findall(NUMBER, match[1])) - known
            assert not unknown, f"{path} cites {match[0]!r}, and docs/guarantees.md has no {sorted(unknown)}."
            cited += 1
    assert cited > 1000


def test_nothing_cites_a_document_that_users_do_not_have() -> None:
    """Readers have this repository only."""
    found = [f"{path}: {match[0]}" for path, text in read_files() for match in UNPUBLISHED.finditer(text)]
    assert found == []


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_page_is_linked(page: str) -> None:
    """A page without a link is not found."""
    assert "(docs/guarantees.md)" in (ROOT / page).read_text()

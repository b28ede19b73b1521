"""Names that are stored or sent, and texts that models read, are those that were recorded."""

from pathlib import Path

import pytest

from tests.golden.compare import assert_same
from tests.golden.names import names, schema_of
from tests.golden.recordings import read

RECORDED = read("names.json")


@pytest.fixture(scope="module")
def today() -> object:
    return names()


@pytest.mark.parametrize("what", RECORDED)
def test_names_are_what_they_were(today: dict[str, object], what: str) -> None:
    """Tables and columns, fields and tags of stored JSON, tools, triggers, prompt fragments, sentences, error kinds."""
    assert_same(RECORDED[what], today[what], what)


def test_the_golden_store_has_the_recorded_schema(raw: Path) -> None:
    assert_same(RECORDED["schema"], schema_of(raw), "the schema of the golden store")

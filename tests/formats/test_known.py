"""The test data of the formats is complete and correct."""

import pytest

from contextc.formats import format_names, formatter
from tests.formats.known import USUAL, Known, having, known


@pytest.mark.parametrize("name", format_names())
def test_every_format_has_a_complete_test_data_file(name: str) -> None:
    """Guarantee 10.5: the tests over all formats are about this one too."""
    assert [fact for fact in Known.__annotations__ if not hasattr(known(name), fact)] == []


@pytest.mark.parametrize("fact", ["UNANSWERED", "ORPHAN", "USER_FIRST"])
def test_a_code_is_one_of_the_formats_rules(fact: str) -> None:
    """Guarantee 10.6: each format has rules of its own."""
    for name in having(fact):
        assert getattr(known(name), fact) in [rule.code for rule in formatter(name).rules.rules]


def test_what_is_usual_is_nothing() -> None:
    """So that `having` names those that say something."""
    assert [fact for fact, value in USUAL.items() if value and not callable(value)] == []

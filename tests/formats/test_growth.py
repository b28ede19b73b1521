"""The work of every operation grows in proportion to the size of a request, whatever it repeats."""

import pytest

from contextc.formats import format_names
from tests.conftest import some
from tests.stress.format_growth import SHAPES, STEEPEST, growth

NAMES = format_names()
SIZE = 16
LONG = 80
"""So many that comparing each result with each call shows among the rest of the work."""


@pytest.mark.parametrize("shape", some([*SHAPES], 25))
def test_twice_the_size_takes_twice_the_work(shape: str) -> None:
    """A pasted file of a megabyte must not keep a server busy for minutes; each shape is tried in one format."""
    number = list(SHAPES).index(shape)
    format, target = NAMES[number % len(NAMES)], NAMES[(number + 3) % len(NAMES)]
    operation = "fix" if number % 2 else f"convert to {target}"
    small, large = growth(operation, format, shape, SIZE)
    assert large < STEEPEST * small, f"{operation}, {format}"


@pytest.mark.parametrize("format", ["mistral", "ollama", "openai_chat", "gemini"])
def test_results_in_reverse_order_take_no_more_work_each_than_few_of_them(format: str) -> None:
    """A model may make a thousand calls at once, and tools finish in any order."""
    for operation in ("lint", "decode and encode"):
        small, large = growth(operation, format, "parallel calls, answered in reverse", LONG)
        assert large < STEEPEST * small, operation

"""The pytest fixture `fake_model`, in every environment with contextc and pytest."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contextc.testing import FakeModel


@pytest.fixture
def fake_model() -> "Iterator[Callable[..., FakeModel]]":
    """Make fake models: `fake_model("Hello.")`. The test fails if an answer of one was not asked for."""
    from contextc.testing import FakeModel  # here, because pytest loads this module in every project

    made: list[FakeModel] = []

    def make(*answers: object, **options: object) -> FakeModel:
        made.append(FakeModel(*answers, **options))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield make
    unused = [model.unused for model in made if model.unused]
    assert not unused, f"{sum(unused)} of the answers of a fake model were not asked for"

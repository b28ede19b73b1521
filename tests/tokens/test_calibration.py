"""Calibration with the provider's token counts."""

import pytest

from contextc.models.tokens import Calibration, estimate_next_input


def test_the_first_figure_counts_most() -> None:
    """Guarantee 6.2: quickly at first, slowly later."""
    first = Calibration().with_sample(1_000, 1_300)
    assert first.factor == pytest.approx(1.3)
    many = Calibration(factor=1.3, samples=500).with_sample(1_000, 1_000)
    assert 1.28 < many.factor < 1.3
    assert first.apply(1_000) == 1_300


def test_it_settles_where_the_figures_are() -> None:
    """Guarantee 6.2"""
    learned = Calibration()
    for _ in range(50):
        learned = learned.with_sample(2_000, 2_400)
    assert learned.factor == pytest.approx(1.2)
    assert learned.samples == 50


@pytest.mark.parametrize(("estimated", "real"), [(0, 1_000), (1_000, 0), (-5, 1_000), (49, 49), (1_000, -1)])
def test_nonsense_teaches_nothing(estimated: int, real: int) -> None:
    """Guarantee 6.2: a provider that reports no usage must not move anything."""
    assert Calibration(1.1, 3).with_sample(estimated, real) == Calibration(1.1, 3)


def test_it_is_bounded() -> None:
    """Guarantee 6.2"""
    assert Calibration().with_sample(100, 100_000).factor == 2.0
    assert Calibration().with_sample(100_000, 100).factor == 0.5


def test_next_input() -> None:
    """Guarantee 6.2: never the sum of every request."""
    assert estimate_next_input(10_000, 400, 150) == 10_550
